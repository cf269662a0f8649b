mod attach;
mod capability;
mod claim;
mod clip;
mod command;
mod env;
mod error;
mod limits;
mod memory;
mod network;
mod output;
mod path;
mod pool;
mod spec;
mod statement;
mod support;

#[cfg(unix)]
mod export;
#[cfg(unix)]
mod probe;
mod secret;
mod shell;
#[cfg(unix)]
mod tree;
