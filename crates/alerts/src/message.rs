//! Messages as they are sent: the same content as text, and as JSON of several shapes.
//!
//! Invariant: names of files and disks come from strangers. They begin no line of their own, and
//! mean nothing to the service that shows them.

use aquifer_api::shown::shown;
use aquifer_api::{Severity, time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::settings::Shape;

/// A message: all that has changed at one look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The form of this document.
    pub version: u32,
    /// The machine.
    pub host: String,
    /// When it was made, ns since 1970.
    pub at_ns: u64,
    /// Changes of alerts, the worst first; not empty.
    pub alerts: Vec<Item>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Kind of the change.
    pub kind: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// The pool; `None`: it is the server's.
    pub pool: Option<String>,
    /// The code.
    pub code: String,
    /// Description of what is, or was, wrong.
    pub status: String,
    /// Advice on what to do.
    pub action: Option<String>,
    /// The section of the documentation that says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
    /// Since when, ns since 1970.
    pub since_ns: u64,
}

/// Kind of a change: what became of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It is new.
    Raised,
    /// It is there, and has become another: more disks, more files.
    Changed,
    /// It is still there.
    Reminder,
    /// It is not there any more.
    Cleared,
    /// It has happened, and is over.
    Happened,
    /// Nothing has happened: somebody wants to see whether this arrives.
    Test,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Raised => "NEW",
            Kind::Changed => "CHANGED",
            Kind::Reminder => "STILL",
            Kind::Cleared => "OVER",
            Kind::Happened => "HAPPENED",
            Kind::Test => "TEST",
        }
    }
}

impl Message {
    /// A message of these changes.
    pub fn new(host: &str, at_ns: u64, mut alerts: Vec<Item>) -> Message {
        alerts.sort_by_key(|item| (item.kind == Kind::Cleared, std::cmp::Reverse(item.severity)));
        Message { version: 1, host: host.into(), at_ns, alerts }
    }

    /// A message that says that it is a test.
    pub fn test(host: &str, at_ns: u64) -> Message {
        let item = Item {
            kind: Kind::Test,
            severity: Severity::Info,
            pool: None,
            code: "test".into(),
            status: "This is a test: alerts of this server arrive here.".into(),
            action: None,
            see: None,
            since_ns: at_ns,
        };
        Message::new(host, at_ns, vec![item])
    }

    /// The part that an outlet for what is at least this severe sends.
    pub fn of(&self, least: Severity) -> Option<Message> {
        let is_sent = |item: &&Item| item.severity >= least || item.kind == Kind::Test;
        let alerts: Vec<Item> = self.alerts.iter().filter(is_sent).cloned().collect();
        (!alerts.is_empty()).then(|| Message { alerts, ..self.clone() })
    }

    /// How bad the worst of it is.
    pub fn severity(&self) -> Severity {
        let still = self.alerts.iter().filter(|item| item.kind != Kind::Cleared);
        still.map(|item| item.severity).max().unwrap_or(Severity::Info)
    }

    /// One line: the worst of it.
    pub fn subject(&self) -> String {
        let Some(first) = self.alerts.first() else { return String::new() };
        let more = match self.alerts.len() {
            1 => String::new(),
            many => format!(" (and {} more)", many - 1),
        };
        let severity = first.severity.word().to_uppercase();
        let what = match first.kind {
            Kind::Cleared => format!("over: {}", first.code),
            Kind::Test => "test".into(),
            _ => format!("{severity}: {}", first.code),
        };
        let pool = first.pool.as_ref().map(|pool| format!(" of {pool}")).unwrap_or_default();
        shown(&format!("[aquifer {}] {what}{pool}{more}", self.host))
    }

    /// All of it for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.alerts {
            let of = item.pool.as_ref().map(|pool| format!("pool {pool}: ")).unwrap_or_default();
            let line =
                format!("{} {}: {of}{}", item.kind.word(), item.severity.word(), item.status);
            text.push_str(&shown(&line));
            text.push('\n');
            let is_over = item.kind == Kind::Cleared;
            for (label, what) in [("what to do", &item.action), ("see", &item.see)] {
                if let Some(what) = what.as_ref().filter(|_| !is_over) {
                    text.push_str(&shown(&format!("  {label}: {what}")));
                    text.push('\n');
                }
            }
            text.push_str(&shown(&format!("  since {}; {}", time::text(item.since_ns), item.code)));
            text.push('\n');
        }
        text.push('\n');
        text.push_str(&shown(&format!("{}, {}", self.host, time::text(self.at_ns))));
        text.push('\n');
        text
    }

    /// An identity for its letters: the same when one is sent again, so that nobody reads it twice.
    pub fn id(&self) -> String {
        // FNV-1a: two messages of a moment differ in what they say.
        let hash = self.text().bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
        let host: String = self.host.chars().map(plain).collect();
        let host = if host.is_empty() { "aquifer".to_string() } else { host };
        format!("<{}.{hash:016x}@{host}>", self.at_ns)
    }

    /// The body of a webhook.
    pub fn body(&self, shape: Shape) -> Value {
        match shape {
            Shape::Json => {
                let mut body = serde_json::to_value(self).unwrap_or_default();
                if let Some(fields) = body.as_object_mut() {
                    fields.insert("subject".into(), self.subject().into());
                    fields.insert("severity".into(), self.severity().word().into());
                }
                body
            }
            Shape::Slack => {
                let plain = format!("{}\n{}", self.subject(), self.text());
                let plain = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                json!({ "text": plain })
            }
            Shape::Discord => {
                let plain = format!("{}\n{}", self.subject(), self.text());
                let content: String = plain.chars().take(DISCORD_CHARS_MAX).collect();
                json!({ "content": content, "allowed_mentions": { "parse": [] } })
            }
        }
    }
}

/// Discord refuses longer ones.
const DISCORD_CHARS_MAX: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: Kind, severity: Severity, status: &str) -> Item {
        Item {
            kind,
            severity,
            pool: Some("tank".into()),
            code: "disk-missing".into(),
            status: status.into(),
            action: Some("Attach it, then type `aquifer pool online tank <b>`.".into()),
            see: Some("/usr/share/doc/aquifer/docs/runbook.md#replace-a-disk".into()),
            since_ns: 1_795_713_035_000_000_000,
        }
    }

    #[test]
    fn the_worst_comes_first_and_what_is_over_last() {
        let message = Message::new(
            "store",
            1_795_713_035_000_000_000,
            vec![
                item(Kind::Cleared, Severity::Error, "old"),
                item(Kind::Raised, Severity::Warning, "small"),
                item(Kind::Raised, Severity::Error, "/dev/b is missing\nNEW error: none"),
            ],
        );
        assert_eq!(message.severity(), Severity::Error);
        assert_eq!(message.subject(), "[aquifer store] ERROR: disk-missing of tank (and 2 more)");
        let text = message.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NEW error: pool tank: /dev/b is missing"), "{text}");
        assert_eq!(lines[2], "  see: /usr/share/doc/aquifer/docs/runbook.md#replace-a-disk");
        assert!(lines[4].starts_with("NEW warning: pool tank: small"), "{text}");
        assert!(lines[8].starts_with("OVER error: pool tank: old"), "{text}");
        assert!(lines[9].starts_with("  since "), "{text}");
        assert_eq!(message.of(Severity::Error).unwrap().alerts.len(), 2);
        assert!(Message::new("store", 1, Vec::new()).of(Severity::Info).is_none());
    }

    #[test]
    fn a_text_ends_with_the_host_on_a_line_of_its_own() {
        let message = Message::new("store1", 5, vec![item(Kind::Raised, Severity::Error, "bad")]);
        let text = message.text();
        assert!(!text.contains('?'), "{text}");
        assert!(text.lines().last().unwrap().starts_with("store1, 1970"), "{text}");
        assert_eq!(text.lines().rev().nth(1), Some(""));
        let other = Message::new("store1", 5, vec![item(Kind::Raised, Severity::Error, "worse")]);
        assert!(message.id() == message.id() && message.id() != other.id());
        assert!(Message { host: "a b\r\n".into(), ..other }.id().ends_with("@a-b-->"));
    }

    #[test]
    fn each_service_gets_its_own_shape() {
        let long = "@everyone &<!channel>".repeat(200);
        let message = Message::new("store", 5, vec![item(Kind::Raised, Severity::Error, &long)]);
        let json = message.body(Shape::Json);
        assert_eq!(json["version"], 1);
        assert_eq!(json["severity"], "error");
        assert_eq!(json["alerts"][0]["kind"], "raised");
        assert_eq!(json["alerts"][0]["code"], "disk-missing");
        assert!(json["alerts"][0]["see"].as_str().unwrap().ends_with("#replace-a-disk"));
        let slack = message.body(Shape::Slack)["text"].as_str().unwrap().to_string();
        assert!(slack.contains("&lt;!channel&gt;") && !slack.contains('<'), "{slack}");
        let discord = message.body(Shape::Discord);
        assert_eq!(discord["content"].as_str().unwrap().chars().count(), DISCORD_CHARS_MAX);
        assert_eq!(discord["allowed_mentions"]["parse"], json!([]));
    }
}
