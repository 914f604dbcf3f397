//! The state of a pool's scrub. The pool itself remembers it, so that a restart does not begin the
//! scrub anew.
//!
//! ```text
//! item of dataset 0, class 6, number 0
//!   version u16  state u8 (1 active, 2 paused, 3 finished, 4 canceled)  flags u8 (0)
//!   begun i64+u32  ended i64+u32 (of state 3 and 4, else 0)
//!   active_ms u64      time of work, without pauses
//!   total_bytes u64    bytes in use when it began
//!   examined_bytes u64  repaired_bytes u64  unreadable_blocks u64
//!   position: tree u8  key u64 u64  object u64  within u64
//! ```
//! The position is that of the first block that was not examined (see [`WalkPosition`]).

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::ItemClass;
use crate::inode::Time;
use crate::types::{DatasetId, Txg};

const WHAT: &str = "scrub record";
const VERSION: u16 = 1;

/// A position in the order in which a walk meets all blocks of a pool: by pool-wide tree, by key in
/// that tree, by object in the dataset that the key leads to, by key in the object's tree. The head
/// of a dataset comes right after its snapshots ([`WalkPosition::head`]).
///
/// Each block is met at the first snapshot that shows it, else in the head. Snapshots of files come
/// after the head; they show once more what they share with it. A block keeps its position until it
/// is freed, or moves to a later one: ids of objects and datasets and txgs of snapshots only rise.
/// If a snapshot goes, what others show is met later. What comes back to a file that is rolled back
/// stays in the snapshot until the walk ends. A snapshot that is taken while the walk is in the
/// head comes after it once more ([`WalkPosition::later`]): what it shows may have left the head
/// before the walk came. If the head is rolled back to it, the head comes once more too, as if it
/// were a snapshot of then: what it came back to may be shown by nothing else soon. So a walk in
/// pieces, each over the newest root of its time, misses nothing that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WalkPosition {
    /// The slot of the pool-wide tree in the pool root.
    pub tree: u8,
    /// The key in that tree, or that of a head. The second part is 0 where keys have only one.
    pub key: (u64, u64),
    /// The object in the dataset's object table.
    pub object: u64,
    /// The key in the object's tree: a file's page, or a directory's stored key.
    pub within: u64,
}

/// Ids of objects are below this.
const DEAD: u64 = 1 << 63;

impl WalkPosition {
    /// Heads are numbered as if they were snapshots: above all of them, below all other items.
    const HEAD: u64 = (ItemClass::Snapshot as u64) << 56 | 1 << 55;
    /// And after it, snapshots that came later.
    const LATER: u64 = Self::HEAD | 1 << 54;

    /// The key of the head of a dataset, without what was born up to a txg: a snapshot of then, 0
    /// for none, has shown that.
    pub fn head(dataset: DatasetId, after: Txg) -> (u64, u64) {
        (dataset.0, Self::HEAD | after.0)
    }

    /// The key of a snapshot that was taken while the walk was in the head, or of the head itself
    /// since it was rolled back to one of these.
    pub fn later(dataset: DatasetId, snapshot: Txg) -> (u64, u64) {
        (dataset.0, Self::LATER | snapshot.0)
    }

    /// The txg up to which all was met before, if a key stands for a head.
    pub fn head_of(key: (u64, u64)) -> Option<Txg> {
        key.1.checked_sub(Self::HEAD).filter(|txg| *txg < Txg::LIMIT).map(Txg)
    }

    /// The snapshot, if a key stands for one that came while the walk was in the head.
    pub fn later_of(key: (u64, u64)) -> Option<Txg> {
        key.1.checked_sub(Self::LATER).filter(|txg| *txg < Txg::LIMIT).map(Txg)
    }

    /// The snapshot for which a key of the namespace stands.
    pub fn snapshot_of(key: (u64, u64)) -> Option<Txg> {
        let first = (ItemClass::Snapshot as u64) << 56;
        let own = key.1.checked_sub(first).filter(|txg| *txg < Txg::LIMIT).map(Txg);
        own.or_else(|| Self::later_of(key))
    }

    /// The object that stands for a group of a dataset's dead tree: behind all objects, in the
    /// order of groups. Within it, blocks come by their newest snapshot.
    pub fn dead_group(group: u64) -> u64 {
        DEAD | group
    }

    /// The position as earlier releases left it. They had no groups in a dead tree, all of which
    /// was behind the objects: there, this one begins with the first group.
    pub fn resumed(self) -> WalkPosition {
        match self.object {
            u64::MAX if self != Self::END => WalkPosition { object: DEAD, within: 0, ..self },
            _ => self,
        }
    }

    /// After everything.
    pub const END: WalkPosition = WalkPosition {
        tree: u8::MAX,
        key: (u64::MAX, u64::MAX),
        object: u64::MAX,
        within: u64::MAX,
    };
}

/// State of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ScrubState {
    /// It goes on, also after a restart.
    Active = 1,
    /// It waits to be resumed.
    Paused = 2,
    /// It has examined everything.
    Finished = 3,
    /// It was stopped. Another one begins from the start.
    Canceled = 4,
}

/// A pool's newest scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Its state.
    pub state: ScrubState,
    /// When it began.
    pub begun: Time,
    /// When it finished or was canceled, else 0.
    pub ended: Time,
    /// Time of work so far, without pauses.
    pub active_ms: u64,
    /// Bytes in use when it began.
    pub total_bytes: u64,
    /// Bytes of blocks that it has examined, each counted once however many copies there are.
    pub examined_bytes: u64,
    /// Bytes of bad copies that were rewritten from a good one.
    pub repaired_bytes: u64,
    /// Blocks, or pages of blocks, of which no copy verified.
    pub unreadable_blocks: u64,
    /// The first block that was not examined.
    pub position: WalkPosition,
}

impl ScrubRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u8(self.state as u8);
        w.u8(0);
        self.begun.encode(&mut w);
        self.ended.encode(&mut w);
        w.u64(self.active_ms);
        w.u64(self.total_bytes);
        w.u64(self.examined_bytes);
        w.u64(self.repaired_bytes);
        w.u64(self.unreadable_blocks);
        w.u8(self.position.tree);
        let (first, second) = self.position.key;
        w.u64(first);
        w.u64(second);
        w.u64(self.position.object);
        w.u64(self.position.within);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(value, WHAT);
        let version = r.u16()?;
        if version != VERSION {
            return Err(FormatError::NewerVersion { what: WHAT, version: version.into() });
        }
        let state = match r.u8()? {
            1 => ScrubState::Active,
            2 => ScrubState::Paused,
            3 => ScrubState::Finished,
            4 => ScrubState::Canceled,
            other => return Err(FormatError::invalid("scrub record: state", other)),
        };
        let flags = r.u8()?;
        if flags != 0 {
            return Err(FormatError::invalid("scrub record: flags", flags));
        }
        Ok(ScrubRecord {
            state,
            begun: Time::decode(&mut r)?,
            ended: Time::decode(&mut r)?,
            active_ms: r.u64()?,
            total_bytes: r.u64()?,
            examined_bytes: r.u64()?,
            repaired_bytes: r.u64()?,
            unreadable_blocks: r.u64()?,
            position: WalkPosition {
                tree: r.u8()?,
                key: (r.u64()?, r.u64()?),
                object: r.u64()?,
                within: r.u64()?,
            },
        })
    }
}
