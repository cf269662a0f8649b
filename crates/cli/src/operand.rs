//! The two sides of `ringfence cp`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use ringfence::{BackendSettings, GuestPath, Handle, Registry};

use crate::parse;

/// Where something is copied from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A path of a sandbox; relative ones start at its working directory.
    Sandbox(Handle, GuestPath),
    /// A path of this machine.
    Host(PathBuf),
    /// Standard input or output, as a tar archive.
    Stream,
}

/// Parses `HANDLE:PATH`, `-`, or a path of this machine. What begins with the name of a backend and a colon is in a sandbox; a file of
/// this machine that is called so is `./local:…`.
pub(crate) fn operand(text: OsString) -> Result<Operand, String> {
    let bytes = text.into_vec();
    if bytes == b"-" {
        return Ok(Operand::Stream);
    }
    let mut parts = bytes.splitn(3, |byte| *byte == b':');
    let scheme = parts.next().unwrap_or_default();
    let schemes = Registry::new(BackendSettings::default()).schemes();
    if parts.next().is_none() || !schemes.iter().any(|(known, _)| known.as_bytes() == scheme) {
        if bytes.is_empty() {
            return Err("it is empty".to_owned());
        }
        return Ok(Operand::Host(PathBuf::from(OsString::from_vec(bytes))));
    }
    let path = parts.next();
    let handle = &bytes[..bytes.len() - path.map_or(0, |path| path.len() + 1)];
    let handle = parse::handle(&String::from_utf8_lossy(handle))?;
    match path {
        Some(path) => {
            // Nothing behind the colon is the working directory, as the home directory is elsewhere.
            let path = if path.is_empty() { b".".as_slice() } else { path };
            let path = GuestPath::new(path).map_err(|error| error.message().to_owned())?;
            Ok(Operand::Sandbox(handle, path))
        }
        None => {
            Err(format!("which path of the sandbox? Say {handle}:PATH; {handle}: is its working directory"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operand_is_in_a_sandbox_if_it_begins_with_a_backend() {
        let parse = |text: &str| operand(text.into());
        let inside = |handle: &str, path: &str| {
            Ok(Operand::Sandbox(handle.parse().unwrap(), GuestPath::new(path).unwrap()))
        };
        let host = |path: &str| Ok(Operand::Host(PathBuf::from(path)));
        assert_eq!(parse("local:sb-1:/tmp/a"), inside("local:sb-1", "/tmp/a"));
        assert_eq!(parse("local:sb-1:a:b"), inside("local:sb-1", "a:b"));
        assert_eq!(parse("local:sb-1:"), inside("local:sb-1", "."));
        assert_eq!(parse("-"), Ok(Operand::Stream));
        for path in ["a", "./local:sb-1:a", "a:b:c", "/local:x", "locals:sb-1:a", "localhost:a", "--"] {
            assert_eq!(parse(path), host(path), "{path}");
        }
        let name = OsString::from_vec(b"local:sb-1:\xff".to_vec());
        assert_eq!(
            operand(name),
            Ok(Operand::Sandbox("local:sb-1".parse().unwrap(), GuestPath::new(*b"\xff").unwrap()))
        );
        let told = "which path of the sandbox? Say local:sb-1:PATH; local:sb-1: is its working directory";
        assert_eq!(parse("local:sb-1"), Err(told.to_owned()));
        for bad in ["", "local::a", "local:None:a", "local:sb-1/c1:a", "local:a b:c"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
