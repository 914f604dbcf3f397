//! Scrub: mends what it can, names the files that lost something, and goes on over restarts.

use std::time::Duration;

use aquifer_dataset::DamageKind;
use aquifer_files::{ScrubError, Service, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState};
use aquifer_sim::{Corruption, Fault, FaultRule, When};

use crate::bed::{Bed, find, make, noise, read, write};

const FILES: u64 = 12;
const PAGES: usize = 40;

async fn populate(service: &Service) {
    service.datasets.create("tank/vms", &[]).await.unwrap();
    let top = service.files.root("tank/vms").unwrap();
    for at in 0..FILES {
        let file = make(service, top, &format!("f{at}")).await;
        // Pages that do not compress, and an extent that does.
        write(service, file, 0, &noise(at, PAGES), Stability::Unstable).await.unwrap();
        let text = vec![at as u8 + 1; 8 * 4096];
        write(service, file, PAGES as u64, &text, Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

async fn check(service: &Service) {
    for at in 0..FILES {
        let file = find(service, "tank/vms", &format!("f{at}")).await.unwrap();
        let pages = noise(at, PAGES);
        for (page, content) in (0..).zip(pages.chunks(4096)) {
            assert_eq!(read(service, file, page).await.unwrap(), content, "file {at} page {page}");
        }
    }
}

async fn finished(service: &Service) -> ScrubRecord {
    for _ in 0..10_000 {
        let record = service.files.scrub_status().unwrap();
        if record.state == ScrubState::Finished {
            return record;
        }
        service.pool.world().sleep(Duration::from_millis(100)).await;
    }
    panic!("not finished: {:?}", service.files.scrub_status());
}

/// Sectors of a disk that hold blocks of the trees or of files: those that `find` says.
fn sectors(bed: &Bed, disk: usize, wanted: impl Fn(u64, &[u8]) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    bed.disks[disk].durable_image().for_each(|sector, page| {
        if wanted(sector, page.as_slice()) {
            found.push(sector);
        }
    });
    found
}

fn is_node(bytes: &[u8]) -> bool {
    &bytes[..4] == b"AQTN"
}

/// Sectors that hold the files' pages.
fn pages(bed: &Bed, disk: usize) -> Vec<u64> {
    let content: std::collections::HashSet<Vec<u8>> = (0..FILES)
        .flat_map(|at| noise(at, PAGES).chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    sectors(bed, disk, |_, bytes| content.contains(bytes))
}

#[test]
pub fn a_scrub_mends_a_side_that_has_rotted() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 64;
    bed.life(async |service| populate(&service).await);
    let mut rotten = pages(&bed, 1);
    assert_eq!(rotten.len(), FILES as usize * PAGES);
    rotten.extend(sectors(&bed, 1, |_, bytes| is_node(bytes)));
    for sector in &rotten {
        bed.disks[1].corrupt(*sector, Corruption::Garbage);
    }
    // One page of each side, and an error of the other's medium.
    let one = pages(&bed, 0)[7];
    bed.disks[0].mark_unreadable(one + 1..one + 2);
    bed.life(async |service| {
        service.files.start_scrub().await.unwrap();
        assert_eq!(service.files.start_scrub().await, Err(ScrubError::Active));
        let record = finished(&service).await;
        assert_eq!(record.unreadable_blocks, 1, "{record:?}");
        assert!(record.repaired_bytes >= 450 * 4096, "{record:?}");
        let total = record.total_bytes;
        assert!(
            record.examined_bytes >= total / 2 && record.examined_bytes <= 2 * total,
            "{record:?}"
        );
        assert_eq!(service.datasets.damages().len(), 1);
        assert_eq!(service.files.end_scrub(true).await, Err(ScrubError::NotActive));
        // Each file is named, with all its bytes.
        let repaired = service.files.repaired_files();
        assert_eq!((repaired.files.len(), repaired.beside), (FILES as usize, 0));
        for (number, file) in repaired.files.iter().enumerate() {
            assert_eq!((file.dataset.as_str(), &file.file), ("tank/vms", &format!("/f{number}")));
            let bytes: u64 = file.ranges.iter().map(|(from, to)| to - from).sum();
            assert_eq!(bytes, file.bytes, "{file:?}");
        }
        let bytes: u64 = repaired.files.iter().map(|file| file.bytes).sum();
        assert_eq!(bytes, (FILES as usize * PAGES - 1) as u64 * 4096);
    });
}

#[test]
fn what_no_side_holds_is_named_by_file_and_pages() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 64;
    let objects = bed.life(async |service| {
        populate(&service).await;
        let top = ["f3", "f5"];
        let [a, b] = top.map(|name| find(&service, "tank/vms", name));
        (a.await.unwrap().object, b.await.unwrap().object)
    });
    let sector_of = |bed: &Bed, file: u64, page: usize| {
        let content = noise(file, PAGES)[page * 4096..(page + 1) * 4096].to_vec();
        sectors(bed, 0, |_, bytes| bytes == content)[0]
    };
    for page in [4, 5, 9] {
        let sector = sector_of(&bed, 3, page);
        bed.rot(sector);
    }
    let node = bed.find_node(objects.1.0, 0, 0);
    bed.rot(node);
    bed.life(async |service| {
        service.files.start_scrub().await.unwrap();
        let record = finished(&service).await;
        assert!(record.unreadable_blocks >= 4, "{record:?}");
        let mut damages = service.datasets.damages();
        damages.sort_by_key(|damage| damage.object);
        assert_eq!(damages.len(), 2, "{damages:?}");
        assert!(damages.iter().all(|damage| damage.kind == DamageKind::Unreadable));
        assert_eq!((damages[0].object, &damages[0].ranges), (objects.0, &vec![(4, 6), (9, 10)]));
        assert_eq!(damages[1].object, objects.1);
        assert_eq!(damages[1].ranges[0].0, 0, "{damages:?}");
        // What a client writes anew is whole again.
        let file = find(&service, "tank/vms", "f3").await.unwrap();
        write(&service, file, 4, &noise(77, 6), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        assert_eq!(service.datasets.damages().len(), 1);
    });
    bed.assert_only(&[
        Kind::DamageRemembered,
        Kind::NodeUnreadable,
        Kind::DataBad,
        Kind::LeakUnknown,
    ]);
}

#[test]
fn a_disk_that_comes_back_takes_the_errors_with_it() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| populate(&service).await);
    let page = pages(&bed, 0)[3];
    bed.disks[0].inject(FaultRule::new(Fault::ReadError, When::Always).within(page..page + 1));
    bed.life(async |service| {
        service.files.start_scrub().await.unwrap();
        assert_eq!(finished(&service).await.unreadable_blocks, 1);
        assert_eq!(service.datasets.damages().len(), 1);
    });
    bed.disks[0].clear_faults();
    bed.life(async |service| {
        assert_eq!(service.datasets.damages().len(), 1);
        service.files.start_scrub().await.unwrap();
        assert_eq!(finished(&service).await.unreadable_blocks, 0);
        assert!(service.datasets.damages().is_empty());
        check(&service).await;
    });
    bed.assert_clean();
}

#[test]
pub fn a_scrub_goes_on_over_restarts_and_pauses() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 16;
    bed.life(async |service| populate(&service).await);
    for sector in pages(&bed, 1) {
        bed.disks[1].corrupt(sector, Corruption::Garbage);
    }
    let mut before = bed.short_life(async |service| {
        service.files.start_scrub().await.unwrap();
        for _ in 0..3 {
            service.pool.sync().await.unwrap();
        }
        service.datasets.scrubbed().unwrap()
    });
    for life in 0..6 {
        let cut = life % 2 == 0;
        let go_on = async |service: Service| {
            let found = service.files.scrub_status().unwrap();
            assert!(found.position <= before.position, "{found:?} {before:?}");
            assert_eq!(found.begun, before.begun);
            if found.state == ScrubState::Paused {
                service.pool.sync().await.unwrap();
                let still = service.datasets.scrubbed().unwrap();
                assert_eq!((still.state, still.position), (ScrubState::Paused, found.position));
                service.files.start_scrub().await.unwrap();
            }
            service.pool.sync().await.unwrap();
            if life % 3 == 0 {
                service.files.end_scrub(true).await.unwrap();
            }
            service.datasets.scrubbed().unwrap()
        };
        before = if cut { bed.cut_life(go_on) } else { bed.life(go_on) };
    }
    bed.life(async |service| {
        if service.files.scrub_status().unwrap().state == ScrubState::Paused {
            service.files.start_scrub().await.unwrap();
        }
        let record = finished(&service).await;
        assert_eq!(record.unreadable_blocks, 0);
        service.files.start_scrub().await.unwrap();
        service.files.end_scrub(false).await.unwrap();
        let record = service.files.scrub_status().unwrap();
        assert_eq!(record.state, ScrubState::Canceled);
        assert!(record.ended.seconds != 0 || record.ended.nanoseconds != 0);
        assert_eq!(service.files.end_scrub(false).await, Err(ScrubError::NotActive));
    });
    // The other side has everything.
    bed.disks[0].vanish(aquifer_sim::Vanish::PowerLost);
    bed.short_life(async |service| check(&service).await);
}

#[test]
fn a_scrub_begins_when_it_is_due() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let made = service.pool.world().wall_ns();
        let after = |days: u64| Time::from_ns(made + (days * 24 * 3600 + 60) * 1_000_000_000);
        let files = &service.files;
        let due = async |days| files.scrub_if_due(after(days)).await.unwrap();
        let refused = service.datasets.create("tank/vms", &[("scrub".into(), "off".into())]).await;
        assert!(refused.unwrap_err().to_string().contains("set it on tank"));
        service.datasets.create("tank/vms", &[]).await.unwrap();
        assert!(service.datasets.set("tank/vms", "scrub", Some("off")).await.is_err());
        assert!(!due(29).await && due(30).await);
        finished(&service).await;
        assert!(!due(8).await);
        service.datasets.set("tank", "scrub", Some("weekly")).await.unwrap();
        assert!(!due(6).await && due(8).await);
        finished(&service).await;
        files.start_scrub().await.unwrap();
        files.end_scrub(true).await.unwrap();
        assert!(!due(90).await, "it is paused");
        files.end_scrub(false).await.unwrap();
        service.datasets.set("tank", "scrub", Some("off")).await.unwrap();
        assert!(!due(90).await);
    });
}
