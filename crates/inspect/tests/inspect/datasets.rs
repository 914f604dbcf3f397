//! Objects, datasets and the other items of the namespace.

use aquifer_inspect::{Kind, Report};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::history::{HistoryClass, HistoryCounters, HistoryRecord, Outcome, history_key};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::load::{LoadGrain, LoadOf, LoadRecord};
use aquifer_ondisk::reply::{CallId, ReplyEntry};
use aquifer_ondisk::resume::{ResumeRecord, StreamPlace};
use aquifer_ondisk::tree_node::{Namespace, NodeOwner, Replies};
use aquifer_ondisk::user_property::{UserProperty, user_property_keys};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};

use crate::pool::{HandPool, Shape};
use crate::tree::{Content, FIFO, PLAIN, TAIL, counter, namespace};
use crate::{changed, content, kinds, look, only};

/// A stream that may go on.
pub fn resume(from: Option<Guid>) -> ResumeRecord {
    ResumeRecord {
        to: Guid(5),
        from,
        own_handles: false,
        begun: Txg(9),
        place: StreamPlace { object: ObjectId(17), within: Some(3) },
        pages: 3,
        heard: Time::default(),
        sent: "tank/vms@a".into(),
    }
}

#[test]
fn inodes_that_contradict_themselves() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&TAIL).unwrap().mode = 0o100_644);
    assert_eq!(only(&report, Kind::ObjectInvalid).at.object, Some(ObjectId(TAIL)));
    // What compression saves is summed from the extents, of which a fifo has none.
    let saves = |id| content(|_, sample, _| sample.inodes.get_mut(&id).unwrap().saved_bytes = 4096);
    let report = saves(FIFO);
    let kinds = [Kind::ObjectInvalid, Kind::ReferBytes].map(|kind| report.count(kind));
    assert_eq!(kinds, [1, 1], "{report}");
    let report = saves(PLAIN);
    assert_eq!(report.count(Kind::ReferBytes), 2, "the file and the dataset: {report}");
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
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
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

/// A destroyed dataset is its record of class 4 and the rest of its table. Names, links and the
/// dataset's own name have no meaning any more; sectors and sums do.
#[test]
fn destroyed_datasets_are_looked_at_as_what_they_are() {
    let of = |item: &Item, class: ItemClass| item.key == ItemKey::new(DatasetId(2), class, 0);
    let destroyed = |items: &mut Vec<Item>| {
        let record = items.iter().position(|item| of(item, ItemClass::Record)).unwrap();
        let value = items[record].value.clone();
        items.retain(|item| item.key.dataset != DatasetId(2));
        items.push(Item { key: ItemKey::new(DatasetId(2), ItemClass::Destroyed, 0), value });
    };
    let whole = items(|_| {});
    let report = items(destroyed);
    assert_eq!(kinds(&report), kinds(&whole), "{report}");
    assert_eq!(report.count(Kind::Leaked), whole.count(Kind::Leaked), "{report}");
    // Another dataset may have its name, and it may stand below one that is gone.
    let report = items(|items| {
        destroyed(items);
        let record = items.iter_mut().find(|item| of(item, ItemClass::Destroyed)).unwrap();
        let mut changed = aquifer_ondisk::dataset::DatasetRecord::decode(&record.value).unwrap();
        (changed.parent, changed.name) = (DatasetId(77), "a/b".into());
        record.value = changed.encode();
    });
    assert_eq!(kinds(&report), kinds(&whole), "{report}");
    let report = items(|items| {
        destroyed(items);
        let record = items.iter_mut().find(|item| of(item, ItemClass::Destroyed)).unwrap();
        let mut changed = aquifer_ondisk::dataset::DatasetRecord::decode(&record.value).unwrap();
        changed.refer_bytes += 4096;
        record.value = changed.encode();
    });
    assert_eq!(report.count(Kind::ReferBytes), 1, "{report}");
    let report = items(|items| {
        destroyed(items);
        let key = ItemKey::new(DatasetId(2), ItemClass::Property, 1);
        items.push(Item { key, value: b"lz4".to_vec() });
    });
    assert_eq!(report.count(Kind::DatasetInvalid), 1, "{report}");
    // It may be one that is received whole, and goes on.
    let goes_on = |from| {
        items(|items| {
            destroyed(items);
            let key = ItemKey::new(DatasetId(2), ItemClass::Resume, 0);
            items.push(Item { key, value: resume(from).encode() });
        })
    };
    let report = goes_on(None);
    assert_eq!(kinds(&report), kinds(&whole), "{report}");
    assert_eq!(goes_on(Some(Guid(7))).count(Kind::DatasetInvalid), 1, "{report}");
    for dataset in [DatasetId(2), DatasetId(9)] {
        let report = items(|items| {
            let key = ItemKey::new(dataset, ItemClass::Resume, 0);
            items.push(Item { key, value: resume(None).encode() });
        });
        assert_eq!(report.count(Kind::DatasetInvalid), 1, "{report}");
    }
    // Alive and destroyed at once.
    let report = items(|items| {
        let record = items.iter().find(|item| of(item, ItemClass::Record)).unwrap();
        let key = ItemKey::new(DatasetId(2), ItemClass::Destroyed, 0);
        items.push(Item { key, value: record.value.clone() });
    });
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
}

#[test]
fn properties_of_users_are_whole_and_few() {
    let put = |items: &mut Vec<Item>, property: &UserProperty| {
        let keys = user_property_keys(DatasetId(1), &property.name);
        let pieces = keys.zip(property.pieces());
        items.extend(pieces.map(|(key, value)| Item { key, value }));
    };
    let property =
        |name: &str, bytes: usize| UserProperty { name: name.into(), value: "x".repeat(bytes) };
    let whole = items(|_| {});
    let report = items(|items| put(items, &property("a:b", 3000)));
    assert_eq!(kinds(&report), kinds(&whole), "{report}");
    type Change = fn(&mut Vec<Item>);
    let wrong: [Change; 4] = [
        |pieces| drop(pieces.remove(1)),
        |pieces| drop(pieces.pop()),
        |pieces| pieces[0].value[6] ^= 1,
        |pieces| {
            let key = ItemKey { item: pieces[2].key.item + 1, ..pieces[2].key };
            pieces.push(Item { key, value: vec![1] });
        },
    ];
    for change in wrong {
        let report = items(|items| {
            let mut pieces = Vec::new();
            put(&mut pieces, &property("a:b", 3000));
            change(&mut pieces);
            items.extend(pieces);
        });
        assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
    }
    let report =
        items(|items| (0..129).for_each(|at| put(items, &property(&format!("a:{at}"), 1))));
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
}

#[test]
fn a_marked_object_is_told() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&PLAIN).unwrap().damaged = true);
    assert_eq!(only(&report, Kind::ObjectDamaged).at.object, Some(ObjectId(PLAIN)));
}

/// The reply table: which datasets, which status, and how many.
#[test]
fn replies_are_of_changes_in_datasets_that_are_or_were() {
    let reply = |order, dataset, status| {
        let call = CallId { client: 1, xid: 2, procedure: 3, arguments: 4 };
        let (dataset, object) = (DatasetId(dataset), ObjectId(5));
        ReplyEntry { order, call, status, dataset, object, generation: 6 }
    };
    let table = |entries: Vec<ReplyEntry>| {
        content(|pool, _, _| {
            pool.trees[2] = pool.tree::<Replies>(NodeOwner::default(), entries, 50);
        })
    };
    let whole = table((1..=8192).map(|order| reply(order * 3, 1 + order % 2, 0)).collect());
    assert!(whole.is_clean(), "{whole}");
    // A dataset may be gone, but not a future one.
    for (entry, says) in [
        (reply(7, 1, 17), "reply 7: status 17"),
        (reply(7, 0, 0), "dataset 0"),
        (reply(7, 1000, 0), "dataset 1000"),
    ] {
        let report = table(vec![reply(6, 1, 0), entry, reply(9, 2, 0)]);
        let finding = only(&report, Kind::ReplyInvalid);
        assert!(finding.sentence.contains(says), "{finding}");
    }
    let report = table((1..=8193).map(|order| reply(order, 1, 0)).collect());
    assert!(only(&report, Kind::ReplyInvalid).sentence.contains("8193 entries"), "{report}");
}

/// The history: of known classes, below its counters, and how many.
#[test]
fn history_is_below_its_counters_and_bounded() {
    let (acts, attempts) = (HistoryClass::Act, HistoryClass::Attempt);
    let record = |class, number, order| {
        let record = HistoryRecord {
            outcome: Outcome::Done,
            cut: false,
            more: false,
            order,
            began: Time { seconds: 1, nanoseconds: 2 },
            who: "uid 0".into(),
            host: "store".into(),
            act: "set quota=1G tank".into(),
            result: String::new(),
            changes: Vec::new(),
        };
        Item { key: history_key(class, number), value: record.encode() }
    };
    let counters = HistoryCounters { order: 10_000, act: 6000, attempt: 10 };
    let history = |entries: Vec<Item>| {
        let counters = Item { key: HistoryCounters::KEY, value: counters.encode() };
        let entries = std::iter::once(counters).chain(entries).collect();
        content(|pool, _, _| {
            pool.trees[4] = pool.tree::<Namespace>(NodeOwner::default(), entries, 3);
        })
    };
    let many = |count: u64| (6000 - count..6000).map(|n| record(acts, n, n)).collect::<Vec<_>>();
    let whole = many(4096).into_iter().chain([record(attempts, 9, 9000)]);
    let whole = history(whole.collect());
    assert!(whole.is_clean(), "{whole}");
    let garbled = Item { value: vec![9; 40], ..record(acts, 5, 5) };
    let strange = Item { key: ItemKey { item: 8 << 56, ..garbled.key }, ..garbled.clone() };
    for (entry, says) in [
        (record(acts, 6000, 5), "item 1:6000 of the history: the next is 6000"),
        (record(attempts, 10, 5), "item 2:10 of the history: the next is 10"),
        (record(acts, 5, 10_000), "order 10000, and the next is 10000"),
        (garbled, "version"),
        (strange, "of no known class"),
    ] {
        let report = history(vec![entry]);
        let finding = only(&report, Kind::HistoryInvalid);
        assert!(finding.sentence.contains(says), "{finding}");
    }
    let load = |of, begin_s| {
        let record = LoadRecord::new(LoadGrain::TenSeconds, of, begin_s);
        Item { key: record.key(), value: record.encode() }
    };
    let whole = history(vec![load(LoadOf::Disks, 480), load(LoadOf::Clients, 480)]);
    assert!(whole.is_clean(), "{whole}");
    let moved = Item { key: load(LoadOf::Disks, 960).key, ..load(LoadOf::Disks, 480) };
    let report = history(vec![moved]);
    let finding = only(&report, Kind::HistoryInvalid);
    assert!(finding.sentence.contains("a record of Disks from 480 s"), "{finding}");
    let of_hosts = |count: u64| (50..50 + count).map(|n| record(HistoryClass::OfHost, n, 9999));
    let whole = history(of_hosts(1024).collect());
    assert!(whole.is_clean(), "{whole}");
    let report = history(of_hosts(1025).collect());
    assert!(only(&report, Kind::HistoryInvalid).sentence.contains("1025 records"), "{report}");
    let report = history(many(4097));
    assert!(only(&report, Kind::HistoryInvalid).sentence.contains("4097 records"), "{report}");
    let bare = content(|pool, _, _| {
        let entries = vec![record(acts, 5, 5)];
        pool.trees[4] = pool.tree::<Namespace>(NodeOwner::default(), entries, 3);
    });
    assert!(only(&bare, Kind::HistoryInvalid).sentence.contains("no counters"), "{bare}");
}
