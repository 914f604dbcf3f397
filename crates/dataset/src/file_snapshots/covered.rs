//! How much of the files of a head snapshots of these files show: see [`crate::covered`].

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};

use super::{FileSnapshot, FileSnapshots, NewFileSnapshot};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::refreserved::Asked;

impl FileSnapshot {
    /// Own bytes of the file of then.
    fn own_bytes(&self) -> u64 {
        own_bytes(&self.record.inode)
    }
}

/// Bytes of a file that its dataset does not inherit.
fn own_bytes(inode: &Inode) -> u64 {
    inode.refer().minus(inode.inherited()).bytes
}

impl FileSnapshots {
    /// Import: the sum of a file, behind its snapshots. One of a file without any means nothing.
    pub fn load_covered(&mut self, number: u64, bytes: u64) {
        if let Some(sum) = self.covered.get_mut(&ObjectId(number)) {
            *sum = bytes;
        }
    }

    /// One comes to the list. If it is not the newest of its file, it shows nothing more of it.
    pub(super) fn covers(&mut self, snapshot: &Arc<FileSnapshot>) {
        if self.newest_of(snapshot.object()).is_none_or(|newest| newest <= snapshot.txg()) {
            self.covered.insert(snapshot.object(), snapshot.own_bytes());
        }
    }

    /// A file went back to one.
    pub fn covers_again(&mut self, snapshot: &FileSnapshot) {
        self.covered.insert(snapshot.object(), snapshot.own_bytes());
    }

    /// All files went back: the newest one of each says how much it shows at most.
    pub fn covers_what_is_newest(&mut self) {
        let files: Vec<ObjectId> = self.covered.keys().copied().collect();
        for object in files {
            if let Some(newest) = self.of_file(object).last().cloned() {
                self.covers_again(&newest);
            }
        }
    }

    /// One of a file has left the list.
    pub(super) fn covers_less(&mut self, object: ObjectId) {
        let newest = self.of_file(object).last().map(|newest| newest.own_bytes());
        match (newest, self.covered.get_mut(&object)) {
            (Some(most), Some(sum)) => *sum = most.min(*sum),
            _ => drop(self.covered.remove(&object)),
        }
    }

    /// So much of a file died that its snapshots show.
    pub fn covered_died(&mut self, object: ObjectId, bytes: u64) {
        if let Some(sum) = self.covered.get_mut(&object) {
            *sum = sum.saturating_sub(bytes);
        }
    }

    /// The sums of files of which a snapshot was taken after a txg.
    pub fn covered_after(&self, txg: Txg) -> u64 {
        if left_out(Rule::FilesCoverToo) {
            return 0;
        }
        let later = self.covered.iter().filter(|(id, _)| self.newest_of(**id) > Some(txg));
        later.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// All sums, by the ids of the files.
    pub fn covered(&self) -> impl Iterator<Item = (u64, u64)> {
        self.covered.iter().map(|(id, bytes)| (id.0, *bytes))
    }
}

impl Dataset {
    /// Bytes of a file that count by themselves: of which a snapshot is the newest of all.
    fn counted_of(&self, object: ObjectId) -> u64 {
        let snapshots = self.snapshots.lock();
        let is_newest = snapshots.files.newest_of(object) > snapshots.newest();
        let bytes = snapshots.files.covered.get(&object).filter(|_| is_newest);
        bytes.copied().unwrap_or_default()
    }
}

impl Datasets {
    /// Asks for the room that snapshots of files take of others.
    pub(super) async fn ask_for_files(
        &self,
        all: impl Iterator<Item = &NewFileSnapshot>,
    ) -> Result<Asked, DatasetError> {
        let mut of: BTreeMap<DatasetId, (Arc<Dataset>, u64)> = BTreeMap::new();
        for new in all {
            if new.dataset.refreserved_bytes() == 0 {
                continue;
            }
            let file = new.dataset.object(&self.pool, new.object).await?;
            let inode = file.map(|file| file.inode());
            let bytes = inode.map_or(0, |inode| own_bytes(&inode));
            let bytes = bytes.saturating_sub(new.dataset.counted_of(new.object));
            // What is written to it before the snapshot counts too.
            let promised = || (new.dataset.clone(), new.dataset.promised_bytes());
            let (_, sum) = of.entry(new.dataset.id).or_insert_with(promised);
            *sum = sum.saturating_add(bytes).saturating_add(1);
        }
        self.ask_for_snapshots(of.into_values().collect::<Vec<_>>()).await
    }
}
