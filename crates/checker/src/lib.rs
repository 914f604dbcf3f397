//! Clients that share a tree of files, with several calls under way at once, and a checker that
//! decides whether their answers can be true.
//!
//! # Theory
//! The checker notes when every call began and ended. The answer to a change carries the ctime of
//! the changed object, and the clock under test never gives one time twice. So ctimes are the
//! server's own statement of the order of its changes. The checker accepts that order only where it
//! fits: if one of two calls on one object ended before the other began, it must have the earlier
//! time. It then carries out the acknowledged changes in that order on a model ([`tree`]), where
//! each must succeed. It looks for every answer to a reader in the states that the object had while
//! the reader waited ([`history`]). That is linearizability, with a witness.
//!
//! After a cut ([`restart`]) names and attributes must be those of the acknowledged changes. A cell
//! of a file (256 bytes) must hold what the newest durable write left, or a later one. Calls
//! without an answer (*ghosts*) may have been carried out or not, but not in part.
//!
//! If the first answer to a change was lost, and a repeated call was answered, the change was made,
//! but its client does not know when. The checker tries the moments at which the server's clock was
//! read for that call.
//!
//! [`bed`] has the machines, [`trouble`] the faults of their disks, and [`lives`] the lives of a
//! seed. Beside the clients an administrator makes and destroys datasets, and scrubs (`scrubs`). At
//! the end of some seeds known pages rot, and a scrub must mend and name these (`mended`).
//!
//! An object's owner is a number that was never used before, its *tag*. If a handle ever shows two
//! owners, it names two files.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the checker ends the test that it belongs to"
)]

mod administrator;
pub mod bed;
pub mod client;
pub mod content;
pub mod files_door;
pub mod history;
pub mod lives;
mod mended;
pub mod op;
pub mod restart;
mod scrubs;
pub mod tree;
pub mod trouble;
pub mod witness;

pub use client::Client;
pub use op::{Door, Node, Op, Reply};
pub use witness::{End, Shared, Witness};
