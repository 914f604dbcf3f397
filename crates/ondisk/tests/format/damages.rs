//! Damage records, of every kind; and records of scrubs and of work on free space.

use aquifer_ondisk::damage::{DAMAGE_NAMES_MAX, DAMAGE_RANGES_MAX, DamageKind, DamageRecord};
use aquifer_ondisk::free_work::{EndedWork, FreeWorkRecord, WorkEnd};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::open_work::{OpenWork, OpenWorkRecord};
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategy::time;

pub fn damage() -> impl Strategy<Value = DamageRecord> {
    let ranges = vec((any::<u32>(), 1..1000u64), 0..DAMAGE_RANGES_MAX);
    let names = vec(vec(any::<u8>(), 0..16), 0..DAMAGE_NAMES_MAX);
    let flags = any::<[bool; 4]>();
    let ids = (any::<u64>(), any::<u64>(), any::<u64>());
    (flags, ids, time(), "[a-z ]{0,160}", ranges, names).prop_map(
        |(
            [lost, inode_lost, more, accepted],
            (dataset, object, txg),
            since,
            error,
            ranges,
            names,
        )| {
            let range = |(from, count)| (u64::from(from), u64::from(from) + count);
            DamageRecord {
                kind: if lost { DamageKind::Lost } else { DamageKind::Unreadable },
                inode_lost,
                more,
                accepted,
                dataset: DatasetId(dataset),
                object: ObjectId(object),
                txg: Txg(txg),
                since,
                error,
                ranges: ranges.into_iter().map(range).collect(),
                names,
            }
        },
    )
}

pub fn scrub() -> impl Strategy<Value = ScrubRecord> {
    use ScrubState::{Active, Canceled, Finished, Paused};
    let state = proptest::sample::select(vec![Active, Paused, Finished, Canceled]);
    let counts = any::<[u64; 5]>();
    let position = (any::<u8>(), any::<(u64, u64)>(), any::<u64>(), any::<u64>());
    (state, time(), time(), counts, position).prop_map(
        |(state, begun, ended, counts, (tree, key, object, within))| {
            let [active_ms, total_bytes, examined_bytes, repaired_bytes, unreadable_blocks] =
                counts;
            let position = WalkPosition { tree, key, object, within };
            ScrubRecord {
                state,
                begun,
                ended,
                active_ms,
                total_bytes,
                examined_bytes,
                repaired_bytes,
                unreadable_blocks,
                position,
            }
        },
    )
}

pub fn free_work() -> impl Strategy<Value = FreeWorkRecord> {
    use WorkEnd::{Canceled, Failed, Finished};
    let end = || proptest::sample::select(vec![Finished, Canceled, Failed]);
    let work = move || {
        let parts = (end(), time(), time(), any::<[u64; 4]>());
        let work = parts.prop_map(|(end, begun, ended, counts)| {
            let [total_bytes, passed_bytes, done_bytes, skipped_bytes] = counts;
            EndedWork { end, begun, ended, total_bytes, passed_bytes, done_bytes, skipped_bytes }
        });
        proptest::option::of(work)
    };
    (any::<u64>(), work(), work()).prop_map(|(leaf, trim, initialize)| FreeWorkRecord {
        leaf: Guid(leaf),
        trim,
        initialize,
    })
}

pub fn one_free_work() -> FreeWorkRecord {
    let trim = EndedWork {
        end: WorkEnd::Finished,
        begun: Time { seconds: 1_790_000_000, nanoseconds: 5 },
        ended: Time { seconds: 1_790_000_061, nanoseconds: 7 },
        total_bytes: 1 << 40,
        passed_bytes: 1 << 40,
        done_bytes: 1 << 39,
        skipped_bytes: 1 << 20,
    };
    FreeWorkRecord { leaf: Guid(0x1122_3344_5566_7788), trim: Some(trim), initialize: None }
}

pub fn open_work() -> impl Strategy<Value = OpenWorkRecord> {
    let work = || {
        let parts = (any::<bool>(), time(), proptest::option::of(1..u64::MAX), any::<[u64; 3]>());
        let work = parts.prop_map(|(is_suspended, begun, rate, counts)| {
            let [next_sector, done_bytes, skipped_bytes] = counts;
            OpenWork { is_suspended, begun, rate, next_sector, done_bytes, skipped_bytes }
        });
        proptest::option::of(work)
    };
    (any::<u64>(), work(), work()).prop_map(|(leaf, trim, initialize)| OpenWorkRecord {
        leaf: Guid(leaf),
        trim,
        initialize,
    })
}

pub fn one_open_work() -> OpenWorkRecord {
    let trim = OpenWork {
        is_suspended: true,
        begun: Time { seconds: 1_790_000_000, nanoseconds: 5 },
        rate: Some(64 << 20),
        next_sector: 1 << 27,
        done_bytes: 1 << 39,
        skipped_bytes: 1 << 20,
    };
    OpenWorkRecord { leaf: Guid(0x1122_3344_5566_7788), trim: Some(trim), initialize: None }
}
