//! Files that began as snapshots of files of other datasets: what datasets keep for each other.
//!
//! The record of such a clone is where the clone is, and goes back and forth with its dataset
//! ([`crate::file_clones`]). The dataset of the origin keeps the snapshot as long as any such
//! record names it: in its list, or hidden. Which these are says no item of its own. Import finds
//! it in the records of all datasets, and each sync once more, behind its acts.
//!
//! Invariants:
//! - No act takes away what another dataset keeps a record for: not the destruction of the
//!   snapshot, nor of its dataset, nor a rollback of that to before the snapshot.
//! - A snapshot that no record names any more goes in the same txg, if it is hidden.
//!
//! # Datasets that need each other
//! A hidden snapshot may be all that shows a clone: then the dataset of the clone needs something
//! only as long as others need that snapshot of it. Two datasets can need each other so, although
//! neither shows anything. So the end of a dataset is refused for such needs alone that outlive
//! it: what is needed for the sake of what ends goes in the same txg.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_snapshots::Ended;

/// Snapshots of files that files of other datasets began as, by their dataset.
type Needed = BTreeMap<DatasetId, BTreeSet<FileSnapshotId>>;

fn needed_by<'a>(datasets: impl IntoIterator<Item = &'a Arc<Dataset>>) -> Needed {
    let mut needed = Needed::new();
    for dataset in datasets {
        for (origin, id) in dataset.snapshots.lock().files.needs_of_others() {
            needed.entry(origin).or_default().insert(id);
        }
    }
    needed
}

/// Finds what ends in the datasets that are left, as a sync would find it
/// ([`Datasets::settle_needs`]).
fn end_needs(left: &mut [(Arc<Dataset>, Ended)]) {
    loop {
        let mut needed = Needed::new();
        for (of, ended) in &*left {
            for (origin, id) in of.snapshots.lock().files.needs_left(ended) {
                needed.entry(origin).or_default().insert(id);
            }
        }
        let mut is_more = false;
        for (of, ended) in &mut *left {
            let needed = needed.remove(&of.id).unwrap_or_default();
            let snapshots = of.snapshots.lock();
            let listed = snapshots.listed_and_bookmarked();
            is_more |= snapshots.files.end_more(&listed, &needed, |_| false, ended);
        }
        if !is_more {
            return;
        }
    }
}

impl Datasets {
    /// Import: each dataset learns what others need of it.
    pub(crate) fn know_needs(&self) {
        let datasets: Vec<Arc<Dataset>> = self.state.lock().datasets.values().cloned().collect();
        for (origin, ids) in needed_by(&datasets) {
            if let Some(dataset) = self.by_id(origin) {
                dataset.snapshots.lock().files.set_needed_by_others(ids);
            }
        }
    }

    /// Drops the hidden snapshots that no other dataset needs any more. Called by a sync, behind
    /// its acts. `awake`: those of which something may have changed.
    pub(crate) fn settle_needs(
        &self,
        txg: Txg,
        awake: &[Arc<Dataset>],
    ) -> Vec<(ItemKey, Option<Item>)> {
        let changed = |of: &Arc<Dataset>| of.snapshots.lock().files.take_needs_changed();
        // Each is asked, so that none is asked again for one change.
        let changed = awake.iter().map(changed).fold(false, |any, one| any | one);
        if !self.needs_changed.swap(false, Ordering::Relaxed) && !changed {
            return Vec::new();
        }
        let datasets: Vec<Arc<Dataset>> = self.state.lock().datasets.values().cloned().collect();
        let mut needed = needed_by(&datasets);
        let mut items = Vec::new();
        for dataset in &datasets {
            let files = &mut dataset.snapshots.lock().files;
            let of_it = needed.remove(&dataset.id).unwrap_or_default();
            let over = files.set_needed_by_others(of_it);
            for id in over.into_iter().filter(|_| !left_out(Rule::NeedsEnd)) {
                items.extend(files.release(txg, (dataset.id, id)));
            }
        }
        items
    }

    /// Refuses an end of datasets, or of their heads, of which others need something. `gone`: lines
    /// that go as a whole, with all that they need.
    pub(crate) fn check_needs(
        &self,
        ending: &[Arc<Dataset>],
        gone: &[Arc<Dataset>],
    ) -> Result<(), DatasetError> {
        for dataset in ending {
            let needed = dataset.snapshots.lock().files.needed_by_others().clone();
            self.check_not_needed(dataset, &needed, gone)?;
        }
        Ok(())
    }

    /// Refuses what would take these snapshots of files of a dataset away from others.
    pub(crate) fn check_not_needed(
        &self,
        dataset: &Dataset,
        ids: &BTreeSet<FileSnapshotId>,
        gone: &[Arc<Dataset>],
    ) -> Result<(), DatasetError> {
        if ids.is_empty() || left_out(Rule::NeedsBlockEnds) {
            return Ok(());
        }
        let stays = |of: &Arc<Dataset>| !gone.iter().any(|gone| gone.id == of.id);
        let mut left: Vec<(Arc<Dataset>, Ended)> = {
            let state = self.state.lock();
            let all = state.datasets.values().filter(|of| stays(of)).cloned();
            all.map(|of| (of, Ended::default())).collect()
        };
        let needs = |(of, ended): &(Arc<Dataset>, Ended)| {
            let needs = of.snapshots.lock().files.needs_left(ended);
            needs.iter().any(|(origin, id)| *origin == dataset.id && ids.contains(id))
        };
        if !gone.is_empty() && !left_out(Rule::NeedsEnd) && left.iter().any(needs) {
            end_needs(&mut left);
        }
        let by = left.into_iter().filter(needs).map(|(of, _)| of);
        let by: Vec<Arc<Dataset>> = by.collect();
        if by.is_empty() {
            return Ok(());
        }
        let hidden: BTreeMap<DatasetId, Option<DatasetId>> =
            self.hidden_lines().into_iter().map(|(line, by)| (line.id, by)).collect();
        let shown = |of: &Arc<Dataset>| match hidden.get(&of.id) {
            Some(by) => by.and_then(|by| self.by_id(by)),
            None => Some(of.clone()),
        };
        let by: BTreeSet<String> =
            by.iter().filter_map(shown).map(|of| self.full_name(&of)).collect();
        let (name, by) = (self.full_name(dataset), by.into_iter().collect());
        Err(DatasetError::NeededByFiles { name, by })
    }
}
