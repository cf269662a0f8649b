mod security_support;
mod support;

mod commands;
mod output;
mod security_attacks;
mod security_calls;
mod security_input;
mod security_network;
mod security_processes;
mod security_view;
