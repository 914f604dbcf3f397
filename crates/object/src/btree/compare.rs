//! The difference of two trees, found without reading the nodes that they share.
//!
//! The comparison passes both trees in key order. Each is a stack; its top is an entry or a node
//! not yet opened. The side whose top begins at the smaller key moves on. At equal keys, two equal
//! pointers are skipped with all below them; else the higher node is opened (at equal levels,
//! both). A node that both trees share begins at the same key in both, so the two tops do meet
//! there. (Only on the leftmost path of one tree, where a bound may be lower than the first key,
//! can a shared node go unnoticed. That costs its read, not the result.)

use std::cmp::Ordering;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{Form, Node, NodeBody};
use futures_util::future::try_join;

use super::forms::Packed;
use super::store::NodeStore;
use super::view::{check_child, check_root};

/// A key at which two trees differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference<K, E> {
    /// The key.
    pub key: K,
    /// The entry in the old tree.
    pub old: Option<E>,
    /// The entry in the new tree.
    pub new: Option<E>,
}

enum Item<F: Form> {
    Node(F::Key, BlockPointer),
    Entry(F::Entry),
}

impl<F: Form> Item<F> {
    fn key(&self) -> F::Key {
        match self {
            Item::Node(key, _) => *key,
            Item::Entry(entry) => F::key(entry),
        }
    }
}

/// Which side moves on.
enum Step<F: Form> {
    Skip,
    OpenOld(BlockPointer),
    OpenNew(BlockPointer),
    OpenBoth(BlockPointer, BlockPointer),
    Emit(Option<F::Entry>, Option<F::Entry>),
}

/// Streams the keys at which two trees differ, in order. See the module's head.
pub struct Compare<'a, F: Packed, S: NodeStore> {
    store: &'a S,
    /// The rest of each tree, the next item at the end.
    old: Vec<Item<F>>,
    new: Vec<Item<F>>,
}

/// Compares two trees of one store.
///
/// # Errors
/// A root that is too high.
pub fn compare<F: Packed, S: NodeStore>(
    store: &S,
    old: Option<BlockPointer>,
    new: Option<BlockPointer>,
) -> Result<Compare<'_, F, S>, S::Error> {
    old.iter().chain(&new).try_for_each(check_root)?;
    let stack = |root: Option<BlockPointer>| {
        root.map(|root| Item::Node(F::KEY_MIN, root)).into_iter().collect()
    };
    Ok(Compare { store, old: stack(old), new: stack(new) })
}

impl<F: Packed, S: NodeStore> Compare<'_, F, S> {
    /// The next difference, `None` after the last.
    ///
    /// # Errors
    /// Errors of the store, and nodes that make no tree. The comparison cannot be continued then.
    pub async fn next(&mut self) -> Result<Option<Difference<F::Key, F::Entry>>, S::Error> {
        while let Some(step) = self.step() {
            match step {
                Step::Skip => {}
                Step::OpenOld(node) => self.old.extend(self.open(node).await?),
                Step::OpenNew(node) => self.new.extend(self.open(node).await?),
                Step::OpenBoth(old, new) => {
                    let (old, new) = try_join(self.open(old), self.open(new)).await?;
                    self.old.extend(old);
                    self.new.extend(new);
                }
                Step::Emit(old, new) => {
                    if let Some(key) = old.as_ref().or(new.as_ref()).map(F::key) {
                        return Ok(Some(Difference { key, old, new }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Takes the next items off the stacks; `None` when both are empty.
    fn step(&mut self) -> Option<Step<F>> {
        let order = match (self.old.last(), self.new.last()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.key().cmp(&new.key()).then_with(|| by_level(old, new)),
        };
        let old = if order.is_le() { self.old.pop() } else { None };
        let new = if order.is_ge() { self.new.pop() } else { None };
        Some(match (old, new) {
            (Some(Item::Node(_, old)), Some(Item::Node(_, new))) if old == new => Step::Skip,
            (Some(Item::Node(_, old)), Some(Item::Node(_, new))) => Step::OpenBoth(old, new),
            (Some(Item::Node(_, node)), _) => Step::OpenOld(node),
            (_, Some(Item::Node(_, node))) => Step::OpenNew(node),
            (Some(Item::Entry(old)), Some(Item::Entry(new))) if old == new => Step::Skip,
            (old, new) => Step::Emit(old.and_then(Item::entry), new.and_then(Item::entry)),
        })
    }

    /// The content of a node, the first item at the end.
    async fn open(&self, node: BlockPointer) -> Result<Vec<Item<F>>, S::Error> {
        let page = self.store.read(&node).await?;
        let mut items: Vec<Item<F>> = match Node::<F>::decode(page.as_slice(), &node)?.body {
            NodeBody::Leaf(entries) => entries.into_iter().map(Item::Entry).collect(),
            NodeBody::Inner(children) => {
                children.iter().try_for_each(|(_, child)| check_child(node.level, child))?;
                children.into_iter().map(|(key, child)| Item::Node(key, child)).collect()
            }
        };
        items.reverse();
        Ok(items)
    }
}

impl<F: Form> Item<F> {
    fn entry(self) -> Option<F::Entry> {
        match self {
            Item::Entry(entry) => Some(entry),
            Item::Node(..) => None,
        }
    }
}

/// Orders two items that begin at one key: the one to open first is the lesser.
fn by_level<F: Form>(old: &Item<F>, new: &Item<F>) -> Ordering {
    let height = |item: &Item<F>| match item {
        Item::Node(_, node) => Some(node.level),
        Item::Entry(_) => None,
    };
    height(new).cmp(&height(old))
}
