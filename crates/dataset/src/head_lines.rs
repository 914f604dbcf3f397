//! Lines of a dataset's head: rollbacks past later snapshots, which stay.
//!
//! The head becomes a snapshot's object table again, as a clone's does: what was born up to the
//! snapshot belongs to the line that was left, and the snapshot is kept for it. What is born later
//! is the head's. So snapshots of both lines are in one list by their txgs, and the lives of blocks
//! that a line owns never reach from one line into another: the dead tree, sweeps and sums need
//! know nothing of lines.
//!
//! The old head becomes a destroyed dataset of an id of its own, as with any rollback. But later
//! snapshots show it. So what it gives up dies in the dataset whose head it was, in the txg of the
//! rollback, and is filed there ([`crate::destroy`]).
//!
//! Invariants:
//! - The snapshot with which a line began stays as long as the head is on it, or a snapshot that
//!   was taken on it stays. Destroyed meanwhile, it is hidden ([`crate::lines`]).
//! - A rollback in line is one to a snapshot of the line that the head is on.
//! - No other dataset lists snapshots of a dataset with such lines: it is not promoted over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::head_line::HeadLineRecord;
use aquifer_ondisk::types::DatasetId;
use aquifer_ondisk::{ObjectId, Txg};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::dead::These;
use crate::file_snapshots::FileSnapshot;
use crate::snapshots::Snapshots;

/// The lines of a dataset's head, by the txg in which each began. The first one, with which the
/// dataset itself began, is none of them.
#[derive(Debug, Default)]
pub(crate) struct HeadLines(BTreeMap<Txg, HeadLineRecord>);

impl HeadLines {
    /// Import: one of them.
    pub fn load(&mut self, began: Txg, record: HeadLineRecord) {
        self.0.insert(began, record);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that the head is on, with the txg in which it began.
    fn current(&self) -> Option<(Txg, HeadLineRecord)> {
        let last = self.0.last_key_value().map(|(began, record)| (*began, *record));
        last.filter(|(_, record)| record.left.is_none())
    }

    /// Returns the txg up to which births are not the head's; 0 on the first line.
    pub fn floor(&self) -> Txg {
        let floor = self.current().map_or(Txg(0), |(_, record)| record.to);
        if left_out(Rule::HeadLinesHaveAFloor) { Txg(0) } else { floor }
    }

    /// Whether a snapshot was taken on the line that the head is on.
    pub fn is_current(&self, snapshot: Txg) -> bool {
        self.current().is_none_or(|(began, _)| began <= snapshot)
    }

    /// Whether the head left one of them.
    fn are_left(&self) -> bool {
        self.0.values().any(|record| record.left.is_some())
    }

    /// Whether the head is on its first line.
    pub fn is_first(&self) -> bool {
        self.current().is_none()
    }

    /// The head begins a line. Returns the items that change.
    fn begin(&mut self, dataset: DatasetId, txg: Txg, to: Txg) -> Vec<(ItemKey, Option<Item>)> {
        let mut items = Vec::new();
        if let Some((began, record)) = self.current() {
            items.push(self.put(dataset, began, HeadLineRecord { left: Some(txg), ..record }));
        }
        items.push(self.put(dataset, txg, HeadLineRecord { to, left: None }));
        items
    }

    fn put(
        &mut self,
        dataset: DatasetId,
        began: Txg,
        record: HeadLineRecord,
    ) -> (ItemKey, Option<Item>) {
        self.0.insert(began, record);
        let key = key(dataset, began);
        (key, Some(Item { key, value: record.encode() }))
    }

    /// Whether a line needs the snapshot with which it began, if these snapshots are left.
    fn need(&self, snapshot: Txg, left: &BTreeSet<Txg>) -> bool {
        let mut of_it = self.0.iter().filter(|(_, record)| record.to == snapshot);
        let is_needed = of_it.any(|(began, record)| is_on(*began, record, left));
        is_needed && !left_out(Rule::HeadLinesPin)
    }

    /// Takes out the lines that nothing is on any more: neither the head nor a snapshot.
    fn take_over(&mut self, left: &BTreeSet<Txg>) -> Vec<Txg> {
        let over = self.0.iter().filter(|(began, record)| !is_on(**began, record, left));
        let over: Vec<Txg> = over.map(|(began, _)| *began).collect();
        self.0.retain(|began, _| !over.contains(began));
        over
    }

    /// The keys of their items.
    pub fn keys(&self, dataset: DatasetId) -> impl Iterator<Item = ItemKey> {
        self.0.keys().map(move |began| key(dataset, *began))
    }
}

/// Whether the head, or one of these snapshots, is on a line.
fn is_on(began: Txg, record: &HeadLineRecord, left: &BTreeSet<Txg>) -> bool {
    let end = record.left.unwrap_or(Txg(u64::MAX));
    record.left.is_none() || left.range(began..end).next().is_some()
}

fn key(dataset: DatasetId, began: Txg) -> ItemKey {
    ItemKey::new(dataset, ItemClass::HeadLine, began.0)
}

impl Dataset {
    /// Returns the txg up to which births are not its head's.
    pub(crate) fn head_floor(&self) -> Txg {
        let floor = self.record.lock().floor;
        floor.max(self.snapshots.lock().head_lines.floor())
    }

    /// Its head begins a line as a snapshot. Returns the items that change.
    pub(crate) fn begin_line(&self, txg: Txg, to: Txg) -> Vec<(ItemKey, Option<Item>)> {
        let mut snapshots = self.snapshots.lock();
        let mut items = snapshots.head_lines.begin(self.id, txg, to);
        // What files of the head are clones of, the snapshot knows.
        for (object, line) in snapshots.files.end_lines(txg) {
            items.push(line.item(self.id, object, true));
        }
        items
    }
}

impl Snapshots {
    /// The txgs of snapshots of both kinds and of bookmarks: what is on a line needs what that
    /// began with.
    fn on_lines(&self) -> BTreeSet<Txg> {
        let others = self.others_on_lines(&BTreeMap::new());
        self.listed().into_iter().chain(others).collect()
    }

    /// Those of bookmarks, and of snapshots of files but for these.
    fn others_on_lines(&self, files: &BTreeMap<ObjectId, BTreeSet<Txg>>) -> BTreeSet<Txg> {
        let stays = |of: &Arc<FileSnapshot>| {
            files.get(&of.object()).is_none_or(|going| !going.contains(&of.txg()))
        };
        let of_files = self.files.after(Txg(0)).into_iter().filter(stays).map(|of| of.txg());
        self.bookmarks.listed().into_iter().chain(of_files).collect()
    }

    /// Whether a line that the head began needs a snapshot.
    pub fn needed_by_a_line(&self, snapshot: Txg) -> bool {
        !self.head_lines.is_empty() && self.head_lines.need(snapshot, &self.on_lines())
    }

    /// Those that are hidden, and that lines of the head need.
    pub fn hidden_for_lines(&self) -> Vec<Txg> {
        if self.head_lines.is_empty() { Vec::new() } else { self.hidden().collect() }
    }

    /// Snapshots that are to be destroyed, as their blocks go: without those that lines need then,
    /// and with hidden ones that none needs.
    pub fn going_with(&self, these: &These) -> These {
        let mut going = These::default();
        loop {
            // A snapshot of a file may be the last one on a line of the head, and one of the
            // dataset the last one on a line of a file.
            let snapshots = self.without_lines(&these.snapshots, &going.files);
            let asked = These { snapshots, files: these.files.clone() };
            let next = self.files.with_pinned(|| self.listed_and_bookmarked(), &asked);
            if self.head_lines.is_empty() || next == going {
                return next;
            }
            going = next;
        }
    }

    /// Those of the dataset that go, if these snapshots of files do.
    fn without_lines(
        &self,
        these: &BTreeSet<Txg>,
        files: &BTreeMap<ObjectId, BTreeSet<Txg>>,
    ) -> BTreeSet<Txg> {
        if self.head_lines.is_empty() {
            return these.clone();
        }
        let mut waiting: BTreeSet<Txg> = these.iter().copied().chain(self.hidden()).collect();
        let mut going = BTreeSet::new();
        if waiting.is_empty() {
            return going;
        }
        let others = self.others_on_lines(files);
        let mut left: BTreeSet<Txg> = self.listed().into_iter().chain(others.clone()).collect();
        loop {
            let is_needed = |txg: &Txg| self.head_lines.need(*txg, &left);
            let (needed, goes): (BTreeSet<Txg>, BTreeSet<Txg>) =
                waiting.into_iter().partition(is_needed);
            if goes.is_empty() {
                return going;
            }
            // A snapshot of a file may be of the same txg as one of the dataset.
            left.retain(|txg| !goes.contains(txg) || others.contains(txg));
            going.extend(goes);
            waiting = needed;
        }
    }
}

impl Datasets {
    /// Drops the records of lines that nothing is on, and the snapshots that were hidden for them.
    /// Called by a sync, behind its acts.
    pub(crate) fn settle_head_lines(
        &self,
        txg: Txg,
        dataset: &Dataset,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let (over, goes) = {
            let mut snapshots = dataset.snapshots.lock();
            if snapshots.head_lines.is_empty() || dataset.is_destroyed() {
                return Vec::new();
            }
            let nothing_hidden = snapshots.hidden().next().is_none();
            if nothing_hidden && !snapshots.head_lines.are_left() {
                return Vec::new();
            }
            let going = snapshots.without_lines(&BTreeSet::new(), &BTreeMap::new());
            let on_lines = snapshots.on_lines();
            (snapshots.head_lines.take_over(&on_lines), going)
        };
        let mut items: Vec<_> = over.iter().map(|began| (key(dataset.id, *began), None)).collect();
        for snapshot in goes {
            items.extend(self.unlist(txg, (dataset.id, snapshot), false));
        }
        items
    }
}
