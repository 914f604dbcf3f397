//! Disks that answer nothing for a while, or all vanish, while clients work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_checker::lives::Life;
use aquifer_pool::{Pool, SILENT_AFTER};
use aquifer_sim::Rng;

/// Between two listens, far more often than in service.
const LISTEN_US: u64 = 500;

/// Disturbs the disks, and listens whether they answer. Ends when the pool is suspended, which
/// happens in some lives: then the disks are `lost`.
pub async fn suspended(life: &Life<'_>, pool: &Pool, rng: &mut Rng, lost: &AtomicBool) {
    let stalls = rng.below(3) == 0;
    let vanishes = rng.below(4) == 0 && life.has_all_disks();
    let mut steps_left = vanishes.then(|| 1 + rng.below(if stalls { 40 } else { 10 }));
    loop {
        let is_busy = stalls && !lost.load(Ordering::Relaxed);
        let pause_us = if is_busy { LISTEN_US } else { 10 * LISTEN_US };
        life.world.sleep(Duration::from_micros(pause_us)).await;
        if pool.suspended().is_some() {
            return;
        }
        pool.listen();
        match &mut steps_left {
            // They are gone.
            Some(0) => continue,
            Some(1) => {
                life.lose_disks(rng);
                lost.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        steps_left = steps_left.map(|steps| steps - 1);
        if stalls && rng.below(20) == 0 {
            let listens = rng.below(3 * u64::from(SILENT_AFTER));
            life.stall_disks(Duration::from_micros(listens * LISTEN_US));
        }
    }
}
