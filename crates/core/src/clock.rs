//! The time of day, where it has to be compared with what others wrote down.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// Where the time of day comes from: the system, or a test that turns it by hand.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Returns a clock that reads `now`.
    #[must_use]
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the time of day.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }
}

/// The system's clock.
impl Default for Clock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
