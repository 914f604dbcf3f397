//! The pool's history of acts. A tree of its own ([`TreeSlot::History`]), with items in the form of
//! the namespace's.
//!
//! ```text
//! item key: dataset u64 = 0  item u64 = class << 56 | number
//!   class 0, number 0   counters: version u16  next order u64  next act u64  next attempt u64
//!   class 1   an act that was carried out; the newest HISTORY_ACTS_MAX numbers
//!   class 2   one that was not; the newest HISTORY_ATTEMPTS_MAX
//!   class 3   one that began, of which no result is known; number = order; the newest
//!             HISTORY_BEGUN_MAX
//!   class 4   an event: something that happened, with nobody asking for it; number = order; those
//!             of the newest HISTORY_EVENTS_MAX orders
//!   class 7   an act that a host asked for by NFS, whatever came of it; counted up by itself; the
//!             newest HISTORY_OF_HOSTS_MAX numbers
//! value of classes 1 to 4 and 7:
//!   version u16  outcome u8  flags u8 (1: a text was cut; 2: more changed)
//!   order u64  began i64+u32
//!   who string  host string  act string  result string
//!   changes u16, each: what string  before string  after string
//! ```
//! An event has its class in who, its text in act, its level in result, its fields in changes.
//! Orders rise over all classes; an act of a host has that of what was noted before it, so that
//! hosts push nothing out. Secrets (a token) never stand in it.
//!
//! [`TreeSlot::History`]: crate::pool_root::TreeSlot::History

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::{ITEM_VALUE_BYTES_MAX, ItemKey};
use crate::inode::Time;
use crate::types::DatasetId;

const WHAT: &str = "history record";
const WHAT_COUNTERS: &str = "history counters";
const VERSION: u16 = 1;
const FLAG_CUT: u8 = 1;
const FLAG_MORE: u8 = 2;

/// Completed acts that a pool remembers.
pub const HISTORY_ACTS_MAX: u64 = 4096;
/// Acts not carried out that a pool remembers.
pub const HISTORY_ATTEMPTS_MAX: u64 = 256;
/// Acts without a result that a pool remembers.
pub const HISTORY_BEGUN_MAX: u64 = 64;
/// Orders behind which events are forgotten.
pub const HISTORY_EVENTS_MAX: u64 = 1024;
/// Acts of hosts that a pool remembers.
pub const HISTORY_OF_HOSTS_MAX: u64 = 1024;
/// Longest text of the user, bytes.
pub const HISTORY_WHO_BYTES_MAX: usize = 128;
/// Longest name of the machine, bytes.
pub const HISTORY_HOST_BYTES_MAX: usize = 64;
/// Longest text of the request, bytes.
pub const HISTORY_ACT_BYTES_MAX: usize = 400;
/// Longest text of the result, bytes.
pub const HISTORY_RESULT_BYTES_MAX: usize = 160;
/// Changes in a record at most, and the bytes of their texts in all.
pub const HISTORY_CHANGES_MAX: usize = 12;
/// See [`HISTORY_CHANGES_MAX`].
pub const HISTORY_CHANGES_BYTES_MAX: usize = 340;
const HEAD_BYTES: usize = 24;
const _: () = assert!(
    HEAD_BYTES
        + 2
        + HISTORY_WHO_BYTES_MAX
        + 2
        + HISTORY_HOST_BYTES_MAX
        + 2
        + HISTORY_ACT_BYTES_MAX
        + 2
        + HISTORY_RESULT_BYTES_MAX
        + 2
        + 6 * HISTORY_CHANGES_MAX
        + HISTORY_CHANGES_BYTES_MAX
        <= ITEM_VALUE_BYTES_MAX
);

/// The classes of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum HistoryClass {
    /// Carried out.
    Act = 1,
    /// Not carried out.
    Attempt = 2,
    /// Begun.
    Begun = 3,
    /// Something that happened.
    Event = 4,
    /// Asked for by a host.
    OfHost = 7,
}

/// The result of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// It began, and no result is noted.
    Begun = 0,
    /// It was carried out.
    Done = 1,
    /// It was not carried out, or not whole.
    Failed = 2,
    /// The caller may not do it.
    Forbidden = 3,
}

/// Something that an act changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryChange {
    /// The thing: a property, a disk.
    pub what: String,
    /// Its old value; empty if there was none.
    pub before: String,
    /// Its new value; empty if there is none.
    pub after: String,
}

/// One act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The result.
    pub outcome: Outcome,
    /// A text was cut.
    pub cut: bool,
    /// The record lists only some of the changes.
    pub more: bool,
    /// Its place among all acts of the pool.
    pub order: u64,
    /// When it began.
    pub began: Time,
    /// The user.
    pub who: String,
    /// The machine that carried it out.
    pub host: String,
    /// The request, as the command line would have it.
    pub act: String,
    /// Why it was not carried out; empty if it was.
    pub result: String,
    /// Changes that it made.
    pub changes: Vec<HistoryChange>,
}

/// The key of a record.
pub fn history_key(class: HistoryClass, number: u64) -> ItemKey {
    debug_assert!(number < 1 << 56);
    ItemKey { dataset: DatasetId(0), item: u64::from(class as u8) << 56 | number }
}

/// The class and number of a key, if it is a record's.
pub fn history_place(key: ItemKey) -> Option<(HistoryClass, u64)> {
    let (class, number) = key.class_and_number();
    let class = match (key.dataset, class) {
        (DatasetId(0), 1) => HistoryClass::Act,
        (DatasetId(0), 2) => HistoryClass::Attempt,
        (DatasetId(0), 3) => HistoryClass::Begun,
        (DatasetId(0), 4) => HistoryClass::Event,
        (DatasetId(0), 7) => HistoryClass::OfHost,
        _ => return None,
    };
    Some((class, number))
}

impl HistoryClass {
    /// Records of the class that are kept.
    pub fn kept(self) -> u64 {
        match self {
            HistoryClass::Act => HISTORY_ACTS_MAX,
            HistoryClass::Attempt => HISTORY_ATTEMPTS_MAX,
            HistoryClass::Begun => HISTORY_BEGUN_MAX,
            HistoryClass::Event => HISTORY_EVENTS_MAX,
            HistoryClass::OfHost => HISTORY_OF_HOSTS_MAX,
        }
    }
}

/// The numbers of the next records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryCounters {
    /// Order of the next act among all.
    pub order: u64,
    /// Number of the next act.
    pub act: u64,
    /// Number of the next attempt.
    pub attempt: u64,
}

impl Default for HistoryCounters {
    fn default() -> Self {
        HistoryCounters { order: 1, act: 0, attempt: 0 }
    }
}

impl HistoryCounters {
    /// Their key.
    pub const KEY: ItemKey = ItemKey { dataset: DatasetId(0), item: 0 };
    /// Numbers are below this: 2^56, as much as the key has room for.
    pub const LIMIT: u64 = 1 << 56;

    /// Their bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        [self.order, self.act, self.attempt].into_iter().for_each(|next| w.u64(next));
        w.into_bytes()
    }

    /// Reads them.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, WHAT_COUNTERS);
        version(&mut r, WHAT_COUNTERS)?;
        let mut next = || match r.u64()? {
            next if next < Self::LIMIT => Ok(next),
            next => Err(FormatError::invalid("history counters: next", next)),
        };
        Ok(HistoryCounters { order: next()?, act: next()?, attempt: next()? })
    }
}

impl HistoryRecord {
    /// Cuts texts and lists that are too long for a record.
    pub fn shorten(&mut self) {
        let mut cut = false;
        let texts = [
            (&mut self.who, HISTORY_WHO_BYTES_MAX),
            (&mut self.host, HISTORY_HOST_BYTES_MAX),
            (&mut self.act, HISTORY_ACT_BYTES_MAX),
            (&mut self.result, HISTORY_RESULT_BYTES_MAX),
        ];
        for (text, bytes_max) in texts {
            cut |= shorten(text, bytes_max);
        }
        self.more |= self.changes.len() > HISTORY_CHANGES_MAX;
        self.changes.truncate(HISTORY_CHANGES_MAX);
        // All changes share the room equally; short ones leave some to the others.
        let mut room = HISTORY_CHANGES_BYTES_MAX;
        let mut texts: Vec<&mut String> = self
            .changes
            .iter_mut()
            .flat_map(|change| [&mut change.what, &mut change.before, &mut change.after])
            .collect();
        texts.sort_by_key(|text| text.len());
        let count = texts.len();
        for (at, text) in texts.into_iter().enumerate() {
            cut |= shorten(text, room / (count - at));
            room -= text.len();
        }
        self.cut |= cut;
    }

    /// The bytes of a record that is [short](HistoryRecord::shorten) enough.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u8(self.outcome as u8);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        w.u8(flag(self.cut, FLAG_CUT) | flag(self.more, FLAG_MORE));
        w.u64(self.order);
        self.began.encode(&mut w);
        for text in [&self.who, &self.host, &self.act, &self.result] {
            w.string(text.as_bytes());
        }
        w.u16(u16::try_from(self.changes.len()).unwrap_or(u16::MAX));
        for HistoryChange { what, before, after } in &self.changes {
            [what, before, after].into_iter().for_each(|text| w.string(text.as_bytes()));
        }
        let bytes = w.into_bytes();
        assert!(bytes.len() <= ITEM_VALUE_BYTES_MAX, "a history record is shortened first");
        bytes
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, WHAT);
        version(&mut r, WHAT)?;
        let outcome = match r.u8()? {
            0 => Outcome::Begun,
            1 => Outcome::Done,
            2 => Outcome::Failed,
            3 => Outcome::Forbidden,
            other => return Err(FormatError::invalid("history record: outcome", other)),
        };
        let flags = r.u8()?;
        let order = r.u64()?;
        if order >= HistoryCounters::LIMIT {
            return Err(FormatError::invalid("history record: order", order));
        }
        let began = Time::decode(&mut r)?;
        let who = r.text(HISTORY_WHO_BYTES_MAX)?;
        let host = r.text(HISTORY_HOST_BYTES_MAX)?;
        let act = r.text(HISTORY_ACT_BYTES_MAX)?;
        let result = r.text(HISTORY_RESULT_BYTES_MAX)?;
        let count = usize::from(r.u16()?);
        if count > HISTORY_CHANGES_MAX {
            return Err(FormatError::invalid("history record: changes", count as u64));
        }
        let mut room = HISTORY_CHANGES_BYTES_MAX;
        let mut next = |r: &mut Reader<'_>| {
            let next = r.text(room)?;
            room -= next.len();
            Ok(next)
        };
        let mut changes = Vec::new();
        for _ in 0..count {
            let (what, before, after) = (next(&mut r)?, next(&mut r)?, next(&mut r)?);
            changes.push(HistoryChange { what, before, after });
        }
        let (cut, more) = (flags & FLAG_CUT != 0, flags & FLAG_MORE != 0);
        Ok(HistoryRecord { outcome, cut, more, order, began, who, host, act, result, changes })
    }
}

fn version(r: &mut Reader<'_>, what: &'static str) -> Result<(), FormatError> {
    match r.u16()? {
        VERSION => Ok(()),
        0 => Err(FormatError::invalid("history: version", 0u64)),
        version => Err(FormatError::NewerVersion { what, version: version.into() }),
    }
}

/// Cuts a text between characters. Returns whether it was too long.
fn shorten(text: &mut String, bytes_max: usize) -> bool {
    if text.len() <= bytes_max {
        return false;
    }
    let end = (0..=bytes_max).rfind(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> HistoryRecord {
        HistoryRecord {
            outcome: Outcome::Done,
            cut: false,
            more: false,
            order: 7,
            began: Time { seconds: 1, nanoseconds: 2 },
            who: "uid 0".into(),
            host: "store".into(),
            act: "set compression=zstd tank".into(),
            result: String::new(),
            changes: Vec::new(),
        }
    }

    #[test]
    fn whatever_is_too_long_is_cut_and_marked() {
        let long = "\u{e9}".repeat(1000);
        let change = HistoryChange { what: "p".into(), before: long.clone(), after: long.clone() };
        let mut record = HistoryRecord {
            who: long.clone(),
            host: long.clone(),
            act: long.clone(),
            result: long,
            changes: vec![change; 40],
            ..record()
        };
        record.shorten();
        assert!(record.cut && record.more);
        assert_eq!(record.changes.len(), HISTORY_CHANGES_MAX);
        assert!(record.changes.iter().all(|c| c.what == "p" && !c.before.is_empty()));
        assert_eq!(HistoryRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn what_fits_stays_whole() {
        let change = |what: &str, bytes| HistoryChange {
            what: what.into(),
            before: String::new(),
            after: "x".repeat(bytes),
        };
        let mut whole =
            HistoryRecord { changes: vec![change("sharenfs", 300), change("sync", 8)], ..record() };
        let before = whole.clone();
        whole.shorten();
        assert_eq!(whole, before);
        whole.changes.push(change("quota", 1000));
        whole.shorten();
        assert!(whole.cut && !whole.more);
        assert_eq!(whole.changes[1], before.changes[1]);
    }
}
