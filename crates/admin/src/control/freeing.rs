//! Bytes that the background still frees of a pool, for lists, status and metrics. These must
//! answer while disks do not, so the part that has to be read is counted once a second, and kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::serving::Serving;

/// The count.
#[derive(Debug, Default)]
pub(super) struct Freeing {
    /// Of datasets that stay, as of the newest count.
    waiting_bytes: AtomicU64,
    /// A count goes on.
    is_counted: AtomicBool,
}

impl Serving {
    /// Bytes that the background still frees: of destroyed datasets as of now, of others as of the
    /// newest count.
    pub fn freeing_bytes(&self) -> u64 {
        let datasets = &self.service().datasets;
        let waiting = match datasets.are_any_freed() {
            true => self.freeing.waiting_bytes.load(Ordering::Relaxed),
            false => 0,
        };
        datasets.freeing_bytes().saturating_add(waiting)
    }

    /// Begins to count, unless that goes on. Waits for nothing.
    pub fn count_freeing(&self) {
        let (datasets, freeing) = (self.service().datasets.clone(), self.freeing.clone());
        if !datasets.are_any_freed() {
            freeing.waiting_bytes.store(0, Ordering::Relaxed);
            return;
        }
        if freeing.is_counted.swap(true, Ordering::Relaxed) {
            return;
        }
        self.begin(async move {
            // What cannot be read now is counted later.
            if let Ok(bytes) = datasets.waiting_bytes().await {
                freeing.waiting_bytes.store(bytes, Ordering::Relaxed);
            }
            freeing.is_counted.store(false, Ordering::Relaxed);
        });
    }
}
