//! What a walk over everything that roots reach comes upon.
//!
//! The layer above knows what its trees hold, the pool knows where that lies. A walk passes over
//! what is not younger than a txg: a node is born no earlier than all that lies below it.

use std::ops::ControlFlow;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::extent::Extent;

use crate::pool::BoxFuture;

/// Takes each block of a walk, and says whether the walk goes on.
pub trait Visitor: Send + Sync {
    /// A node of a tree, before what lies below it.
    fn node<'a>(&'a self, pointer: &'a BlockPointer) -> BoxFuture<'a, ControlFlow<()>>;

    /// An extent of a file.
    fn extent<'a>(&'a self, extent: &'a Extent) -> BoxFuture<'a, ControlFlow<()>>;
}
