//! Snapshots of datasets and of single files.

use aquifer_meter::time::text_s;
use serde::{Deserialize, Serialize};

use crate::request::{Operation, request};
use crate::words::Words;

/// One snapshot, in `GET /snapshots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotInfo {
    /// Full name: `tank/vms@before`, or `tank/vms:web01/disk0.vhd@before` of a file.
    pub name: String,
    /// Full name of its dataset.
    pub dataset: String,
    /// When it was taken, in nanoseconds since 1970.
    pub created_ns: u64,
    /// The txg whose last act it was.
    pub txg: u64,
    /// 16 hexadecimal digits.
    pub guid: String,
    /// Bytes that would become free with it alone. `null`: the records of them cannot be read.
    pub used_bytes: Option<u64>,
    /// Bytes that it refers to.
    pub refer_bytes: u64,
    /// Bytes that `refer_bytes` would be without compression. `null`: a pool that an earlier
    /// release created does not count it.
    #[serde(default)]
    pub logical_refer_bytes: Option<u64>,
    /// Holds that keep it.
    #[serde(default)]
    pub holds: u64,
    /// The schedule that took it, and prunes it: `hourly`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Of a snapshot of a file: the path that the file had then, in its dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Of a snapshot of a file: the size of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The `after` of a listing that goes on behind it, also when it is gone by then.
    #[serde(default)]
    pub cursor: String,
}

/// Snapshots of which one answer counts `used_bytes`, at most.
pub const COUNTED_SNAPSHOTS_MAX: usize = 1000;

/// `GET /snapshots?name=..&recursive=..`; without a name, all snapshots of all pools. They are in
/// the order of their pools' and datasets' names; those of one dataset as they were taken, and
/// behind them those of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SnapshotQuery {
    /// Only those of this dataset, or only this snapshot; of files a pattern may mean several.
    #[serde(default)]
    pub name: Option<String>,
    /// Also those of the datasets below it.
    #[serde(default)]
    pub recursive: bool,
    /// Count what each takes alone (`used_bytes`), of `GET /snapshots`. That takes time, so
    /// questions of one caller wait for each other, and of more than 1,000 snapshots it is refused:
    /// ask for them in pages, by `limit` and `after`.
    // Left out unless it is wanted: an older daemon does not know the word.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = false)))]
    pub used: bool,
    /// At most so many, of `GET /snapshots`.
    #[serde(default)]
    pub limit: Option<usize>,
    /// Only those behind the snapshot with this `cursor`, of `GET /snapshots`.
    #[serde(default)]
    pub after: Option<String>,
}

request!(Get "/snapshots", Read, SnapshotQuery -> Vec<SnapshotInfo>);

/// `POST /snapshots`: all in one txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshots {
    /// Full names, all in one pool: `tank/vms@before`. Or those of files, all of them, in which `*`
    /// and `?` may stand for other characters than a slash: `tank/vms:web01/*@before`.
    pub names: Vec<String>,
    /// Also of all datasets below.
    #[serde(default)]
    pub recursive: bool,
}

request!(Post "/snapshots", Operator, TakeSnapshots -> SnapshotsDone);

impl Operation for TakeSnapshots {
    fn words(&self) -> String {
        Words::of("snapshot").flag(self.recursive, "-r").words(&self.names).text()
    }
}

/// The result of an act on snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotsDone {
    /// Full names; of those that were renamed, the new ones.
    pub names: Vec<String>,
    /// Notes for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `POST /snapshots/destroy`: all in one txg.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroySnapshots {
    /// A dataset, `@`, and snapshots with commas between them: names, and ranges `A%B`, `A%`, `%B`
    /// and `%`, both ends included. Or those of files: a dataset, `:`, a path, `@`, and names with
    /// commas between them; path and names may have `*` and `?`.
    pub name: String,
    /// The name once more; not needed for a dry run.
    #[serde(default)]
    pub confirm: String,
    /// Also those of these names in all datasets below.
    #[serde(default)]
    pub recursive: bool,
    /// And their clones, with all below those.
    #[serde(default)]
    pub clones: bool,
    /// Only say what would be destroyed.
    #[serde(default)]
    pub dry_run: bool,
    /// Snapshots of later txgs are as if they were not there: who confirmed what a dry run named
    /// has not seen them.
    #[serde(default)]
    pub upto_txg: Option<u64>,
}

request!(Post "/snapshots/destroy", Admin, DestroySnapshots -> SnapshotsDestroyed);

impl Operation for DestroySnapshots {
    fn words(&self) -> String {
        let words = Words::of("destroy").flag(self.recursive, "-r").flag(self.clones, "-R");
        words.word(&self.name).text()
    }
}

/// Snapshots that were destroyed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotsDestroyed {
    /// They, as they were.
    pub snapshots: Vec<SnapshotInfo>,
    /// Bytes that become free with all of them: more than the sum of what each alone would free, if
    /// several of them show the same. `null`: the records of them cannot be read.
    pub free_bytes: Option<u64>,
}

/// `POST /datasets/rollback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// Full name of the snapshot, of a dataset or of a file; of files a pattern may mean several.
    pub name: String,
    /// Destroys later snapshots of the dataset, or of the file.
    #[serde(default)]
    pub destroy_later: bool,
    /// Also while clients hold locks, or have UNSTABLE data that waits for their COMMIT, and of a
    /// damaged file.
    #[serde(default)]
    pub force: bool,
}

request!(Post "/datasets/rollback", Admin, RollBack -> RolledBack);

impl Operation for RollBack {
    fn words(&self) -> String {
        let words = Words::of("rollback").flag(self.destroy_later, "-r").flag(self.force, "-f");
        words.word(&self.name).text()
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RolledBack {
    /// Full name of the dataset, or what stood before the `@` of files: `tank/vms:web01/disk0.vhd`.
    pub name: String,
    /// Full names of the snapshots that were destroyed.
    pub destroyed: Vec<String>,
}

/// `POST /snapshots/rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenameSnapshot {
    /// Full name.
    pub name: String,
    /// The new name, without the dataset's.
    pub new: String,
    /// Also those of this name in all datasets below.
    #[serde(default)]
    pub recursive: bool,
}

request!(Post "/snapshots/rename", Operator, RenameSnapshot -> SnapshotsDone);

impl Operation for RenameSnapshot {
    fn words(&self) -> String {
        let words = Words::of("rename").flag(self.recursive, "-r").word(&self.name);
        words.word(&format!("@{}", self.new)).text()
    }
}

/// `POST /snapshots/hold`: all in one txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HoldSnapshots {
    /// Name of the hold.
    pub tag: String,
    /// Full names of snapshots, all in one pool.
    pub names: Vec<String>,
    /// Also those of these names in all datasets below.
    #[serde(default)]
    pub recursive: bool,
    /// Until this time, in seconds since 1970; nobody can release it before. `null`: until it is
    /// released.
    #[serde(default)]
    pub until_s: Option<u64>,
}

request!(Post "/snapshots/hold", Operator, HoldSnapshots -> SnapshotsDone);

impl Operation for HoldSnapshots {
    fn words(&self) -> String {
        let HoldSnapshots { tag, names, recursive, until_s } = self;
        let words = Words::of("hold").flag(*recursive, "-r");
        words.option("--until", until_s.map(text_s)).word(tag).words(names).text()
    }
}

/// `POST /snapshots/release`: all in one txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseSnapshots {
    /// Name of the hold.
    pub tag: String,
    /// Full names of snapshots, all in one pool.
    pub names: Vec<String>,
    /// Also those of these names in all datasets below.
    #[serde(default)]
    pub recursive: bool,
}

request!(Post "/snapshots/release", Admin, ReleaseSnapshots -> SnapshotsDone);

impl Operation for ReleaseSnapshots {
    fn words(&self) -> String {
        let ReleaseSnapshots { tag, names, recursive } = self;
        Words::of("release").flag(*recursive, "-r").word(tag).words(names).text()
    }
}

/// `GET /snapshots/holds?name=..&recursive=..`: holds on these snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldQuery(pub SnapshotQuery);

request!(Get "/snapshots/holds", Read, HoldQuery(SnapshotQuery) -> Vec<HoldInfo>);

/// One hold, in `GET /snapshots/holds?name=..&recursive=..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldInfo {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Name of the hold.
    pub tag: String,
    /// When it was placed, in nanoseconds since 1970.
    pub placed_ns: u64,
    /// When it ends if the pool stays in service, in seconds since 1970; `null`: when it is
    /// released.
    pub ends_s: Option<u64>,
}
