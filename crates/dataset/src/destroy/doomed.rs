//! Datasets and snapshots that are destroyed together, and reasons that forbid it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_ondisk::{DatasetId, Txg};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::increment::IncrementError;
use crate::lines::{Ending, OnLine};

/// Datasets and snapshots that are to be destroyed together.
#[derive(Debug)]
pub(crate) struct Doomed {
    /// With all their snapshots.
    pub datasets: Vec<Arc<Dataset>>,
    /// Snapshots on lines.
    pub unlisted: BTreeSet<OnLine>,
}

impl Datasets {
    /// The datasets of these names, if they can be destroyed.
    pub(super) fn doomed(&self, names: &[String]) -> Result<Vec<Arc<Dataset>>, DatasetError> {
        let mut doomed = Vec::new();
        for name in names {
            let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
            if dataset.record.lock().parent.0 == 0 {
                let why = "is the pool's own dataset: destroy the pool instead".into();
                return Err(DatasetError::BadName { name: name.into(), why });
            }
            doomed.push(dataset);
        }
        Ok(doomed)
    }

    /// Finds what ends with these snapshots of datasets, and the lines that this changes. The
    /// caller holds the lock of acts.
    pub(crate) fn check_destroy(
        &self,
        snapshots: &[(Arc<Dataset>, BTreeSet<Txg>)],
        clones: bool,
    ) -> Result<(Doomed, Vec<Arc<Dataset>>), DatasetError> {
        let all_clones = self.all_clones();
        let (mut unlisted, mut doomed) = (BTreeSet::new(), BTreeMap::new());
        for (dataset, snapshots) in snapshots {
            if dataset.is_destroyed() {
                return Err(DatasetError::NotFound(self.full_name(dataset)));
            }
            let mut listed = dataset.snapshots(self.pool.committed_txg());
            listed.retain(|snapshot| snapshots.contains(&snapshot.txg));
            let txgs = || listed.iter().map(|snapshot| snapshot.txg);
            self.check_not_held(dataset, txgs())?;
            if txgs().any(|txg| dataset.goes_back_to(txg)) {
                self.check_no_increment(dataset)?;
            }
            for snapshot in listed {
                match clones {
                    true => {
                        let clones = all_clones.of(dataset.id, snapshot.txg);
                        doomed.extend(clones.iter().map(|clone| (clone.id, clone.clone())));
                    }
                    false => self.check_clones(&all_clones, dataset, &snapshot)?,
                }
                unlisted.insert((snapshot.line, snapshot.txg));
            }
        }
        let datasets = self.with_dependents(doomed.into_values().collect(), true, true)?;
        let lines = self.check_end(&datasets, &unlisted)?;
        Ok((Doomed { datasets, unlisted }, lines))
    }

    /// Refuses an end of datasets, and of snapshots on lines, that takes away what others need, or
    /// what is held. Returns the lines that go, or whose heads go back. The caller holds the lock
    /// of acts.
    pub(crate) fn check_end(
        &self,
        doomed: &[Arc<Dataset>],
        snapshots: &BTreeSet<OnLine>,
    ) -> Result<Vec<Arc<Dataset>>, DatasetError> {
        let Ending { gone, rolled, .. } = self.ending(doomed, snapshots.iter().copied());
        self.check_needs(doomed, &gone)?;
        self.check_needs(&rolled, &gone)?;
        for dataset in doomed {
            self.check_nothing_held(dataset)?;
        }
        Ok(gone.into_iter().chain(rolled).collect())
    }

    /// Datasets with all below them, and their clones. Each act comes alone: nothing joins them
    /// later.
    pub(super) fn with_dependents(
        &self,
        mut doomed: Vec<Arc<Dataset>>,
        recursive: bool,
        with_clones: bool,
    ) -> Result<Vec<Arc<Dataset>>, DatasetError> {
        if doomed.is_empty() {
            return Ok(doomed);
        }
        let clones = self.all_clones();
        let mut below: BTreeMap<DatasetId, Vec<Arc<Dataset>>> = BTreeMap::new();
        for dataset in self.living() {
            let parent = dataset.record.lock().parent;
            below.entry(parent).or_default().push(dataset);
        }
        let mut known: BTreeSet<DatasetId> = doomed.iter().map(|dataset| dataset.id).collect();
        let mut at = 0;
        while let Some(dataset) = doomed.get(at).cloned() {
            at += 1;
            let children = below.get(&dataset.id).map_or(&[][..], Vec::as_slice);
            let children = children.iter().filter(|child| known.insert(child.id));
            let children: Vec<Arc<Dataset>> = children.cloned().collect();
            let name = || self.full_name(&dataset);
            if let Some(part) =
                children.iter().find(|of| of.is_received() && of.is_parked() && !recursive)
            {
                return Err(IncrementError::Partial(self.full_name(part)).into());
            }
            if !children.is_empty() && !recursive {
                return Err(DatasetError::HasChildren(name()));
            }
            let snapshots = dataset.snapshot_count() + dataset.file_snapshot_count();
            if snapshots > 0 && !recursive {
                return Err(DatasetError::HasSnapshots(name()));
            }
            doomed.extend(children);
            if with_clones {
                let clones = clones.of_all(dataset.id).filter(|clone| known.insert(clone.id));
                doomed.extend(clones.cloned());
            }
        }
        for dataset in &doomed {
            let left = clones.of_all(dataset.id).filter(|clone| !known.contains(&clone.id));
            let left: Vec<Arc<Dataset>> = left.cloned().collect();
            if !left.is_empty() {
                let (name, clones) = (self.full_name(dataset), self.names_of(&left));
                return Err(DatasetError::HasClones { name, clones });
            }
        }
        Ok(doomed)
    }
}
