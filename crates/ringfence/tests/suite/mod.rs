#[cfg(all(feature = "local", target_os = "linux"))]
mod attach;
mod handle;
#[cfg(all(feature = "local", target_os = "linux"))]
mod pool;
mod registry;
