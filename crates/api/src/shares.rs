//! Exports, and their clients.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::request::request;

/// `GET /shares`: exports.
#[derive(Debug, Clone, Copy)]
pub struct SharesQuery;

request!(Get "/shares", Read, SharesQuery, () -> Vec<ShareInfo>);

/// One export, in `GET /shares`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShareInfo {
    /// The path that clients mount.
    pub path: String,
    /// Full name of the dataset.
    pub dataset: String,
    /// All options in force, as `sharenfs` takes them.
    pub options: String,
    /// Where the dataset gets them from.
    pub source: String,
    /// The known state of the hosts that they name.
    pub hosts: Vec<HostInfo>,
    /// The reason why it is not exported.
    pub problem: Option<String>,
    /// Clients that it admits although its owner may not expect that.
    #[serde(default)]
    pub risks: Vec<String>,
}

/// The known state of a host that an export names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Its addresses, by the last successful lookup.
    pub addresses: Vec<IpAddr>,
    /// The problem with it.
    pub problem: Option<String>,
}

/// `GET /shares/why?host=..&path=..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShareQuery {
    /// A client's address or name.
    pub host: String,
    /// A path as clients mount it, or a dataset.
    pub path: String,
}

request!(Get "/shares/why", Read, ShareQuery -> ShareWhy);

/// A host's rights at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShareWhy {
    /// The host.
    pub host: String,
    /// The path.
    pub path: String,
    /// One for each address of the host.
    pub answers: Vec<ShareAnswer>,
}

/// A client's rights at a path, and the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShareAnswer {
    /// The client.
    pub address: IpAddr,
    /// Its rights.
    pub access: ShareAccess,
    /// The export that covers the path.
    pub export: Option<String>,
    /// Its dataset.
    pub dataset: Option<String>,
    /// The dataset's property.
    pub sharenfs: Option<String>,
    /// Where the dataset gets it from.
    pub source: Option<String>,
    /// The rule that decided; `None` if no rule names the client.
    pub rule: Option<String>,
    /// The reasons, for people; the decisive one first.
    pub why: Vec<String>,
}

/// The rights of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ShareAccess {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
    /// None.
    Refused,
    /// None yet: host names have not been looked up.
    Waits,
}
