//! The values with their bytes, for all tests.

use aquifer_ondisk::DatasetId;
use aquifer_ondisk::block_pointer::{BlockKind, BlockPointer};
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Form, Namespace, Objects, Replies};

use crate::damages::{one_free_work, one_open_work};
use crate::histories::{load_of_disks, one_load};
use crate::keeping::{hold_clock, keep};
use crate::memory::peak_of;
use crate::saving::{saving, saving_file, saving_list, saving_sums};
use crate::snapshots::{
    one_bookmark, one_cloned, one_counted_left_head, one_destroyed_bookmark, one_file_clone,
    one_file_clone_across, one_file_line, one_file_rollback, one_file_sweep, one_head_line,
    one_inherited, one_left_head, one_lister, one_of_file, one_receiving, one_resume, one_rollback,
    one_scheduled, one_user_property,
};
use crate::structures::Structure;
use crate::values::{
    accepted_damage, act, batch, changes, chunk_header, counted_uberblock, counters, damage,
    dataset, dead_list, dead_sums, dirent, earlier_part, empty_directory, extents, file,
    first_uberblock, inner, label, label_with_cache, label_with_spare, leaf, line, pointer,
    property, record, record_at, reply, resilver_mark, root, scrub, snapshot, sweep, uberblock,
    used_uberblock,
};

/// Fails unless the bytes are the expected ones.
type Check = dyn Fn(&[u8]);

/// A value with its bytes.
pub struct Sample {
    /// Name of its file.
    pub name: &'static str,
    /// Its title.
    pub about: &'static str,
    /// The value, for people.
    pub value: String,
    /// Its present encoding.
    pub bytes: Vec<u8>,
    /// The structure's own checksum ends the bytes.
    pub sealed: bool,
    /// Fails unless these bytes decode to the value.
    pub decode: Box<Check>,
    /// Decodes other bytes.
    pub attempt: fn(&[u8]) -> Attempt,
}

fn sample<S: Structure + 'static>(name: &'static str, about: &'static str, value: S) -> Sample {
    Sample {
        name,
        about,
        value: format!("{value:#?}"),
        bytes: value.to_bytes().unwrap(),
        sealed: S::SEALED,
        decode: Box::new(move |bytes| assert_eq!(S::from_bytes(bytes).as_ref(), Ok(&value))),
        attempt: attempt::<S>,
    }
}

/// The result of decoding bytes.
pub struct Attempt {
    /// They could be read.
    pub read: bool,
    /// Bytes of memory that this took.
    pub peak_bytes: usize,
}

/// Decodes bytes as an `S`. A decoded value can be written, and comes back.
pub fn attempt<S: Structure>(bytes: &[u8]) -> Attempt {
    let (value, peak_bytes) = peak_of(|| S::from_bytes(bytes));
    let read = value.is_ok();
    if let Ok(value) = value {
        let again = value.to_bytes().unwrap_or_else(|e| panic!("{}: {e}: {value:?}", S::NAME));
        assert_eq!(S::from_bytes(&again).as_ref(), Ok(&value), "{}", S::NAME);
    }
    Attempt { read, peak_bytes }
}

/// All of them.
pub fn samples() -> Vec<Sample> {
    [whole(), small(), entries(), nodes()].into_iter().flatten().collect()
}

/// Structures that are read by themselves.
fn whole() -> Vec<Sample> {
    vec![
        sample(
            "label_config_v1",
            "config area of label 2 of a leaf: a mirror, a single disk, a log vdev",
            label(),
        ),
        sample(
            "label_config_v2",
            "the same after the single disk has grown, with a spare in use and a replaced disk",
            label_with_spare(),
        ),
        sample("label_config_v3", "the first one, with a cache disk", label_with_cache()),
        sample("cache_chunk_v1", "header of a chunk of two runs", chunk_header()),
        sample("uberblock_v1", "uberblock of a pool in service, a leaf outdated", uberblock()),
        sample("uberblock_host_v1", "the same, with the host that wrote it", used_uberblock()),
        sample("uberblock_counted_v1", "and with the one that counted before", counted_uberblock()),
        sample("uberblock_first_v1", "first uberblock of a new pool", first_uberblock()),
        sample("resilver_mark_v1", "mark of a leaf that is being resilvered", resilver_mark()),
        sample("txg_record_v1", "last part of a txg's record, with the pool root", record()),
        sample("txg_record_part_v1", "an earlier part, without root", earlier_part()),
        sample("log_batch_v1", "header of a batch of three records", batch()),
        sample(
            "log_batch_idle_v1",
            "header of a batch without records, which only carries the mark",
            BatchHeader { records: Vec::new(), ..batch() },
        ),
    ]
}

fn covered() -> CoveredRecord {
    CoveredRecord(5 << 20)
}

/// Parts of larger structures.
fn small() -> Vec<Sample> {
    vec![
        sample("log_changes_v1", "body of a log record: a change of each kind", changes()),
        sample("pool_root_v2", "pool root, as at the end of a txg record", root()),
        sample(
            "pool_root_v3",
            "the same, with records in one copy whatever the vdevs say",
            PoolRoot { record_copies: Some(1), ..root() },
        ),
        sample("record_pointer_v1", "pointer to a record with two copies", Some(record_at(71, 16))),
        sample("block_pointer_v1", "block pointer with two places", Some(pointer(BlockKind::Dead))),
        sample("block_pointer_null_v1", "no block pointer", None::<BlockPointer>),
        sample("dataset_record_v1", "value of a namespace item of class 0", dataset()),
        sample("line_record_v1", "value of a namespace item of class 3", line()),
        sample("damage_record_v1", "value of a namespace item of class 5", damage()),
        sample(
            "damage_record_v1_accepted",
            "value of a namespace item of class 5, accepted",
            accepted_damage(),
        ),
        sample("scrub_record_v1", "value of a namespace item of class 6", scrub()),
        sample("dataset_record_saving_v1", "one that counts what it saves", saving(dataset())),
        sample("snapshot_record_v1", "value of a namespace item of class 2", snapshot()),
        sample("sweep_record_v1", "value of a namespace item of class 7", sweep()),
        sample("rollback_record_v1", "value of a namespace item of class 8", one_rollback()),
        sample("lister_record_v1", "value of a namespace item of class 12", one_lister()),
        sample("covered_record_v1", "value of a namespace item of class 31", covered()),
        sample("inherited_record_v1", "value of a namespace item of class 14", one_inherited()),
        sample("file_snapshot_record_v1", "value of a namespace item of class 16", one_of_file()),
        sample("file_snapshot_record_scheduled_v1", "one that a schedule took", one_scheduled()),
        sample("file_sweep_record_v1", "value of a namespace item of class 17", one_file_sweep()),
        sample(
            "file_rollback_record_v1",
            "value of a namespace item of class 20",
            one_file_rollback(),
        ),
        sample("file_clone_record_v1", "value of a namespace item of class 21", one_file_clone()),
        sample("file_line_record_v1", "value of a namespace item of class 26", one_file_line()),
        sample(
            "file_clone_across_record_v1",
            "value of a namespace item of class 27",
            one_file_clone_across(),
        ),
        sample("head_line_record_v1", "value of a namespace item of class 28", one_head_line()),
        sample("left_head_record_v1", "value of a namespace item of class 29", one_left_head()),
        sample(
            "left_head_record_counted",
            "the same, with what it counts",
            one_counted_left_head(),
        ),
        sample("receiving_record_v1", "value of a namespace item of class 22", one_receiving()),
        sample("resume_record_v1", "value of a namespace item of class 23", one_resume()),
        sample("bookmark_record_v1", "value of a namespace item of class 24", one_bookmark()),
        sample("bookmark_destroyed_v1", "the same, destroyed", one_destroyed_bookmark()),
        sample(
            "user_property_v1",
            "values of the namespace items of a number of class 25, together",
            one_user_property(),
        ),
        sample("keep_record_v1", "value of a namespace item of class 10", keep()),
        sample("hold_clock_v1", "value of a namespace item of class 11", hold_clock()),
        sample("free_work_record_v1", "value of a namespace item of class 15", one_free_work()),
        sample("open_work_record_v1", "value of a namespace item of class 19", one_open_work()),
        sample("history_record_v1", "value of an item of the history, class 1 or 2", act()),
        sample("history_counters_v1", "value of the history's first item", counters()),
        sample("load_disks_v1", "value of an item of the history, class 5", load_of_disks()),
        sample("load_record_v1", "the same of a VM disk, with two samples", one_load()),
    ]
}

/// Entries of leaves.
fn entries() -> Vec<Sample> {
    let [plain, early, part, counted] = extents();
    vec![
        sample("extent_plain_v1", "two pages as they are", plain),
        sample("extent_written_v1", "a page written before it entered the tree", early),
        sample("inode_clone_v1", "inode of a clone of a file", one_cloned()),
        sample("inode_saving_v1", "inode of a file that compression makes smaller", saving_file()),
        sample("extent_compressed_v1", "pages 2 to 4 of a compressed extent of 8", part),
        sample("extent_counted_v1", "a compressed extent of a clone, with `written`", counted),
        sample("inode_file_v1", "inode of a file", file()),
        sample("inode_directory_v1", "inode of an empty directory, before 1970", empty_directory()),
        sample("dirent_v1", "directory entry", dirent(b"vm-100.qcow2")),
        sample("namespace_item_v1", "a property, `compression`", property()),
        sample("dead_list_v1", "a dead extent and a dead node", dead_list()),
        sample("dead_sums_v1", "the sums of their bucket", dead_sums()),
        sample("dead_list_saving_v1", "dead blocks that were compressed", saving_list()),
        sample("dead_sums_saving_v1", "the sums of their bucket", saving_sums()),
        sample("reply_entry_v1", "an answered call", reply()),
    ]
}

/// Leaf and inner node of every form.
fn nodes() -> Vec<Sample> {
    let in_key_order = |mut entries: Vec<Dirent>| {
        entries.sort_by_key(|entry| entry.key);
        entries
    };
    let names = [&b"a"[..], b"vm-100.qcow2", "\u{e9}".as_bytes()];
    let namespace = vec![
        Item {
            key: ItemKey::new(DatasetId(0), ItemClass::Record, 0),
            value: 8u64.to_le_bytes().into(),
        },
        Item { key: ItemKey::new(DatasetId(7), ItemClass::Record, 0), value: dataset().encode() },
        property(),
        Item { key: ItemKey::new(DatasetId(7), ItemClass::Line, 1), value: line().encode() },
    ];
    let second = ItemKey::new(DatasetId(7), ItemClass::Property, 6);
    vec![
        sample("node_extents_leaf_v1", "leaf of a file", leaf::<Extents>(extents().into())),
        sample("node_extents_inner_v1", "inner node of a file", inner::<Extents>([0, 4096])),
        sample(
            "node_objects_leaf_v1",
            "leaf of an object table",
            leaf::<Objects>(vec![empty_directory(), file()]),
        ),
        sample("node_objects_inner_v1", "inner node of an object table", inner::<Objects>([0, 90])),
        sample(
            "node_directory_leaf_v1",
            "leaf of a directory",
            leaf::<Directory>(in_key_order(names.map(dirent).into())),
        ),
        sample(
            "node_directory_inner_v1",
            "inner node of a directory",
            inner::<Directory>([0, 1 << 62]),
        ),
        sample("node_namespace_leaf_v1", "leaf of the namespace", leaf::<Namespace>(namespace)),
        sample(
            "node_namespace_inner_v1",
            "inner node of the namespace",
            inner::<Namespace>([Namespace::KEY_MIN, second]),
        ),
        sample("node_replies_leaf_v1", "leaf of the reply table", leaf::<Replies>(vec![reply()])),
        sample(
            "node_replies_inner_v1",
            "inner node of the reply table",
            inner::<Replies>([0, 1_000_001]),
        ),
        sample(
            "node_dead_leaf_v1",
            "leaf of a dead tree",
            leaf::<Dead>(vec![dead_sums(), dead_list()]),
        ),
        sample(
            "node_dead_inner_v1",
            "inner node of a dead tree",
            inner::<Dead>([DeadKey::MIN, dead_list().key]),
        ),
    ]
}
