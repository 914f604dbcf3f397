//! Blocks of which no copy verifies, as a scrub has found them.
//!
//! A block is a place and the txg that wrote it: a place that is used again is another block. So
//! the scrub tells, without a look at any disk, whether a newer root still shows what is lost. It
//! reads no block twice, and counts none twice, however many snapshots show it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_sync::Mutex;
use aquifer_vdev::ReadError;

use crate::error::PoolError;

/// Runs that are remembered from one piece of a walk to the next (some 6 MiB). With more of them, a
/// block that several snapshots of files show may count more than once.
const RUNS_MAX: usize = 1 << 17;

/// See the module's head. Shared by the pieces of one scrub.
#[derive(Debug, Clone, Default)]
pub struct LostBlocks {
    /// By first place: the txg that wrote it, and how many sectors follow each other.
    runs: Arc<Mutex<BTreeMap<u64, (Txg, u64)>>>,
}

impl LostBlocks {
    /// Notes a block by its first sector. Whether it is new.
    pub(crate) fn insert(&self, place: Place, written: Txg) -> bool {
        if self.has(place, written) {
            return false;
        }
        let mut runs = self.runs.lock();
        // What lay here before is no more.
        runs.remove(&place.0);
        let before = runs.range_mut(..place.0).next_back();
        match before.filter(|(first, run)| **first + run.1 == place.0 && run.0 == written) {
            Some((_, run)) => run.1 += 1,
            None => drop(runs.insert(place.0, (written, 1))),
        }
        true
    }

    /// Whether a block is lost.
    pub(crate) fn has(&self, place: Place, written: Txg) -> bool {
        let runs = self.runs.lock();
        let run = runs.range(..=place.0).next_back();
        run.is_some_and(|(first, run)| place.0 < first + run.1 && run.0 == written)
    }

    /// Why a node cannot be read, if it is lost.
    pub fn error_of(&self, pointer: &BlockPointer) -> Option<PoolError> {
        let [first, _] = pointer.places;
        let (vdev, sector) = (first.vdev(), first.sector());
        let is_lost = self.has(first, pointer.written);
        is_lost.then(|| ReadError::Corrupt { vdev, sector, count: 1 }.into())
    }

    /// Notes a node at all its places. Whether it is new.
    pub(crate) fn insert_node(&self, [first, second]: [Place; 2], written: Txg) -> bool {
        if !second.is_null() {
            self.insert(second, written);
        }
        self.insert(first, written)
    }

    /// Which of an extent's pages are lost: ranges of pages of the file.
    pub fn pages_of(&self, extent: &Extent) -> Vec<(u64, u64)> {
        let all = (extent.page, extent.end());
        let is_lost = |at: u64| self.has(extent.place.plus(at), extent.written);
        if matches!(extent.stored, Stored::Compressed { .. }) {
            return if is_lost(0) { vec![all] } else { Vec::new() };
        }
        let pages = (all.0..all.1).filter(|page| is_lost(page - all.0));
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            match lost.last_mut() {
                Some((_, to)) if *to == page => *to = page + 1,
                _ => lost.push((page, page + 1)),
            }
        }
        lost
    }

    pub(crate) fn clear(&self) {
        self.runs.lock().clear();
    }

    /// A piece begins: forgets all if there is too much.
    pub(crate) fn stay_bounded(&self) {
        let mut runs = self.runs.lock();
        if runs.len() > RUNS_MAX {
            runs.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_its_place_and_its_txg() {
        let lost = LostBlocks::default();
        let at = |sector| Place::new(1, sector);
        for sector in [7, 9, 8, 20] {
            assert!(lost.insert(at(sector), Txg(5)));
            assert!(!lost.insert(at(sector), Txg(5)));
        }
        for (sector, txg, is_lost) in
            [(7, 5, true), (8, 5, true), (9, 5, true), (20, 5, true), (7, 6, false), (8, 4, false)]
        {
            assert_eq!(lost.has(at(sector), Txg(txg)), is_lost, "{sector} {txg}");
        }
        assert!([6, 10, 19, 21].iter().all(|sector| !lost.has(at(*sector), Txg(5))));
        assert!(!lost.has(Place::new(2, 7), Txg(5)));
        // A place that is used again, and lost again.
        assert!(lost.insert(at(20), Txg(6)) && lost.has(at(20), Txg(6)));
        assert!(!lost.has(at(20), Txg(5)));
    }
}
