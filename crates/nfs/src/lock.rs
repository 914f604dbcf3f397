//! Locks of files: holders, waiters, and messages to clients. Pure: no socket, no clock.
//!
//! ```text
//!  nlm, nsm --> Locks --> table: files --> one file's locks, waiters, shares
//!                 |
//!  daemon <-------+  messages to clients: a queue that it empties
//! ```
//! A lock is a range of bytes of a file, shared or exclusive, of an owner: a process (`svid`, `oh`)
//! of a client (an address and the name that it gives itself). Locks are advisory: READ and WRITE
//! do not know of them. They live in memory. After a restart clients reclaim theirs, in a grace
//! period in which nobody else gets any.
//!
//! Invariants:
//! - No two owners' locks of one file conflict, and an owner's locks do not overlap.
//! - Waiters are served in order. A waiter is passed over only by those that do not conflict with
//!   it. When its turn comes it holds the lock, and then the server tells it. If it cannot be told
//!   or does not want the lock any more, the lock goes to the next.
//! - A client's lock is answered only after the client is on the durable list of clients to tell of
//!   a restart.
//! - The server does not look for deadlocks: clients wait with time limits of their own (NLM's
//!   DEADLCK is a "may").

mod callouts;
mod file;
mod grants;
mod restarts;
mod service;
mod table;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use aquifer_files::FileHandle;

pub use callouts::{Callout, GrantAnswer};
pub use restarts::{Belief, Restart};
pub(crate) use service::Manner;
pub use service::{Claimants, DurableList, Locks, Monitored, Outside};
pub(crate) use table::{Ask, Locked, Shared};

/// A machine that locks files, as it identifies itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client {
    /// The address that its calls come from: no other address can touch its locks.
    pub address: IpAddr,
    /// The name that it gives itself (`caller_name`); behind one address there may be several.
    pub name: Box<[u8]>,
}

impl Client {
    /// The client as a text file keeps it.
    pub fn as_text(&self) -> Client {
        let name = String::from_utf8_lossy(&self.name).into_owned();
        Client { address: self.address, name: name.into_bytes().into() }
    }
}

/// The owner of a lock: a process of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The machine.
    pub client: Arc<Client>,
    /// The process, as the client numbers it.
    pub svid: i32,
    /// The client's further name for it (`oh`).
    pub oh: Box<[u8]>,
}

/// Bytes of a file from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub first: u64,
    /// Last byte; the largest number stands for the end of the file, wherever that is.
    pub last: u64,
}

impl Range {
    const WHOLE: Range = Range { first: 0, last: u64::MAX };

    /// `length` bytes from `offset`; length 0 reaches to the end. `None` beyond 64 bits.
    pub fn new(offset: u64, length: u64) -> Option<Range> {
        let last = match length.checked_sub(1) {
            Some(more) => offset.checked_add(more)?,
            None => u64::MAX,
        };
        Some(Range { first: offset, last })
    }

    /// Bytes; 0 if it reaches to the end.
    pub fn length(&self) -> u64 {
        match self.last {
            u64::MAX => 0,
            last => last - self.first + 1,
        }
    }

    fn overlaps(&self, other: &Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the two together are one range.
    fn touches(&self, other: &Range) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// A lock, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// The file.
    pub file: FileHandle,
    /// Its owner.
    pub owner: Arc<Owner>,
    /// Its kind and range.
    pub kind: LockKind,
    /// Its state.
    pub state: LockState,
}

/// The kind of a lock, with the range that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Excludes exclusive locks of others.
    Shared(Range),
    /// Excludes all locks of others.
    Exclusive(Range),
    /// Excludes opening by others (DOS): bit 0 is reading, bit 1 writing.
    Share {
        /// The owner's access.
        access: u32,
        /// The access that others must not have.
        deny: u32,
    },
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Held.
    Held,
    /// Held for a waiter that has not confirmed it yet.
    Granting,
    /// Waited for.
    Waiting,
}
