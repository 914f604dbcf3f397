//! The difference of two trees, found without reading the nodes that they share.
//!
//! The comparison passes both trees in key order. Each is a stack; its top is an entry or a node
//! not yet opened. The side whose top begins at the smaller key moves on. At equal keys, two equal
//! pointers are skipped with all below them; else the higher node is opened (at equal levels,
//! both). A node that both trees share begins at the same key in both, so the two tops do meet
//! there. (Only on the leftmost path of one tree, where a bound may be lower than the first key,
//! can a shared node go unnoticed. That costs its read, not the result.)
//!
//! **Read ahead.** With the nodes that it opens, it reads some of their next siblings: those that
//! are younger than one of the two roots, and what stands at their keys on the other side. A birth
//! is a hint here: a wrong one costs a read.

use std::cmp::Ordering;

use aquifer_blockio::Page;
use aquifer_ondisk::tree_node::{Form, Node, NodeBody};
use aquifer_ondisk::{BlockPointer, Txg};
use futures_util::future::join_all;

use super::forms::Packed;
use super::store::{NodeError, NodeStore};
use super::view::{check_child, check_root};

/// Nodes of each tree that are read ahead at most.
const AHEAD_NODES: usize = 16;

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

/// The nodes to open, or what a step found.
enum Step<F: Form> {
    Skip,
    Open(Option<BlockPointer>, Option<BlockPointer>),
    Emit(Option<F::Entry>, Option<F::Entry>),
}

/// The rest of a tree.
struct Side<F: Form> {
    /// The next item at the end.
    items: Vec<Item<F>>,
    /// Nodes that were read ahead.
    ahead: Vec<(BlockPointer, Page)>,
}

/// Streams the keys at which two trees differ, in order. See the module's head.
pub struct Compare<'a, F: Packed, S: NodeStore> {
    store: &'a S,
    from: F::Key,
    old: Side<F>,
    new: Side<F>,
    /// Nodes born later are not in both trees, as far as births tell.
    older_root: Txg,
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
    compare_from(store, old, new, F::KEY_MIN)
}

/// Compares two trees of one store from a key on. What only concerns keys before may be found too,
/// and may be found wrong.
///
/// # Errors
/// A root that is too high.
pub fn compare_from<F: Packed, S: NodeStore>(
    store: &S,
    old: Option<BlockPointer>,
    new: Option<BlockPointer>,
    from: F::Key,
) -> Result<Compare<'_, F, S>, S::Error> {
    old.iter().chain(&new).try_for_each(check_root)?;
    let born = |root: Option<BlockPointer>| root.map_or(Txg(0), |root| root.birth);
    let older_root = born(old).min(born(new));
    let side = |root: Option<BlockPointer>| Side {
        items: root.map(|root| Item::Node(F::KEY_MIN, root)).into_iter().collect(),
        ahead: Vec::new(),
    };
    Ok(Compare { store, from, old: side(old), new: side(new), older_root })
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
                Step::Open(old, new) => self.open(old, new).await?,
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
        let (old, new) = (&mut self.old.items, &mut self.new.items);
        let order = match (old.last(), new.last()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.key().cmp(&new.key()).then_with(|| by_level(old, new)),
        };
        let old = if order.is_le() { old.pop() } else { None };
        let new = if order.is_ge() { new.pop() } else { None };
        Some(match (old, new) {
            (Some(Item::Node(_, old)), Some(Item::Node(_, new))) if old == new => Step::Skip,
            (Some(Item::Node(_, old)), Some(Item::Node(_, new))) => {
                Step::Open(Some(old), Some(new))
            }
            (Some(Item::Node(_, node)), _) => Step::Open(Some(node), None),
            (_, Some(Item::Node(_, node))) => Step::Open(None, Some(node)),
            (Some(Item::Entry(old)), Some(Item::Entry(new))) if old == new => Step::Skip,
            (old, new) => Step::Emit(old.and_then(Item::entry), new.and_then(Item::entry)),
        })
    }

    /// Puts the content of nodes in their places.
    async fn open(
        &mut self,
        old: Option<BlockPointer>,
        new: Option<BlockPointer>,
    ) -> Result<(), S::Error> {
        let is_there = |side: &Side<F>, node: Option<BlockPointer>| {
            node.is_none_or(|node| side.ahead.iter().any(|(other, _)| *other == node))
        };
        if !is_there(&self.old, old) || !is_there(&self.new, new) {
            self.read(old, new).await?;
        }
        let from = self.from;
        for (side, node) in [(&mut self.old, old), (&mut self.new, new)] {
            let Some(node) = node else { continue };
            let at = side.ahead.iter().position(|(other, _)| *other == node);
            if let Some((_, page)) = at.map(|at| side.ahead.swap_remove(at)) {
                side.items.extend(content::<F, S::Error>(&page, &node, from)?);
            }
        }
        Ok(())
    }

    /// Reads nodes, and ahead.
    async fn read(
        &mut self,
        old: Option<BlockPointer>,
        new: Option<BlockPointer>,
    ) -> Result<(), S::Error> {
        let level = old.or(new).map_or(0, |node| node.level);
        let (mut more_old, mut more_new) = (Vec::new(), Vec::new());
        let (of_old, of_new) = (self.old.siblings(level), self.new.siblings(level));
        let mut add = |key: F::Key| {
            for (siblings, wanted) in [(&of_old, &mut more_old), (&of_new, &mut more_new)] {
                let found = siblings.iter().find(|(other, _)| *other == key);
                if let Some((_, node)) = found.filter(|_| wanted.len() < AHEAD_NODES)
                    && !wanted.contains(node)
                {
                    wanted.push(*node);
                }
            }
        };
        let young = |(_, node): &&(F::Key, BlockPointer)| node.birth > self.older_root;
        of_old.iter().chain(&of_new).filter(young).for_each(|(key, _)| add(*key));
        let store = self.store;
        for (side, node, more) in [(&self.old, old, &mut more_old), (&self.new, new, &mut more_new)]
        {
            more.retain(|next| side.ahead.iter().all(|(other, _)| other != next));
            more.extend(node);
        }
        let read = |node: BlockPointer| async move { (node, store.read(&node).await) };
        let old_count = more_old.len();
        let found = join_all(more_old.into_iter().chain(more_new).map(read)).await;
        for (at, (node, page)) in found.into_iter().enumerate() {
            let is_wanted = Some(node) == old || Some(node) == new;
            let side = if at < old_count { &mut self.old } else { &mut self.new };
            match page {
                Ok(page) => side.ahead.push((node, page)),
                Err(error) if is_wanted => return Err(error),
                // What needs it reads it again, and gets the error.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

impl<F: Form> Side<F> {
    /// The next nodes, as long as they are of this level.
    fn siblings(&self, level: u8) -> Vec<(F::Key, BlockPointer)> {
        let node = |item: &Item<F>| match item {
            Item::Node(key, node) if node.level == level => Some((*key, *node)),
            _ => None,
        };
        self.items.iter().rev().map_while(node).collect()
    }
}

/// The content of a node, the first item at the end, without what lies wholly before `from`.
fn content<F: Packed, E: NodeError>(
    page: &Page,
    node: &BlockPointer,
    from: F::Key,
) -> Result<Vec<Item<F>>, E> {
    let mut items: Vec<Item<F>> = match Node::<F>::decode(page.as_slice(), node)?.body {
        NodeBody::Leaf(entries) => entries.into_iter().map(Item::Entry).collect(),
        NodeBody::Inner(children) => {
            children.iter().try_for_each(|(_, child)| check_child(node.level, child))?;
            children.into_iter().map(|(key, child)| Item::Node(key, child)).collect()
        }
    };
    let before = items.partition_point(|item| item.key() <= from);
    items.drain(..before.saturating_sub(1));
    items.reverse();
    Ok(items)
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
