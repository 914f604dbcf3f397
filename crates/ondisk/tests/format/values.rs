//! One value, or a few, of every structure. They stand for pools in use: values are added, never
//! changed.

use aquifer_ondisk::block_pointer::{BlockKind, BlockPointer};
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::config::{
    Label, LeafConfig, PoolConfig, Redundancy, Stands, VdevClass, VdevConfig,
};
use aquifer_ondisk::damage::{DamageKind, DamageRecord};
use aquifer_ondisk::dataset::{
    DatasetRecord, Item, ItemClass, ItemKey, LineRecord, SnapshotRecord, SweepRecord,
};
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadKind, DeadSums};
use aquifer_ondisk::dirent::{Dirent, hash_key};
use aquifer_ondisk::extent::{Compression, Extent, Stored};
use aquifer_ondisk::history::{HistoryChange, HistoryCounters, HistoryRecord, Outcome};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::l2arc::{CachedRun, ChunkHeader, RunForm};
use aquifer_ondisk::log_batch::{BatchHeader, LogRecord};
use aquifer_ondisk::log_change::{LogChange, PageSource};
use aquifer_ondisk::pool_root::{LogRoot, PoolRoot, TREES, TreeSlot};
use aquifer_ondisk::reply::{CallId, ReplyEntry};
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_ondisk::tree_node::{Form, Node, NodeBody, NodeOwner};
use aquifer_ondisk::txg_record::{RecordPointer, SlotEntry, TxgRecord};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::uberblock::{Host, LogEnd, Outdated, Uberblock};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Place, Txg};

pub fn leaf<F: Form>(entries: Vec<F::Entry>) -> Node<F> {
    Node { level: 0, owner: owner(), written: Txg(73), body: NodeBody::Leaf(entries) }
}

pub fn inner<F: Form>(keys: [F::Key; 2]) -> Node<F> {
    let children = keys.into_iter().map(|key| (key, pointer(F::KIND))).collect();
    Node { level: 2, owner: owner(), written: Txg(73), body: NodeBody::Inner(children) }
}

pub fn owner() -> NodeOwner {
    NodeOwner { dataset: DatasetId(7), object: ObjectId(90) }
}

pub fn label() -> Label {
    let leaf = |guid, path: &str| LeafConfig::new(Guid(guid), 2_441_609, path.to_string());
    let vdev = |guid, class, redundancy, leaves| VdevConfig {
        guid: Guid(guid),
        class,
        redundancy,
        segments: 2383,
        birth: Txg(1),
        metaslab_segments: 16,
        grown_from_segments: 0,
        leaves,
    };
    let config = PoolConfig {
        config_sequence: 3,
        pool_guid: POOL,
        name: "tank".into(),
        features_read: vec!["org.example:long_sectors".into()],
        features_write: vec!["org.example:a".into(), "org.example:b".into()],
        vdevs: vec![
            vdev(
                0xd0,
                VdevClass::Data,
                Redundancy::Mirror,
                vec![leaf(0xa0, "/dev/disk/by-id/wwn-0x1"), leaf(0xa1, "/dev/disk/by-id/wwn-0x2")],
            ),
            vdev(0xd1, VdevClass::Data, Redundancy::Single, vec![leaf(0xa2, "/srv/\u{e9}.img")]),
            vdev(0xd2, VdevClass::Log, Redundancy::Single, vec![leaf(0xa3, "/dev/nvme0n1")]),
        ],
        spares: Vec::new(),
        caches: Vec::new(),
    };
    Label { leaf_guid: Guid(0xa1), index: 2, config }
}

/// Returns the label of `label` after the single disk has grown, a spare stands for a disk of the
/// mirror, and a disk replaces the one that was taken out of use.
pub fn label_with_spare() -> Label {
    let mut label = label();
    let mut spare = LeafConfig::new(Guid(0xb0), 2_441_609, "/dev/sdx".into());
    label.config.spares = vec![spare.clone()];
    spare.stands = Stands::SpareFor(Guid(0xa0));
    let mut new = LeafConfig::new(Guid(0xb1), 2_441_609, "/dev/sdy".into());
    new.stands = Stands::Replaces(Guid(0xa1));
    if let [mirror, single, ..] = label.config.vdevs.as_mut_slice() {
        mirror.leaves.iter_mut().for_each(|leaf| leaf.offline = leaf.guid == Guid(0xa1));
        mirror.leaves.extend([spare, new]);
        (single.segments, single.grown_from_segments) = (9_999, 2383);
    }
    label
}

/// The first one, with a cache disk.
pub fn label_with_cache() -> Label {
    let mut label = label();
    label.config.caches = vec![LeafConfig::new(Guid(0xc0), 2_441_609, "/dev/nvme1n1".into())];
    label
}

pub fn chunk_header() -> ChunkHeader {
    let run = |sector, written, sectors, form| CachedRun {
        place: Place::new(1, sector),
        written: Txg(written),
        sectors,
        form,
    };
    ChunkHeader {
        pool: POOL,
        leaf: Guid(0xc0),
        chunk: 17,
        sequence: 0x0203_0405,
        runs: vec![run(0x1000, 73, 16, RunForm::Pages), run(0x2345, 70, 1, RunForm::Block)],
    }
}

pub const POOL: Guid = Guid(0x0123_4567_89ab_cdef);
pub const CHECKSUM: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

pub fn uberblock() -> Uberblock {
    Uberblock {
        pool_guid: POOL,
        leaf_guid: Guid(0xa1),
        label: 3,
        clean: false,
        sequence: 200,
        txg: Txg(73),
        wall_ns: 1_790_000_000_123_456_789,
        session: 5,
        session_first_txg: Txg(60),
        config_sequence: 3,
        mark: 17,
        log_end: LogEnd { chain: 0xc0ff_ee00, sequence: 12, checksum: CHECKSUM },
        restart_chain: 0xdead,
        floor: Txg(72),
        roots: [Some(record_at(73, 2)), Some(record_at(72, 1)), Some(record_at(71, 16))],
        outdated: vec![Outdated { leaf: Guid(0xa0), since: 190 }],
        host: None,
        counted: 0,
    }
}

/// Of a pool that a known host uses.
pub fn used_uberblock() -> Uberblock {
    let host = Some(Host { id: 0x1122_3344_5566_7788, name: "storage-1".into() });
    Uberblock { host, ..uberblock() }
}

/// One that says which one counted before it.
pub fn counted_uberblock() -> Uberblock {
    Uberblock { counted: 0x1122_3344_5566, ..used_uberblock() }
}

pub fn resilver_mark() -> ResilverMark {
    let (pool_guid, leaf_guid) = (POOL, Guid(0xa0));
    ResilverMark { pool_guid, leaf_guid, label: 3, sequence: 0x1234, kept: Txg(0x5678) }
}

pub fn first_uberblock() -> Uberblock {
    Uberblock {
        pool_guid: POOL,
        leaf_guid: Guid(0xa0),
        label: 0,
        clean: true,
        sequence: 1,
        txg: Txg(1),
        wall_ns: 0,
        session: 0,
        session_first_txg: Txg(1),
        config_sequence: 1,
        mark: 0,
        log_end: LogEnd::default(),
        restart_chain: 0,
        floor: Txg(1),
        roots: [
            Some(RecordPointer { places: [Place::new(0, 1024), Place::NULL], ..record_at(1, 1) }),
            None,
            None,
        ],
        outdated: Vec::new(),
        host: None,
        counted: 0,
    }
}

pub fn record_at(txg: u64, sectors: u32) -> RecordPointer {
    RecordPointer {
        txg: Txg(txg),
        places: [Place::new(0, 1024 + txg * 16), Place::new(1, 3072 + txg * 16)],
        sectors,
        checksum: CHECKSUM,
    }
}

pub fn record() -> TxgRecord {
    let run = |vdev, sector, sectors| Run::new(Place::new(vdev, sector), sectors);
    TxgRecord {
        pool_guid: POOL,
        txg: Txg(73),
        place: Place::new(0, 1024 + 73 * 16),
        window_start: Txg(68),
        previous: Some(record_at(72, 1)),
        slots: vec![SlotEntry {
            vdev: 1,
            metaslab: 148,
            slot: 3,
            as_of: Txg(73),
            checksum: CHECKSUM,
            free_sectors: 16_000,
            longest_run: 15_000,
        }],
        allocated: vec![run(0, 16384, 1), run(0, 16386, 65535), run(1, 65536, 8)],
        freed: vec![run(1, 70000, 3)],
        root: Some(root()),
    }
}

pub fn earlier_part() -> TxgRecord {
    TxgRecord { slots: Vec::new(), root: None, previous: None, ..record() }
}

pub fn root() -> PoolRoot {
    let mut trees = [None; TREES];
    trees[TreeSlot::Namespace as usize] = Some(pointer(BlockKind::Namespace));
    trees[TreeSlot::Replies as usize] = Some(pointer(BlockKind::Replies));
    let run = |vdev, segment: u64, segments: u64| {
        Run::new(Place::new(vdev, segment * 1024), segments * 1024)
    };
    PoolRoot {
        txg: Txg(73),
        wall_ns: 1_790_000_000_000_000_000,
        trees,
        log: LogRoot {
            chain: 0xc0ff_ee00,
            head_sequence: 13,
            head_place: Place::new(1, 9 * 1024 + 40),
            previous_checksum: CHECKSUM,
            segments: vec![run(0, 20, 2), run(1, 9, 1), run(0, 18, 1)],
        },
        log_home: vec![run(0, 20, 2), run(0, 18, 1)],
        record_segments: vec![run(0, 1, 2), run(1, 3, 2)],
        record_copies: None,
        record_next: Place::new(0, 1024 + 73 * 16 + 2),
        allocated_sectors: vec![100_000, 70_003],
    }
}

pub fn pointer(kind: BlockKind) -> BlockPointer {
    BlockPointer {
        places: [Place::new(0, 16_384), Place::new(0xfedc, 0x1234_5678_9abc)],
        logical_bytes: 4096,
        stored_bytes: 4096,
        kind,
        level: 1,
        compression: 0,
        birth: Txg(72),
        written: Txg(71),
        checksum: CHECKSUM,
    }
}

pub fn extents() -> [Extent; 4] {
    let compressed = |offset_pages, algorithm| Stored::Compressed {
        algorithm,
        offset_pages,
        total_pages: 8,
        stored_sectors: 3,
        stored_bytes: 9000,
        checksum: 0x1122_3344_5566_7788,
    };
    let plain = Extent {
        page: 4096,
        pages: 2,
        birth: Txg(72),
        written: Txg(72),
        place: Place::new(1, 65_536),
        counted: false,
        stored: Stored::Plain([checksum64(b"one"), checksum64(b"two")].into_iter().collect()),
    };
    let early = Extent {
        page: 4098,
        pages: 1,
        written: Txg(70),
        stored: Stored::Plain([7].into_iter().collect()),
        ..plain.clone()
    };
    let part =
        Extent { page: 5000, pages: 3, stored: compressed(2, Compression::Lz4), ..plain.clone() };
    let counted = Extent {
        page: (1 << 48) - 8,
        pages: 8,
        birth: Txg((1 << 40) - 1),
        written: Txg(69),
        place: Place::new(2, 70_000),
        counted: true,
        stored: compressed(0, Compression::Zstd),
    };
    [plain, early, part, counted]
}

pub fn file() -> Inode {
    let time = |nanoseconds| Time { seconds: 1_790_000_000, nanoseconds };
    Inode {
        object: ObjectId(90),
        generation: 41,
        kind: FileKind::Regular,
        damaged: false,
        cloned: false,
        mode: 0o640,
        nlink: 2,
        uid: 36,
        gid: 1000,
        rdev: 0,
        size: 17_179_869_184,
        refer_bytes: 8_589_934_592,
        saved_bytes: 0,
        entries: 0,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        crtime: time(999_999_999),
        change: 12_345,
        parent: ObjectId(0),
        line: 1,
        origin: ObjectId(0),
        verifier: 0xfeed_face,
        hash_seed: 0,
        root: Some(pointer(BlockKind::Extents)),
    }
}

pub fn empty_directory() -> Inode {
    Inode {
        object: ObjectId(1),
        generation: 0,
        kind: FileKind::Directory,
        mode: 0o1777,
        size: 0,
        refer_bytes: 0,
        mtime: Time { seconds: -1, nanoseconds: 0 },
        parent: ObjectId(1),
        verifier: 0,
        hash_seed: 0x5eed,
        root: None,
        ..file()
    }
}

pub fn dirent(name: &[u8]) -> Dirent {
    Dirent {
        key: hash_key(0x5eed, name),
        object: ObjectId(90),
        generation: 41,
        kind: FileKind::Regular,
        name: name.to_vec(),
    }
}

pub fn changes() -> Vec<LogChange> {
    let pages = vec![
        (0, PageSource::Payload),
        (1, PageSource::Zeros),
        (0x0000_ff00_0000_0000, PageSource::Extent),
    ];
    vec![
        LogChange::Inode(Inode { root: None, refer_bytes: 0, ..file() }),
        LogChange::Entry(ObjectId(1), dirent(b"vm-100.qcow2")),
        LogChange::Drop(ObjectId(1), hash_key(0x5eed, b"old")),
        LogChange::Cut(ObjectId(91), 4096),
        LogChange::Pages(ObjectId(90), pages),
        LogChange::Reply(reply()),
    ]
}

pub fn property() -> Item {
    let key = ItemKey::new(DatasetId(7), ItemClass::Property, 1);
    Item { key, value: b"zstd".to_vec() }
}

pub fn dataset() -> DatasetRecord {
    DatasetRecord {
        fs_guid: Guid(0xf5),
        parent: DatasetId(1),
        created: Time { seconds: 1_790_000_000, nanoseconds: 5 },
        next_object: 91,
        next_generation: 42,
        next_snapshot: 3,
        refer_bytes: 8_589_934_592,
        saved_bytes: 0,
        line: 1,
        floor: Txg(44),
        origin: 2,
        objects: Some(pointer(BlockKind::Objects)),
        dead: None,
        name: "vms".into(),
    }
}

pub fn damage() -> DamageRecord {
    DamageRecord {
        kind: DamageKind::Lost,
        inode_lost: true,
        more: false,
        accepted: false,
        dataset: DatasetId(4),
        object: ObjectId(77),
        txg: Txg(51),
        since: Time { seconds: 1_700_000_000, nanoseconds: 5 },
        error: "no copy has the right checksum".into(),
        ranges: vec![(3, 5), (1 << 40, (1 << 40) + 1)],
        names: vec![b"disk.vhd".to_vec()],
    }
}

pub fn accepted_damage() -> DamageRecord {
    DamageRecord {
        kind: DamageKind::Unreadable,
        inode_lost: false,
        accepted: true,
        txg: Txg(0),
        names: Vec::new(),
        ..damage()
    }
}

pub fn scrub() -> ScrubRecord {
    ScrubRecord {
        state: ScrubState::Paused,
        begun: Time { seconds: 1_790_000_000, nanoseconds: 5 },
        ended: Time { seconds: 0, nanoseconds: 0 },
        active_ms: 61_000,
        total_bytes: 1 << 40,
        examined_bytes: 1 << 33,
        repaired_bytes: 8192,
        unreadable_blocks: 3,
        position: WalkPosition { tree: 0, key: (4, 0), object: 77, within: 1 << 20 },
    }
}

pub fn act() -> HistoryRecord {
    HistoryRecord {
        outcome: Outcome::Done,
        cut: false,
        more: true,
        order: 78,
        began: Time { seconds: 1_790_000_000, nanoseconds: 5 },
        who: "token backup from 10.0.0.7".into(),
        host: "store".into(),
        act: "set compression=zstd tank/vms".into(),
        result: String::new(),
        changes: vec![HistoryChange {
            what: "compression".into(),
            before: "lz4".into(),
            after: "zstd".into(),
        }],
    }
}

pub fn counters() -> HistoryCounters {
    HistoryCounters { order: 79, act: 61, attempt: 78 }
}

pub fn line() -> LineRecord {
    LineRecord { fork: Txg(45), origin_dataset: DatasetId(4), origin_snapshot: 2, floor: Txg(44) }
}

pub fn batch() -> BatchHeader {
    let record = |page_sums, extents, body: &[u8]| LogRecord {
        kind: 1,
        txg: Txg(74),
        dataset: DatasetId(7),
        object: ObjectId(90),
        page_sums,
        extents,
        body: body.to_vec(),
    };
    let [plain, early, ..] = extents();
    BatchHeader {
        pool_guid: POOL,
        place: Place::new(1, 9 * 1024 + 40),
        chain: 0xc0ff_ee00,
        session: 5,
        sequence: 13,
        previous: CHECKSUM,
        mark: 11,
        records: vec![
            record(vec![], vec![], b"a body"),
            record(vec![checksum64(&[0; 4096]), 2, 3], vec![], b"pages"),
            record(vec![], vec![plain, early], b""),
        ],
    }
}

pub const BUCKET: Bucket = Bucket { group: 0, hi: Txg(66), lo: Txg(49) };

pub fn dead_list() -> DeadEntry {
    let key = DeadKey { bucket: BUCKET, object: ObjectId(90), txg: Txg(70), index: 1 };
    let block = |kind, place, sectors, birth| DeadBlock {
        kind,
        run: Run::new(place, sectors),
        birth: Txg(birth),
        saved_sectors: 0,
    };
    let extent = block(DeadKind::Extent, Place::new(1, 70_000), 3, 50);
    let node = block(DeadKind::Node, Place::new(0, 81_000), 1, 66);
    DeadEntry { key, body: DeadBody::Blocks(vec![extent, node]) }
}

pub fn dead_sums() -> DeadEntry {
    let sums = DeadSums { sectors: 4, saved_sectors: 0, blocks: 2 };
    DeadEntry { key: BUCKET.sums(), body: DeadBody::Sums(sums) }
}

pub fn snapshot() -> SnapshotRecord {
    SnapshotRecord {
        guid: Guid(0x5a5a_1234),
        created: Time { seconds: 1_790_000_100, nanoseconds: 7 },
        refer_bytes: 1 << 30,
        saved_bytes: 0,
        line: 1,
        objects: Some(pointer(BlockKind::Objects)),
        name: "before-upgrade".into(),
    }
}

pub fn sweep() -> SweepRecord {
    SweepRecord { left: Txg(80) }
}

pub fn reply() -> ReplyEntry {
    ReplyEntry {
        order: 1_000_001,
        call: CallId {
            client: CHECKSUM,
            xid: 0x1234_5678,
            procedure: (100_003 << 8) | 8,
            arguments: 0xa1a2_a3a4_a5a6_a7a8,
        },
        status: 17,
        dataset: DatasetId(7),
        object: ObjectId(90),
        generation: 41,
    }
}
