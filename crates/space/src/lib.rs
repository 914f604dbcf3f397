//! Free space, pure: bitmaps, metaslabs, and the allocator over all data vdevs.
//!
//! Two views of every loaded metaslab are kept apart:
//! - `used`: what the newest root says, with the frees of its txg applied. This is what goes to
//!   disk.
//! - `taken`: what must not be handed out: `used`, what open txgs took, and frees that are held
//!   back.
//!
//! Invariants:
//! - A sector is handed out only if it is in neither view.
//! - A freed sector leaves `used` with its txg and `taken` only once `REWIND_TXGS` further txgs are
//!   on disk, even if it was taken in that same txg (DESIGN, invariant 4).
//! - Nothing here allocates space for its own bookkeeping.

mod allocator;
mod bitmap;
mod metaslab;
#[cfg(test)]
mod tests;

pub use allocator::{Allocator, MetaslabId, SlotWrite, SpaceError, SpaceUse};
pub use bitmap::Bitmap;
