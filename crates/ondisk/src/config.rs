//! The label's config: the identity of this leaf, and the whole vdev tree of its pool.
//!
//! ```text
//! magic "AQCONFIG"  version u32  config_sequence u64  pool_guid u64  leaf_guid u64  label u8
//! name string  features_read [string]  features_write [string]
//! vdevs u32, each:
//!   guid u64  class u8 (1 data, 2 log, 3 hole)  redundancy u8 (1 single, 2 mirror)
//!   segments u64  birth u64
//!   leaves u32 (none in a hole, else at least 1), each: guid u64  sectors u64  path string
//! padding; the last 16 bytes of the 56 sectors are the xxh3-128 of all before them
//! ```
//! `leaf_guid` and `label` are the own place. They show a label that was written to the wrong disk
//! or copied from another one. A pool has at most 128 leaves, over all vdevs.

use crate::codec::{FormatError, Reader, Writer, seal, unseal};
use crate::layout::{CONFIG_SECTORS, LEAVES_MAX};
use crate::types::{Guid, Place, SEGMENT_SECTORS, Txg};

const WHAT: &str = "label config";
const MAGIC: [u8; 8] = *b"AQCONFIG";
/// Newest format version of a pool that this software reads and writes.
pub const POOL_VERSION: u32 = 1;
/// Longest pool name, bytes.
pub const POOL_NAME_BYTES_MAX: usize = 255;
/// Longest path of a leaf, bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest name of a feature, bytes.
pub const FEATURE_BYTES_MAX: usize = 64;
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
    /// Its disks.
    pub leaves: Vec<LeafConfig>,
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

    /// Checks the rules of every config, read or to be written.
    fn check(&self) -> Result<(), FormatError> {
        let leaves: usize = self.vdevs.iter().map(|vdev| vdev.leaves.len()).sum();
        let bare = |vdev: &VdevConfig| vdev.leaves.is_empty() != (vdev.class == VdevClass::Hole);
        if leaves > LEAVES_MAX || self.vdevs.iter().any(bare) {
            return Err(FormatError::invalid("label config: leaves", leaves as u64));
        }
        for vdev in &self.vdevs {
            if vdev.segments > VDEV_SEGMENTS_MAX {
                return Err(FormatError::invalid("label config: segments", vdev.segments));
            }
        }
        let paths = self.leaves().map(|(_, leaf)| (&leaf.path, PATH_BYTES_MAX));
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
        w.put(&MAGIC);
        w.u32(POOL_VERSION);
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
            w.count(vdev.leaves.len());
            for leaf in &vdev.leaves {
                w.u64(leaf.guid.0);
                w.u64(leaf.sectors);
                w.string(leaf.path.as_bytes());
            }
        }
        seal(w, usize::try_from(CONFIG_SECTORS).unwrap_or(usize::MAX), WHAT)
    }

    /// Reads a config area.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        // The magic comes first: "no label here" and "a damaged label" are different results.
        Reader::new(bytes, WHAT).magic(MAGIC)?;
        let mut r = Reader::new(unseal(bytes, WHAT)?, WHAT);
        r.magic(MAGIC)?;
        r.version(POOL_VERSION)?;
        let config_sequence = r.sequence()?;
        let pool_guid = Guid(r.u64()?);
        let leaf_guid = Guid(r.u64()?);
        let index = r.u8()?;
        let name = r.text(POOL_NAME_BYTES_MAX)?;
        let features_read = decode_features(&mut r)?;
        let features_write = decode_features(&mut r)?;
        let vdevs = (0..r.u32()?).map(|_| decode_vdev(&mut r)).collect::<Result<_, _>>()?;
        let config =
            PoolConfig { config_sequence, pool_guid, name, features_read, features_write, vdevs };
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

fn decode_vdev(r: &mut Reader<'_>) -> Result<VdevConfig, FormatError> {
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
    let segments = r.u64()?;
    let birth = r.txg()?;
    let leaves = (0..r.u32()?)
        .map(|_| {
            Ok(LeafConfig {
                guid: Guid(r.u64()?),
                sectors: r.u64()?,
                path: r.text(PATH_BYTES_MAX)?,
            })
        })
        .collect::<Result<Vec<_>, FormatError>>()?;
    Ok(VdevConfig { guid, class, redundancy, segments, birth, leaves })
}
