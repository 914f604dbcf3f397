//! Pools as earlier releases left them, whose records lie on one vdev, and pools without room.

use std::collections::VecDeque;
use std::sync::Arc;

use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::{Disk, World};
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_sim::{Corruption, DiskConfig, Image, Sim, SimDisk};
use aquifer_space::MetaslabId;

use super::*;
use crate::create::{NamedDisk, PoolSpec, VdevSpec, create};
use crate::import::{ImportOptions, import, scan};
use crate::record::{RecordRing, runs_of, segments_of};

struct Bed {
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
}

fn named(disks: &[SimDisk]) -> Vec<NamedDisk> {
    let name = |disk: &SimDisk| NamedDisk {
        path: disk.name().into(),
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
    };
    disks.iter().map(name).collect()
}

impl Bed {
    /// A pool of two vdevs.
    fn new(redundancy: Redundancy) -> Bed {
        let mut sim = Sim::new(5);
        let sides = if redundancy == Redundancy::Mirror { 2 } else { 1 };
        let disk = |at| sim.add_disk(&format!("d{at}"), Image::new(65_536), DiskConfig::default());
        let disks: Vec<SimDisk> = (0..2 * sides).map(disk).collect();
        let vdev = |disks: &[SimDisk]| VdevSpec { redundancy, disks: named(disks) };
        let vdevs = disks.chunks(sides).map(vdev).collect();
        let world: Arc<dyn World> = Arc::new(sim.world());
        let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
        sim.run_until(create(world.clone(), spec)).unwrap().unwrap();
        Bed { sim, world, disks }
    }

    /// Imports the pool and runs `work`; then the process ends.
    fn live<T>(&mut self, work: impl AsyncFnOnce(&Arc<Pool>) -> T) -> T {
        let (world, disks) = (self.world.clone(), named(&self.disks));
        let mut options = ImportOptions::default();
        options.scale.record_segment_sectors = SECTORS_OF_EACH;
        let done = self.sim.run_until(async {
            let (mut pools, _) = scan(disks).await;
            let (_, found) = pools.pop_first().unwrap();
            let (pool, _) = import(world, found, &options).await.unwrap();
            work(&pool).await
        });
        self.sim.kill();
        done.unwrap()
    }
}

/// The ring goes round in a few dozen txgs.
const SECTORS_OF_EACH: u64 = 8;

/// Has all records lie on the first vdev from now on, with as many copies as an earlier release
/// made.
fn as_earlier(pool: &Pool) {
    let mut ring = pool.records.lock();
    let next = ring.next();
    let mut segments = segments_of(&ring.runs());
    segments.truncate(segments.len() / 2);
    let copies = pool.tree().config.record_copies(pool.open_txg());
    if copies == 2 {
        let (mut space, txg) = (pool.space.lock(), pool.open_txg());
        let mut second = || space.allocate_segment(txg, 0, true).unwrap().place;
        let mirrors: Vec<Place> = segments.iter().map(|_| second()).collect();
        segments.extend(mirrors);
    }
    assert!(segments.iter().all(|segment| segment.vdev() == 0), "{segments:?}");
    *ring = RecordRing::new(&runs_of(&segments), copies, next).unwrap();
    ring.take_sectors_of_each(SECTORS_OF_EACH);
}

async fn newest(pool: &Pool) -> RecordPointer {
    pool.newest_record().await.unwrap()
}

fn vdevs_of(pointer: &RecordPointer) -> Vec<u16> {
    pointer.copies().map(|place| place.vdev()).collect()
}

/// Every copy of a part of a record.
async fn read_all(pool: &Pool, pointer: &RecordPointer) -> TxgRecord {
    let mut found = None;
    for place in pointer.copies() {
        let verify =
            |pages: &[aquifer_blockio::Page]| checksum128(&bytes_of(pages)) == pointer.checksum;
        let count = usize::try_from(pointer.sectors).unwrap();
        let read = pool.vdev(place).unwrap().read(place.sector(), count, &verify).await;
        let pages = read.unwrap_or_else(|error| panic!("{pointer:?} at {place:?}: {error}"));
        found = Some(TxgRecord::decode(&bytes_of(&pages)).unwrap());
    }
    found.unwrap()
}

/// Checks that every record that the newest roots need is there, in every copy.
async fn are_whole(pool: &Pool, roots: &VecDeque<RecordPointer>) {
    for root in roots {
        let mut record = read_all(pool, root).await;
        let window_start = record.window_start;
        while let Some(previous) = record.previous.filter(|of| of.txg >= window_start) {
            record = read_all(pool, &previous).await;
        }
    }
}

/// So many txgs. Each record lies on two vdevs, and takes nothing from those before.
async fn go_on(pool: &Pool, txgs: usize) {
    let mut roots = VecDeque::from([newest(pool).await]);
    for _ in 0..txgs {
        pool.sync_one().await.unwrap();
        let root = newest(pool).await;
        let [first, second] = vdevs_of(&root).try_into().unwrap();
        assert_ne!(first, second, "{root:?}");
        roots.push_back(root);
        while roots.len() > 3 {
            roots.pop_front();
        }
        are_whole(pool, &roots).await;
    }
}

#[test]
fn an_import_spreads_the_records_of_an_earlier_release() {
    for (redundancy, before) in [(Redundancy::Single, vec![0, 0]), (Redundancy::Mirror, vec![0])] {
        let mut bed = Bed::new(redundancy);
        bed.live(async |pool| {
            as_earlier(pool);
            for _ in 0..40 {
                pool.sync_one().await.unwrap();
                assert_eq!(vdevs_of(&newest(pool).await), before);
            }
        });
        // The first processes end before or soon after a root on disk lists the new segments.
        let mut segments = 0;
        for txgs in [0, 0, 1, 2, 3, 100] {
            segments = bed.live(async |pool| {
                assert_eq!(pool.records.lock().on_one_vdev(), [], "{redundancy:?}");
                go_on(pool, txgs).await;
                pool.records.lock().segment_sectors()
            });
        }
        bed.live(async |pool| {
            assert_eq!(pool.records.lock().segment_sectors(), segments, "spread once more");
            go_on(pool, 3).await;
        });
        for lost in 0..2 {
            let roots = bed.live(async |pool| {
                let mut roots = Vec::new();
                for _ in 0..3 {
                    pool.sync_one().await.unwrap();
                    roots.push(newest(pool).await);
                }
                roots
            });
            let sides = bed.disks.len() / 2;
            for place in roots.iter().flat_map(RecordPointer::copies) {
                let of_it = &bed.disks[usize::from(place.vdev()) * sides..][..sides];
                if usize::from(place.vdev()) == lost {
                    of_it.iter().for_each(|disk| disk.corrupt(place.sector(), Corruption::Garbage));
                }
            }
        }
        bed.live(async |pool| {
            pool.sync_one().await.unwrap();
            assert_eq!(vdevs_of(&newest(pool).await).len(), 2);
        });
    }
}

/// A new pool has no segment but those that its limits name, each with a copy elsewhere.
#[test]
fn a_new_pool_spreads_its_records_without_more_segments() {
    for redundancy in [Redundancy::Single, Redundancy::Mirror] {
        let mut bed = Bed::new(redundancy);
        bed.live(async |pool| {
            let metaslabs = pool.tree().data().map(|vdev| vdev.geometry.metaslabs()).sum();
            let wanted = 2 * Limits::record_segments(metaslabs) * SEGMENT_SECTORS;
            assert_eq!(pool.records.lock().segment_sectors(), wanted, "{redundancy:?}");
            go_on(pool, 40).await;
        });
    }
}

/// The records that an import must not overwrite are those that the process before it would not
/// have overwritten.
#[test]
fn an_import_knows_which_records_are_needed() {
    let mut bed = Bed::new(Redundancy::Single);
    let mut before = None;
    for txgs in [0, 1, 2, 3, 5, 20, 40, 1, 7] {
        before = bed.live(async |pool| {
            let imported = pool.records.lock().needed();
            assert_eq!(before.as_ref().unwrap_or(&imported), &imported, "before {txgs} txgs");
            // A window of several txgs: a sync refreshes one metaslab of many.
            for vdev in pool.tree().data() {
                let rotor = usize::from(vdev.index);
                pool.space.lock().allocate_segment(pool.open_txg(), rotor, true).unwrap();
                pool.space.lock().allocate_segment(pool.open_txg(), rotor, false).unwrap();
            }
            go_on(pool, txgs).await;
            Some(pool.records.lock().needed()).filter(|_| txgs > 0)
        });
    }
}

/// A pool that grows has as many segments as its limits name, each with a copy elsewhere.
#[test]
fn a_ring_grows_with_its_pool() {
    let mut bed = Bed::new(Redundancy::Single);
    let new = bed.sim.add_disk("new", Image::new(5000 * SEGMENT_SECTORS), DiskConfig::default());
    bed.live(async |pool| {
        let spec =
            VdevSpec { redundancy: Redundancy::Single, disks: named(std::slice::from_ref(&new)) };
        pool.add_data(&spec, false).await.unwrap();
        let metaslabs = pool.tree().data().map(|vdev| vdev.geometry.metaslabs()).sum();
        let wanted = Limits::record_segments(metaslabs);
        assert!(wanted > 3, "{wanted}");
        assert_eq!(pool.records.lock().segments(), wanted);
        assert_eq!(pool.records.lock().on_one_vdev(), []);
        go_on(pool, 60).await;
    });
}

/// Room that clients may write into stays theirs.
#[test]
fn a_full_pool_keeps_its_records_where_they_are() {
    for redundancy in [Redundancy::Single, Redundancy::Mirror] {
        let mut bed = Bed::new(redundancy);
        bed.live(async |pool| {
            as_earlier(pool);
            for vdev in pool.tree().data() {
                for index in 0..vdev.geometry.metaslabs() {
                    pool.load_metaslab(MetaslabId { vdev: vdev.index, index }).await.unwrap();
                }
            }
            let before = pool.records.lock().runs();
            let needed = pool.records.lock().segment_sectors();
            let mut space = pool.space.lock();
            let room = |space: &Allocator| space.space_use().free() - pool.slop_sectors();
            while room(&space) >= 2 * needed {
                space.allocate(pool.open_txg(), 1, SEGMENT_SECTORS).unwrap();
            }
            let left = room(&space);
            pool.spread_records(&mut space);
            assert_eq!((room(&space), pool.records.lock().runs()), (left, before));
        });
    }
}

/// An allocator of two vdevs, the second with this many free segments.
fn with_room(free: u64) -> Allocator {
    let of = |vdev| Some(Geometry::new(vdev, 64, Redundancy::Single));
    let count = |space: &mut Allocator| {
        let mut taken = 0;
        while space.allocate_segment(Txg(1), 1, false).is_ok_and(|run| run.place.vdev() == 1) {
            taken += 1;
        }
        taken
    };
    let all = count(&mut Allocator::new(&[of(0), of(1)]));
    let mut space = Allocator::new(&[of(0), of(1)]);
    for _ in free..all {
        space.allocate_segment(Txg(1), 1, false).unwrap();
    }
    space
}

/// Sectors that a txg has taken in all.
fn taken(mut space: Allocator) -> u64 {
    let (allocated, freed) = space.close_txg(Txg(1)).unwrap();
    let sum = |runs: &[Run]| runs.iter().map(|run| run.sectors).sum::<u64>();
    sum(&allocated) - sum(&freed)
}

#[test]
fn a_search_that_finds_too_little_takes_nothing() {
    let segments = [4, 5, 6].map(|at| Place::new(0, at * SEGMENT_SECTORS));
    for free in 0..4 {
        let (mut space, before) = (with_room(free), taken(with_room(free)));
        let found = elsewhere(&mut space, Txg(1), segments.into_iter());
        assert_eq!(found.is_some(), free == 3);
        let found: Vec<Place> = found.unwrap_or_default();
        assert!(found.iter().all(|place| place.vdev() == 1), "{found:?}");
        assert_eq!(taken(space), before + found.len() as u64 * SEGMENT_SECTORS, "{free} free");
    }
}

#[test]
fn a_segment_without_a_second_one_is_given_back() {
    let mut bed = Bed::new(Redundancy::Single);
    let vdev = bed.live(async |pool| pool.tree().data().next().unwrap().clone());
    for free in 0..4 {
        let filled = || {
            let mut space = with_room(free);
            while space.allocate_segment(Txg(1), 0, false).is_ok_and(|run| run.place.vdev() == 0) {}
            space
        };
        // The last search for a segment of the first vdev took one of the second.
        let free = free.saturating_sub(1);
        let (mut space, before) = (filled(), taken(filled()));
        let found = take_segments(&mut space, Txg(1), &vdev, 2);
        assert_eq!(found.is_some(), free > 1);
        let found = if found.is_some() { 2 } else { 0 };
        assert_eq!(taken(space), before + found * SEGMENT_SECTORS, "{free} free");
    }
}
