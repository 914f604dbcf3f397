//! Unreadable or lost parts of a pool's content. The pool itself remembers them, so that no restart
//! makes it look whole.
//!
//! ```text
//! item of dataset 0, class 5; number = slot, 0 to DAMAGES_MAX - 1
//!   version u16  kind u8  flags u8 (1: the inode is lost too; 2: there are more ranges;
//!     4: accepted)
//!   dataset u64  object u64  txg u64  since i64+u32
//!   error string
//!   ranges u16, each: from u64  to u64 (pages)
//!   names u16, each: string
//! ```

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::ITEM_VALUE_BYTES_MAX;
use crate::extent::PAGE_LIMIT;
use crate::inode::Time;
use crate::types::{DatasetId, ObjectId, Txg};

const WHAT: &str = "damage record";
const VERSION: u16 = 1;
const FLAG_INODE_LOST: u8 = 1;
const FLAG_MORE: u8 = 2;
/// Earlier releases ignore it: they tell of the damage again.
const FLAG_ACCEPTED: u8 = 4;

/// Records that a pool remembers at most.
pub const DAMAGES_MAX: usize = 1000;
/// Longest text of an error, bytes.
pub const DAMAGE_ERROR_BYTES_MAX: usize = 160;
/// Ranges of pages in a record at most.
pub const DAMAGE_RANGES_MAX: usize = 40;
/// Names in a record at most, and their bytes in all.
pub const DAMAGE_NAMES_MAX: usize = 16;
/// See [`DAMAGE_NAMES_MAX`].
pub const DAMAGE_NAMES_BYTES_MAX: usize = 256;
const HEAD_BYTES: usize = 40;
const _: () = assert!(
    HEAD_BYTES
        + 2
        + DAMAGE_ERROR_BYTES_MAX
        + 2
        + 16 * DAMAGE_RANGES_MAX
        + 2
        + 2 * DAMAGE_NAMES_MAX
        + DAMAGE_NAMES_BYTES_MAX
        <= ITEM_VALUE_BYTES_MAX
);

/// The kind of an object's damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DamageKind {
    /// A part of it on disk cannot be read. The rest of the object is unaffected.
    Unreadable = 1,
    /// It lost changes, and is marked as damaged.
    Lost = 2,
}

/// The damage of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageRecord {
    /// The kind of damage.
    pub kind: DamageKind,
    /// Its inode could not be written: the inode on disk has no change of the txg.
    pub inode_lost: bool,
    /// The record lists only some of the ranges or names.
    pub more: bool,
    /// A person has taken the object as it is. The record stays, so that the same damage is not
    /// told again.
    pub accepted: bool,
    /// Its dataset.
    pub dataset: DatasetId,
    /// The object.
    pub object: ObjectId,
    /// The txg whose sync met the damage; 0: a read or a replay met it.
    pub txg: Txg,
    /// When the damage was first met.
    pub since: Time,
    /// The read error, for people.
    pub error: String,
    /// Ranges of pages: first, and the one after the last.
    pub ranges: Vec<(u64, u64)>,
    /// Names whose creation or removal was lost.
    pub names: Vec<Vec<u8>>,
}

impl DamageRecord {
    /// Cuts lists and texts that are too long for a record.
    pub fn shorten(&mut self) {
        if self.error.len() > DAMAGE_ERROR_BYTES_MAX {
            let end = (0..=DAMAGE_ERROR_BYTES_MAX).rfind(|at| self.error.is_char_boundary(*at));
            self.error.truncate(end.unwrap_or(0));
        }
        let mut bytes = 0;
        let mut fits = |name: &Vec<u8>| {
            bytes += name.len();
            bytes <= DAMAGE_NAMES_BYTES_MAX
        };
        let names = self.names.iter().take(DAMAGE_NAMES_MAX).take_while(|name| fits(name)).count();
        self.more |= names < self.names.len() || self.ranges.len() > DAMAGE_RANGES_MAX;
        self.names.truncate(names);
        self.ranges.truncate(DAMAGE_RANGES_MAX);
    }

    /// The bytes of a record that is [short](DamageRecord::shorten) enough.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u8(self.kind as u8);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let (lost, more) = (flag(self.inode_lost, FLAG_INODE_LOST), flag(self.more, FLAG_MORE));
        w.u8(lost | more | flag(self.accepted, FLAG_ACCEPTED));
        w.u64(self.dataset.0);
        w.u64(self.object.0);
        w.u64(self.txg.0);
        self.since.encode(&mut w);
        w.string(self.error.as_bytes());
        w.u16(u16::try_from(self.ranges.len()).unwrap_or(u16::MAX));
        for (from, to) in &self.ranges {
            w.u64(*from);
            w.u64(*to);
        }
        w.u16(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        self.names.iter().for_each(|name| w.string(name));
        let bytes = w.into_bytes();
        assert!(bytes.len() <= ITEM_VALUE_BYTES_MAX, "a damage record is shortened first");
        bytes
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, WHAT);
        let version = r.u16()?;
        if version != VERSION {
            return Err(FormatError::invalid("damage record: version", version));
        }
        let kind = match r.u8()? {
            1 => DamageKind::Unreadable,
            2 => DamageKind::Lost,
            other => return Err(FormatError::invalid("damage record: kind", other)),
        };
        let flags = r.u8()?;
        let (dataset, object) = (DatasetId(r.u64()?), ObjectId(r.u64()?));
        let txg = Txg(r.u64()?);
        let since = Time::decode(&mut r)?;
        let error = String::from_utf8_lossy(&r.string(DAMAGE_ERROR_BYTES_MAX)?).into_owned();
        let mut ranges = Vec::new();
        for _ in 0..counted(&mut r, DAMAGE_RANGES_MAX)? {
            let (from, to) = (r.u64()?, r.u64()?);
            if from >= to || to > PAGE_LIMIT {
                return Err(FormatError::invalid("damage record: range", from));
            }
            ranges.push((from, to));
        }
        let mut names = Vec::new();
        for _ in 0..counted(&mut r, DAMAGE_NAMES_MAX)? {
            names.push(r.string(DAMAGE_NAMES_BYTES_MAX)?);
        }
        Ok(DamageRecord {
            kind,
            inode_lost: flags & FLAG_INODE_LOST != 0,
            more: flags & FLAG_MORE != 0,
            accepted: flags & FLAG_ACCEPTED != 0,
            dataset,
            object,
            txg,
            since,
            error,
            ranges,
            names,
        })
    }
}

fn counted(r: &mut Reader<'_>, limit: usize) -> Result<u16, FormatError> {
    let count = r.u16()?;
    match usize::from(count) <= limit {
        true => Ok(count),
        false => Err(FormatError::invalid("damage record: count", count)),
    }
}
