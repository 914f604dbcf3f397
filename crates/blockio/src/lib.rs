//! The world below the pool: disks, clocks, randomness, memory for I/O.
//!
//! The engine reaches its surroundings only through the traits of this crate, so that the simulator
//! can replace all of them: [`Disk`], and [`World`] (clock, randomness, tasks). In service a disk
//! is a [`FileDisk`] and the world a [`TokioWorld`].

mod backing;
mod block;
pub mod buf;
mod discard;
pub mod disk;
pub mod durable;
mod file;
pub mod foreign;
mod open;
mod page_pool;
mod pread;
mod request;
pub mod sabotage;
mod standing;
mod tokio_world;
mod uring;
pub mod world;

pub use backing::BackingKind;
pub use buf::{Filling, Page, PageMut};
pub use disk::{Disk, DiskError, IoFuture};
pub use file::{Engine, FileDisk, Remains};
pub use open::{Access, DiskNumbers, ENGINE_VARIABLE, OpenError, OpenOptions, create_image};
pub use page_pool::pool_bytes;
#[cfg(feature = "permute")]
pub use page_pool::settle;
pub use standing::Standing;
pub use tokio_world::TokioWorld;
pub use world::{World, ms};

/// The unit of every transfer and of every address on a disk, in bytes.
pub const SECTOR_BYTES: usize = 4096;
