//! The places of checksums in an image, found by search instead of by knowledge of the format. Each
//! run of sectors is summed in each way that the format uses, and the image is searched for the
//! sums.

use std::collections::{BTreeMap, HashMap};

use aquifer_ondisk::codec::{checksum64, checksum128};
use aquifer_ondisk::layout::CONFIG_SECTORS;
use aquifer_sim::Image;

use super::Sector;

/// See the module's head.
pub struct Sums {
    runs: Vec<Run>,
    /// The runs that a sector is part of.
    of_sector: HashMap<u64, Vec<usize>>,
    structures: Vec<u64>,
}

/// Sectors whose checksum is stored somewhere.
struct Run {
    first: u64,
    sectors: u64,
    how: How,
    /// The places of its checksum: sector and byte.
    places: Vec<(u64, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// A page or compressed extent of a file.
    Data,
    Block,
    /// All bytes except the last 16.
    Sealed,
}

impl Sums {
    pub fn of(image: &Image, sectors: &[u64]) -> Sums {
        let mut runs = candidates(image, sectors);
        let mut by_word: HashMap<u64, Vec<usize>> = HashMap::new();
        let sums: Vec<Vec<u8>> =
            runs.iter().map(|run| run.sum(|sector| bytes_of(image, sector))).collect();
        for (at, sum) in sums.iter().enumerate() {
            by_word.entry(word(sum)).or_default().push(at);
        }
        for sector in sectors {
            let bytes = bytes_of(image, *sector);
            for (at, window) in bytes.windows(8).enumerate() {
                for run in by_word.get(&word(window)).into_iter().flatten() {
                    if bytes[at..].starts_with(&sums[*run]) {
                        runs[*run].places.push((*sector, at));
                    }
                }
            }
        }
        runs.retain(|run| !run.places.is_empty());
        let mut of_sector: HashMap<u64, Vec<usize>> = HashMap::new();
        for (at, run) in runs.iter().enumerate() {
            for sector in run.first..run.first + run.sectors {
                of_sector.entry(sector).or_default().push(at);
            }
        }
        let summed = |how| runs.iter().filter(move |run| (run.how == How::Data) == how);
        let mut structures: Vec<u64> = summed(false)
            .flat_map(|run| run.first..run.first + run.sectors)
            .filter(|sector| image.get(*sector).is_some())
            .collect();
        structures.sort_unstable();
        structures.dedup();
        assert!(structures.len() > 50 && summed(true).count() > 10, "sums were found");
        Sums { runs, of_sector, structures }
    }

    /// Sectors of structures, as opposed to files.
    pub fn structures(&self) -> &[u64] {
        &self.structures
    }

    /// The number of stored checksums that are wrong.
    #[cfg(test)]
    pub fn wrong(&self, now: impl Fn(u64) -> Sector) -> usize {
        let wrong = self.runs.iter().filter(|run| {
            let sum = run.sum(&now);
            run.places.iter().any(|(sector, at)| !now(*sector)[*at..].starts_with(&sum))
        });
        wrong.count()
    }

    /// Stores the right checksums of the changed sectors, then of the sectors changed by that, and
    /// so on.
    pub fn make_right(&self, changed: &mut BTreeMap<u64, Sector>, base: impl Fn(u64) -> Sector) {
        let mut next: Vec<u64> = changed.keys().copied().collect();
        // A chain of checksums ends at a sealed structure. Two places may disagree about one
        // checksum for ever.
        for _ in 0..DEPTH_MAX {
            let runs = next.drain(..).flat_map(|sector| self.of_sector.get(&sector));
            let mut runs: Vec<usize> = runs.flatten().copied().collect();
            runs.sort_unstable();
            runs.dedup();
            for run in runs.into_iter().map(|run| &self.runs[run]) {
                let now = |sector| changed.get(&sector).copied().unwrap_or_else(|| base(sector));
                let sum = run.sum(now);
                for (sector, at) in &run.places {
                    let bytes = changed.entry(*sector).or_insert_with(|| base(*sector));
                    if bytes[*at..*at + sum.len()] != sum {
                        bytes[*at..*at + sum.len()].copy_from_slice(&sum);
                        next.push(*sector);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
        }
    }
}

impl Run {
    fn sum(&self, bytes: impl Fn(u64) -> Sector) -> Vec<u8> {
        let sectors = self.first..self.first + self.sectors;
        let bytes = sectors.map(bytes).collect::<Vec<_>>().concat();
        match self.how {
            How::Data => checksum64(&bytes).to_le_bytes().to_vec(),
            How::Block => checksum128(&bytes).to_le_bytes().to_vec(),
            How::Sealed => checksum128(&bytes[..bytes.len() - 16]).to_le_bytes().to_vec(),
        }
    }
}

/// All runs that may have a checksum.
fn candidates(image: &Image, sectors: &[u64]) -> Vec<Run> {
    let mut runs = Vec::new();
    for first in sectors {
        for sectors in (1..=RUN_SECTORS_MAX).chain([CONFIG_SECTORS]) {
            let last = first + sectors - 1;
            if sectors <= RUN_SECTORS_MAX && image.get(last).is_none() {
                continue;
            }
            for how in [How::Data, How::Block, How::Sealed] {
                if how == How::Sealed || sectors <= RUN_SECTORS_MAX {
                    runs.push(Run { first: *first, sectors, how, places: Vec::new() });
                }
            }
        }
    }
    runs
}

fn bytes_of(image: &Image, sector: u64) -> Sector {
    image.get(sector).map_or([0; 4096], |page| **page)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

const RUN_SECTORS_MAX: u64 = 8;
const DEPTH_MAX: u32 = 24;
