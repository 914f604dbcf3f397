//! The numbers of the format that are not in any structure: constants, geometry, checksums.

use std::fmt::Write;

use aquifer_ondisk::codec::{SECTOR_BYTES, checksum64, checksum128};
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::{self, Geometry};
use aquifer_ondisk::types::{SEGMENT_SECTORS, SEQUENCE_LIMIT};
use aquifer_ondisk::{
    Place, Txg, block_pointer, config, damage, dataset, dead, dirent, extent, history, inode,
    keeping, l2arc, load, log_batch, pool_root, reply, tree_node, txg_record, uberblock,
    user_property,
};
use proptest::prelude::*;

use crate::golden::{bless, directory};

/// The file that holds them.
pub const FILE: &str = "numbers_v1.txt";

macro_rules! constants {
    ($out:ident: $($path:path),* $(,)?) => { $(
        writeln!($out, "{} = {}", stringify!($path).replace(' ', ""), $path).unwrap();
    )* };
}

fn constants() -> String {
    let mut out = String::new();
    constants!(out:
        SECTOR_BYTES, SEGMENT_SECTORS, SEQUENCE_LIMIT, Place::SECTOR_LIMIT, Txg::LIMIT,
        layout::LABEL_SECTORS, layout::LABELS, layout::CONFIG_OFFSET, layout::CONFIG_SECTORS,
        layout::RING_OFFSET, layout::RING_SLOTS, layout::BITMAP_SLOTS, layout::REWIND_TXGS,
        layout::SLOTS_OFFSET, layout::LEAF_SEGMENTS_MIN, layout::METASLAB_SEGMENTS_MIN,
        layout::METASLAB_SEGMENTS_MAX, layout::METASLABS_PER_VDEV, layout::LEAVES_MAX,
        config::POOL_VERSION, config::POOL_NAME_BYTES_MAX, config::PATH_BYTES_MAX,
        config::FEATURE_BYTES_MAX, config::VDEV_SEGMENTS_MAX, uberblock::ROOTS,
        txg_record::RECORD_SECTORS_MAX, txg_record::RUN_SECTORS_MAX, txg_record::RUN_BYTES,
        txg_record::SLOT_ENTRY_BYTES, txg_record::RecordPointer::BYTES, pool_root::TREES,
        pool_root::SEGMENTS_MAX, block_pointer::BLOCK_POINTER_BYTES, log_batch::BATCH_SECTORS_MAX,
        log_batch::BATCH_HEADER_BYTES, log_batch::BATCH_TRAILER_BYTES,
        tree_node::NODE_HEADER_BYTES, tree_node::NODE_CAPACITY_BYTES, tree_node::ENTRY_BYTES_MAX,
        tree_node::LEVELS_MAX, extent::EXTENT_PAGES_MAX, extent::COMPRESSED_PAGES_MAX,
        extent::EXTENT_BYTES_MAX, extent::PAGE_LIMIT, inode::INODE_BYTES, inode::FILE_BYTES_MAX,
        dirent::NAME_BYTES_MAX, dirent::DIRENT_BYTES_MAX, dirent::COLLISIONS_MAX,
        dataset::ITEM_VALUE_BYTES_MAX, dataset::DATASET_NAME_BYTES_MAX, dead::DeadEntry::BYTES_MAX,
        dead::DEAD_BLOCKS_MAX, dead::DeadKey::BYTES, dataset::SNAPSHOT_NAME_BYTES_MAX,
        reply::ReplyEntry::BYTES, reply::REPLIES_MAX, damage::DAMAGES_MAX,
        damage::DAMAGE_ERROR_BYTES_MAX, damage::DAMAGE_RANGES_MAX, damage::DAMAGE_NAMES_MAX,
        damage::DAMAGE_NAMES_BYTES_MAX, history::HISTORY_ACTS_MAX,
        history::HISTORY_ATTEMPTS_MAX, history::HISTORY_BEGUN_MAX, history::HISTORY_EVENTS_MAX,
        history::HISTORY_WHO_BYTES_MAX,
        history::HISTORY_HOST_BYTES_MAX, history::HISTORY_ACT_BYTES_MAX,
        history::HISTORY_RESULT_BYTES_MAX, history::HISTORY_CHANGES_MAX,
        history::HISTORY_CHANGES_BYTES_MAX, history::HistoryCounters::LIMIT,
        load::LOAD_SAMPLES, load::LOAD_RECORDS_MAX,
        l2arc::CHUNK_SECTORS, l2arc::CHUNK_HEADER_SECTORS,
        keeping::HOLDS_MAX, keeping::HOLD_TAG_BYTES_MAX,
        user_property::USER_NAME_BYTES_MAX, user_property::USER_VALUE_BYTES_MAX,
        user_property::USER_PROPERTIES_MAX, user_property::USER_BYTES_MAX,
        user_property::USER_PIECES_MAX,
    );
    out
}

const MIB: u64 = 256;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// Leaves of these sizes, in sectors: the smallest, odd ones, the largest.
const LEAVES: [(&str, u64); 10] = [
    ("256 MiB", 256 * MIB),
    ("256 MiB + 4 KiB", 256 * MIB + 1),
    ("328 MiB, a last metaslab of one segment", 82 * 1024 + 1023),
    ("1 GiB", GIB),
    ("16 GiB", 16 * GIB),
    ("100 GB", 100_000_000_000 / 4096),
    ("1 TiB", TIB),
    ("10 TB", 10_000_000_000_000 / 4096),
    ("100 TiB", 100 * TIB),
    ("1 EiB", 1 << 48),
];

fn geometry(leaf_sectors: u64) -> String {
    let mut out = String::new();
    let labels: Vec<u64> =
        (0..layout::LABELS).map(|index| layout::label_sector(index, leaf_sectors)).collect();
    writeln!(out, "  labels at sectors {labels:?}").unwrap();
    for (redundancy, kind) in [(Redundancy::Mirror, "mirror"), (Redundancy::Single, "single")] {
        let of = Geometry::new(0, layout::leaf_segments(leaf_sectors) - 1, redundancy);
        let last = of.metaslabs() - 1;
        writeln!(
            out,
            "  {kind}: {} segments, {} metaslabs of {}, slots of {} sectors, {} copies",
            of.segments,
            of.metaslabs(),
            of.metaslab_segments,
            of.slot_sectors(),
            of.copies
        )
        .unwrap();
        for index in [0, 1, last] {
            let slots: Vec<String> = (0..of.copies)
                .map(|copy| {
                    let places = [0, 3].map(|slot| of.slot_place(index, slot, copy));
                    format!("{:?} .. {:?}", places[0], places[1])
                })
                .collect();
            writeln!(
                out,
                "    metaslab {index}: {:?}, slots {}, reserved {:?}",
                of.metaslab_range(index),
                slots.join(" and "),
                of.reserved(index)
            )
            .unwrap();
        }
    }
    out
}

fn checksums() -> String {
    let mut out = String::new();
    let counting: Vec<u8> = (0..=255).cycle().take(4096).collect();
    for (name, bytes) in [
        ("nothing", &b""[..]),
        ("\"aquifer\"", b"aquifer"),
        ("4096 zeros", &[0; 4096]),
        ("4096 bytes 0, 1, .. 255, 0, ..", &counting),
    ] {
        writeln!(out, "{name}: {:#018x} {:#034x}", checksum64(bytes), checksum128(bytes)).unwrap();
    }
    for (seed, name) in [(0, &b"a"[..]), (0x5eed, b"vm-100.qcow2"), (u64::MAX, &[0xff; 255])] {
        let key = dirent::hash_key(seed, name);
        writeln!(out, "key of {:?}, seed {seed:#x}: {key:#018x}", name.escape_ascii().to_string())
            .unwrap();
    }
    out
}

fn text() -> String {
    let mut out =
        String::from("# The numbers of the format. Sizes in bytes unless named otherwise.\n\n");
    out += &constants();
    out += "\n# How vdevs are cut up: (first sector, sectors) of metaslabs and reserved runs,\n";
    out += "# vdev:sector of bitmap slots 0 .. 3.\n";
    for (name, sectors) in LEAVES {
        writeln!(out, "\nleaf of {name}, {sectors} sectors").unwrap();
        out += &geometry(sectors);
    }
    out += "\n# Checksums: xxh3-64 and xxh3-128. On disk both are little-endian.\n";
    out + &checksums()
}

#[test]
fn golden_numbers_stand() {
    let path = directory().join(FILE);
    if bless() {
        std::fs::write(&path, text()).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (stored, now) in stored.lines().zip(text().lines()) {
        assert_eq!(stored, now, "pools in use are laid out by the old number");
    }
    assert_eq!(stored, text());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Metaslabs divide the vdev; reserved runs lie within them, clear of labels and each other.
    #[test]
    fn any_vdev_is_cut_up_soundly(
        segments in prop_oneof![
            layout::LEAF_SEGMENTS_MIN - 1..20_000,
            layout::LEAF_SEGMENTS_MIN - 1..=config::VDEV_SEGMENTS_MAX,
        ],
        redundancy in prop_oneof![Just(Redundancy::Mirror), Just(Redundancy::Single)],
        which: prop::sample::Index,
    ) {
        let of = Geometry::new(3, segments, redundancy);
        prop_assert!(of.segments == segments || of.segments == segments - 1);
        let count = of.metaslabs();
        let (last, sectors) = of.metaslab_range(count - 1);
        prop_assert_eq!(last + sectors, of.sectors());
        let index = which.index(usize::try_from(count).unwrap()) as u64;
        let (start, sectors) = of.metaslab_range(index);
        prop_assert_eq!(start, index * of.metaslab_sectors());
        let mut end = start;
        for (first, count) in of.reserved(index) {
            prop_assert!(end <= first && count > 0, "runs in order, apart");
            end = first + count;
        }
        prop_assert!(end <= start + sectors);
        for copy in 0..of.copies {
            let first_sector = |slot| of.slot_place(index, slot, copy).sector();
            let slots: Vec<u64> = (0..layout::BITMAP_SLOTS).map(first_sector).collect();
            for (slot, first) in slots.iter().enumerate() {
                prop_assert_eq!(*first, slots[0] + slot as u64 * of.slot_sectors());
                let last = first + of.slot_sectors();
                let within = of.reserved(index).iter().any(|(at, count)| {
                    at <= first && last <= at + count
                });
                prop_assert!(within, "a slot is reserved");
                prop_assert!(*first >= layout::LABELS / 2 * layout::LABEL_SECTORS, "labels");
                prop_assert_eq!(first / SEGMENT_SECTORS, (last - 1) / SEGMENT_SECTORS);
            }
        }
    }
}
