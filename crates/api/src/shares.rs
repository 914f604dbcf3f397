//! Exports, and who may use them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// One export, in `GET /shares`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareInfo {
    /// The path that clients mount.
    pub path: String,
    /// Full name of the dataset.
    pub dataset: String,
    /// All options in force, as `sharenfs` takes them.
    pub options: String,
    /// Where the dataset has them from.
    pub source: String,
    /// The hosts that they name, as they are known now.
    pub hosts: Vec<HostInfo>,
    /// Why it is not exported.
    pub problem: Option<String>,
    /// Whom it lets in that its owner may not think of.
    #[serde(default)]
    pub risks: Vec<String>,
}

/// What is known of a host that an export names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Its addresses, by the last good answer.
    pub addresses: Vec<IpAddr>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// `GET /shares/why?host=..&path=..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareQuery {
    /// A client's address or name.
    pub host: String,
    /// A path as clients mount it, or a dataset.
    pub path: String,
}

/// What a host may do at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareWhy {
    /// Who.
    pub host: String,
    /// Where.
    pub path: String,
    /// One for each address of the host.
    pub answers: Vec<ShareAnswer>,
}

/// What a client may do at a path, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareAnswer {
    /// The client.
    pub address: IpAddr,
    /// What it may do.
    pub access: ShareAccess,
    /// The export that covers the path.
    pub export: Option<String>,
    /// Its dataset.
    pub dataset: Option<String>,
    /// The dataset's property.
    pub sharenfs: Option<String>,
    /// Where the dataset has it from.
    pub source: Option<String>,
    /// The rule that decided; none, if no rule names the client.
    pub rule: Option<String>,
    /// The reasons, for people; the one that decided first.
    pub why: Vec<String>,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareAccess {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
    /// Nothing.
    Refused,
    /// Nothing as yet: hosts are still to be looked up.
    Waits,
}
