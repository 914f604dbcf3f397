//! Cuts a tree in two along one path.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{NodeBody, NodeOwner};

use super::body::{Body, Packing};
use super::forms::Packed;
use super::frame::collapse;
use super::journal::Journal;
use super::store::{NodeSink, TreeError};
use super::view::{check_child, check_root};

/// Two trees, or the two parts of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Halves {
    /// Keys below the cut.
    pub left: Option<BlockPointer>,
    /// Keys from the cut on.
    pub right: Option<BlockPointer>,
}

impl Halves {
    fn left(left: BlockPointer) -> Self {
        Halves { left: Some(left), right: None }
    }

    fn right(right: BlockPointer) -> Self {
        Halves { left: None, right: Some(right) }
    }
}

/// Cuts the tree of `root` before `key`. At each level of one path, the node is written once for
/// either side; all others go over unchanged. Nodes along the cut may be left nearly empty; later
/// merges there repair that.
///
/// Not for extents: see [`crate::extent_tree::split_off`].
///
/// # Errors
/// Errors of the sink, and nodes that make no tree; then nothing has changed.
pub async fn split_off<F: Packed, S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    key: F::Key,
) -> Result<Halves, S::Error> {
    let cut = |mut left: Vec<F::Entry>| {
        let right = left.split_off(left.partition_point(|entry| F::key(entry) < key));
        (left, right)
    };
    split_with::<F, S>(sink, root, owner, key, cut).await
}

/// An inner node on the path of the cut.
struct Crossed<F: Packed> {
    pointer: BlockPointer,
    children: Vec<(F::Key, BlockPointer)>,
    /// The child that is cut.
    at: usize,
}

/// As [`split_off`], with `cut` to cut the leaf. Entries that it gives to neither side are gone.
pub(crate) async fn split_with<F: Packed, S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    key: F::Key,
    cut: impl FnOnce(Vec<F::Entry>) -> (Vec<F::Entry>, Vec<F::Entry>) + Send,
) -> Result<Halves, S::Error> {
    let Some(root) = root else {
        return Ok(Halves { left: None, right: None });
    };
    let mut journal = Journal::new(sink, owner);
    let (path, leaf, entries) = descend::<F, S>(&journal, root, key).await?;
    let mut halves = cut_leaf::<F, S>(&mut journal, leaf, entries, cut)?;
    for node in path.into_iter().rev() {
        halves = cut_inner(&mut journal, node, halves)?;
    }
    // Near an end of the tree, one side may be left with nothing beside the path for some levels.
    for half in [&mut halves.left, &mut halves.right] {
        if let Some(root) = *half {
            *half = Some(collapse::<F, S>(&mut journal, root).await?);
        }
    }
    journal.commit();
    Ok(halves)
}

/// The path to the leaf of `key`, root first, and the leaf's pointer and entries.
async fn descend<F: Packed, S: NodeSink>(
    journal: &Journal<'_, S>,
    mut pointer: BlockPointer,
    key: F::Key,
) -> Result<(Vec<Crossed<F>>, BlockPointer, Vec<F::Entry>), S::Error> {
    check_root(&pointer)?;
    let mut path = Vec::new();
    loop {
        let children = match journal.read::<F>(&pointer).await? {
            NodeBody::Leaf(entries) => return Ok((path, pointer, entries)),
            NodeBody::Inner(children) => children,
        };
        for (_, child) in &children {
            check_child(pointer.level, child)?;
        }
        let at = children.partition_point(|(lower, _)| *lower <= key).saturating_sub(1);
        let Some((_, child)) = children.get(at).copied() else {
            return Err(TreeError::MissingChild { level: pointer.level }.into());
        };
        path.push(Crossed { pointer, children, at });
        pointer = child;
    }
}

fn cut_leaf<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    leaf: BlockPointer,
    entries: Vec<F::Entry>,
    cut: impl FnOnce(Vec<F::Entry>) -> (Vec<F::Entry>, Vec<F::Entry>),
) -> Result<Halves, S::Error> {
    let (left, right) = cut(entries.clone());
    if left == entries {
        return Ok(Halves::left(leaf));
    }
    if right == entries {
        return Ok(Halves::right(leaf));
    }
    journal.free(leaf);
    let mut write = |entries: Vec<F::Entry>| match entries.is_empty() {
        true => Ok(None),
        false => journal.write::<F>(0, Body::Leaf(Packing::of(&entries))).map(Some),
    };
    Ok(Halves { left: write(left)?, right: write(right)? })
}

/// Cuts an inner node. `below` are the parts of its child at `at`.
fn cut_inner<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    node: Crossed<F>,
    below: Halves,
) -> Result<Halves, S::Error> {
    let Crossed { pointer, children: mut left, at } = node;
    let mut right = left.split_off(at + 1);
    let Some((key, child)) = left.pop() else {
        return Err(TreeError::MissingChild { level: pointer.level }.into());
    };
    // The child went whole to one side, and there is nothing for the other.
    if right.is_empty() && below == Halves::left(child) {
        return Ok(Halves::left(pointer));
    }
    if left.is_empty() && below == Halves::right(child) {
        return Ok(Halves::right(pointer));
    }
    journal.free(pointer);
    left.extend(below.left.map(|child| (key, child)));
    right.splice(0..0, below.right.map(|child| (key, child)));
    // The right tree's leftmost path begins here.
    if let Some((first, _)) = right.first_mut() {
        *first = F::KEY_MIN;
    }
    let mut write = |children: Vec<(F::Key, BlockPointer)>| match children.is_empty() {
        true => Ok(None),
        false => journal.write::<F>(pointer.level, Body::Inner(children)).map(Some),
    };
    Ok(Halves { left: write(left)?, right: write(right)? })
}
