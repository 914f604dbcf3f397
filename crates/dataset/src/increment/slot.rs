//! Whether something is being received into a dataset.

use aquifer_ondisk::Txg;
use aquifer_sync::atomic::{AtomicU64, Ordering};

/// Whether something is being received into a dataset, and how far that is.
#[derive(Debug, Default)]
pub(crate) struct Slot(AtomicU64);

/// Something is being received into a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coming {
    /// The snapshot to go back to.
    pub from: Txg,
    pub stage: Stage,
}

/// How far that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It comes.
    Comes = 1,
    /// Nobody sends it any more: the dataset is to be rolled back.
    Left = 2,
    /// Its last txg is on its way to disk.
    Ends = 3,
}

impl Slot {
    pub fn get(&self) -> Option<Coming> {
        let value = self.0.load(Ordering::SeqCst);
        let stage = match value & 3 {
            0 => return None,
            1 => Stage::Comes,
            2 => Stage::Left,
            _ => Stage::Ends,
        };
        Some(Coming { from: Txg(value >> 2), stage })
    }

    pub fn set(&self, coming: Option<Coming>) {
        // Numbers of txgs are far below 2^62.
        let value = coming.map_or(0, |Coming { from, stage }| from.0 << 2 | stage as u64);
        self.0.store(value, Ordering::SeqCst);
    }
}
