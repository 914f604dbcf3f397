//! Clones: datasets that begin as a snapshot of another one.
//!
//! A clone takes the snapshot's object table as its own, with the snapshot's txg as its floor. What
//! was born up to there belongs to the origin: when the clone no longer refers to it, nothing
//! happens ([`aquifer_object::Gate`]). So a clone costs nothing at first, and only what it writes
//! itself later.
//!
//! Invariants:
//! - The origin keeps what the clone began with as long as the clone is there: its line record
//!   names the snapshot, which does not leave its line before ([`crate::lines`]).
//! - A destroyed clone is taken down without reading what it does not own, so nothing has to be
//!   kept for it ([`crate::destroy`]).
//! - Ids of objects go on from where the origin is, so that none has two meanings in the clone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{FEATURE_CLONES, FEATURE_INHERITED};
use aquifer_ondisk::dataset::{DatasetRecord, LineRecord};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::BoxFuture;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::rollback::orphans_in;
use crate::snapshots::Snapshot;

/// The snapshot with which a line begins. It may have been promoted since ([`crate::lines`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub dataset: DatasetId,
    pub snapshot: Txg,
}

/// The clones of snapshots, by the dataset that lists a snapshot and its txg.
#[derive(Debug)]
pub(crate) struct Clones(BTreeMap<(DatasetId, Txg), Vec<Arc<Dataset>>>);

impl Clones {
    /// Those of a snapshot.
    pub fn of(&self, lister: DatasetId, snapshot: Txg) -> &[Arc<Dataset>] {
        self.0.get(&(lister, snapshot)).map_or(&[], Vec::as_slice)
    }

    /// Those of all snapshots that a dataset lists.
    pub fn of_all(&self, lister: DatasetId) -> impl Iterator<Item = &Arc<Dataset>> {
        self.0.range((lister, Txg(0))..=(lister, Txg(u64::MAX))).flat_map(|(_, clones)| clones)
    }
}

/// Snapshot that a new dataset begins with, and its objects without a name.
#[derive(Debug)]
pub(crate) struct Beginning {
    dataset: Arc<Dataset>,
    snapshot: Arc<Snapshot>,
    /// Its objects without a name.
    pub orphans: BTreeSet<ObjectId>,
}

impl Origin {
    /// That of a line, if it is a clone's.
    pub fn of(line: &LineRecord) -> Option<Origin> {
        let LineRecord { origin_dataset, origin_snapshot, .. } = *line;
        let origin = Origin { dataset: origin_dataset, snapshot: Txg(origin_snapshot) };
        (origin_dataset.0 != 0).then_some(origin)
    }
}

impl Beginning {
    /// The snapshot.
    pub fn origin(&self) -> Origin {
        Origin { dataset: self.dataset.id, snapshot: self.snapshot.txg }
    }

    /// The record of a new dataset, with what it begins with.
    pub fn begin(&self, record: DatasetRecord) -> DatasetRecord {
        let from = &self.snapshot.record;
        DatasetRecord {
            next_object: self.dataset.next_object(),
            refer_bytes: from.refer_bytes,
            saved_bytes: from.saved_bytes,
            line: self.dataset.record.lock().line.saturating_add(1),
            floor: self.snapshot.txg,
            origin: self.snapshot.txg.0,
            objects: from.objects,
            ..record
        }
    }
}

impl Datasets {
    /// Makes a dataset that begins as a snapshot, given as `dataset@name`. It is on disk when this
    /// returns.
    ///
    /// # Errors
    /// There is no such snapshot; or as [`Datasets::create`].
    pub fn clone_snapshot<'a>(
        &'a self,
        snapshot: &'a str,
        name: &'a str,
        properties: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<(), DatasetError>> {
        Box::pin(async move {
            let _act = self.acts.lock().await;
            let new = self.parse_new(name, properties)?;
            let (dataset, snapshot) = self.snapshot_by_name(snapshot)?;
            // It may be on another's line. That has the counter of ids.
            let dataset = self.by_id(snapshot.line).unwrap_or(dataset);
            self.use_feature(FEATURE_CLONES).await?;
            self.use_feature(FEATURE_INHERITED).await?;
            let orphans = orphans_in(&self.pool, snapshot.record.objects).await?;
            self.make(new, Some(Beginning { dataset, snapshot, orphans })).await
        })
    }

    /// The clones of all snapshots.
    pub(crate) fn all_clones(&self) -> Clones {
        let mut clones: BTreeMap<(DatasetId, Txg), Vec<Arc<Dataset>>> = BTreeMap::new();
        for dataset in self.living() {
            let origin = self.origin_snapshot(&dataset);
            let origin = origin.and_then(|origin| Some((origin.lister?, origin.txg)));
            if let Some(origin) = origin.filter(|_| !left_out(Rule::PinsAreKept)) {
                clones.entry(origin).or_default().push(dataset);
            }
        }
        Clones(clones)
    }

    /// Fails if a snapshot that a dataset lists has clones.
    pub(crate) fn check_clones(
        &self,
        clones: &Clones,
        dataset: &Dataset,
        snapshot: &Snapshot,
    ) -> Result<(), DatasetError> {
        let clones = clones.of(dataset.id, snapshot.txg);
        if clones.is_empty() {
            return Ok(());
        }
        let name = format!("{}@{}", self.full_name(dataset), snapshot.record.name);
        Err(DatasetError::HasClones { name, clones: self.names_of(clones) })
    }

    pub(crate) fn names_of(&self, datasets: &[Arc<Dataset>]) -> Vec<String> {
        datasets.iter().map(|dataset| self.full_name(dataset)).collect()
    }

    /// The full name of the snapshot that a dataset is a clone of, as it is on disk.
    pub fn origin_of(&self, dataset: &Dataset) -> Option<String> {
        let committed = self.pool.committed_txg();
        let oldest = dataset.listing.lock().on_disk(committed).first().map(|oldest| oldest.txg);
        let before = oldest.map_or(Txg(u64::MAX), |oldest| Txg(oldest.0.saturating_sub(1)));
        let is_it = |of: &Snapshot| self.lister_on_disk(of).is_some_and(|id| id != dataset.id);
        let snapshot = self
            .past(dataset)
            .into_iter()
            .find_map(|(line, upto)| line.snapshots.lock().newest_by(upto.min(before), is_it))?;
        let lister = self.by_id(self.lister_on_disk(&snapshot)?)?;
        let listed = lister.listing.lock().on_disk(committed);
        let listed = listed.iter().find(|of| of.txg == snapshot.txg).unwrap_or(&snapshot);
        Some(format!("{}@{}", self.full_name(&lister), listed.record.name))
    }
}
