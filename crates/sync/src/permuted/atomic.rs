//! Atomics: like those of `std`, in the same memory, with a point before each operation.

use super::point;

pub use std::sync::atomic::{Ordering, fence};

macro_rules! atomic {
    ($name:ident, $of:ty) => {
        /// The type of `std`, permuted.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// As in `std`.
            pub const fn new(value: $of) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            /// As in `std`.
            pub fn load(&self, order: Ordering) -> $of {
                point();
                self.0.load(order)
            }

            /// As in `std`.
            pub fn store(&self, value: $of, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            /// As in `std`.
            pub fn swap(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.swap(value, order)
            }

            /// As in `std`.
            ///
            /// # Errors
            /// The present value differs from `current`.
            pub fn compare_exchange(
                &self,
                current: $of,
                new: $of,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$of, $of> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As in `std`, except that another thread may change the value between load and store:
            /// `change` then only runs once more.
            ///
            /// # Errors
            /// `change` returns `None`.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                point();
                self.0.fetch_update(set, fetch, change)
            }
        }
    };
}

macro_rules! number {
    ($name:ident, $of:ty) => {
        atomic!($name, $of);

        impl $name {
            /// As in `std`.
            pub fn fetch_add(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.fetch_add(value, order)
            }

            /// As in `std`.
            pub fn fetch_sub(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.fetch_sub(value, order)
            }

            /// As in `std`.
            pub fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.fetch_or(value, order)
            }

            /// As in `std`.
            pub fn fetch_and(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.fetch_and(value, order)
            }

            /// As in `std`.
            pub fn fetch_max(&self, value: $of, order: Ordering) -> $of {
                point();
                self.0.fetch_max(value, order)
            }
        }
    };
}

atomic!(AtomicBool, bool);
number!(AtomicU8, u8);
number!(AtomicI32, i32);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
