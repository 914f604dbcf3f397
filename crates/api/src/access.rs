//! Sessions, and tokens with their rights.

use std::fmt;

use aquifer_meter::time::text_s;
use serde::{Deserialize, Serialize};

use crate::names::DatasetName;
use crate::request::{On, Operation, request};
use crate::role::Role;
use crate::words::Words;

/// `POST /session`: begins a session of a browser. The answer sets a cookie.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// A token.
    pub token: String,
}

impl fmt::Debug for LogIn {
    /// Formats it without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogIn")
    }
}

/// `GET /session`: the caller.
#[derive(Debug, Clone, Copy)]
pub struct SessionQuery;

request!(Get "/session", Read, SessionQuery, () -> SessionInfo);

/// `GET /session`: the caller, as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionInfo {
    /// As in the history: `token NAME from ADDRESS`, or `uid 0`.
    pub caller: String,
    /// Its role.
    pub role: Role,
    /// The datasets for which its token counts, with what lies below them; none: for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetName>,
    /// The server's host name.
    pub host: String,
    /// Version of the software.
    pub version: String,
    /// The commit that it was built from, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Its name: letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// When it expires, in seconds since 1970; without this, never.
    #[serde(default)]
    pub expires_s: Option<u64>,
    /// SHA-256 fingerprints of client certificates, in hexadecimal: it counts only on a connection
    /// that shows one of them. None: on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Full names of datasets: it counts for these and what lies below them alone. None: for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetName>,
}

request!(Post "/tokens", Admin, CreateToken -> TokenMade);

impl Operation for CreateToken {
    fn words(&self) -> String {
        let CreateToken { name, role, expires_s, certificates, datasets } = self;
        Words::of("token create")
            .option("--role", Some(role.to_string()))
            .option("--expires", expires_s.map(text_s))
            .options("--certificate", certificates.iter().cloned())
            .options("--dataset", datasets.iter().map(DatasetName::to_string))
            .word(name)
            .text()
    }
}

/// `POST /tokens/{name}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateToken {
    /// For how many seconds the previous token remains valid.
    #[serde(default)]
    pub keep_s: u64,
    /// When the new token expires, in seconds since 1970; without this, when the previous one would
    /// have.
    #[serde(default)]
    pub expires_s: Option<u64>,
    /// Client certificates of the new token, as in [`CreateToken`]; without this, those of the
    /// previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Vec<String>>,
}

request!(Post "/tokens/{name}/rotate", Admin, On<RotateToken> -> TokenMade);

impl Operation for On<RotateToken> {
    fn words(&self) -> String {
        let RotateToken { keep_s, expires_s, certificates } = &self.request;
        Words::of("token rotate")
            .option("--keep", (*keep_s > 0).then(|| format!("{keep_s}s")))
            .option("--expires", expires_s.map(text_s))
            .options("--certificate", certificates.iter().flatten().cloned())
            .word(&self.name)
            .text()
    }
}

/// `POST /tokens/{name}/bind`: the token stays, and counts with other client certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BindToken {
    /// As in [`CreateToken`]: these, in place of those before.
    pub certificates: Vec<String>,
}

request!(Post "/tokens/{name}/bind", Admin, On<BindToken> -> TokenInfo);

impl Operation for On<BindToken> {
    fn words(&self) -> String {
        let BindToken { certificates } = &self.request;
        let words = Words::of("token bind").flag(certificates.is_empty(), "--none");
        words.options("--certificate", certificates.iter().cloned()).word(&self.name).text()
    }
}

/// `POST /tokens/{name}/revoke`: ends a token.
#[derive(Debug, Clone, Copy)]
pub struct RevokeToken;

request!(Post "/tokens/{name}/revoke", Admin, On<RevokeToken>, () -> TokenInfo);

impl Operation for On<RevokeToken> {
    fn words(&self) -> String {
        Words::of("token revoke").word(&self.name).text()
    }
}

/// A new token. No other answer contains a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenMade {
    /// The data about it, which later answers repeat.
    #[serde(flatten)]
    pub info: TokenInfo,
    /// The token.
    pub token: String,
}

impl fmt::Debug for TokenMade {
    /// Formats it without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

/// `GET /tokens`: all tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokensQuery;

request!(Get "/tokens", Read, TokensQuery, () -> Vec<TokenInfo>);

/// A token, in `GET /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// When it was made or rotated, in seconds since 1970.
    pub made_s: u64,
    /// When it expires.
    pub expires_s: Option<u64>,
    /// It has expired.
    pub expired: bool,
    /// How long the previous token is valid, if it still is.
    pub earlier_until_s: Option<u64>,
    /// SHA-256 fingerprints of the client certificates with which it counts; none: with or without
    /// any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Full names of the datasets for which it counts, with what lies below them; none: for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetName>,
}
