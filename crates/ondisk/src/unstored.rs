//! Ids of what clients see and no disk has: what lies in `.aquifer` of a directory, and the
//! directories that show the datasets below one.
//!
//! ```text
//! bit 62: 1   bits 58..62: kind   bits 0..58: number
//! ```
//! They are in handles, and in entries of the reply table. No tree holds an object of such an id:
//! ids are given out in order, and do not come that far.

use crate::file_snapshot::FileSnapshotId;
use crate::types::{DatasetId, ObjectId};

/// Ids from here on, below [`SEQUENCE_LIMIT`](crate::types::SEQUENCE_LIMIT), are of this form.
const FIRST: u64 = 1 << 62;
const KIND_SHIFT: u32 = 58;
const NUMBER_LIMIT: u64 = 1 << KIND_SHIFT;
const KIND_MASK: u64 = 0xf;
const _: () = assert!(FIRST << 1 == crate::types::SEQUENCE_LIMIT);

/// Meaning of an object id that clients see and no disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unstored {
    /// `.aquifer` in this directory, which is not the root directory.
    Hidden(ObjectId),
    /// `.aquifer/FILE` of this file: its versions.
    Versions(ObjectId),
    /// `.aquifer/FILE/control` of this file.
    Control(ObjectId),
    /// A file as of this snapshot of it.
    FileSnapshot(FileSnapshotId),
    /// This file of a snapshot of its dataset, as a version of the live file.
    AsOf(ObjectId),
    /// The directory that shows this dataset in the one above it.
    Below(DatasetId),
}

impl Unstored {
    /// Its id; `None` if there is none, since the number is too large.
    pub fn id(self) -> Option<ObjectId> {
        let (kind, number) = match self {
            Unstored::Hidden(object) => (1, object.0),
            Unstored::Versions(object) => (2, object.0),
            Unstored::Control(object) => (3, object.0),
            Unstored::FileSnapshot(snapshot) => (4, snapshot.0),
            Unstored::AsOf(object) => (5, object.0),
            Unstored::Below(dataset) => (6, dataset.0),
        };
        (number < NUMBER_LIMIT).then_some(ObjectId(FIRST | kind << KIND_SHIFT | number))
    }

    /// Returns the meaning of an id, if it is one that no disk has.
    pub fn of(id: ObjectId) -> Option<Unstored> {
        // Every call asks.
        if id.0 < FIRST || id.0 >> 63 != 0 {
            return None;
        }
        let number = id.0 & (NUMBER_LIMIT - 1);
        Some(match id.0 >> KIND_SHIFT & KIND_MASK {
            1 => Unstored::Hidden(ObjectId(number)),
            2 => Unstored::Versions(ObjectId(number)),
            3 => Unstored::Control(ObjectId(number)),
            4 => Unstored::FileSnapshot(FileSnapshotId(number)),
            5 => Unstored::AsOf(ObjectId(number)),
            6 => Unstored::Below(DatasetId(number)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Txg;

    #[test]
    fn an_id_is_that_of_one_thing() {
        let largest = NUMBER_LIMIT - 1;
        for number in [0, 1, 16, 1 << 40, largest] {
            let object = ObjectId(number);
            let all = [
                Unstored::Hidden(object),
                Unstored::Versions(object),
                Unstored::Control(object),
                Unstored::FileSnapshot(FileSnapshotId(number)),
                Unstored::AsOf(object),
                Unstored::Below(DatasetId(number)),
            ];
            for of in all {
                assert_eq!(of.id().map(Unstored::of), Some(Some(of)));
            }
        }
        let last = FileSnapshotId::new(Txg(Txg::LIMIT - 1), u16::MAX);
        assert!(Unstored::FileSnapshot(last).id().is_some());
        assert_eq!(Unstored::Versions(ObjectId(NUMBER_LIMIT)).id(), None);
        for other in [0, 3, 4, NUMBER_LIMIT, FIRST - 1, FIRST, FIRST | 7 << 58, 1 << 63, u64::MAX] {
            assert_eq!(Unstored::of(ObjectId(other)), None, "{other:#x}");
        }
    }
}
