//! NFS on the wire: sockets around [`aquifer_nfs`].
//!
//! One runtime per core. A client's connection goes to the runtime with the fewest, and stays
//! there. A request that can be answered at once runs to completion on the thread that read it.
//! Others wait as futures inside their connection's task, and the replies of a batch leave in one
//! write.
//!
//! One more runtime, the lobby, accepts all connections. It serves those whose calls no export
//! takes, and does work that is not urgent (datagrams, the portmapper, calls to status monitors).
//! Its thread yields to all others ([`precedence`]). A connection there may become a client's,
//! because it has proven something or exports have changed. Once it is idle, it moves to a client's
//! runtime.
//!
//! Invariants:
//! - Memory for requests and replies is taken from a budget before it is used, beside a small
//!   allowance per connection ([`limits`] adds it up). A client that does not read its replies, or
//!   sends a record in small pieces, delays others for less than a second: then its connection is
//!   closed.
//! - A request that has begun runs to its end, even if its client has gone: a lost connection never
//!   leaves a file in the middle of a change.
//! - No request waits for DNS: names of hosts are looked up in the background ([`Names`]).
//! - A panic closes the connection of its request, and no other.

mod budget;
pub mod config;
mod connection;
mod crew;
mod datagrams;
mod doors;
pub mod limits;
mod listen;
mod locks;
mod names;
mod peers;
pub mod places;
mod portmap_service;
pub mod precedence;
mod server;
mod stats;
mod tls;
mod worker;

pub use config::{Config, Portmap};
pub use locks::{LockKeeper, answers};
pub use names::{KnownHost, Names, NamesConfig, dns};
pub use portmap_service::PortmapState;
pub use server::{Observer, Server, StartError, Stopped};
pub use stats::Load;
pub use tls::{KeyFiles, TlsError};
