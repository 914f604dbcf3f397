//! Nodes and extents that a walk over everything that roots reach comes upon.
//!
//! The layer above knows what its trees hold, the pool knows where that lies. A walk passes over
//! what is not younger than a txg: a node is born no earlier than all that lies below it.
//!
//! A walk goes in pieces, each over the newest root of its time, so that no root is held for long.
//! The next piece begins at the position where the last one ended. See [`WalkPosition`] for why
//! nothing that stays is missed.

use std::ops::ControlFlow;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::scrub::WalkPosition;

use crate::error::PoolError;
use crate::patience::Patience;

/// Everything that lies below a node: from one position up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first position.
    pub from: WalkPosition,
    /// The position after the last.
    pub to: WalkPosition,
}

/// Takes each block of a piece of a walk, and says whether the piece goes on. It may be shown some
/// more after it said no: it takes them too.
pub trait Visitor: Send {
    /// A node of a tree, before what lies below it. `unread`: why no copy of it can be read. The
    /// walk then passes over what lies below.
    fn node(
        &mut self,
        pointer: &BlockPointer,
        unread: Option<&PoolError>,
        span: &Span,
    ) -> ControlFlow<()>;

    /// Whether a node is known to be unreadable, and why. Then the walk does not read it once more.
    fn known_unreadable(&self, _pointer: &BlockPointer) -> Option<PoolError> {
        None
    }

    /// How long the walk tries to read a node.
    fn patience(&self) -> Patience {
        Patience::Long
    }

    /// An extent of a file.
    fn extent(&mut self, extent: &Extent, at: &WalkPosition) -> ControlFlow<()>;
}
