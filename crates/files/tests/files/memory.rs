//! Memory that data takes.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use aquifer_blockio::buf::Filling;
use aquifer_files::{DirectoryEntry, FileHandle, Piece, Service, Stability};
use aquifer_pool::{Memory, SILENT_AFTER};
use futures_util::future::join;

use crate::bed::{Bed, find, make, noise, read, root, write};

/// Writes pages as a server gets them from its socket: neighbours in memory.
async fn write_block(service: &Service, file: FileHandle, data: &[u8]) {
    let mut filling = Filling::new(data.len() / 4096);
    filling.put(data);
    let pages = filling.finish().unwrap();
    let piece = Piece::of_pages(0, &pages);
    let made = service.files.write_batch(&root(), file, &[piece], Stability::FileSync).await;
    made.unwrap().promised.kept().await.unwrap();
}

#[test]
fn what_is_freed_leaves_the_cache() {
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let entries = || service.pool.cache_stats().class.data.entries;
        for seed in 0..4 {
            write_block(&service, file, &noise(seed, 256)).await;
            service.pool.sync().await.unwrap();
            assert_eq!(entries(), 256, "nothing of what was there before");
        }
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        service.pool.sync().await.unwrap();
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
        }
        assert_eq!(entries(), 0);
    });
}

/// Data that is compressed on disk is uncompressed in memory, and counts with that size.
#[test]
fn compressed_blocks_count_for_what_they_take_in_memory() {
    const PAGES: usize = 256;
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let mut data = noise(1, PAGES);
        data.chunks_mut(4096).for_each(|page| page[1000..].fill(7));
        write_block(&service, file, &data).await;
        service.pool.sync().await.unwrap();
        let used = service.files.getattr(file).await.unwrap().used;
        assert!(used < PAGES as u64 * 4096 * 2 / 3, "{used} bytes: it is not compressed");
    });
    bed.life(async |service| {
        let file = find(&service, "tank", "file").await.unwrap();
        let before = service.pool.cache_stats().class.data.bytes;
        for page in 0..PAGES as u64 {
            read(&service, file, page).await.unwrap();
        }
        let took = service.pool.cache_stats().class.data.bytes - before;
        assert!(took >= PAGES as u64 * 4096, "{took} bytes");
    });
}

/// Lists a dataset's, or snapshot's, root directory with attributes, and counts the polls.
async fn list(service: &Service, of: &str) -> (Vec<DirectoryEntry>, u64) {
    let top = service.files.root(of).unwrap();
    let caller = root();
    let mut listing = pin!(service.files.readdir(&caller, top, 2, 1000, true));
    let mut polls = 0;
    let listed = poll_fn(|context| {
        polls += 1;
        listing.as_mut().poll(context)
    });
    let (entries, eof, _) = listed.await.unwrap();
    assert!(eof);
    (entries, polls)
}

/// A client may list all files of all snapshots: nothing of that stays but blocks in the cache, and
/// calls of others come in between.
#[test]
fn a_listing_brings_no_file_into_memory_and_gives_others_their_turns() {
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        for at in 0..FILES {
            make(&service, top, &format!("f{at}")).await;
        }
        service.datasets.snapshot(&["tank@s".into()], false).await.unwrap();
        let changed = find(&service, "tank", "f0").await.unwrap();
        write(&service, changed, 0, &noise(0, 1), Stability::FileSync).await.unwrap();
    });
    bed.life(async |service| {
        for of in ["tank", "tank@s"] {
            let (cold, _) = list(&service, of).await;
            let files: Vec<_> = cold.iter().filter(|entry| entry.name != b".aquifer").collect();
            assert_eq!(files.len(), usize::try_from(FILES).unwrap());
            let dataset = service.datasets.by_guid(files[0].handle.fs_guid).unwrap();
            let kept = files.iter().filter(|entry| dataset.cached(entry.handle.object).is_some());
            assert_eq!(kept.count(), 0, "{of}");
            let (warm, polls) = list(&service, of).await;
            assert_eq!(warm, cold);
            assert!(polls > FILES / 25, "{of}: {polls} parts of {FILES} entries");
            for entry in files {
                let now = service.files.getattr(entry.handle).await.unwrap();
                assert_eq!(entry.attributes, Some(now), "{of}");
            }
            assert_eq!(list(&service, of).await.0, cold, "with all in memory");
        }
        let file = find(&service, "tank", "f0").await.unwrap();
        write(&service, file, 1, &noise(1, 1), Stability::Unstable).await.unwrap();
        let now = service.files.getattr(file).await.unwrap();
        let (entries, _) = list(&service, "tank").await;
        let listed = entries.iter().find(|entry| entry.name == b"f0").unwrap();
        assert_eq!(listed.attributes, Some(now), "what is not on disk yet");
    });
}

/// A call that waits while the disks are silent hears "later": a listing from memory does not wait.
#[test]
fn a_listing_does_not_pause_while_the_disks_are_silent() {
    let mut bed = Bed::new(1, 65_536);
    let disk = bed.disks[0].clone();
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        for at in 0..FILES {
            make(&service, top, &format!("f{at}")).await;
        }
        service.pool.sync().await.unwrap();
        let listed = list(&service, "tank").await.0;
        let file = find(&service, "tank", "f0").await.unwrap();
        disk.stall(Duration::from_secs(5));
        let data = noise(0, 1);
        let written = write(&service, file, 0, &data, Stability::FileSync);
        let silent = async {
            for _ in 0..2 * SILENT_AFTER {
                service.pool.world().sleep(Duration::from_millis(1)).await;
                service.pool.listen();
            }
            assert!(service.pool.is_silent());
            let (seen, polls) = list(&service, "tank").await;
            assert_eq!(seen.len(), listed.len());
            assert_eq!(polls, 1);
        };
        join(written, silent).await.0.unwrap();
        service.pool.listen();
        assert!(!service.pool.is_silent());
        assert!(list(&service, "tank").await.1 > 1);
    });
}

const FILES: u64 = 100;
const SNAPSHOTS: u64 = 30;

/// Page 0 of each file as of each snapshot: one file changes before each.
fn content(file: u64, snapshot: u64) -> Vec<u8> {
    noise(if file < snapshot { 1000 + file } else { file }, 1)
}

/// Looks up all files of a dataset or snapshot, and reads some.
async fn look_at_all(service: &Service, of: &str, snapshot: u64) {
    for number in 0..FILES {
        let file = find(service, of, &format!("f{number}")).await.unwrap();
        if number % 9 == snapshot % 9 {
            assert_eq!(read(service, file, 0).await.unwrap(), content(number, snapshot), "{of}");
        }
    }
}

/// A client that looks at all files of all snapshots takes no more memory than one that looks at
/// those of one.
#[test]
fn objects_of_all_snapshots_share_one_cap() {
    let mut bed = Bed::new(1, 65_536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(make(&service, top, &format!("f{number}")).await);
            let data = content(number, 0);
            write(&service, files[number as usize], 0, &data, Stability::FileSync).await.unwrap();
        }
        for snapshot in 0..SNAPSHOTS {
            service.datasets.snapshot(&[format!("tank@s{snapshot}")], false).await.unwrap();
            let data = content(snapshot, SNAPSHOTS);
            let changed = files[snapshot as usize];
            write(&service, changed, 0, &data, Stability::FileSync).await.unwrap();
        }
    });
    // Room for some 300 objects of the 3,000.
    bed.options.memory = Memory::new(4 << 20);
    bed.life(async |service| {
        let shelf = service.pool.shelf().clone();
        let held = find(&service, "tank@s7", "f3").await.unwrap();
        for snapshot in 0..SNAPSHOTS {
            look_at_all(&service, &format!("tank@s{snapshot}"), snapshot).await;
            look_at_all(&service, "tank", SNAPSHOTS).await;
            let (now, cap) = (shelf.held_bytes(), shelf.cap_bytes());
            assert!(now <= cap + 4096, "{now} bytes of {cap}");
        }
        let held_bytes = shelf.held_bytes();
        assert!(held_bytes > shelf.cap_bytes() / 2, "{held_bytes}: it is used");
        assert!(shelf.charged_bytes() >= held_bytes, "the caches know nothing of it");
        // What was let go is as it was; changes are no clean objects, however many come.
        for number in 0..FILES {
            let file = find(&service, "tank", &format!("f{number}")).await.unwrap();
            write(&service, file, 1, &noise(number, 1), Stability::Unstable).await.unwrap();
        }
        look_at_all(&service, "tank@s1", 1).await;
        for number in 0..FILES {
            let file = find(&service, "tank", &format!("f{number}")).await.unwrap();
            assert_eq!(read(&service, file, 1).await.unwrap(), noise(number, 1));
        }
        service.pool.sync().await.unwrap();
        assert!(shelf.held_bytes() <= shelf.cap_bytes(), "clean by now");
        assert_eq!(read(&service, held, 0).await.unwrap(), content(3, 7), "the handle lives");
    });
    bed.assert_clean();
}

#[test]
fn a_snapshot_closes_when_nobody_has_looked_into_it_for_a_minute() {
    let mut bed = Bed::new(1, 65_536);
    let world = bed.world();
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        write(&service, file, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        for name in ["tank@a", "tank@b"] {
            service.datasets.snapshot(&[name.into()], false).await.unwrap();
        }
        let before = service.pool.shelf().held_bytes();
        let old = find(&service, "tank@a", "file").await.unwrap();
        find(&service, "tank@b", "file").await.unwrap();
        assert_eq!(service.datasets.open_views(), 2);
        for _ in 0..3 {
            world.sleep(Duration::from_secs(50)).await;
            service.datasets.close_idle_views();
            read(&service, old, 0).await.unwrap();
        }
        assert_eq!(service.datasets.open_views(), 1, "the one in use");
        world.sleep(Duration::from_secs(60)).await;
        service.datasets.close_idle_views();
        assert_eq!(service.datasets.open_views(), 0);
        assert!(service.pool.shelf().held_bytes() <= before, "with its objects");
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));
        // One that was closed is destroyed as one that never was open.
        let (dataset, found) = service.datasets.snapshot_by_name("tank@a").unwrap();
        let doomed = [(dataset, BTreeSet::from([found.txg]))];
        service.datasets.destroy_snapshots(&doomed, false).await.unwrap();
        assert!(read(&service, old, 0).await.is_err());
    });
    bed.assert_clean();
}
