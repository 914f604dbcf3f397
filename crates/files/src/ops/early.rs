//! Early writes: data that goes to its final place before its txg is synced. These are large stable
//! writes, and runs of UNSTABLE ones. The log then holds only their places, and the sync only their
//! entries: such data is written once.
//!
//! Invariants:
//! - An early write is an allocation of the txg that holds its pages, under that txg's hold.
//! - A record that names early data carries its write: it is durable when both are.
//! - Where a log vdev is faster, no write goes early (`Pool::early_pays`).
//! - Data that would be stored compressed goes the normal way, through the log's pages: early data
//!   lies page by page.

use aquifer_blockio::Page;
use aquifer_object::DirtyPage;
use aquifer_ondisk::extent::{COMPRESSED_PAGES_MAX, Compression};
use aquifer_pool::intent_log::EarlyWrite;
use aquifer_pool::{TxHold, transform};

use crate::core::{Files, Target};

/// Stable writes of at least this many whole pages go early.
pub(crate) const STABLE_PAGES_MIN: usize = 16;

/// UNSTABLE data goes early in whole aligned runs of this many pages (1 MiB). Such a run is large
/// enough for a slow disk, and seldom rewritten before its txg is over.
const RUN_PAGES: usize = 256;

impl Files {
    /// Sends the pages of a large stable write to their place at once, as many as find room.
    pub(crate) fn place_early(
        &self,
        target: &Target,
        hold: &TxHold,
        pages: &mut [(u64, DirtyPage)],
    ) -> Vec<EarlyWrite> {
        if pages.len() < STABLE_PAGES_MIN || !self.pool.early_pays() {
            return Vec::new();
        }
        let contents: Vec<Page> =
            pages.iter().filter_map(|(_, dirty)| dirty.page.clone()).collect();
        let compression = target.dataset.properties().compression;
        if contents.len() < pages.len() || saves_space(compression, &contents) {
            return Vec::new();
        }
        let early = self.send_early(hold, &contents);
        let places = early.iter().flat_map(places);
        for ((_, dirty), place) in pages.iter_mut().zip(places) {
            dirty.place = Some(place);
        }
        early
    }

    /// Sends the runs that an UNSTABLE write of `count` pages from `first` on has completed to
    /// their place, before any COMMIT asks for them. The caller has the hold of that write, and the
    /// writer lock.
    pub(crate) fn place_runs(&self, target: &Target, hold: &TxHold, first: u64, count: u64) {
        if !self.pool.early_pays() {
            return;
        }
        let run_pages = RUN_PAGES as u64;
        let compression = target.dataset.properties().compression;
        for run in first / run_pages..(first + count).div_ceil(run_pages) {
            let first = run * run_pages;
            let fresh = {
                let state = target.object.state.lock();
                state.overlay.get(hold.txg()).and_then(|v| v.pages.fresh_run(first, RUN_PAGES))
            };
            let Some(contents) = fresh.filter(|pages| !saves_space(compression, pages)) else {
                continue;
            };
            let early = self.send_early(hold, &contents);
            let mut state = target.object.state.lock();
            let current = state.inode.clone();
            let version = state.overlay.version(hold.txg(), &current);
            version.pages.put_at(first, early.iter().flat_map(places));
            version.early.extend(early.into_iter().map(|write| (write.run().place, write)));
        }
    }

    /// Sends as many pages from the first on as find room now.
    fn send_early(&self, hold: &TxHold, pages: &[Page]) -> Vec<EarlyWrite> {
        let mut rest = pages;
        let mut early = Vec::new();
        while !rest.is_empty() {
            // Without room the rest goes the normal way, which was admitted.
            let Ok(write) = self.pool.write_early(hold, rest) else { break };
            let count = usize::try_from(write.run().sectors).unwrap_or(usize::MAX);
            rest = rest.get(count..).unwrap_or_default();
            early.push(write);
        }
        early
    }
}

/// The places of an early write's pages.
fn places(write: &EarlyWrite) -> impl Iterator<Item = aquifer_ondisk::Place> + use<> {
    let run = write.run();
    (0..run.sectors).map(move |at| run.place.plus(at))
}

/// Whether these pages seem worth compressing: two samples, the first ones and those in the middle.
fn saves_space(compression: Option<Compression>, pages: &[Page]) -> bool {
    let Some(algorithm) = compression else { return false };
    let chunk = usize::try_from(COMPRESSED_PAGES_MAX).unwrap_or(1);
    let samples = [pages.get(..chunk), pages.get(pages.len() / 2..pages.len() / 2 + chunk)];
    samples.into_iter().flatten().any(|sample| transform::compress(algorithm, sample).is_some())
}
