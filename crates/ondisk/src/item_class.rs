//! The classes of items of the namespace.

/// The class of an item: the high byte of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ItemClass {
    /// The dataset itself (of dataset 0: counters).
    Record = 0,
    /// A property.
    Property = 1,
    /// A snapshot.
    Snapshot = 2,
    /// A line of history.
    Line = 3,
    /// A destroyed dataset that is being emptied: its record.
    Destroyed = 4,
    /// Of dataset 0: a damage.
    Damage = 5,
    /// Of dataset 0: the newest scrub.
    Scrub = 6,
    /// A sweep.
    Sweep = 7,
    /// The newest rollback.
    Rollback = 8,
    /// Why a snapshot stays or goes.
    Keep = 10,
    /// Of dataset 0: the hold clock.
    HoldClock = 11,
    /// Which dataset lists a snapshot.
    Lister = 12,
    /// A line whose dataset was destroyed: its record.
    HiddenLine = 13,
    /// Space that a clone refers to and its origin owns.
    Inherited = 14,
    /// Of dataset 0: when the free space of a disk was last worked on.
    FreeWork = 15,
    /// A snapshot of a file.
    FileSnapshot = 16,
    /// A sweep of a destroyed one.
    FileSweep = 17,
    /// Of dataset 0: work on the free space of a disk that goes on or is suspended.
    OpenWork = 19,
    /// A rollback of a file.
    FileRollback = 20,
    /// A clone of a file.
    FileClone = 21,
    /// A receive into the head that is under way.
    Receiving = 22,
    /// How far a stream has come that may go on.
    Resume = 23,
    /// A bookmark of a snapshot, or a destroyed one.
    Bookmark = 24,
    /// A piece of a property that a user made up.
    UserProperty = 25,
    /// A line of a file.
    FileLine = 26,
    /// A clone of a file of another dataset.
    FileCloneAcross = 27,
    /// A line that the head of a dataset began.
    HeadLine = 28,
    /// Where what an old head had belongs.
    LeftHead = 29,
    /// The holds on a snapshot of a file.
    FileKeep = 30,
    /// How much of a head snapshots show.
    Covered = 31,
}

impl ItemClass {
    /// The class of this number.
    pub fn from_u8(class: u8) -> Option<ItemClass> {
        Some(match class {
            0 => ItemClass::Record,
            1 => ItemClass::Property,
            2 => ItemClass::Snapshot,
            3 => ItemClass::Line,
            4 => ItemClass::Destroyed,
            5 => ItemClass::Damage,
            6 => ItemClass::Scrub,
            7 => ItemClass::Sweep,
            8 => ItemClass::Rollback,
            10 => ItemClass::Keep,
            11 => ItemClass::HoldClock,
            12 => ItemClass::Lister,
            13 => ItemClass::HiddenLine,
            14 => ItemClass::Inherited,
            15 => ItemClass::FreeWork,
            16 => ItemClass::FileSnapshot,
            17 => ItemClass::FileSweep,
            19 => ItemClass::OpenWork,
            20 => ItemClass::FileRollback,
            21 => ItemClass::FileClone,
            22 => ItemClass::Receiving,
            23 => ItemClass::Resume,
            24 => ItemClass::Bookmark,
            25 => ItemClass::UserProperty,
            26 => ItemClass::FileLine,
            27 => ItemClass::FileCloneAcross,
            28 => ItemClass::HeadLine,
            29 => ItemClass::LeftHead,
            30 => ItemClass::FileKeep,
            31 => ItemClass::Covered,
            _ => return None,
        })
    }
}
