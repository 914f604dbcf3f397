//! Pools of several data vdevs, one of which loses all that it holds: what leads to the files lies
//! on another one, too.

use aquifer_blockio::Page;
use aquifer_files::{CreateHow, FileHandle, FsError, Service, SetAttributes, Stability};
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::{Geometry, SLOTS_OFFSET, leaf_segments};
use aquifer_ondisk::scrub::ScrubState;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::PoolError;
use aquifer_sim::{Corruption, SimDisk};

use crate::bed::{Bed, make, noise, read, root, write};

const DATASETS: [&str; 3] = ["tank/vms", "tank/iso", "tank/iso/old"];
const SMALL: usize = 200;
const LARGE_PAGES: usize = 2048;
const SECTORS: u64 = 65536;

/// Datasets with small files of a page each, and a large one that lies on all vdevs.
async fn furnish(service: &Service) {
    for name in DATASETS {
        service.datasets.create(name, &[]).await.unwrap();
        let top = service.files.root(name).unwrap();
        for at in 0..SMALL {
            let file = make(service, top, &format!("small{at:04}")).await;
            write(service, file, 0, &noise(at as u64, 1), Stability::Unstable).await.unwrap();
            if at % 10 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        let file = make(service, top, "large").await;
        for at in (0..LARGE_PAGES).step_by(256) {
            let data = noise(at as u64, 256);
            write(service, file, at as u64, &data, Stability::Unstable).await.unwrap();
        }
    }
    service.datasets.snapshot(&["tank/vms@s".into()], false).await.unwrap();
    service.pool.sync().await.unwrap();
}

/// The names in a dataset's root, with the handles behind them.
async fn names(service: &Service, dataset: &str) -> Result<Vec<(String, FileHandle)>, FsError> {
    let top = service.files.root(dataset).ok_or(FsError::Stale)?;
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, is_end, _) = service.files.readdir(&root(), top, cookie, 64, true).await?;
        for entry in page {
            cookie = entry.cookie;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let handle = entry.attributes.as_ref().map(|attributes| attributes.handle);
            found.extend(handle.map(|handle| (name, handle)));
        }
        if is_end {
            return Ok(found);
        }
    }
}

/// Counts the small files that can be read, and the pages of the large ones. Content that is read
/// is right.
async fn readable(service: &Service) -> (usize, usize) {
    let (mut small, mut large) = (0, 0);
    for dataset in DATASETS {
        let listed = names(service, dataset).await.unwrap();
        let is_own = |name: &str| name.starts_with("small") || name == "large";
        let listed: Vec<_> = listed.into_iter().filter(|(name, _)| is_own(name)).collect();
        assert_eq!(listed.len(), SMALL + 1, "{dataset}");
        for (name, file) in listed {
            assert!(service.files.getattr(file).await.unwrap().size > 0, "{dataset}/{name}");
            if let Some(at) = name.strip_prefix("small") {
                let page = read(service, file, 0).await;
                page.iter().for_each(|page| assert_eq!(*page, noise(at.parse().unwrap(), 1)));
                small += usize::from(page.is_ok());
                continue;
            }
            for first in (0..LARGE_PAGES).step_by(256) {
                let data = noise(first as u64, 256);
                for at in 0..256 {
                    let page = read(service, file, (first + at) as u64).await;
                    let wanted = &data[at * 4096..][..4096];
                    page.iter().for_each(|page| assert_eq!(page, wanted));
                    large += usize::from(page.is_ok());
                }
            }
        }
    }
    (small, large)
}

/// All of some disks is gone, but for their labels, and for their bitmaps if those are to stay.
fn rot_all(bed: &Bed, disks: std::ops::Range<usize>, bitmaps: bool) {
    let segments = leaf_segments(SECTORS) - 1;
    let redundancy = if bed.disks.len() > 2 { Redundancy::Mirror } else { Redundancy::Single };
    let geometry = Geometry::new(0, segments, redundancy);
    let slots: Vec<_> = (0..geometry.metaslabs()).flat_map(|at| geometry.reserved(at)).collect();
    let is_kept = |sector: &u64| {
        !bitmaps && slots.iter().any(|(first, count)| (*first..first + count).contains(sector))
    };
    for disk in &bed.disks[disks] {
        disk.durable_image().for_each(|sector, _| {
            let is_inner = (SLOTS_OFFSET..segments * SEGMENT_SECTORS).contains(&sector);
            if is_inner && !is_kept(&sector) {
                disk.corrupt(sector, Corruption::Zeros);
            }
        });
    }
}

async fn scrub(service: &Service) -> u64 {
    service.files.start_scrub().await.unwrap();
    loop {
        let record = service.files.scrub_status().unwrap();
        if record.state == ScrubState::Finished {
            return record.unreadable_blocks;
        }
        service.pool.world().sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn a_vdev_rots(sides: usize, vdev: usize) {
    let mut bed = Bed::of_vdevs(2, sides, SECTORS);
    bed.life(async |service| furnish(&service).await);
    bed.assert_clean();
    let other = 1 - vdev;
    rot_all(&bed, vdev * sides..(vdev + 1) * sides, false);
    let (small, large) = bed.life(async |service| {
        let before = readable(&service).await;
        scrub(&service).await;
        assert_eq!(readable(&service).await, before);
        before
    });
    let all = DATASETS.len();
    println!("{sides} sides, vdev {vdev} rots: {small} small files, {large} pages can be read");
    assert!(small > all * SMALL / 4 && small < all * SMALL * 3 / 4, "{small}");
    // Leaves of larger files lie on one vdev: what they lead to on the other is lost with them.
    assert!(large > all * LARGE_PAGES / 10 && large < all * LARGE_PAGES / 2, "{large}");
    // The scrub has healed what leads to the files: now the other vdev may go.
    rot_all(&bed, other * sides..(other + 1) * sides, true);
    let left = bed.life(async |service| readable(&service).await);
    assert_eq!(left, (0, 0), "nothing but names is left");
}

#[test]
pub fn a_mirror_that_loses_all_takes_no_names() {
    a_vdev_rots(2, 0);
    a_vdev_rots(2, 1);
}

#[test]
fn a_disk_that_loses_all_takes_no_names() {
    a_vdev_rots(1, 0);
    a_vdev_rots(1, 1);
}

/// The vdev is not there at all: only a read-only import comes up, and leaves all as it was.
fn a_vdev_is_missing(sides: usize, vdev: usize) {
    let mut bed = Bed::of_vdevs(2, sides, SECTORS);
    bed.life(async |service| furnish(&service).await);
    let content = |disk: &SimDisk| {
        let mut all = Vec::new();
        let mut note = |sector, page: &Page| all.push((sector, checksum128(page.as_slice())));
        disk.durable_image().for_each(|sector, page| note(sector, page));
        all
    };
    let images = |bed: &Bed| bed.disks.iter().map(content).collect::<Vec<_>>();
    let before = images(&bed);
    let all = std::mem::take(&mut bed.disks);
    let is_lost = |at: &usize| (vdev * sides..(vdev + 1) * sides).contains(at);
    let rest = all.iter().enumerate().filter(|(at, _)| !is_lost(at));
    bed.disks = rest.map(|(_, disk)| disk.clone()).collect();
    let report = bed.inspect();
    let seen = &report.summary.roots[0].datasets;
    let entries: Vec<u64> = seen.iter().map(|dataset| dataset.entries).collect();
    assert_eq!(entries.len(), DATASETS.len() + 1, "{report}");
    let whole = entries.iter().filter(|entries| **entries > SMALL as u64).count();
    assert_eq!(whole, DATASETS.len(), "{entries:?}: {report}");
    bed.options.missing_vdev = true;
    let (small, large) = bed.life(async |service| {
        let notes = service.report.notes.join("; ");
        assert!(notes.contains(&format!("vdev {vdev}")), "{notes}");
        assert!(notes.contains("imported read-only"), "{notes}");
        assert_eq!(service.pool.suspended(), None);
        let top = service.files.root("tank/vms").unwrap();
        let how = CreateHow::Guarded(SetAttributes::default());
        let made = service.files.create(&root(), top, b"new", how).await.kept().await.0;
        assert_eq!(made.err(), Some(FsError::Pool(PoolError::ReadOnly)));
        let made = service.datasets.create("tank/new", &[]).await;
        assert!(made.is_err(), "a dataset was made");
        assert!(service.files.start_scrub().await.is_err(), "a scrub began");
        let read = readable(&service).await;
        let lost = service.files.lookup(&root(), top, b"new").await.0;
        assert_eq!(lost.err(), Some(FsError::NotFound));
        read
    });
    println!("{sides} sides, vdev {vdev} missing: {small} small files, {large} pages can be read");
    assert!(small > DATASETS.len() * SMALL / 4 && large > 0, "{small} {large}");
    bed.disks = all;
    assert!(images(&bed) == before, "something was written");
    bed.options.missing_vdev = false;
    let whole = bed.life(async |service| readable(&service).await);
    assert_eq!(whole, (DATASETS.len() * SMALL, DATASETS.len() * LARGE_PAGES));
}

#[test]
fn a_pool_without_a_mirror_can_be_read() {
    a_vdev_is_missing(2, 0);
    a_vdev_is_missing(2, 1);
}

#[test]
fn a_pool_without_a_disk_can_be_read() {
    a_vdev_is_missing(1, 0);
    a_vdev_is_missing(1, 1);
}
