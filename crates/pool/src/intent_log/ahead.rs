//! Sectors of the log, read in large pieces.
//!
//! An import reads the chain batch by batch, and only a batch's header says where the next one
//! begins. Most batches are small, and lie one behind the other. If each took an I/O of its own, a
//! log of 2,000 batches on a rotating disk would take a minute, and ESXi gives its locks up after
//! 35 s. So an I/O brings the rest of its segment, too.
//!
//! Invariant: no sector is returned as it was before a write of this import
//! ([`Ahead::forget`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::{DiskError, Page};
use aquifer_ondisk::Guid;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_sync::Mutex;
use aquifer_vdev::Leaf;

/// Pieces that were read ahead, of each leaf.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    windows: Mutex<BTreeMap<Guid, Window>>,
}

/// The newest piece of one leaf.
#[derive(Debug)]
struct Window {
    first: u64,
    /// Empty, if the piece cannot be read as a whole: then each batch is read by itself.
    pages: Vec<Page>,
    /// Sectors from the first one to the end of the piece.
    sectors: u64,
}

impl Ahead {
    /// Reads sectors of a leaf that lie in one segment.
    ///
    /// # Errors
    /// Those of a read of just these sectors: others that cannot be read hide none.
    pub async fn read(
        &self,
        leaf: &Arc<Leaf>,
        sector: u64,
        count: usize,
    ) -> Result<Vec<Page>, DiskError> {
        let of_window = self.windows.lock().get(&leaf.guid).map(|window| window.get(sector, count));
        match of_window {
            Some(Has::Pages(pages)) => return Ok(pages),
            Some(Has::BySingleReads) => return leaf.read(sector, count).await,
            Some(Has::NotThese) | None => {}
        }
        let rest = SEGMENT_SECTORS - sector % SEGMENT_SECTORS;
        let ahead = count.max(usize::try_from(rest).unwrap_or(count));
        let read = leaf.read(sector, ahead).await;
        let pages = read.as_ref().map_or(&[][..], Vec::as_slice);
        let answer = pages.get(..count).map(<[Page]>::to_vec);
        let window = Window { first: sector, pages: pages.to_vec(), sectors: ahead as u64 };
        self.windows.lock().insert(leaf.guid, window);
        match answer {
            Some(pages) => Ok(pages),
            None => leaf.read(sector, count).await,
        }
    }

    /// Sectors are about to be written: all is read again.
    pub fn forget(&self) {
        self.windows.lock().clear();
    }
}

enum Has {
    Pages(Vec<Page>),
    /// Sectors in a piece that cannot be read as a whole.
    BySingleReads,
    /// Sectors that lie elsewhere.
    NotThese,
}

impl Window {
    fn get(&self, sector: u64, count: usize) -> Has {
        let Some(at) = sector.checked_sub(self.first).filter(|at| *at < self.sectors) else {
            return Has::NotThese;
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match self.pages.get(at..at.saturating_add(count)) {
            Some(pages) => Has::Pages(pages.to_vec()),
            None if self.pages.is_empty() => Has::BySingleReads,
            None => Has::NotThese,
        }
    }
}
