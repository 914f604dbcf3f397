//! An idle pool: freed space is released, and then nothing happens.

use std::time::Duration;

use aquifer_pool::Pool;
use aquifer_sim::{DiskConfig, Sim, SimDisk};

use crate::clients::Open;
use crate::shapes::{Shape, base, named};
use crate::unused::live;

/// Sectors that are allocated and freed: most of the pool.
const CHURN: u64 = 40_000;

/// Runs `work` on a pool.
fn with_pool(work: impl AsyncFnOnce(&Open)) {
    let mut sim = Sim::new(31);
    let images = base(Shape::Mirror).into_iter().enumerate();
    let disks: Vec<SimDisk> = images
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
        .collect();
    live(&mut sim, named(&disks), work).unwrap();
}

async fn pass(pool: &Pool, seconds: u64) {
    pool.world().sleep(Duration::from_secs(seconds)).await;
}

/// Checks that nothing is held back, and that the pool stays as it is.
async fn rests(pool: &Pool) {
    assert_eq!(pool.status().space.held, 0);
    let txg = pool.committed_txg();
    pass(pool, 3600).await;
    assert_eq!(pool.committed_txg(), txg, "an idle pool commits nothing");
}

#[test]
fn what_is_freed_comes_back_to_an_idle_pool() {
    with_pool(async |open| {
        let pool = &open.pool;
        let (free, writable) = (pool.status().space.free(), pool.writable_bytes());
        open.slots.churn(CHURN).await.unwrap();
        pool.sync().await.unwrap();
        let space = pool.status().space;
        assert!(space.held >= CHURN && space.free() < free - CHURN / 2, "{space:?}");
        // A writer gets it at once: it waits for the commits that release it.
        assert!(pool.writable_bytes() >= writable, "{} {writable}", pool.writable_bytes());
        pass(pool, 60).await;
        assert_eq!(pool.status().space.free(), free);
        rests(pool).await;
        // The same after a txg that nobody requested.
        open.slots.churn(CHURN).await.unwrap();
        pass(pool, 75).await;
        assert_eq!(pool.status().space.free(), free);
        rests(pool).await;
    });
}

#[test]
fn what_a_reader_held_back_comes_back_when_it_has_left() {
    with_pool(async |open| {
        let pool = &open.pool;
        open.slots.churn(CHURN).await.unwrap();
        let reading = pool.reading();
        pool.sync().await.unwrap();
        pass(pool, 60).await;
        assert!(pool.status().space.held >= CHURN, "it may still be read");
        drop(reading);
        pass(pool, 60).await;
        rests(pool).await;
    });
}

/// An import holds back again the frees of the last txgs before it.
#[test]
fn what_an_import_holds_back_comes_back_too() {
    let mut sim = Sim::new(32);
    let disks: Vec<SimDisk> = base(Shape::Single)
        .into_iter()
        .map(|image| sim.add_disk("d0", image, DiskConfig::default()))
        .collect();
    let churn = async |open: &Open| open.slots.churn(CHURN).await.unwrap();
    live(&mut sim, named(&disks), churn).unwrap();
    live(&mut sim, named(&disks), async |open| {
        assert!(open.pool.status().space.held >= CHURN);
        pass(&open.pool, 75).await;
        rests(&open.pool).await;
    })
    .unwrap();
}
