//! Lines: with what each began, and who lists the snapshots on it.

use std::collections::BTreeSet;

use aquifer_ondisk::types::{DatasetId, Txg};

use super::Items;
use crate::snapshots::{Inherits, Snapshots};

impl Items {
    /// Returns the content with which a clone began.
    pub(super) fn inherits(&self, id: DatasetId) -> Option<Inherits> {
        let line = self.lines.get(&id).filter(|line| line.origin_dataset.0 != 0)?;
        let origin = (line.origin_dataset, Txg(line.origin_snapshot));
        Some(Inherits { floor: line.floor, origin })
    }

    pub(super) fn has_clones(&self, id: DatasetId) -> bool {
        self.lines.values().any(|line| line.origin_dataset == id)
    }

    /// Datasets learn which snapshots of their files are needed by others.
    pub(super) fn link_files(&mut self) {
        let stays = |(id, _): &(&DatasetId, &Snapshots)| {
            self.datasets.get(id).is_some_and(|dataset| !dataset.destroyed)
        };
        let needs = self.snapshots.iter().filter(stays).flat_map(|(_, of)| of.files.needs());
        for (dataset, id) in needs.collect::<Vec<_>>() {
            self.snapshots.entry(dataset).or_default().files.need(id);
        }
    }

    /// Checks that the snapshots as which files of other datasets began are there.
    pub(super) fn check_across(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (id, snapshots) in &self.snapshots {
            let is_there = self.datasets.get(id).is_some_and(|of| !of.destroyed);
            if !is_there && snapshots.files.are_needed() {
                invalid(*id, "is not there, and a file of another began as one of it".into());
            }
            if let Some(missing) = snapshots.files.missing().next() {
                let (txg, index) = (missing.txg(), missing.index());
                invalid(*id, format!("has no snapshot {txg}:{index} that a file began as"));
            }
        }
    }

    /// Each clone has the snapshot that it began as, whose txg is its floor.
    pub(super) fn check_lines(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (id, dataset) in self.datasets.iter().filter(|(_, dataset)| !dataset.destroyed) {
            let (floor, inherits) = (dataset.record.floor, self.inherits(*id));
            let (from, txg) = inherits.map_or_else(Default::default, |of| of.origin);
            let is_there = self.datasets.get(&from).is_some_and(|from| !from.destroyed);
            let listed = self.snapshots.get(&from).is_some_and(|of| of.list.contains_key(&txg));
            if inherits.is_some() && !(is_there && listed) {
                invalid(
                    *id,
                    format!("is a clone of the snapshot of {txg} of {from}, which is not"),
                );
            }
            if floor != txg || inherits.is_some_and(|of| of.floor != floor) {
                invalid(*id, format!("has the floor {floor}, and began as a snapshot of {txg}"));
            }
        }
    }

    /// Checks that what is being received into a dataset can be rolled back, and that no client
    /// sees it.
    pub(super) fn check_receiving(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (id, from) in &self.receiving {
            let newest = self.snapshots.get(id).and_then(|of| of.list.keys().next_back());
            if newest != Some(from) {
                invalid(*id, format!("cannot go back to the snapshot of {from}, not its newest"));
            }
            let is_living = self.datasets.get(id).is_some_and(|of| of.is_living());
            if !is_living || !self.standby.contains(id) {
                invalid(*id, "is being received into, and does not stand by".into());
            }
        }
    }

    /// A stream that may go on is one of a dataset that is received whole, with the record of a
    /// destroyed one, or of what changed since the snapshot to go back to.
    pub(super) fn check_resumes(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (id, record) in &self.resumes {
            let is_new = self.datasets.get(id).is_some_and(|of| of.destroyed);
            let old = self.receiving.get(id).and_then(|from| {
                let listed = self.snapshots.get(id)?;
                Some(listed.list.get(from)?.guid)
            });
            let fits = if is_new { record.from.is_none() } else { old.is_some() };
            if !fits || old != record.from {
                invalid(*id, "says how far a stream has come that is not received there".into());
            }
        }
    }

    /// Each snapshot is listed by the dataset on whose line it is, or by one that comes from it. A
    /// hidden one is there because a line begins with it.
    pub(super) fn check_listers(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (place, lister) in &self.listers {
            let (line, txg) = *place;
            if self.snapshots.get(&line).is_none_or(|of| !of.list.contains_key(&txg)) {
                invalid(line, format!("has no snapshot of {txg}, which {lister:?} lists"));
            }
            let is_hidden_line = self.datasets.get(&line).is_some_and(|of| of.hidden);
            let of_it = self.snapshots.get(&line);
            let is_needed = match is_hidden_line {
                true => self.is_pinned(*place),
                false => of_it.is_some_and(|of| of.head_lines.need(txg)),
            };
            match lister {
                Some(lister) if *lister == line || !self.comes_from(*lister, *place) => {
                    invalid(line, format!("has a snapshot of {txg}, which {lister} cannot list"));
                }
                None if !is_needed => {
                    invalid(line, format!("has a hidden snapshot of {txg} that nothing needs"));
                }
                _ => {}
            }
        }
        let mut names = BTreeSet::new();
        for (line, snapshots) in &self.snapshots {
            for (txg, snapshot) in &snapshots.list {
                let lister = self.listers.get(&(*line, *txg)).copied();
                let Some(lister) = lister.unwrap_or(Some(*line)) else {
                    if snapshots.kept.contains(txg) {
                        invalid(*line, format!("has a hidden snapshot of {txg} that is held"));
                    }
                    continue;
                };
                if !names.insert((lister, snapshot.name.as_str())) {
                    invalid(lister, format!("lists two snapshots called {:?}", snapshot.name));
                }
            }
        }
        self.check_hidden_lines(invalid);
    }

    /// A hidden line has snapshots, all of them listed by others or hidden, and is as of the newest
    /// one.
    fn check_hidden_lines(&self, invalid: &mut impl FnMut(DatasetId, String)) {
        for (id, line) in self.datasets.iter().filter(|(_, of)| of.hidden) {
            let list = self.snapshots.get(id).map(|of| &of.list);
            let newest = list.and_then(|list| list.last_key_value());
            match newest {
                None => invalid(*id, "is a hidden line without a snapshot".into()),
                Some((txg, newest)) if newest.objects != line.record.objects => {
                    invalid(*id, format!("is a hidden line, and not as of its snapshot of {txg}"));
                }
                _ => {}
            }
            if self.snapshots.get(id).is_some_and(|of| !of.files.are_hidden_and_pinned()) {
                invalid(*id, "is a hidden line, and has snapshots of files".into());
            }
            let mut txgs = list.into_iter().flat_map(|list| list.keys());
            if let Some(txg) = txgs.find(|txg| !self.listers.contains_key(&(*id, **txg))) {
                invalid(*id, format!("is a hidden line, and nobody lists its snapshot of {txg}"));
            }
        }
    }

    /// Whether a snapshot on a line is in the past of a dataset.
    fn comes_from(&self, dataset: DatasetId, (line, txg): (DatasetId, Txg)) -> bool {
        if !self.datasets.get(&dataset).is_some_and(super::Dataset::is_living) {
            return false;
        }
        let (mut at, mut upto) = (dataset, Txg(u64::MAX));
        loop {
            if at == line && txg <= upto {
                return true;
            }
            match self.inherits(at).map(|of| of.origin) {
                // Else it would come from itself.
                Some((origin, snapshot)) if snapshot < upto => (at, upto) = (origin, snapshot),
                _ => return false,
            }
        }
    }

    /// Whether a line that is not being emptied begins with a snapshot.
    fn is_pinned(&self, place: (DatasetId, Txg)) -> bool {
        let stays = self.datasets.iter().filter(|(_, of)| !of.destroyed);
        stays.into_iter().any(|(id, _)| self.inherits(*id).is_some_and(|of| of.origin == place))
    }
}
