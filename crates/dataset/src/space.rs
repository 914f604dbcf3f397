//! How space changes.

use aquifer_ondisk::Space;

/// How the space that a dataset's objects take changes in a txg.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpaceChange {
    bytes: i64,
    saved_bytes: i64,
}

impl SpaceChange {
    /// An object took so much before, and takes so much now.
    pub fn add(&mut self, before: Space, after: Space) {
        self.bytes += signed(after.bytes) - signed(before.bytes);
        self.saved_bytes += signed(after.saved_bytes) - signed(before.saved_bytes);
    }

    /// The sum after it.
    pub fn of(self, sum: Space) -> Space {
        Space {
            bytes: sum.bytes.saturating_add_signed(self.bytes),
            saved_bytes: sum.saved_bytes.saturating_add_signed(self.saved_bytes),
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
