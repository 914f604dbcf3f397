//! Tests of the simulated disk, one file for each promise: the effects of completion, flush and
//! durable writes (`order`), of a power cut and a kill (`cut`), and of faults (`fault`).

mod cut;
mod fault;
mod order;

use std::time::Duration;

use aquifer_blockio::{Disk, DiskError, Page};

use crate::{DiskConfig, Image, Latency, Sim, SimConfig, SimDisk};

/// A page filled with one word.
pub(crate) fn page(word: u64) -> Page {
    Page::with_prefix(&word.to_le_bytes().repeat(512))
}

pub(crate) fn pages(words: &[u64]) -> Vec<Page> {
    words.iter().map(|word| page(*word)).collect()
}

/// The word that fills the page; `None` if it is torn.
pub(crate) fn word(page: &Page) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    words.iter().all(|other| *other == words[0]).then(|| u64::from_le_bytes(words[0]))
}

pub(crate) fn words(pages: &[Page]) -> Vec<Option<u64>> {
    pages.iter().map(word).collect()
}

/// The durable content of `sector`, as a word.
pub(crate) fn durable(disk: &SimDisk, sector: u64) -> Option<u64> {
    word(&disk.durable_page(sector))
}

/// A machine whose steps cost no time, with one disk of 64 sectors.
pub(crate) fn exact(seed: u64, latency: Latency) -> (Sim, SimDisk) {
    let config = SimConfig { step_ns_max: 0, story_entries_max: 64, ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let disk = add(&mut sim, "disk", latency);
    (sim, disk)
}

pub(crate) fn add(sim: &mut Sim, name: &str, latency: Latency) -> SimDisk {
    let hang_max = Duration::from_millis(5);
    let config = DiskConfig { latency, hang_max, ..DiskConfig::default() };
    sim.add_disk(name, Image::new(64), config)
}

/// Writes to the end, without a flush.
pub(crate) fn write(sim: &mut Sim, disk: &SimDisk, sector: u64, words: &[u64]) {
    sim.run_until(disk.write(sector, pages(words))).unwrap().unwrap();
}

pub(crate) fn flush(sim: &mut Sim, disk: &SimDisk) -> Result<(), DiskError> {
    sim.run_until(disk.flush()).unwrap()
}

/// Reads to the end, as words.
pub(crate) fn read(sim: &mut Sim, disk: &SimDisk, sector: u64, count: usize) -> Vec<Option<u64>> {
    words(&sim.run_until(disk.read(sector, count)).unwrap().unwrap())
}
