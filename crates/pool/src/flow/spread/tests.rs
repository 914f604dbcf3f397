//! Syncs in simulated time.

use super::*;

const SECTORS: u64 = 25_600;

/// A sync that could hand out `per_ms` sectors each millisecond, while the open txg fills at so
/// many shares a second. Returns the milliseconds after which all was handed out.
fn run(sectors: u64, per_ms: u64, fills: f64) -> u32 {
    let mut handed_out = 0;
    for ms in 0.. {
        let elapsed = Duration::from_millis(u64::from(ms));
        let fill = f64::from(ms) / 1000.0 * fills;
        for _ in 0..per_ms {
            if handed_out >= SECTORS {
                return ms;
            }
            if is_ahead(handed_out, sectors, elapsed, fill) {
                break;
            }
            handed_out += 1;
        }
    }
    unreachable!("a sync ends")
}

#[test]
fn a_sync_takes_its_time_where_nothing_fills_the_next_txg() {
    let took = run(SECTORS, 10_000, 0.0);
    assert!((248..=251).contains(&took), "{took} ms");
}

#[test]
fn its_data_is_out_when_the_open_txg_is_half_full() {
    for fills in [4.0, 5.0, 10.0] {
        let took = f64::from(run(SECTORS, 10_000, fills));
        assert!((took - 500.0 / fills).abs() < 3.0, "{took} ms at {fills} a second");
    }
    // Slower than the time it has: the time counts.
    let took = run(SECTORS, 10_000, 1.0);
    assert!((248..=251).contains(&took), "{took} ms");
}

#[test]
fn slow_disks_are_never_ahead() {
    // 90 a millisecond are less than 25,600 in 250 ms, but for the first.
    assert_eq!(run(SECTORS, 90, 0.0), run(SECTORS, 90, 1000.0));
}

/// More than it seemed, as when few blocks dirty many nodes: the rest comes after its time.
#[test]
fn what_was_not_foreseen_does_not_wait_beyond_the_time() {
    let took = run(SECTORS / 2, 10_000, 0.0);
    assert!((249..=253).contains(&took), "{took} ms");
    let took = run(0, 10_000, 0.0);
    assert!((249..=253).contains(&took), "{took} ms");
}
