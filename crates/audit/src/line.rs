//! The form of a line, and the chain.
//!
//! A line is one JSON object with these members in this order, and ends with `\n`:
//!
//! ```text
//! seq      number of the line in its chain, from 1 on
//! prev     SHA-256 of the line before, without its `\n`, 64 hexadecimal digits; of the first: 0s
//! time     UTC, RFC 3339: when it happened
//! host     the machine
//! kind     act | refused | begin | gap
//! who      token NAME | uid NUMBER | host ADDRESS | the pool itself
//! role     the caller's role, if it has one
//! from     address, or `socket`
//! act      in words of the command line, or method and path
//! outcome  done | failed | forbidden | unauthorized
//! why      of what was not done; of `begin`, why a chain begins; of `gap`, in words
//! dropped  of `gap`: lines that are not there
//! ```
//!
//! Members without a value are left out. A text is cut to 1000 characters.

use aquifer_meter::time::{now_ns, text};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// Characters of a text.
const TEXT_CHARS_MAX: usize = 1000;
/// Bytes of a line at most: each character of its texts may be escaped.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// The sum before the first line.
pub(crate) const NO_SUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Kind of event that a line tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something was asked for that changes something.
    #[default]
    Act,
    /// Somebody was refused: the role, or the token.
    Refused,
    /// A chain begins.
    Begin,
    /// Lines are not there: there was no room for them.
    Gap,
}

/// Event that is to be noted. Empty texts are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Kind of event that it tells of.
    pub kind: Kind,
    /// Caller: `token ci`, `uid 0`, `host 10.0.0.7`.
    pub who: String,
    /// The caller's role.
    pub role: String,
    /// From where: an address, or `socket`.
    pub from: String,
    /// Act: in words of the command line, or method and path.
    pub act: String,
    /// `done`, `failed`, `forbidden`, `unauthorized`.
    pub outcome: String,
    /// Why not.
    pub why: String,
    /// Lines that are not there.
    pub dropped: u64,
    /// When, in nanoseconds since 1970; 0: now.
    pub wall_ns: u64,
}

impl Entry {
    /// Sets the time to now, if there is none.
    pub(crate) fn at_now(mut self) -> Entry {
        if self.wall_ns == 0 {
            self.wall_ns = now_ns();
        }
        self
    }
}

/// A line as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub seq: u64,
    pub prev: String,
    pub time: String,
    pub host: String,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub act: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    #[serde(default, skip_serializing_if = "is_none")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Where a chain ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The number of its last line.
    pub seq: u64,
    /// The sum of that.
    pub sum: String,
}

impl Chain {
    /// Before its first line.
    pub fn new() -> Chain {
        Chain { seq: 0, sum: NO_SUM.into() }
    }

    /// Behind a line, given without its end.
    pub fn behind(seq: u64, line: &[u8]) -> Chain {
        Chain { seq, sum: sum(line) }
    }

    /// The next line, with its end.
    pub fn next(&mut self, host: &str, entry: &Entry) -> String {
        let line = Line {
            seq: self.seq.saturating_add(1),
            prev: self.sum.clone(),
            time: text(entry.wall_ns),
            host: cut(host),
            kind: entry.kind,
            who: cut(&entry.who),
            role: cut(&entry.role),
            from: cut(&entry.from),
            act: cut(&entry.act),
            outcome: cut(&entry.outcome),
            why: cut(&entry.why),
            dropped: entry.dropped,
        };
        // Texts and numbers always can be.
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        *self = Chain::behind(line.seq, text.as_bytes());
        text.push('\n');
        text
    }
}

/// The sum of a line, given without its end.
pub(crate) fn sum(line: &[u8]) -> String {
    digest(&SHA256, line).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form is what others parse: it changes on purpose only.
    #[test]
    fn lines_are_as_they_are_documented() {
        let mut chain = Chain::new();
        let entry = Entry {
            who: "token ci".into(),
            role: "admin".into(),
            from: "10.0.0.1".into(),
            act: "aquifer destroy -f \"tank/a\nb\"".into(),
            outcome: "failed".into(),
            why: "it is held".into(),
            wall_ns: 1_795_678_980_000_000_000,
            ..Entry::default()
        };
        let first = chain.next("srv", &entry);
        assert_eq!(
            first,
            format!(
                "{{\"seq\":1,\"prev\":\"{NO_SUM}\",\"time\":\"{}\",\"host\":\"srv\",\
                 \"kind\":\"act\",\"who\":\"token ci\",\"role\":\"admin\",\"from\":\"10.0.0.1\",\
                 \"act\":\"aquifer destroy -f \\\"tank/a\\nb\\\"\",\"outcome\":\"failed\",\
                 \"why\":\"it is held\"}}\n",
                text(entry.wall_ns)
            )
        );
        let gap = Entry { kind: Kind::Gap, dropped: 7, wall_ns: 1, ..Entry::default() };
        let second: serde_json::Value = serde_json::from_str(&chain.next("srv", &gap)).unwrap();
        assert_eq!((&second["seq"], &second["dropped"]), (&2.into(), &7.into()));
        assert_eq!(second["prev"], sum(first.trim_end().as_bytes()));
        assert!(second.get("who").is_none());
    }

    #[test]
    fn a_line_has_a_bound_whatever_its_texts_are() {
        let long = "\u{1}".repeat(100_000);
        let entry = Entry {
            who: long.clone(),
            role: long.clone(),
            from: long.clone(),
            act: long.clone(),
            outcome: long.clone(),
            why: long.clone(),
            ..Entry::default()
        };
        let line = Chain::new().next(&long, &entry);
        assert!(line.len() <= LINE_BYTES_MAX && line.ends_with("}\n"), "{}", line.len());
        assert_eq!(line.matches('\n').count(), 1);
    }
}
