//! Snapshots below the hidden directory `.aquifer`.

use std::collections::BTreeSet;

use aquifer_files::{
    Attributes, CreateHow, FileHandle, FileKind, FsError, NodeKind, Service, SetAttributes,
    Stability, access,
};

use crate::bed::{Bed, find, make, noise, read, root, write};

const VMS: &str = "tank/vms";

async fn snapshot(service: &Service, name: &str) {
    service.datasets.snapshot(&[format!("{VMS}@{name}")], false).await.unwrap();
}

async fn destroy(service: &Service, name: &str) {
    let (dataset, found) = service.datasets.snapshot_by_name(&format!("{VMS}@{name}")).unwrap();
    let doomed = [(dataset, BTreeSet::from([found.txg]))];
    service.datasets.destroy_snapshots(&doomed, false).await.unwrap();
}

/// Returns the attributes of what a path below the root directory of the dataset names.
pub async fn walk(service: &Service, path: &str) -> Result<Attributes, FsError> {
    let top = service.files.root(VMS).unwrap();
    let mut at = service.files.getattr(top).await?;
    for name in path.split('/') {
        at = service.files.lookup(&root(), at.handle, name.as_bytes()).await.0?;
    }
    Ok(at)
}

pub async fn handle(service: &Service, path: &str) -> FileHandle {
    walk(service, path).await.unwrap().handle
}

/// The names in a directory, listed one by one.
pub async fn names(service: &Service, directory: FileHandle) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = service.files.readdir(&root(), directory, cookie, 1, true).await.unwrap();
        for entry in listed.0 {
            assert!(entry.cookie > cookie);
            cookie = entry.cookie;
            assert_eq!(entry.attributes.unwrap().handle, entry.handle);
            let name = String::from_utf8(entry.name).unwrap();
            let found = service.files.lookup(&root(), directory, name.as_bytes()).await.0.unwrap();
            assert_eq!((found.handle, found.kind), (entry.handle, entry.kind), "{name}");
            names.push(name);
        }
        if listed.1 {
            return names;
        }
    }
}

/// A dataset with a file `disk` that has changed since the snapshot `before`.
async fn populate(service: &Service) {
    service.datasets.create(VMS, &[]).await.unwrap();
    let top = service.files.root(VMS).unwrap();
    let disk = make(service, top, "disk").await;
    write(service, disk, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
    make(service, top, "gone").await;
    snapshot(service, "before").await;
    write(service, disk, 0, &noise(2, 1), Stability::FileSync).await.unwrap();
    service.files.remove(&root(), top, b"gone").await.kept().await.0.unwrap();
}

#[test]
fn a_snapshot_is_read_below_the_hidden_directory() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let old = handle(&service, ".aquifer/snapshot/before/disk").await;
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));
        let live = find(&service, VMS, "disk").await.unwrap();
        assert_eq!(read(&service, live, 0).await.unwrap(), noise(2, 1));
        assert_eq!((old.object, old.generation), (live.object, live.generation));
        assert_ne!(old.fs_guid, live.fs_guid);

        let top = service.files.root(VMS).unwrap();
        let hidden = walk(&service, ".aquifer").await.unwrap();
        let list = walk(&service, ".aquifer/snapshot").await.unwrap();
        let of_snapshot = handle(&service, ".aquifer/snapshot/before").await;
        assert_eq!(Some(of_snapshot), service.files.root("tank/vms@before"));
        assert_eq!([hidden.handle.object.0, list.handle.object.0], [3, 4]);
        for at in [hidden, list] {
            assert_eq!((at.handle.fs_guid, at.mode), (top.fs_guid, 0o555));
            assert_eq!(service.files.getattr(at.handle).await, Ok(at));
        }
        // Of `.aquifer` it is an upper bound: not all entries of the root directory are files.
        assert_eq!([hidden.nlink, list.nlink], [4, 3]);
        let up = [of_snapshot, list.handle, hidden.handle, top, top];
        for pair in up.windows(2) {
            let above = service.files.lookup(&root(), pair[0], b"..").await.0.unwrap();
            assert_eq!(above.handle, pair[1]);
        }
        assert_eq!(walk(&service, ".aquifer/other").await, Err(FsError::NotFound));
        assert_eq!(walk(&service, ".aquifer/snapshot/other").await, Err(FsError::NotFound));
        let deeper = walk(&service, ".aquifer/snapshot/before/.aquifer").await;
        assert_eq!(deeper, Err(FsError::NotFound));

        assert_eq!(names(&service, top).await, [".", "..", "disk"]);
        assert_eq!(names(&service, hidden.handle).await, [".", "..", "snapshot", "disk"]);
        assert_eq!(names(&service, list.handle).await, [".", "..", "before"]);
        let mut shown = names(&service, of_snapshot).await;
        shown.sort();
        assert_eq!(shown, [".", "..", "disk", "gone"]);
        service.datasets.set("tank", "snapdir", Some("visible")).await.unwrap();
        assert_eq!(names(&service, top).await, [".", "..", ".aquifer", "disk"]);

        let space = service.files.fsstat(old).await.unwrap().0;
        let record = service.datasets.snapshot_by_name("tank/vms@before").unwrap().1;
        assert!(space.total_bytes > 0);
        assert_eq!(space.total_bytes, record.record.refer_bytes);
        assert_eq!((space.available_bytes, space.free_files), (0, 0));
        assert_eq!(
            service.files.fsstat(list.handle).await.unwrap().0,
            service.files.fsstat(top).await.unwrap().0
        );
    });
    bed.assert_clean();
}

#[test]
fn nothing_changes_there() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let (files, who, set) = (&service.files, root(), SetAttributes::default());
        let top = files.root(VMS).unwrap();
        let hidden = handle(&service, ".aquifer").await;
        let list = handle(&service, ".aquifer/snapshot").await;
        let of_snapshot = handle(&service, ".aquifer/snapshot/before").await;
        let old = handle(&service, ".aquifer/snapshot/before/disk").await;
        for directory in [hidden, list, of_snapshot] {
            let how = CreateHow::Unchecked(set);
            let created = files.create(&who, directory, b"new", how).await.kept().await.0;
            assert_eq!(created.map(drop), Err(FsError::ReadOnly));
            let made = files.mkdir(&who, directory, b"new", &set).await.kept().await.0;
            assert_eq!(made.map(drop), Err(FsError::ReadOnly));
            let made = files.mknod(&who, directory, b"new", NodeKind::Fifo, &set).await;
            assert_eq!(made.kept().await.0.map(drop), Err(FsError::ReadOnly));
            for name in [&b"before"[..], b"snapshot", b"disk"] {
                let gone = files.remove(&who, directory, name).await.kept().await.0;
                assert_eq!(gone, Err(FsError::ReadOnly));
                let gone = files.rmdir(&who, directory, name).await.kept().await.0;
                assert_eq!(gone, Err(FsError::ReadOnly));
            }
            let set = SetAttributes { mode: Some(0o777), ..set };
            let changed = files.setattr(&who, directory, &set, None).await.kept().await.0;
            assert_eq!(changed, Err(FsError::ReadOnly));
            let (granted, _) = files.access(&who, directory, 0x3f).await.unwrap();
            assert_eq!(granted & !access::EXECUTE, access::READ | access::LOOKUP);
            let into = files.rename(&who, (top, b"disk"), (directory, b"disk")).await;
            let into = into.kept().await.0.unwrap_err();
            assert!([FsError::ReadOnly, FsError::CrossDevice].contains(&into), "{into}");
            assert!(files.commit(&who, directory, 0, 0).await.kept().await.0.is_ok());
        }
        assert_eq!(
            write(&service, old, 0, b"x", Stability::Unstable).await,
            Err(FsError::ReadOnly)
        );
        assert!(files.commit(&who, old, 0, 0).await.kept().await.0.is_ok());
        // A snapshot shares its objects' ids with the dataset, but not the objects.
        let linked = files.link(&who, old, top, b"linked").await.kept().await.0;
        assert_eq!(linked, Err(FsError::CrossDevice));
        let out = files.rename(&who, (of_snapshot, b"disk"), (top, b"moved")).await.kept().await.0;
        assert_eq!(out, Err(FsError::CrossDevice));
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));

        // No entry takes the name of the hidden directory.
        let made = files.mkdir(&who, top, b".aquifer", &set).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::Exists));
        for how in [CreateHow::Unchecked(set), CreateHow::Exclusive(7)] {
            let made = files.create(&who, top, b".aquifer", how).await.kept().await.0;
            assert_eq!(made.map(drop), Err(FsError::Exists));
        }
        let live = find(&service, VMS, "disk").await.unwrap();
        let linked = files.link(&who, live, top, b".aquifer").await.kept().await.0;
        assert_eq!(linked, Err(FsError::Exists));
        let moved = files.rename(&who, (top, b"disk"), (top, b".aquifer")).await.kept().await.0;
        assert_eq!(moved, Err(FsError::Exists));
        let gone = files.rmdir(&who, top, b".aquifer").await.kept().await.0;
        assert_eq!(gone, Err(FsError::NotFound));
        let below = files.mkdir(&who, top, b"below", &set).await.kept().await.0.unwrap().handle;
        let made = files.mkdir(&who, below, b".aquifer", &set).await.kept().await.0;
        assert_eq!(made.map(drop), Err(FsError::Exists));
    });
    bed.assert_clean();
}

#[test]
fn handles_survive_a_restart_and_end_with_the_snapshot() {
    let mut bed = Bed::new(1, 65536);
    let path = ".aquifer/snapshot/before/disk";
    let (old, list, earlier) = bed.life(async |service| {
        populate(&service).await;
        let list = walk(&service, ".aquifer/snapshot").await.unwrap();
        (handle(&service, path).await, list.handle, list)
    });
    bed.short_life(async |service| {
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));
        assert_eq!(names(&service, list).await, [".", "..", "before"]);
        snapshot(&service, "more").await;
    });
    bed.life(async |service| {
        assert_eq!(read(&service, old, 0).await.unwrap(), noise(1, 1));
        let mut last = service.files.getattr(list).await.unwrap();
        assert!((earlier.change, earlier.mtime) < (last.change, last.mtime));
        assert_eq!(last.nlink, 4);
        // Each change of the list shows in the attributes that clients keep listings by.
        let (dataset, found) = service.datasets.snapshot_by_name("tank/vms@more").unwrap();
        service.datasets.rename_snapshots(&[(dataset.clone(), found.txg)], "later").await.unwrap();
        for (act, nlink) in [("", 4), ("later", 3), ("before", 2)] {
            if !act.is_empty() {
                destroy(&service, act).await;
            }
            let now = service.files.getattr(list).await.unwrap();
            assert_eq!(now.nlink, nlink);
            assert!(last.change < now.change && last.mtime < now.mtime && last.ctime < now.ctime);
            last = now;
        }
        assert_eq!(read(&service, old, 0).await, Err(FsError::Stale));
        assert_eq!(walk(&service, path).await, Err(FsError::NotFound));
        assert_eq!(names(&service, list).await, [".", ".."]);
        assert_eq!(last.kind, FileKind::Directory);
    });
    bed.assert_clean();
}

#[test]
fn a_listing_goes_on_where_it_was_when_snapshots_come_and_go() {
    let mut bed = Bed::new(1, 65536);
    let cookie = bed.life(async |service| {
        populate(&service).await;
        for name in ["a", "c", "b"] {
            snapshot(&service, name).await;
        }
        let list = handle(&service, ".aquifer/snapshot").await;
        assert_eq!(names(&service, list).await, [".", "..", "before", "a", "c", "b"]);
        let (first, eof, _) = service.files.readdir(&root(), list, 0, 4, false).await.unwrap();
        assert!(!eof && first.iter().all(|entry| entry.attributes.is_none()));
        first.last().unwrap().cookie
    });
    bed.life(async |service| {
        for name in ["a", "c"] {
            destroy(&service, name).await;
        }
        snapshot(&service, "new").await;
        let list = handle(&service, ".aquifer/snapshot").await;
        let (rest, eof, _) = service.files.readdir(&root(), list, cookie, 9, true).await.unwrap();
        let rest: Vec<_> = rest.into_iter().map(|entry| entry.name).collect();
        assert!(eof);
        assert_eq!(rest, [&b"b"[..], b"new"]);
    });
    bed.assert_clean();
}

#[test]
fn snapdir_disabled_shows_no_snapshot_and_frees_the_name() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let files = &service.files;
        let top = files.root(VMS).unwrap();
        let hidden = handle(&service, ".aquifer").await;
        let of_snapshot = handle(&service, ".aquifer/snapshot/before").await;
        assert_eq!(files.head_of(of_snapshot.fs_guid), Some(top.fs_guid));
        assert_eq!(files.head_of(top.fs_guid), None);

        service.datasets.set(VMS, "snapdir", Some("disabled")).await.unwrap();
        assert_eq!(walk(&service, ".aquifer").await, Err(FsError::NotFound));
        assert_eq!(files.getattr(hidden).await, Err(FsError::Stale));
        // This keeps clients from the handles that they have.
        assert_eq!(files.head_of(of_snapshot.fs_guid), None);
        let above = files.lookup(&root(), of_snapshot, b"..").await.0.unwrap();
        assert_eq!(above.handle, of_snapshot);
        let own = make(&service, top, ".aquifer").await;

        for shown in ["hidden", "visible"] {
            service.datasets.set(VMS, "snapdir", Some(shown)).await.unwrap();
            assert_eq!(handle(&service, ".aquifer").await, own);
            let mut names = names(&service, top).await;
            names.sort();
            assert_eq!(names, [".", "..", ".aquifer", "disk"]);
        }
        let renamed = files.rename(&root(), (top, b".aquifer"), (top, b"own")).await;
        renamed.kept().await.0.unwrap();
        assert_eq!(handle(&service, ".aquifer").await, hidden);
    });
    bed.assert_clean();
}
