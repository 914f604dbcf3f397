//! Writing out one object's version: pages become extents, entries go into their tree.
//!
//! # Damage
//! A node without a good copy must not stop the pool. A merge is whole or did not happen. So the
//! sync merges the changes that the damaged node does not cover, without that node. The txg's other
//! changes to the object are lost, acknowledged or not. There is no tree to put them into, and
//! keeping them in the log would stop the log. The loss is reported page by page ([`Damage`]). The
//! object is marked damaged, on disk too: it takes no writes, and a file shows no content. The
//! reason is that the node may come back (a cable, a disk that was away). Pages whose newest
//! content was lost would then show older content, to a client that knows better. A person may
//! clear the mark and accept the object as it is; a removal always works.
//!
//! The alternative, a new node in place of the damaged one, would turn unreadable data into zeros
//! that read well. A file is not marked if only reads met the damage: those reads fail, others do
//! not.

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::extent::{
    COMPRESSED_PAGES_MAX, Compression, EXTENT_PAGES_MAX, Extent, PAGE_LIMIT, Stored,
};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Extents, NodeOwner};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{BlockPointer, Place, Space};
use aquifer_pool::{PoolError, SyncContext, transform};

use crate::btree;
use crate::extent_tree::{self, Merged, Replace, Replaced};
use crate::gate::Gate;
use crate::object::{Object, TreeRoot};
use crate::overlay::{DirtyPage, Version};
use crate::salvage::{Damage, free_early, free_new, part_entries, part_ops};

/// The result of an object's sync, for its dataset.
#[derive(Debug)]
pub struct SyncedObject {
    /// The inode as of the txg, root and refer filled in.
    pub inode: Inode,
    /// A tail cut off a huge file: to be freed in the background.
    pub tail: Option<BlockPointer>,
    /// The changes that could not be written out.
    pub damage: Option<Damage>,
}

/// Writes the version of `sync.txg()`; `None` if the object did not change in it.
pub async fn sync_object(
    gate: &Gate<'_>,
    object: &Object,
    compression: Option<Compression>,
) -> Result<Option<SyncedObject>, PoolError> {
    let sync = gate.sync();
    let (version, tree) = {
        let state = object.state.lock();
        let Some(version) = state.overlay.get(sync.txg()) else {
            return Ok(None);
        };
        (version.clone(), state.synced)
    };
    gate.note_clone(object.id, version.inode.clone_floor());
    let (mut tail, mut damage) = (None, None);
    let orphan = version.inode.nlink == 0 && version.inode.kind != FileKind::Directory;
    let tree = if orphan {
        // It is about to be freed: its pages are not written out any more.
        free_early(sync, &version);
        tree
    } else if version.inode.kind == FileKind::Directory {
        sync_entries(gate, object.owner(), &version, tree, &mut damage).await?
    } else {
        match sync_cut(gate, object.owner(), &version, tree).await {
            Ok((tree, cut_off)) => {
                tail = cut_off;
                let owner = object.owner();
                sync_pages(gate, owner, &version, tree, compression, &mut damage).await?
            }
            // Without the cut, pages merged over the part to cut off would stand beside old ones.
            Err(error) if error.is_damage() => {
                free_early(sync, &version);
                damage = Some(Damage::all(error, &version));
                tree
            }
            Err(error) => return Err(error),
        }
    };
    let mut state = object.state.lock();
    state.synced = tree;
    state.damaged |= damage.is_some();
    let mut inode = version.inode.clone();
    inode.damaged = state.damaged;
    drop(state);
    tree.put_into(&mut inode);
    Ok(Some(SyncedObject { inode, tail, damage }))
}

async fn sync_entries(
    gate: &Gate<'_>,
    owner: NodeOwner,
    version: &Version,
    tree: TreeRoot,
    damage: &mut Option<Damage>,
) -> Result<TreeRoot, PoolError> {
    let ops = || version.entries.iter().map(|(key, entry)| (*key, entry.clone())).collect();
    let merge = |ops| btree::merge::<Directory, Gate<'_>>(gate, tree.root, owner, ops);
    let error = match merge(ops()).await {
        Err(error) if error.is_damage() => error,
        merged => return Ok(TreeRoot { root: merged?, ..tree }),
    };
    let found = damage.insert(Damage::none(error));
    let kept = part_entries(gate.sync(), tree.root, ops(), found).await?;
    match merge(kept).await {
        Err(error) if error.is_damage() => {
            *damage = Some(Damage::all(error, version));
            Ok(tree)
        }
        merged => Ok(TreeRoot { root: merged?, ..tree }),
    }
}

async fn sync_cut(
    gate: &Gate<'_>,
    owner: NodeOwner,
    version: &Version,
    tree: TreeRoot,
) -> Result<(TreeRoot, Option<BlockPointer>), PoolError> {
    let Some(cut) = version.cut else {
        return Ok((tree, None));
    };
    // The tail's bytes are known only when it is freed. Until then they stay in the file's sums.
    match cut_short(gate, owner, cut, tree).await {
        Ok(Some(tree)) => return Ok((tree, None)),
        Err(error) if !error.is_damage() => return Err(error),
        // A damaged node beyond the cut is cut off with the rest.
        Ok(None) | Err(_) => {}
    }
    match extent_tree::split_off(gate, tree.root, owner, cut).await {
        Ok(halves) => Ok((TreeRoot { root: halves.left, ..tree }, halves.right)),
        // Emptying a file needs no node of it.
        Err(error) if cut == 0 && error.is_damage() => {
            Ok((TreeRoot { root: None, ..tree }, tree.root))
        }
        Err(error) => Err(error),
    }
}

/// Frees extents beyond a cut if they are few, and if half of the room in this txg's record is
/// left. (Clients decide how many files are cut short in a txg, at little cost to them.) `None` if
/// they are many, or the record is half full.
async fn cut_short(
    gate: &Gate<'_>,
    owner: NodeOwner,
    cut: u64,
    tree: TreeRoot,
) -> Result<Option<TreeRoot>, PoolError> {
    let sync = gate.sync();
    let limits = sync.pool().limits();
    let mut extents_max = limits.scale.cut_extents_max;
    if !left_out(Rule::CutsFitTheRecord) {
        let left = sync.frees_left().saturating_sub(sync.pool().txg_runs_max() / 2);
        extents_max = extents_max.min(left);
    }
    let limit = extents_max + 1;
    let beyond =
        btree::collect_range::<Extents, SyncContext>(sync, tree.root, cut, None, limit).await?;
    if beyond.is_empty() {
        return Ok(Some(tree));
    }
    if beyond.len() > extents_max {
        return Ok(None);
    }
    let ops = vec![Replace { from_page: cut, to_page: PAGE_LIMIT, extents: Vec::new() }];
    let merged = extent_tree::merge_extents(gate, tree.root, owner, ops).await?;
    Ok(Some(settle(gate, owner, tree, &merged)))
}

async fn sync_pages(
    gate: &Gate<'_>,
    owner: NodeOwner,
    version: &Version,
    tree: TreeRoot,
    compression: Option<Compression>,
    damage: &mut Option<Damage>,
) -> Result<TreeRoot, PoolError> {
    let sync = gate.sync();
    let mut ops: Vec<Replace> = Vec::new();
    let mut group: Vec<(u64, &DirtyPage)> = Vec::new();
    for (page, dirty) in version.pages.iter() {
        let fits = group.last().is_some_and(|(last, before)| {
            *last + 1 == page && alike(before, dirty) && page % EXTENT_PAGES_MAX != 0
        });
        if !fits {
            write_group(sync, &mut ops, &group, compression)?;
            group.clear();
            sync.pace().await;
        }
        group.push((page, dirty));
    }
    write_group(sync, &mut ops, &group, compression)?;
    if ops.is_empty() {
        return Ok(tree);
    }
    let error = match replace(gate, owner, version, tree, &ops).await {
        Err(error) if error.is_damage() => error,
        replaced => return replaced,
    };
    let found = damage.insert(Damage::none(error));
    let kept = part_ops(sync, tree.root, ops, found).await?;
    match replace(gate, owner, version, tree, &kept).await {
        Err(error) if error.is_damage() => {
            free_new(sync, &kept);
            *damage = Some(Damage::all(error, version));
            Ok(tree)
        }
        replaced => replaced,
    }
}

/// Whether two neighbours may lie in one extent.
fn alike(left: &DirtyPage, right: &DirtyPage) -> bool {
    match (left.place, right.place) {
        (None, None) => left.page.is_some() == right.page.is_some(),
        (Some(left), Some(right)) => left.plus(1) == right,
        _ => false,
    }
}

fn write_group(
    sync: &SyncContext,
    ops: &mut Vec<Replace>,
    group: &[(u64, &DirtyPage)],
    compression: Option<Compression>,
) -> Result<(), PoolError> {
    let (Some((first, dirty)), Some((last, _))) = (group.first(), group.last()) else {
        return Ok(());
    };
    let mut op = Replace { from_page: *first, to_page: last + 1, extents: Vec::new() };
    let sums: Vec<u64> = group.iter().map(|(_, dirty)| dirty.sum).collect();
    if let Some(place) = dirty.place {
        push_plain(sync, &mut op, place, &sums);
    } else if dirty.page.is_some() {
        let pages: Vec<Page> = group.iter().filter_map(|(_, dirty)| dirty.page.clone()).collect();
        let chunk_pages = usize::try_from(COMPRESSED_PAGES_MAX).unwrap_or(usize::MAX);
        let chunk = if compression.is_some() { chunk_pages } else { pages.len() };
        for (pages, sums) in pages.chunks(chunk).zip(sums.chunks(chunk)) {
            let at = op.extents.last().map_or(op.from_page, Extent::end);
            let compressed = match compression {
                Some(algorithm) => write_compressed(sync, algorithm, at, pages)?,
                None => None,
            };
            match compressed {
                Some(extent) => op.extents.push(extent),
                None => write_plain(sync, &mut op, pages, sums)?,
            }
        }
    }
    ops.push(op);
    Ok(())
}

fn write_plain(
    sync: &SyncContext,
    op: &mut Replace,
    pages: &[Page],
    sums: &[u64],
) -> Result<(), PoolError> {
    let (mut pages, mut sums) = (pages, sums);
    while !pages.is_empty() {
        let run = sync.allocate(1, pages.len() as u64)?;
        let count = usize::try_from(run.sectors).unwrap_or(usize::MAX);
        let (now, later) = pages.split_at_checked(count).unwrap_or((pages, &[]));
        let (now_sums, later_sums) = sums.split_at_checked(count).unwrap_or((sums, &[]));
        sync.write(run.place, now.to_vec());
        push_plain(sync, op, run.place, now_sums);
        (pages, sums) = (later, later_sums);
    }
    Ok(())
}

/// Adds plain pages at `place`. An extent does not cross segments, which may move apart.
fn push_plain(sync: &SyncContext, op: &mut Replace, place: Place, sums: &[u64]) {
    let (mut place, mut sums) = (place, sums);
    while !sums.is_empty() {
        let left = SEGMENT_SECTORS - place.sector() % SEGMENT_SECTORS;
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(sums.len());
        let (now, later) = sums.split_at_checked(count).unwrap_or((sums, &[]));
        let page = op.extents.last().map_or(op.from_page, Extent::end);
        op.extents.push(Extent {
            page,
            pages: u8::try_from(now.len()).unwrap_or(u8::MAX),
            birth: sync.txg(),
            written: sync.txg(),
            place,
            counted: false,
            stored: Stored::Plain(now.iter().copied().collect()),
        });
        (place, sums) = (place.plus(now.len() as u64), later);
    }
}

/// A run of exactly `sectors` within one segment, since segments may move apart. A run that crosses
/// a border is freed, and the next one begins behind it, or in another gap.
fn allocate_in_segment(sync: &SyncContext, sectors: u64) -> Option<Run> {
    for _ in 0..2 {
        let run = sync.allocate(sectors, sectors).ok()?;
        if run.place.sector() % SEGMENT_SECTORS + sectors <= SEGMENT_SECTORS {
            return Some(run);
        }
        sync.free(run, sync.txg());
    }
    None
}

fn write_compressed(
    sync: &SyncContext,
    algorithm: Compression,
    page: u64,
    pages: &[Page],
) -> Result<Option<Extent>, PoolError> {
    let Some(bytes) = transform::compress(algorithm, pages) else {
        return Ok(None);
    };
    let sectors = bytes.len().div_ceil(SECTOR_BYTES) as u64;
    // Without a run of free sectors, the pages are stored uncompressed.
    let Some(run) = allocate_in_segment(sync, sectors) else {
        return Ok(None);
    };
    let stored = pages_of(&bytes);
    let checksum = checksum64(&aquifer_blockio::buf::bytes_of(&stored));
    sync.write(run.place, stored);
    let small = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    Ok(Some(Extent {
        page,
        pages: small(pages.len()),
        birth: sync.txg(),
        written: sync.txg(),
        place: run.place,
        counted: false,
        stored: Stored::Compressed {
            algorithm,
            offset_pages: 0,
            total_pages: small(pages.len()),
            stored_sectors: u8::try_from(sectors).unwrap_or(u8::MAX),
            stored_bytes: u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            checksum,
        },
    }))
}

/// Merges a version's pages into the tree, and into the cache.
async fn replace(
    gate: &Gate<'_>,
    owner: NodeOwner,
    version: &Version,
    tree: TreeRoot,
    ops: &[Replace],
) -> Result<TreeRoot, PoolError> {
    let merged = extent_tree::merge_extents(gate, tree.root, owner, ops.to_vec()).await?;
    cache_fresh((gate, owner), version, ops, &merged.replaced).await;
    Ok(settle(gate, owner, tree, &merged))
}

/// Frees the old extents of a merge, and returns the new tree.
fn settle(gate: &Gate<'_>, owner: NodeOwner, tree: TreeRoot, merged: &Merged) -> TreeRoot {
    let given_up = gate.free_extents(owner, &merged.freed);
    let saved_sectors = if gate.counts_saved() { merged.saved_sectors } else { 0 };
    let bytes = |sectors: i64| sectors.saturating_mul(4096);
    let refer = Space {
        bytes: tree.refer.bytes.saturating_add_signed(bytes(merged.refer_sectors)),
        saved_bytes: tree.refer.saved_bytes.saturating_add_signed(bytes(saved_sectors)),
    };
    TreeRoot { root: merged.root, refer, inherited: tree.inherited.minus(given_up) }
}

/// Keeps the written plain pages in the cache, each in the place of the page that it replaced if no
/// snapshot shows that one.
async fn cache_fresh(
    (gate, owner): (&Gate<'_>, NodeOwner),
    version: &Version,
    ops: &[Replace],
    replaced: &[Replaced],
) {
    let sync = gate.sync();
    let is_shown = |old: &Replaced| gate.is_shown(owner.object, old.birth);
    let mut replaced = replaced.iter().peekable();
    let extents = ops.iter().flat_map(|op| &op.extents);
    for extent in extents.filter(|extent| matches!(extent.stored, Stored::Plain(_))) {
        for page in extent.page..extent.end() {
            while replaced.next_if(|old| old.page + old.pages <= page).is_some() {}
            let old = replaced.peek().filter(|old| old.page <= page && !is_shown(old));
            let old = old.map(|old| (old.place.plus(page - old.page), old.written));
            if let Some(content) = version.pages.get(page).and_then(|dirty| dirty.page.clone()) {
                let place = extent.place.plus(page - extent.page);
                sync.pool().cache_page(place, sync.txg(), content, old);
            }
        }
        sync.pace().await;
    }
}
