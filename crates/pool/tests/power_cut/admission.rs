//! Changes that wait for the reserve of a full pool.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use aquifer_pool::{Demand, Lane, PoolError, SpaceClass};

use crate::faults::Fixture;
use crate::shapes::Shape;

fn removal(sectors: u64) -> Demand {
    let (class, lane) = (SpaceClass::Remove, Lane::Bulk);
    Demand { dirty_bytes: 4096, sectors, log_bytes: 4096, class, lane }
}

/// No change takes space before the first in the queue, however little. A change that takes none
/// does not queue.
#[test]
fn nobody_passes_who_waits_for_the_reserve() {
    Fixture::new(Shape::Single).with_pool(async |open| {
        let pool = &open.pool;
        pool.admit_if_room(removal(1)).await.unwrap();
        let large = pool.status().space.free() * 2;
        let mut first = pin!(pool.admit(removal(large)));
        let is_ready = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_ready())).await;
        assert!(!is_ready, "it waits for what is held back");
        let passes = pool.admit_if_room(removal(1)).await;
        assert!(matches!(passes, Err(PoolError::NoSpace)), "{passes:?}");
        pool.admit_if_room(removal(0)).await.unwrap();
        assert!(matches!(first.await, Err(PoolError::NoSpace)), "there will never be so much");
        pool.admit_if_room(removal(1)).await.unwrap();
    });
}
