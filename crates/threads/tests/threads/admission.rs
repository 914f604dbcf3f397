//! Admission, holds and txgs that close, by themselves: many large demands at once.

use std::time::Duration;

use aquifer_pool::{Demand, Lane, SpaceClass};
use aquifer_sim::Rng;
use aquifer_threads::bed::Bed;
use aquifer_threads::block_on;
use aquifer_threads::run::permute;
use aquifer_threads::schedule::seed;

use crate::clients::BASE;

/// No thread waits for a timer of the pool.
const IDLE_MAX: Duration = Duration::from_secs(5);

pub fn press_in() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let thread = |at: u64| {
            let service = bed.service.clone();
            bed.world.thread(async move || {
                let pool = &service.pool;
                let mut rng = Rng::stream(seed(), &format!("admission {at}"));
                for _ in 0..8 {
                    // Two fit beside each other, rarely three.
                    let dirty_bytes = pool.limits().dirty_cap_bytes / (2 + rng.below(3));
                    let demand = Demand {
                        dirty_bytes,
                        sectors: dirty_bytes / 4096,
                        log_bytes: 8192,
                        class: SpaceClass::Write,
                        lane: Lane::Bulk,
                    };
                    let admission = pool.admit(demand).await.unwrap();
                    if rng.below(4) > 0 {
                        let hold = pool.hold(admission).unwrap();
                        assert!(hold.txg() > pool.committed_txg(), "held, and on disk");
                        aquifer_sync::point();
                        assert!(hold.txg() > pool.committed_txg(), "held, and on disk");
                    }
                }
            })
        };
        let threads: Vec<_> = (0..4).map(thread).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let idle = bed.world.idle();
        assert!(idle < IDLE_MAX, "{idle:?}: somebody waited for a timer");
        bed.close().await;
    });
}

#[test]
fn demands_stay_within_the_cap() {
    permute(&[&BASE], press_in, 40);
}

/// Within some ten times the schedules that it took first.
#[test]
fn admissions_counted_twice_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[&BASE], Rule::AdmitInOneLook, press_in, 500);
}
