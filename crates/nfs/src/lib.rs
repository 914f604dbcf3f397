//! NFS and its companions: bytes in, reply out.
//!
//! The path of a call: [`Nfs::answer`] decodes it and hands it to its program. A procedure of
//! [`v3`] asks the export table whether this client may name that file, and as which user. It calls
//! one function of `aquifer-files`, and reports the result in the protocol's terms.
//!
//! Invariants:
//! - No socket, no clock, no task: the caller brings a record and a peer, and sends the reply.
//! - A handle is worth nothing by itself: every call passes the export table, even from a client
//!   that mounted long ago.
//! - Any bytes give a reply or [`Unanswered`], never a panic.

mod access;
mod attributes;
mod counters;
mod export;
pub mod limits;
pub mod lock;
mod mount;
mod network;
mod nlm;
mod nsm;
pub mod proto;
mod refusals;
mod security;
mod server;
mod status;
mod together;
pub mod traffic;
mod v3;
mod volume;

pub use access::{Access, Addresses, Client, Entry, HostAddresses, Verdict, Whom};
pub use aquifer_files::site;
pub use counters::Counters;
pub use export::{
    ANONYMOUS, Explained, Explanation, Export, ExportError, Exports, Refusal, Squash,
};
pub use network::{Network, NetworkError};
pub use refusals::Why;
pub use security::{Security, Xprtsec};
pub use server::{Nfs, Origin, Unanswered, write_data};
pub use together::{Answered, PagedWrite};
pub use volume::{Root, Volume};
