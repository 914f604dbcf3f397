//! Datasets and their properties.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::{Operation, request};
use crate::words::Words;

/// `POST /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateDataset {
    /// Full name: `tank/vms`.
    pub name: String,
    /// Properties of its own.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

request!(Post "/datasets", Operator, CreateDataset -> DatasetDone);

impl Operation for CreateDataset {
    fn words(&self) -> String {
        Words::of("create").options("-o", set(&self.properties)).word(&self.name).text()
    }
}

/// Properties with their values, as words.
fn set(properties: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    properties.iter().map(|(name, value)| format!("{name}={value}"))
}

/// `POST /datasets/clone`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// Full name of the snapshot, of a dataset or of a file.
    pub snapshot: String,
    /// Full name of the new dataset, in the same pool, or of the new file, in any dataset of it.
    pub name: String,
    /// Further new files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<String>,
    /// Properties of its own, of a dataset.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

request!(Post "/datasets/clone", Operator, CloneSnapshot -> DatasetDone);

impl Operation for CloneSnapshot {
    fn words(&self) -> String {
        let CloneSnapshot { snapshot, name, more, properties } = self;
        let words = Words::of("clone").options("-o", set(properties));
        words.word(snapshot).word(name).words(more).text()
    }
}

/// `POST /datasets/promote`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// Full name of the clone.
    pub name: String,
}

request!(Post "/datasets/promote", Admin, Promote -> Promoted);

impl Operation for Promote {
    fn words(&self) -> String {
        Words::of("promote").word(&self.name).text()
    }
}

/// A clone and its origin have changed places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Promoted {
    /// Full name of the one that is no clone of the other any more.
    pub name: String,
    /// Full name of the dataset that was its origin, and is a clone of it now.
    pub origin: String,
    /// Full names of the snapshots that it lists now, in the order in which they were taken.
    pub snapshots: Vec<String>,
}

/// `POST /datasets/set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetProperties {
    /// Full name.
    pub name: String,
    /// New values, all set in one txg or none; `null` returns to the inherited one.
    pub properties: BTreeMap<String, Option<String>>,
    /// With `standby=off`: the caller knows that the dataset is exported then, and as what.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exports: bool,
}

request!(Post "/datasets/set", Operator, SetProperties -> DatasetDone);

impl Operation for SetProperties {
    fn words(&self) -> String {
        let SetProperties { name, properties, exports } = self;
        let inherits = properties.values().all(Option::is_none);
        let words = Words::of(if inherits { "inherit" } else { "set" }).flag(*exports, "-f");
        let words = properties.iter().fold(words, |words, (name, value)| match value {
            Some(value) => words.word(&format!("{name}={value}")),
            None => words.word(name),
        });
        words.word(name).text()
    }
}

/// A file that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DamagedFile {
    /// Full name of its dataset.
    pub dataset: String,
    /// Its path in the dataset, or `#` and its number if no path was found.
    pub file: String,
    /// Part of it cannot be read, and only that part gives I/O errors. Otherwise changes of it were
    /// lost, and all of it gives errors until it is cleared or removed.
    #[serde(default)]
    pub unreadable: bool,
    /// Affected ranges of bytes: the first byte, and the one after the last.
    #[serde(default)]
    pub ranges: Vec<(u64, u64)>,
    /// More ranges are affected than are listed.
    #[serde(default)]
    pub more: bool,
    /// When the damage was first met, in nanoseconds since 1970.
    #[serde(default)]
    pub since_ns: u64,
    /// The txg in which it was met; 0: a read or a replay met it.
    pub txg: u64,
    /// Bytes whose newest content is lost.
    pub lost_bytes: u64,
    /// The read error.
    pub error: String,
}

/// `POST /datasets/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyDataset {
    /// Full name.
    pub name: String,
    /// The name once more.
    pub confirm: String,
    /// With all datasets below it.
    #[serde(default)]
    pub recursive: bool,
    /// With all clones of it and of those below it, and all below them.
    #[serde(default)]
    pub clones: bool,
}

request!(Post "/datasets/destroy", Admin, DestroyDataset -> DatasetDone);

impl Operation for DestroyDataset {
    fn words(&self) -> String {
        let words = Words::of("destroy").flag(self.recursive, "-r").flag(self.clones, "-R");
        words.word(&self.name).text()
    }
}

/// `POST /datasets/rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenameDataset {
    /// Full name.
    pub name: String,
    /// The new full name, in the same pool.
    pub new: String,
}

request!(Post "/datasets/rename", Admin, RenameDataset -> DatasetDone);

impl Operation for RenameDataset {
    fn words(&self) -> String {
        Words::of("rename").word(&self.name).word(&self.new).text()
    }
}

/// `POST /datasets/clear`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClearDamage {
    /// Full name of the dataset.
    pub name: String,
    /// The damaged file, as `pool status` shows it.
    pub file: String,
}

request!(Post "/datasets/clear", Admin, ClearDamage -> DatasetDone);

impl Operation for ClearDamage {
    fn words(&self) -> String {
        Words::of("clear").word(&self.name).word(&self.file).text()
    }
}

/// The result of an act on a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatasetDone {
    /// Full name.
    pub name: String,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// One dataset, in `GET /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// Bytes that it and the datasets below it refer to, that snapshots of them alone show, and
    /// that `refreservation` keeps free for them.
    pub used_bytes: u64,
    /// Bytes that can be written to it.
    pub available_bytes: u64,
    /// Bytes that it refers to itself.
    pub refer_bytes: u64,
    /// Bytes that `refreservation` keeps free for it itself.
    #[serde(default)]
    pub refreserved_bytes: u64,
    /// Bytes that `used_bytes` would be without compression. `null`: a pool that an earlier release
    /// created does not count it.
    #[serde(default)]
    pub logical_used_bytes: Option<u64>,
    /// Bytes that `refer_bytes` would be without compression. `null` as in `logical_used_bytes`.
    #[serde(default)]
    pub logical_refer_bytes: Option<u64>,
    /// The path that clients mount, if it is exported.
    pub nfs_path: Option<String>,
    /// The snapshot that it is a clone of.
    #[serde(default)]
    pub origin: Option<String>,
    /// Another dataset has its file handles, or it was received and not put in service: clients do
    /// not reach it.
    #[serde(default)]
    pub standby: bool,
    /// Its properties.
    pub properties: Vec<PropertyValue>,
}

/// A property's value in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PropertyValue {
    /// Name.
    pub name: String,
    /// Value; sizes in bytes.
    pub value: String,
    /// `local`, `default`, `inherited from DATASET`, or `-` for a property that cannot be set.
    pub source: String,
}

/// `GET /datasets?name=..&recursive=..`; without a name, all datasets of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DatasetQuery {
    /// Only this dataset.
    #[serde(default)]
    pub name: Option<String>,
    /// Also the datasets below it.
    #[serde(default)]
    pub recursive: bool,
}

request!(Get "/datasets", Read, DatasetQuery -> Vec<DatasetInfo>);
