//! Labels under power cuts at every moment, and bad copies under reads, on simulated disks.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_blockio::{Disk, Page, World};
use aquifer_ondisk::config::{LeafConfig, PoolConfig, Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::layout::LEAF_SEGMENTS_MIN;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::uberblock::{LogEnd, ROOTS, Uberblock};
use aquifer_ondisk::{Guid, Txg};
use aquifer_sim::{Corruption, CutPlan, DiskConfig, Image, Sim, SimDisk, Stop};
use aquifer_vdev::label_io::{read_labels, write_config, write_uberblock};
use aquifer_vdev::{Leaf, Vdev};

const POOL: Guid = Guid(7);
const SECTORS: u64 = LEAF_SEGMENTS_MIN * SEGMENT_SECTORS;

/// Large, and different throughout for each number, so that a torn one shows.
fn config(config_sequence: u64) -> PoolConfig {
    let path = format!("{config_sequence:0>400}").replace('0', &(config_sequence % 10).to_string());
    let leaf = |guid| LeafConfig::new(Guid(guid), SECTORS, path.clone());
    let (class, segments) = (VdevClass::Data, LEAF_SEGMENTS_MIN - 2);
    let mut vdev = VdevConfig::new(Guid(8), class, Redundancy::Mirror, segments, Txg(1));
    vdev.leaves = (10..30).map(leaf).collect();
    PoolConfig {
        config_sequence,
        pool_guid: POOL,
        name: "tank".into(),
        features_read: Vec::new(),
        features_write: Vec::new(),
        vdevs: vec![vdev],
        spares: Vec::new(),
        caches: Vec::new(),
    }
}

fn uberblock(sequence: u64) -> Uberblock {
    Uberblock {
        pool_guid: POOL,
        leaf_guid: Guid(0),
        label: 0,
        clean: true,
        sequence,
        txg: Txg(sequence),
        wall_ns: 0,
        session: 0,
        session_first_txg: Txg(1),
        config_sequence: 1,
        mark: 0,
        log_end: LogEnd::default(),
        restart_chain: 0,
        floor: Txg(0),
        roots: [None; ROOTS],
        outdated: Vec::new(),
        host: None,
        counted: 0,
    }
}

fn leaf(sim: &Sim, guid: u64, disk: &SimDisk) -> Arc<Leaf> {
    let (disk, world): (Arc<dyn Disk>, Arc<dyn World>) =
        (Arc::new(disk.clone()), Arc::new(sim.world()));
    Arc::new(Leaf::new(Guid(guid), "disk".into(), Some(disk), world))
}

/// Writes number 1 on a new disk. Then does `what` with 2 and the following numbers, until the
/// power fails at I/O event `at`. Returns the last number that `what` completed, and the disk as it
/// is then.
fn cut_at(seed: u64, at: u64, what: impl AsyncFn(&Arc<Leaf>, u64)) -> (Sim, SimDisk, u64) {
    let mut sim = Sim::new(seed);
    let disk = sim.add_disk("disk", Image::new(SECTORS), DiskConfig::default());
    let leaf = leaf(&sim, 10, &disk);
    sim.run_until(async {
        write_config(&leaf, &config(1)).await.unwrap();
        write_uberblock(&leaf, &uberblock(1)).await.unwrap();
    })
    .unwrap();
    sim.plan_cut(CutPlan::AtEvent(at));
    let written = AtomicU64::new(1);
    let end = sim.run_until(async {
        for number in 2.. {
            what(&leaf, number).await;
            written.store(number, Ordering::Relaxed);
        }
    });
    assert_eq!(end, Err(Stop::Halted));
    sim.power_cut_any();
    (sim, disk, written.load(Ordering::Relaxed))
}

/// A config takes 20 events, an uberblock 10: each cut falls into one of the first three.
#[test]
fn a_label_is_left_by_every_power_cut_and_nothing_written_is_lost() {
    for (seed, at) in (0..12).flat_map(|seed| (1..60).map(move |at| (seed, at))) {
        let (mut sim, disk, written) = cut_at(seed, at, async |leaf, number| {
            write_config(leaf, &config(number)).await.unwrap();
        });
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let found = sim.run_until(read_labels(&disk)).unwrap();
        let found = found.unwrap_or_else(|error| panic!("seed {seed}, event {at}: {error}"));
        let sequence = found.label.config.config_sequence;
        assert!((written..=written + 1).contains(&sequence), "seed {seed}, event {at}: {sequence}");
    }
}

/// Two writers, of whom the slower one knows less.
#[test]
fn a_leaf_keeps_the_newest_config_that_it_was_given() {
    let mut sim = Sim::new(3);
    let disk = sim.add_disk("disk", Image::new(SECTORS), DiskConfig::default());
    let leaf = leaf(&sim, 10, &disk);
    let written = sim.run_until(async {
        let (old, new) = (config(1), config(2));
        let begun = write_config(&leaf, &new);
        let both = futures_util::future::join(begun, write_config(&leaf, &old)).await;
        (both.0.unwrap(), both.1.unwrap(), write_config(&leaf, &new).await.unwrap())
    });
    assert_eq!(written.unwrap(), (true, false, true));
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let found = sim.run_until(read_labels(&disk)).unwrap().unwrap();
    assert_eq!(found.label.config.config_sequence, 2);
}

#[test]
fn an_uberblock_that_was_written_is_there_after_every_power_cut() {
    for (seed, at) in (0..12).flat_map(|seed| (1..40).map(move |at| (seed, at))) {
        let (mut sim, disk, written) = cut_at(seed, at, async |leaf, number| {
            write_uberblock(leaf, &uberblock(number)).await.unwrap();
        });
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let found = sim.run_until(read_labels(&disk)).unwrap().unwrap();
        let newest = found.uberblocks.first().map_or(0, |uberblock| uberblock.sequence);
        assert!((written..=written + 1).contains(&newest), "seed {seed}, event {at}: {newest}");
    }
}

/// A read gives the written content, whichever side it asks first. If that side was bad, it is
/// whole afterwards.
#[test]
fn a_read_repairs_the_copy_that_is_bad() {
    for (sector, bad) in [(2048, 0), (2048, 1), (2048 + 256, 0), (2048 + 256, 1)] {
        let mut sim = Sim::new(sector);
        let mut disk = |name| sim.add_disk(name, Image::new(SECTORS), DiskConfig::default());
        let disks = [disk("one"), disk("other")];
        let leaves = (10..).zip(&disks).map(|(guid, disk)| leaf(&sim, guid, disk)).collect();
        let vdevs = config(1).vdevs;
        let vdev = Vdev::new(0, vdevs.first().unwrap(), leaves, Arc::new(sim.world()));
        let written = vec![Page::with_prefix(b"what was written"); 3];
        let is_good = |pages: &[Page]| pages.iter().zip(&written).all(|(a, b)| a[..] == b[..]);
        sim.run_until(async {
            vdev.write(sector, written.clone()).await.unwrap();
            vdev.flush().await.unwrap();
        })
        .unwrap();
        disks.get(bad).unwrap().corrupt(sector + 1, Corruption::Garbage);
        let read = sim.run_until(vdev.read(sector, 3, &is_good)).unwrap().unwrap();
        assert!(is_good(&read));
        // Side by side for 1 MiB each.
        let turn = usize::try_from(sector / 256).unwrap() % 2;
        let pages = disks.map(|disk| disk.newest_page(sector + 1));
        let are_good = pages.map(|page| page[..] == written.first().unwrap()[..]);
        assert_eq!(are_good.iter().all(|good| *good), turn == bad, "sector {sector}, side {bad}");
    }
}
