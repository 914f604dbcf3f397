//! Devices of a pool in simulated time: what each of them takes, over some txgs.

use super::*;

const US: u64 = 1000;

/// Times that the devices of a model take, in microseconds, and the size of a batch of the log.
#[derive(Clone, Copy)]
struct Takes {
    write: u64,
    flush: u64,
    logged: u64,
    batch_bytes: u64,
}

const SSD: Takes = Takes { write: 100, flush: 400, logged: 150, batch_bytes: 4096 };

/// Counters go on by one txg: so many writes and batches, and a flush.
fn txg(devices: &mut Devices, operations: u64, takes: Takes) {
    let add = |times: &mut Times, count: u64, us: u64, bytes: u64| {
        times.count += count;
        times.ns += count * us * US;
        times.bytes += count * bytes;
    };
    add(&mut devices.writes, operations, takes.write, 512 * 1024);
    add(&mut devices.flushes, 1, takes.flush, 0);
    add(&mut devices.logged, operations, takes.logged, takes.batch_bytes);
}

#[test]
fn large_data_takes_the_way_that_devices_made_shorter_of_late() {
    let (mut placement, mut devices) = (Placement::default(), Devices::default());
    // A small batch of 150 us: a large one is taken for four of them, and 500 us are less.
    txg(&mut devices, 100, SSD);
    assert_eq!(placement.judge(devices), Some(true));
    // For ten thousand txgs the log vdev is the faster one: 400 us.
    for _ in 0..10_000 {
        txg(&mut devices, 100, Takes { logged: 100, ..SSD });
        assert_eq!(placement.judge(devices), Some(false));
    }
    // Then it becomes slow: the next txg shows it, whatever the ten thousand were.
    txg(&mut devices, 100, Takes { logged: 2000, ..SSD });
    assert_eq!(placement.judge(devices), Some(true));
    txg(&mut devices, 100, Takes { logged: 100, ..SSD });
    assert_eq!(placement.judge(devices), Some(false));
    // As long on either way: into the log.
    txg(&mut devices, 100, Takes { logged: 125, ..SSD });
    assert_eq!(placement.judge(devices), Some(false));
    txg(&mut devices, 100, Takes { logged: 126, ..SSD });
    assert_eq!(placement.judge(devices), Some(true));
}

#[test]
fn a_batch_counts_by_its_size() {
    for (batch_bytes, batches) in [(64 << 10, 1), (1 << 20, 1), (32 << 10, 2), (4096, 4), (0, 4)] {
        let judge = |logged| {
            let (mut placement, mut devices) = (Placement::default(), Devices::default());
            txg(&mut devices, 8, Takes { logged, batch_bytes, ..SSD });
            placement.judge(devices)
        };
        assert_eq!(judge(500 / batches), Some(false), "{batch_bytes}");
        assert_eq!(judge(500 / batches + 1), Some(true), "{batch_bytes}");
    }
}

#[test]
fn few_operations_say_nothing_and_are_kept_for_the_next_judgement() {
    let (mut placement, mut devices) = (Placement::default(), Devices::default());
    txg(&mut devices, PLACEMENT_SAMPLES_MIN - 1, SSD);
    assert_eq!(placement.judge(devices), None);
    txg(&mut devices, 1, SSD);
    assert_eq!(placement.judge(devices), Some(true));
    let missing: [fn(&mut Devices); 2] = [|of| of.writes.count -= 1, |of| of.logged.count -= 1];
    for missing in missing {
        let (mut placement, mut devices) = (Placement::default(), Devices::default());
        txg(&mut devices, PLACEMENT_SAMPLES_MIN, SSD);
        missing(&mut devices);
        assert_eq!(placement.judge(devices), None);
    }
    let (mut placement, mut devices) = (Placement::default(), Devices::default());
    txg(&mut devices, 100, SSD);
    devices.flushes = Times::default();
    assert_eq!(placement.judge(devices), None);
}

/// As when a vdev is replaced: its counters are new.
#[test]
fn counters_that_begin_anew_count_from_nothing() {
    let (mut placement, mut devices) = (Placement::default(), Devices::default());
    txg(&mut devices, 1000, Takes { logged: 2000, ..SSD });
    assert_eq!(placement.judge(devices), Some(true));
    devices.logged = Times::default();
    txg(&mut devices, 100, Takes { logged: 100, ..SSD });
    assert_eq!(placement.judge(devices), Some(false));
}
