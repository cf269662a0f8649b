mod security_support;
mod support;

mod commands;
mod files;
mod lifecycle;
mod limits;
mod output;
mod security_attacks;
mod security_calls;
mod security_files;
mod security_input;
mod security_network;
mod security_primitives;
mod security_processes;
mod security_storms;
mod security_view;
mod trees;
