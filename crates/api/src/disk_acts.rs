//! Acts on disks of a pool in service.

use serde::{Deserialize, Serialize};

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
