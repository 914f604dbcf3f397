//! Records of the history, of every kind, and of the load.

use aquifer_ondisk::history::{
    HISTORY_CHANGES_MAX, HistoryChange, HistoryCounters, HistoryRecord, Outcome,
};
use aquifer_ondisk::load::{
    LOAD_SAMPLES, LoadGrain, LoadOf, LoadPart, LoadRecord, LoadSample, Rough,
};
use aquifer_ondisk::{Guid, ObjectId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategy::time;

/// Texts that may be too long, as callers give them, then cut as before a write.
pub fn history() -> impl Strategy<Value = HistoryRecord> {
    let outcome = select(vec![Outcome::Begun, Outcome::Done, Outcome::Failed, Outcome::Forbidden]);
    let change = ("\\PC{0,80}", "\\PC{0,200}", "\\PC{0,200}")
        .prop_map(|(what, before, after)| HistoryChange { what, before, after });
    let texts = ("\\PC{0,80}", "\\PC{0,80}", "\\PC{0,300}", "\\PC{0,200}");
    let changes = vec(change, 0..=HISTORY_CHANGES_MAX + 1);
    (outcome, 0..HistoryCounters::LIMIT, time(), texts, changes).prop_map(
        |(outcome, order, began, (who, host, act, result), changes)| {
            let (cut, more) = (false, false);
            let mut record =
                HistoryRecord { outcome, cut, more, order, began, who, host, act, result, changes };
            record.shorten();
            record
        },
    )
}

fn load_part() -> impl Strategy<Value = LoadPart> {
    [any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()].prop_map(|numbers| {
        let [operations, bytes, mean_ns, p99_ns] = numbers.map(Rough::of);
        LoadPart { operations, bytes, mean_ns, p99_ns }
    })
}

pub fn load() -> impl Strategy<Value = LoadRecord> {
    let sample = (load_part(), load_part(), 0..1u64 << 48);
    let of = (0..3, any::<u64>(), any::<u64>()).prop_map(|(kind, fs_guid, object)| match kind {
        0 => LoadOf::Disks,
        1 => LoadOf::Clients,
        _ => LoadOf::File { fs_guid: Guid(fs_guid), object: ObjectId(object) },
    });
    let samples = vec(option::of(sample), LOAD_SAMPLES);
    (of, 0..u64::MAX / 2, samples).prop_map(|(of, at_s, samples)| {
        let grain = LoadGrain::TenSeconds;
        let mut record = LoadRecord::new(grain, of, grain.begin_of(at_s));
        for (place, sample) in record.samples.iter_mut().zip(samples) {
            *place = sample.map(|(reads, writes, used_sectors)| LoadSample {
                reads,
                writes,
                used_sectors: if of == LoadOf::Disks { used_sectors } else { 0 },
            });
        }
        record
    })
}

/// Returns the load of a VM disk in two samples of a span.
pub fn one_load() -> LoadRecord {
    let of = LoadOf::File { fs_guid: Guid(0x77), object: ObjectId(78) };
    let mut record = LoadRecord::new(LoadGrain::TenSeconds, of, 1_790_000_160);
    let part = |operations, ns| LoadPart {
        operations: Rough::of(operations),
        bytes: Rough::of(operations * 8192),
        mean_ns: Rough::of(ns),
        p99_ns: Rough::of(ns * 4),
    };
    let sample =
        LoadSample { reads: part(2500, 90_000), writes: part(7, 1_500_000), used_sectors: 0 };
    record.samples[0] = Some(sample);
    record.samples[47] = Some(LoadSample { reads: LoadPart::default(), ..sample });
    record
}

/// Returns the load of a pool's disks in one sample of a span.
pub fn load_of_disks() -> LoadRecord {
    let mut record = LoadRecord::new(LoadGrain::TenSeconds, LoadOf::Disks, 1_790_000_160);
    record.samples[1] =
        one_load().samples[0].map(|sample| LoadSample { used_sectors: 1 << 40, ..sample });
    record
}

pub fn counters() -> impl Strategy<Value = HistoryCounters> {
    let next = 0..HistoryCounters::LIMIT;
    (next.clone(), next.clone(), next).prop_map(|(order, act, attempt)| HistoryCounters {
        order,
        act,
        attempt,
    })
}
