//! Autotrim: what is released for reuse is discarded.
//!
//! It is noted in chunks of 64 KiB: a chunk is looked at after each release in it, and discarded
//! once all of it is free. So much is discarded exactly once, without a list of small runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Place;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_sync::Mutex;
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::Leaf;
use futures_util::future::join_all;

use super::{Lending, Loan, TRIM_SECTORS_MIN};
use crate::pool::Pool;

/// Segments with something released that wait, at most: of 256 GiB, in some MiB of memory. What is
/// released beyond them waits for a trim.
const SEGMENTS_MAX: usize = 1 << 16;

/// Chunks of 64 KiB with something released, a bit for each of a segment, by vdev and segment.
#[derive(Debug, Default)]
pub(super) struct Released(Mutex<BTreeMap<(u16, u64), u64>>);

/// How soon, and how often, what is lent to others is asked for again.
const BUSY: Duration = Duration::from_millis(10);
const BUSY_MAX: u32 = 10;

const _: () = assert!(SEGMENT_SECTORS / TRIM_SECTORS_MIN == u64::BITS as u64);

impl Released {
    fn note(&self, runs: &[Run]) {
        let mut segments = self.0.lock();
        for run in runs.iter().filter(|run| run.sectors > 0) {
            let chunks = run.place.sector() / TRIM_SECTORS_MIN
                ..(run.end_sector() - 1) / TRIM_SECTORS_MIN + 1;
            for chunk in chunks {
                let key = (run.place.vdev(), chunk / 64);
                if segments.len() < SEGMENTS_MAX || segments.contains_key(&key) {
                    *segments.entry(key).or_default() |= 1 << (chunk % 64);
                }
            }
        }
    }

    fn take(&self) -> Vec<Run> {
        let segments = std::mem::take(&mut *self.0.lock());
        segments
            .into_iter()
            .flat_map(|((vdev, segment), bits)| runs_of(vdev, segment, bits))
            .collect()
    }

    fn forget(&self) {
        self.0.lock().clear();
    }
}

/// The sectors of neighbouring chunks.
fn runs_of(vdev: u16, segment: u64, bits: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for chunk in (0..64).filter(|chunk| bits >> chunk & 1 == 1) {
        let sector = segment * SEGMENT_SECTORS + chunk * TRIM_SECTORS_MIN;
        match runs.last_mut() {
            Some(last) if last.end_sector() == sector => last.sectors += TRIM_SECTORS_MIN,
            _ => runs.push(Run::new(Place::new(vdev, sector), TRIM_SECTORS_MIN)),
        }
    }
    runs
}

impl Pool {
    /// From now on what is released is discarded, or not.
    pub fn set_autotrim(&self, on: bool) {
        if self.acts.trims.autotrim.swap(on, Ordering::AcqRel) && !on {
            self.acts.trims.released.forget();
        }
    }

    /// These runs may be reused from now on.
    pub(crate) fn note_released(&self, runs: &[Run]) {
        let trims = &self.acts.trims;
        if !runs.is_empty() && trims.autotrim.load(Ordering::Acquire) {
            trims.released.note(runs);
            trims.wanted.notify_one();
        }
    }

    /// Discards what is released, as long as the pool is in service.
    pub(crate) async fn trim_released(self: Arc<Pool>) {
        loop {
            self.acts.trims.wanted.notified().await;
            if self.txgs.failure().is_some() {
                return;
            }
            // Meanwhile more is released beside it.
            self.world.sleep(self.limits.scale.autotrim_after).await;
            let step = self.loan_sectors();
            for run in self.acts.trims.released.take() {
                for skip in (0..run.sectors).step_by(usize::try_from(step).unwrap_or(1)) {
                    let sectors = step.min(run.sectors - skip);
                    self.trim_everywhere(Run::new(run.place.plus(skip), sectors)).await;
                }
            }
        }
    }

    /// Borrows the free runs of a piece. A piece that is lent to others is waited for, for a while.
    async fn borrow(&self, within: Run) -> Option<Arc<Loan>> {
        for _ in 0..BUSY_MAX {
            match self.lend(within, TRIM_SECTORS_MIN) {
                Lending::Lent(loan) => return Some(loan),
                Lending::Busy => self.world.sleep(BUSY).await,
                Lending::Unknown | Lending::Refused => return None,
            }
        }
        None
    }

    /// Discards what is free in a piece of a segment on each disk that holds everything.
    async fn trim_everywhere(&self, within: Run) {
        self.load_if_cheap(within).await;
        let Some(loan) = self.borrow(within).await else { return };
        let Ok(vdev) = self.vdev(within.place) else { return };
        let leaves: Vec<&Arc<Leaf>> = vdev.online().filter(|leaf| takes_discards(leaf)).collect();
        for run in loan.runs() {
            let discards = leaves.iter().map(|leaf| discard(leaf, *run, &loan));
            self.in_background(join_all(discards)).await;
        }
    }
}

/// Whether a disk can discard, and has answered all before.
fn takes_discards(leaf: &Leaf) -> bool {
    leaf.can_discard() && !leaf.is_late()
}

async fn discard(leaf: &Arc<Leaf>, run: Run, loan: &Arc<Loan>) {
    // An error is counted at the leaf, and costs nothing.
    let _ = leaf.discard(run.place.sector(), run.sectors, loan.clone()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(vdev: u16, sector: u64, sectors: u64) -> Run {
        Run::new(Place::new(vdev, sector), sectors)
    }

    #[test]
    fn released_runs_become_the_chunks_in_which_they_lie() {
        let released = Released::default();
        released.note(&[run(0, 3, 1), run(0, 15, 2), run(1, 1023, 2), run(0, 64, 16)]);
        let found = released.take();
        let chunks = [run(0, 0, 32), run(0, 64, 16), run(1, 1008, 16), run(1, 1024, 16)];
        assert_eq!(found, chunks);
        assert!(released.take().is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let released = Released::default();
        for segment in 0..SEGMENTS_MAX as u64 + 5 {
            released.note(&[run(0, segment * SEGMENT_SECTORS, 1)]);
        }
        released.note(&[run(0, 16, 1)]);
        let found = released.take();
        assert_eq!((found.len(), found[0]), (SEGMENTS_MAX, run(0, 0, 32)));
    }
}
