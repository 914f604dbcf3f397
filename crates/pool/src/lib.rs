//! One consistent state per txg: transaction groups, the intent log, import, and the cache.
//!
//! # Invariants
//! - On disk there is one newest root, named by the newest uberblock; everything that it reaches is
//!   whole on every leaf that no uberblock names outdated.
//! - Every acknowledged change is in that root, or in a durable batch of the intent log that the
//!   root's head leads to.
//! - No sector that this root or the two before it reach is written (see `aquifer_space`). The same
//!   holds for sectors that are being read under an older root ([`Pool::reading`]).
//!
//! # The path of a change
//! [`Pool::admit`] reserves memory, space and log for the worst case, and waits its turn. Then
//! [`Pool::hold`] enters the open txg, without any await until the hold is dropped. Under the hold
//! the layer above changes its overlays and appends a record
//! ([`IntentLog::append`](intent_log::IntentLog::append)). The resulting ticket completes when the
//! record is durable. Later the txg closes, the layer above writes its changes through a
//! [`SyncContext`], and one uberblock makes it real.
//!
//! # Why a power cut at any point is safe
//! Before the uberblock, the old root is still in force. Its blocks are untouched, and its log head
//! leads to every durable batch. After it, the new root holds all records up to its txg. The
//! uberblock goes to its own ring slot: if it is torn, the previous one still verifies.

mod acts;
mod bitmaps;
pub mod block;
mod caches;
mod capacity;
mod commit;
pub mod create;
mod error;
mod examine;
mod flow;
mod host;
pub mod import;
pub mod intent_log;
mod limits;
mod lost;
mod memory;
mod pace;
mod patience;
mod piece;
mod pool;
mod readers;
mod record;
mod resilver;
mod silence;
mod space;
mod status;
mod sums;
mod suspend;
pub mod sync;
pub mod transform;
mod tree;
mod trim;
mod txg;
mod walk;

pub use acts::Drilled;
pub use aquifer_arc::{ClassStats as CacheClassStats, Memory, Share, Stats as CacheStats};
pub use aquifer_arc::{Owner, Room, Shelf, Verdict};
pub use aquifer_l2arc::CacheStats as CacheDiskStats;
/// The state in which a leaf's status shows it.
pub use aquifer_vdev::LeafState;
pub use block::Reader;
pub use caches::CacheStatus;
pub use commit::UberblockState;
pub use error::{ActError, Contradiction, ImportError, PoolError, State};
pub use examine::{Examined, Lost, Repaired, Watch};
pub use limits::{Limits, Scale};
pub use lost::LostBlocks;
pub use memory::PoolMemory;
pub use patience::Patience;
pub use pool::{BoxFuture, Pool, Replay, Roots, Trees};
pub use readers::Reading;
pub use resilver::ResilverError;
pub use resilver::progress::ResilverStatus;
pub use silence::SILENT_AFTER;
pub use status::{LeafFreeSpace, LeafStatus, PoolStatus, SpareStatus, VdevStatus};
pub use suspend::Whole;
pub use sync::SyncContext;
pub use sync::pace::{Parts, Turns};
pub use trim::{FreeWork, FreeWorkError, FreeWorkState, FreeWorkStatus};
pub use txg::{Admission, Demand, Lane, SpaceClass, TxHold};
pub use walk::{Span, Visitor};
