//! NFS on the wire: sockets around [`aquifer_nfs`].
//!
//! One runtime per core. A client's connection is handed to the runtime with the fewest and stays
//! there; a request that can be answered at once runs to completion on the thread that read it,
//! others wait as futures inside their connection's task, and the replies of a batch leave in one
//! write.
//!
//! One runtime more, the lobby, accepts all connections and serves those that no export takes calls
//! of, and what needs no haste (datagrams, the portmapper, calls to status monitors). Its thread
//! yields to all others ([`precedence`]). Once a connection is idle there and its calls may be
//! taken, since it has proven something or exports have changed, it goes over to a client's place.
//!
//! Invariants:
//! - Memory for requests and replies is taken from a budget before it is used, beside a small
//!   allowance per connection ([`limits`] adds it up). Who does not read his replies, or sends a
//!   record in drops, holds up others for less than a second: then his connection is closed.
//! - A request that has begun runs to its end, also if its client has gone: files are never left
//!   in the middle of a change by a lost connection.
//! - No request waits for DNS: names of hosts are looked up in the background ([`Names`]).
//! - A panic closes the connection whose request it happened in, and no other.

mod budget;
pub mod config;
mod connection;
mod crew;
mod datagrams;
pub mod limits;
mod listen;
mod locks;
mod names;
mod peers;
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
