//! Queue of data to be written to a cache disk: a chunk that is being filled, and some that are
//! full.

use std::collections::VecDeque;

use aquifer_blockio::Page;
use aquifer_ondisk::l2arc::{CHUNK_PAYLOAD_SECTORS, CachedRun};

/// Full chunks that wait at most. What comes then is passed over.
pub(crate) const WAITING_MAX: usize = 4;

/// Blocks of a chunk that is to be written.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    pub runs: Vec<CachedRun>,
    pub pages: Vec<Page>,
}

/// Chunks that wait to be written: the one that is being filled, and full ones.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    open: Filling,
    full: VecDeque<Filling>,
}

/// Fate of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It waits.
    Waits,
    /// It waits, and a chunk is full.
    Full,
    /// There is no room for it.
    PassedOver,
}

impl Feed {
    /// Takes a block, if there is room.
    pub fn take(&mut self, run: CachedRun, pages: &[Page]) -> Taken {
        let sectors = self.open.pages.len() + pages.len();
        let mut is_full = false;
        if sectors as u64 > CHUNK_PAYLOAD_SECTORS {
            if self.full.len() >= WAITING_MAX {
                return Taken::PassedOver;
            }
            self.full.push_back(std::mem::take(&mut self.open));
            is_full = true;
        }
        // Read twice before it was written.
        let waits = |of: &CachedRun| (of.place, of.written) == (run.place, run.written);
        if !self.open.runs.iter().any(waits) {
            self.open.runs.push(run);
            self.open.pages.extend_from_slice(pages);
        }
        if is_full { Taken::Full } else { Taken::Waits }
    }

    /// The oldest full chunk.
    pub fn next(&mut self) -> Option<Filling> {
        self.full.pop_front()
    }
}
