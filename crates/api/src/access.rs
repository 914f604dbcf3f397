//! Who may do what: roles, and the tokens that have them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a caller may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read the counters, as Prometheus does.
    Metrics,
    /// Read everything.
    Read,
    /// Do what loses nothing and lets nobody in.
    Operator,
    /// Do everything.
    Admin,
}

impl Role {
    /// From the least to the greatest.
    pub const ALL: [Role; 4] = [Role::Metrics, Role::Read, Role::Operator, Role::Admin];

    /// As the API and the command line write it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Read => "read",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What it is called: letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it ends, in seconds since 1970; without it, never.
    #[serde(default)]
    pub expires_s: Option<u64>,
}

/// `POST /tokens/{name}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RotateToken {
    /// For how many seconds the one before still holds.
    #[serde(default)]
    pub keep_s: u64,
    /// When the new one ends, in seconds since 1970; without it, when the one before would have.
    #[serde(default)]
    pub expires_s: Option<u64>,
}

/// A new token: the only answer that holds it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenMade {
    /// What to say of it from now on.
    #[serde(flatten)]
    pub info: TokenInfo,
    /// The token.
    pub token: String,
}

impl fmt::Debug for TokenMade {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

/// A token, in `GET /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made or rotated, in seconds since 1970.
    pub made_s: u64,
    /// When it ends.
    pub expires_s: Option<u64>,
    /// It has ended.
    pub expired: bool,
    /// Until when the one before it holds, if it still does.
    pub earlier_until_s: Option<u64>,
}
