//! A walk over every block below the pool's roots, in the order of [`WalkPosition`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree::{self, Scan};
use aquifer_object::newest_before;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::dataset::{
    DatasetRecord, Item, ItemClass, ItemKey, RollbackRecord, SnapshotRecord,
};
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::extent::{EXTENT_PAGES_MAX, Extent};
use aquifer_ondisk::file_snapshot::{FileSnapshotId, FileSnapshotRecord};
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::tree_node::{
    Dead, Directory, Extents, Form, Namespace, Node, NodeBody, Objects, Replies,
};
use aquifer_ondisk::{BlockPointer, Corruption, DatasetId, FormatError, ObjectId, Txg};
use aquifer_pool::{Pool, PoolError, Roots, Span, Visitor};

/// A node that is still to come.
#[derive(Clone, Copy)]
struct Coming {
    pointer: BlockPointer,
    span: Span,
    /// Txg up to which births are passed over: a snapshot showed them before, or nobody asks.
    since: Txg,
    /// It is a bookmark's, which has no data.
    bare: bool,
}

/// Nodes and extents that a node leads to, in order.
#[derive(Default)]
struct Below {
    nodes: Vec<Coming>,
    extents: Vec<Extent>,
}

/// Shows each block from `start` on that was born after `since`. Depth first, so that of each node
/// on the way only the children that are still to come are in memory. Returns where the next piece
/// begins; `None` if nothing is left.
///
/// Passed over is only what ends at `start` or before. So the nodes on the way to `start` are shown
/// once more, and some pages before it: meanwhile a node's lower bound may have moved down, and
/// extents may have been joined.
pub(crate) async fn walk(
    pool: &Pool,
    roots: Roots,
    since: Txg,
    start: WalkPosition,
    to: &mut dyn Visitor,
) -> Result<Option<WalkPosition>, PoolError> {
    let from = WalkPosition { within: start.within.saturating_sub(EXTENT_PAGES_MAX), ..start };
    let namespace = roots.get(TreeSlot::Namespace as usize).copied().flatten();
    let waiting = VecDeque::new();
    let mut heads = Heads { pool, namespace, since, waiting, list: None, files: None };
    heads.resume(&start).await?;
    let mut coming: Vec<Coming> =
        roots.into_iter().zip(0u8..).filter_map(|tree| root(tree, since)).collect();
    coming.reverse();
    while let Some(Coming { pointer, span, since, bare }) = heads.next(&mut coming) {
        if pointer.birth <= since || span.to <= from {
            continue;
        }
        let read = match to.known_unreadable(&pointer) {
            Some(error) => Err(error),
            None => pool.read_node(&pointer, to.patience()).await,
        };
        let visited = match &read {
            _ if left_out(Rule::WalkShowsThePath) && span.from < start => ControlFlow::Continue(()),
            Ok(_) => to.node(&pointer, None, &span),
            Err(error) if error.cannot_be_read() => to.node(&pointer, Some(error), &span),
            Err(_) => ControlFlow::Continue(()),
        };
        // A piece passes `start` at least, whatever the visitor says.
        if visited.is_break() && span.from > start {
            return Ok(Some(span.from));
        }
        let below = match read {
            Ok(page) if is_leaf_of_datasets(&pointer, &span) => {
                heads.below(page.as_slice(), &pointer, &span).await
            }
            read => read.and_then(|page| below(page.as_slice(), &pointer, (&span, since))),
        };
        let mut below = match below {
            Ok(below) => below,
            Err(error) if error.cannot_be_read() => continue,
            Err(error) => return Err(error),
        };
        if bare {
            below.extents.clear();
            below.nodes.iter_mut().for_each(|node| node.bare = true);
        }
        for extent in &below.extents {
            let at = |page| WalkPosition { within: page, ..span.from };
            let end = at(extent.end());
            if extent.birth <= since || end <= from {
                continue;
            }
            if to.extent(extent, &at(extent.page)).is_break() && end > start {
                return Ok(Some(end));
            }
        }
        coming.extend(below.nodes.into_iter().rev());
    }
    Ok(None)
}

/// The root of a pool-wide tree.
fn root((root, tree): (Option<BlockPointer>, u8), since: Txg) -> Option<Coming> {
    let from = WalkPosition { tree, ..WalkPosition::default() };
    let to = WalkPosition { tree: tree + 1, ..from };
    Some(Coming { pointer: root?, span: Span { from, to }, since, bare: false })
}

/// Whether a node's entries are the items of datasets.
fn is_leaf_of_datasets(pointer: &BlockPointer, span: &Span) -> bool {
    let is_namespace = span.from.tree == TreeSlot::Namespace as u8;
    is_namespace && pointer.kind == BlockKind::Namespace && pointer.level == 0
}

fn below(sector: &[u8], pointer: &BlockPointer, above: (&Span, Txg)) -> Result<Below, PoolError> {
    let (span, since) = above;
    let at = span.from;
    match pointer.kind {
        BlockKind::Namespace => {
            let place = |key: ItemKey| WalkPosition { key: (key.dataset.0, key.item), ..at };
            children::<Namespace>(sector, pointer, above, place, |_| Ok(Below::default()))
        }
        BlockKind::Objects => {
            let place = |object| WalkPosition { object, within: 0, ..at };
            children::<Objects>(sector, pointer, above, place, |inodes| {
                let trees = inodes.into_iter().filter_map(|inode| {
                    // What it shares with its file may be gone; what a clone of a file began with,
                    // a snapshot of a file shows.
                    let since = since.max(inode.floor()).max(inode.clone_floor());
                    inode.root.map(|pointer| tree_at(pointer, place(inode.object.0), since))
                });
                Ok(Below { nodes: trees.collect(), ..Below::default() })
            })
        }
        BlockKind::Extents => {
            let place = |within| WalkPosition { within, ..at };
            children::<Extents>(sector, pointer, above, place, |extents| {
                Ok(Below { extents, ..Below::default() })
            })
        }
        BlockKind::Directory => {
            let place = |within| WalkPosition { within, ..at };
            children::<Directory>(sector, pointer, above, place, |_| Ok(Below::default()))
        }
        BlockKind::Replies => {
            let place = |order| WalkPosition { key: (order, 0), ..at };
            children::<Replies>(sector, pointer, above, place, |_| Ok(Below::default()))
        }
        BlockKind::Dead => {
            let place = |DeadKey { bucket, .. }: DeadKey| WalkPosition {
                object: WalkPosition::dead_group(bucket.group),
                within: bucket.hi.0,
                ..at
            };
            let below = children::<Dead>(sector, pointer, above, place, |_| Ok(Below::default()));
            below.map(|mut below| {
                // Several nodes may have one group and newest snapshot.
                let spans = below.nodes.iter_mut().map(|node| &mut node.span);
                spans.filter(|span| span.to <= span.from).for_each(|span| {
                    span.to = WalkPosition { within: span.from.within + 1, ..span.from };
                });
                below
            })
        }
        BlockKind::Refcounts | BlockKind::Segments => {
            Err(Corruption::UnknownTree(pointer.kind as u8).into())
        }
    }
}

/// A tree that an entry at `from` leads to: everything in it comes before the next entry.
fn tree_at(pointer: BlockPointer, from: WalkPosition, since: Txg) -> Coming {
    // Ids of objects are below this.
    let last = WalkPosition { object: u64::MAX, within: u64::MAX, ..from };
    let (from, to) = match pointer.kind {
        BlockKind::Objects => (from, last),
        BlockKind::Dead => (WalkPosition { object: WalkPosition::dead_group(0), ..from }, last),
        _ => (from, WalkPosition { within: u64::MAX, ..from }),
    };
    Coming { pointer, span: Span { from, to }, since, bare: false }
}

/// The trees of datasets, in the order of the walk: those of snapshots, then the head, then those
/// of snapshots of files, then those of bookmarks. What such a one shares with the head, it shows
/// once more.
///
/// In each of them is passed over what the snapshot before it has shown.
struct Heads<'a> {
    pool: &'a Pool,
    namespace: Option<BlockPointer>,
    since: Txg,
    /// The head of the last dataset met, whose snapshots come first, and snapshots that were taken
    /// while the walk was in that head.
    waiting: VecDeque<Coming>,
    /// The snapshots that a dataset has in this root, each with its object table; and its floor:
    /// what was born up to there, its origin shows.
    list: Option<(DatasetId, Vec<Listed>, Txg)>,
    /// The snapshots of the files of a dataset.
    files: Option<(DatasetId, BTreeMap<ObjectId, Vec<Txg>>)>,
}

type Listed = (Txg, Option<BlockPointer>);

impl Heads<'_> {
    /// A piece begins at `start`, perhaps behind the record of its dataset.
    async fn resume(&mut self, start: &WalkPosition) -> Result<(), PoolError> {
        let dataset = DatasetId(start.key.0);
        if start.tree != TreeSlot::Namespace as u8 || dataset.0 == 0 {
            return Ok(());
        }
        let (head, later) = (WalkPosition::head_of(start.key), WalkPosition::later_of(start.key));
        let has_passed_head = start.key > WalkPosition::head(dataset, Txg(0)) && head.is_none();
        if !has_passed_head {
            let objects = self.record_of(dataset).await?.and_then(|record| record.objects);
            let head = self.head(dataset, objects, head).await?;
            self.waiting.extend(head);
        }
        let Some(came) = head.map(Txg::next).or(later) else { return Ok(()) };
        let (list, floor) = self.listed(dataset).await?;
        let list = list.to_vec();
        let mut later = list.clone();
        later.retain(|(snapshot, _)| *snapshot >= came);
        let back = self.came_back(dataset, came).await?;
        let at = later.partition_point(|(snapshot, _)| back.is_some_and(|back| *snapshot < back.0));
        back.into_iter().for_each(|back| later.insert(at, back));
        for (came, objects) in later {
            let from = at_key(WalkPosition::later(dataset, came));
            let since = self.since.max(floor).max(before(&list, came));
            self.waiting.extend(objects.map(|objects| tree_at(objects, from, since)));
        }
        Ok(())
    }

    /// The txg of the newest rollback and the head, if that became a snapshot again that comes
    /// later in the walk. The head may have come back to what the walk has not met and passes no
    /// more: the snapshot may go. So it comes once more, as if it were a snapshot of then. What
    /// older rollbacks brought back, this one has dropped, or its snapshot shows.
    async fn came_back(&self, dataset: DatasetId, came: Txg) -> Result<Option<Listed>, PoolError> {
        let rollback = self.item(ItemKey::new(dataset, ItemClass::Rollback, 0)).await?;
        let rollback = rollback.map(|item| RollbackRecord::decode(&item.value)).transpose()?;
        let is_to_come = |of: &RollbackRecord| of.to >= came || of.txg == came;
        let Some(rollback) = rollback.filter(is_to_come) else { return Ok(None) };
        if left_out(Rule::RolledBackHeadIsWalked) {
            return Ok(None);
        }
        let record = self.record_of(dataset).await?;
        Ok(record.map(|record| (rollback.txg, record.objects)))
    }

    /// The record of a head.
    async fn record_of(&self, dataset: DatasetId) -> Result<Option<DatasetRecord>, PoolError> {
        self.record(ItemKey::new(dataset, ItemClass::Record, 0)).await
    }

    /// Returns the txg up to which births are shown by an origin.
    async fn floor_of(&self, dataset: DatasetId) -> Result<Txg, PoolError> {
        for class in [ItemClass::Record, ItemClass::HiddenLine] {
            if let Some(record) = self.record(ItemKey::new(dataset, class, 0)).await? {
                return Ok(record.floor);
            }
        }
        Ok(Txg(0))
    }

    async fn record(&self, key: ItemKey) -> Result<Option<DatasetRecord>, PoolError> {
        let item = self.item(key).await?;
        Ok(item.map(|item| DatasetRecord::decode(&item.value)).transpose()?)
    }

    /// An item of the namespace, none if it cannot be read.
    async fn item(&self, key: ItemKey) -> Result<Option<Item>, PoolError> {
        match btree::lookup::<Namespace, Pool>(self.pool, self.namespace, key).await {
            Err(error) if error.cannot_be_read() => Ok(None),
            item => item,
        }
    }

    /// A head, behind a snapshot that was passed: by default the newest.
    async fn head(
        &mut self,
        dataset: DatasetId,
        objects: Option<BlockPointer>,
        after: Option<Txg>,
    ) -> Result<Option<Coming>, PoolError> {
        let (list, floor) = self.listed(dataset).await?;
        let newest = list.last().map(|(newest, _)| *newest);
        let after = after.or(newest).unwrap_or_default();
        let from = at_key(WalkPosition::head(dataset, after));
        let since = self.since.max(after).max(floor);
        Ok(objects.map(|pointer| tree_at(pointer, from, since)))
    }

    /// The next node: a head comes before whatever follows its dataset.
    fn next(&mut self, coming: &mut Vec<Coming>) -> Option<Coming> {
        let position = coming.last().map(|next| next.span.from);
        match self.waiting.pop_front_if(|of| position.is_none_or(|next| next > of.span.from)) {
            Some(head) => Some(head),
            None => coming.pop(),
        }
    }

    /// Finds the nodes and extents that the items of a leaf lead to.
    async fn below(
        &mut self,
        sector: &[u8],
        pointer: &BlockPointer,
        span: &Span,
    ) -> Result<Below, PoolError> {
        let NodeBody::Leaf(items) = Node::<Namespace>::decode(sector, pointer)?.body else {
            return Err(Corruption::UnknownTree(pointer.kind as u8).into());
        };
        let mut nodes = Vec::new();
        for item in items {
            let (class, number) = item.key.class_and_number();
            let dataset = item.key.dataset;
            let from = WalkPosition { key: (dataset.0, item.key.item), ..span.from };
            while let Some(head) = self.waiting.pop_front_if(|head| head.span.from < from) {
                nodes.push(head);
            }
            match ItemClass::from_u8(class).filter(|_| dataset.0 != 0) {
                // It has no snapshots any more.
                Some(ItemClass::Destroyed) => {
                    let record = DatasetRecord::decode(&item.value)?;
                    // What it does not own, another shows. Its dead tree is its own.
                    let since = self.since.max(record.floor);
                    let objects = record.objects.map(|tree| tree_at(tree, from, since));
                    let dead = record.dead.map(|tree| tree_at(tree, from, self.since));
                    nodes.extend(objects.into_iter().chain(dead));
                }
                Some(ItemClass::Record) => {
                    let record = DatasetRecord::decode(&item.value)?;
                    nodes.extend(record.dead.map(|dead| tree_at(dead, from, self.since)));
                    // A piece that begins in this head knows already what it passes over.
                    let is_same = |head: &Coming| head.span.from.key.0 == dataset.0;
                    if !self.waiting.front().is_some_and(is_same) {
                        let head = self.head(dataset, record.objects, None).await?;
                        self.waiting.extend(head);
                    }
                }
                // Its head is its newest snapshot, which came before.
                Some(ItemClass::HiddenLine) => {
                    let record = DatasetRecord::decode(&item.value)?;
                    nodes.extend(record.dead.map(|dead| tree_at(dead, from, self.since)));
                }
                Some(ItemClass::Snapshot) => {
                    let record = SnapshotRecord::decode(&item.value)?;
                    let (list, floor) = self.listed(dataset).await?;
                    let before = before(list, Txg(number));
                    let since = self.since.max(floor).max(before);
                    nodes.extend(record.objects.map(|objects| tree_at(objects, from, since)));
                }
                // What its snapshot shows, or one before it, came before. Bookmarks among each
                // other pass nothing over: a file may have been rolled back between them.
                Some(ItemClass::Bookmark) => {
                    let BookmarkRecord::Stands(record) = BookmarkRecord::decode(&item.value)?
                    else {
                        continue;
                    };
                    let (list, floor) = self.listed(dataset).await?;
                    let before = before(list, Txg(number).next());
                    let since = self.since.max(floor).max(before);
                    let tree = record.objects.map(|objects| tree_at(objects, from, since));
                    nodes.extend(tree.map(|tree| Coming { bare: true, ..tree }));
                }
                Some(ItemClass::FileSnapshot) => {
                    let inode = FileSnapshotRecord::decode(&item.value)?.inode;
                    let txg = FileSnapshotId(number).txg();
                    let before = self.before_of_file(dataset, inode.object, txg).await?;
                    let floor = self.listed(dataset).await?.1;
                    let since = self.since.max(floor).max(before).max(inode.clone_floor());
                    let from = WalkPosition { object: inode.object.0, ..from };
                    nodes.extend(inode.root.map(|root| tree_at(root, from, since)));
                }
                _ => {}
            }
        }
        Ok(Below { nodes, ..Below::default() })
    }

    /// The newest snapshot before one of a file, of both kinds, 0 for none. It has shown what both
    /// show: it is met before, or was taken when the walk had met that in the head.
    async fn before_of_file(
        &mut self,
        dataset: DatasetId,
        object: ObjectId,
        txg: Txg,
    ) -> Result<Txg, PoolError> {
        let before = before(self.listed(dataset).await?.0, txg);
        if self.files.as_ref().is_none_or(|(known, _)| *known != dataset) {
            self.files = Some((dataset, self.files_of(dataset).await?));
        }
        let files = self.files.as_ref().and_then(|(_, files)| files.get(&object));
        let of_file = files.and_then(|files| newest_before(files, txg));
        Ok(before.max(of_file.unwrap_or_default()))
    }

    /// The snapshots that each file of a dataset has in this root.
    async fn files_of(
        &self,
        dataset: DatasetId,
    ) -> Result<BTreeMap<ObjectId, Vec<Txg>>, PoolError> {
        let first = ItemKey::new(dataset, ItemClass::FileSnapshot, 0);
        let end = Some(ItemKey::new(dataset, ItemClass::FileSweep, 0));
        let mut files: BTreeMap<ObjectId, Vec<Txg>> = BTreeMap::new();
        let mut scan = Scan::<Namespace, Pool>::new(self.pool, self.namespace, first, end)?;
        loop {
            match scan.next().await {
                Ok(Some(item)) => {
                    let object = FileSnapshotRecord::decode(&item.value)?.inode.object;
                    let id = FileSnapshotId(item.key.class_and_number().1);
                    files.entry(object).or_default().push(id.txg());
                }
                Ok(None) => return Ok(files),
                // Then less is passed over.
                Err(error) if error.cannot_be_read() => return Ok(BTreeMap::new()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The snapshots of a dataset in order, and its floor.
    async fn listed(&mut self, dataset: DatasetId) -> Result<(&[Listed], Txg), PoolError> {
        if self.list.as_ref().is_none_or(|(known, ..)| *known != dataset) {
            let floor = self.floor_of(dataset).await?;
            let first = ItemKey::new(dataset, ItemClass::Snapshot, 0);
            let end = Some(ItemKey::new(dataset, ItemClass::Line, 0));
            let mut list = Vec::new();
            let mut scan = Scan::<Namespace, Pool>::new(self.pool, self.namespace, first, end)?;
            loop {
                match scan.next().await {
                    Ok(Some(item)) => {
                        let objects = SnapshotRecord::decode(&item.value)?.objects;
                        list.push((Txg(item.key.class_and_number().1), objects));
                    }
                    Ok(None) => break,
                    // Then less is passed over: what cannot be read shows nothing.
                    Err(error) if error.cannot_be_read() => {
                        list.clear();
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.list = Some((dataset, list, floor));
        }
        Ok(self.list.as_ref().map_or((&[], Txg(0)), |(_, list, floor)| (list.as_slice(), *floor)))
    }
}

/// The snapshot before another one, 0 for none.
fn before(list: &[Listed], snapshot: Txg) -> Txg {
    let at = list.partition_point(|(other, _)| *other < snapshot);
    at.checked_sub(1).and_then(|at| list.get(at)).map_or(Txg(0), |(before, _)| *before)
}

fn at_key(key: (u64, u64)) -> WalkPosition {
    WalkPosition { tree: TreeSlot::Namespace as u8, key, ..WalkPosition::default() }
}

/// The children of an inner node, or what the entries of a leaf lead to.
fn children<F: Form>(
    sector: &[u8],
    pointer: &BlockPointer,
    (span, since): (&Span, Txg),
    place: impl Fn(F::Key) -> WalkPosition,
    of_leaf: impl FnOnce(Vec<F::Entry>) -> Result<Below, FormatError>,
) -> Result<Below, PoolError> {
    let children = match Node::<F>::decode(sector, pointer)?.body {
        NodeBody::Leaf(entries) => return Ok(of_leaf(entries)?),
        NodeBody::Inner(children) => children,
    };
    let ends = children.iter().skip(1).map(|(key, _)| place(*key)).chain([span.to]);
    let starts =
        std::iter::once(span.from).chain(children.iter().skip(1).map(|(key, _)| place(*key)));
    let nodes = children.iter().zip(starts.zip(ends));
    let nodes = nodes.map(|((_, pointer), (from, to))| Coming {
        pointer: *pointer,
        span: Span { from, to },
        since,
        bare: false,
    });
    Ok(Below { nodes: nodes.collect(), ..Below::default() })
}
