//! Where copies live: leaves, mirrors, labels.
//!
//! Invariants:
//! - Every byte that leaves this crate upwards was accepted by the caller's verifier (a checksum
//!   kept apart from the bytes), or is sealed itself (labels, uberblocks).
//! - A leaf whose write or flush failed is never written, flushed or read again in this import. It
//!   has *failed*, and is *outdated* once an uberblock names it so. A failed flush is never
//!   retried.
//! - A bad copy is rewritten from a good one only while its leaf is online.
//! - A leaf that does not answer a write or flush fails like one that gave an error, if another one
//!   that holds everything has answered. The last of these never fails so: all wait for it.
//! - A leaf whose reads fail too often fails as well, unless it is the last that holds everything.
//! - I/O that a disk was given is never dropped: nobody may wait for it any more, but it is counted
//!   until the disk has answered. (Reads count no more if their reader is cancelled.)
//! - A write to sectors that are held (`leaf::held`) reaches the disk after what holds them.

mod examine;
mod io;
pub mod label_io;
mod leaf;
pub mod pace;
mod ticks;
mod vdev;

pub use examine::{Copies, Part};
pub use io::{IoCount, IoCounters, IoCounts, IoKind};
pub use leaf::{Discarded, Held, Leaf, LeafCounters, LeafState, LeafTrouble};
pub use pace::Slow;
pub use vdev::{Good, ReadError, Vdev, VdevLost};
