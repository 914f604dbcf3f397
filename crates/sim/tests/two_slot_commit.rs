//! The smallest commit protocol that can be right, to show what the simulator finds: two places for
//! the data, two header slots, written in turn. With every step in place no seed breaks it; each
//! step left out is found within a stated number of seeds.
//!
//! A commit: the data to the place that the committed header does not name; flush; the header to
//! the older slot; flush; only then the acknowledgement. Recovery flushes before it acts on its
//! reads: after a kill their content may be in the disk's cache alone.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_blockio::{Disk, DiskError, Page};
use aquifer_sim::{CutPlan, DiskConfig, Image, Sim, SimDisk, Stop};

/// The flushes of the protocol; a sabotage leaves one out.
#[derive(Clone, Copy)]
struct Protocol {
    flush_data: bool,
    flush_header: bool,
    flush_at_recovery: bool,
}

const RIGHT: Protocol = Protocol { flush_data: true, flush_header: true, flush_at_recovery: true };

const DATA_SECTORS: usize = 4;
const INCARNATIONS: u64 = 4;
const COMMITS: u64 = 12;

fn checksum(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(17, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(9))
}

fn words_of(page: &Page) -> Vec<u64> {
    page.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn page_of(words: &[u64]) -> Page {
    Page::with_prefix(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
}

fn data_sector(sequence: u64) -> u64 {
    8 + sequence % 2 * 8
}

fn data_pages(sequence: u64) -> Vec<Page> {
    (0..DATA_SECTORS).map(|index| page_of(&[sequence * 1000 + index as u64; 512])).collect()
}

fn data_checksum(pages: &[Page]) -> u64 {
    checksum(&pages.iter().flat_map(words_of).collect::<Vec<_>>())
}

/// The header fills its sector, so that a torn one does not verify.
fn header_page(sequence: u64) -> Page {
    let mut words = vec![sequence; 511];
    words[1] = data_checksum(&data_pages(sequence));
    words.push(checksum(&words));
    page_of(&words)
}

/// Sequence and checksum of the data, if the header verifies.
fn header_of(page: &Page) -> Option<(u64, u64)> {
    let words = words_of(page);
    (checksum(&words[..511]) == words[511] && words[0] > 0).then(|| (words[0], words[1]))
}

async fn commit(disk: &SimDisk, protocol: Protocol, sequence: u64) -> Result<(), DiskError> {
    disk.write(data_sector(sequence), data_pages(sequence)).await?;
    if protocol.flush_data {
        disk.flush().await?;
    }
    disk.write(sequence % 2, vec![header_page(sequence)]).await?;
    if protocol.flush_header {
        disk.flush().await?;
    }
    Ok(())
}

/// The committed sequence, 0 for an empty disk; `Err` says what is broken.
async fn recover(disk: &SimDisk, protocol: Protocol) -> Result<u64, String> {
    let headers = disk.read(0, 2).await.unwrap();
    if protocol.flush_at_recovery {
        disk.flush().await.unwrap();
    }
    let Some((sequence, expected)) = headers.iter().filter_map(header_of).max() else {
        return Ok(0);
    };
    let data = disk.read(data_sector(sequence), DATA_SECTORS).await.unwrap();
    if data_checksum(&data) == expected {
        Ok(sequence)
    } else {
        Err(format!("the data of {sequence} does not verify"))
    }
}

/// Recovers, checks, and commits on.
async fn live(disk: &SimDisk, protocol: Protocol, acked: &AtomicU64) -> Result<(), String> {
    let found = recover(disk, protocol).await?;
    let last = acked.load(Ordering::Relaxed);
    if found < last || found > last + 1 {
        return Err(format!("acknowledged {last}, found {found}"));
    }
    acked.store(found, Ordering::Relaxed);
    for sequence in found + 1..=found + COMMITS {
        commit(disk, protocol, sequence).await.unwrap();
        acked.store(sequence, Ordering::Relaxed);
    }
    Ok(())
}

/// Some lives of one disk, each ended by a power cut or a kill at a random I/O event.
fn run(seed: u64, protocol: Protocol) -> Result<(), String> {
    let mut sim = Sim::new(seed);
    let disk = sim.add_disk("disk", Image::new(32), DiskConfig::default());
    let mut choice = sim.stream("cuts");
    let acked = AtomicU64::new(0);
    for _ in 0..INCARNATIONS {
        // A commit is 8 events; a life without a cut would have about 100.
        sim.plan_cut(CutPlan::AtEvent(1 + choice.below(90)));
        match sim.run_until(live(&disk, protocol, &acked)) {
            Ok(verdict) => verdict?,
            Err(Stop::Halted) => {}
            Err(stop) => return Err(stop.to_string()),
        }
        if choice.below(3) == 0 {
            sim.kill();
        } else {
            sim.power_cut_any();
        }
    }
    sim.run_until(live(&disk, protocol, &acked)).unwrap()
}

fn first_failure(protocol: Protocol, seeds: u64) -> Option<u64> {
    (0..seeds).find(|seed| run(*seed, protocol).is_err())
}

#[test]
fn the_right_protocol_survives_every_seed() {
    for seed in 0..2000 {
        assert_eq!(run(seed, RIGHT), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_missing_flush_of_the_data_is_found_within_60_seeds() {
    let found = first_failure(Protocol { flush_data: false, ..RIGHT }, 60);
    assert!(found.is_some());
}

#[test]
fn a_missing_flush_of_the_header_is_found_within_60_seeds() {
    let found = first_failure(Protocol { flush_header: false, ..RIGHT }, 60);
    assert!(found.is_some());
}

#[test]
fn a_missing_flush_at_recovery_is_found_within_1500_seeds() {
    let found = first_failure(Protocol { flush_at_recovery: false, ..RIGHT }, 1500);
    assert!(found.is_some());
}

#[test]
fn a_failing_seed_fails_again() {
    let sabotaged = Protocol { flush_header: false, ..RIGHT };
    let seed = first_failure(sabotaged, 60).unwrap();
    assert_eq!(run(seed, sabotaged), run(seed, sabotaged));
    assert!(run(seed, sabotaged).is_err());
}
