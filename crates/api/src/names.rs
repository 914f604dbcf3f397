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

/// Longest component of a dataset's name, bytes: as the format has it.
pub const DATASET_COMPONENT_BYTES_MAX: usize = 255;
/// Longest full name of a dataset that a request or a token names.
pub const DATASET_NAME_BYTES_MAX: usize = 1024;

/// The full name of a dataset, which need not exist. It holds no `,`, `%`, `@`, `*` and the like,
/// and no empty component, so that it means that one dataset and what lies below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct DatasetName(String);

impl DatasetName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a dataset of this full name is this one, or lies below it.
    pub fn covers(&self, dataset: &str) -> bool {
        let below = dataset.strip_prefix(self.as_str());
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }
}

/// A text that is the name of no dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a dataset: components with '/' between them, each of 1 to \
     {DATASET_COMPONENT_BYTES_MAX} letters, digits, '-', '_', '.', ':' and blanks, and none is '.' \
     or '..'"
)]
pub struct BadDatasetName(String);

impl TryFrom<String> for DatasetName {
    type Error = BadDatasetName;

    fn try_from(text: String) -> Result<DatasetName, BadDatasetName> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
        let is_component = |part: &str| {
            let fits = (1..=DATASET_COMPONENT_BYTES_MAX).contains(&part.len());
            fits && part.chars().all(is_good) && part != "." && part != ".."
        };
        match text.len() <= DATASET_NAME_BYTES_MAX && text.split('/').all(is_component) {
            true => Ok(DatasetName(text)),
            false => Err(BadDatasetName(text)),
        }
    }
}

impl std::str::FromStr for DatasetName {
    type Err = BadDatasetName;

    fn from_str(text: &str) -> Result<DatasetName, BadDatasetName> {
        DatasetName::try_from(text.to_string())
    }
}

impl From<DatasetName> for String {
    fn from(name: DatasetName) -> String {
        name.0
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_covers_itself_and_what_lies_below_it_alone() {
        let vms: DatasetName = "tank/vms".parse().unwrap();
        for (other, is_covered) in [
            ("tank/vms", true),
            ("tank/vms/a", true),
            ("tank/vms/a/b c", true),
            ("tank", false),
            ("tank/vms2", false),
            ("tank/vms:a", false),
            ("tank/vms@a", false),
            ("tank/vm", false),
            ("tank/other", false),
            ("tank/other/tank/vms", false),
            ("", false),
        ] {
            assert_eq!(vms.covers(other), is_covered, "{other}");
        }
        for bad in [
            "",
            "/",
            "tank/",
            "/tank",
            "tank//a",
            "tank/.",
            "tank/..",
            "tank/a@b",
            "tank/a,b",
            "tank/*",
            "tank/a%b",
            "tank/a#b",
            "tank/a\n",
            "tank/\u{e4}",
            "tank/?",
            "tank/[a]",
        ] {
            assert!(bad.parse::<DatasetName>().is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<DatasetName>(&json).is_err(), "{bad:?}");
        }
        assert!("x".repeat(256).parse::<DatasetName>().is_err());
        assert!(["x"; 600].join("/").parse::<DatasetName>().is_err());
    }

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
