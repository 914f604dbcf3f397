//! The label's config: the identity of this leaf, and the whole vdev tree of its pool.
//!
//! ```text
//! magic "AQCONFIG"  version u32  config_sequence u64  pool_guid u64  leaf_guid u64  label u8
//! name string  features_read [string]  features_write [string]
//! vdevs u32, each:
//!   guid u64  class u8 (1 data, 2 log, 3 hole)  redundancy u8 (1 single, 2 mirror)
//!   segments u64  birth u64  version 2: metaslab_segments u64  grown_from_segments u64
//!   leaves u32 (none in a hole, else at least 1), each: leaf
//! spares (version 2): u32, each: leaf
//! caches (version 3): u32, each: leaf
//! padding; the last 16 bytes of the 56 sectors are the xxh3-128 of all before them
//!
//! leaf: guid u64  sectors u64  path string
//!   version 2: flags u8 (1 offline)  stands u8 (0 for itself, 1 replaces, 2 spare)  for guid u64
//! ```
//! `leaf_guid` and `label` are the own place. They show a label that was written to the wrong disk
//! or copied from another one. A pool has at most 128 leaves, over all vdevs, spares and caches.
//!
//! A config is written as the oldest version that can say all of it, so that earlier releases go on
//! reading the pool. Version 2 has no caches. Version 1 has no spares, leaves that are all in use
//! and stand for themselves, and vdevs that never grew, whose metaslabs have the size that follows
//! from the vdev's.

use crate::codec::{FormatError, Reader, Writer, seal, unseal};
use crate::held::held_until_of;
use crate::layout::{
    CONFIG_SECTORS, LEAVES_MAX, METASLAB_SEGMENTS_MAX, METASLAB_SEGMENTS_MIN, metaslab_segments,
};
use crate::types::{Guid, Place, SEGMENT_SECTORS, Txg};

const WHAT: &str = "label config";
const MAGIC: [u8; 8] = *b"AQCONFIG";
/// Newest format version of a pool that this software reads and writes.
pub const POOL_VERSION: u32 = 3;
/// Flag of a leaf that was taken out of use.
const OFFLINE: u8 = 1;
/// Longest pool name, bytes.
pub const POOL_NAME_BYTES_MAX: usize = 255;
/// Longest path of a leaf, bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest name of a feature, bytes.
pub const FEATURE_BYTES_MAX: usize = 64;
/// Feature: datasets have, or had, snapshots.
pub const FEATURE_SNAPSHOTS: &str = "snapshots";
/// Feature: snapshots have, or had, holds or marks of schedules.
pub const FEATURE_KEEPING: &str = "keeping";
/// Feature: a dataset may be older than the one above it.
pub const FEATURE_MOVED: &str = "moved";
/// Feature: datasets were rolled back.
pub const FEATURE_ROLLBACK: &str = "rollback";
/// Feature: there are, or were, clones.
pub const FEATURE_CLONES: &str = "clones";
/// Feature: clones were promoted.
pub const FEATURE_PROMOTE: &str = "promote";
/// Feature: clones say how much of them their origins own.
pub const FEATURE_INHERITED: &str = "inherited";
/// Feature: single files have, or had, snapshots.
pub const FEATURE_FILE_SNAPSHOTS: &str = "file-snapshots";
/// Feature: datasets are, or were, received, and may stand by.
pub const FEATURE_RECEIVE: &str = "receive";
/// A file was rolled back to a snapshot of its own.
pub const FEATURE_FILE_ROLLBACK: &str = "file-rollback";
/// Feature: what changed is, or was, received into datasets that were there.
pub const FEATURE_RECEIVE_INCREMENT: &str = "receive-increment";
/// A file began as a snapshot of another one.
pub const FEATURE_FILE_CLONES: &str = "file-clones";
/// A stream that broke off may go on.
pub const FEATURE_RESUMABLE_RECEIVE: &str = "resumable-receive";
/// Snapshots have, or had, bookmarks.
pub const FEATURE_BOOKMARKS: &str = "bookmarks";
/// A dataset has, or had, properties that a user made up.
pub const FEATURE_USER_PROPERTIES: &str = "user-properties";
/// Files and datasets count what compression saves. Only a pool that began with it has it.
pub const FEATURE_LOGICAL_SPACE: &str = "logical-space";
/// A file was rolled back past later snapshots.
pub const FEATURE_FILE_LINES: &str = "file-lines";
/// A file began as a snapshot of a file of another dataset.
pub const FEATURE_FILE_CLONES_ACROSS: &str = "file-clones-across";
/// A dataset was rolled back past later snapshots.
pub const FEATURE_DATASET_LINES: &str = "dataset-lines";
/// A snapshot of a file was held.
pub const FEATURE_FILE_HOLDS: &str = "file-holds";
/// A dataset has, or had, a `refreservation`: heads say how much of them snapshots show.
pub const FEATURE_REFRESERVATION: &str = "refreservation";
/// Dead trees say of which file each block was, also if it was cut off it. Only a pool that began
/// with it has it.
pub const FEATURE_TAILS_BY_FILE: &str = "tails-by-file";
/// The features that this software knows.
pub const FEATURES: [&str; 22] = [
    FEATURE_SNAPSHOTS,
    FEATURE_KEEPING,
    FEATURE_MOVED,
    FEATURE_ROLLBACK,
    FEATURE_CLONES,
    FEATURE_PROMOTE,
    FEATURE_INHERITED,
    FEATURE_FILE_SNAPSHOTS,
    FEATURE_RECEIVE,
    FEATURE_FILE_ROLLBACK,
    FEATURE_RECEIVE_INCREMENT,
    FEATURE_FILE_CLONES,
    FEATURE_RESUMABLE_RECEIVE,
    FEATURE_BOOKMARKS,
    FEATURE_USER_PROPERTIES,
    FEATURE_LOGICAL_SPACE,
    FEATURE_FILE_LINES,
    FEATURE_FILE_CLONES_ACROSS,
    FEATURE_TAILS_BY_FILE,
    FEATURE_DATASET_LINES,
    FEATURE_FILE_HOLDS,
    FEATURE_REFRESERVATION,
];
/// Whether this software knows a feature: by its name, or by its form ([`crate::held`]).
pub fn is_known_feature(feature: &str) -> bool {
    FEATURES.contains(&feature) || held_until_of(feature).is_some()
}

/// Segments of a vdev at most: each of them, and the one with a leaf's end labels, has a place.
pub const VDEV_SEGMENTS_MAX: u64 = Place::SECTOR_LIMIT / SEGMENT_SECTORS - 1;

/// The purpose of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum VdevClass {
    /// Blocks, records, and the intent log if there is no log vdev.
    Data = 1,
    /// The intent log.
    Log = 2,
    /// None: a log vdev that was removed. Another vdev may get its number.
    Hole = 3,
}

/// How a top-level vdev keeps copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Redundancy {
    /// One leaf.
    Single = 1,
    /// Every leaf holds the same.
    Mirror = 2,
}

impl Redundancy {
    /// Copies, at places of their own, of what must outlive one bad sector: nodes, txg records and
    /// bitmap slots. One is enough where another leaf has it too.
    pub fn copies(self) -> u8 {
        match self {
            Redundancy::Single => 2,
            Redundancy::Mirror => 1,
        }
    }
}

/// One disk of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafConfig {
    /// Identity of the leaf.
    pub guid: Guid,
    /// Capacity when it was added, in sectors.
    pub sectors: u64,
    /// Where it was last seen: a hint, never the proof.
    pub path: String,
    /// An administrator took it out of use, until further notice.
    pub offline: bool,
    /// Why it is beside another leaf.
    pub stands: Stands,
}

/// Why a leaf is beside another one of its vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stands {
    /// It is a side of the vdev.
    #[default]
    ForItself,
    /// That leaf leaves the pool once this one holds everything.
    Replaces(Guid),
    /// It is a spare: it leaves the vdev once that leaf is whole again.
    SpareFor(Guid),
}

impl LeafConfig {
    /// A disk in use that stands for itself.
    pub fn new(guid: Guid, sectors: u64, path: String) -> Self {
        LeafConfig { guid, sectors, path, offline: false, stands: Stands::ForItself }
    }

    fn is_plain(&self) -> bool {
        !self.offline && self.stands == Stands::ForItself
    }
}

/// One top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VdevConfig {
    /// Identity of the vdev.
    pub guid: Guid,
    /// Its purpose.
    pub class: VdevClass,
    /// How it keeps copies.
    pub redundancy: Redundancy,
    /// Segments of logical space.
    pub segments: u64,
    /// Txg in which it was added.
    pub birth: Txg,
    /// Segments of a metaslab: a power of two. It stays when the vdev grows.
    pub metaslab_segments: u64,
    /// Segments before it last grew; 0 if it never did. Until the slot of the metaslab that was the
    /// last one then is written again, it tells too few free sectors.
    pub grown_from_segments: u64,
    /// Its disks.
    pub leaves: Vec<LeafConfig>,
}

impl VdevConfig {
    /// A new vdev of `segments` without leaves, whose metaslabs have the usual size.
    pub fn new(
        guid: Guid,
        class: VdevClass,
        redundancy: Redundancy,
        segments: u64,
        birth: Txg,
    ) -> Self {
        let (metaslab_segments, leaves) = (metaslab_segments(segments), Vec::new());
        VdevConfig {
            guid,
            class,
            redundancy,
            segments,
            birth,
            metaslab_segments,
            grown_from_segments: 0,
            leaves,
        }
    }

    /// Whether it is as version 1 can say.
    fn is_plain(&self) -> bool {
        let usual = metaslab_segments(self.segments);
        (self.metaslab_segments, self.grown_from_segments) == (usual, 0)
    }
}

/// Everything needed before a root can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Rises with every change of the config.
    pub config_sequence: u64,
    /// Identity of the pool.
    pub pool_guid: Guid,
    /// Name of the pool.
    pub name: String,
    /// Features without which the pool cannot be read.
    pub features_read: Vec<String>,
    /// Features without which the pool cannot be written.
    pub features_write: Vec<String>,
    /// The top-level vdevs; the index is the vdev number of a place.
    pub vdevs: Vec<VdevConfig>,
    /// Disks that take the place of others that fail. One in use is a leaf of a vdev as well.
    pub spares: Vec<LeafConfig>,
    /// Disks of the second-level read cache. Nothing on them is needed.
    pub caches: Vec<LeafConfig>,
}

/// One label's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The leaf this label lies on.
    pub leaf_guid: Guid,
    /// Which of the four labels this is.
    pub index: u8,
    /// The pool.
    pub config: PoolConfig,
}

impl PoolConfig {
    /// Whether only software that knows this feature may write the pool.
    pub fn writes_with(&self, feature: &str) -> bool {
        self.features_write.iter().any(|known| known == feature)
    }

    /// All leaves with the number of their vdev.
    pub fn leaves(&self) -> impl Iterator<Item = (usize, &LeafConfig)> {
        self.vdevs
            .iter()
            .enumerate()
            .flat_map(|(vdev, config)| config.leaves.iter().map(move |leaf| (vdev, leaf)))
    }

    /// The purpose of this leaf's vdev; `None` if the leaf is not of this pool.
    pub fn class_of(&self, leaf: Guid) -> Option<VdevClass> {
        let mut leaves = self.leaves();
        let (vdev, _) = leaves.find(|(_, config)| config.guid == leaf)?;
        self.vdevs.get(vdev).map(|vdev| vdev.class)
    }

    /// All disks: the leaves of its vdevs, spares that are not in use, and caches.
    pub fn disks(&self) -> impl Iterator<Item = &LeafConfig> {
        let in_use = |spare: &&LeafConfig| self.leaves().any(|(_, leaf)| leaf.guid == spare.guid);
        let spares = self.spares.iter().filter(move |spare| !in_use(spare));
        self.leaves().map(|(_, leaf)| leaf).chain(spares).chain(&self.caches)
    }

    /// Copies of txg records, and of inner and pool-wide nodes, that a root of `txg` has unless it
    /// says otherwise: two, if a data vdev of that time has no redundancy.
    pub fn record_copies(&self, txg: Txg) -> u8 {
        let data = |vdev: &&VdevConfig| vdev.class == VdevClass::Data && vdev.birth <= txg;
        self.vdevs.iter().filter(data).map(|vdev| vdev.redundancy.copies()).max().unwrap_or(1)
    }

    /// Whether blocks of a txg may lie on more than one data vdev.
    pub fn is_spread(&self, txg: Txg) -> bool {
        let data = |vdev: &&VdevConfig| vdev.class == VdevClass::Data && vdev.birth <= txg;
        self.vdevs.iter().filter(data).count() > 1
    }

    /// The version that says all of it.
    fn version(&self) -> u32 {
        let plain = self.spares.is_empty()
            && self.leaves().all(|(_, leaf)| leaf.is_plain())
            && self.vdevs.iter().all(VdevConfig::is_plain);
        match (self.caches.is_empty(), plain) {
            (false, _) => 3,
            (true, false) => 2,
            (true, true) => 1,
        }
    }

    /// Checks the rules of every config, read or to be written.
    fn check(&self) -> Result<(), FormatError> {
        let leaves = self.disks().count();
        let bare = |vdev: &VdevConfig| vdev.leaves.is_empty() != (vdev.class == VdevClass::Hole);
        if leaves > LEAVES_MAX || self.vdevs.iter().any(bare) {
            return Err(FormatError::invalid("label config: leaves", leaves as u64));
        }
        for vdev in &self.vdevs {
            if vdev.segments > VDEV_SEGMENTS_MAX {
                return Err(FormatError::invalid("label config: segments", vdev.segments));
            }
            if vdev.grown_from_segments > vdev.segments {
                let from = vdev.grown_from_segments;
                return Err(FormatError::invalid("label config: grown from segments", from));
            }
            let of_metaslab = vdev.metaslab_segments;
            let sizes = METASLAB_SEGMENTS_MIN..=METASLAB_SEGMENTS_MAX;
            if !of_metaslab.is_power_of_two() || !sizes.contains(&of_metaslab) {
                return Err(FormatError::invalid("label config: metaslab", of_metaslab));
            }
        }
        let leaves = self.leaves().map(|(_, leaf)| leaf);
        let leaves = leaves.chain(&self.spares).chain(&self.caches);
        let paths = leaves.map(|leaf| (&leaf.path, PATH_BYTES_MAX));
        let features = self.features_read.iter().chain(&self.features_write);
        let features = features.map(|feature| (feature, FEATURE_BYTES_MAX));
        let name = std::iter::once((&self.name, POOL_NAME_BYTES_MAX));
        for (text, bytes_max) in name.chain(features).chain(paths) {
            if text.len() > bytes_max {
                return Err(FormatError::TooLarge { what: WHAT, bytes: text.len() });
            }
        }
        Ok(())
    }
}

impl Label {
    /// The config area's bytes, sealed.
    ///
    /// # Errors
    /// Names and paths that are too long, too many leaves: a config that could not be read back is
    /// refused before it is written.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = Writer::new();
        let config = &self.config;
        config.check()?;
        let version = config.version();
        w.put(&MAGIC);
        w.u32(version);
        w.u64(config.config_sequence);
        w.u64(config.pool_guid.0);
        w.u64(self.leaf_guid.0);
        w.u8(self.index);
        w.string(config.name.as_bytes());
        encode_features(&config.features_read, &mut w);
        encode_features(&config.features_write, &mut w);
        w.count(config.vdevs.len());
        for vdev in &config.vdevs {
            w.u64(vdev.guid.0);
            w.u8(vdev.class as u8);
            w.u8(vdev.redundancy as u8);
            w.u64(vdev.segments);
            w.u64(vdev.birth.0);
            if version > 1 {
                w.u64(vdev.metaslab_segments);
                w.u64(vdev.grown_from_segments);
            }
            encode_leaves(&vdev.leaves, version, &mut w);
        }
        if version > 1 {
            encode_leaves(&config.spares, version, &mut w);
        }
        if version > 2 {
            encode_leaves(&config.caches, version, &mut w);
        }
        seal(w, usize::try_from(CONFIG_SECTORS).unwrap_or(usize::MAX), WHAT)
    }

    /// Reads a config area.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        // The magic comes first: "no label here" and "a damaged label" are different results.
        Reader::new(bytes, WHAT).magic(MAGIC)?;
        let mut r = Reader::new(unseal(bytes, WHAT)?, WHAT);
        r.magic(MAGIC)?;
        let version = r.version(POOL_VERSION)?;
        let config_sequence = r.sequence()?;
        let pool_guid = Guid(r.u64()?);
        let leaf_guid = Guid(r.u64()?);
        let index = r.u8()?;
        let name = r.text(POOL_NAME_BYTES_MAX)?;
        let features_read = decode_features(&mut r)?;
        let features_write = decode_features(&mut r)?;
        let vdevs =
            (0..r.u32()?).map(|_| decode_vdev(&mut r, version)).collect::<Result<_, _>>()?;
        let spares = if version > 1 { decode_leaves(&mut r, version)? } else { Vec::new() };
        let caches = if version > 2 { decode_leaves(&mut r, version)? } else { Vec::new() };
        let config = PoolConfig {
            config_sequence,
            pool_guid,
            name,
            features_read,
            features_write,
            vdevs,
            spares,
            caches,
        };
        config.check()?;
        Ok(Label { leaf_guid, index, config })
    }
}

fn encode_features(features: &[String], w: &mut Writer) {
    w.count(features.len());
    for feature in features {
        w.string(feature.as_bytes());
    }
}

fn decode_features(r: &mut Reader<'_>) -> Result<Vec<String>, FormatError> {
    (0..r.u32()?).map(|_| r.text(FEATURE_BYTES_MAX)).collect()
}

fn encode_leaves(leaves: &[LeafConfig], version: u32, w: &mut Writer) {
    w.count(leaves.len());
    for leaf in leaves {
        w.u64(leaf.guid.0);
        w.u64(leaf.sectors);
        w.string(leaf.path.as_bytes());
        if version > 1 {
            let (stands, whom) = match leaf.stands {
                Stands::ForItself => (0, 0),
                Stands::Replaces(whom) => (1, whom.0),
                Stands::SpareFor(whom) => (2, whom.0),
            };
            w.u8(if leaf.offline { OFFLINE } else { 0 });
            w.u8(stands);
            w.u64(whom);
        }
    }
}

fn decode_vdev(r: &mut Reader<'_>, version: u32) -> Result<VdevConfig, FormatError> {
    let guid = Guid(r.u64()?);
    let class = match r.u8()? {
        1 => VdevClass::Data,
        2 => VdevClass::Log,
        3 => VdevClass::Hole,
        other => return Err(FormatError::invalid("label config: vdev class", other)),
    };
    let redundancy = match r.u8()? {
        1 => Redundancy::Single,
        2 => Redundancy::Mirror,
        other => return Err(FormatError::invalid("label config: redundancy", other)),
    };
    let (segments, birth) = (r.u64()?, r.txg()?);
    let (metaslab_segments, grown_from_segments) =
        if version > 1 { (r.u64()?, r.u64()?) } else { (metaslab_segments(segments), 0) };
    Ok(VdevConfig {
        guid,
        class,
        redundancy,
        segments,
        birth,
        metaslab_segments,
        grown_from_segments,
        leaves: decode_leaves(r, version)?,
    })
}

fn decode_leaves(r: &mut Reader<'_>, version: u32) -> Result<Vec<LeafConfig>, FormatError> {
    (0..r.u32()?).map(|_| decode_leaf(r, version)).collect()
}

fn decode_leaf(r: &mut Reader<'_>, version: u32) -> Result<LeafConfig, FormatError> {
    let (guid, sectors, path) = (Guid(r.u64()?), r.u64()?, r.text(PATH_BYTES_MAX)?);
    let mut leaf = LeafConfig::new(guid, sectors, path);
    if version > 1 {
        leaf.offline = match r.u8()? {
            0 => false,
            OFFLINE => true,
            other => return Err(FormatError::invalid("label config: leaf flags", other)),
        };
        leaf.stands = match (r.u8()?, Guid(r.u64()?)) {
            (0, Guid(0)) => Stands::ForItself,
            (1, whom) => Stands::Replaces(whom),
            (2, whom) => Stands::SpareFor(whom),
            (other, _) => return Err(FormatError::invalid("label config: leaf stands", other)),
        };
    }
    Ok(leaf)
}
