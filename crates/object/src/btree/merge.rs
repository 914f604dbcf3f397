//! Puts and deletes by key.

use std::ops::Range;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::NodeOwner;

use super::body::Packing;
use super::forms::Packed;
use super::pack::Growth;
use super::rewrite::{Batch, Leaf, rewrite};
use super::store::{NodeError, NodeSink};
use super::view::Entries;

/// The tree of `root` with `ops` applied: at each key, the new entry, or `None` for no entry. Keys
/// must ascend; entries may replace existing ones, and deletes may find nothing. If nothing
/// changes, the root comes back as it was.
///
/// Not for extents, whose entries cover ranges: see [`crate::extent_tree::merge_extents`].
///
/// # Errors
/// Errors of the sink, and nodes that make no tree. Then nothing has changed: written nodes are
/// freed again, and no old node is.
///
/// # Panics
/// If the keys do not ascend, or a key is not its entry's.
pub async fn merge<F: Packed, S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    ops: Vec<(F::Key, Option<F::Entry>)>,
) -> Result<Option<BlockPointer>, S::Error> {
    let ascend = ops.is_sorted_by(|(left, _), (right, _)| left < right);
    assert!(ascend, "the keys of a merge ascend");
    let own = |(key, entry): &(F::Key, Option<F::Entry>)| {
        entry.as_ref().is_none_or(|entry| F::key(entry) == *key)
    };
    assert!(ops.iter().all(own), "an entry is put at its own key");
    rewrite::<F, S, _>(sink, root, owner, &mut Points { ops }).await
}

struct Points<F: Packed> {
    ops: Vec<(F::Key, Option<F::Entry>)>,
}

impl<F: Packed, E: NodeError> Batch<F, E> for Points<F> {
    fn len(&self) -> usize {
        self.ops.len()
    }

    fn within(
        &self,
        ops: Range<usize>,
        lower: Option<F::Key>,
        upper: Option<F::Key>,
    ) -> Range<usize> {
        let list = self.ops.get(ops.clone()).unwrap_or_default();
        let before = |bound: Option<F::Key>, none: usize| match bound {
            Some(bound) => list.partition_point(|(key, _)| *key < bound),
            None => none,
        };
        let (first, end) = (before(lower, 0), before(upper, list.len()));
        ops.start + first..ops.start + end.max(first)
    }

    fn apply(
        &mut self,
        ops: Range<usize>,
        _: Option<F::Key>,
        old: &mut Entries<'_, F>,
    ) -> Result<Option<Leaf<F>>, E> {
        let mut entries = Packing::new();
        let mut growth = Growth::default();
        let mut next = old.next()?;
        for (key, put) in self.ops.get(ops).unwrap_or_default() {
            while let Some(entry) = next
                && entry.first < *key
            {
                entries.copy(entry);
                growth.stands();
                next = old.next()?;
            }
            let mut before: Option<&[u8]> = None;
            if let Some(entry) = next
                && entry.first == *key
            {
                before = Some(entry.bytes);
                next = old.next()?;
            }
            let after = put.as_ref().map(|put| entries.push(put));
            if before == after {
                growth.stands();
                continue;
            }
            if before.is_some() {
                growth.gone();
            }
            if after.is_some() {
                growth.put();
            }
        }
        while let Some(entry) = next {
            entries.copy(entry);
            growth.stands();
            next = old.next()?;
        }
        let grown = growth.grown();
        Ok(growth.any().then_some(Leaf { entries, grown }))
    }
}
