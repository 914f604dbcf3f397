//! Applies a batch of changes to a tree: down in a walk, up through frames, once.
//!
//! The walk reads, in key order and ahead of need, the nodes whose ranges the batch touches. Each
//! inner node that it opens becomes a [`Frame`]. Each leaf is changed and fed to the frame of its
//! parent. After its last child a frame closes and is fed to the one above. So every node on a
//! changed path is read once and written once. Memory holds the walk, the entries of one leaf, and
//! one pointer for every node written or freed.

use std::collections::VecDeque;
use std::ops::Range;

use aquifer_blockio::Page;
use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{Node, NodeBody, NodeOwner};

use super::body::{Body, Packing};
use super::forms::Packed;
use super::frame::{Change, Frame};
use super::journal::Journal;
use super::pack::Grown;
use super::store::{NodeError, NodeSink, TreeError};
use super::view::{Entries, View, check_child};
use super::walk::{Route, Visit, Walk};

/// Reads of one level in flight at once.
const MERGE_WINDOW: usize = 32;

/// Sorted changes, addressed by position.
pub(crate) trait Batch<F: Packed, E>: Send {
    /// Number of changes.
    fn len(&self) -> usize;

    /// Those among `ops` that touch keys in `lower..upper` (`None`: no bound).
    fn within(
        &self,
        ops: Range<usize>,
        lower: Option<F::Key>,
        upper: Option<F::Key>,
    ) -> Range<usize>;

    /// Applies those of `ops` that touch a leaf to its entries `old`, passing over all of them.
    /// Adds the entries whose place is in the leaf's range, which ends before `upper`. `None`: no
    /// entry changed.
    fn apply(
        &mut self,
        ops: Range<usize>,
        upper: Option<F::Key>,
        old: &mut Entries<'_, F>,
    ) -> Result<Option<Leaf<F>>, E>;
}

/// A leaf's entries after a change.
pub(crate) struct Leaf<F: Packed> {
    /// In order, for any number of leaves.
    pub(crate) entries: Packing<F>,
    /// Where entries were added.
    pub(crate) grown: Grown,
}

impl<F: Packed> Leaf<F> {
    /// The change of a leaf whose entries took `old_bytes`.
    fn changed(self, old_bytes: usize) -> Change<F> {
        let body = Body::Leaf(self.entries);
        Change { shrunk: body.bytes() < old_bytes, body, grown: self.grown }
    }
}

/// The walk's route to the nodes that a batch touches, and the frames opened on the way.
struct Touched<'b, F: Packed, B> {
    batch: &'b mut B,
    /// By level, the oldest first: nodes with children yet to be fed.
    frames: Vec<VecDeque<Frame<F>>>,
}

impl<F, B, E> Route<F, E> for Touched<'_, F, B>
where
    F: Packed,
    B: Batch<F, E>,
    E: NodeError,
{
    type Want = Range<usize>;

    fn open(
        &mut self,
        visit: Visit<F, Range<usize>>,
        page: &Page,
        below: &mut VecDeque<Visit<F, Range<usize>>>,
    ) -> Result<(), E> {
        let level = visit.pointer.level;
        let body = Node::<F>::decode(page.as_slice(), &visit.pointer)?.body;
        let children = match body {
            NodeBody::Inner(children) if !children.is_empty() => children,
            _ => return Err(TreeError::MissingChild { level }.into()),
        };
        // The first child's own key has no meaning on the leftmost path.
        let bounds = |at: usize| {
            let lower = if at == 0 { visit.lower } else { children.get(at).map(|(key, _)| *key) };
            (lower, children.get(at + 1).map_or(visit.upper, |(key, _)| Some(*key)))
        };
        if let (Some((first, _)), Some((last, _))) = (children.first(), children.last()) {
            visit.check_range(*first, *last)?;
        }
        let mut last_fed = 0;
        for (index, (_, pointer)) in children.iter().enumerate() {
            check_child(level, pointer)?;
            let (lower, upper) = bounds(index);
            let want = self.batch.within(visit.want.clone(), lower, upper);
            if !want.is_empty() {
                let pointer = *pointer;
                below.push_back(Visit { pointer, lower, upper, index, want });
                last_fed = index;
            }
        }
        let edges = (visit.lower.is_none(), visit.upper.is_none());
        let frame = Frame::new(visit.pointer, visit.index, edges, children, last_fed);
        if let Some(queue) = self.frames.get_mut(usize::from(level)) {
            queue.push_back(frame);
        }
        Ok(())
    }
}

/// The tree of `root` with `batch` applied.
///
/// After an error, and when the future is dropped, nothing has changed: written nodes are freed and
/// no old node is. `owner` goes into the headers of new nodes.
pub(crate) async fn rewrite<F, S, B>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    batch: &mut B,
) -> Result<Option<BlockPointer>, S::Error>
where
    F: Packed,
    S: NodeSink,
    B: Batch<F, S::Error>,
{
    let all = 0..batch.len();
    if all.is_empty() {
        return Ok(root);
    }
    let mut journal = Journal::new(sink, owner);
    let mut above = Frame::<F>::above(root);
    match root {
        None => {
            let leaf = batch.apply(all, None, &mut Entries::new(&[], 0))?;
            above.feed(&mut journal, 0, leaf.map(|leaf| leaf.changed(0))).await?;
        }
        Some(root) => {
            let change = pass_over(&mut journal, root, batch).await?;
            above.feed(&mut journal, 0, change).await?;
        }
    }
    let root = above.finish(&mut journal).await?;
    journal.commit();
    Ok(root)
}

async fn pass_over<F, S, B>(
    journal: &mut Journal<'_, S>,
    root: BlockPointer,
    batch: &mut B,
) -> Result<Option<Change<F>>, S::Error>
where
    F: Packed,
    S: NodeSink,
    B: Batch<F, S::Error>,
{
    let start = Visit::root(root, 0..batch.len());
    let mut frames = Vec::new();
    frames.resize_with(usize::from(root.level) + 1, VecDeque::new);
    let touched = Touched { batch, frames };
    let mut walk = Walk::new(journal.store(), Some(start), MERGE_WINDOW, touched)?;
    let mut of_root = None;
    while let Some((visit, page)) = walk.next().await? {
        let route = &mut walk.route;
        let mut change = apply_leaf::<F, B, S::Error>(route.batch, &visit, &page)?;
        let mut index = visit.index;
        // Goes up while that was the last child to be fed.
        for queue in route.frames.iter_mut().skip(1) {
            let Some(frame) = queue.front_mut() else {
                break;
            };
            frame.feed(journal, index, change.take()).await?;
            if !frame.ends_with(index) {
                break;
            }
            if let Some(frame) = queue.pop_front() {
                index = frame.index;
                change = frame.close(journal).await?;
            }
        }
        of_root = change;
    }
    Ok(of_root)
}

fn apply_leaf<F, B, E>(
    batch: &mut B,
    visit: &Visit<F, Range<usize>>,
    page: &Page,
) -> Result<Option<Change<F>>, E>
where
    F: Packed,
    B: Batch<F, E>,
    E: NodeError,
{
    let mut entries = View::<F>::open(page.as_slice(), &visit.pointer)?.entries();
    let first = entries.clone().next()?;
    let old_bytes = entries.rest_bytes();
    let leaf = batch.apply(visit.want.clone(), visit.upper, &mut entries)?;
    if let (Some(first), Some(last)) = (first, entries.last()) {
        visit.check_range(first.first, last)?;
    }
    Ok(leaf.map(|leaf| leaf.changed(old_bytes)))
}
