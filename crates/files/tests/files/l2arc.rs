//! The second-level cache under files: what it saves, and that nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_files::{Service, Stability};
use aquifer_ondisk::l2arc::chunk_sector;
use aquifer_pool::create::NamedDisk;
use aquifer_sim::{Corruption, DiskConfig, Image, SimDisk};

use crate::bed::{Bed, find, make, noise, read, root, write};

/// 4 MiB of a file that is read by page.
const PAGES: u64 = 1024;

/// A pool with a little memory for reads, and a disk beside it that is no part of it yet.
fn bed() -> (Bed, SimDisk) {
    let mut bed = Bed::new(1, 65_536);
    bed.options.scale.arc_bytes_max = 1 << 20;
    let cache = bed.sim.add_disk("cache", Image::new(65_536), DiskConfig::default());
    (bed, cache)
}

fn named(disk: &SimDisk) -> NamedDisk {
    NamedDisk { path: disk.name().into(), disk: Arc::new(disk.clone()) as Arc<dyn Disk> }
}

/// Makes the file, gives the pool the cache disk, and reads the file until the cache has it.
fn warm(bed: &mut Bed, cache: &SimDisk) {
    let disk = named(cache);
    let world = bed.world();
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        for at in (0..PAGES).step_by(64) {
            let data = noise(at, 64);
            write(&service, file, at, &data, Stability::FileSync).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        service.pool.add_cache(disk, false).await.unwrap();
        for _ in 0..2 {
            assert_right(&service).await;
        }
        world.sleep(Duration::from_secs(2)).await;
        let status = service.pool.status().caches;
        assert!(status[0].usable && status[0].stats.written_chunks >= 3, "{status:?}");
    });
    bed.disks.push(cache.clone());
}

/// Reads all pages, in an order of their own, and compares each.
async fn assert_right(service: &Service) {
    let file = find(service, "tank", "file").await.unwrap();
    for at in 0..PAGES {
        let page = at * 1031 % PAGES;
        let (first, at) = (page / 64 * 64, (page % 64) as usize);
        let read = read(service, file, page).await.unwrap();
        assert_eq!(read, noise(first, 64)[at * 4096..][..4096], "page {page}");
    }
}

#[test]
fn what_was_read_once_is_read_from_the_cache_disk_also_after_a_restart() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    for life in 0..3 {
        let (data, world) = (bed.disks[0].clone(), bed.world());
        let work = async |service: Service| {
            world.sleep(Duration::from_secs(2)).await;
            let before = data.counters().read_sectors;
            assert_right(&service).await;
            let read = data.counters().read_sectors - before;
            let stats = service.pool.status().caches[0].stats;
            assert!(stats.loaded_chunks >= 3 && stats.bad == 0, "{stats:?}");
            // The last chunk was not full.
            assert!(stats.hits > PAGES * 2 / 3, "life {life}: {stats:?}");
            assert!(read < PAGES / 3, "life {life}: {read} pages of the pool, {stats:?}");
        };
        // However the life before ended.
        match life {
            0 => bed.life(work),
            1 => bed.short_life(work),
            _ => bed.cut_life(work),
        }
    }
    bed.assert_clean();
}

#[test]
pub fn a_cache_disk_that_rotted_or_is_of_another_time_gives_nobody_a_wrong_byte() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    // What is not flushed cannot rot.
    bed.sim.run_until(cache.flush()).unwrap().unwrap();
    for chunk in 0..4 {
        for sector in [chunk_sector(chunk) + 20, chunk_sector(chunk) + 21] {
            cache.corrupt(sector, Corruption::Garbage);
        }
    }
    let world = bed.world();
    bed.life(async |service| {
        world.sleep(Duration::from_secs(2)).await;
        assert_right(&service).await;
        let status = service.pool.status().caches;
        assert!(status[0].stats.bad >= 3, "{:?}", status[0].stats);
        assert_eq!(status[0].leaf.checksum_errors, status[0].stats.bad);
        // The pool's disks are not to blame.
        assert_eq!(service.pool.status().vdevs[0].leaves[0].checksum_errors, 0);
        // The same pages are of other content from here on, in the place of the old ones or not.
        let top = service.files.root("tank").unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        for _ in 0..4 {
            service.pool.sync().await.unwrap();
        }
        let file = make(&service, top, "file").await;
        for at in (0..PAGES).step_by(64) {
            write(&service, file, at, &noise(at, 64), Stability::FileSync).await.unwrap();
        }
    });
    bed.life(async |service| assert_right(&service).await);
}

#[test]
fn a_pool_comes_up_without_its_cache_disk_and_takes_it_back() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    let cache = bed.disks.pop().unwrap();
    bed.life(async |service| {
        assert_right(&service).await;
        let status = service.pool.status().caches;
        assert!(!status[0].usable, "{status:?}");
        assert_eq!(status[0].leaf.path, "cache");
    });
    bed.disks.push(cache);
    let world = bed.world();
    bed.life(async |service| {
        world.sleep(Duration::from_secs(2)).await;
        assert_right(&service).await;
        assert!(service.pool.status().caches[0].stats.hits > PAGES / 2);
    });
}

#[test]
fn a_cache_disk_that_hangs_or_fails_holds_up_nobody_for_long() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    let world = bed.world();
    bed.life(async |service| {
        world.sleep(Duration::from_secs(2)).await;
        cache.stall(Duration::from_secs(100));
        let begun = world.now();
        assert_right(&service).await;
        let took = world.now() - begun;
        assert!(took < Duration::from_secs(5), "{took:?}");
        // A commit does not wait for it.
        let begun = world.now();
        let file = find(&service, "tank", "file").await.unwrap();
        write(&service, file, 0, &noise(0, 64), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        assert!(world.now() - begun < Duration::from_secs(1));
        assert!(!service.pool.status().caches[0].usable);
        world.sleep(Duration::from_secs(200)).await;
        service.pool.clear_errors(None);
        world.sleep(Duration::from_secs(2)).await;
        assert!(service.pool.status().caches[0].usable);
        assert_right(&service).await;
        assert!(service.pool.status().caches[0].stats.hits > PAGES / 2);
    });
}

#[test]
fn a_cache_disk_that_was_removed_is_blank_and_the_pool_is_as_older_software_knows_it() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    bed.life(async |service| {
        assert!(service.pool.remove_cache("other").await.unwrap().is_none());
        service.pool.remove_cache("cache").await.unwrap().unwrap();
        assert!(service.pool.status().caches.is_empty());
        assert_right(&service).await;
    });
    let cache = bed.disks.pop().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(cache);
    let labels = bed.sim.run_until(aquifer_vdev::label_io::read_labels(&disk)).unwrap();
    assert!(labels.is_err(), "{labels:?}");
    // The label's version: 12 bytes into the config, which begins in sector 8.
    let own: Arc<dyn Disk> = Arc::new(bed.disks[0].clone());
    let config = bed.sim.run_until(own.read(8, 1)).unwrap().unwrap();
    assert_eq!(config[0].as_slice()[8..12], [1, 0, 0, 0]);
    bed.assert_clean();
}

#[test]
fn a_disk_that_is_in_a_pool_is_no_cache_and_nothing_is_written_to_it() {
    let (mut bed, cache) = bed();
    warm(&mut bed, &cache);
    let own = named(&bed.disks[0]);
    let again = named(&cache);
    bed.life(async |service| {
        for disk in [own, again] {
            assert!(service.pool.add_cache(disk, false).await.is_err());
        }
        assert_right(&service).await;
    });
}
