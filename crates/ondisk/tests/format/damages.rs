//! Damage records, of every kind; and records of scrubs.

use aquifer_ondisk::damage::{DAMAGE_NAMES_MAX, DAMAGE_RANGES_MAX, DamageKind, DamageRecord};
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategy::time;

pub fn damage() -> impl Strategy<Value = DamageRecord> {
    let ranges = vec((any::<u32>(), 1..1000u64), 0..DAMAGE_RANGES_MAX);
    let names = vec(vec(any::<u8>(), 0..16), 0..DAMAGE_NAMES_MAX);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let ids = (any::<u64>(), any::<u64>(), any::<u64>());
    (flags, ids, time(), "[a-z ]{0,160}", ranges, names).prop_map(
        |((lost, inode_lost, more), (dataset, object, txg), since, error, ranges, names)| {
            let range = |(from, count)| (u64::from(from), u64::from(from) + count);
            DamageRecord {
                kind: if lost { DamageKind::Lost } else { DamageKind::Unreadable },
                inode_lost,
                more,
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
