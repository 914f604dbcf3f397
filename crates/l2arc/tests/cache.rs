//! A cache disk on simulated disks: what it holds, over restarts, and when the disk is bad.
#![expect(clippy::indexing_slicing, reason = "a test says what went wrong by ending")]

use std::sync::Arc;
use std::time::Duration;

use aquifer_arc::Memory;
use aquifer_blockio::{Disk, Page, World};
use aquifer_l2arc::CacheDisk;
use aquifer_ondisk::l2arc::{CHUNK_SECTORS, CachedRun, RunForm, chunk_sector, chunks};
use aquifer_ondisk::layout::LEAF_SEGMENTS_MIN;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{Guid, Place, Txg};
use aquifer_sim::{Corruption, DiskConfig, Fault, FaultRule, Image, Sim, SimDisk, When};
use aquifer_vdev::Leaf;

const SECTORS: u64 = LEAF_SEGMENTS_MIN * SEGMENT_SECTORS;
const POOL: Guid = Guid(7);
/// Memory for the index of all of it.
const ENOUGH: u64 = 8 << 20;

fn sim(seed: u64) -> (Sim, SimDisk) {
    let mut sim = Sim::new(seed);
    let disk = sim.add_disk("cache", Image::new(SECTORS), DiskConfig::default());
    (sim, disk)
}

/// The cache in service. `pool` and `index_bytes` may be others than before.
fn open(sim: &Sim, disk: &SimDisk, pool: Guid, index_bytes: u64) -> Arc<CacheDisk> {
    let (disk, world): (Arc<dyn Disk>, Arc<dyn World>) =
        (Arc::new(disk.clone()), Arc::new(sim.world()));
    let leaf = Arc::new(Leaf::new(Guid(10), "cache".into(), Some(disk), world.clone()));
    let cache = CacheDisk::new(leaf, pool, world.clone(), (&Memory::new(1 << 30), index_bytes));
    world.spawn("cache", Box::pin(cache.clone().run()));
    cache
}

fn run(number: u64, sectors: u8, form: RunForm) -> CachedRun {
    CachedRun { place: Place::new(0, number * 64), written: Txg(number), sectors, form }
}

fn page(number: u64, at: u64) -> Page {
    Page::with_prefix(format!("page {at} of block {number}").as_bytes())
}

fn pages(number: u64, sectors: u8) -> Vec<Page> {
    (0..u64::from(sectors)).map(|at| page(number, at)).collect()
}

/// Offers blocks of these numbers, each of 16 pages, and waits until they are written.
async fn fill(cache: &CacheDisk, world: &dyn World, numbers: std::ops::Range<u64>) {
    for number in numbers {
        cache.offer(run(number, 16, RunForm::Pages), &pages(number, 16));
        world.sleep(Duration::from_millis(20)).await;
    }
    world.sleep(Duration::from_secs(1)).await;
}

/// Whether the cache has a page of a block, and it is right.
async fn has(cache: &CacheDisk, number: u64, at: u64) -> bool {
    let expected = page(number, at);
    let verify = |read: &[Page]| read.len() == 1 && read[0][..] == expected[..];
    let block = run(number, 1, RunForm::Pages);
    let wanted = CachedRun { place: block.place.plus(at), ..block };
    cache.read(&wanted, &verify).await.is_some()
}

#[test]
fn what_was_offered_is_read_by_page_and_as_a_run() {
    let (mut sim, disk) = sim(1);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..64).await;
        // The last chunk is not full yet.
        for number in 1..46 {
            assert!(has(&cache, number, 0).await && has(&cache, number, 15).await, "{number}");
            let expected = pages(number, 16);
            let verify = |read: &[Page]| read.iter().zip(&expected).all(|(a, b)| a[..] == b[..]);
            let all = cache.read(&run(number, 16, RunForm::Pages), &verify).await.unwrap();
            assert_eq!(all.len(), 16);
        }
        assert!(!has(&cache, 1, 16).await, "beside the block");
        let other = CachedRun { written: Txg(2), ..run(1, 1, RunForm::Pages) };
        assert!(cache.read(&other, &|_| true).await.is_none(), "of another txg");
        let part = CachedRun { sectors: 17, ..run(1, 16, RunForm::Pages) };
        assert!(cache.read(&part, &|_| true).await.is_none(), "not all of it is here");
    })
    .unwrap();
    let stats = cache.stats();
    assert_eq!((stats.bad, stats.passed_over), (0, 0), "{stats:?}");
    assert!(stats.written_chunks >= 3 && stats.blocks >= 45 * 16, "{stats:?}");
}

#[test]
fn it_is_warm_after_a_restart_and_goes_on_behind_the_newest_chunk() {
    let (mut sim, disk) = sim(2);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(fill(&cache, &world, 1..64)).unwrap();
    let before = cache.stats();
    for _ in 0..2 {
        sim.power_cut_any();
        let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
        sim.run_until(async {
            world.sleep(Duration::from_secs(5)).await;
            fill(&cache, &world, 100..132).await;
        })
        .unwrap();
        let after = cache.stats();
        assert!(after.loaded_chunks > 0, "{after:?}");
        sim.run_until(async {
            let mut found = 0;
            for number in 1..46 {
                found += u64::from(has(&cache, number, 3).await);
            }
            // The cut may have taken chunks that were not flushed, and nothing that is found is
            // wrong.
            assert!(found >= after.loaded_chunks.min(before.written_chunks), "{found}");
            assert!(has(&cache, 101, 3).await);
        })
        .unwrap();
    }
}

#[test]
fn a_disk_of_another_pool_is_empty() {
    let (mut sim, disk) = sim(3);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(fill(&cache, &world, 1..64)).unwrap();
    sim.kill();
    let (cache, world) = (open(&sim, &disk, Guid(8), ENOUGH), sim.world());
    sim.run_until(world.sleep(Duration::from_secs(5))).unwrap();
    assert_eq!((cache.stats().loaded_chunks, cache.stats().blocks), (0, 0));
}

#[test]
fn a_full_ring_forgets_the_oldest_and_the_index_stays_bounded() {
    let (mut sim, disk) = sim(4);
    // Room for four chunks.
    let bytes = 4 * 254 * 21;
    let (cache, world) = (open(&sim, &disk, POOL, bytes), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..400).await;
        assert!(!has(&cache, 1, 0).await && !has(&cache, 200, 0).await);
        assert!(has(&cache, 370, 0).await);
    })
    .unwrap();
    let stats = cache.stats();
    assert!(stats.written_chunks > 20 && stats.blocks <= 4 * 254, "{stats:?}");
    assert_eq!(stats.bad, 0, "what is written over is forgotten first: {stats:?}");
    assert_eq!(stats.capacity_bytes, 4 * 254 * 4096);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let beyond = sim.run_until(disk.read(chunk_sector(4), 1)).unwrap().unwrap();
    assert!(beyond[0].is_zero(), "the rest of the disk is not touched");
}

#[test]
fn rot_is_found_and_forgotten() {
    let (mut sim, disk) = sim(5);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(fill(&cache, &world, 1..64)).unwrap();
    // What is not flushed cannot rot.
    sim.run_until(disk.flush()).unwrap().unwrap();
    for sector in chunk_sector(0) + 2..chunk_sector(0) + CHUNK_SECTORS {
        disk.corrupt(sector, Corruption::FlipBits(1));
    }
    sim.run_until(async {
        assert!(!has(&cache, 1, 0).await);
        assert_eq!(cache.stats().bad, 1);
        // It is not read again.
        assert!(!has(&cache, 1, 0).await);
        assert_eq!(cache.stats().bad, 1);
        assert!(has(&cache, 20, 0).await, "other chunks are good");
    })
    .unwrap();
}

#[test]
fn headers_that_rotted_cost_what_they_name() {
    let (mut sim, disk) = sim(6);
    let bytes = 4 * 254 * 21;
    let (cache, world) = (open(&sim, &disk, POOL, bytes), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..50).await;
        disk.flush().await.unwrap();
        (0..4).for_each(|chunk| disk.corrupt(chunk_sector(chunk), Corruption::Garbage));
        // The ring goes on, and what it writes over is forgotten all the same.
        fill(&cache, &world, 100..200).await;
        assert!(!has(&cache, 1, 0).await && has(&cache, 170, 0).await);
    })
    .unwrap();
    assert!(cache.stats().blocks <= 4 * 254);
    assert_eq!(cache.stats().bad, 0);
}

#[test]
fn a_disk_that_fails_or_hangs_is_left_alone() {
    let (mut sim, disk) = sim(7);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..64).await;
        disk.stall(Duration::from_secs(3600));
        let begun = world.now();
        for _ in 0..100 {
            assert!(!has(&cache, 1, 0).await);
        }
        let took = world.now() - begun;
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert!(!cache.is_usable());
    })
    .unwrap();
    let (mut sim, disk) = self::sim(8);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..64).await;
        disk.inject(FaultRule::new(Fault::WriteError, When::Always));
        fill(&cache, &world, 64..200).await;
        assert!(!cache.is_usable(), "a write failed");
        assert!(!has(&cache, 1, 0).await);
    })
    .unwrap();
}

/// A busy machine, and a disk that was only slow: it is asked now and then, ever more seldom, and
/// used again when it answers. What it holds was not forgotten.
#[test]
fn a_disk_that_was_slow_is_used_again_by_itself() {
    let (mut sim, disk) = sim(11);
    let (cache, world) = (open(&sim, &disk, POOL, ENOUGH), sim.world());
    sim.run_until(async {
        fill(&cache, &world, 1..64).await;
        for slow_s in [5, 100] {
            disk.stall(Duration::from_secs(slow_s));
            let (begun, mut asked, mut rested) = (world.now(), 0, false);
            while world.now() - begun < Duration::from_secs(slow_s) {
                let before = world.now();
                assert!(!has(&cache, 1, 0).await);
                asked += u32::from(world.now() > before);
                rested |= !cache.is_usable();
                world.sleep(Duration::from_millis(50)).await;
            }
            // 16 at first, and then one after each rest.
            assert!(rested && asked < 16 + 10, "{asked}");
            while !has(&cache, 1, 0).await {
                let since = world.now() - begun;
                assert!(since < Duration::from_secs(slow_s + 65), "it is left alone for good");
                world.sleep(Duration::from_millis(50)).await;
            }
            assert!(cache.is_usable());
        }
    })
    .unwrap();
}

#[test]
fn what_comes_faster_than_it_can_write_is_passed_over() {
    let (mut sim, disk) = sim(9);
    let cache = open(&sim, &disk, POOL, ENOUGH);
    sim.run_until(async {
        for number in 1..1000 {
            cache.offer(run(number, 16, RunForm::Pages), &pages(number, 16));
        }
    })
    .unwrap();
    let stats = cache.stats();
    // Five chunks of fifteen blocks each wait.
    assert_eq!(stats.passed_over, 999 - 5 * 15, "{stats:?}");
}

#[test]
fn a_disk_has_room_for_whole_segments_without_its_labels() {
    assert_eq!(chunks(SECTORS), (LEAF_SEGMENTS_MIN - 2) * 4);
    assert_eq!(chunks(0), 0);
    let last = chunk_sector(chunks(SECTORS) - 1) + CHUNK_SECTORS;
    assert_eq!(last, SECTORS - SEGMENT_SECTORS);
}
