//! Acts on disks of a pool in service.

use serde::{Deserialize, Serialize};

use crate::pool_done::PoolDone;
use crate::request::{On, Operation, request};
use crate::words::Words;

/// `POST /pools/{name}/online`: takes a disk into use again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OnlineDisk {
    /// The disk: its path or guid.
    pub disk: String,
    /// Also use disks of its vdev that have become larger. It may be in use then.
    #[serde(default)]
    pub expand: bool,
    /// Also take a disk that was in use apart from the pool, and drop what only it has.
    #[serde(default)]
    pub force: bool,
}

request!(Post "/pools/{name}/online", Operator, On<OnlineDisk> -> PoolDone);

impl Operation for On<OnlineDisk> {
    fn words(&self) -> String {
        let OnlineDisk { disk, expand, force } = &self.request;
        let words = Words::of("pool online").flag(*expand, "-e").flag(*force, "-f");
        words.word(&self.name).word(disk).text()
    }
}

/// `POST /pools/{name}/offline`: takes a disk out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OfflineDisk {
    /// The disk: its path or guid.
    pub disk: String,
    /// Until the next import at most; else until it is taken into use again.
    #[serde(default)]
    pub temporary: bool,
}

request!(Post "/pools/{name}/offline", Operator, On<OfflineDisk> -> PoolDone);

impl Operation for On<OfflineDisk> {
    fn words(&self) -> String {
        let OfflineDisk { disk, temporary } = &self.request;
        let words = Words::of("pool offline").flag(*temporary, "-t");
        words.word(&self.name).word(disk).text()
    }
}

/// `POST /pools/{name}/remove`, `detach` and `clear-disk`: one disk of a pool in
/// service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiskRequest {
    /// The disk, as `pool status` shows it, by any other name of it, or by its guid. The name of a
    /// vdev (`mirror-1`) stands for the whole vdev.
    pub disk: String,
}

/// `POST /pools/{name}/remove`: removes a vdev from a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveDisk(pub DiskRequest);

request!(Post "/pools/{name}/remove", Admin, On<RemoveDisk(DiskRequest)> -> PoolDone);

impl Operation for On<RemoveDisk> {
    fn words(&self) -> String {
        Words::of("pool remove").word(&self.name).word(&self.request.0.disk).text()
    }
}

/// `POST /pools/{name}/detach`: takes a side off a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachDisk(pub DiskRequest);

request!(Post "/pools/{name}/detach", Admin, On<DetachDisk(DiskRequest)> -> PoolDone);

impl Operation for On<DetachDisk> {
    fn words(&self) -> String {
        Words::of("pool detach").word(&self.name).word(&self.request.0.disk).text()
    }
}

/// `POST /pools/{name}/clear-disk`: counts the errors of a disk from 0 again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearDisk(pub DiskRequest);

request!(Post "/pools/{name}/clear-disk", Operator, On<ClearDisk(DiskRequest)> -> PoolDone);

impl Operation for On<ClearDisk> {
    fn words(&self) -> String {
        Words::of("pool clear").word(&self.name).word(&self.request.0.disk).text()
    }
}

/// `POST /pools/{name}/replace` and `attach`: a disk of the pool, and a new one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplaceDisk {
    /// The disk that is replaced, or whose vdev gets another side.
    pub disk: String,
    /// The new disk. A `replace` without it takes the one that is at the path of `disk` now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// Accept it even if it holds something else.
    #[serde(default)]
    pub force: bool,
    /// Make it, if it is an image file that does not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
    /// Until when holds stand on disks that it takes with force, in seconds since 1970, as the
    /// error says it: these snapshots are destroyed. It counts on the server's own socket alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_s: Option<u64>,
}

request!(Post "/pools/{name}/replace", Admin, On<ReplaceDisk> -> PoolDone);

impl Operation for On<ReplaceDisk> {
    fn words(&self) -> String {
        new_disk("pool replace", &self.name, &self.request)
    }
}

/// `POST /pools/{name}/attach`: adds a disk as another side of a vdev.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachDisk(pub ReplaceDisk);

request!(Post "/pools/{name}/attach", Admin, On<AttachDisk(ReplaceDisk)> -> PoolDone);

impl Operation for On<AttachDisk> {
    fn words(&self) -> String {
        new_disk("pool attach", &self.name, &self.request.0)
    }
}

fn new_disk(command: &str, pool: &str, request: &ReplaceDisk) -> String {
    let ReplaceDisk { disk, new, force, create_bytes, .. } = request;
    let words = Words::of(command).flag(*force, "-f");
    let words = words.option("--create-size", create_bytes.map(|bytes| bytes.to_string()));
    words.word(pool).word(disk).words(new).text()
}
