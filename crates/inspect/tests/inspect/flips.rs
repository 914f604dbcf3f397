//! Flipped bits: none goes unnoticed where it hits the only copy of something live. No content of a
//! disk makes an inspection panic or run on.

use aquifer_inspect::{Options, Report, inspect};
use aquifer_ondisk::layout::{CONFIG_OFFSET, LABEL_SECTORS, RING_OFFSET, label_sector};
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::types::{Place, SEGMENT_SECTORS, SEQUENCE_LIMIT};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_sim::Rng;

use crate::memory::MemoryDisk;
use crate::pool::{HandPool, SECTORS, SESSION, Shape};
use crate::{block_on, changed, deep, good, look_deep};

fn with_log() -> HandPool {
    let mut pool = good(Shape::Single);
    for mark in 0..3 {
        let place = Place::new(0, pool.cursor[0]);
        pool.cursor[0] += 1;
        let extent = pool.data_at(3, &[1], place);
        let record = LogRecord {
            kind: 1,
            txg: Txg(13),
            dataset: DatasetId(1),
            object: ObjectId(17),
            page_sums: vec![1, 2],
            extents: vec![extent],
            body: vec![7; 300],
        };
        pool.batch(vec![record], SESSION, mark);
    }
    pool
}

/// The whole text of a report.
fn said(report: &Report) -> String {
    report.to_string()
}

/// Whether a written sector is in the labels' blank part, or a bitmap slot or record that is not
/// current: nobody reads it.
fn is_dead(pool: &HandPool, sector: u64) -> bool {
    let labels = (0..4).map(|label| label_sector(label, SECTORS));
    let mut blank = labels.map(|start| start..start + CONFIG_OFFSET);
    if blank.any(|range| range.contains(&sector)) {
        return true;
    }
    let geometry = pool.geometries[0];
    let slots = (0..geometry.metaslabs()).flat_map(|index| geometry.reserved(index));
    let is_slot = slots
        .filter(|(start, _)| *start != 0)
        .any(|(start, count)| (start..start + count).contains(&sector));
    let current = pool.entries.values().flat_map(|entry| {
        let index = u64::from(entry.metaslab);
        let slots = if sector % SEGMENT_SECTORS < 512 { 0 } else { 2 };
        (0..slots).map(move |copy| geometry.slot_place(index, entry.slot, copy).sector())
    });
    // Slots of older roots are read too: they belong to the rewind.
    is_slot && !current.collect::<Vec<_>>().contains(&sector)
}

#[test]
fn no_flip_goes_unnoticed() {
    let pool = with_log();
    let options = deep();
    let whole = said(&look_deep(pool.arcs()));
    let mut rng = Rng::stream(0x1234_5678, "flips");
    let mut tried = 0;
    let disk = &pool.disks[0];
    for sector in disk.written() {
        if is_dead(&pool, sector) {
            continue;
        }
        tried += 1;
        let (byte, bits) = (rng.below(4096) as usize, 1 << rng.below(8));
        disk.flip(sector, byte, bits);
        let report = block_on(inspect(pool.arcs(), &options));
        assert_ne!(said(&report), whole, "sector {sector}, byte {byte}, bits {bits}");
        disk.flip(sector, byte, bits);
    }
    // Labels (56 of config and 3 uberblocks, four times), nodes, slots, records, data, log.
    assert!(tried > 4 * 59 + 100, "{tried}");
    assert_eq!(said(&look_deep(pool.arcs())), whole);
    assert_eq!(LABEL_SECTORS, 2 * RING_OFFSET);
}

#[test]
fn a_flip_in_all_copies_is_an_error() {
    // Records, slots and nodes: those with two copies lose both.
    let pool = good(Shape::Single);
    let mut groups: Vec<Vec<Place>> = vec![pool.previous.unwrap().copies().collect()];
    for entry in pool.entries.values() {
        let place = |copy| pool.geometries[0].slot_place(entry.metaslab.into(), entry.slot, copy);
        groups.push(vec![place(0), place(1)]);
    }
    groups.push(pool.trees[0].unwrap().copies().collect());
    let mut rng = Rng::stream(99, "flips");
    for group in groups {
        for _ in 0..20 {
            let (byte, bits) = (rng.below(4096) as usize, 1 << rng.below(8));
            let flip = || group.iter().for_each(|at| pool.disks[0].flip(at.sector(), byte, bits));
            flip();
            let report = block_on(inspect(pool.arcs(), &Options::default()));
            assert!(!report.is_clean(), "{group:?} byte {byte}: {report}");
            flip();
        }
    }
}

/// Bits flipped before the checksum is made: everything verifies, and nothing can be trusted.
#[test]
fn what_verifies_can_still_be_anything() {
    let seeds = std::env::var("AQUIFER_SEEDS").ok().and_then(|count| count.parse().ok());
    let mut unclean = 0;
    let seeds = seeds.unwrap_or(400);
    for seed in 1..=seeds {
        let shape = if seed % 2 == 0 { Shape::Single } else { Shape::Mirror };
        let mut pool = changed(shape, |pool, _, _| {
            let mut rng = Rng::stream(seed, "node");
            let share = 4 + rng.below(60);
            pool.hooks.node = Box::new(move |draft| {
                while rng.below(share) == 0 {
                    let at = rng.below(1500) as usize;
                    draft.bytes[at] = rng.below(256) as u8;
                }
            });
            let mut rng = Rng::stream(seed, "record");
            pool.hooks.record_bytes = Box::new(move |bytes| {
                while rng.below(2) == 0 {
                    let at = rng.below(1800) as usize;
                    bytes[at] ^= 1 << rng.below(8);
                }
            });
            let mut rng = Rng::stream(seed, "more");
            pool.hooks.uberblock = Box::new(move |uberblock| {
                match rng.below(12) {
                    0 => uberblock.log_end.sequence = SEQUENCE_LIMIT - 1,
                    1 => uberblock.mark = SEQUENCE_LIMIT - 1,
                    2 => uberblock.floor = Txg(Txg::LIMIT - 1),
                    3 => uberblock.session = SEQUENCE_LIMIT - 1,
                    4 => uberblock.restart_chain = 1,
                    5 => uberblock.txg = Txg(Txg::LIMIT - 1),
                    _ => {}
                };
            });
        });
        pool.batch(vec![], SESSION, 0);
        let report = block_on(inspect(pool.arcs(), &deep()));
        unclean += u64::from(!report.is_clean());
        let shown = report.to_string();
        assert!(shown.len() < 1 << 20, "{}", shown.len());
    }
    assert!(unclean > seeds / 2, "{unclean}");
}

/// Whole sectors of noise, zeros, or from other places.
#[test]
fn sectors_from_elsewhere() {
    let pool = with_log();
    let written = pool.disks[0].written();
    let mut rng = Rng::stream(4711, "flips");
    for _ in 0..150 {
        let disk = pool.disks[0].copy("diskd0");
        for _ in 0..1 + rng.below(6) {
            let mut pick = || written[rng.below(written.len() as u64) as usize];
            let (to, from) = (pick(), pick());
            match rng.below(3) {
                0 => disk.put(to, disk.page(from).as_slice()),
                1 => disk.put(to, &[0; 4096]),
                _ => {
                    let noise: Vec<u8> = (0..4096).map(|_| rng.below(256) as u8).collect();
                    disk.put(to, &noise);
                }
            }
        }
        let report = look_deep(vec![disk]);
        assert!(report.to_string().len() < 1 << 20);
    }
}

#[test]
fn a_disk_of_noise() {
    let disk = MemoryDisk::new("noise", SECTORS);
    let mut rng = Rng::stream(7, "flips");
    for label in 0..4 {
        for sector in 0..LABEL_SECTORS {
            let noise: Vec<u8> = (0..4096).map(|_| rng.below(256) as u8).collect();
            disk.put(label_sector(label, SECTORS) + sector, &noise);
        }
    }
    assert!(!look_deep(vec![disk]).is_clean());
}

#[test]
fn an_inspection_reads_no_more_than_it_must() {
    let pool = good(Shape::Single);
    let before = pool.disks[0].reads();
    block_on(inspect(pool.arcs(), &Options::default()));
    // Four labels, two records, eight slots, the log's first sector and those past it, and the
    // nodes: neighbours in one read.
    let reads = pool.disks[0].reads() - before;
    assert!(reads < 45, "{reads}");
}
