//! The entries of a node that is being made. Leaf entries stay in their packed bytes: existing
//! entries are copied, never decoded.

use std::marker::PhantomData;

use aquifer_ondisk::tree_node::{Form, NODE_CAPACITY_BYTES, Node, NodeBody};
use aquifer_ondisk::{BlockPointer, FormatError, Writer};

use super::forms::Packed;
use super::pack::{Fill, Item, NodeSize, layout, tie_end};
use super::store::NodeError;
use super::view::{Entries, RawEntry};

/// Leaf entries in order, packed, for any number of leaves.
#[derive(Debug)]
pub(crate) struct Packing<F: Form> {
    bytes: Writer,
    count: usize,
    form: PhantomData<F>,
}

impl<F: Packed> Packing<F> {
    /// No entries.
    pub(crate) fn new() -> Self {
        let bytes = Writer::with_capacity(NODE_CAPACITY_BYTES);
        Packing { bytes, count: 0, form: PhantomData }
    }

    /// These entries.
    pub(crate) fn of(entries: &[F::Entry]) -> Self {
        let mut packing = Self::new();
        for entry in entries {
            packing.push(entry);
        }
        packing
    }

    /// Appends an entry; returns its bytes.
    pub(crate) fn push(&mut self, entry: &F::Entry) -> &[u8] {
        let start = self.bytes.len();
        F::encode_entry(entry, &mut self.bytes);
        self.count += 1;
        self.bytes.as_bytes().get(start..).unwrap_or_default()
    }

    /// Appends an entry of another node.
    pub(crate) fn copy(&mut self, entry: RawEntry<'_, F>) {
        self.bytes.put(entry.bytes);
        self.count += 1;
    }

    /// Appends all entries of another.
    fn append(&mut self, other: &Packing<F>) {
        self.bytes.put(other.bytes.as_bytes());
        self.count += other.count;
    }

    /// Iterates over the entries.
    pub(crate) fn entries(&self) -> Entries<'_, F> {
        Entries::new(self.bytes.as_bytes(), self.count)
    }

    fn items(&self) -> Result<Vec<Item>, FormatError> {
        let mut items = Vec::with_capacity(self.count);
        let mut decoded = Vec::new();
        let mut entries = self.entries();
        while let Some(entry) = entries.next()? {
            items.push(Item { bytes: entry.bytes.len(), tied: false });
            if F::TIES {
                decoded.push(entry.decode()?);
            }
        }
        let mut tied_until = 0;
        for (at, item) in items.iter_mut().enumerate().take(decoded.len()) {
            item.tied = at < tied_until;
            tied_until = tied_until.max(tie_end(&decoded, at, F::tied));
        }
        Ok(items)
    }
}

/// The entries of one node, or of several nodes to be made.
#[derive(Debug)]
pub(crate) enum Body<F: Form> {
    /// Of leaves.
    Leaf(Packing<F>),
    /// Of inner nodes.
    Inner(Vec<(F::Key, BlockPointer)>),
}

impl<F: Packed> From<NodeBody<F>> for Body<F> {
    fn from(body: NodeBody<F>) -> Self {
        match body {
            NodeBody::Leaf(entries) => Body::Leaf(Packing::of(&entries)),
            NodeBody::Inner(children) => Body::Inner(children),
        }
    }
}

impl<F: Packed> Body<F> {
    const CHILD_BYTES: usize = Node::<F>::INNER_ENTRY_BYTES;

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        match self {
            Body::Leaf(packing) => packing.count,
            Body::Inner(children) => children.len(),
        }
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Body::Leaf(packing) => packing.bytes.len(),
            Body::Inner(children) => children.len() * Self::CHILD_BYTES,
        }
    }

    /// Key of the first entry, KEY_MIN if there is none.
    pub(crate) fn first_key(&self) -> Result<F::Key, FormatError> {
        Ok(match self {
            Body::Leaf(packing) => {
                packing.entries().next()?.map_or(F::KEY_MIN, |entry| entry.first)
            }
            Body::Inner(children) => children.first().map_or(F::KEY_MIN, |(key, _)| *key),
        })
    }

    /// The entries in the form that they have in a node.
    pub(crate) fn encode(self) -> Writer {
        match self {
            Body::Leaf(packing) => packing.bytes,
            Body::Inner(children) => {
                let mut w = Writer::with_capacity(children.len() * Self::CHILD_BYTES);
                for (key, pointer) in &children {
                    F::encode_key(*key, &mut w);
                    pointer.encode(&mut w);
                }
                w
            }
        }
    }

    /// The entries of two neighbours of one level.
    pub(crate) fn join(self, right: Body<F>) -> Body<F> {
        match (self, right) {
            (Body::Leaf(mut left), Body::Leaf(right)) => {
                left.append(&right);
                Body::Leaf(left)
            }
            (Body::Inner(mut left), Body::Inner(right)) => {
                left.extend(right);
                Body::Inner(left)
            }
            (left, right) => unreachable!("neighbours of two levels: {left:?}, {right:?}"),
        }
    }

    /// Cuts the entries into nodes. None is empty; no entries give no node.
    pub(crate) fn repack<E: NodeError>(
        self,
        fill: Fill,
        size: NodeSize,
    ) -> Result<Vec<Body<F>>, E> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        if self.bytes() <= size.bytes() {
            return Ok(vec![self]);
        }
        match self {
            Body::Leaf(packing) => {
                let items = packing.items()?;
                let starts = layout(&items, fill, size)?;
                Ok(cut_packed(&packing, &items, &starts))
            }
            Body::Inner(mut children) => {
                let bytes = Self::CHILD_BYTES;
                let items = vec![Item { bytes, tied: false }; children.len()];
                let starts = layout(&items, fill, size)?;
                let from_end = starts.iter().rev();
                let mut nodes: Vec<Body<F>> =
                    from_end.map(|start| Body::Inner(children.split_off(*start))).collect();
                nodes.reverse();
                Ok(nodes)
            }
        }
    }
}

/// Cuts packed entries before each of `starts` (ascending, the first being 0).
fn cut_packed<F: Form>(packing: &Packing<F>, items: &[Item], starts: &[usize]) -> Vec<Body<F>> {
    let ends = starts.iter().skip(1).copied().chain([items.len()]);
    let mut rest = packing.bytes.as_bytes();
    let mut nodes = Vec::with_capacity(starts.len());
    for (start, end) in starts.iter().zip(ends) {
        let piece = items.get(*start..end).unwrap_or_default();
        let bytes = piece.iter().map(|item| item.bytes).sum();
        let (head, tail) = rest.split_at_checked(bytes).unwrap_or((rest, &[]));
        rest = tail;
        let mut bytes = Writer::with_capacity(head.len());
        bytes.put(head);
        nodes.push(Body::Leaf(Packing { bytes, count: piece.len(), form: PhantomData }));
    }
    nodes
}
