//! `ringfence write`.

use super::{DEFAULT_LIMIT_BYTES, drive, failed, spool};
use crate::args::WriteArgs;
use crate::environment::Environment;
use crate::exit;
use crate::failure::Result;
use crate::reached::backend_of;

/// Writes standard input to the file.
pub(crate) fn run(args: &WriteArgs, environment: &Environment) -> Result<u8> {
    let backend = backend_of(&args.handle, environment)?;
    let limit_bytes = args.limit.map_or(DEFAULT_LIMIT_BYTES, |limit| limit.get());
    drive(async {
        let mut input = spool::stdin(limit_bytes).await?;
        backend
            .import_file(args.handle.sandbox(), &args.path, input.bytes, args.executable, &mut *input.reader)
            .await
            .map_err(|error| failed(&args.handle, &args.path, &error))?;
        Ok(exit::OK)
    })
}
