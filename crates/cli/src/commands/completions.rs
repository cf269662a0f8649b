//! `ringfence completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::commands::print;
use crate::exit;
use crate::failure::Result;

/// Prints the completion script.
pub(crate) fn run(args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ringfence", &mut script);
    print(&String::from_utf8_lossy(&script), exit::OK, None)
}
