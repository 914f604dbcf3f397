//! How far the pool's scrub is. The pool remembers it over restarts.
//!
//! The record reaches the disk with the next txg. So after a crash a scrub may examine once more
//! what it had examined, and never passes over anything.

use aquifer_ondisk::DatasetId;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::scrub::ScrubRecord;
use aquifer_pool::PoolError;
use aquifer_sync::Mutex;

use crate::datasets::Datasets;

/// The newest scrub of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scrubbed {
    state: Mutex<(Option<ScrubRecord>, bool)>,
}

impl Scrubbed {
    /// Import: the record from disk.
    pub fn load(&self, record: ScrubRecord) {
        let record = ScrubRecord { position: record.position.resumed(), ..record };
        *self.state.lock() = (Some(record), false);
    }

    /// The item that the next sync writes, if there is something new.
    pub fn take_item(&self) -> Option<(ItemKey, Option<Item>)> {
        let (record, changed) = &mut *self.state.lock();
        let record = record.filter(|_| std::mem::take(changed))?;
        let key = ItemKey::new(DatasetId(0), ItemClass::Scrub, 0);
        Some((key, Some(Item { key, value: record.encode() })))
    }
}

impl Datasets {
    /// The newest scrub.
    pub fn scrubbed(&self) -> Option<ScrubRecord> {
        self.scrub.state.lock().0
    }

    /// Changes the newest scrub's record. It reaches the disk with some later txg.
    pub fn revise_scrub<T>(&self, change: impl FnOnce(&mut Option<ScrubRecord>) -> T) -> T {
        let (record, changed) = &mut *self.scrub.state.lock();
        let result = change(record);
        *changed = true;
        result
    }

    /// Waits until the record is on disk.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn scrub_on_disk(&self) -> Result<(), PoolError> {
        self.act_on_disk().await
    }
}
