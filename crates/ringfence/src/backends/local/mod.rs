//! The embedded backend: real where it is compiled in, an answer where it is not.

#[cfg(not(all(feature = "local", target_os = "linux")))]
mod disabled;
#[cfg(all(feature = "local", target_os = "linux"))]
mod enabled;

#[cfg(not(all(feature = "local", target_os = "linux")))]
use disabled as imp;
#[cfg(all(feature = "local", target_os = "linux"))]
use enabled as imp;

pub(crate) use imp::{AVAILABILITY, open};

pub use imp::LocalConfig;
