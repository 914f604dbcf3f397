//! Clients that share a tree of files, with several calls under way at once, and a checker that
//! says whether what they saw can be.
//!
//! # Theory
//! Every call is noted with when it began and ended. A change is answered with the ctime of what it
//! changed, and the clock under test never gives one time twice: so ctimes are the server's own
//! word for the order of its changes. The checker believes that order only where it fits: of two
//! calls on one object of which one ended before the other began, the first must have the earlier
//! time. It then carries out the acknowledged changes in that order on a model ([`tree`]), where
//! each must succeed, and looks for every answer to a reader in the states that the object had
//! while the reader waited ([`history`]). That is linearizability, with a witness.
//!
//! After a cut ([`restart`]) names and attributes must be those of the acknowledged changes; a cell
//! of a file (256 bytes) must hold what the newest durable write left, or a later one. Calls
//! without an answer (*ghosts*) may have been carried out or not, but not in part.
//!
//! A change that is answered again after its first answer was lost was made, and its client does
//! not know when: the checker tries the moments at which the server's clock was read for it.
//!
//! [`bed`] has the machines, [`trouble`] what goes wrong with their disks, and [`lives`] what a
//! seed makes of them.
//!
//! An object's owner is a number that was never used before, its *tag*: a handle that is ever shown
//! with two owners names two files.
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
pub mod op;
pub mod restart;
#[cfg(sabotage)]
pub mod sabotage;
pub mod tree;
pub mod trouble;
pub mod witness;

pub use client::Client;
pub use op::{Door, Node, Op, Reply};
pub use witness::{End, Shared, Witness};
