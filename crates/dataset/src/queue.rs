//! Work that acts ask of the sync of their txg: items to write, and acts to carry out.
//!
//! All that is asked names datasets, and wakes them ([`crate::awake`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::{DatasetId, Txg};

use crate::awake::Awake;
use crate::file_clones::NewClone;
use crate::file_rollback::FileBack;
use crate::file_snapshots::Take;
use crate::refreserved::Asked;
use crate::snapshots::Act;

/// Items that change, by their keys.
pub(crate) type Items = BTreeMap<ItemKey, Option<Item>>;

/// All that is asked of the sync of one txg.
#[derive(Debug, Default)]
struct OfTxg {
    items: Items,
    acts: Vec<Act>,
    /// The room that snapshots asked for: it is kept until they are on disk.
    room: Vec<Asked>,
    file_takes: Vec<Take>,
    file_backs: Vec<FileBack>,
    file_clones: Vec<NewClone>,
    renamed: BTreeSet<DatasetId>,
}

/// Work of a txg that ends with its commit.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Files that it rolled back.
    pub file_backs: Vec<FileBack>,
    /// Datasets that it gave another name.
    pub renamed: BTreeSet<DatasetId>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    work: BTreeMap<Txg, OfTxg>,
    awake: Arc<Awake>,
}

impl Queue {
    fn of(&mut self, txg: Txg) -> &mut OfTxg {
        self.work.entry(txg).or_default()
    }

    /// Datasets that are awake, for those that wake themselves.
    pub fn awake(&self) -> &Arc<Awake> {
        &self.awake
    }

    /// Has items written.
    pub fn write(&mut self, txg: Txg, items: impl IntoIterator<Item = (ItemKey, Option<Item>)>) {
        for (key, item) in items {
            self.awake.wake(key.dataset, txg);
            self.of(txg).items.insert(key, item);
        }
    }

    /// Has acts on snapshots carried out.
    pub fn act(&mut self, txg: Txg, acts: impl IntoIterator<Item = Act>) {
        for act in acts {
            self.awake.wake(act.dataset(), txg);
            self.of(txg).acts.push(act);
        }
    }

    /// Keeps the room that snapshots asked for.
    pub fn keep_room(&mut self, txg: Txg, room: Asked) {
        self.of(txg).room.push(room);
    }

    /// Has snapshots of files taken.
    pub fn take_files(&mut self, txg: Txg, takes: impl IntoIterator<Item = Take>) {
        for take in takes {
            self.awake.wake(take.new.dataset.id, txg);
            self.of(txg).file_takes.push(take);
        }
    }

    /// Has files rolled back.
    pub fn roll_files_back(&mut self, txg: Txg, backs: impl IntoIterator<Item = FileBack>) {
        for back in backs {
            self.awake.wake(back.dataset, txg);
            self.of(txg).file_backs.push(back);
        }
    }

    /// Has clones of files made.
    pub fn clone_files(&mut self, txg: Txg, clones: impl IntoIterator<Item = NewClone>) {
        for clone in clones {
            self.awake.wake(clone.dataset.id, txg);
            self.of(txg).file_clones.push(clone);
        }
    }

    /// Has the record of a dataset written, which has another name. It is shown by that when it is
    /// on disk.
    pub fn rename(&mut self, txg: Txg, id: DatasetId) {
        self.awake.wake(id, txg);
        self.of(txg).renamed.insert(id);
    }

    /// The items of a txg, and the datasets that it gives another name.
    pub fn written(&self, txg: Txg) -> (Items, BTreeSet<DatasetId>) {
        let work = self.work.get(&txg);
        work.map(|work| (work.items.clone(), work.renamed.clone())).unwrap_or_default()
    }

    /// Acts on snapshots of a txg.
    pub fn acts(&self, txg: Txg) -> &[Act] {
        self.work.get(&txg).map_or(&[], |work| &work.acts)
    }

    /// Snapshots of files that a txg takes.
    pub fn file_takes(&self, txg: Txg) -> &[Take] {
        self.work.get(&txg).map_or(&[], |work| &work.file_takes)
    }

    /// Files that a txg rolls back.
    pub fn file_backs(&self, txg: Txg) -> &[FileBack] {
        self.work.get(&txg).map_or(&[], |work| &work.file_backs)
    }

    /// Clones of files that a txg makes.
    pub fn file_clones(&self, txg: Txg) -> &[NewClone] {
        self.work.get(&txg).map_or(&[], |work| &work.file_clones)
    }

    /// Takes out the acts of a txg, to carry them out.
    pub fn take_acts(&mut self, txg: Txg) -> Vec<Act> {
        self.work.get_mut(&txg).map(|work| std::mem::take(&mut work.acts)).unwrap_or_default()
    }

    /// Takes out the snapshots of files of a txg, to take them.
    pub fn take_file_takes(&mut self, txg: Txg) -> Vec<Take> {
        self.work.get_mut(&txg).map(|work| std::mem::take(&mut work.file_takes)).unwrap_or_default()
    }

    /// `txg` is on disk. Returns what ends with that.
    pub fn committed(&mut self, txg: Txg) -> Committed {
        let later = self.work.split_off(&txg.next());
        let over = std::mem::replace(&mut self.work, later);
        let mut committed = Committed::default();
        for work in over.into_values() {
            committed.file_backs.extend(work.file_backs);
            committed.renamed.extend(work.renamed);
        }
        committed
    }
}
