//! Roles: rights of callers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rights of a caller. Each role has the rights of those before it; what [`Role::Receive`] and
/// [`Role::Send`] may do besides, of the others only [`Role::Admin`] may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read the counters, as Prometheus does.
    Metrics,
    /// Receive streams into copies that stand by, and see what they need for that. For the server
    /// that a copy comes from.
    Receive,
    /// Let copies of some datasets be fetched: see them, have snapshots taken for that, and read
    /// these. For the server that fetches copies from this one.
    Send,
    /// Read everything.
    Read,
    /// Every act that loses no data and admits nobody.
    Operator,
    /// Every act.
    Admin,
}

impl Role {
    /// From the least to the greatest.
    pub const ALL: [Role; 6] =
        [Role::Metrics, Role::Receive, Role::Send, Role::Read, Role::Operator, Role::Admin];

    /// The name in the API and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Receive => "receive",
            Role::Send => "send",
            Role::Read => "read",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Whether a token of this role may count for some datasets alone: its acts are on datasets.
    pub fn may_be_scoped(self) -> bool {
        matches!(self, Role::Receive | Role::Send | Role::Read | Role::Operator)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
