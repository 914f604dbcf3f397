//! The world below the pool: disks, clocks, randomness, memory for I/O.
//!
//! Everything the engine asks of its surroundings passes through the traits of this crate, so that
//! the simulator can stand in for all of it: [`Disk`], and [`World`] (clock, randomness, tasks).

pub mod buf;
pub mod disk;
pub mod world;

pub use buf::{Page, PageMut};
pub use disk::{Disk, DiskError, IoFuture};
pub use world::World;

/// The unit of every transfer and of every address on a disk, in bytes.
pub const SECTOR_BYTES: usize = 4096;
