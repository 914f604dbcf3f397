//! The one copy-on-write B+tree of the pool.
//!
//! # Theory
//! A tree is a root pointer, or none. Nodes are immutable; a change writes new nodes along the
//! paths it touches and gives a new root, while readers of the old one go on undisturbed. What a
//! node holds is a [`Form`](aquifer_ondisk::tree_node::Form); every form shares this code.
//!
//! **Shape.** All leaves are at level 0. A child's key in its parent is the key of the first entry
//! below it. A search takes the last child whose key is not above what it looks for, or the first
//! child: so the leaves' ranges, each from its key to the next leaf's, part the key space without
//! gaps, across parents too, whatever happens to single keys. When a node's first entry goes, its
//! key rises, and the range between the old and the new key falls to its left neighbour without
//! that one being touched. On the leftmost path the first child's key is a mere lower bound:
//! KEY_MIN where the node was written as leftmost, possibly more where it became leftmost because
//! all left of it went away; nothing consults it. No node is empty; the root of an empty tree is
//! `None`, and a root with one child gives way to that child.
//!
//! **Change.** [`merge`] takes sorted changes and passes the tree once (`rewrite`): a `walk`
//! reads the touched nodes in key order, many ahead; each changed leaf is repacked (`pack`) and
//! written, entries that stand being copied as bytes (`body`); the pointers that this replaces in
//! its parent gather in a `frame`, which, when its last touched child is through, is repacked and
//! written in turn. Nodes that shrink below a quarter are joined with a neighbour under the same
//! parent. What did not change keeps its pointer bit for bit, up to the root.
//!
//! **Failure.** Old nodes are freed after the last new one is written (`journal`): a change is
//! whole or did not happen. A node that is only read to join a light neighbour with it may be
//! damaged: then the neighbour stays light. [`probe`] tells which keys a damaged node keeps from
//! being changed. A crash needs no argument of its own: until an uberblock names a txg
//! record whose root leads to the new nodes, only the old ones are reachable, and they are
//! neither overwritten nor, until two txgs later, reused.
//!
//! **Trust.** The store verifies a node's bytes against its pointer. Beyond that every descent
//! checks that a child is of its form and one level below its parent, and every change that the
//! keys found are within the range the parent gave; what does not fit is an `Err`.

mod body;
mod compare;
mod drain;
mod forms;
mod frame;
mod journal;
mod merge;
mod pack;
mod read;
mod rewrite;
mod split;
mod store;
#[cfg(test)]
mod tests;
mod view;
mod walk;

pub use compare::{Compare, Difference, compare};
pub use drain::{Drained, drain};
pub use forms::{Packed, TIE_REACH};
pub use merge::merge;
pub use pack::NodeSize;
pub use read::{Reach, Scan, collect_range, first_from, last, lookup, probe};
pub use split::{Halves, split_off};
pub use store::{NodeError, NodeSink, NodeStore, TreeError};

pub(crate) use body::Packing;
pub(crate) use pack::{Growth, tie_end};
pub(crate) use rewrite::{Batch, Leaf, rewrite};
pub(crate) use split::split_with;
pub(crate) use view::{Entries, RawEntry};
