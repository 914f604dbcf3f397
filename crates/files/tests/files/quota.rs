//! Quotas and reservations are hard limits, and overwrites need no more room.

use std::time::Duration;

use aquifer_files::{CreateHow, FileHandle, FsError, Service, SetAttributes, Stability};

use crate::bed::{Bed, find, make, noise, root, write};
use crate::smooth::{fast, slow};

async fn dataset(service: &Service, name: &str, properties: &[(&str, &str)]) -> FileHandle {
    let text = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let properties: Vec<_> = properties.iter().map(text).collect();
    service.datasets.create(name, &properties).await.unwrap();
    let top = service.files.root(name).unwrap();
    make(service, top, "file").await
}

/// Writes runs of pages until one is refused. Returns the number of written pages, and the error.
async fn fill(service: &Service, file: FileHandle, pages: usize, from: u64) -> (u64, FsError) {
    let mut page = from;
    loop {
        match write(service, file, page, &noise(page, pages), Stability::Unstable).await {
            Ok(()) => page += pages as u64,
            Err(error) => return (page - from, error),
        }
    }
}

#[test]
fn a_quota_is_not_overrun_by_what_is_not_on_disk_yet() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        const QUOTA: u64 = 4 << 20;
        let off = ("compression", "off");
        service.datasets.create("tank/up", &[("quota".into(), "4M".into())]).await.unwrap();
        let a = dataset(&service, "tank/up/a", &[off]).await;
        let b = dataset(&service, "tank/up/b", &[off]).await;
        // Several writers at once, within one txg.
        let fills = [(a, 0), (b, 0), (a, 1 << 20), (b, 1 << 20)];
        let fills = fills.map(|(file, from)| fill(&service, file, 3, from));
        let done = futures_util::future::join_all(fills).await;
        let written: u64 = done.iter().map(|(pages, _)| pages * 4096).sum();
        assert!(done.iter().all(|(_, error)| *error == FsError::Quota), "{done:?}");
        assert!(written <= QUOTA && written > QUOTA - 20 * 4096, "{written}");
        service.pool.sync().await.unwrap();
        let up = service.datasets.by_name("tank/up").unwrap();
        assert_eq!(service.datasets.used_bytes(&up), written);
        // The present data can be overwritten, again and again, and removed.
        for round in 0..5 {
            for page in [0, 30, 60] {
                let data = noise(round * 100 + page, 3);
                write(&service, a, page, &data, Stability::FileSync).await.unwrap();
            }
        }
        let (left, error) = fill(&service, a, 3, 1 << 30).await;
        assert!(left <= 20 && error == FsError::Quota);
        let top = service.files.root("tank/up/a").unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        for _ in 0..3 {
            service.pool.sync().await.unwrap();
        }
        let (again, _) = fill(&service, b, 3, 1 << 31).await;
        assert!(again > 900, "{again} pages after a removal");
    });
    bed.assert_clean();
}

/// A dataset with a full quota and no unwritten changes, with `file` and `top`.
async fn full(service: &Service, name: &str) -> (FileHandle, FileHandle) {
    let file = dataset(service, name, &[("compression", "off"), ("quota", "8M")]).await;
    let (written, error) = fill(service, file, 1, 0).await;
    assert!(written > 2000 && error == FsError::Quota, "{written} pages, {error}");
    service.pool.sync().await.unwrap();
    (file, service.files.root(name).unwrap())
}

/// A client need not wait for a txg to end by itself: room that it makes is there at once.
#[test]
fn what_is_removed_makes_room_at_once() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let (root, files) = (root(), &service.files);
        let guarded = || CreateHow::Guarded(SetAttributes::default());
        let begun = service.pool.world().now();

        let (_, top) = full(&service, "tank/create").await;
        assert_eq!(
            files.create(&root, top, b"new", guarded()).await.kept().await.0,
            Err(FsError::Quota)
        );
        files.remove(&root, top, b"file").await.kept().await.0.unwrap();
        files.create(&root, top, b"new", guarded()).await.kept().await.0.unwrap();

        let (_, top) = full(&service, "tank/write").await;
        files.remove(&root, top, b"file").await.kept().await.0.unwrap();
        let file = make(&service, top, "new").await;
        assert!(fill(&service, file, 1, 0).await.0 > 2000);

        let (file, top) = full(&service, "tank/cut").await;
        let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
        files.setattr(&root, file, &empty, None).await.kept().await.0.unwrap();
        files.create(&root, top, b"new", guarded()).await.kept().await.0.unwrap();
        assert!(fill(&service, file, 1, 0).await.0 > 2000);

        let took = service.pool.world().now() - begun;
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    bed.assert_clean();
}

/// A file that is freed piece by piece makes room piece by piece.
#[test]
fn a_large_file_that_is_removed_makes_room_at_once() {
    // The reaper frees less than half of these 204,800,000 bytes in a txg.
    const PAGES: u64 = 50_000;
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let off = ("compression", "off");
        let file = dataset(&service, "tank/large", &[off, ("quota", "204800000")]).await;
        // One extent for each page.
        let odd = (0..PAGES).map(|at| at * 2 + 1);
        for page in odd {
            write(&service, file, page, &noise(page, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        let top = service.files.root("tank/large").unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        let file = make(&service, top, "new").await;
        let (pages, _) = fill(&service, file, 16, 0).await;
        assert!(pages > PAGES - 100, "{pages}");
    });
    bed.assert_clean();
}

/// Refused writers do not keep the disks busy, and overwrites do not ask for room.
#[test]
fn a_full_quota_is_told_without_commits() {
    let mut bed = Bed::new(1, 131_072);
    bed.life(async |service| {
        let (file, top) = full(&service, "tank/a").await;
        let other = dataset(&service, "tank/b", &[]).await;
        let before = service.pool.committed_txg().0;
        for at in 0..100 {
            let data = noise(at, 1);
            write(&service, other, at, &data, Stability::Unstable).await.unwrap();
            let how = CreateHow::Guarded(SetAttributes::default());
            let made = service.files.create(&root(), top, b"new", how).await.kept().await.0;
            assert_eq!(made, Err(FsError::Quota));
            let more = write(&service, file, 10_000, &data, Stability::Unstable).await;
            assert_eq!(more, Err(FsError::Quota));
        }
        for at in 0..500 {
            write(&service, file, at, &noise(at, 1), Stability::Unstable).await.unwrap();
        }
        let commits = service.pool.committed_txg().0 - before;
        assert!(commits < 10, "{commits} commits");
    });
    bed.assert_clean();
}

#[test]
fn a_quota_counts_what_compression_leaves() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = dataset(&service, "tank/z", &[("quota", "2M")]).await;
        // All but a few bytes of each page are the same.
        let mut written = 0;
        for at in 0..1000 {
            let mut data = vec![7; 8 * 4096];
            data[..8].copy_from_slice(&u64::to_le_bytes(at));
            match write(&service, file, at * 8, &data, Stability::Unstable).await {
                Ok(()) => written += data.len(),
                Err(error) => panic!("{error} after {written} bytes"),
            }
            if written > 8 << 20 {
                break;
            }
        }
        service.pool.sync().await.unwrap();
        let used = service.datasets.by_name("tank/z").unwrap().refer_bytes();
        assert!(used <= 2 << 20, "{used}");
    });
    bed.assert_clean();
}

#[test]
fn a_reservation_keeps_its_room() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        const RESERVED: u64 = 64 << 20;
        let off = ("compression", "off");
        let b = dataset(&service, "tank/b", &[off, ("reservation", "64M")]).await;
        let a = dataset(&service, "tank/a", &[off]).await;
        let beyond = [("reservation".to_string(), "10G".to_string())];
        assert!(service.datasets.create("tank/c", &beyond).await.is_err());
        assert!(service.datasets.set("tank/a", "reservation", Some("10G")).await.is_err());
        let (greedy, error) = fill(&service, a, 64, 0).await;
        assert_eq!(error, FsError::NoSpace);
        assert!(greedy * 4096 > 64 << 20, "{greedy} pages");
        service.pool.sync().await.unwrap();
        let (kept, error) = fill(&service, b, 64, 0).await;
        assert_eq!(error, FsError::NoSpace);
        let kept = kept * 4096;
        assert!(kept >= RESERVED * 15 / 16, "{kept} bytes of {RESERVED}");
    });
    bed.assert_clean();
}

/// On a full pool, data that no snapshot covers can be overwritten without end, and removals work.
#[test]
fn a_full_pool_takes_overwrites() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        let file = dataset(&service, "tank/raw", &[("compression", "off")]).await;
        let (pages, error) = fill(&service, file, 16, 0).await;
        assert_eq!(error, FsError::NoSpace);
        assert!(fill(&service, file, 1, 1 << 20).await.0 < 16);
        service.pool.sync().await.unwrap();
        let mut rng = aquifer_sim::Rng::stream(3, "overwrites");
        for round in 0..3000u64 {
            let page = rng.below(pages - 4);
            let stability = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
            let count = 1 + rng.below(4) as usize;
            let done = write(&service, file, page, &noise(round, count), stability).await;
            done.unwrap_or_else(|error| panic!("overwrite {round}: {error}"));
        }
        let top = service.files.root("tank/raw").unwrap();
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
    });
    bed.assert_clean();
}

async fn reserve(service: &Service, name: &str, bytes: u64) -> bool {
    let value = bytes.to_string();
    service.datasets.set(name, "reservation", Some(&value)).await.is_ok()
}

/// Bytes that an empty pool can reserve.
fn free(service: &Service) -> u64 {
    service.pool.writable_bytes() / 4096 * 4096
}

#[test]
fn two_reservations_at_once_are_not_of_the_same_room() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        for name in ["tank/a", "tank/b"] {
            dataset(&service, name, &[]).await;
        }
        let most = free(&service) / 4 * 3;
        let both = (reserve(&service, "tank/a", most), reserve(&service, "tank/b", most));
        let (a, b) = futures_util::future::join(both.0, both.1).await;
        assert!(a != b, "{a} {b}");
    });
    bed.assert_clean();
}

/// Space reserved for the dataset itself is not free a second time.
#[test]
fn a_reservation_is_raised_as_far_as_there_is_room() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        dataset(&service, "tank/a", &[]).await;
        let free = free(&service);
        assert!(reserve(&service, "tank/a", free / 4 * 3).await);
        assert!(!reserve(&service, "tank/a", free / 4 * 5).await);
        assert!(reserve(&service, "tank/a", free / 8 * 7).await);
        // Within it a child can have a reservation.
        let within = [("reservation".to_string(), (free / 4).to_string())];
        service.datasets.create("tank/a/b", &within).await.unwrap();
        assert!(!reserve(&service, "tank/a/b", free / 4 * 5).await);
        assert!(reserve(&service, "tank/a/b", free / 2).await);
    });
    bed.assert_clean();
}

/// Writes that came while no limit was set take room that cannot be reserved then.
#[test]
fn what_is_not_on_disk_yet_is_not_reserved() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = dataset(&service, "tank/a", &[("compression", "off")]).await;
        dataset(&service, "tank/b", &[]).await;
        let most = free(&service);
        // More at once would wait for its txg.
        for at in 0..32 {
            let data = noise(at, 64);
            write(&service, file, at * 64, &data, Stability::Unstable).await.unwrap();
        }
        assert!(service.datasets.by_name("tank/a").unwrap().refer_bytes() < 8 << 20);
        assert!(!reserve(&service, "tank/b", most - (4 << 20)).await);
        assert!(reserve(&service, "tank/b", most - (12 << 20)).await);
    });
    bed.assert_clean();
}

#[test]
pub fn what_a_replay_writes_counts() {
    let mut bed = Bed::new(1, 65536);
    // So few that one txg takes them all.
    let limits = [("compression", "off"), ("quota", "1M")];
    bed.short_life(async |service| {
        dataset(&service, "tank/a", &limits).await;
        service.pool.sync().await.unwrap();
        let file = find(&service, "tank/a", "file").await.unwrap();
        for page in 0..150 {
            let data = noise(page, 1);
            write(&service, file, page, &data, Stability::FileSync).await.unwrap();
        }
    });
    bed.life(async |service| {
        let file = find(&service, "tank/a", "file").await.unwrap();
        let (pages, error) = fill(&service, file, 1, 1000).await;
        assert!(pages <= 106 && error == FsError::Quota, "{pages} pages, {error}");
        service.pool.sync().await.unwrap();
        let used = service.datasets.by_name("tank/a").unwrap().refer_bytes();
        assert!(used <= 1 << 20, "{used}");
    });
    bed.assert_clean();
}

/// Others write into the reservation of a dataset while it is given up. The power goes as soon as
/// their writes are durable.
#[test]
pub fn others_wait_until_the_disk_knows_that_a_reservation_is_given_up() {
    for is_destroyed in [true, false] {
        // Giving it up takes long on this disk, and the log is fast.
        let mut bed = Bed::with_log(65536, slow(1 << 20), fast());
        let reserved = bed.life(async |service| {
            for name in ["tank/a", "tank/b"] {
                dataset(&service, name, &[("compression", "off")]).await;
            }
            // With little space free, the shortage at the end exceeds what any write takes beside
            // its data.
            let file = make(&service, service.files.root("tank/b").unwrap(), "first").await;
            for at in 0.. {
                service.pool.sync().await.unwrap();
                if free(&service) < 32 << 20 {
                    break;
                }
                let data = noise(at, 512);
                write(&service, file, at * 512, &data, Stability::Unstable).await.unwrap();
            }
            let reserved = free(&service) - (1 << 20);
            assert!(reserve(&service, "tank/a", reserved).await);
            reserved
        });
        bed.cut_life(async |service| {
            let file = find(&service, "tank/b", "file").await.unwrap();
            let give_up = async {
                match is_destroyed {
                    true => service.datasets.destroy("tank/a", false).await.unwrap(),
                    false => assert!(reserve(&service, "tank/a", 0).await),
                }
                std::future::pending::<()>().await;
            };
            let others = async {
                for at in 0..20 {
                    let data = noise(at, 64);
                    write(&service, file, at * 64, &data, Stability::FileSync).await.unwrap();
                }
            };
            let (give_up, others) = (std::pin::pin!(give_up), std::pin::pin!(others));
            futures_util::future::select(give_up, others).await;
        });
        bed.life(async |service| {
            let Some(a) = service.datasets.by_name("tank/a") else { return };
            if a.properties().reservation_bytes > 0 {
                let file = find(&service, "tank/a", "file").await.unwrap();
                let (kept, error) = fill(&service, file, 64, 0).await;
                assert!(kept * 4096 >= reserved / 16 * 15, "{kept} of {reserved}: {error}");
            }
        });
        bed.assert_clean();
    }
}
