//! The one gate that every block passes when a tree of a dataset no longer refers to it.
//!
//! A block lives from its birth to its death, the txg in which the head no longer refers to it. A
//! snapshot of txg t shows it if birth <= t < death. At its death a block is either freed, because
//! no snapshot shows it, or *filed*: it goes to the dead tree of the dataset, into the [`Bucket`]
//! that says which snapshots show it.
//!
//! A snapshot of a dataset shows the blocks of all its objects, a snapshot of a file those of that
//! file alone. If one of the file's own lies in the life of a block, the block goes to the file's
//! *group* of buckets, and snapshots of both kinds count; else to group 0, that of the dataset's.
//!
//! What is cut off a huge file is an object of its own, a *tail*, until it is freed
//! ([`Gate::note_tail`]). It dies as the file's: snapshots of the file that were taken before the
//! cut show it.
//!
//! A tail whose file was rolled back since shares with the file, or with a snapshot, what was born
//! up to a floor of its own ([`Above`]).
//!
//! A bookmark needs the nodes of all objects, and no data. Nodes that no snapshot shows go to the
//! group of bookmarks, if one lies in their life.
//!
//! What was born at or below the *floor* belongs to a snapshot from which this tree began: when the
//! tree no longer refers to it, nothing happens. A clone of a file, and its tails, have a floor of
//! their own ([`Gate::note_clone`]); the higher one counts.
//!
//! Invariants:
//! - No tree of a dataset frees what it referred to but through its gate. What no committed tree
//!   ever referred to (data of a change that came to nothing) needs none.
//! - The snapshots of a gate are those of the dataset's list at the start of the sync: one that
//!   this txg takes shows nothing that dies in it, and one that leaves the list in this txg still
//!   counts, since its sweep comes later.

mod above;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadKind};
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, ObjectId, Space, Txg};
use aquifer_pool::{PoolError, SyncContext};
use aquifer_sync::Mutex;

use crate::btree::{NodeSink, NodeSize, NodeStore};
use crate::extent_tree::FreedExtent;

pub use above::Above;

/// Blocks that died in a txg, by bucket and object.
pub type Filed = BTreeMap<(Bucket, ObjectId, bool), Vec<DeadBlock>>;

/// The snapshots of single files, each list in order and not empty.
pub type FileLists = Arc<BTreeMap<ObjectId, Vec<Txg>>>;

/// A rollback whose snapshot's blocks the dead tree still names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returning {
    /// The txg of the rollback.
    pub txg: Txg,
    /// The txg of the snapshot.
    pub to: Txg,
}

/// State that decides on the blocks of a dataset that die.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Births at or below are another's.
    pub floor: Txg,
    /// The snapshots of the dataset, in order.
    pub listed: Vec<Txg>,
    /// Its bookmarks, in order: they need nodes.
    pub bookmarks: Vec<Txg>,
    /// Those of its files.
    pub files: FileLists,
    /// Rollback of the dataset that brings blocks back: what dies now must not stand among these.
    pub returning: Option<Returning>,
    /// Rollbacks of single files that bring blocks back: what dies now must not stand among these.
    pub files_returning: BTreeMap<ObjectId, Returning>,
}

/// Part that was cut off a huge file.
#[derive(Debug, Clone, Copy)]
struct Tail {
    file: ObjectId,
    /// The txg of the cut.
    cut: Txg,
}

/// See the module's head.
#[derive(Debug)]
pub struct Gate<'a> {
    sync: &'a SyncContext,
    shown: Shown,
    /// Trees are taken down as a whole: what lies below a node of another is not looked at.
    whole: bool,
    filed: Mutex<Filed>,
    tails: Mutex<HashMap<ObjectId, Tail>>,
    /// The floors of clones of files.
    clones: Mutex<HashMap<ObjectId, Txg>>,
    /// Data of another that the tree no longer refers to.
    given_up: Mutex<Space>,
    /// Data of the trees' own that died.
    died: Mutex<Space>,
    counts_saved: bool,
}

impl<'a> Gate<'a> {
    /// The gate of a dataset.
    pub fn new(sync: &'a SyncContext, shown: Shown) -> Self {
        assert!(shown.listed.is_sorted_by(|left, right| left < right), "snapshots in order");
        Gate {
            sync,
            shown,
            whole: false,
            filed: Mutex::default(),
            tails: Mutex::default(),
            clones: Mutex::default(),
            given_up: Mutex::default(),
            died: Mutex::default(),
            counts_saved: sync.pool().counts_saved(),
        }
    }

    /// The gate of a dataset that is taken down. No snapshot shows anything of it above the floor.
    pub fn of_destroyed(sync: &'a SyncContext, floor: Txg) -> Self {
        let shown = Shown { floor, ..Shown::default() };
        Gate { whole: true, ..Gate::new(sync, shown) }
    }

    /// The gate of an old head that is taken down: snapshots may show it.
    pub fn of_left_head(sync: &'a SyncContext, shown: Shown) -> Self {
        Gate { whole: true, ..Gate::new(sync, shown) }
    }

    /// The sync.
    pub fn sync(&self) -> &'a SyncContext {
        self.sync
    }

    /// Whether the pool counts what compression saves.
    pub fn counts_saved(&self) -> bool {
        self.counts_saved
    }

    /// Whether a snapshot shows what was born in that txg and was an object's until now.
    pub fn is_shown(&self, object: ObjectId, birth: Txg) -> bool {
        self.is_of_another_file(object, birth) || self.shown.covers(object, birth)
    }

    /// An object that is changed or freed is a clone of a file, or a tail of one: what was born up
    /// to its floor belongs to another file.
    pub fn note_clone(&self, object: ObjectId, floor: Txg) {
        if floor > Txg(0) && !left_out(Rule::FileClonesHaveAFloor) {
            self.clones.lock().insert(object, floor);
        }
    }

    fn is_of_another_file(&self, object: ObjectId, birth: Txg) -> bool {
        self.clones.lock().get(&object).is_some_and(|floor| birth <= *floor)
    }

    /// An object that is to be freed was cut off a file in this txg; of cuts by earlier releases
    /// that is not known, and the txg is 0. Then snapshots taken later keep it too.
    pub fn note_tail(&self, tail: ObjectId, file: ObjectId, cut: Txg) {
        if file != ObjectId(0) && !left_out(Rule::TailsAreTheirFiles) {
            let cut = if cut == Txg(0) { Txg(u64::MAX) } else { cut };
            self.tails.lock().insert(tail, Tail { file, cut });
        }
    }

    /// Whether there are snapshots at all.
    pub fn files_anything(&self) -> bool {
        let Shown { listed, files, bookmarks, .. } = &self.shown;
        !listed.is_empty() || !files.is_empty() || !bookmarks.is_empty()
    }

    /// A file no longer refers to these extents. Returns what of them belongs to the file that it
    /// was cloned from.
    pub fn free_extents(&self, owner: NodeOwner, freed: &[FreedExtent]) -> Space {
        let (mut of_another, mut of_another_file) = (Space::default(), Space::default());
        for extent in freed {
            let is_cloned = self.is_of_another_file(owner.object, extent.birth);
            let space = Space::of_sectors(extent.run.sectors, self.saved(extent).into());
            if is_cloned || self.shown.is_of_another(extent.birth) {
                of_another = of_another.plus(space);
            }
            if is_cloned {
                of_another_file = of_another_file.plus(space);
            }
            self.free_extent(owner, extent);
        }
        if !left_out(Rule::GivenUpIsCounted) {
            let mut given_up = self.given_up.lock();
            *given_up = given_up.plus(of_another);
        }
        of_another_file
    }

    fn free_extent(&self, owner: NodeOwner, extent: &FreedExtent) {
        debug_assert!(!extent.counted, "nothing counts extents yet");
        let FreedExtent { run, birth, .. } = *extent;
        let saved_sectors = if left_out(Rule::SavedIsFiled) { 0 } else { self.saved(extent) };
        let block = DeadBlock { kind: DeadKind::Extent, run, birth, saved_sectors };
        if self.dies(owner, block, extent.written) {
            let mut died = self.died.lock();
            *died = died.plus(Space::of_sectors(run.sectors, self.saved(extent).into()));
        }
    }

    /// The data of the trees' own that died so far, freed or filed.
    pub fn died(&self) -> Space {
        *self.died.lock()
    }

    /// Blocks that died since then counted for nobody.
    pub fn forget_died(&self, since: Space) {
        *self.died.lock() = since;
    }

    fn saved(&self, extent: &FreedExtent) -> u8 {
        if self.counts_saved { extent.saved_sectors } else { 0 }
    }

    /// Returns whether it was the tree's own.
    fn dies(&self, owner: NodeOwner, block: DeadBlock, written: Txg) -> bool {
        let is_cloned = self.is_of_another_file(owner.object, block.birth);
        if is_cloned || self.shown.is_of_another(block.birth) {
            return false;
        }
        let tail = self.tails.lock().get(&owner.object).copied();
        let is_cut_off = tail.is_some();
        let tail = tail.unwrap_or(Tail { file: owner.object, cut: Txg(u64::MAX) });
        let bucket = self.shown.bucket(tail, block.birth);
        let Some(bucket) = bucket.or_else(|| self.shown.bookmarked(&block)) else {
            self.sync.free(block.run, written);
            return true;
        };
        let (cut_off, file) = match left_out(Rule::TailsAreFiledByFile) {
            true => (false, owner.object),
            false => (is_cut_off, tail.file),
        };
        self.filed.lock().entry((bucket, file, cut_off)).or_default().push(block);
        true
    }

    /// The blocks that died so far and are still shown, and the data that the tree gave up and
    /// another owns.
    pub fn into_filed(self) -> (Filed, Space) {
        let filed = std::mem::take(&mut *self.filed.lock());
        let given_up = *self.given_up.lock();
        (filed, given_up)
    }
}

/// Whether a snapshot, or another, shows what was born in that txg and lived until now: by the
/// dataset's floor and its newest snapshot.
pub fn covers(birth: Txg, floor: Txg, newest: Option<Txg>) -> bool {
    is_inherited(birth, floor) || newest.is_some_and(|newest| birth <= newest)
}

fn is_inherited(birth: Txg, floor: Txg) -> bool {
    birth <= floor && !left_out(Rule::FloorIsKept)
}

impl Shown {
    /// Returns the state that decides on the blocks of a head that was left in this txg, and owned
    /// what was born above a floor: the snapshots before.
    pub fn until(mut self, floor: Txg, left: Txg) -> Shown {
        let before = |list: &mut Vec<Txg>| list.retain(|txg| *txg < left);
        before(&mut self.listed);
        before(&mut self.bookmarks);
        let mut files = FileLists::unwrap_or_clone(self.files);
        files.values_mut().for_each(before);
        files.retain(|_, list| !list.is_empty());
        Shown { floor, files: Arc::new(files), ..self }
    }

    /// Whether a snapshot, or another, shows what was born in that txg and was an object's until
    /// now.
    pub fn covers(&self, object: ObjectId, birth: Txg) -> bool {
        let of_file = self.files.get(&object).and_then(|list| list.last());
        covers(birth, self.floor, self.listed.last().max(of_file).copied())
    }

    /// The snapshots of a file that show what it has, or had when a tail was cut off.
    fn of_file(&self, Tail { file, cut }: Tail) -> &[Txg] {
        let list = self.files.get(&file).map_or(&[][..], Vec::as_slice);
        list.get(..list.partition_point(|snapshot| *snapshot < cut)).unwrap_or_default()
    }

    fn is_of_another(&self, birth: Txg) -> bool {
        is_inherited(birth, self.floor)
    }

    /// The bucket of a block that dies now and no snapshot shows, if bookmarks need it.
    fn bookmarked(&self, block: &DeadBlock) -> Option<Bucket> {
        let newest = bookmark_needing(&self.bookmarks, Txg(u64::MAX), block);
        let newest = newest.filter(|_| !left_out(Rule::BookmarksKeepNodes));
        newest.map(Bucket::of_bookmark)
    }

    /// The bucket of a block that dies now; `None` if no snapshot shows it.
    fn bucket(&self, owner: Tail, birth: Txg) -> Option<Bucket> {
        let listed = self.listed.as_slice();
        let of_file = self.of_file(owner).last().filter(|newest| birth <= **newest);
        let of_file = of_file.filter(|_| !left_out(Rule::FilesAreCovered));
        let files = if of_file.is_some() { self.of_file(owner) } else { &[] };
        let newest = *listed.last().max(of_file).filter(|newest| birth <= **newest)?;
        if left_out(Rule::ShownBlocksAreFiled) {
            return None;
        }
        let later = self.returning.filter(|_| !left_out(Rule::DeathsPass));
        let of_it = self.files_returning.get(&owner.file).copied();
        let of_it = of_it.filter(|_| of_file.is_some() && !left_out(Rule::FileDeathsPass));
        let later = later.into_iter().chain(of_it).filter(|back| back.to <= newest);
        let hi = later.map(|back| back.txg).max().map_or(newest, |txg| newest.max(txg));
        let lo = newest_before(listed, birth).max(newest_before(files, birth));
        let group = of_file.map_or(0, |_| owner.file.0);
        Some(Bucket { group, hi, lo: lo.unwrap_or_default() })
    }
}

/// The newest of these bookmarks that needs a block which died in that txg: a node in whose life it
/// lies.
pub fn bookmark_needing(bookmarks: &[Txg], died: Txg, block: &DeadBlock) -> Option<Txg> {
    let newest = newest_before(bookmarks, died).filter(|newest| block.birth <= *newest);
    newest.filter(|_| block.kind == DeadKind::Node)
}

/// The newest snapshot of a list before a txg.
pub fn newest_before(list: &[Txg], txg: Txg) -> Option<Txg> {
    let before = list.partition_point(|snapshot| *snapshot < txg);
    before.checked_sub(1).and_then(|at| list.get(at)).copied()
}

impl NodeStore for Gate<'_> {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        NodeStore::read(self.sync, pointer).await
    }
}

impl NodeSink for Gate<'_> {
    fn node_size(&self) -> NodeSize {
        NodeSink::node_size(self.sync)
    }

    fn txg(&self) -> Txg {
        NodeSink::txg(self.sync)
    }

    fn write_node(
        &self,
        kind: BlockKind,
        node: (u8, bool),
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, PoolError> {
        NodeSink::write_node(self.sync, kind, node, owner, page)
    }

    fn is_of_another(&self, pointer: &BlockPointer) -> bool {
        self.whole && self.shown.is_of_another(pointer.birth)
    }

    fn free_node(&self, owner: NodeOwner, pointer: &BlockPointer) {
        for place in pointer.copies() {
            let run = Run::new(place, pointer.sectors());
            let (kind, birth) = (DeadKind::Node, pointer.birth);
            let block = DeadBlock { kind, run, birth, saved_sectors: 0 };
            self.dies(owner, block, pointer.written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_says_which_snapshots_show_a_block() {
        let mut shown = Shown { listed: vec![Txg(10), Txg(20), Txg(30)], ..Shown::default() };
        let of = |shown: &Shown, birth| {
            let owner = Tail { file: ObjectId(7), cut: Txg(u64::MAX) };
            shown.bucket(owner, Txg(birth)).map(|bucket| (bucket.hi.0, bucket.lo.0))
        };
        let bucket = |birth| of(&shown, birth);
        assert_eq!(bucket(5), Some((30, 0)), "all of them");
        assert_eq!(bucket(10), Some((30, 0)), "a snapshot is the last of its txg");
        assert_eq!(bucket(11), Some((30, 10)));
        assert_eq!(bucket(30), Some((30, 20)), "the newest alone");
        assert_eq!(bucket(31), None);
        assert_eq!(of(&Shown::default(), 1), None);
        shown.returning = Some(Returning { txg: Txg(35), to: Txg(20) });
        assert_eq!(of(&shown, 11), Some((35, 10)), "not among what comes back");
        shown.listed.push(Txg(40));
        assert_eq!(of(&shown, 11), Some((40, 10)), "a snapshot came later");
        (shown.listed, shown.floor) = (vec![Txg(10)], Txg(5));
        assert_eq!(of(&shown, 6), Some((10, 0)), "the snapshot of the rollback is gone");
        let any = ObjectId(7);
        assert!(shown.covers(any, Txg(5)) && !shown.covers(any, Txg(11)));
        shown.files_returning.insert(ObjectId(7), Returning { txg: Txg(45), to: Txg(10) });
        assert_eq!(of(&shown, 6), Some((10, 0)), "no snapshot of the file lies in its life");
        shown.files = Arc::new(BTreeMap::from([(ObjectId(7), vec![Txg(12)])]));
        assert_eq!(of(&shown, 6), Some((45, 0)), "not among what comes back to the file");
    }

    #[test]
    fn snapshots_of_a_file_count_for_that_file() {
        let (one, other) = (ObjectId(7), ObjectId(8));
        let files = Arc::new(BTreeMap::from([(one, vec![Txg(15), Txg(25)])]));
        let listed = vec![Txg(10), Txg(20)];
        let shown = Shown { listed, files, ..Shown::default() };
        let of = |file, cut, birth| {
            let bucket = shown.bucket(Tail { file, cut: Txg(cut) }, Txg(birth));
            bucket.map(|bucket| (bucket.group, bucket.hi.0, bucket.lo.0))
        };
        let bucket = |file, birth| of(file, u64::MAX, birth);
        assert_eq!(bucket(one, 5), Some((7, 25, 0)), "all of both kinds");
        assert_eq!(bucket(one, 11), Some((7, 25, 10)));
        assert_eq!(bucket(one, 16), Some((7, 25, 15)), "the one before is the file's");
        assert_eq!(bucket(one, 21), Some((7, 25, 20)), "the one before is the dataset's");
        assert_eq!(bucket(one, 26), None);
        assert_eq!(bucket(other, 11), Some((0, 20, 10)), "another file's do not count");
        assert_eq!(bucket(other, 21), None);
        assert_eq!(of(one, 22, 5), Some((7, 20, 0)), "cut off before the newest one");
        assert_eq!(of(one, 22, 16), Some((0, 20, 10)), "none of the file's lies in its life");
        assert_eq!(of(one, 22, 21), None);
        assert!(shown.covers(one, Txg(25)) && !shown.covers(other, Txg(21)));
    }
}
