//! `ringfence renew`.

use crate::args::RenewArgs;
use crate::commands::{print, runtime};
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::reached::{attachable, backend_of, failed};

/// Renews the sandbox and prints what is left.
pub(crate) fn run(args: &RenewArgs, environment: &Environment) -> Result<u8> {
    let backend = backend_of(&args.handle, environment)?;
    let attachable = attachable(&*backend)?;
    let left = runtime()?
        .block_on(attachable.renew(args.handle.sandbox(), args.lifetime))
        .map_err(|error| failed(&args.handle, &error))?;
    print(&format!("{}\n", humantime::format_duration(left)), exit::OK, None)
}
