//! Disks that answer nothing for a while, or all vanish, while clients work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_checker::lives::Life;
use aquifer_pool::{Pool, SILENT_AFTER};
use aquifer_sim::Rng;

/// Between two listens, far more often than in service.
const LISTEN_US: u64 = 500;

/// Disturbances of the disks of a life.
pub struct Disturber {
    rng: Rng,
    /// They stall, again and again.
    stalls: bool,
    /// Listens until they vanish, if they do.
    vanish_in: Option<u64>,
    /// They have vanished.
    pub lost: Arc<AtomicBool>,
}

impl Disturber {
    /// Of a life, as its seed decides.
    pub fn of(life: &Life<'_>) -> Disturber {
        let mut rng = Rng::stream(life.seed, "silence");
        let stalls = rng.below(4) == 0;
        let vanishes = rng.below(4) == 0 && life.has_all_disks();
        let vanish_in = vanishes.then(|| 1 + rng.below(if stalls { 40 } else { 10 }));
        Disturber { rng, stalls, vanish_in, lost: Arc::default() }
    }

    /// Leaves the disks alone.
    pub fn calm() -> Disturber {
        let (rng, lost) = (Rng::stream(0, "silence"), Arc::default());
        Disturber { rng, stalls: false, vanish_in: None, lost }
    }

    /// Disturbs the disks, and listens whether they answer, until the pool is suspended.
    pub async fn until_suspended(&mut self, life: &Life<'_>, pool: &Pool) {
        loop {
            let is_lost = self.lost.load(Ordering::Relaxed);
            let pause_us = if self.stalls && !is_lost { LISTEN_US } else { 10 * LISTEN_US };
            life.world.sleep(Duration::from_micros(pause_us)).await;
            if pool.suspended().is_some() {
                return;
            }
            pool.listen();
            if !is_lost {
                self.disturb(life);
            }
        }
    }

    fn disturb(&mut self, life: &Life<'_>) {
        if self.vanish_in == Some(1) {
            self.lost.store(true, Ordering::Relaxed);
            life.lose_disks(&mut self.rng);
        }
        self.vanish_in = self.vanish_in.map(|steps| steps.saturating_sub(1));
        if self.stalls && self.rng.below(40) == 0 {
            let listens = self.rng.below(3 * u64::from(SILENT_AFTER));
            life.stall_disks(Duration::from_micros(listens * LISTEN_US));
        }
    }
}
