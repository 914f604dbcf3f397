//! Hostile bytes: decoding is total. It does not panic, loop, or take memory out of proportion to
//! the bytes. A value that it accepts can be written and read again.

use std::time::{Duration, Instant};

use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::codec::Reader;
use aquifer_ondisk::dead::DeadEntry;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::layout::LEAVES_MAX;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_ondisk::pool_root::SEGMENTS_MAX;
use aquifer_ondisk::tree_node::{
    Dead, Directory, Extents, Namespace, Node, NodeBody, Objects, Replies,
};
use aquifer_ondisk::txg_record::RECORD_SECTORS_MAX;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::uberblock::Uberblock;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::samples::{Sample, attempt, samples};
use crate::structures::{pointer_to, reseal};

/// Memory for each decoded byte. The densest value on disk is an empty feature's name: 2 bytes that
/// become a `String` of 24, in a list that doubles as it grows. For a while the old and the new
/// list exist.
const MEMORY_PER_BYTE: usize = 48;
/// Memory for any length: a list's first few places.
const MEMORY_FIXED: usize = 2048;
/// A list of 2^32 missing entries takes longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// Decodes changed bytes of a sample, with a right checksum if it has one.
fn provoke(sample: &Sample, mut bytes: Vec<u8>) -> bool {
    if sample.sealed {
        reseal(&mut bytes);
    }
    let begun = Instant::now();
    let attempt = (sample.attempt)(&bytes);
    let name = sample.name;
    assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", begun.elapsed());
    let fair = MEMORY_PER_BYTE * bytes.len() + MEMORY_FIXED;
    let peak = attempt.peak_bytes;
    assert!(peak <= fair, "{name}: {peak} bytes of memory for {} on disk", bytes.len());
    attempt.read
}

/// The meaningful bytes of a sample: those before the padding.
fn said(sample: &Sample) -> usize {
    let end = sample.bytes.len() - if sample.sealed { 16 } else { 0 };
    let body = &sample.bytes[..end];
    body.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1)
}

#[test]
fn no_field_of_any_value_is_taken_on_trust() {
    for sample in samples() {
        let (mut read, mut refused) = (0, 0);
        for at in 0..said(&sample) {
            for width in [1, 2, 4, 8] {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bytes = sample.bytes.clone();
                    let Some(field) = bytes.get_mut(at..at + width) else { continue };
                    if field.iter().all(|byte| *byte == value) {
                        continue;
                    }
                    field.fill(value);
                    if provoke(&sample, bytes) { read += 1 } else { refused += 1 }
                }
            }
        }
        assert!(read + refused > 0 || sample.bytes.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn every_length_is_survived() {
    for sample in samples() {
        let whole = sample.bytes.len();
        for length in (0..said(&sample) + 32).chain([whole / 2, whole.saturating_sub(1)]) {
            let length = length.min(whole);
            provoke(&sample, sample.bytes[..length].to_vec());
        }
        let mut longer = sample.bytes.clone();
        longer.resize(whole + 4096, 0xa5);
        provoke(&sample, longer);
    }
}

/// A single changed bit, without a matching checksum.
#[test]
fn a_seal_shows_every_bit() {
    for sample in samples().into_iter().filter(|sample| sample.sealed) {
        let length = sample.bytes.len();
        let padding = (said(&sample)..length).step_by(97);
        for at in (0..said(&sample)).chain(padding).chain(length - 16..length) {
            for bit in 0..8 {
                let mut bytes = sample.bytes.clone();
                bytes[at] ^= 1 << bit;
                assert!(
                    !(sample.attempt)(&bytes).read,
                    "{}: bit {bit} of byte {at:#x}",
                    sample.name
                );
            }
        }
    }
}

/// Counts that promise far more than there is, in each place where a count stands.
#[test]
fn counts_beyond_the_bytes_are_refused() {
    // (sample, offset of the count, its width)
    let counts = [
        ("label_config_v1", "features_read", 0x2b, 4),
        ("label_config_v1", "length of the name", 0x25, 2),
        ("uberblock_v1", "outdated", 292, 4),
        ("txg_record_v1", "slots", 100, 4),
        ("txg_record_v1", "groups of allocated runs", 148, 4),
        ("txg_record_v1", "runs of the first group", 154, 4),
        ("pool_root_v2", "trees", 24, 4),
        ("pool_root_v2", "runs of log segments", 28 + 8 * 64 + 40, 4),
        ("log_batch_v1", "records", 84, 4),
        ("log_batch_v1", "bytes of the first body", 88, 4),
        ("log_batch_v1", "pages of the first record", 94, 2),
        ("log_batch_v1", "extents of the first record", 96, 2),
        ("node_extents_leaf_v1", "count", 8, 2),
        ("node_extents_leaf_v1", "used", 10, 2),
        ("node_namespace_inner_v1", "count", 8, 2),
        ("dirent_v1", "length of the name", 25, 2),
        ("namespace_item_v1", "length of the value", 16, 2),
        ("dataset_record_v1", "length of the name", 88 + 128, 2),
    ];
    let samples = samples();
    for (name, field, at, width) in counts {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let stored = &sample.bytes[at..at + width];
        let high = &stored[1..];
        assert!(high.iter().all(|byte| *byte == 0), "{name}: no count of {field} at {at:#x}");
        for huge in [0xff, 0x7f] {
            let mut bytes = sample.bytes.clone();
            bytes[at..at + width].fill(huge);
            assert!(!provoke(sample, bytes), "{name}: {huge:#x} {field}");
        }
    }
}

/// Sample, field, its offset and its width: in records of datasets.
const OF_DATASETS: [(&str, &str, usize, usize); 8] = [
    ("dataset_record_v1", "next object", 32, 8),
    ("dataset_record_v1", "next generation", 40, 8),
    ("dataset_record_v1", "floor", 72, 8),
    ("line_record_v1", "fork", 4, 8),
    ("snapshot_record_v1", "version", 0, 2),
    ("sweep_record_v1", "left", 4, 8),
    ("rollback_record_v1", "change", 20, 8),
    ("rollback_record_v1", "pending", 40, 1),
];

/// Values that fit a structure, but from which the engine could not count on.
#[test]
fn numbers_beyond_their_limits_are_refused() {
    let samples = samples();
    let changes = samples.iter().find(|sample| sample.name == "log_changes_v1").unwrap();
    let changes = changes.bytes.len();
    let limits = [
        ("label_config_v1", "config sequence", 12, 8),
        ("uberblock_v1", "sequence", 32, 8),
        ("uberblock_v1", "txg", 40, 8),
        ("uberblock_v1", "session", 56, 8),
        ("uberblock_v1", "first txg of the session", 64, 8),
        ("uberblock_v1", "mark", 80, 8),
        ("uberblock_v1", "floor", 128, 8),
        ("uberblock_v1", "sectors of the newest root", 136 + 24, 4),
        ("txg_record_v1", "txg", 24, 8),
        ("txg_record_v1", "slot", 104 + 6, 1),
        ("txg_record_v1", "place of a run", 158, 8),
        ("log_batch_v1", "sequence", 48, 8),
        ("log_batch_v1", "sectors of the header", 12, 2),
        ("log_batch_v1", "payload pages", 80, 4),
        ("log_batch_v1", "txg of the first record", 100, 8),
        ("pool_root_v2", "head of the log", 28 + 8 * 64 + 8, 8),
        ("pool_root_v2", "place of a segment", 28 + 8 * 64 + 44, 8),
        ("pool_root_v2", "sectors of a segment", 28 + 8 * 64 + 52, 8),
        ("block_pointer_v1", "first place", 0, 8),
        ("block_pointer_v1", "second place", 8, 8),
        ("block_pointer_v1", "stored bytes", 20, 4),
        ("block_pointer_v1", "kind", 24, 1),
        ("block_pointer_v1", "checksum type", 26, 1),
        ("block_pointer_v1", "birth", 32, 8),
        ("extent_plain_v1", "page", 0, 6),
        ("extent_plain_v1", "flags", 6, 1),
        ("extent_plain_v1", "place", 12, 8),
        ("extent_written_v1", "written", 20, 8),
        ("extent_compressed_v1", "algorithm", 20, 1),
        ("extent_compressed_v1", "offset", 21, 1),
        ("extent_compressed_v1", "total pages", 22, 1),
        ("extent_compressed_v1", "stored sectors", 23, 1),
        ("extent_compressed_v1", "stored bytes", 24, 2),
        ("inode_file_v1", "version", 0, 2),
        ("inode_file_v1", "kind", 2, 1),
        ("inode_file_v1", "flags", 3, 1),
        ("inode_file_v1", "object", 4, 8),
        ("inode_file_v1", "generation", 12, 8),
        ("inode_file_v1", "size", 44, 8),
        ("inode_file_v1", "entries", 60, 8),
        ("inode_file_v1", "change", 116, 8),
        ("log_changes_v1", "kind of the first change", 2, 1),
        ("log_changes_v1", "source of the last page", changes - 74, 1),
        ("log_changes_v1", "number of the last change", changes - 73, 1),
        ("log_changes_v1", "order of the reply", changes - 72, 8),
        ("reply_entry_v1", "order", 0, 8),
        ("inode_file_v1", "nanoseconds of mtime", 68 + 12 + 8, 4),
        ("dead_list_v1", "newest snapshot before birth", 16, 8),
        ("dead_list_v1", "txg", 32, 8),
        ("dead_list_v1", "place", 46, 8),
        ("dead_list_v1", "birth", 54, 5),
        ("dead_list_v1", "sectors", 59, 2),
        ("dead_list_v1", "kind", 61, 1),
    ];
    for (name, field, at, width) in limits.into_iter().chain(OF_DATASETS) {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let mut bytes = sample.bytes.clone();
        bytes[at..at + width].fill(0xff);
        assert!(!provoke(sample, bytes), "{name}: {field}");
    }
}

/// Lists that are complete, but longer than a pool's can be.
#[test]
fn lists_beyond_their_limits_are_refused() {
    let samples = samples();
    let sample_of = |name| samples.iter().find(|sample| sample.name == name).unwrap();
    // (sample, offset of the number, its largest valid value, its width)
    let limits = [
        ("uberblock_v1", 292, LEAVES_MAX as u64, 4),
        ("pool_root_v2", 28 + 8 * 64 + 52, SEGMENTS_MAX * SEGMENT_SECTORS, 8),
        ("record_pointer_v1", 24, RECORD_SECTORS_MAX as u64, 4),
    ];
    for (name, at, limit, width) in limits {
        let step = if width == 8 { SEGMENT_SECTORS } else { 1 };
        for (value, right) in [(limit, true), (limit + step, false)] {
            let mut bytes = sample_of(name).bytes.clone();
            if name == "pool_root_v2" {
                // The other runs of the list count too: one is left.
                bytes[at - 12..at - 8].copy_from_slice(&1u32.to_le_bytes());
            }
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            if name == "pool_root_v2" {
                bytes.drain(at + 8..at + 8 + 2 * 16);
            }
            assert_eq!(provoke(sample_of(name), bytes), right, "{name}: {value}");
        }
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let samples = samples();
    let sample = samples.iter().find(|sample| sample.name == "dirent_v1").unwrap();
    for bad in [b'/', 0] {
        let mut bytes = sample.bytes.clone();
        bytes[30] = bad;
        assert!(!provoke(sample, bytes), "{bad}");
    }
    let mut empty = sample.bytes[..27].to_vec();
    empty[25] = 0;
    assert!(!provoke(sample, empty), "an empty name");
}

/// A later version is distinguished from damage: it tells people that they need newer software.
#[test]
fn newer_versions_say_so() {
    for (name, at, ours) in [
        ("label_config_v1", 8, 1),
        ("uberblock_v1", 8, 1),
        ("txg_record_v1", 8, 1),
        ("log_batch_v1", 8, 1),
        ("pool_root_v2", 0, 2),
        ("inode_file_v1", 0, 1),
        ("dataset_record_v1", 0, 1),
        ("line_record_v1", 0, 1),
        ("node_extents_leaf_v1", 4, 1),
    ] {
        let samples = samples();
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        assert_eq!(sample.bytes[at], ours, "{name}: its version is at {at}");
        for version in [0, ours + 1] {
            let mut bytes = sample.bytes.clone();
            bytes[at] = version;
            assert!(!provoke(sample, bytes), "{name}: version {version}");
        }
    }
}

#[derive(Debug, Clone)]
enum Blow {
    Byte(Index, u8),
    Word(Index, u64),
    Copy(Index, Index, u8),
    Cut(Index),
}

fn blow() -> impl Strategy<Value = Blow> {
    let edges = prop::sample::select(vec![0, 1, 1 << 31, u64::MAX, u64::MAX - 1, 1 << 48, 1 << 63]);
    let word = prop_oneof![any::<u64>(), edges];
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Blow::Byte(at, byte)),
        4 => (any::<Index>(), word).prop_map(|(at, word)| Blow::Word(at, word)),
        2 => (any::<Index>(), any::<Index>(), any::<u8>())
            .prop_map(|(from, to, count)| Blow::Copy(from, to, count)),
        1 => any::<Index>().prop_map(Blow::Cut),
    ]
}

fn strike(bytes: &mut Vec<u8>, said: usize, blow: &Blow) {
    let reach = said.min(bytes.len());
    if reach == 0 {
        return;
    }
    match blow {
        Blow::Byte(at, byte) => bytes[at.index(reach)] = *byte,
        Blow::Word(at, word) => {
            let at = at.index(reach);
            let end = bytes.len().min(at + 8);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Blow::Copy(from, to, count) => {
            let (from, to) = (from.index(reach), to.index(reach));
            let count = usize::from(*count).min(reach - from.max(to));
            bytes.copy_within(from..from + count, to);
        }
        Blow::Cut(at) => bytes.truncate(at.index(reach + 1)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_bytes_are_survived(
        which: Index,
        blows in prop::collection::vec(blow(), 1..6),
    ) {
        let samples = samples();
        let sample = &samples[which.index(samples.len())];
        let mut bytes = sample.bytes.clone();
        // Entries are followed by others in their node.
        bytes.extend_from_slice(if sample.bytes.len() < 4096 { &[0x5a; 300] } else { &[] });
        blows.iter().for_each(|blow| strike(&mut bytes, said(sample), blow));
        provoke(sample, bytes);
    }

    #[test]
    fn random_bytes_are_survived(
        mut bytes in prop::collection::vec(any::<u8>(), 0..9000),
        keep in 0usize..64,
    ) {
        for sample in samples() {
            // With and without the first bytes of the real structure, which lead further in.
            provoke(&sample, bytes.clone());
            let keep = keep.min(bytes.len()).min(sample.bytes.len());
            bytes[..keep].copy_from_slice(&sample.bytes[..keep]);
            provoke(&sample, bytes.clone());
        }
    }

    /// Readers that look at bytes before all is verified.
    #[test]
    fn first_looks_are_total(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = BatchHeader::peek_sectors(&bytes);
        let _ = Extent::skip(&mut Reader::new(&bytes, "extent"));
        let _ = DeadEntry::skip(&mut Reader::new(&bytes, "dead entry"));
        let _ = Uberblock::decode(&bytes);
    }
}

/// A node of one form is not a node of another, whatever it holds.
#[test]
fn nodes_of_other_forms_are_refused() {
    for sample in samples().into_iter().filter(|sample| sample.name.starts_with("node_")) {
        let read = [
            attempt::<Node<Extents>>(&sample.bytes),
            attempt::<Node<Objects>>(&sample.bytes),
            attempt::<Node<Directory>>(&sample.bytes),
            attempt::<Node<Namespace>>(&sample.bytes),
            attempt::<Node<Replies>>(&sample.bytes),
            attempt::<Node<Dead>>(&sample.bytes),
        ];
        assert_eq!(read.into_iter().filter(|attempt| attempt.read).count(), 1, "{}", sample.name);
    }
}

/// The densest possible list, in a label of full size.
#[test]
fn a_label_full_of_empty_features_is_read_in_fair_memory() {
    let samples = samples();
    let sample = samples.iter().find(|sample| sample.name == "label_config_v1").unwrap();
    let mut bytes = sample.bytes.clone();
    let list = 0x2b;
    let end = bytes.len() - 16;
    bytes[list..end].fill(0);
    let count = u32::try_from((end - list - 12) / 2).unwrap();
    bytes[list..list + 4].copy_from_slice(&count.to_le_bytes());
    assert!(provoke(sample, bytes), "{count} features and no vdev");
}

/// Besides its bytes, a node's order and its pointer's fields are checked.
#[test]
fn nodes_that_contradict_themselves_or_their_pointer_are_refused() {
    let samples = samples();
    let bytes_of = |name| &samples.iter().find(|sample| sample.name == name).unwrap().bytes;
    let pointer = pointer_to(BlockKind::Directory, 0);
    let leaf = bytes_of("node_directory_leaf_v1");
    let good = Node::<Directory>::decode(leaf, &pointer).unwrap();
    let NodeBody::Leaf(entries) = good.body.clone() else { panic!("a leaf") };
    let with = |entries| Node { body: NodeBody::Leaf(entries), ..good.clone() }.encode().unwrap();
    let mut swapped = entries.clone();
    swapped.swap(0, 1);
    let twice = vec![entries[0].clone(), entries[0].clone()];
    for bad in [swapped, twice] {
        assert!(Node::<Directory>::decode(&with(bad), &pointer).is_err());
    }

    let pointer = pointer_to(BlockKind::Extents, 2);
    let inner = bytes_of("node_extents_inner_v1");
    let good = Node::<Extents>::decode(inner, &pointer).unwrap();
    let NodeBody::Inner(mut children) = good.body.clone() else { panic!("an inner node") };
    children.swap(0, 1);
    let swapped = Node { body: NodeBody::Inner(children), ..good }.encode().unwrap();
    assert!(Node::<Extents>::decode(&swapped, &pointer).is_err());

    for other in [pointer_to(BlockKind::Extents, 1), pointer_to(BlockKind::Dead, 2)] {
        assert!(Node::<Extents>::decode(inner, &other).is_err(), "{other:?}");
    }
    let mut surplus = inner.clone();
    surplus[10] += 1;
    assert!(Node::<Extents>::decode(&surplus, &pointer).is_err(), "a byte that is no entry's");
}
