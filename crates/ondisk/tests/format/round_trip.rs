//! Written values are read back, whatever they are. Values that could not be read back are refused
//! before they are written.

use aquifer_ondisk::codec::FormatError;
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::dataset::{DatasetRecord, ITEM_VALUE_BYTES_MAX, ItemKey};
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Namespace, Objects, Replies};
use aquifer_ondisk::txg_record::RECORD_SECTORS_MAX;
use aquifer_ondisk::types::{Run, SEQUENCE_LIMIT};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_ondisk::{DatasetId, Place, Txg};
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::structures::Structure;
use crate::{damages, histories, keeping, snapshots, strategy};

fn round_trips<S: Structure>(values: impl Strategy<Value = S>) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let checked = TestRunner::new(config).run(&values, |value| {
        let bytes = value.to_bytes().unwrap();
        let again = S::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&again, &value);
        prop_assert_eq!(again.to_bytes(), Ok(bytes), "one value, one encoding");
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{}: {error}", S::NAME);
    }
}

#[test]
fn labels_and_uberblocks() {
    round_trips(strategy::label());
    round_trips(strategy::uberblock());
    round_trips(strategy::resilver_mark());
    round_trips(strategy::chunk_header());
}

#[test]
fn records_and_roots() {
    round_trips(strategy::record());
    round_trips(strategy::root());
    round_trips(option::of(strategy::record_pointer()));
}

#[test]
fn batches() {
    round_trips(strategy::batch());
}

#[test]
fn entries() {
    round_trips(strategy::extent());
    round_trips(strategy::inode());
    round_trips(strategy::dirent());
    round_trips(proptest::collection::vec(strategy::log_change(), 0..12));
    round_trips(strategy::item());
    round_trips(snapshots::dead());
    round_trips(strategy::reply());
}

#[test]
fn values_and_pointers() {
    round_trips(strategy::dataset());
    round_trips(strategy::line());
    round_trips(snapshots::snapshot());
    round_trips(snapshots::sweep());
    round_trips(keeping::any_keep());
    round_trips(snapshots::rollback());
    round_trips(snapshots::lister());
    round_trips(snapshots::receiving());
    round_trips(snapshots::resume());
    round_trips(snapshots::bookmark());
    round_trips(snapshots::user_property());
    round_trips(snapshots::inherited());
    round_trips(snapshots::of_file());
    round_trips(snapshots::file_sweep());
    round_trips(snapshots::file_rollback());
    round_trips(snapshots::file_clone());
    round_trips(snapshots::file_line());
    round_trips(snapshots::file_clone_across());
    round_trips(snapshots::head_line());
    round_trips(snapshots::left_head());
    round_trips(any::<u64>().prop_map(CoveredRecord));
    round_trips(damages::damage());
    round_trips(damages::scrub());
    round_trips(damages::free_work());
    round_trips(damages::open_work());
    round_trips(histories::history());
    round_trips(histories::counters());
    round_trips(histories::load());
    round_trips(option::of(strategy::pointer()));
}

#[test]
fn leaves() {
    round_trips(strategy::leaf::<Extents>(strategy::extent()));
    round_trips(strategy::leaf::<Objects>(strategy::inode()));
    round_trips(strategy::leaf::<Directory>(strategy::dirent()));
    round_trips(strategy::leaf::<Namespace>(strategy::item()));
    round_trips(strategy::leaf::<Replies>(strategy::reply()));
    round_trips(strategy::leaf::<Dead>(snapshots::dead()));
}

#[test]
fn inner_nodes() {
    round_trips(strategy::inner::<Extents>(any::<u64>()));
    round_trips(strategy::inner::<Objects>(any::<u64>()));
    round_trips(strategy::inner::<Directory>(any::<u64>()));
    let key = any::<[u64; 2]>();
    let key = key.prop_map(|[dataset, item]| ItemKey { dataset: DatasetId(dataset), item });
    round_trips(strategy::inner::<Namespace>(key));
    round_trips(strategy::inner::<Replies>(any::<u64>()));
    round_trips(strategy::inner::<Dead>(snapshots::key()));
}

/// The largest dataset record, with the longest name, fits its item.
#[test]
fn the_largest_dataset_record_fits() {
    let values = (strategy::dataset(), strategy::pointer());
    let mut runner = TestRunner::deterministic();
    let (record, pointer) = values.new_tree(&mut runner).unwrap().current();
    let (objects, dead) = (Some(pointer), Some(pointer));
    let record = DatasetRecord { name: "n".repeat(255), objects, dead, ..record };
    assert!(record.encode().len() <= ITEM_VALUE_BYTES_MAX);
}

fn one<T: std::fmt::Debug>(values: impl Strategy<Value = T>) -> T {
    values.new_tree(&mut TestRunner::deterministic()).unwrap().current()
}

#[test]
fn a_label_that_could_not_be_read_back_is_not_written() {
    let good = one(strategy::label().prop_filter("leaves", |l| !l.config.vdevs.is_empty()));
    assert!(good.encode().is_ok());
    let refused = |change: &dyn Fn(&mut aquifer_ondisk::config::PoolConfig)| {
        let mut label = good.clone();
        change(&mut label.config);
        assert!(label.encode().is_err(), "{label:?}");
    };
    refused(&|config| config.vdevs[0].leaves[0].path = "p".repeat(1025));
    refused(&|config| config.name = "n".repeat(256));
    refused(&|config| config.features_read.push("f".repeat(65)));
    refused(&|config| config.features_write.push("f".repeat(65)));
    refused(&|config| config.vdevs[0].leaves.clear());
    refused(&|config| config.vdevs[0].segments = 1 << 38);
    refused(&|config| {
        let leaf = config.vdevs[0].leaves[0].clone();
        config.vdevs[0].leaves.resize(129, leaf);
    });
}

#[test]
fn the_largest_label_has_room() {
    let mut label = one(strategy::label().prop_filter("vdevs", |l| !l.config.vdevs.is_empty()));
    let mut vdev = label.config.vdevs[0].clone();
    vdev.leaves.truncate(1);
    vdev.leaves[0].path = "p".repeat(1024);
    label.config.vdevs = vec![vdev; 128];
    label.config.spares.clear();
    label.config.caches.clear();
    label.config.name = "n".repeat(255);
    assert!(label.encode().is_ok());
}

#[test]
fn an_uberblock_that_could_not_be_read_back_is_not_written() {
    let good = one(strategy::uberblock());
    let refused = |change: &dyn Fn(&mut Uberblock)| {
        let mut uberblock = good.clone();
        change(&mut uberblock);
        assert!(uberblock.to_bytes().is_err(), "{uberblock:?}");
    };
    refused(&|uberblock| uberblock.txg = Txg(Txg::LIMIT));
    refused(&|uberblock| uberblock.session_first_txg = Txg(Txg::LIMIT + 3));
    refused(&|uberblock| uberblock.floor = Txg(u64::MAX));
    refused(&|uberblock| uberblock.sequence = SEQUENCE_LIMIT);
    refused(&|uberblock| uberblock.session = SEQUENCE_LIMIT);
    refused(&|uberblock| uberblock.config_sequence = SEQUENCE_LIMIT);
    refused(&|uberblock| uberblock.mark = SEQUENCE_LIMIT);
    refused(&|uberblock| uberblock.log_end.sequence = SEQUENCE_LIMIT);
    let leaf = aquifer_ondisk::uberblock::Outdated { leaf: good.leaf_guid, since: 1 };
    refused(&|uberblock| uberblock.outdated = vec![leaf; 129]);
    let host = |id, name| Some(aquifer_ondisk::uberblock::Host { id, name });
    refused(&|uberblock| uberblock.host = host(0, "a".into()));
    refused(&|uberblock| uberblock.host = host(1, "a".repeat(65)));
}

#[test]
fn what_is_too_large_is_not_written() {
    let too_large = |result: Result<Vec<u8>, FormatError>| {
        assert!(matches!(result, Err(FormatError::TooLarge { .. })), "{result:?}");
    };
    let mut record = one(strategy::record());
    record.freed = vec![Run::new(Place::new(0, 9), 1); RECORD_SECTORS_MAX * 4096 / 8];
    too_large(record.to_bytes());
    let mut batch = one(strategy::batch().prop_filter("records", |b| !b.records.is_empty()));
    batch.records[0].page_sums = vec![0; 256];
    too_large(batch.to_bytes());
    batch.records[0].page_sums.clear();
    batch.records[0].body = vec![0; 1 << 20];
    too_large(batch.to_bytes());
    let item = one(strategy::item());
    let items = (0..4).map(|number| {
        let mut item = item.clone();
        item.key.item = number;
        item.value = vec![0; ITEM_VALUE_BYTES_MAX];
        item
    });
    let mut node = one(strategy::leaf::<Namespace>(strategy::item()));
    node.body = aquifer_ondisk::tree_node::NodeBody::Leaf(items.collect());
    too_large(node.to_bytes());
}

/// Version 1 had no separate home for the log: it always lay there.
#[test]
fn a_pool_root_of_version_1_has_its_log_at_home() {
    let root = crate::values::root();
    let bytes = root.to_bytes().unwrap();
    let runs = |runs: &[Run]| 4 + 16 * runs.len();
    let home = 580 + runs(&root.log.segments);
    let mut old = bytes[..home].to_vec();
    old.extend(&bytes[home + runs(&root.log_home)..]);
    old[0] = 1;
    let read = aquifer_ondisk::pool_root::PoolRoot::from_bytes(&old).unwrap();
    let log_home = root.log.segments.clone();
    assert_eq!(read, aquifer_ondisk::pool_root::PoolRoot { log_home, ..root });
}
