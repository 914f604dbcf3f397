//! The seam to the store of nodes: the pool, or a store in memory for the tests.

use std::future::Future;

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
pub use aquifer_ondisk::corruption::TreeError;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::{BlockPointer, FormatError, Txg};

use super::pack::NodeSize;

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
    /// the pointer, of this kind and level. From then on `read` knows the node. With the level
    /// comes whether the node is known to be a whole tree.
    fn write_node(
        &self,
        kind: BlockKind,
        node: (u8, bool),
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, Self::Error>;

    /// Whether this node, of a tree that is taken down, and all below it belong to another tree.
    fn is_of_another(&self, _pointer: &BlockPointer) -> bool {
        false
    }

    /// The tree being written, of this owner, no longer refers to this node. The implementor knows
    /// whether a snapshot still does.
    fn free_node(&self, owner: NodeOwner, pointer: &BlockPointer);
}
