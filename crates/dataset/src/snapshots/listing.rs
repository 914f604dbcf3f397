//! The snapshots that a dataset lists, and what of that is on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::inode::Time;

use super::Snapshot;

/// The snapshots that a dataset lists.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub list: BTreeMap<Txg, Arc<Snapshot>>,
    /// The last change of the list, which may not be on disk yet, and the one before it.
    changed: [ListChange; 2],
    /// Snapshots as the last change found them, by which the list is shown until that change is on
    /// disk.
    before: BTreeMap<Txg, Option<Arc<Snapshot>>>,
}

/// A change of a dataset's list of snapshots, or the import, before which changes are not known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ListChange {
    /// In this txg, or before.
    pub txg: Txg,
    /// At this time, or before.
    pub at: Time,
}

impl Listing {
    /// A snapshot is in the list, as it is now.
    pub fn put(&mut self, snapshot: Arc<Snapshot>, change: ListChange) {
        self.note_change(change);
        let txg = snapshot.txg;
        let before = self.list.insert(txg, snapshot);
        self.before.entry(txg).or_insert(before);
    }

    /// A snapshot leaves the list.
    pub fn take_out(&mut self, snapshot: Txg, change: ListChange) {
        self.note_change(change);
        let before = self.list.remove(&snapshot);
        self.before.entry(snapshot).or_insert(before);
    }

    /// The list changes. Changes come one txg at a time: each is on disk before the next one.
    pub fn note_change(&mut self, change: ListChange) {
        if self.changed[0].txg != change.txg {
            self.changed[1] = self.changed[0];
            self.before.clear();
        }
        self.changed[0] = change;
    }

    /// The snapshots as they are on disk, in order.
    pub fn on_disk(&self, committed: Txg) -> Vec<Arc<Snapshot>> {
        let up_to = self.list.range(..=committed);
        if self.changed[0].txg <= committed || left_out(Rule::SeenWhenOnDisk) {
            return up_to.map(|(_, snapshot)| snapshot.clone()).collect();
        }
        let mut shown: BTreeMap<Txg, Arc<Snapshot>> =
            up_to.map(|(txg, snapshot)| (*txg, snapshot.clone())).collect();
        for (txg, before) in &self.before {
            match before {
                Some(before) => shown.insert(*txg, before.clone()),
                None => shown.remove(txg),
            };
        }
        shown.into_values().collect()
    }

    /// The name of one.
    pub fn name_of(&self, txg: Txg) -> Option<String> {
        self.list.get(&txg).map(|snapshot| snapshot.record.name.clone())
    }

    /// Whether one has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.list.values().any(|snapshot| snapshot.record.name == name)
    }

    /// The last change that is on disk.
    pub fn last_change(&self, committed: Txg) -> ListChange {
        let [last, before] = self.changed;
        if last.txg <= committed { last } else { before }
    }
}
