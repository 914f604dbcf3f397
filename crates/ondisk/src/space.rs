//! Space that extents take, and what compression saves of it.

use std::fmt::{self, Display};

/// Bytes on disk, and how many more they would be without compression. Sums stop at the ends of
/// their range: what a hostile disk says must not stop the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes that compression saves. 0 in a pool that does not count them.
    pub saved_bytes: u64,
}

impl Space {
    /// That of sectors.
    pub fn of_sectors(sectors: u64, saved_sectors: u64) -> Space {
        Space {
            bytes: sectors.saturating_mul(4096),
            saved_bytes: saved_sectors.saturating_mul(4096),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, more: Space) -> Space {
        Space {
            bytes: self.bytes.saturating_add(more.bytes),
            saved_bytes: self.saved_bytes.saturating_add(more.saved_bytes),
        }
    }

    /// Returns the space that is left without the other.
    #[must_use]
    pub fn minus(self, less: Space) -> Space {
        Space {
            bytes: self.bytes.saturating_sub(less.bytes),
            saved_bytes: self.saved_bytes.saturating_sub(less.saved_bytes),
        }
    }

    /// Bytes before compression.
    pub fn logical_bytes(self) -> u64 {
        self.bytes.saturating_add(self.saved_bytes)
    }
}

impl Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.saved_bytes {
            0 => write!(f, "{} bytes", self.bytes),
            saved => write!(f, "{} bytes ({saved} saved)", self.bytes),
        }
    }
}
