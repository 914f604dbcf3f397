//! The one copy-on-write B+tree of the pool.
//!
//! # Theory
//! A tree is a root pointer, or none. Nodes are immutable. A change writes new nodes along the
//! paths that it touches and returns a new root; readers of the old one go on undisturbed. The
//! content of a node is a [`Form`](aquifer_ondisk::tree_node::Form); every form shares this code.
//!
//! **Shape.** All leaves are at level 0. A child's key in its parent is the key of the first entry
//! below it. A search takes the last child whose key is not above the wanted key, or else the first
//! child. So the leaves' ranges, each from its key to the next leaf's, divide the key space without
//! gaps, across parents too, whatever happens to single keys. When a node's first entry goes, its
//! key rises. The range between the old and the new key falls to its left neighbour, which is not
//! touched. On the leftmost path the first child's key is a mere lower bound. It is KEY_MIN where
//! the node was written as leftmost, and possibly more where it became leftmost because all left of
//! it went away. No search consults it. No node is empty; the root of an empty tree is `None`, and
//! a root with one child gives way to that child.
//!
//! **Change.** [`merge`] takes sorted changes and passes the tree once (`rewrite`). A `walk` reads
//! the touched nodes in key order, many ahead. Each changed leaf is repacked (`pack`) and written;
//! unchanged entries are copied as bytes (`body`). The pointers that this replaces in its parent
//! gather in a `frame`. After its last touched child the frame is repacked and written in turn.
//! Nodes that shrink below a quarter are joined with a neighbour under the same parent. Unchanged
//! nodes keep their pointers bit for bit, up to the root.
//!
//! **Failure.** Old nodes are freed after the last new one is written (`journal`): a change is
//! whole or did not happen. A node may be damaged that is only read to join a light neighbour with
//! it: then the neighbour stays light. [`probe`] says which keys cannot change because of a damaged
//! node. A crash needs no argument of its own. Until an uberblock names a txg record whose root
//! leads to the new nodes, only the old ones are reachable. They are never overwritten, and are
//! reused only two txgs later.
//!
//! **Trust.** The store verifies a node's bytes against its pointer. In addition, every descent
//! checks that a child is of its form and one level below its parent. Every change checks that the
//! keys found are within the range that the parent gave. A violation is an `Err`.

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

pub use compare::{Compare, Difference, compare, compare_from};
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
