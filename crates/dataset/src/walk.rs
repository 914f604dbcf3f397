//! A walk over every block below the pool's roots.

use std::ops::ControlFlow;

use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass};
use aquifer_ondisk::tree_node::{
    Directory, Extents, Form, Namespace, Node, NodeBody, Objects, Replies,
};
use aquifer_ondisk::{BlockPointer, Corruption, FormatError, Txg};
use aquifer_pool::{Patience, Pool, PoolError, Roots, Visitor};

/// What a node leads to.
#[derive(Default)]
struct Below {
    nodes: Vec<BlockPointer>,
    extents: Vec<aquifer_ondisk::extent::Extent>,
}

/// Shows each block that was born after `since`. Depth first, so that of each node on the way only
/// the children that are still to come are in memory.
pub(crate) async fn walk(
    pool: &Pool,
    roots: Roots,
    since: Txg,
    to: &dyn Visitor,
) -> Result<ControlFlow<()>, PoolError> {
    let mut coming: Vec<BlockPointer> = roots.into_iter().flatten().collect();
    while let Some(pointer) = coming.pop() {
        if pointer.birth <= since {
            continue;
        }
        if to.node(&pointer).await.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let below = match pool.read_node(&pointer, Patience::Long).await {
            Ok(page) => below(page.as_slice(), &pointer),
            Err(error) => Err(error),
        };
        let below = match below {
            Ok(below) => below,
            Err(error) if error.cannot_be_read() => continue,
            Err(error) => return Err(error),
        };
        for extent in below.extents.iter().filter(|extent| extent.birth > since) {
            if to.extent(extent).await.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        coming.extend(below.nodes);
    }
    Ok(ControlFlow::Continue(()))
}

fn below(sector: &[u8], pointer: &BlockPointer) -> Result<Below, PoolError> {
    let nothing = |_| Ok(Below::default());
    match pointer.kind {
        BlockKind::Namespace => children::<Namespace>(sector, pointer, below_items),
        BlockKind::Objects => children::<Objects>(sector, pointer, |inodes| {
            let nodes = inodes.into_iter().filter_map(|inode| inode.root).collect();
            Ok(Below { nodes, ..Below::default() })
        }),
        BlockKind::Extents => children::<Extents>(sector, pointer, |extents| {
            Ok(Below { extents, ..Below::default() })
        }),
        BlockKind::Directory => children::<Directory>(sector, pointer, nothing),
        BlockKind::Replies => children::<Replies>(sector, pointer, |_| Ok(Below::default())),
        BlockKind::Dead | BlockKind::Refcounts | BlockKind::Segments => {
            Err(Corruption::UnknownTree(pointer.kind as u8).into())
        }
    }
}

fn below_items(items: Vec<Item>) -> Result<Below, FormatError> {
    let mut below = Below::default();
    for Item { key, value } in items {
        let (class, _) = key.class_and_number();
        let is_dataset = key.dataset.0 != 0
            && matches!(ItemClass::from_u8(class), Some(ItemClass::Record | ItemClass::Destroyed));
        if is_dataset {
            below.nodes.extend(DatasetRecord::decode(&value)?.objects);
        }
    }
    Ok(below)
}

/// The children of an inner node, or what the entries of a leaf lead to.
fn children<F: Form>(
    sector: &[u8],
    pointer: &BlockPointer,
    of_leaf: impl FnOnce(Vec<F::Entry>) -> Result<Below, FormatError>,
) -> Result<Below, PoolError> {
    let node = Node::<F>::decode(sector, pointer)?;
    Ok(match node.body {
        NodeBody::Leaf(entries) => of_leaf(entries)?,
        NodeBody::Inner(children) => {
            let nodes = children.into_iter().map(|(_, child)| child).collect();
            Below { nodes, ..Below::default() }
        }
    })
}
