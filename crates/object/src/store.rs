//! The trees' seam on the pool.

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::{BlockPointer, Txg};
use aquifer_pool::{Patience, Pool, PoolError, SyncContext};

use crate::btree::{NodeSink, NodeSize, NodeStore};

impl NodeStore for Pool {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        self.read_node(pointer, Patience::Short).await
    }
}

impl NodeStore for SyncContext {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        self.read_node(pointer).await
    }
}

impl NodeSink for SyncContext {
    fn node_size(&self) -> NodeSize {
        NodeSize::at_most(self.pool().limits().scale.node_bytes)
    }

    fn txg(&self) -> Txg {
        SyncContext::txg(self)
    }

    fn write_node(
        &self,
        kind: BlockKind,
        node: (u8, bool),
        _owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, PoolError> {
        SyncContext::write_node(self, kind, node, page)
    }

    fn free_node(&self, _: NodeOwner, pointer: &BlockPointer) {
        SyncContext::free_node(self, pointer);
    }
}
