//! The history of a pool.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// Actor in the history, for acts that a pool does by itself.
pub const HISTORY_ITSELF: &str = "itself";

/// `GET /pools/{name}/history`: the acts on a pool.
#[derive(Debug, Clone, Copy)]
pub struct HistoryQuery;

request!(Get "/pools/{name}/history", Read, On<HistoryQuery>, () -> Vec<HistoryEntry>);

/// One act, in `GET /pools/{name}/history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryEntry {
    /// Its place among all acts of the pool, carried out or not.
    pub order: u64,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// The caller: `uid 0`, `token NAME from ADDRESS`; [`HISTORY_ITSELF`] for what the pool did by
    /// itself.
    pub who: String,
    /// The machine that carried it out.
    pub host: String,
    /// The request, in words of the command line. What the pool did by itself, as a sentence.
    pub act: String,
    /// Its outcome.
    pub outcome: HistoryOutcome,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// Its changes.
    #[serde(default)]
    pub changes: Vec<HistoryChange>,
    /// Not everything is here: a text was too long, or there were too many changes.
    #[serde(default)]
    pub cut: bool,
}

/// The outcome of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HistoryOutcome {
    /// It was carried out.
    Done,
    /// It was not carried out, or only in part.
    Failed,
    /// The caller may not do this.
    Forbidden,
    /// It is in progress.
    Running,
    /// The daemon ended before the outcome was known: it may have been carried out.
    Unknown,
}

/// A change that an act made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryChange {
    /// The changed thing: a property, a disk, a token.
    pub what: String,
    /// The state before; `None` if it did not exist.
    pub before: Option<String>,
    /// The state after; `None` if it does not exist.
    pub after: Option<String>,
}
