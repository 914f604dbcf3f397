//! Pools of several data vdevs, one of which loses all that it holds: what leads to the files lies
//! on another one, too.

use aquifer_files::{FileHandle, FsError, Service, Stability};
use aquifer_ondisk::layout::{SLOTS_OFFSET, leaf_segments};
use aquifer_ondisk::scrub::ScrubState;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_sim::Corruption;

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

/// What of the small files can be read, and of the pages of the large ones. What is read is right.
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

/// All of some disks is garbage, but for their labels.
fn rot_all(bed: &Bed, disks: std::ops::Range<usize>) {
    let labels = (leaf_segments(SECTORS) - 1) * SEGMENT_SECTORS;
    for disk in &bed.disks[disks] {
        disk.durable_image().for_each(|sector, _| {
            if (SLOTS_OFFSET..labels).contains(&sector) {
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
    rot_all(&bed, vdev * sides..(vdev + 1) * sides);
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
    rot_all(&bed, other * sides..(other + 1) * sides);
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
