//! What was done to a pool.

use serde::{Deserialize, Serialize};

/// One act, in `GET /pools/{name}/history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Its place among all acts of the pool, carried out or not.
    pub order: u64,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// Who asked: `uid 0`, `token NAME from ADDRESS`.
    pub who: String,
    /// The machine that was asked.
    pub host: String,
    /// What was asked for, in words of the command line.
    pub act: String,
    /// What came of it.
    pub outcome: HistoryOutcome,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// What it changed.
    #[serde(default)]
    pub changes: Vec<HistoryChange>,
    /// A text was too long, or there were too many changes: not all is here.
    #[serde(default)]
    pub cut: bool,
}

/// What came of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryOutcome {
    /// It was carried out.
    Done,
    /// It was not, or not whole.
    Failed,
    /// The caller may not do this.
    Forbidden,
    /// It is under way.
    Running,
    /// The daemon ended before it knew: it may have been carried out.
    Unknown,
}

/// Something that an act changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryChange {
    /// What: a property, a disk, a token.
    pub what: String,
    /// How it was; nothing if there was none.
    pub before: Option<String>,
    /// How it is; nothing if there is none.
    pub after: Option<String>,
}
