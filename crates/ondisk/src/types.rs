//! The numbers of the format, each with a type of its own so that they cannot be mixed up.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number! {
    /// A transaction group. 0 is "none"; the first txg of a pool is 1.
    Txg
}
number! {
    /// A random identity: of a pool, a vdev, a leaf, a file system. 0 is "none".
    Guid
}
number! {
    /// A dataset, unique in its pool, never reused. 0 is "none".
    DatasetId
}
number! {
    /// A file, directory or symlink, unique in its dataset, never reused. 0 is "none".
    ObjectId
}

impl Txg {
    /// Txgs are below this: an extent has 40 bits for its birth. At one txg a millisecond that is
    /// 34 years, at one each 15 seconds half a million.
    pub const LIMIT: u64 = 1 << 40;

    /// The txg after this one.
    pub fn next(self) -> Txg {
        Txg(self.0.saturating_add(1))
    }
}

/// Sequences (of uberblocks, configs, batches, sessions, the next ids of a dataset) are below this,
/// so that the next one needs no check.
pub const SEQUENCE_LIMIT: u64 = 1 << 63;

/// Sectors per segment: 4 MiB, the grain of the segment table, records and log.
pub const SEGMENT_SECTORS: u64 = 1024;

/// A pool address: vdev (16 bits) and sector (48 bits) in that vdev's logical space.
///
/// The null place is 0: vdev 0, sector 0 is a label and never holds a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(pub u64);

impl Place {
    /// No place.
    pub const NULL: Place = Place(0);
    /// Sectors are below this.
    pub const SECTOR_LIMIT: u64 = 1 << 48;

    /// The place of `sector` (below [`Place::SECTOR_LIMIT`]) on `vdev`.
    pub fn new(vdev: u16, sector: u64) -> Place {
        // A sector cut off silently would be another block's.
        assert!(sector < Self::SECTOR_LIMIT, "a vdev has no sector {sector}");
        Place(u64::from(vdev) << 48 | sector)
    }

    /// The top-level vdev.
    pub fn vdev(self) -> u16 {
        let [a, b, ..] = self.0.to_be_bytes();
        u16::from_be_bytes([a, b])
    }

    /// The sector in the vdev's logical space.
    pub fn sector(self) -> u64 {
        self.0 & (Self::SECTOR_LIMIT - 1)
    }

    /// The place `sectors` further on the same vdev. It must be below [`Place::SECTOR_LIMIT`]:
    /// within or right after a decoded run it always is.
    pub fn plus(self, sectors: u64) -> Place {
        Place::new(self.vdev(), self.sector().saturating_add(sectors))
    }

    /// Whether a run of `sectors` from here on ends within a vdev. The last sector that a place can
    /// name is never part of one: a leaf's last segment holds its labels.
    pub fn fits(self, sectors: u64) -> bool {
        self.sector().saturating_add(sectors) < Self::SECTOR_LIMIT
    }

    /// Whether this is no place.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.vdev(), self.sector())
    }
}

/// The root directory of every dataset.
pub const ROOT_DIRECTORY: ObjectId = ObjectId(1);
/// The directory of a dataset's objects that no longer have a name and wait to be freed. It has no
/// name itself.
pub const ORPHANS: ObjectId = ObjectId(2);
/// The directory `.aquifer` in a dataset's root directory. It is on no disk: only its handle has
/// this number.
pub const HIDDEN_DIRECTORY: ObjectId = ObjectId(3);
/// The directory `.aquifer/snapshot`, whose entries are the dataset's snapshots. It is on no disk.
pub const SNAPSHOT_DIRECTORY: ObjectId = ObjectId(4);
/// The first object that a client gets; those below are well known, or reserved.
pub const FIRST_OBJECT: ObjectId = ObjectId(16);

/// A run of consecutive sectors on one vdev.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// First sector.
    pub place: Place,
    /// Number of sectors, at least 1.
    pub sectors: u64,
}

impl Run {
    /// A run of `sectors` from `place` on.
    pub fn new(place: Place, sectors: u64) -> Run {
        Run { place, sectors }
    }

    /// The sector after the last one.
    pub fn end_sector(self) -> u64 {
        self.place.sector().saturating_add(self.sectors)
    }

    /// Whether a sector belongs to it.
    pub fn contains(self, place: Place) -> bool {
        place.vdev() == self.place.vdev()
            && (self.place.sector()..self.end_sector()).contains(&place.sector())
    }
}
