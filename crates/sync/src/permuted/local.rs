//! Values of each thread's own.

use super::is_scheduled;

/// `std::thread::LocalKey`, for permuted threads. Outside of a run no thread has a value.
#[derive(Debug)]
pub struct LocalKey<T: 'static>(#[doc(hidden)] pub &'static shuttle::thread::LocalKey<T>);

impl<T: 'static> LocalKey<T> {
    /// As in `std`.
    ///
    /// # Errors
    /// The thread is ending.
    pub fn try_with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Result<R, NoThread> {
        match is_scheduled() {
            true => self.0.try_with(look).map_err(|_| NoThread),
            false => Err(NoThread),
        }
    }
}

/// The thread is ending, or there is no scheduled thread.
#[derive(Debug)]
pub struct NoThread;

/// `std::thread_local`, for permuted threads.
#[macro_export]
macro_rules! thread_local {
    ($(#[$attr:meta])* $vis:vis static $name:ident: $of:ty = const { $init:expr };) => {
        $(#[$attr])* $vis static $name: $crate::LocalKey<$of> = {
            $crate::shuttle::thread_local! {
                static OWN: $of = const { $init };
            }
            $crate::LocalKey(&OWN)
        };
    };
}
