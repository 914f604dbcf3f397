//! The gate of an object that shares with others what was born up to a floor of its own: of what a
//! file was before it was rolled back, and of the tails that were cut off since.
//!
//! Invariants:
//! - What was born up to the floor is not read: the file may have given it up, and its space may be
//!   another's by now.
//! - If there is a floor, the bytes above it count for nobody.

use aquifer_blockio::Page;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::{BlockPointer, Space, Txg};
use aquifer_pool::PoolError;

use super::Gate;
use crate::btree::{NodeSink, NodeSize, NodeStore};
use crate::extent_tree::FreedExtent;

/// See the module's head. With a floor of 0, all is the object's own.
#[derive(Debug)]
pub struct Above<'g, 'a> {
    gate: &'g Gate<'a>,
    floor: Txg,
}

impl<'g, 'a> Above<'g, 'a> {
    /// That of an object with this floor.
    pub fn new(gate: &'g Gate<'a>, floor: Txg) -> Self {
        Above { gate, floor }
    }

    /// The object no longer refers to these extents. Returns as [`Gate::free_extents`]; with a
    /// floor, nothing counts.
    pub fn free_extents(&self, owner: NodeOwner, freed: &[FreedExtent]) -> Space {
        if self.floor == Txg(0) {
            return self.gate.free_extents(owner, freed);
        }
        for extent in freed.iter().filter(|extent| extent.birth > self.floor) {
            self.gate.free_extent(owner, extent);
        }
        Space::default()
    }
}

impl NodeStore for Above<'_, '_> {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        NodeStore::read(self.gate, pointer).await
    }
}

impl NodeSink for Above<'_, '_> {
    fn node_size(&self) -> NodeSize {
        NodeSink::node_size(self.gate)
    }

    fn txg(&self) -> Txg {
        NodeSink::txg(self.gate)
    }

    fn write_node(
        &self,
        kind: BlockKind,
        node: (u8, bool),
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, PoolError> {
        NodeSink::write_node(self.gate, kind, node, owner, page)
    }

    fn is_of_another(&self, pointer: &BlockPointer) -> bool {
        pointer.birth <= self.floor || self.gate.is_of_another(pointer)
    }

    fn free_node(&self, owner: NodeOwner, pointer: &BlockPointer) {
        if pointer.birth > self.floor {
            self.gate.free_node(owner, pointer);
        }
    }
}
