//! A walk over every block below the pool's roots, in the order of [`WalkPosition`].

use std::ops::ControlFlow;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dataset::{DatasetRecord, ItemClass, ItemKey};
use aquifer_ondisk::extent::{EXTENT_PAGES_MAX, Extent};
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::tree_node::{
    Directory, Extents, Form, Namespace, Node, NodeBody, Objects, Replies,
};
use aquifer_ondisk::{BlockPointer, Corruption, FormatError, Txg};
use aquifer_pool::{Patience, Pool, PoolError, Roots, Span, Visitor};

/// A node that is still to come.
#[derive(Clone, Copy)]
struct Coming {
    pointer: BlockPointer,
    span: Span,
}

/// What a node leads to, in order.
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
    let mut coming: Vec<Coming> = roots.into_iter().zip(0u8..).filter_map(root).collect();
    coming.reverse();
    while let Some(Coming { pointer, span }) = coming.pop() {
        if pointer.birth <= since || span.to <= from {
            continue;
        }
        let read = pool.read_node(&pointer, Patience::Long).await;
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
        let below = read.and_then(|page| below(page.as_slice(), &pointer, &span));
        let below = match below {
            Ok(below) => below,
            Err(error) if error.cannot_be_read() => continue,
            Err(error) => return Err(error),
        };
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
fn root((root, tree): (Option<BlockPointer>, u8)) -> Option<Coming> {
    let from = WalkPosition { tree, ..WalkPosition::default() };
    Some(Coming {
        pointer: root?,
        span: Span { from, to: WalkPosition { tree: tree + 1, ..from } },
    })
}

fn below(sector: &[u8], pointer: &BlockPointer, span: &Span) -> Result<Below, PoolError> {
    let at = span.from;
    match pointer.kind {
        BlockKind::Namespace => {
            let place = |key: ItemKey| WalkPosition { key: (key.dataset.0, key.item), ..at };
            children::<Namespace>(sector, pointer, span, place, |items| {
                let mut below = Below::default();
                for item in items {
                    let objects = match at.tree == TreeSlot::Namespace as u8 {
                        true => objects_of(item.key, &item.value)?,
                        false => None,
                    };
                    below.nodes.extend(objects.map(|pointer| tree_at(pointer, place(item.key))));
                }
                Ok(below)
            })
        }
        BlockKind::Objects => {
            let place = |object| WalkPosition { object, within: 0, ..at };
            children::<Objects>(sector, pointer, span, place, |inodes| {
                let trees = inodes.into_iter().filter_map(|inode| {
                    inode.root.map(|pointer| tree_at(pointer, place(inode.object.0)))
                });
                Ok(Below { nodes: trees.collect(), ..Below::default() })
            })
        }
        BlockKind::Extents => {
            let place = |within| WalkPosition { within, ..at };
            children::<Extents>(sector, pointer, span, place, |extents| {
                Ok(Below { extents, ..Below::default() })
            })
        }
        BlockKind::Directory => {
            let place = |within| WalkPosition { within, ..at };
            children::<Directory>(sector, pointer, span, place, |_| Ok(Below::default()))
        }
        BlockKind::Replies => {
            let place = |order| WalkPosition { key: (order, 0), ..at };
            children::<Replies>(sector, pointer, span, place, |_| Ok(Below::default()))
        }
        BlockKind::Dead | BlockKind::Refcounts | BlockKind::Segments => {
            Err(Corruption::UnknownTree(pointer.kind as u8).into())
        }
    }
}

/// The object table of a dataset, if the item is its record.
fn objects_of(key: ItemKey, value: &[u8]) -> Result<Option<BlockPointer>, FormatError> {
    let (class, _) = key.class_and_number();
    let is_record =
        matches!(ItemClass::from_u8(class), Some(ItemClass::Record | ItemClass::Destroyed));
    match is_record && key.dataset.0 != 0 {
        true => Ok(DatasetRecord::decode(value)?.objects),
        false => Ok(None),
    }
}

/// A tree that an entry at `from` leads to: everything in it comes before the next entry.
fn tree_at(pointer: BlockPointer, from: WalkPosition) -> Coming {
    let to = match pointer.kind {
        BlockKind::Objects => WalkPosition { object: u64::MAX, within: u64::MAX, ..from },
        _ => WalkPosition { within: u64::MAX, ..from },
    };
    Coming { pointer, span: Span { from, to } }
}

/// The children of an inner node, or what the entries of a leaf lead to.
fn children<F: Form>(
    sector: &[u8],
    pointer: &BlockPointer,
    span: &Span,
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
    let nodes = nodes
        .map(|((_, pointer), (from, to))| Coming { pointer: *pointer, span: Span { from, to } });
    Ok(Below { nodes: nodes.collect(), ..Below::default() })
}
