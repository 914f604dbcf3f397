//! Names as types: one that exists means one thing, and is parsed by nobody a second time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name of a snapshot, bytes: as the format has it.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 255;

/// The exact name of one snapshot, behind the `@`. It holds no `,`, `%`, `@`, `*` and the like, so
/// that no text made of it means more than that one snapshot. It is checked wherever it is made,
/// also when it comes by the wire.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is the name of no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a snapshot: it has 1 to {SNAPSHOT_NAME_BYTES_MAX} letters, digits, '-', \
     '_', '.', ':' and blanks, and is not '.' or '..'"
)]
pub struct BadSnapshotName(String);

impl TryFrom<String> for SnapshotName {
    type Error = BadSnapshotName;

    fn try_from(text: String) -> Result<SnapshotName, BadSnapshotName> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
        let fits = (1..=SNAPSHOT_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_good);
        match fits && text != "." && text != ".." {
            true => Ok(SnapshotName(text)),
            false => Err(BadSnapshotName(text)),
        }
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> String {
        name.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_snapshot_however_it_is_made() {
        for good in ["a", "replicate-b-2026-11-27T08:00:00.000Z", "a b", "...", &"x".repeat(255)] {
            assert_eq!(SnapshotName::try_from(good.to_string()).unwrap().as_str(), good);
        }
        let long = "x".repeat(256);
        let bad = [
            "", ".", "..", "a,b", "%", "a%b", "a@b", "*", "a?", "[a]", "a/b", "a\0", "a\n", "a\\",
            "{a}", "a#b", "\u{e4}", "a\"", "$a", "a\u{1b}", &long,
        ];
        for bad in bad {
            assert!(SnapshotName::try_from(bad.to_string()).is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<SnapshotName>(&json).is_err(), "{bad:?}");
        }
    }
}
