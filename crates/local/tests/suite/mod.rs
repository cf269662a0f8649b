mod support;

mod commands;
