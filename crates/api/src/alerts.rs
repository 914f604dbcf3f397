//! Alerts: what is wrong on the server now, and where it is sent.

use serde::{Deserialize, Serialize};

use crate::codes::Code;
use crate::request::request;

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know. Nothing has to be done.
    Info,
    /// Nothing is lost yet, but somebody should look.
    Warning,
    /// Data, redundancy or service is lost, or is about to be.
    Error,
}

impl Severity {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Something that is wrong with a pool, or with the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Kind of the problem: a word that stays, such as `disk-missing`. `docs/alerts.md` explains
    /// each.
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// Description of the problem, in one sentence.
    pub status: String,
    /// Remedy, with the commands to type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The section of the documentation that says more, where the package installs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

impl Problem {
    /// A problem of this kind, with what to do.
    pub fn new(
        code: Code,
        severity: Severity,
        status: impl Into<String>,
        action: Option<String>,
    ) -> Problem {
        let (word, see) = (code.word.to_string(), Some(code.see()));
        let status = with_stop(status.into());
        Problem { code: word, severity, status, action, see }
    }
}

/// A sentence: errors of systems and programs end without a stop.
fn with_stop(text: String) -> String {
    let ends = text.is_empty() || text.ends_with(['.', '!', '?']);
    if ends { text } else { text + "." }
}

/// A problem that is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActiveAlert {
    /// Its pool; `None`: it is the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The problem, as it is now.
    #[serde(flatten)]
    pub problem: Problem,
    /// Since when, ns since 1970.
    pub since_ns: u64,
}

/// The kinds of outlets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OutletKind {
    /// By SMTP.
    Mail,
    /// A POST to a URL.
    Webhook,
    /// A program of this machine.
    Command,
}

impl OutletKind {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            OutletKind::Mail => "mail",
            OutletKind::Webhook => "webhook",
            OutletKind::Command => "command",
        }
    }
}

/// Where alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutletInfo {
    /// Its name in the configuration, or one made of its kind and number: `mail-1`.
    pub name: String,
    /// Its kind.
    pub kind: OutletKind,
    /// Messages sent since the daemon's start.
    pub sent: u64,
    /// Tries that failed since then.
    pub failed: u64,
    /// Messages that wait to be sent.
    pub waiting: u64,
    /// Messages that were given up: too many waited.
    pub dropped: u64,
    /// When one was last sent, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sent_ns: Option<u64>,
    /// Why the last try failed; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// `GET /alerts`: problems, and where they are sent.
#[derive(Debug, Clone, Copy)]
pub struct AlertsQuery;

request!(Get "/alerts", Read, AlertsQuery, () -> AlertsInfo);

/// `GET /alerts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlertsInfo {
    /// Problems that exist now, the worst first.
    pub active: Vec<ActiveAlert>,
    /// Outlets to which they are sent.
    pub outlets: Vec<OutletInfo>,
}

/// `POST /alerts/test`: sends a message that says it is a test.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TestAlerts {
    /// By this outlet alone; `None`: by all.
    #[serde(default)]
    pub outlet: Option<String>,
}

request!(Post "/alerts/test", Operator, TestAlerts -> Vec<TestedOutlet>);

/// Answer: one for each outlet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestedOutlet {
    /// Its name.
    pub name: String,
    /// Why the message was not sent; `None` if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
