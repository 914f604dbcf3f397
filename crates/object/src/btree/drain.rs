//! Takes a tree down piece by piece, from its right end. Nodes of another tree are left out unread,
//! with all below them.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{NodeBody, NodeOwner};
use futures_util::future::try_join_all;

use super::body::Body;
use super::forms::Packed;
use super::frame::collapse;
use super::journal::Journal;
use super::store::{NodeSink, TreeError};
use super::view::{check_child, check_root};

/// Leaves read at once.
const DRAIN_WINDOW: usize = 32;
/// Assumed entries of a leaf, until a leaf was read.
const LEAF_ENTRIES_GUESS: usize = 100;

/// The result of one call of [`drain`].
#[derive(Debug, Clone, PartialEq)]
pub struct Drained<E> {
    /// The remaining tree, `None` when all is gone.
    pub root: Option<BlockPointer>,
    /// The entries taken, in order.
    pub entries: Vec<E>,
}

impl<E> Drained<E> {
    /// Whether the tree is empty.
    pub fn done(&self) -> bool {
        self.root.is_none()
    }
}

/// An inner node on the rightmost path.
struct Edge<F: Packed> {
    pointer: BlockPointer,
    children: Vec<(F::Key, BlockPointer)>,
    changed: bool,
}

impl<F: Packed> Edge<F> {
    /// Leaves out the last children, as far as they are of another tree.
    fn leave_others<S: NodeSink>(&mut self, sink: &S) {
        while self.children.pop_if(|(_, child)| sink.is_of_another(child)).is_some() {
            self.changed = true;
        }
    }
}

/// Takes whole leaves off the right end of the tree of `root` until `budget_entries` are taken: at
/// least one leaf, and less than a leaf too many. Frees the nodes; the caller frees the entries.
/// The budget and the height bound reads and writes.
///
/// # Errors
/// Errors of the sink, and nodes that make no tree; then nothing has changed.
pub async fn drain<F: Packed, S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    budget_entries: usize,
) -> Result<Drained<F::Entry>, S::Error> {
    let mut drained = Drained { root: None, entries: Vec::new() };
    let Some(root) = root else {
        return Ok(drained);
    };
    check_root(&root)?;
    if sink.is_of_another(&root) {
        return Ok(drained);
    }
    let mut journal = Journal::new(sink, owner);
    let mut taken: Vec<Vec<F::Entry>> = Vec::new();
    if root.level == 0 {
        taken.push(take_leaf::<F, S>(&mut journal, root).await?);
    } else {
        let mut path = vec![open::<F, S>(&journal, root).await?];
        let mut count = 0;
        while count < budget_entries.max(1) && descend(&mut journal, &mut path).await? {
            count +=
                take_leaves(&mut journal, &mut path, budget_entries - count, &mut taken).await?;
        }
        drained.root = write_path(&mut journal, path).await?;
    }
    journal.commit();
    drained.entries = taken.into_iter().rev().flatten().collect();
    Ok(drained)
}

async fn take_leaf<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    leaf: BlockPointer,
) -> Result<Vec<F::Entry>, S::Error> {
    journal.free(leaf);
    match journal.read::<F>(&leaf).await? {
        NodeBody::Leaf(entries) => Ok(entries),
        NodeBody::Inner(_) => Err(TreeError::KeyRange { level: leaf.level }.into()),
    }
}

async fn open<F: Packed, S: NodeSink>(
    journal: &Journal<'_, S>,
    pointer: BlockPointer,
) -> Result<Edge<F>, S::Error> {
    let children = match journal.read::<F>(&pointer).await? {
        NodeBody::Inner(children) if !children.is_empty() => children,
        _ => {
            return Err(TreeError::MissingChild { level: pointer.level }.into());
        }
    };
    for (_, child) in &children {
        check_child(pointer.level, child)?;
    }
    Ok(Edge { pointer, children, changed: false })
}

/// Frees emptied nodes at the end of `path` and goes down to the lowest inner node. `false`: the
/// tree is empty.
async fn descend<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    path: &mut Vec<Edge<F>>,
) -> Result<bool, S::Error> {
    while let Some(edge) = path.last_mut() {
        edge.leave_others(journal.store());
        match edge.children.last().copied() {
            Some(_) if edge.pointer.level == 1 => return Ok(true),
            Some((_, child)) => path.push(open::<F, S>(journal, child).await?),
            None => {
                journal.free(edge.pointer);
                path.pop();
                if let Some(parent) = path.last_mut() {
                    parent.children.pop();
                    parent.changed = true;
                }
            }
        }
    }
    Ok(false)
}

/// Takes leaves off the end of the lowest inner node until `budget` entries are taken or it is
/// empty; returns how many entries.
async fn take_leaves<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    path: &mut [Edge<F>],
    budget: usize,
    taken: &mut Vec<Vec<F::Entry>>,
) -> Result<usize, S::Error> {
    let Some(edge) = path.last_mut() else {
        return Ok(0);
    };
    let mut count = 0;
    while count < budget.max(1) && !edge.children.is_empty() {
        let guess = taken.last().map_or(LEAF_ENTRIES_GUESS, Vec::len).max(1);
        let want = ((budget - count) / guess).clamp(1, DRAIN_WINDOW);
        let own = edge.children.iter().rev().map(|(_, leaf)| *leaf);
        let own = own.take_while(|leaf| !journal.store().is_of_another(leaf));
        let leaves: Vec<BlockPointer> = own.take(want).collect();
        let read = leaves.iter().map(|leaf| journal.read::<F>(leaf));
        for (leaf, body) in leaves.iter().zip(try_join_all(read).await?) {
            if count >= budget.max(1) {
                break;
            }
            let NodeBody::Leaf(entries) = body else {
                return Err(TreeError::KeyRange { level: leaf.level }.into());
            };
            count += entries.len().max(1);
            taken.push(entries);
            edge.children.pop();
            edge.changed = true;
            journal.free(*leaf);
        }
        edge.leave_others(journal.store());
    }
    Ok(count)
}

/// Writes the rest of the path, from below.
async fn write_path<F: Packed, S: NodeSink>(
    journal: &mut Journal<'_, S>,
    mut path: Vec<Edge<F>>,
) -> Result<Option<BlockPointer>, S::Error> {
    let mut below: Option<Option<BlockPointer>> = None;
    while let Some(mut edge) = path.pop() {
        if let Some(below) = below {
            let last = edge.children.pop();
            edge.children.extend(last.zip(below).map(|((key, _), child)| (key, child)));
            edge.changed = true;
            edge.leave_others(journal.store());
        }
        below = if !edge.changed {
            None
        } else {
            journal.free(edge.pointer);
            let level = edge.pointer.level;
            match edge.children.as_slice() {
                [] => Some(None),
                // A root with one child: the child is the root.
                [(_, only)] if path.is_empty() => {
                    return collapse::<F, S>(journal, *only).await.map(Some);
                }
                _ => Some(Some(journal.write::<F>(level, Body::Inner(edge.children))?)),
            }
        };
    }
    Ok(below.flatten())
}
