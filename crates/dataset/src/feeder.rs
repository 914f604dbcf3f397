//! The feeder of a copy: the one that brings its increments.
//!
//! The newest snapshot that a copy received has a hold, its *mark*, placed in the txg that takes
//! it. The mark keeps what the next increment begins with, and says who brought it. So a copy knows
//! its feeder over restarts and on other machines.
//!
//! Invariants:
//! - A copy has one mark, on the newest snapshot that it received so. It moves in the txg that
//!   takes the next one.
//! - One that may only receive brings nothing into the copy of another feeder.
//! - A mark does not keep a dataset from being destroyed as a whole, nor a copy from being rolled
//!   back by force: it is there against slips, and names no one's wish to keep data.

use std::sync::Arc;

use aquifer_ondisk::Txg;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::FEATURE_KEEPING;
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{HOLD_TAG_BYTES_MAX, Hold, KeepRecord};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::holds::keep_on;
use crate::increment::IncrementError;
use crate::schedule::cadence_of;
use crate::snapshots::Snapshot;

/// The mark of a copy that an administrator feeds.
const MARK: &str = "received";
/// The beginning of the mark of another one.
const MARK_OF: &str = "received by ";
/// A blank, and the sum of what was cut off.
const SUM_CHARS: usize = 9;

/// The one that brings a stream which makes or feeds a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feeder {
    /// As the server knows it: `token backup`.
    pub principal: String,
    /// A feeder of every copy.
    pub is_admin: bool,
}

/// Whether a hold of this tag is the mark of a copy.
pub fn is_mark(tag: &str) -> bool {
    tag == MARK || tag.starts_with(MARK_OF)
}

impl Feeder {
    /// The tag of its mark on a copy that has this one now.
    fn tag(&self, now: Option<&str>) -> String {
        match self.is_admin {
            true => now.unwrap_or(MARK).into(),
            false => self.own_tag(),
        }
    }

    /// The tag that names it: two long names that begin alike have two.
    fn own_tag(&self) -> String {
        let tag = format!("{MARK_OF}{}", self.principal);
        if tag.len() <= HOLD_TAG_BYTES_MAX {
            return tag;
        }
        let [a, b, c, d, ..] = checksum128(tag.as_bytes()).to_le_bytes();
        let start: String = tag.chars().take(HOLD_TAG_BYTES_MAX - SUM_CHARS).collect();
        format!("{start} {:08x}", u32::from_le_bytes([a, b, c, d]))
    }

    /// Whether it is the one that a mark names.
    fn is_named(&self, mark: &str) -> bool {
        mark == self.own_tag()
    }
}

impl Datasets {
    /// The mark on a snapshot of a copy.
    fn mark_on(&self, dataset: &Dataset, snapshot: Txg) -> Option<String> {
        let holds = self.holds(dataset, snapshot);
        holds.into_iter().map(|hold| hold.tag).find(|tag| is_mark(tag))
    }

    /// Whether a feeder brought the newest snapshot of a copy, or may do all.
    pub(crate) fn has_fed(&self, feeder: &Feeder, dataset: &Dataset, newest: Txg) -> bool {
        let mark = self.mark_on(dataset, newest);
        feeder.is_admin || mark.is_some_and(|mark| feeder.is_named(&mark))
    }

    /// Fails if a copy, whose newest snapshot this is, has another feeder.
    pub(crate) fn check_feeder(
        &self,
        feeder: Option<&Feeder>,
        dataset: &Dataset,
        newest: &Snapshot,
    ) -> Result<(), DatasetError> {
        let Some(feeder) = feeder.filter(|feeder| !feeder.is_admin) else { return Ok(()) };
        match self.mark_on(dataset, newest.txg) {
            Some(mark) if mark != MARK && !feeder.is_named(&mark) => {
                let name = self.full_name(dataset);
                let snapshot = newest.record.name.clone();
                Err(IncrementError::OtherFeeder { name, snapshot, mark }.into())
            }
            _ => Ok(()),
        }
    }

    /// Why a new snapshot of a copy stays or goes: the mark of its feeder, and that of the schedule
    /// that took it where it comes from. Also what the one before it has then.
    pub(crate) fn marks(
        &self,
        feeder: Option<&Feeder>,
        (dataset, name): (&Dataset, &str),
        before: Option<Txg>,
    ) -> (KeepRecord, Option<(ItemKey, Option<Item>)>) {
        let mut keep = KeepRecord { schedule: cadence_of(name), holds: Vec::new() };
        let now = before.and_then(|txg| self.mark_on(dataset, txg));
        // What somebody brings by hand in between leaves the copy its feeder.
        let tag = match feeder {
            Some(feeder) => Some(feeder.tag(now.as_deref())),
            None => now.clone(),
        };
        let placed = Time::from_ns(self.pool.world().wall_ns());
        keep.holds.extend(tag.map(|tag| Hold { tag, placed, end: None }));
        let moved = before.filter(|_| now.is_some()).map(|txg| {
            let mut record = dataset.keeping.lock().get(&txg).cloned().unwrap_or_default();
            record.holds.retain(|hold| !is_mark(&hold.tag));
            record
        });
        (keep, before.zip(moved).map(|(txg, record)| keep_on(dataset, txg, record)))
    }

    /// Before marks of a snapshot of this name are written.
    pub(crate) async fn admit_marks(
        &self,
        feeder: Option<&Feeder>,
        name: &str,
    ) -> Result<(), DatasetError> {
        match feeder.is_some() || cadence_of(name).is_some() {
            true => self.use_feature(FEATURE_KEEPING).await,
            false => Ok(()),
        }
    }

    /// Takes the marks of a dataset away: it is no copy any more.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn unmark(&self, dataset: &Arc<Dataset>) -> Result<(), DatasetError> {
        let marked: Vec<(Txg, String)> = {
            let keeping = dataset.keeping.lock();
            let tags = keeping.iter().flat_map(|(txg, record)| {
                record.holds.iter().map(move |hold| (*txg, hold.tag.clone()))
            });
            tags.filter(|(_, tag)| is_mark(tag)).collect()
        };
        for (txg, tag) in marked {
            self.release(&tag, &[(dataset.clone(), txg)]).await?;
        }
        Ok(())
    }
}
