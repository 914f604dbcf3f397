//! Why a snapshot stays or goes: one value of each structure, and any.

use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{CADENCES, Cadence, HOLDS_MAX, Hold, HoldClock, HoldEnd, KeepRecord};
use proptest::prelude::*;

use crate::strategy::time;

pub fn keep() -> KeepRecord {
    let placed = Time { seconds: 1_790_000_200, nanoseconds: 9 };
    let end = HoldEnd { until_s: 1_792_592_200, clock_ms: 2_592_123_456 };
    KeepRecord {
        schedule: Some(Cadence::Daily),
        holds: vec![
            Hold { tag: "backup".into(), placed, end: None },
            Hold { tag: "audit".into(), placed, end: Some(end) },
        ],
    }
}

pub fn hold_clock() -> HoldClock {
    HoldClock { ms: 123_456 }
}

fn any_hold() -> impl Strategy<Value = Hold> {
    let tag = proptest::string::string_regex("[a-z0-9_.:-]{1,64}").unwrap();
    let end = proptest::option::of((1..u64::MAX, any::<u64>()));
    (tag, time(), end).prop_map(|(tag, placed, end)| {
        let end = end.map(|(until_s, clock_ms)| HoldEnd { until_s, clock_ms });
        Hold { tag, placed, end }
    })
}

pub fn any_keep() -> impl Strategy<Value = KeepRecord> {
    let schedule = proptest::option::of(prop::sample::select(CADENCES.to_vec()));
    (schedule, proptest::collection::vec(any_hold(), 0..=HOLDS_MAX))
        .prop_map(|(schedule, holds)| KeepRecord { schedule, holds })
}

#[test]
fn schedules_and_holds_that_there_cannot_be_are_refused() {
    let bytes = keep().encode();
    // (offset, its largest valid value)
    for (at, limit) in [(4, CADENCES.len()), (5, HOLDS_MAX)] {
        let mut beyond = bytes.clone();
        beyond[at] = u8::try_from(limit + 1).unwrap();
        assert!(KeepRecord::decode(&beyond).is_err(), "byte {at}");
    }
    let mut endless = KeepRecord { holds: keep().holds[1..].to_vec(), ..keep() }.encode();
    let until = endless.len() - 16;
    endless[until..until + 8].fill(0);
    assert!(KeepRecord::decode(&endless).is_err(), "a clock, and no end");
}
