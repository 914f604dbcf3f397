//! Which data goes early. Early data takes its room at once.

use aquifer_files::{Service, Stability};
use aquifer_sim::{DiskConfig, Latency};
use futures_util::future::join_all;

use crate::bed::{Bed, find, make, noise, read, write};

/// Sectors that stable writes of these sizes in pages take before any txg is synced.
async fn taken_at_once<const N: usize>(service: Service, pages: [usize; N]) -> [u64; N] {
    let top = service.files.root("tank").unwrap();
    let file = match find(&service, "tank", "file").await {
        Ok(file) => file,
        Err(_) => make(&service, top, "file").await,
    };
    let free = || service.pool.status().space.free();
    let mut taken = [0; N];
    for (taken, pages) in taken.iter_mut().zip(pages) {
        service.pool.sync().await.unwrap();
        let before = free();
        let data = noise(pages as u64, pages);
        write(&service, file, 0, &data, Stability::FileSync).await.unwrap();
        *taken = before - free();
    }
    taken
}

#[test]
fn large_stable_writes_go_early_and_small_ones_do_not() {
    let mut bed = Bed::new(1, 65536);
    let taken = bed.life(async |service| taken_at_once(service, [1, 15, 16, 64]).await);
    assert_eq!(taken, [0, 0, 16, 64]);
    bed.assert_clean();
}

#[test]
fn with_a_log_vdev_nothing_goes_early() {
    let mut bed = Bed::with_log(65536, DiskConfig::default(), DiskConfig::default());
    let taken = bed.life(async |service| taken_at_once(service, [1, 15, 16, 64]).await);
    assert_eq!(taken, [0; 4]);
    bed.assert_clean();
}

/// A log vdev that takes longer than a write and a flush of the data disks.
#[test]
fn beside_a_slow_log_vdev_large_writes_go_early() {
    let log = DiskConfig { latency: Latency::fixed(20_000_000, 20_000_000), ..Default::default() };
    let mut bed = Bed::with_log(65536, DiskConfig::default(), log);
    let taken = bed.life(async |service| {
        let before = taken_at_once(service.clone(), [16]).await;
        let file = find(&service, "tank", "file").await.unwrap();
        for at in 0..20 {
            write(&service, file, at * 16, &noise(at, 16), Stability::FileSync).await.unwrap();
            service.pool.sync().await.unwrap();
        }
        (before, taken_at_once(service, [16]).await)
    });
    assert_eq!(taken, ([0], [16]));
    bed.assert_clean();
}

/// Large writes that come while the log is busy with small ones share a batch, and lie on several
/// vdevs. All of these vdevs are flushed before any answer.
#[test]
fn what_went_early_is_durable_on_every_vdev() {
    const LARGE: u64 = 12;
    let data = |at: u64| noise(at, 64);
    for (vdevs, small) in (2..4).flat_map(|vdevs| (0..12).map(move |small| (vdevs, small))) {
        let mut bed = Bed::apart(vdevs, 65536);
        bed.cut_life(async |service| {
            let top = service.files.root("tank").unwrap();
            let beside = make(&service, top, "beside").await;
            let file = make(&service, top, "file").await;
            let one = |file, at: u64, data: Vec<u8>| {
                let service = service.clone();
                async move { write(&service, file, at, &data, Stability::FileSync).await.unwrap() }
            };
            let small = (0..small).map(|at| one(beside, at, noise(at, 1)));
            let large = (0..LARGE).map(|at| one(file, at * 64, data(at)));
            join_all(small.chain(large)).await;
        });
        bed.life(async |service| {
            let file = find(&service, "tank", "file").await.unwrap();
            for (at, page) in (0..LARGE).flat_map(|at| [(at, 0), (at, 63)]) {
                let content = read(&service, file, at * 64 + page).await.unwrap();
                let page = page as usize * 4096;
                assert!(content == data(at)[page..page + 4096], "{at}, {small} before it");
            }
        });
        bed.assert_clean();
    }
}
