//! Which data goes to its place early: what does takes its room at once.

use aquifer_files::{Service, Stability};
use aquifer_sim::DiskConfig;

use crate::bed::{Bed, make, noise, write};

/// Sectors that stable writes of so many pages take before any txg is written out.
async fn taken_at_once<const N: usize>(service: Service, pages: [usize; N]) -> [u64; N] {
    let top = service.files.root("tank").unwrap();
    let file = make(&service, top, "file").await;
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
