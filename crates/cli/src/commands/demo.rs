//! `ringfence demo`.

use crate::args::DemoArgs;
use crate::environment::Environment;
use crate::failure::{Failure, Result};

/// Plays the run.
pub(crate) fn run(_args: &DemoArgs, _environment: &Environment) -> Result<u8> {
    Err(Failure::new("not there yet"))
}
