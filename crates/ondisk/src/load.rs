//! The load of a pool: what its disks, its clients and the busiest VM disks did, for a day and for
//! a month. Items of the tree of the [history](crate::history).
//!
//! ```text
//! item key: dataset u64 = 0  item u64 = class << 56 | slot << 48 | of
//!   class 5   a sample for each ten seconds: 180 slots, a day
//!   class 6   a sample for each ten minutes: 93 slots, 31 days
//!   slot      begin / (48 samples) mod the number of slots: a later span takes the slot over
//!   of        0 the disks of the pool, 1 its clients, else of file system and file, at least 2
//! value:
//!   version u16  kind u8 (1 disks, 2 clients, 3 a VM disk)  pad u8 (0)
//!   begin u64, seconds since 1970, a multiple of 48 samples
//!   fs_guid u64  object u64 (0 but of kind 3)
//!   present u48: bit i stands for the i-th sample; then each that is present:
//!     reads, writes, each: operations  bytes  mean_ns  p99_ns, each a rough u16
//!     used_sectors u48 (kind 1 only)
//! ```
//! A slot belongs to a span of time by its number alone, and a record names its span. So a clock
//! that jumps writes into other slots, and no slot is ever in the way. A record of another span
//! than the one that is looked for means nothing.

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::{ITEM_VALUE_BYTES_MAX, ItemKey};
use crate::types::{DatasetId, Guid, ObjectId};

const WHAT: &str = "load record";
const VERSION: u16 = 1;
const OF_LIMIT: u64 = 1 << 48;

/// Samples of a record.
pub const LOAD_SAMPLES: usize = 48;
/// Records of a slot: the disks, the clients, and VM disks.
pub const LOAD_RECORDS_MAX: u64 = 34;
const HEAD_BYTES: usize = 34;
const SAMPLE_BYTES: usize = 8 * 2 + 6;
const _: () = assert!(HEAD_BYTES + LOAD_SAMPLES * SAMPLE_BYTES <= ITEM_VALUE_BYTES_MAX);

/// How fine the samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LoadGrain {
    /// Ten seconds, kept for a day.
    TenSeconds = 5,
    /// Ten minutes, kept for 31 days.
    TenMinutes = 6,
}

/// Subject of a load: disks, clients or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadOf {
    /// The pool's disks, all vdevs together.
    Disks,
    /// The clients of NFS, all files of the pool together.
    Clients,
    /// A file: a VM's disk.
    File {
        /// Its file system.
        fs_guid: Guid,
        /// Its number there.
        object: ObjectId,
    },
}

/// A number in 16 bits: exact below 2048, else the highest 11 bits of it, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Rough(u16);

/// One direction in the time of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadPart {
    /// Operations.
    pub operations: Rough,
    /// Bytes that they moved.
    pub bytes: Rough,
    /// How long one took on average, in nanoseconds.
    pub mean_ns: Rough,
    /// Time that 99 of 100 did not exceed, in nanoseconds.
    pub p99_ns: Rough,
}

/// Work that was done in the time of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadSample {
    /// Reads.
    pub reads: LoadPart,
    /// Writes.
    pub writes: LoadPart,
    /// Sectors in use at its end; of [`LoadOf::Disks`] only.
    pub used_sectors: u64,
}

/// The load of a span of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRecord {
    /// How fine.
    pub grain: LoadGrain,
    /// Subject of the load.
    pub of: LoadOf,
    /// When the span begins: seconds since 1970, see [`LoadGrain::begin_of`].
    pub begin_s: u64,
    /// The samples; `None`: nothing is known of that time.
    pub samples: [Option<LoadSample>; LOAD_SAMPLES],
}

impl LoadGrain {
    /// Both.
    pub const ALL: [LoadGrain; 2] = [LoadGrain::TenSeconds, LoadGrain::TenMinutes];

    /// The time of a sample.
    pub const fn seconds(self) -> u64 {
        match self {
            LoadGrain::TenSeconds => 10,
            LoadGrain::TenMinutes => 600,
        }
    }

    /// The time of a record.
    pub const fn span_s(self) -> u64 {
        self.seconds() * LOAD_SAMPLES as u64
    }

    /// Spans that are kept, the newest included.
    pub const fn slots(self) -> u64 {
        match self {
            LoadGrain::TenSeconds => 180,
            LoadGrain::TenMinutes => 93,
        }
    }

    /// When the span of a time begins.
    pub const fn begin_of(self, at_s: u64) -> u64 {
        at_s - at_s % self.span_s()
    }

    fn item(self, begin_s: u64, of: u64) -> ItemKey {
        let slot = begin_s / self.span_s() % self.slots();
        let item = u64::from(self as u8) << 56 | slot << 48 | of;
        ItemKey { dataset: DatasetId(0), item }
    }

    /// The keys of all records of a span: from the first to before the second.
    pub fn keys(self, begin_s: u64) -> (ItemKey, ItemKey) {
        let first = self.item(begin_s, 0);
        (first, ItemKey { item: first.item + OF_LIMIT, ..first })
    }
}

/// The first key of the load: records of acts and events lie before it.
pub const LOAD_FIRST: ItemKey =
    ItemKey { dataset: DatasetId(0), item: (LoadGrain::TenSeconds as u64) << 56 };

/// The grain that a key belongs to, if it is that of a record of load.
pub fn load_grain(key: ItemKey) -> Option<LoadGrain> {
    let (class, _) = key.class_and_number();
    LoadGrain::ALL.into_iter().find(|grain| key.dataset.0 == 0 && *grain as u8 == class)
}

impl LoadOf {
    fn number(self) -> u64 {
        match self {
            LoadOf::Disks => 0,
            LoadOf::Clients => 1,
            LoadOf::File { fs_guid, object } => {
                let mut w = Writer::new();
                w.u64(fs_guid.0);
                w.u64(object.0);
                (crate::codec::checksum64(w.as_bytes()) % OF_LIMIT).max(2)
            }
        }
    }

    fn kind(self) -> u8 {
        match self {
            LoadOf::Disks => 1,
            LoadOf::Clients => 2,
            LoadOf::File { .. } => 3,
        }
    }

    /// The key of the record of a span.
    pub fn key(self, grain: LoadGrain, begin_s: u64) -> ItemKey {
        grain.item(begin_s, self.number())
    }
}

impl Rough {
    /// Bits of a number that are kept.
    const BITS: u32 = 11;
    /// The highest exponent: the number still has 64 bits.
    const EXPONENT_MAX: u16 = 54;

    /// The number that is next below, or as high as any can be.
    pub fn of(value: u64) -> Rough {
        let bits = u64::BITS - value.leading_zeros();
        let Some(cut) = bits.checked_sub(Self::BITS) else {
            return Rough(u16::try_from(value).unwrap_or(u16::MAX));
        };
        // The highest bit is known to be 1.
        let kept = u16::try_from(value >> cut & 0x3ff).unwrap_or(0x3ff);
        Rough(u16::try_from(cut + 1).unwrap_or(Self::EXPONENT_MAX) << 10 | kept)
    }

    /// The number.
    pub fn value(self) -> u64 {
        let (exponent, kept) = (self.0 >> 10, u64::from(self.0 & 0x3ff));
        match exponent.checked_sub(1) {
            None => kept,
            Some(cut) => (0x400 | kept) << cut,
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Rough, FormatError> {
        match r.u16()? {
            bits if bits >> 10 <= Self::EXPONENT_MAX => Ok(Rough(bits)),
            bits => Err(FormatError::invalid("load record: number", bits)),
        }
    }
}

impl LoadSample {
    /// Whether anything was done.
    pub fn is_busy(&self) -> bool {
        self.reads.operations.0 > 0 || self.writes.operations.0 > 0
    }

    /// The sum of the times that operations were under way.
    pub fn busy_ns(&self) -> u128 {
        let of = |part: &LoadPart| {
            u128::from(part.operations.value()) * u128::from(part.mean_ns.value())
        };
        of(&self.reads) + of(&self.writes)
    }
}

impl LoadRecord {
    /// A record without samples.
    pub fn new(grain: LoadGrain, of: LoadOf, begin_s: u64) -> LoadRecord {
        LoadRecord { grain, of, begin_s, samples: [None; LOAD_SAMPLES] }
    }

    /// The key of its item.
    pub fn key(&self) -> ItemKey {
        self.of.key(self.grain, self.begin_s)
    }

    /// Its samples that are known, each with the time at which it begins.
    pub fn times(&self) -> impl Iterator<Item = (u64, LoadSample)> + '_ {
        let at = (self.begin_s..).step_by(usize::try_from(self.grain.seconds()).unwrap_or(1));
        at.zip(&self.samples).filter_map(|(at_s, sample)| Some((at_s, (*sample)?)))
    }

    /// Its value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u8(self.of.kind());
        w.u8(0);
        w.u64(self.begin_s);
        let (fs_guid, object) = match self.of {
            LoadOf::File { fs_guid, object } => (fs_guid.0, object.0),
            _ => (0, 0),
        };
        w.u64(fs_guid);
        w.u64(object);
        let bits = self.samples.iter().zip(0..).filter(|(sample, _)| sample.is_some());
        w.u48(bits.fold(0, |mask, (_, bit)| mask | 1u64 << bit));
        for LoadSample { reads, writes, used_sectors } in self.samples.iter().flatten() {
            for part in [reads, writes] {
                let LoadPart { operations, bytes, mean_ns, p99_ns } = part;
                [operations, bytes, mean_ns, p99_ns].into_iter().for_each(|rough| w.u16(rough.0));
            }
            if self.of == LoadOf::Disks {
                w.u48((*used_sectors).min(OF_LIMIT - 1));
            }
        }
        w.into_bytes()
    }

    /// Reads a record of this grain.
    pub fn decode(grain: LoadGrain, bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, WHAT);
        match r.u16()? {
            VERSION => {}
            0 => return Err(FormatError::invalid("load record: version", 0u64)),
            newer => return Err(FormatError::NewerVersion { what: WHAT, version: newer.into() }),
        }
        let kind = r.u8()?;
        r.u8()?;
        let begin_s = r.u64()?;
        // As high as 48 samples more still have a time.
        if begin_s % grain.span_s() != 0 || begin_s > u64::MAX / 2 {
            return Err(FormatError::invalid("load record: begin", begin_s));
        }
        let of = match (kind, Guid(r.u64()?), ObjectId(r.u64()?)) {
            (1, Guid(0), ObjectId(0)) => LoadOf::Disks,
            (2, Guid(0), ObjectId(0)) => LoadOf::Clients,
            (3, fs_guid, object) => LoadOf::File { fs_guid, object },
            _ => return Err(FormatError::invalid("load record: kind", kind)),
        };
        let present = r.u48()?;
        let mut record = LoadRecord::new(grain, of, begin_s);
        for (bit, sample) in record.samples.iter_mut().enumerate() {
            if present >> bit & 1 == 1 {
                let (reads, writes) = (LoadPart::decode(&mut r)?, LoadPart::decode(&mut r)?);
                let used_sectors = if of == LoadOf::Disks { r.u48()? } else { 0 };
                *sample = Some(LoadSample { reads, writes, used_sectors });
            }
        }
        Ok(record)
    }
}

impl LoadPart {
    fn decode(r: &mut Reader<'_>) -> Result<LoadPart, FormatError> {
        let mut next = || Rough::decode(r);
        let (operations, bytes) = (next()?, next()?);
        Ok(LoadPart { operations, bytes, mean_ns: next()?, p99_ns: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_eleven_bits() {
        for exact in [0, 1, 1023, 1024, 2047, 2048, 4094, 1 << 40, 1 << 63] {
            assert_eq!(Rough::of(exact).value(), exact);
        }
        let mut value = 1u64;
        while value < u64::MAX / 3 {
            value = value * 3 + 1;
            let rough = Rough::of(value).value();
            assert!(rough <= value && value - rough <= value / 1024, "{value} {rough}");
            assert_eq!(Rough::of(rough).value(), rough);
        }
        assert_eq!(Rough::of(u64::MAX).value(), 0x7ff << 53);
    }

    #[test]
    fn spans_take_slots_in_turn_and_a_day_is_a_round() {
        for grain in LoadGrain::ALL {
            let round = grain.slots() * grain.span_s();
            let key = |begin_s| LoadOf::Disks.key(grain, begin_s);
            assert_eq!(key(grain.span_s() * 7), key(round + grain.span_s() * 7));
            assert_ne!(key(0), key(grain.span_s()));
            let (first, end) = grain.keys(0);
            let file = LoadOf::File { fs_guid: Guid(1), object: ObjectId(2) };
            assert!(first < file.key(grain, 0) && file.key(grain, 0) < end);
            assert_eq!(load_grain(first), Some(grain));
        }
        assert_eq!(LoadGrain::TenSeconds.slots() * LoadGrain::TenSeconds.span_s(), 86_400);
        let month = LoadGrain::TenMinutes;
        assert_eq!(month.slots() * month.span_s(), 31 * 86_400);
        assert!(LOAD_FIRST <= LoadGrain::TenSeconds.keys(0).0);
    }
}
