//! The numbers of the format, each a type of its own so that they cannot be mixed up.

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
    /// The txg after this one.
    pub fn next(self) -> Txg {
        Txg(self.0.saturating_add(1))
    }
}

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

    /// The place of `sector` on `vdev`; the sector is taken modulo 2^48.
    pub fn new(vdev: u16, sector: u64) -> Place {
        debug_assert!(sector < Self::SECTOR_LIMIT);
        Place(u64::from(vdev) << 48 | (sector & (Self::SECTOR_LIMIT - 1)))
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

    /// The place `sectors` further on the same vdev.
    pub fn plus(self, sectors: u64) -> Place {
        Place::new(self.vdev(), self.sector() + sectors)
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
}
