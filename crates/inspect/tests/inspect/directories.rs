//! Directories: names, keys, links, orphans.

use aquifer_inspect::Kind;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::FileKind;

use crate::tree::{DEEPER, FIFO, LINKED, ORPHAN, ORPHANS, PLAIN, ROOT, SUB, inode};
use crate::{content, kinds, only};

#[test]
fn names_that_may_not_be() {
    // Others are refused by the codec.
    for name in [".", ".."] {
        let report = content(|_, sample, _| {
            let node = inode(30, FileKind::Fifo, ROOT);
            sample.add(ROOT, name, node);
        });
        only(&report, Kind::NameInvalid);
    }
}

#[test]
fn names_that_stand_twice() {
    let report = content(|_, sample, _| {
        let node = inode(30, FileKind::Fifo, ROOT);
        sample.add(ROOT, "fifo", node);
        sample.directories.get_mut(&ROOT).unwrap().last_mut().unwrap().key += 1;
    });
    only(&report, Kind::NameTwice);
    // Across the leaves of a directory, and between others of the same hash.
    let report = content(|_, sample, _| {
        for (id, name) in (30..).zip(["fifo", "x", "y", "z"]) {
            sample.add(ROOT, name, inode(id, FileKind::Fifo, ROOT));
            let key = sample.directories[&ROOT].iter().find(|entry| entry.object.0 == FIFO);
            let key = key.unwrap().key;
            sample.directories.get_mut(&ROOT).unwrap().last_mut().unwrap().key = key + 37 - id;
        }
    });
    assert_eq!(kinds(&report), [Kind::NameTwice, Kind::KeyMismatch]);
    assert_eq!((report.count(Kind::NameTwice), report.count(Kind::KeyMismatch)), (1, 3));
}

#[test]
fn keys_that_do_not_follow_from_the_name() {
    for object in [ROOT, ORPHANS] {
        let report = content(move |_, sample, _| {
            sample.directories.get_mut(&object).unwrap()[0].key ^= 1 << 20;
        });
        only(&report, Kind::KeyMismatch);
    }
}

#[test]
fn counts_of_entries() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&SUB).unwrap().entries += 1);
    assert_eq!(only(&report, Kind::EntryCount).at.object, Some(ObjectId(SUB)));
}

#[test]
fn entries_that_name_nothing() {
    let report = content(|_, sample, _| {
        sample.inodes.remove(&FIFO);
    });
    assert_eq!(only(&report, Kind::EntryDangling).at.object, Some(ObjectId(ROOT)));
}

#[test]
fn entries_that_say_other_things() {
    let report = content(|_, sample, _| {
        sample.directories.get_mut(&ROOT).unwrap()[0].generation += 1;
    });
    only(&report, Kind::EntryWrong);
    let report = content(|_, sample, _| {
        sample.directories.get_mut(&SUB).unwrap()[0].kind = FileKind::Symlink;
    });
    only(&report, Kind::EntryWrong);
}

#[test]
fn counts_of_links() {
    for (id, by) in [(LINKED, 1), (PLAIN, 3), (ROOT, 1), (SUB, 1), (ORPHANS, 5)] {
        let report = content(move |_, sample, _| sample.inodes.get_mut(&id).unwrap().nlink += by);
        assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(id)));
    }
    let report = content(|_, sample, _| sample.inodes.get_mut(&PLAIN).unwrap().nlink = 0);
    assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(PLAIN)));
    // A directory in two places.
    let report = content(|_, sample, _| {
        let node = sample.inodes[&DEEPER].clone();
        sample.name(SUB, "twice", &node);
        sample.inodes.get_mut(&SUB).unwrap().nlink += 1;
    });
    assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(DEEPER)));
}

#[test]
fn parents_that_are_not() {
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&DEEPER).unwrap().parent = ObjectId(ROOT);
    });
    assert_eq!(only(&report, Kind::ParentWrong).at.object, Some(ObjectId(DEEPER)));
}

#[test]
fn directories_that_hold_each_other() {
    let report = content(|_, sample, _| {
        let mut one = inode(30, FileKind::Directory, 31);
        let mut two = inode(31, FileKind::Directory, 30);
        (one.nlink, two.nlink) = (3, 3);
        sample.inodes.insert(30, one.clone());
        sample.inodes.insert(31, two.clone());
        sample.name(30, "two", &two);
        sample.name(31, "one", &one);
    });
    assert_eq!(kinds(&report), [Kind::DirectoryLoop]);
    assert_eq!(report.count(Kind::DirectoryLoop), 2);
}

#[test]
fn objects_in_no_directory() {
    let report = content(|_, sample, _| {
        sample.inodes.insert(30, inode(30, FileKind::Regular, 0));
    });
    assert_eq!(only(&report, Kind::Unreachable).at.object, Some(ObjectId(30)));
}

#[test]
fn orphans_must_be_listed() {
    let report = content(|_, sample, _| {
        let mut lost = inode(30, FileKind::Regular, 0);
        lost.nlink = 0;
        sample.inodes.insert(30, lost);
    });
    assert_eq!(only(&report, Kind::OrphanLost).at.object, Some(ObjectId(30)));
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&ORPHAN).unwrap().nlink = 1;
        let orphan = sample.inodes[&ORPHAN].clone();
        sample.name(ROOT, "alive", &orphan);
    });
    assert_eq!(only(&report, Kind::OrphanAlive).at.object, Some(ObjectId(ORPHAN)));
}

#[test]
fn the_tops_of_a_dataset() {
    for id in [ROOT, ORPHANS] {
        let report = content(move |_, _, below| {
            below.inodes.remove(&id);
        });
        assert_eq!(only(&report, Kind::RootDirectory).at.object, Some(ObjectId(id)));
        let report = content(move |_, _, below| {
            below.inodes.get_mut(&id).unwrap().parent = ObjectId(5);
        });
        assert_eq!(only(&report, Kind::RootDirectory).at.object, Some(ObjectId(id)));
    }
}
