//! Tests of the tree: entries of every form made from numbers, and a model to compare it with.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod compare;
mod damage;
mod layout;
mod measure;
mod model;
mod take_apart;

use std::collections::BTreeMap;

use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::dead::{
    Bucket, DEAD_BLOCKS_MAX, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadKind,
};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Form, Namespace, Objects};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, DatasetId, ObjectId, Place, Txg};

use super::{NodeSink, Packed, collect_range, merge};
use crate::mem_store::{MemStore, OWNER, Rng, Shape, check_tree};

/// A form whose entries can be made from numbers.
pub(super) trait Sample: Packed {
    fn key_of(number: u64) -> Self::Key;
    /// An entry at `key_of(number)`, whose content `salt` decides.
    fn entry(number: u64, salt: u64) -> Self::Entry;
}

impl Sample for Objects {
    fn key_of(number: u64) -> u64 {
        number
    }
    fn entry(number: u64, salt: u64) -> Inode {
        let time = Time::from_ns(salt);
        Inode {
            damaged: false,
            cloned: false,
            object: ObjectId(number),
            generation: salt,
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: salt,
            refer_bytes: 0,
            saved_bytes: 0,
            entries: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            change: salt,
            parent: ObjectId(0),
            line: 0,
            origin: ObjectId(0),
            verifier: 0,
            hash_seed: 0,
            root: None,
        }
    }
}

impl Sample for Dead {
    fn key_of(number: u64) -> DeadKey {
        let bucket = Bucket { group: 0, hi: Txg(1 << 30), lo: Txg(number / 50) };
        let (object, txg) = (ObjectId(number / 10 % 5), Txg((1 << 30) + number % 10));
        DeadKey { bucket, object, txg, index: 0 }
    }
    fn entry(number: u64, salt: u64) -> DeadEntry {
        // Mostly short lists, some of the longest.
        let blocks = if salt.is_multiple_of(5) { DEAD_BLOCKS_MAX } else { 1 + salt as usize % 9 };
        let run = Run::new(Place::new(0, salt), 1);
        let block =
            DeadBlock { kind: DeadKind::Extent, run, birth: Txg(1 << 29), saved_sectors: 0 };
        DeadEntry { key: Self::key_of(number), body: DeadBody::Blocks(vec![block; blocks]) }
    }
}

impl Sample for Directory {
    fn key_of(number: u64) -> u64 {
        number
    }
    fn entry(number: u64, salt: u64) -> Dirent {
        // Mostly short names, some of the longest.
        let bytes = if salt.is_multiple_of(5) { 255 } else { 1 + salt % 40 };
        Dirent {
            key: number,
            object: ObjectId(salt),
            generation: 1,
            kind: FileKind::Regular,
            name: vec![b'a' + (salt % 26) as u8; bytes as usize],
        }
    }
}

impl Sample for Namespace {
    fn key_of(number: u64) -> ItemKey {
        ItemKey { dataset: DatasetId(number / 16), item: number % 16 }
    }
    fn entry(number: u64, salt: u64) -> Item {
        let bytes = if salt.is_multiple_of(3) { 1200 } else { salt % 300 };
        Item { key: Self::key_of(number), value: vec![salt as u8; bytes as usize] }
    }
}

impl Sample for Extents {
    fn key_of(number: u64) -> u64 {
        number
    }
    fn entry(number: u64, salt: u64) -> Extent {
        Extent {
            page: number,
            pages: 1,
            birth: Txg(salt % 7 + 1),
            written: Txg(if salt.is_multiple_of(11) { 1000 } else { salt % 7 + 1 }),
            place: Place::new(0, salt + 1),
            counted: salt.is_multiple_of(13),
            stored: Stored::Plain([salt].into_iter().collect()),
        }
    }
}

/// Height of a tree.
pub(super) fn levels(root: Option<BlockPointer>) -> u64 {
    root.map_or(0, |root| u64::from(root.level) + 1)
}

pub(super) type Ops<F> = Vec<(<F as Form>::Key, Option<<F as Form>::Entry>)>;

/// A tree, and the content that it should have.
pub(super) struct Twin<F: Sample> {
    pub(super) store: MemStore,
    pub(super) root: Option<BlockPointer>,
    pub(super) model: BTreeMap<F::Key, F::Entry>,
    /// Reads and writes of the last merge.
    pub(super) counts: (u64, u64),
}

impl<F: Sample> Twin<F> {
    pub(super) fn new(store: MemStore) -> Self {
        Twin { store, root: None, model: BTreeMap::new(), counts: (0, 0) }
    }

    /// Ops at these numbers: puts, and deletes by chance.
    pub(super) fn ops(
        &self,
        numbers: impl IntoIterator<Item = u64>,
        rng: &mut Rng,
        delete_percent: u64,
    ) -> Ops<F> {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let op = |number| {
            let entry = (!rng.chance(delete_percent)).then(|| F::entry(number, rng.below(1 << 30)));
            (F::key_of(number), entry)
        };
        numbers.into_iter().map(op).collect()
    }

    /// Applies ops to both sides and compares them.
    pub(super) fn apply(&mut self, ops: Ops<F>) -> Shape<F> {
        self.apply_unchecked(ops);
        self.check()
    }

    pub(super) fn apply_unchecked(&mut self, ops: Ops<F>) {
        self.store.next_txg();
        let mut same = true;
        for (key, entry) in &ops {
            let before = match entry {
                Some(entry) => self.model.insert(*key, entry.clone()),
                None => self.model.remove(key),
            };
            same &= before == *entry;
        }
        self.store.take_counts();
        let root = self.store.run(merge::<F, _>(&self.store, self.root, OWNER, ops)).unwrap();
        assert_eq!(root == self.root, same, "the root changes with the content");
        let (reads, writes, _) = self.store.take_counts();
        self.counts = (reads, writes);
        let born = self.store.live_of(self.store.txg()).len() as u64;
        // Only nodes that give way to their one child were written for nothing.
        let shrunk = levels(self.root).saturating_sub(levels(root));
        assert!(writes - born <= shrunk, "{writes} writes for {born} nodes, {shrunk} levels less");
        self.root = root;
    }

    pub(super) fn check(&self) -> Shape<F> {
        let shape = check_tree::<F>(&self.store, self.root);
        assert!(
            shape.entries.iter().eq(self.model.values()),
            "the tree holds what the model holds"
        );
        assert_eq!(shape.nodes, self.store.live(), "a leaked or lost node");
        shape
    }

    /// Reads a range both ways.
    pub(super) fn check_range(&self, from: F::Key, to: Option<F::Key>, limit: usize) {
        let read = collect_range::<F, _>(&self.store, self.root, from, to, limit);
        let read = self.store.run(read).unwrap();
        let range = self.model.range(from..).map(|(_, entry)| entry);
        let expected: Vec<F::Entry> = range
            .take_while(|entry| to.is_none_or(|to| F::key(entry) < to))
            .take(limit)
            .cloned()
            .collect();
        assert_eq!(read, expected);
    }
}
