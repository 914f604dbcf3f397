//! Why a snapshot stays or goes: its holds, and the schedule that took it.
//!
//! ```text
//! keep record:
//!   version u16  flags u16 (0)  schedule u8  holds u8
//!   each hold: tag string  placed i64+u32  until u64  clock u64
//! hold clock: version u16  flags u16 (0)  ms u64
//! ```

use crate::codec::FormatError;
use crate::dataset::{ITEM_VALUE_BYTES_MAX, begin, open};
use crate::inode::Time;

/// Holds on a snapshot at most.
pub const HOLDS_MAX: usize = 12;
/// Longest tag of a hold, bytes.
pub const HOLD_TAG_BYTES_MAX: usize = 64;
const HOLD_BYTES_MAX: usize = 2 + HOLD_TAG_BYTES_MAX + 12 + 8 + 8;
const _: () = assert!(6 + HOLDS_MAX * HOLD_BYTES_MAX <= ITEM_VALUE_BYTES_MAX);

/// How often a schedule takes a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cadence {
    /// Every 15 minutes.
    Frequently = 1,
    /// Every hour.
    Hourly = 2,
    /// Every day.
    Daily = 3,
    /// Every week.
    Weekly = 4,
    /// Every month.
    Monthly = 5,
    /// Every year.
    Yearly = 6,
}

/// All cadences, the shortest first.
pub const CADENCES: [Cadence; 6] = [
    Cadence::Frequently,
    Cadence::Hourly,
    Cadence::Daily,
    Cadence::Weekly,
    Cadence::Monthly,
    Cadence::Yearly,
];

impl Cadence {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Cadence::Frequently => "frequently",
            Cadence::Hourly => "hourly",
            Cadence::Daily => "daily",
            Cadence::Weekly => "weekly",
            Cadence::Monthly => "monthly",
            Cadence::Yearly => "yearly",
        }
    }
}

/// A hold: as long as it stands, the snapshot is not destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Name of the hold.
    pub tag: String,
    /// When it was placed.
    pub placed: Time,
    /// When it ends by itself; `None`: it stands until it is released.
    pub end: Option<HoldEnd>,
}

/// The end of a hold. It has come when both clocks have come to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldEnd {
    /// Wall-clock time in seconds since 1970, not 0.
    pub until_s: u64,
    /// The pool's hold clock, milliseconds.
    pub clock_ms: u64,
}

/// Why a snapshot stays or goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeepRecord {
    /// The schedule that took it, and prunes it.
    pub schedule: Option<Cadence>,
    /// Its holds, at most [`HOLDS_MAX`].
    pub holds: Vec<Hold>,
}

impl KeepRecord {
    const WHAT: &'static str = "keep record";

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.schedule.is_none() && self.holds.is_empty()
    }

    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u8(self.schedule.map_or(0, |cadence| cadence as u8));
        let count = self.holds.len();
        assert!(count <= HOLDS_MAX, "{count} holds could not be read back");
        w.u8(u8::try_from(count).unwrap_or(u8::MAX));
        for hold in &self.holds {
            let fits = hold.tag.len() <= HOLD_TAG_BYTES_MAX;
            assert!(fits, "a tag of {} bytes could not be read back", hold.tag.len());
            w.string(hold.tag.as_bytes());
            hold.placed.encode(&mut w);
            w.u64(hold.end.map_or(0, |end| end.until_s));
            w.u64(hold.end.map_or(0, |end| end.clock_ms));
        }
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, Self::WHAT)?;
        let schedule = match r.u8()? {
            0 => None,
            other => Some(
                CADENCES
                    .into_iter()
                    .find(|cadence| *cadence as u8 == other)
                    .ok_or(FormatError::invalid("keep record: schedule", other))?,
            ),
        };
        let count = r.u8()?;
        if usize::from(count) > HOLDS_MAX {
            return Err(FormatError::invalid("keep record: holds", count));
        }
        let mut holds = Vec::new();
        for _ in 0..count {
            let (tag, placed) = (r.text(HOLD_TAG_BYTES_MAX)?, Time::decode(&mut r)?);
            let (until_s, clock_ms) = (r.u64()?, r.u64()?);
            if until_s == 0 && clock_ms != 0 {
                return Err(FormatError::invalid("keep record: clock of a hold", clock_ms));
            }
            let end = (until_s > 0).then_some(HoldEnd { until_s, clock_ms });
            holds.push(Hold { tag, placed, end });
        }
        Ok(KeepRecord { schedule, holds })
    }
}

/// The pool's hold clock: the time in which it was in service, as far as it is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldClock {
    /// Milliseconds.
    pub ms: u64,
}

impl HoldClock {
    /// The item's value.
    pub fn encode(self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.ms);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        Ok(HoldClock { ms: open(value, "hold clock")?.u64()? })
    }
}
