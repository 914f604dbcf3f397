//! Free space, pure: bitmaps, metaslabs, and the allocator over all data vdevs.
//!
//! Every loaded metaslab has two views:
//! - `used`: the newest root's sectors, with the frees of its txg applied. This view goes to disk.
//! - `taken`: all that may not be handed out: `used`, sectors that open txgs took, and held-back
//!   frees.
//!
//! Invariants:
//! - A sector is handed out only if it is in neither view.
//! - A freed sector leaves `used` with its txg. It leaves `taken` only once `REWIND_TXGS` further
//!   txgs are on disk, even if it was taken in that same txg (`docs/invariants.md`).
//! - Nothing here allocates space for its own bookkeeping.

mod allocator;
mod bitmap;
mod metaslab;
#[cfg(test)]
mod tests;

pub use allocator::{Allocator, MetaslabId, SlotWrite, SpaceError, SpaceUse};
pub use bitmap::Bitmap;
