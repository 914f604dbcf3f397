//! A value that is set once.

use super::point;

/// `std::sync::OnceLock`, permuted.
#[derive(Debug)]
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// As in `std`.
    pub const fn new() -> Self {
        OnceLock(std::sync::OnceLock::new())
    }

    /// As in `std`.
    pub fn get(&self) -> Option<&T> {
        point();
        self.0.get()
    }

    /// As in `std`.
    ///
    /// # Errors
    /// The value is set already.
    pub fn set(&self, value: T) -> Result<(), T> {
        point();
        self.0.set(value)
    }

    /// As in `std`, except that several threads may make a value, of which one is kept: no thread
    /// waits inside `std` for a thread that is not running.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let made = make();
        self.0.get_or_init(|| made)
    }
}
