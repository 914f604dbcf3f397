//! The seam to the store of nodes: the pool, or a store in memory for the tests.

use std::future::Future;

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::{BlockPointer, FormatError, Txg};

use super::pack::NodeSize;

/// Nodes that each decode, but do not make a tree together: damage that a checksum cannot see (a
/// bug wrote it), or entries that no tree can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A root higher than any tree may be, or a tree about to grow beyond that.
    #[error("tree: a root of level {level} is too high")]
    TooDeep {
        /// The level found or needed.
        level: u8,
    },
    /// A child is not exactly one level below its parent.
    #[error("tree: a node of level {parent} points at one of level {child}")]
    ChildLevel {
        /// Level of the node that points.
        parent: u8,
        /// Level that its pointer claims.
        child: u8,
    },
    /// An inner node without children.
    #[error("tree: a node of level {level} has no child")]
    MissingChild {
        /// Its level.
        level: u8,
    },
    /// A node holds keys outside the range that its parent gives it.
    #[error("tree: a node of level {level} holds keys outside its range")]
    KeyRange {
        /// Its level.
        level: u8,
    },
    /// Entries that must stay together do not fit one node.
    #[error("tree: {bytes} bytes of inseparable entries")]
    Inseparable {
        /// Bytes that they take.
        bytes: usize,
    },
}

/// The errors of reading a tree.
pub trait NodeError: From<FormatError> + From<TreeError> {}

impl<E: From<FormatError> + From<TreeError>> NodeError for E {}

/// Where nodes are read.
pub trait NodeStore: Send + Sync {
    /// Errors here and in the trees.
    type Error: NodeError + Send + 'static;

    /// The verified bytes of the node that `pointer` names, from memory if they are there.
    fn read(
        &self,
        pointer: &BlockPointer,
    ) -> impl Future<Output = Result<Page, Self::Error>> + Send;
}

/// Where a sync writes and frees nodes. Allocation happens in memory, so no call here waits.
pub trait NodeSink: NodeStore {
    /// The txg that is being synced: birth and `written` of every node written here. No entry of a
    /// tree is younger than the txg that writes it. So a node's birth is at least as great as all
    /// births below it.
    fn txg(&self) -> Txg;

    /// How large nodes become.
    fn node_size(&self) -> NodeSize {
        NodeSize::FULL
    }

    /// Allocates a place for a node, takes the checksum of `page`, queues the write, and returns
    /// the pointer, of this kind and level. From then on `read` knows the node.
    fn write_node(
        &self,
        kind: BlockKind,
        level: u8,
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, Self::Error>;

    /// The tree being written no longer refers to this node. The implementor knows whether a
    /// snapshot still does.
    fn free_node(&self, pointer: &BlockPointer);
}
