//! Objects, datasets and what else the namespace holds.

use aquifer_inspect::{Kind, Report};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::{DatasetId, Guid, ObjectId};

use crate::pool::{HandPool, Shape};
use crate::tree::{Content, FIFO, ORPHANS, TAIL, counter, namespace};
use crate::{changed, content, look, only};

#[test]
fn inodes_that_contradict_themselves() {
    let changes: [fn(&mut aquifer_ondisk::inode::Inode); 3] = [
        |inode| inode.generation = 1000,
        |inode| inode.mode = 0o100_644,
        |inode| inode.entries = 1,
    ];
    for change in changes {
        // An object that is in no list by generation.
        let report = content(|_, sample, _| {
            change(sample.inodes.get_mut(&TAIL).unwrap());
            let generation = sample.inodes[&TAIL].generation;
            let listed = sample.directories.get_mut(&ORPHANS).unwrap();
            listed.iter_mut().find(|entry| entry.object.0 == TAIL).unwrap().generation = generation;
        });
        assert_eq!(only(&report, Kind::ObjectInvalid).at.object, Some(ObjectId(TAIL)));
    }
    let report = content(|_, _, below| below.record.next_object = 2);
    assert_eq!(only(&report, Kind::ObjectInvalid).at.object, Some(ObjectId(2)));
    let report = content(|pool, sample, _| {
        let extent = pool.data(0, &[1]);
        sample.files.insert(FIFO, vec![extent]);
    });
    assert_eq!(report.count(Kind::ObjectInvalid), 1, "{report}");
}

/// A namespace of these items beside the sample.
fn items(change: impl FnOnce(&mut Vec<Item>)) -> Report {
    let mut pool = changed(Shape::Single, |_, _, _| {});
    // Written again in a txg of its own, beside the old trees, which are leaked.
    let mut sample = Content::sample(&mut pool);
    let mut below = Content::empty(1, "vms");
    sample.write(&mut pool, 1);
    below.write(&mut pool, 2);
    let mut items = vec![counter(3)];
    items.extend(sample.items(1));
    items.extend(below.items(2));
    change(&mut items);
    items.sort_by_key(|item| item.key);
    namespace(&mut pool, items);
    pool.commit();
    look(pool.arcs())
}

#[test]
fn items_that_cannot_be_understood() {
    let key = |dataset, class: ItemClass, number| ItemKey::new(DatasetId(dataset), class, number);
    let cases = [
        (key(1, ItemClass::Line, 9), vec![1]),
        (key(1, ItemClass::Record, 9), vec![1]),
        (key(0, ItemClass::Line, 9), vec![1]),
        (ItemKey { dataset: DatasetId(1), item: 200 << 56 }, vec![1]),
    ];
    for (key, value) in cases {
        let report = items(|items| items.push(Item { key, value: value.clone() }));
        assert_eq!(report.count(Kind::ItemInvalid), 1, "{key:?} {report}");
    }
    let report = items(|items| items[1].value.truncate(9));
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
    assert_eq!(report.count(Kind::Leaked), 0, "a lost record may own anything: {report}");
    let report = items(|items| items[0].value.clear());
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
    let report = items(|items| {
        let key = ItemKey::new(DatasetId(1), ItemClass::Snapshot, 4);
        items.push(Item { key, value: vec![] });
    });
    assert_eq!(report.count(Kind::Unsupported), 1, "{report}");
}

#[test]
fn datasets_that_contradict_each_other() {
    type Change = fn(&mut HandPool, &mut Content, &mut Content);
    let cases: [(Change, &str); 6] = [
        (|_, _, below| below.record.parent = DatasetId(9), "which is not"),
        (|_, _, below| below.record.parent = DatasetId(0), "none above"),
        (|_, sample, below| below.record.fs_guid = sample.record.fs_guid, "not its own"),
        (|_, _, below| below.record.fs_guid = Guid(0), "not its own"),
        (|_, _, below| below.record.name = "a/b".into(), "is no name"),
        (|_, _, below| below.record.name = String::new(), "is no name"),
    ];
    for (change, says) in cases {
        let report = content(change);
        let finding = only(&report, Kind::DatasetInvalid);
        assert!(finding.sentence.contains(says), "{finding}");
    }
    // Below itself.
    let report = content(|_, sample, below| {
        sample.record.parent = DatasetId(2);
        below.record.parent = DatasetId(1);
    });
    assert_eq!(report.count(Kind::DatasetInvalid), 3, "{report}");
    let orphaned = items(|items| {
        let key = ItemKey::new(DatasetId(7), ItemClass::Property, 1);
        items.push(Item { key, value: vec![] });
    });
    assert_eq!(orphaned.count(Kind::DatasetInvalid), 1, "{orphaned}");
    let counter_low = items(|items| items[0] = counter(2));
    assert_eq!(counter_low.count(Kind::DatasetInvalid), 1, "{counter_low}");
}
