//! The effect of a power cut on writes that were not durable.
//!
//! Invariants:
//! - Durable sectors without a version in the cache are not touched.
//! - Every version of a sector may win, the newest and the oldest alike: a real cache writes back
//!   in its own order.
//! - A torn sector is made of 512-byte pieces of the durable content and of one version, with at
//!   least one piece of each.

use std::collections::BTreeMap;
use std::mem;

use aquifer_blockio::{Page, PageMut, SECTOR_BYTES};

use crate::disk::platter::{Platter, Version};
use crate::rng::Rng;
use crate::trace::Outcome;

/// The effect of a power cut on writes that were in flight or not flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutMode {
    /// All of them are lost, on every disk.
    AllLost,
    /// All of them survive, on every disk.
    AllKept,
    /// Each write by itself survives, is lost, or survives in part.
    PerWrite,
    /// Each sector by itself keeps any of its versions, or is torn.
    PerSector,
    /// One disk loses all of them, the others keep all.
    OneDiskLoses,
    /// Every sector of every one is torn, on every disk. Four copies written at once must survive
    /// this.
    AllTorn,
}

impl CutMode {
    /// Every mode.
    pub const ALL: [CutMode; 6] = [
        CutMode::AllLost,
        CutMode::AllKept,
        CutMode::PerWrite,
        CutMode::PerSector,
        CutMode::OneDiskLoses,
        CutMode::AllTorn,
    ];
}

/// Effect of a power cut on such writes of one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    All,
    Nothing,
    PerWrite,
    PerSector,
    Torn,
}

impl Platter {
    /// Empties the cache: `loss` decides which writes become durable. `note` is called for each
    /// sector.
    pub(crate) fn settle(&mut self, loss: Loss, rng: &mut Rng, mut note: impl FnMut(u64, Outcome)) {
        let mut fates = BTreeMap::new();
        for (sector, cached) in mem::take(&mut self.cache) {
            let survivor = match loss {
                Loss::All => None,
                Loss::Nothing => Some((cached.newest(), false)),
                Loss::Torn => Some((cached.newest(), true)),
                Loss::PerWrite => survivor_by_write(cached.versions(), &mut fates, rng),
                Loss::PerSector => survivor_by_sector(cached.versions(), rng),
            };
            let outcome = match survivor {
                None => Outcome::Lost,
                Some((version, true)) => {
                    let torn = tear(&self.durable(sector), &version.page, rng);
                    self.durable.set(sector, torn);
                    Outcome::Torn
                }
                Some((version, false)) => {
                    self.durable.set(sector, version.page.clone());
                    let newest = version.completed == cached.newest().completed;
                    if newest { Outcome::Kept } else { Outcome::Older }
                }
            };
            note(sector, outcome);
        }
    }
}

/// How much of a write in flight is carried out when its process is killed or its device vanishes:
/// all, nothing, or a prefix of its sectors.
pub(crate) fn carried_out(sectors: usize, rng: &mut Rng) -> usize {
    match rng.below(3) {
        0 => 0,
        1 => sectors,
        _ => rng.index(sectors + 1),
    }
}

#[derive(Clone, Copy)]
enum WriteFate {
    Kept,
    Lost,
    Part,
}

/// The newest version whose write survives at this sector, and whether it is torn. Each write is
/// lost or kept independently of older and newer ones, so any of them may be the one left.
fn survivor_by_write<'a>(
    versions: impl Iterator<Item = &'a Version>,
    fates: &mut BTreeMap<u64, WriteFate>,
    rng: &mut Rng,
) -> Option<(&'a Version, bool)> {
    let mut survivor = None;
    for version in versions {
        let fate = *fates.entry(version.write).or_insert_with(|| match rng.below(3) {
            0 => WriteFate::Kept,
            1 => WriteFate::Lost,
            _ => WriteFate::Part,
        });
        match (fate, rng.below(8)) {
            (WriteFate::Lost, _) | (WriteFate::Part, 0..=2) => {}
            (WriteFate::Kept, _) | (WriteFate::Part, 3..=5) => survivor = Some((version, false)),
            (WriteFate::Part, _) => survivor = Some((version, true)),
        }
    }
    survivor
}

/// One of the versions or none, with equal chances, and whether it is torn.
fn survivor_by_sector<'a>(
    versions: impl Iterator<Item = &'a Version>,
    rng: &mut Rng,
) -> Option<(&'a Version, bool)> {
    let mut chosen = None;
    for (before, version) in (1..).zip(versions) {
        if rng.below(before + 1) == 0 {
            chosen = Some(version);
        }
    }
    // The first of n versions stays chosen with 1/2 * 2/3 * .. = 1/(n+1), as every other does.
    chosen.map(|version| (version, rng.below(8) == 0))
}

/// Some of the 512-byte pieces of `new`, the others of `old`.
fn tear(old: &Page, new: &Page, rng: &mut Rng) -> Page {
    let mask = 1 + rng.below((1 << TORN_PIECES) - 2);
    let mut torn = PageMut::with_prefix(old.as_slice());
    let pieces = torn.chunks_exact_mut(TORN_BYTES).zip(new.chunks_exact(TORN_BYTES));
    for (index, (to, from)) in pieces.enumerate() {
        if mask >> index & 1 == 1 {
            to.copy_from_slice(from);
        }
    }
    torn.freeze()
}

/// The unit that a disk writes atomically: no disk promises more.
const TORN_BYTES: usize = 512;
const TORN_PIECES: usize = SECTOR_BYTES / TORN_BYTES;
