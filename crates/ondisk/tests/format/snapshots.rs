//! Any snapshot, sweep, rollback and dead entry.

use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::dataset::{
    InheritedRecord, ListerRecord, RollbackRecord, SNAPSHOT_NAME_BYTES_MAX, SnapshotRecord,
    SweepRecord,
};
use aquifer_ondisk::dead::{
    Bucket, DEAD_BLOCKS_MAX, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadKind, DeadSums,
};
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::{
    FileRollbackRecord, FileSnapshotId, FileSnapshotRecord, FileSweepRecord,
};
use aquifer_ondisk::head_line::{HeadLineRecord, LeftHeadRecord};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::keeping::{CADENCES, Cadence};
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::resume::{ResumeRecord, StreamPlace};
use aquifer_ondisk::types::{SEGMENT_SECTORS, SEQUENCE_LIMIT};
use aquifer_ondisk::user_property::{UserProperty, check_user_name};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Space, Txg};
use proptest::prelude::*;

use crate::strategy::{inode, pointer, run, time, txg};
use crate::values::file;

pub fn snapshot() -> impl Strategy<Value = SnapshotRecord> {
    let name = proptest::string::string_regex("[a-z0-9_.:-]{0,40}").unwrap();
    let root = proptest::option::of(pointer());
    (any::<[u64; 4]>(), time(), root, name).prop_map(
        |([guid, refer_bytes, saved, line], created, objects, name)| {
            assert!(name.len() <= SNAPSHOT_NAME_BYTES_MAX);
            let (guid, saved_bytes) = (Guid(guid), saved & (line % 2).wrapping_neg());
            SnapshotRecord { guid, created, refer_bytes, saved_bytes, line, objects, name }
        },
    )
}

pub fn bookmark() -> impl Strategy<Value = BookmarkRecord> {
    let destroyed = txg().prop_map(|left| BookmarkRecord::Destroyed { left });
    let stands = snapshot().prop_map(|of| SnapshotRecord { saved_bytes: 0, ..of });
    prop_oneof![stands.prop_map(BookmarkRecord::Stands), destroyed]
}

/// The one in the document.
pub fn one_bookmark() -> BookmarkRecord {
    let name = "sent".into();
    BookmarkRecord::Stands(SnapshotRecord { name, ..crate::values::snapshot() })
}

/// And a destroyed one.
pub fn one_destroyed_bookmark() -> BookmarkRecord {
    BookmarkRecord::Destroyed { left: Txg(81) }
}

pub fn sweep() -> impl Strategy<Value = SweepRecord> {
    txg().prop_map(|left| SweepRecord { left })
}

pub fn rollback() -> impl Strategy<Value = RollbackRecord> {
    (txg(), txg(), 0..SEQUENCE_LIMIT, time(), any::<bool>()).prop_map(
        |(txg, to, change, ctime, pending)| RollbackRecord { txg, to, change, ctime, pending },
    )
}

/// The one in the document.
pub fn one_rollback() -> RollbackRecord {
    RollbackRecord {
        txg: Txg(90),
        to: Txg(80),
        change: 1_790_000_200_000_000_000,
        ctime: Time { seconds: 1_790_000_200, nanoseconds: 0 },
        pending: true,
    }
}

pub fn lister() -> impl Strategy<Value = ListerRecord> {
    proptest::option::of(1..u64::MAX).prop_map(|id| ListerRecord { dataset: id.map(DatasetId) })
}

/// The one in the document.
pub fn one_lister() -> ListerRecord {
    ListerRecord { dataset: Some(DatasetId(7)) }
}

pub fn receiving() -> impl Strategy<Value = ReceivingRecord> {
    txg().prop_map(|from| ReceivingRecord { from })
}

/// The one in the document.
pub fn one_receiving() -> ReceivingRecord {
    ReceivingRecord { from: Txg(80) }
}

pub fn resume() -> impl Strategy<Value = ResumeRecord> {
    let sent = proptest::string::string_regex("[a-z0-9_./@-]{0,80}").unwrap();
    let place = (0..SEQUENCE_LIMIT, proptest::option::of(any::<u64>()));
    let guids = (1..u64::MAX, proptest::option::of(1..u64::MAX), any::<bool>());
    (guids, txg(), place, any::<u64>(), time(), sent).prop_map(
        |((to, from, own_handles), begun, (object, within), pages, heard, sent)| {
            let place = StreamPlace { object: ObjectId(object), within };
            let (to, from) = (Guid(to), from.map(Guid));
            ResumeRecord { to, from, own_handles, begun, place, pages, heard, sent }
        },
    )
}

/// The one in the document.
pub fn one_resume() -> ResumeRecord {
    ResumeRecord {
        to: Guid(0x1122_3344_5566_7788),
        from: Some(Guid(0x99aa_bbcc_ddee_ff00)),
        own_handles: false,
        begun: Txg(90),
        place: StreamPlace { object: ObjectId(17), within: Some(4096) },
        pages: 5000,
        heard: Time { seconds: 1_790_000_200, nanoseconds: 0 },
        sent: "tank/vms@tuesday".into(),
    }
}

pub fn user_property() -> impl Strategy<Value = UserProperty> {
    let name = proptest::string::string_regex("[a-z0-9_.-]{0,9}:[a-z0-9_.:-]{0,40}").unwrap();
    let name = name.prop_filter("allowed", |name| check_user_name(name).is_ok());
    (name, any::<String>()).prop_map(|(name, value)| UserProperty { name, value })
}

/// The one in the document.
pub fn one_user_property() -> UserProperty {
    UserProperty { name: "com.example:backup".into(), value: "nightly, to \u{e9}dgar".into() }
}

pub fn of_file() -> impl Strategy<Value = FileSnapshotRecord> {
    let text = |regex| proptest::string::string_regex(regex).unwrap();
    let texts = (text("[a-z0-9_.:-]{0,40}"), text("[a-z0-9_./-]{0,80}"));
    let flags = (
        any::<(bool, bool, bool)>(),
        proptest::option::of(proptest::sample::select(&CADENCES[..])),
    );
    (any::<u64>(), time(), texts, inode(), flags).prop_map(
        |(guid, created, texts, inode, flags)| {
            let ((name, path), ((settled, hidden, gathers), schedule)) = (texts, flags);
            let (guid, object) = (Guid(guid), ObjectId(inode.object.0.max(1)));
            let inode = Inode { object, kind: FileKind::Regular, entries: 0, ..inode };
            let names = FileSnapshotRecord { guid, created, name, path, inode, ..one_of_file() };
            FileSnapshotRecord { settled, hidden, gathers, schedule, ..names }
        },
    )
}

pub fn one_of_file() -> FileSnapshotRecord {
    let created = Time { seconds: 1_750_000_000, nanoseconds: 250_000_000 };
    let (name, path) = ("before".into(), "web01/disk0.vhd".into());
    let (guid, inode) = (Guid(0x1122_3344_5566_7788), file());
    let (settled, hidden, gathers, schedule) = (false, false, false, None);
    FileSnapshotRecord { guid, created, name, path, inode, settled, hidden, gathers, schedule }
}

/// One that a schedule took.
pub fn one_scheduled() -> FileSnapshotRecord {
    let name = "auto-hourly-2026-11-26T07:00Z".into();
    FileSnapshotRecord { name, settled: true, schedule: Some(Cadence::Hourly), ..one_of_file() }
}

/// A later release may have more cadences: here nothing prunes what they mark.
#[test]
fn unknown_cadences_mean_nothing() {
    let value = one_scheduled().encode();
    assert_eq!(value[3], Cadence::Hourly as u8);
    for byte in 0..=u8::MAX {
        let mut other = value.clone();
        other[3] = byte;
        let read = FileSnapshotRecord::decode(&other).unwrap();
        let known = CADENCES.into_iter().find(|cadence| *cadence as u8 == byte & 15);
        assert_eq!(read, FileSnapshotRecord { schedule: known, ..one_scheduled() });
    }
}

/// The inode of a clone of a file.
pub fn one_cloned() -> Inode {
    Inode { cloned: true, line: 90, hash_seed: 8192, ..file() }
}

/// The one in the document.
pub fn one_file_clone() -> FileCloneRecord {
    let snapshot = FileSnapshotId::new(Txg(90), 1);
    FileCloneRecord { snapshot, forked: Txg(95), died: Some(Txg(99)) }
}

/// The one in the document.
pub fn one_file_line() -> FileLineRecord {
    FileLineRecord { object: ObjectId(42), of: one_file_clone() }
}

pub fn one_head_line() -> HeadLineRecord {
    HeadLineRecord { to: Txg(7), left: Some(Txg(30)) }
}

pub fn head_line() -> impl Strategy<Value = HeadLineRecord> {
    let to = 1u64..1 << 39;
    to.prop_flat_map(|to| (Just(Txg(to)), proptest::option::of(to + 1..1 << 40)))
        .prop_map(|(to, left)| HeadLineRecord { to, left: left.map(Txg) })
}

pub fn one_left_head() -> LeftHeadRecord {
    LeftHeadRecord { dataset: DatasetId(3), txg: Txg(30), counts: None }
}

pub fn one_counted_left_head() -> LeftHeadRecord {
    let counts = Some(Space { bytes: 4096 * 100, saved_bytes: 4096 * 7 });
    LeftHeadRecord { counts, ..one_left_head() }
}

pub fn left_head() -> impl Strategy<Value = LeftHeadRecord> {
    let space = (any::<u64>(), any::<u64>());
    let space = space.prop_map(|(bytes, saved_bytes)| Space { bytes, saved_bytes });
    (1u64..1 << 40, 1u64..1 << 40, proptest::option::of(space)).prop_map(
        |(dataset, txg, counts)| LeftHeadRecord {
            dataset: DatasetId(dataset),
            txg: Txg(txg),
            counts,
        },
    )
}

pub fn one_file_clone_across() -> FileCloneAcrossRecord {
    FileCloneAcrossRecord { dataset: DatasetId(3), of: one_file_clone() }
}

pub fn file_clone_across() -> impl Strategy<Value = FileCloneAcrossRecord> {
    let dataset = (1..1u64 << 40).prop_map(DatasetId);
    (dataset, file_clone()).prop_map(|(dataset, of)| FileCloneAcrossRecord { dataset, of })
}

pub fn file_line() -> impl Strategy<Value = FileLineRecord> {
    let object = (1..1u64 << 40).prop_map(ObjectId);
    (object, file_clone()).prop_map(|(object, of)| FileLineRecord { object, of })
}

pub fn file_clone() -> impl Strategy<Value = FileCloneRecord> {
    let index = any::<u16>();
    (1..1u64 << 30, index, 1..1u64 << 20, proptest::option::of(1..1u64 << 20)).prop_map(
        |(txg, index, later, died)| {
            let forked = Txg(txg + later);
            let died = died.map(|later| Txg(forked.0 + later));
            FileCloneRecord { snapshot: FileSnapshotId::new(Txg(txg), index), forked, died }
        },
    )
}

/// The one in the document.
pub fn one_file_rollback() -> FileRollbackRecord {
    FileRollbackRecord { object: ObjectId(17), txg: Txg(95), pending: true }
}

pub fn file_rollback() -> impl Strategy<Value = FileRollbackRecord> {
    (1..u64::MAX, txg(), any::<bool>()).prop_map(|(object, txg, pending)| {
        let object = ObjectId(object);
        FileRollbackRecord { object, txg, pending }
    })
}

pub fn one_file_sweep() -> FileSweepRecord {
    FileSweepRecord { object: ObjectId(17), left: Txg(90) }
}

pub fn file_sweep() -> impl Strategy<Value = FileSweepRecord> {
    (1..u64::MAX, txg()).prop_map(|(object, left)| {
        let object = ObjectId(object);
        FileSweepRecord { object, left }
    })
}

pub fn inherited() -> impl Strategy<Value = InheritedRecord> {
    any::<[u64; 2]>().prop_map(|[bytes, saved]| {
        let saved_bytes = saved & (bytes % 2).wrapping_neg();
        InheritedRecord(Space { bytes, saved_bytes })
    })
}

/// The one in the document.
pub fn one_inherited() -> InheritedRecord {
    InheritedRecord(Space { bytes: 3 << 20, saved_bytes: 0 })
}

/// Two txgs, the smaller first.
fn life() -> impl Strategy<Value = (u64, u64)> {
    (0..Txg::LIMIT - 2).prop_flat_map(|lo| (Just(lo), lo + 1..Txg::LIMIT - 1))
}

pub fn key() -> impl Strategy<Value = DeadKey> {
    (any::<u64>(), life(), any::<u64>(), any::<u32>()).prop_map(
        |(group, (lo, hi), object, index)| {
            let bucket = Bucket { group, hi: Txg(hi), lo: Txg(lo) };
            DeadKey { bucket, object: ObjectId(object), txg: Txg(hi + 1), index }
        },
    )
}

pub fn dead() -> impl Strategy<Value = DeadEntry> {
    let kind = prop::sample::select(vec![DeadKind::Extent, DeadKind::Node]);
    let block = (kind, run(SEGMENT_SECTORS), any::<u64>());
    let blocks = proptest::collection::vec(block, 0..=DEAD_BLOCKS_MAX);
    (key(), blocks, any::<[u64; 3]>()).prop_map(|(key, blocks, [sectors, saved, sum])| {
        let Bucket { hi, lo, .. } = key.bucket;
        if blocks.is_empty() {
            let saved_sectors = saved & (sum % 2).wrapping_neg();
            let body = DeadBody::Sums(DeadSums { sectors, saved_sectors, blocks: sum });
            return DeadEntry { key: key.bucket.sums(), body };
        }
        let blocks = blocks.into_iter().map(|(kind, run, birth)| {
            let birth = Txg(lo.0 + 1 + birth % (hi.0 - lo.0));
            let saved_sectors = if kind == DeadKind::Extent { (birth.0 % 8) as u8 } else { 0 };
            DeadBlock { kind, run, birth, saved_sectors }
        });
        DeadEntry { key, body: DeadBody::Blocks(blocks.collect()) }
    })
}
