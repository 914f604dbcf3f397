//! Datasets and their properties.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `POST /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateDataset {
    /// Full name: `tank/vms`.
    pub name: String,
    /// Properties of its own.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

/// `POST /datasets/set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProperties {
    /// Full name.
    pub name: String,
    /// New values; none goes back to the inherited one.
    pub properties: BTreeMap<String, Option<String>>,
}

/// A file that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Full name of its dataset.
    pub dataset: String,
    /// Its path in the dataset, or `#` and its number if it has none that could be found.
    pub file: String,
    /// Some of it cannot be read: only that gives I/O errors. Else changes of it were lost, and all
    /// of it gives them until it is cleared or removed.
    #[serde(default)]
    pub unreadable: bool,
    /// Ranges of bytes that are concerned: the first, and the one after the last.
    #[serde(default)]
    pub ranges: Vec<(u64, u64)>,
    /// More are concerned than are listed.
    #[serde(default)]
    pub more: bool,
    /// When it was met first, in nanoseconds since 1970.
    #[serde(default)]
    pub since_ns: u64,
    /// The txg in which it was met; 0: by a read or a replay.
    pub txg: u64,
    /// Bytes whose newest content is lost.
    pub lost_bytes: u64,
    /// What could not be read.
    pub error: String,
}

/// `POST /datasets/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyDataset {
    /// Full name.
    pub name: String,
    /// The name once more.
    pub confirm: String,
    /// With all datasets below it.
    #[serde(default)]
    pub recursive: bool,
}

/// `POST /datasets/clear`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearDamage {
    /// Full name of the dataset.
    pub name: String,
    /// The damaged file, as `pool status` shows it.
    pub file: String,
}

/// What came of an act on a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDone {
    /// Full name.
    pub name: String,
    /// What should be known.
    pub notes: Vec<String>,
}

/// One dataset, in `GET /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// What it and those below refer to.
    pub used_bytes: u64,
    /// What can be written to it.
    pub available_bytes: u64,
    /// What it refers to itself.
    pub refer_bytes: u64,
    /// The path that clients mount, if it is exported.
    pub nfs_path: Option<String>,
    /// Its properties.
    pub properties: Vec<PropertyValue>,
}

/// A property's value in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyValue {
    /// Name.
    pub name: String,
    /// Value; sizes in bytes.
    pub value: String,
    /// `local`, `default`, `inherited from DATASET`, or `-` for what cannot be set.
    pub source: String,
}

/// `GET /datasets?name=..&recursive=..`; without a name, all of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetQuery {
    /// Only this one.
    #[serde(default)]
    pub name: Option<String>,
    /// And those below it.
    #[serde(default)]
    pub recursive: bool,
}
