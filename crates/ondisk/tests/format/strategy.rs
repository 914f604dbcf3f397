//! Arbitrary valid values of every structure.

use aquifer_ondisk::block_pointer::{BlockKind, BlockPointer};
use aquifer_ondisk::dataset::{
    DATASET_NAME_BYTES_MAX, DatasetRecord, ITEM_VALUE_BYTES_MAX, Item, ItemKey, LineRecord,
};
use aquifer_ondisk::dirent::{Dirent, NAME_BYTES_MAX};
use aquifer_ondisk::extent::{
    COMPRESSED_PAGES_MAX, Compression, EXTENT_PAGES_MAX, Extent, PAGE_LIMIT, Stored,
};
use aquifer_ondisk::inode::{FILE_BYTES_MAX, FileKind, Inode, Time};
use aquifer_ondisk::l2arc::{CachedRun, ChunkHeader, RunForm};
use aquifer_ondisk::layout::{BITMAP_SLOTS, LEAVES_MAX};
use aquifer_ondisk::log_batch::{BATCH_SECTORS_MAX, BatchHeader, LogRecord};
use aquifer_ondisk::log_change::{LogChange, PageSource};
use aquifer_ondisk::pool_root::{LogRoot, PoolRoot, TREES};
use aquifer_ondisk::reply::{CallId, ReplyEntry};
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::tree_node::{Form, LEVELS_MAX, NODE_CAPACITY_BYTES, Node, NodeBody, NodeOwner};
use aquifer_ondisk::txg_record::{
    RECORD_SECTORS_MAX, RUN_SECTORS_MAX, RecordPointer, SlotEntry, TxgRecord,
};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS, SEQUENCE_LIMIT};
use aquifer_ondisk::uberblock::{Host, LogEnd, Outdated, Uberblock};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Place, Txg};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

mod labels;

pub use labels::label;

fn guid() -> impl Strategy<Value = Guid> {
    any::<u64>().prop_map(Guid)
}

fn dataset_id() -> impl Strategy<Value = DatasetId> {
    any::<u64>().prop_map(DatasetId)
}

fn object_id() -> impl Strategy<Value = ObjectId> {
    any::<u64>().prop_map(ObjectId)
}

/// Numbers below a limit, its edge more often than by chance.
fn below(limit: u64) -> impl Strategy<Value = u64> + Clone {
    prop_oneof![4 => 0..limit, 1 => Just(limit - 1), 1 => Just(0)]
}

pub fn txg() -> impl Strategy<Value = Txg> {
    below(Txg::LIMIT).prop_map(Txg)
}

fn sequence() -> impl Strategy<Value = u64> {
    below(SEQUENCE_LIMIT)
}

/// Any place that exists.
fn place() -> impl Strategy<Value = Place> {
    (any::<u16>(), below(Place::SECTOR_LIMIT)).prop_map(|(vdev, at)| Place::new(vdev, at))
}

/// A place, not null, at which a run of `sectors` begins.
fn place_of(sectors: u64) -> impl Strategy<Value = Place> {
    let starts = below(Place::SECTOR_LIMIT - sectors - 1);
    (any::<u16>(), starts).prop_map(|(vdev, at)| Place::new(vdev, at + 1))
}

pub fn run(sectors_max: u64) -> impl Strategy<Value = Run> {
    (1..=sectors_max)
        .prop_flat_map(|sectors| place_of(sectors).prop_map(move |place| Run::new(place, sectors)))
}

/// A text of up to that many bytes.
fn text(bytes_max: usize) -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..=bytes_max / 4).prop_map(|chars| chars.into_iter().collect())
}

pub fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0u32..1_000_000_000)
        .prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
}

fn kind() -> impl Strategy<Value = FileKind> {
    (1u8..=7).prop_map(|number| FileKind::from_u8(number).unwrap())
}

fn pointer_of(kind: BlockKind) -> impl Strategy<Value = BlockPointer> {
    (1u32..=0xf_ffff).prop_flat_map(move |sectors| {
        let places = (place_of(sectors.into()), option::of(place_of(sectors.into())));
        (places, any::<u32>(), any::<u8>(), txg(), txg(), any::<u128>()).prop_map(
            move |((first, second), logical_bytes, level, birth, written, checksum)| BlockPointer {
                places: [first, second.unwrap_or(Place::NULL)],
                logical_bytes,
                stored_bytes: sectors * 4096,
                kind,
                level,
                compression: 0,
                birth,
                written,
                checksum,
            },
        )
    })
}

pub fn pointer() -> impl Strategy<Value = BlockPointer> {
    (1u8..=8).prop_flat_map(|kind| pointer_of(BlockKind::from_u8(kind).unwrap()))
}

pub fn record_pointer() -> impl Strategy<Value = RecordPointer> {
    let sectors = 1..=u32::try_from(RECORD_SECTORS_MAX).unwrap();
    sectors.prop_flat_map(|sectors| {
        let places = (place_of(sectors.into()), option::of(place_of(sectors.into())));
        (txg(), places, any::<u128>()).prop_map(move |(txg, (first, second), checksum)| {
            let places = [first, second.unwrap_or(Place::NULL)];
            RecordPointer { txg, places, sectors, checksum }
        })
    })
}

pub fn resilver_mark() -> impl Strategy<Value = ResilverMark> {
    (guid(), guid(), 0u8..4, sequence(), txg()).prop_map(
        |(pool_guid, leaf_guid, label, sequence, kept)| ResilverMark {
            pool_guid,
            leaf_guid,
            label,
            sequence,
            kept,
        },
    )
}

pub fn chunk_header() -> impl Strategy<Value = ChunkHeader> {
    let form = prop_oneof![Just(RunForm::Pages), Just(RunForm::Block)];
    let run = (any::<u64>(), txg(), 1u8..=16, form).prop_map(|(place, written, sectors, form)| {
        CachedRun { place: Place(place), written, sectors, form }
    });
    let own = (guid(), guid(), any::<u64>(), sequence());
    (own, proptest::collection::vec(run, 0..16)).prop_map(
        |((pool, leaf, chunk, sequence), runs)| ChunkHeader { pool, leaf, chunk, sequence, runs },
    )
}

pub fn uberblock() -> impl Strategy<Value = Uberblock> {
    let identity = (guid(), guid(), 0u8..4, any::<bool>(), sequence(), txg(), any::<u64>());
    let session = (sequence(), txg(), sequence(), sequence(), sequence());
    let log = (any::<u64>(), sequence(), any::<u128>(), any::<u64>(), txg());
    let roots = [(); 3].map(|()| option::of(record_pointer()));
    let outdated = (guid(), sequence()).prop_map(|(leaf, since)| Outdated { leaf, since });
    let host = (1u64.., "[a-z0-9.-]{0,64}").prop_map(|(id, name)| Host { id, name });
    let parts = (identity, session, log, roots, vec(outdated, 0..=LEAVES_MAX), option::of(host));
    parts.prop_map(|(identity, session, log, roots, outdated, host)| {
        let (pool_guid, leaf_guid, label, clean, sequence, txg, wall_ns) = identity;
        let (session, session_first_txg, config_sequence, mark, counted) = session;
        let (chain, end, checksum, restart_chain, floor) = log;
        Uberblock {
            pool_guid,
            leaf_guid,
            label,
            clean,
            sequence,
            txg,
            wall_ns,
            session,
            session_first_txg,
            config_sequence,
            mark,
            log_end: LogEnd { chain, sequence: end, checksum },
            restart_chain,
            floor,
            roots,
            outdated,
            host,
            counted,
        }
    })
}

fn segments() -> impl Strategy<Value = Vec<Run>> {
    let run = (1u64..=64).prop_flat_map(|segments| {
        place_of(segments * SEGMENT_SECTORS)
            .prop_map(move |place| Run::new(place, segments * SEGMENT_SECTORS))
    });
    vec(run, 0..20)
}

pub fn root() -> impl Strategy<Value = PoolRoot> {
    // Boxed: the whole of it would not fit a test's stack.
    let trees = vec(option::of(pointer().boxed()), TREES);
    let trees = trees.prop_map(|trees| trees.try_into().unwrap()).boxed();
    let log = (any::<u64>(), 1..SEQUENCE_LIMIT, place(), any::<u128>(), segments());
    let rest = (segments(), segments(), option::of(1u8..=2), place(), vec(any::<u64>(), 0..20));
    (txg(), any::<u64>(), trees, log, rest).prop_map(|(txg, wall_ns, trees, log, rest)| {
        let (chain, head_sequence, head_place, previous_checksum, segments) = log;
        let (log_home, record_segments, record_copies, record_next, allocated_sectors) = rest;
        PoolRoot {
            txg,
            wall_ns,
            trees,
            log: LogRoot { chain, head_sequence, head_place, previous_checksum, segments },
            log_home,
            record_segments,
            record_copies,
            record_next,
            allocated_sectors,
        }
    })
}

pub fn record() -> impl Strategy<Value = TxgRecord> {
    let slot = (
        (any::<u16>(), any::<u32>(), 0..BITMAP_SLOTS),
        (txg(), any::<u128>(), any::<u64>(), any::<u32>()),
    );
    let slot = slot.prop_map(|((vdev, metaslab, slot), numbers)| {
        let (as_of, checksum, free_sectors, longest_run) = numbers;
        SlotEntry { vdev, metaslab, slot, as_of, checksum, free_sectors, longest_run }
    });
    let runs = || vec(run(RUN_SECTORS_MAX), 0..200);
    let head = (guid(), txg(), place(), txg(), option::of(record_pointer()));
    let parts = (head, vec(slot, 0..50), runs(), runs(), option::of(root().boxed()));
    parts.prop_map(|(head, slots, allocated, freed, root)| {
        let (pool_guid, txg, place, window_start, previous) = head;
        TxgRecord { pool_guid, txg, place, window_start, previous, slots, allocated, freed, root }
    })
}

pub fn extent() -> impl Strategy<Value = Extent> {
    let plain = (1..=EXTENT_PAGES_MAX).prop_flat_map(|pages| {
        let count = usize::try_from(pages).unwrap();
        let sums =
            vec(any::<u64>(), count).prop_map(|sums| Stored::Plain(sums.into_iter().collect()));
        (Just(pages), Just(pages), sums)
    });
    let algorithm = prop_oneof![Just(Compression::Lz4), Just(Compression::Zstd)];
    let total = 2..=u8::try_from(COMPRESSED_PAGES_MAX).unwrap();
    let compressed = (total, algorithm).prop_flat_map(|(total_pages, algorithm)| {
        let shown =
            (0..total_pages).prop_flat_map(move |from| (Just(from), 1..=total_pages - from));
        let stored = (1..total_pages, any::<u16>(), any::<u64>());
        (shown, stored).prop_map(move |((offset_pages, pages), stored)| {
            let (stored_sectors, bytes, checksum) = stored;
            let room = u16::from(stored_sectors) * 4096;
            let stored = Stored::Compressed {
                algorithm,
                offset_pages,
                total_pages,
                stored_sectors,
                stored_bytes: bytes % (room + 1),
                checksum,
            };
            (u64::from(pages), u64::from(stored_sectors), stored)
        })
    });
    let stored = prop_oneof![plain.boxed(), compressed.boxed()];
    stored.prop_flat_map(|(pages, sectors, stored)| {
        let birth = (txg(), option::of(txg()), any::<bool>());
        (below(PAGE_LIMIT - pages + 1), place_of(sectors), birth).prop_map(
            move |(page, place, (birth, written, counted))| Extent {
                page,
                pages: u8::try_from(pages).unwrap(),
                birth,
                written: written.unwrap_or(birth),
                place,
                counted,
                stored: stored.clone(),
            },
        )
    })
}

pub fn inode() -> impl Strategy<Value = Inode> {
    let identity = (object_id(), any::<u64>(), kind(), any::<[u32; 5]>(), any::<u64>());
    let size = (0..=FILE_BYTES_MAX, any::<u64>(), any::<u64>());
    let rest = (any::<[u64; 4]>(), object_id(), object_id());
    let root = option::of(pointer());
    (identity, size, [time(), time(), time(), time()], rest, root).prop_map(
        |(identity, size, [atime, mtime, ctime, crtime], rest, root)| {
            let (object, generation, kind, [mode, nlink, uid, gid, minor], major) = identity;
            let (size, refer_bytes, entries) = size;
            let ([change, line, verifier, hash_seed], parent, origin) = rest;
            let counters = [change, object.0, generation, entries].map(|counter| counter >> 1);
            let [change, object, generation, count] = counters;
            let object = ObjectId(object);
            let (entries, saved_bytes) = match kind {
                FileKind::Directory => (count, 0),
                _ => (0, count),
            };
            Inode {
                object,
                generation,
                kind,
                damaged: mode % 5 == 0,
                cloned: mode % 3 == 0 && kind == FileKind::Regular,
                mode,
                nlink,
                uid,
                gid,
                rdev: major << 32 | u64::from(minor),
                size,
                refer_bytes,
                saved_bytes,
                entries,
                atime,
                mtime,
                ctime,
                crtime,
                change,
                parent,
                line,
                origin,
                verifier,
                hash_seed,
                root,
            }
        },
    )
}

pub fn log_change() -> impl Strategy<Value = LogChange> {
    let id = || any::<u64>().prop_map(|id| ObjectId(id >> 1));
    let source = select(vec![PageSource::Zeros, PageSource::Payload, PageSource::Extent]);
    let pages = vec((0..PAGE_LIMIT, source), 0..40);
    prop_oneof![
        inode().prop_map(LogChange::Inode),
        (id(), dirent()).prop_map(|(directory, entry)| LogChange::Entry(directory, entry)),
        (id(), any::<u64>()).prop_map(|(directory, key)| LogChange::Drop(directory, key)),
        (id(), any::<u64>()).prop_map(|(object, page)| LogChange::Cut(object, page)),
        (id(), pages).prop_map(|(object, pages)| LogChange::Pages(object, pages)),
        reply().prop_map(LogChange::Reply),
    ]
}

pub fn dirent() -> impl Strategy<Value = Dirent> {
    let byte = any::<u8>().prop_map(|byte| if matches!(byte, 0 | b'/') { b'_' } else { byte });
    let name = vec(byte, 1..=NAME_BYTES_MAX);
    (any::<u64>(), object_id(), any::<u64>(), kind(), name).prop_map(
        |(key, object, generation, kind, name)| Dirent { key, object, generation, kind, name },
    )
}

pub fn item() -> impl Strategy<Value = Item> {
    let key = (dataset_id(), any::<u64>()).prop_map(|(dataset, item)| ItemKey { dataset, item });
    let value = vec(any::<u8>(), 0..=ITEM_VALUE_BYTES_MAX);
    (key, value).prop_map(|(key, value)| Item { key, value })
}

pub fn dataset() -> impl Strategy<Value = DatasetRecord> {
    let identity = (guid(), dataset_id(), time(), text(DATASET_NAME_BYTES_MAX));
    let roots = (option::of(pointer()), option::of(pointer()));
    let next = [sequence(), sequence(), sequence()];
    (identity, next, any::<[u64; 4]>(), txg(), roots).prop_map(
        |((fs_guid, parent, created, name), next, numbers, floor, (objects, dead))| {
            let [next_object, next_generation, next_snapshot] = next;
            let [refer_bytes, saved_bytes, line, origin] = numbers;
            let saved_bytes = saved_bytes & (line % 2).wrapping_neg();
            DatasetRecord {
                fs_guid,
                parent,
                created,
                next_object,
                next_generation,
                next_snapshot,
                refer_bytes,
                saved_bytes,
                line,
                floor,
                origin,
                objects,
                dead,
                name,
            }
        },
    )
}

pub fn line() -> impl Strategy<Value = LineRecord> {
    (txg(), dataset_id(), any::<u64>(), txg()).prop_map(
        |(fork, origin_dataset, origin_snapshot, floor)| LineRecord {
            fork,
            origin_dataset,
            origin_snapshot,
            floor,
        },
    )
}

pub fn reply() -> impl Strategy<Value = ReplyEntry> {
    let call = (sequence(), any::<u128>(), any::<u32>(), any::<u32>(), any::<u64>());
    let answer = (any::<u32>(), dataset_id(), object_id(), any::<u64>());
    (call, answer).prop_map(|(call, (status, dataset, object, generation))| {
        let (order, client, xid, procedure, arguments) = call;
        let call = CallId { client, xid, procedure, arguments };
        ReplyEntry { order, call, status, dataset, object, generation }
    })
}

fn log_record() -> impl Strategy<Value = LogRecord> {
    let ids = (any::<u16>(), txg(), dataset_id(), object_id());
    let content = (vec(any::<u64>(), 0..20), vec(extent(), 0..5), vec(any::<u8>(), 0..600));
    (ids, content).prop_map(|((kind, txg, dataset, object), (page_sums, extents, body))| {
        LogRecord { kind, txg, dataset, object, page_sums, extents, body }
    })
}

pub fn batch() -> impl Strategy<Value = BatchHeader> {
    let head = (guid(), place(), any::<u64>(), sequence(), sequence(), any::<u128>(), sequence());
    (head, vec(log_record(), 0..30)).prop_map(|(head, mut records)| {
        let (pool_guid, place, chain, session, sequence, previous, mark) = head;
        loop {
            let batch = BatchHeader {
                pool_guid,
                place,
                chain,
                session,
                sequence,
                previous,
                mark,
                records: records.clone(),
            };
            if batch.header_sectors() + batch.payload_pages() <= BATCH_SECTORS_MAX {
                return batch;
            }
            records.pop();
        }
    })
}

fn owner() -> impl Strategy<Value = NodeOwner> {
    (dataset_id(), object_id()).prop_map(|(dataset, object)| NodeOwner { dataset, object })
}

/// A leaf of these entries, as many of them as fit, in key order.
pub fn leaf<F: Form>(entry: impl Strategy<Value = F::Entry>) -> impl Strategy<Value = Node<F>> {
    (owner(), txg(), vec(entry, 0..60)).prop_map(|(owner, written, mut entries)| {
        entries.sort_by_key(F::key);
        entries.dedup_by_key(|entry| F::key(entry));
        let mut used = 0;
        entries.retain(|entry| {
            used += F::entry_bytes(entry);
            used <= NODE_CAPACITY_BYTES
        });
        Node { level: 0, owner, written, body: NodeBody::Leaf(entries) }
    })
}

/// An inner node with these keys.
pub fn inner<F: Form>(key: impl Strategy<Value = F::Key>) -> impl Strategy<Value = Node<F>> {
    let count = NODE_CAPACITY_BYTES / Node::<F>::INNER_ENTRY_BYTES;
    let children = vec((key, pointer_of(F::KIND)), 0..=count);
    (owner(), txg(), 1..LEVELS_MAX, children).prop_map(|(owner, written, level, mut children)| {
        children.sort_by_key(|(key, _)| *key);
        children.dedup_by_key(|(key, _)| *key);
        Node { level, owner, written, body: NodeBody::Inner(children) }
    })
}
