//! Promote: a clone and its origin change places.
//!
//! The clone lists the snapshots that both come from, and the other dataset becomes a clone of the
//! newest of them. Only that changes: the snapshots stay on their line, with all that belongs to
//! them ([`crate::lines`]). So no block and no dead entry moves, and what frees a block is the same
//! as before. A record of each snapshot that is listed elsewhere names the dataset.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{FEATURE_PROMOTE, FEATURE_ROLLBACK};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey, ListerRecord};
use aquifer_ondisk::{DatasetId, Txg};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::lines::OnLine;
use crate::snapshots::{Act, Snapshot, put};

/// Changes by a promotion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// Full name of the dataset that was the origin, and is a clone now.
    pub origin: String,
    /// The snapshots that the promoted one lists now, without its name, in order.
    pub snapshots: Vec<String>,
}

impl Datasets {
    /// Promotes a clone; on disk when this returns.
    ///
    /// # Errors
    /// There is no such dataset, it is no clone, it has snapshots with names that snapshots of its
    /// origin have, or the origin stands by: increments need its snapshots. Then nothing has
    /// changed.
    pub async fn promote(&self, name: &str) -> Result<Promoted, DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let no_clone = || DatasetError::NoClone(name.into());
        let origin = self.origin_snapshot(&dataset).ok_or_else(no_clone)?;
        let from = origin.lister.and_then(|lister| self.by_id(lister)).ok_or_else(no_clone)?;
        if from.is_standby() && !left_out(Rule::CopiesKeepTheirSnapshots) {
            return Err(DatasetError::Copy { name: name.into(), from: self.full_name(&from) });
        }
        self.check_no_increment(&dataset)?;
        self.check_no_increment(&from)?;
        for of in [&dataset, &from] {
            if !of.snapshots.lock().head_lines.is_empty() {
                return Err(DatasetError::HasLines(self.full_name(of)));
            }
        }
        let mut moved = self.shared(&dataset, from.id, origin.txg);
        moved.sort_by_key(|snapshot| snapshot.txg);
        let names = moved.iter().map(|snapshot| snapshot.record.name.clone());
        let snapshots: Vec<String> = names.collect();
        let mut taken = snapshots.clone();
        taken.retain(|name| dataset.listing.lock().has_name(name));
        if !taken.is_empty() {
            let (name, from) = (name.into(), self.full_name(&from));
            return Err(DatasetError::SameNames { name, from, snapshots: taken });
        }
        // A destroyed dataset may leave its line now.
        self.use_feature(FEATURE_ROLLBACK).await?;
        self.use_feature(FEATURE_PROMOTE).await?;
        let moved = moved.iter().map(|snapshot| (snapshot.line, snapshot.txg)).collect();
        self.act(vec![Act::Promote { dataset: dataset.id, moved }]).await?;
        Ok(Promoted { origin: self.full_name(&from), snapshots })
    }

    /// Carries out a promotion. Called by the sync of its txg.
    pub(crate) fn carry_out_promote(
        &self,
        txg: Txg,
        dataset: &Dataset,
        moved: Vec<OnLine>,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let before = self.listers_of(&moved);
        *self.promoted.lock() = (txg, before);
        let each = moved.into_iter().filter_map(|(line, snapshot)| {
            self.take_over(txg, dataset, (line, snapshot));
            if left_out(Rule::ListersAreOnDisk) {
                return None;
            }
            let record = ListerRecord { dataset: Some(dataset.id) };
            let record = (line != dataset.id).then(|| record.encode());
            Some(put(line, ItemClass::Lister, snapshot, record))
        });
        let items = each.collect();
        self.rename_views(dataset);
        items
    }

    fn listers_of(&self, snapshots: &[OnLine]) -> BTreeMap<OnLine, DatasetId> {
        let lister = |(line, snapshot): &OnLine| {
            let known = self.by_id(*line)?.snapshots.lock().get(*snapshot);
            Some(((*line, *snapshot), known?.lister?))
        };
        snapshots.iter().filter_map(lister).collect()
    }

    /// The dataset that lists a snapshot, as it is on disk.
    pub(crate) fn lister_on_disk(&self, of: &Snapshot) -> Option<DatasetId> {
        let promoted = self.promoted.lock();
        let before = promoted.1.get(&(of.line, of.txg)).copied();
        match promoted.0 > self.pool.committed_txg() && !left_out(Rule::SeenWhenOnDisk) {
            true => before.or(of.lister),
            false => of.lister,
        }
    }

    /// A dataset lists a snapshot instead of the one that did.
    fn take_over(&self, txg: Txg, dataset: &Dataset, (line, snapshot): OnLine) {
        let Some(line) = self.by_id(line) else { return };
        let before = line.snapshots.lock().get(snapshot);
        let Some(before) = before else { return };
        let known = Arc::new(Snapshot { lister: Some(dataset.id), ..Snapshot::clone(&before) });
        line.snapshots.lock().set(known.clone());
        // At each moment somebody lists it: clients may look into it.
        dataset.listing.lock().put(known.clone(), self.change_in(txg));
        {
            let mut views = self.views.lock();
            views.pass_on(&before, dataset.id);
            views.enter(&known);
        }
        let keep = self.strike(txg, &before);
        dataset.keeping.lock().extend(keep.map(|keep| (snapshot, keep)));
    }

    /// Import: each dataset lists its snapshots.
    pub(crate) fn fill_listings(&self, listers: &BTreeMap<OnLine, Option<DatasetId>>) {
        let lines: Vec<Arc<Dataset>> = self.state.lock().datasets.values().cloned().collect();
        let take = |line: &Arc<Dataset>| (line.clone(), std::mem::take(&mut *line.keeping.lock()));
        let lines: Vec<_> = lines.iter().map(take).collect();
        for (line, mut keeping) in lines {
            let all = line.snapshots.lock().all();
            for known in all {
                let lister = listers.get(&(line.id, known.txg)).copied().unwrap_or(known.lister);
                let lister = lister.and_then(|id| self.by_id(id)).filter(|of| !of.is_destroyed());
                let id = lister.as_ref().map(|lister| lister.id);
                let known = Arc::new(Snapshot { lister: id, ..Snapshot::clone(&known) });
                line.snapshots.lock().set(known.clone());
                let Some(lister) = lister else { continue };
                let keep = keeping.remove(&known.txg);
                lister.keeping.lock().extend(keep.map(|keep| (known.txg, keep)));
                lister.listing.lock().list.insert(known.txg, known);
            }
        }
    }
}
