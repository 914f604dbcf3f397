//! Locks of files.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::request::{Operation, request};
use crate::words::Words;

/// `GET /locks`: all locks.
#[derive(Debug, Clone, Copy)]
pub struct LocksQuery;

request!(Get "/locks", Read, LocksQuery, () -> LocksInfo);

/// `GET /locks`: locks of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocksInfo {
    /// The grace period runs: only locks from before the restart are granted.
    pub grace: bool,
    /// All locks, by file.
    pub locks: Vec<LockInfo>,
}

/// `POST /locks/clear`: ends all locks of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClearLocks {
    /// The client's address.
    pub address: IpAddr,
    /// The name that it gives itself; without one, all names there.
    #[serde(default)]
    pub client: Option<String>,
}

request!(Post "/locks/clear", Admin, ClearLocks -> ClearedLocks);

impl Operation for ClearLocks {
    fn words(&self) -> String {
        Words::of("locks clear").word(&self.address.to_string()).words(&self.client).text()
    }
}

/// The result of clearing locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClearedLocks {
    /// The number of locks and waiting requests that ended.
    pub ended: usize,
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockInfo {
    /// The file's dataset; empty if it is not in service.
    pub dataset: String,
    /// The file's path in it, if one was found.
    pub file: Option<String>,
    /// The file's number (`ls -i`).
    pub object: u64,
    /// The client, as it names itself.
    pub client: String,
    /// The client's address.
    pub address: IpAddr,
    /// The process there, as the client numbers it.
    pub svid: i32,
    /// The client's further name for the owner.
    pub owner: String,
    /// Its kind.
    pub extent: LockExtent,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 reaches to the end.
    pub length: u64,
    /// `held`, `granting` (the waiting client is being told) or `waiting`.
    pub state: String,
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockExtent {
    /// Excludes exclusive locks.
    Shared,
    /// Excludes all locks.
    Exclusive,
    /// Excludes opening (DOS): bit 0 is reading, bit 1 writing.
    Reservation {
        /// The owner's access.
        access: u32,
        /// The access that others must not have.
        deny: u32,
    },
}
