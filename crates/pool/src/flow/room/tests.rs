//! Changes that come in simulated time, and txgs that go to disk.

use super::*;
use crate::txg::SpaceClass;

const MIB: u64 = 1 << 20;
const D: u64 = 64 * MIB;
const ROOM: Room = Room { txg_bytes: D, cap_bytes: 2 * D };
const EMPTY_LOG: LogRoom = log(1024 * MIB, 1024 * MIB);
const WIDE: Bounds = Bounds { log_bytes: 1024 * MIB, sectors: u64::MAX };

const fn log(left: u64, capacity_bytes: u64) -> LogRoom {
    LogRoom { left_bytes: left, free_bytes: left, capacity_bytes }
}

fn demand(lane: Lane, dirty_bytes: u64) -> Demand {
    let sectors = dirty_bytes / 4096;
    Demand { dirty_bytes, sectors, log_bytes: dirty_bytes, class: SpaceClass::Write, lane }
}

fn taken(dirty_bytes: u64) -> Taken {
    Taken { dirty_bytes, ..Taken::default() }
}

/// Writers that want in at every tick beside locks that are renewed at every tenth; a txg closes
/// when it is full and the one before is on disk, which takes `sync_ticks`.
#[test]
fn no_more_than_two_full_txgs_are_in_memory_and_locks_find_room() {
    for sync_ticks in [10, 1000, 100_000] {
        let (mut held, mut sparse, mut syncing) = (Held::default(), 0, None);
        let mut most = 0;
        for tick in 0..200_000u64 {
            if syncing.is_some_and(|(_, end)| tick >= end) {
                syncing = None;
            }
            if syncing.is_none() && ROOM.fill(held, WIDE) >= 1.0 {
                syncing = Some((held.dirty_bytes, tick + sync_ticks));
                (held, sparse) = (Held::default(), 0);
            }
            for (lane, bytes, every) in [(Lane::Bulk, MIB / 8, 1), (Lane::Sparse, 4096, 10)] {
                if tick % every != 0 {
                    continue;
                }
                let demand = demand(lane, bytes);
                let dirty_bytes = held.dirty_bytes + syncing.map_or(0, |(bytes, _)| bytes);
                let taken = Taken { dirty_bytes, sparse_bytes: sparse, log_bytes: 0 };
                let entry = ROOM.entry(&demand, taken, EMPTY_LOG);
                let passes = lane == Lane::Sparse && sparse + bytes <= D / 16;
                assert_eq!(entry == Entry::Passes, passes, "at {taken:?}");
                if entry != Entry::Full {
                    held.dirty_bytes += bytes;
                    sparse += if passes { bytes } else { 0 };
                    most = most.max(dirty_bytes + bytes);
                }
            }
        }
        assert!(most <= 2 * D, "{most} bytes dirty");
        assert!(most > D, "{most} bytes dirty");
        // The disks stood still: all that others may take was taken.
        if sync_ticks == 100_000 {
            assert!(most > 2 * D - D / 16 - MIB / 8, "{most} bytes dirty");
        }
    }
}

#[test]
fn memory_is_full_at_the_cap_and_a_part_of_it_is_kept_for_sparse_changes() {
    let entry = |lane, bytes, dirty| ROOM.entry(&demand(lane, bytes), taken(dirty), EMPTY_LOG);
    let others = 2 * D - D / SPARSE_TXG_SHARE;
    assert_eq!(entry(Lane::Bulk, 4096, others - 4096), Entry::Queues);
    assert_eq!(entry(Lane::Bulk, 4096, others - 4095), Entry::Full);
    assert_eq!(entry(Lane::Sparse, 4096, 2 * D - 4096), Entry::Passes);
    assert_eq!(entry(Lane::Sparse, 4096, 2 * D - 4095), Entry::Full);
    // What is larger than all goes alone.
    assert_eq!(entry(Lane::Bulk, 3 * D, 0), Entry::Queues);
    assert_eq!(entry(Lane::Bulk, 3 * D, 1), Entry::Full);
}

#[test]
fn a_sparse_change_passes_while_it_is_small_and_few_came_before_it() {
    let entry = |bytes, sparse_bytes| {
        let taken = Taken { dirty_bytes: sparse_bytes, sparse_bytes, log_bytes: 0 };
        ROOM.entry(&demand(Lane::Sparse, bytes), taken, EMPTY_LOG)
    };
    assert_eq!(entry(SPARSE_BYTES_MAX, 0), Entry::Passes);
    assert_eq!(entry(SPARSE_BYTES_MAX + 1, 0), Entry::Queues);
    assert_eq!(entry(4096, D / 16 - 4096), Entry::Passes);
    assert_eq!(entry(4096, D / 16 - 4095), Entry::Queues);
}

#[test]
fn the_log_is_never_promised_beyond_its_room_and_a_part_is_kept() {
    let capacity = 64 * MIB;
    let entry = |lane, left, log_bytes| {
        let taken = Taken { log_bytes, ..Taken::default() };
        ROOM.entry(&demand(lane, 4096), taken, log(left, capacity))
    };
    assert_eq!(entry(Lane::Bulk, MIB + 8192, 4096), Entry::Queues);
    assert_eq!(entry(Lane::Bulk, MIB + 8191, 4096), Entry::Full);
    assert_eq!(entry(Lane::Sparse, 8192, 4096), Entry::Passes);
    assert_eq!(entry(Lane::Sparse, 8191, 4096), Entry::Full);
}

#[test]
fn a_txg_is_full_of_memory_of_its_log_or_of_reservations() {
    let bounds = Bounds { log_bytes: 400, sectors: 1000 };
    let fill = |dirty_bytes, logged_bytes, sectors| {
        ROOM.fill(Held { dirty_bytes, logged_bytes, sectors }, bounds)
    };
    let close = |fill: f64, expected: f64| assert!((fill - expected).abs() < 1e-9, "{fill}");
    close(fill(D / 2, 10, 100), 0.5);
    close(fill(D / 2, 60, 100), 0.6);
    close(fill(D / 2, 60, 700), 0.7);
    // A quarter of the log, and all that may be reserved.
    close(fill(0, 100, 0), 1.0);
    close(fill(0, 0, 1000), 1.0);
    close(ROOM.share_of(&demand(Lane::Bulk, D / 8), WIDE), 0.125);
    close(ROOM.share_of(&demand(Lane::Bulk, 4096 * 100), bounds), 0.1);
    // What takes no memory is not slowed for its sectors.
    let demand = Demand { dirty_bytes: 0, sectors: 900, ..demand(Lane::Bulk, 0) };
    close(ROOM.share_of(&demand, bounds), 0.0);
    assert_eq!(full_sectors(100_000), 50_000);
    assert_eq!(full_sectors(100), TXG_FULL_SECTORS_MIN);
}

#[test]
fn a_log_that_fills_delays_ever_longer() {
    let delay = |percent: u64| log_delay(log((100 - percent) * MIB, 100 * MIB));
    for easy in 0..=LOG_EASY_PERCENT {
        assert_eq!(delay(easy), None, "{easy} %");
    }
    let us = |percent| delay(percent).map_or(0, |delay| delay.as_micros());
    for percent in LOG_EASY_PERCENT + 1..100 {
        assert!(us(percent) > us(percent - 1) || us(percent) == 0, "{percent} %");
    }
    assert_eq!([us(61), us(70), us(80), us(90), us(99)], [0, 83, 500, 2250, 38_025]);
    // Full, or with more room than it has: a log that is moving.
    assert_eq!(us(100), us(99));
    assert_eq!(log_delay(log(200 * MIB, 100 * MIB)), None);
    assert!(log_delay(log(0, 0)).is_some());
}
