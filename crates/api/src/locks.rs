//! Locks of files.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// `GET /locks`: locks of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksInfo {
    /// The daemon has just started: only locks from before are granted.
    pub grace: bool,
    /// All locks, by file.
    pub locks: Vec<LockInfo>,
}

/// `POST /locks/clear`: ends all locks of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearLocks {
    /// Where the client is.
    pub address: IpAddr,
    /// The name that it gives itself; without one, all names there.
    #[serde(default)]
    pub client: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedLocks {
    /// How many locks and wishes ended.
    pub ended: usize,
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    /// The file's dataset; empty if it is not in service.
    pub dataset: String,
    /// The file's path in it, if one was found.
    pub file: Option<String>,
    /// The file's number (`ls -i`).
    pub object: u64,
    /// The client, as it names itself.
    pub client: String,
    /// Where it is.
    pub address: IpAddr,
    /// The process there, by the client's own count.
    pub svid: i32,
    /// What else the client names the owner by.
    pub owner: String,
    /// What it excludes.
    pub extent: LockExtent,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 reaches to the end.
    pub length: u64,
    /// `held`, `granting` (the client who waited is being told) or `waiting`.
    pub state: String,
}

/// What a lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockExtent {
    /// Exclusive locks.
    Shared,
    /// All locks.
    Exclusive,
    /// Opening (DOS): bit 0 is reading, bit 1 writing.
    Reservation {
        /// What the owner does.
        access: u32,
        /// What others must not do.
        deny: u32,
    },
}
