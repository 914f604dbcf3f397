//! The content of a disk after a power cut: everything durable, and any part of the rest that a
//! cache with its own write order may have written.
//!
//! Invariant: as in the simulator (`aquifer_sim`'s `fate`), every possible version of a sector
//! survives at times, the newest and the oldest alike. A torn sector is made of 512-byte pieces of
//! two versions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use aquifer_conformance::{Error, Result};
use aquifer_rig::random::Random;

use crate::recorder::{Change, SECTOR_BYTES, Tape, ZEROS};

/// The effect of a cut on changes that were in progress or not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    AllLost,
    AllKept,
    /// Each change is kept, lost, or kept in part, independently.
    PerWrite,
    /// Each sector keeps any of its versions, or is torn, independently.
    PerSector,
    /// One disk loses all of its changes, the others keep all of theirs.
    OneDiskLoses,
    /// Every sector of every change is torn.
    AllTorn,
}

impl Mode {
    pub const ALL: [Mode; 6] = [
        Mode::AllLost,
        Mode::AllKept,
        Mode::PerWrite,
        Mode::PerSector,
        Mode::OneDiskLoses,
        Mode::AllTorn,
    ];

    /// The mode for disk `disk`, if `loser` is the disk that loses.
    fn of(self, disk: usize, loser: usize) -> Self {
        match self {
            Mode::OneDiskLoses if disk == loser => Mode::AllLost,
            Mode::OneDiskLoses => Mode::AllKept,
            mode => mode,
        }
    }
}

/// The moment and the effect of a cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub moment: u64,
    pub mode: Mode,
    /// Used with [`Mode::OneDiskLoses`].
    pub loser: usize,
    /// No flush after this moment counts: the disk lies.
    pub trusted: u64,
}

/// Sectors that were not durable, by fate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fates {
    pub kept: u64,
    /// Kept, but in an older version.
    pub older: u64,
    pub torn: u64,
    pub lost: u64,
}

impl Fates {
    pub fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.older += other.older;
        self.torn += other.torn;
        self.lost += other.lost;
    }
}

/// The content of a disk when the power is back.
#[derive(Debug, Default)]
pub struct Image<'a> {
    sectors: BTreeMap<u64, Cow<'a, [u8]>>,
    pub fates: Fates,
}

/// The durable version of a sector, and the later ones.
#[derive(Default)]
struct Versions<'a> {
    durable: Option<&'a Change>,
    since: Vec<(usize, &'a Change)>,
}

#[derive(Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    Part,
}

impl<'a> Image<'a> {
    /// Disk number `disk`, recorded on `tape`, after `cut`.
    pub fn after(cut: &Cut, tape: &'a Tape, disk: usize, random: &mut Random) -> Self {
        let mode = cut.mode.of(disk, cut.loser);
        let mut fates = HashMap::new();
        let mut image = Image::default();
        for (sector, versions) in versions(cut, tape) {
            let durable = versions.durable.map(|change| change.sector(sector));
            let survivor = survivor(mode, &versions.since, &mut fates, random);
            let newest = versions.since.last().map(|(number, _)| *number);
            let count = &mut image.fates;
            let content = match survivor {
                None => {
                    count.lost += u64::from(newest.is_some());
                    durable.map(Cow::Borrowed)
                }
                Some((number, change, torn)) => {
                    let fate = match (torn, Some(number) == newest) {
                        (true, _) => &mut count.torn,
                        (false, true) => &mut count.kept,
                        (false, false) => &mut count.older,
                    };
                    *fate += 1;
                    let new = change.sector(sector);
                    Some(match torn {
                        true => Cow::Owned(tear(durable.unwrap_or(&ZEROS), new, random)),
                        false => Cow::Borrowed(new),
                    })
                }
            };
            image.sectors.extend(content.map(|content| (sector, content)));
        }
        image
    }

    /// A tape that starts with this content.
    pub fn tape(&self) -> Tape {
        Tape::holding(self.sectors.iter().map(|(sector, content)| (*sector, &**content)))
    }

    /// Writes it to an image file of `bytes`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: &Path, bytes: u64) -> Result<()> {
        let made = File::create(path).map_err(Error::at("create", path))?;
        made.set_len(bytes).map_err(Error::at("size", path))?;
        let (mut start, mut run) = (0, Vec::new());
        let put = |start: u64, run: &[u8]| {
            let written = made.write_all_at(run, start * SECTOR_BYTES as u64);
            written.map_err(Error::at("write", path))
        };
        for (sector, content) in &self.sectors {
            let next = start + (run.len() / SECTOR_BYTES) as u64;
            if *sector != next || run.len() >= RUN_BYTES {
                put(start, &run)?;
                run.clear();
                start = *sector;
            }
            run.extend_from_slice(content);
        }
        put(start, &run)
    }

    /// The content of a sector, by its first byte.
    #[cfg(test)]
    fn sector(&self, sector: u64) -> u8 {
        self.sectors.get(&sector).map_or(0, |content| content[0])
    }
}

/// In disk order, so that the same draws fall on the same sectors.
fn versions<'a>(cut: &Cut, tape: &'a Tape) -> BTreeMap<u64, Versions<'a>> {
    let durable_before = tape.durable_before(cut.moment, cut.trusted);
    let begun = tape.changes().iter().enumerate();
    let begun = begun.filter(|(_, change)| change.began <= cut.moment);
    let end = |change: &Change| change.ended.filter(|ended| *ended <= cut.moment);
    let mut begun: Vec<_> = begun.collect();
    // In the order of their ends; changes in progress come last.
    begun.sort_by_key(|(_, change)| end(change).unwrap_or(u64::MAX));
    let mut all: BTreeMap<u64, Versions<'a>> = BTreeMap::new();
    for (number, change) in begun {
        let durable = |ended| change.through || ended < durable_before;
        let durable = end(change).is_some_and(durable);
        for sector in change.first..change.first + change.sectors {
            let versions = all.entry(sector).or_default();
            match durable {
                // Earlier versions cannot come back.
                true => (versions.durable, versions.since) = (Some(change), Vec::new()),
                false => versions.since.push((number, change)),
            }
        }
    }
    all
}

/// The change that survives at a sector, and whether it is torn.
fn survivor<'a>(
    mode: Mode,
    since: &[(usize, &'a Change)],
    fates: &mut HashMap<usize, Fate>,
    random: &mut Random,
) -> Option<(usize, &'a Change, bool)> {
    let (last, last_change) = since.last().copied()?;
    match mode {
        Mode::AllLost | Mode::OneDiskLoses => None,
        Mode::AllKept => Some((last, last_change, false)),
        Mode::AllTorn => Some((last, last_change, true)),
        Mode::PerSector => {
            let (number, change) = since.get(random.index(since.len() + 1)).copied()?;
            Some((number, change, random.below(8) == 0))
        }
        Mode::PerWrite => {
            let mut left = None;
            for (number, change) in since {
                let fate = fates.entry(*number).or_insert_with(|| match random.below(3) {
                    0 => Fate::Kept,
                    1 => Fate::Lost,
                    _ => Fate::Part,
                });
                match (*fate, random.below(8)) {
                    (Fate::Lost, _) | (Fate::Part, 0..=2) => {}
                    (Fate::Kept, _) | (Fate::Part, 3..=5) => left = Some((*number, *change, false)),
                    (Fate::Part, _) => left = Some((*number, *change, true)),
                }
            }
            left
        }
    }
}

/// Some of the 512-byte pieces of `new`, the others of `old`, at least one of each.
fn tear(old: &[u8], new: &[u8], random: &mut Random) -> Vec<u8> {
    let pieces = SECTOR_BYTES / TORN_BYTES;
    let mask = 1 + random.below((1 << pieces) - 2);
    let mut torn = old.to_vec();
    let each = torn.chunks_exact_mut(TORN_BYTES).zip(new.chunks_exact(TORN_BYTES));
    for (piece, (to, from)) in each.enumerate() {
        if mask >> piece & 1 == 1 {
            to.copy_from_slice(from);
        }
    }
    torn
}

/// The unit that a disk writes atomically.
const TORN_BYTES: usize = 512;
/// Bytes written by one call.
const RUN_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
