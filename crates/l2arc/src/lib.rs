//! The second-level read cache: copies of blocks on a disk that answers sooner than those of the
//! pool.
//!
//! What clients read from the pool's disks is written to the cache disk, in chunks, round and
//! round. So it stays longer than in memory, and over restarts. Only an index is in memory.
//!
//! Invariants:
//! - Nothing here is believed. Who reads checks the content as that of any copy, by what names the
//!   block; what does not verify is forgotten and read from the pool. So no loss, no rot, no past
//!   of the pool and no mistake here can give a client wrong bytes.
//! - Nothing waits for a write to it: not a client, not a commit. What it cannot take in time is
//!   passed over.
//! - A disk that does not answer costs a read a tenth of a second, and after some of them nothing:
//!   it is left alone.
//! - Index and blocks that wait have a bounded size, and are charged.

mod disk;
mod feed;
mod index;

pub use disk::{CacheDisk, CacheStats, Wanted};
