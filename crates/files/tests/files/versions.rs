//! Files as of each snapshot that covers them, in `.aquifer/FILE`.

use std::collections::{BTreeSet, HashSet};

use aquifer_files::{
    Attributes, CreateHow, Credentials, FileHandle, FileKind, FsError, Service, SetAttributes,
    Stability, access,
};

use crate::bed::{Bed, find, make, noise, read, root, snapshots_named, write};
use crate::by_text::ByText;
use crate::snapdir::{handle, names, walk};

pub const VMS: &str = "tank/vms";

pub async fn whole(service: &Service, name: &str) {
    service.datasets.snapshot(&[format!("{VMS}@{name}")], false).await.unwrap();
}

pub async fn of_file(service: &Service, text: &str) {
    service.files.take_named(&[format!("{VMS}:{text}")]).await.unwrap();
}

async fn destroy(service: &Service, text: &str) {
    let (dataset, found) = snapshots_named(&service.files, &format!("{VMS}:{text}")).await.unwrap();
    let ids: BTreeSet<_> = found.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
}

pub async fn fill(service: &Service, file: FileHandle, salt: u64) {
    write(service, file, 0, &noise(salt, 1), Stability::FileSync).await.unwrap();
}

/// The content of a version: of which [`fill`].
pub async fn content(service: &Service, path: &str) -> u64 {
    let page = read(service, handle(service, path).await, 0).await.unwrap();
    (1..100).find(|salt| noise(*salt, 1) == page).unwrap()
}

/// A directory `web` with a file `disk`, filled with 1, 2, .. between snapshots: `a` of the file,
/// `b` of the dataset, `c` of the file, `d` of both. Returns the file.
pub async fn populate(service: &Service) -> FileHandle {
    service.datasets.create(VMS, &[]).await.unwrap();
    let top = service.files.root(VMS).unwrap();
    whole(service, "early").await;
    let set = SetAttributes::default();
    let web = service.files.mkdir(&root(), top, b"web", &set).await.kept().await.0.unwrap();
    let disk = make(service, web.handle, "disk").await;
    make(service, web.handle, "other").await;
    service.files.mkdir(&root(), web.handle, b"below", &set).await.kept().await.0.unwrap();
    for (salt, name) in (1..).zip(["a", "b", "c"]) {
        fill(service, disk, salt).await;
        match name {
            "b" => whole(service, "b").await,
            _ => of_file(service, &format!("web/disk@{name}")).await,
        }
    }
    fill(service, disk, 4).await;
    whole(service, "d").await;
    fill(service, disk, 5).await;
    of_file(service, "web/disk@d").await;
    fill(service, disk, 6).await;
    disk
}

fn identity(of: &Attributes) -> (u64, u64) {
    (of.handle.fsid(), of.handle.fileid())
}

#[test]
fn a_file_is_read_as_of_each_snapshot_that_covers_it() {
    let mut bed = Bed::new(1, 65536);
    let handles = bed.life(async |service| {
        populate(&service).await;
        let hidden = walk(&service, "web/.aquifer").await.unwrap();
        assert_eq!((hidden.kind, hidden.mode), (FileKind::Directory, 0o555));
        let mut files = names(&service, hidden.handle).await;
        files.sort();
        assert_eq!(files, [".", "..", "disk", "other"]);
        let versions = walk(&service, "web/.aquifer/disk").await.unwrap();
        // Its own first. One of the dataset that did not have it shows nothing, nor one whose name
        // one of its own has.
        assert_eq!(
            names(&service, versions.handle).await,
            [".", "..", "control", "a", "c", "d", "b"]
        );
        for (name, salt) in [("a", 1), ("b", 2), ("c", 3), ("d", 5)] {
            assert_eq!(content(&service, &format!("web/.aquifer/disk/{name}")).await, salt);
        }
        assert_eq!(content(&service, "web/disk").await, 6);
        let missing = ["early", "e", "web", "snapshot"];
        for name in missing {
            let found = walk(&service, &format!("web/.aquifer/disk/{name}")).await;
            assert_eq!(found, Err(FsError::NotFound), "{name}");
        }
        for name in ["below", "none", "snapshot", ".aquifer", &"n".repeat(255)] {
            let found = walk(&service, &format!("web/.aquifer/{name}")).await;
            assert_eq!(found, Err(FsError::NotFound), "{name}");
        }
        assert_eq!(walk(&service, "web/.aquifer/disk/a/x").await, Err(FsError::NotDirectory));
        let other = handle(&service, "web/.aquifer/other").await;
        assert_eq!(names(&service, other).await, [".", "..", "control", "b", "d"]);
        let up = service.files.lookup(&root(), hidden.handle, b"..").await.0.unwrap();
        assert_eq!(up.handle, handle(&service, "web").await);
        let up = service.files.lookup(&root(), versions.handle, b"..").await.0.unwrap();
        assert_eq!(up.handle, handle(&service, ".aquifer").await);

        // No two are taken for one file, and none for the live one.
        let mut all = HashSet::new();
        let mut handles = Vec::new();
        for path in [
            "web/disk",
            "web/.aquifer/disk/a",
            "web/.aquifer/disk/b",
            "web/.aquifer/disk/c",
            "web/.aquifer/disk/d",
            ".aquifer/snapshot/b/web/disk",
            ".aquifer/snapshot/d/web/disk",
            "web/.aquifer/other/b",
            "web/.aquifer",
            "web/.aquifer/disk",
        ] {
            let of = walk(&service, path).await.unwrap();
            assert_eq!(service.files.getattr(of.handle).await, Ok(of), "{path}");
            assert!(all.insert(identity(&of)), "{path}");
            handles.push((of.handle, path));
        }
        let numbers: HashSet<u64> = all.iter().map(|(_, number)| *number).collect();
        // Of a snapshot's root directory a client makes a mount of its own.
        assert_eq!(numbers.len(), all.len() - 2);
        handles
    });
    bed.life(async |service| {
        for (of, path) in handles {
            assert_eq!(handle(&service, path).await, of, "{path}");
            assert_eq!(service.files.getattr(of).await.unwrap().handle, of, "{path}");
        }
    });
    bed.assert_clean();
}

#[test]
fn a_version_does_not_change() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let disk = populate(&service).await;
        let (files, who, set) = (&service.files, root(), SetAttributes::default());
        let web = handle(&service, "web").await;
        let versions = handle(&service, "web/.aquifer/disk").await;
        for directory in [handle(&service, "web/.aquifer").await, versions] {
            for how in [CreateHow::Unchecked(set), CreateHow::Guarded(set), CreateHow::Exclusive(1)]
            {
                let made = files.create(&who, directory, b"new", how).await.kept().await.0;
                assert_eq!(made.map(drop), Err(FsError::ReadOnly));
            }
            let made = files.mkdir(&who, directory, b"new", &set).await.kept().await.0;
            assert_eq!(made.map(drop), Err(FsError::ReadOnly));
            for name in [&b"a"[..], b"disk"] {
                let gone = files.remove(&who, directory, name).await.kept().await.0;
                assert_eq!(gone, Err(FsError::ReadOnly));
                let gone = files.rmdir(&who, directory, name).await.kept().await.0;
                assert_eq!(gone, Err(FsError::ReadOnly));
            }
            let moved = files.rename(&who, (directory, b"a"), (directory, b"x")).await.kept().await;
            assert_eq!(moved.0, Err(FsError::ReadOnly));
            let moved = files.rename(&who, (web, b"other"), (directory, b"x")).await.kept().await;
            assert_eq!(moved.0, Err(FsError::ReadOnly));
            let linked = files.link(&who, disk, directory, b"x").await.kept().await.0;
            assert_eq!(linked, Err(FsError::ReadOnly));
        }
        for name in ["a", "b"] {
            let old = handle(&service, &format!("web/.aquifer/disk/{name}")).await;
            let (granted, _) = files.access(&who, old, 0x3f).await.unwrap();
            assert_eq!(granted & (access::MODIFY | access::EXTEND), 0);
            let chmod = SetAttributes { mode: Some(0o777), ..set };
            let cut = SetAttributes { size: Some(0), ..set };
            for set in [chmod, cut] {
                let changed = files.setattr(&who, old, &set, None).await.kept().await.0;
                assert_eq!(changed, Err(FsError::ReadOnly));
            }
            for stability in [Stability::Unstable, Stability::FileSync] {
                let wrote = write(&service, old, 0, b"x", stability).await;
                assert_eq!(wrote, Err(FsError::ReadOnly));
            }
            assert!(files.commit(&who, old, 0, 0).await.kept().await.0.is_ok());
            let linked = files.link(&who, old, web, b"linked").await.kept().await.0;
            assert_eq!(linked, Err(FsError::CrossDevice));
            let there = files.lookup(&who, web, b"linked").await.0;
            assert_eq!(there.map(drop), Err(FsError::NotFound));
        }
        assert_eq!(content(&service, "web/.aquifer/disk/a").await, 1);
        assert_eq!(content(&service, "web/disk").await, 6);
    });
    bed.assert_clean();
}

#[test]
fn versions_follow_the_file_and_end_with_their_snapshots() {
    let mut bed = Bed::new(1, 65536);
    let path = "web/.aquifer/disk";
    let (versions, old) = bed.life(async |service| {
        populate(&service).await;
        let (files, top) = (&service.files, service.files.root(VMS).unwrap());
        let web = handle(&service, "web").await;
        let versions = walk(&service, path).await.unwrap();
        let old = handle(&service, "web/.aquifer/disk/c").await;
        files.rename(&root(), (web, b"disk"), (top, b"moved")).await.kept().await.0.unwrap();
        // Under the name that it has, and under that which it had.
        assert_eq!(handle(&service, ".aquifer/moved").await, versions.handle);
        assert_eq!(handle(&service, path).await, versions.handle);
        files.remove(&root(), top, b"moved").await.kept().await.0.unwrap();
        assert_eq!(walk(&service, ".aquifer/moved").await, Err(FsError::NotFound));
        assert_eq!(walk(&service, ".aquifer/disk").await, Err(FsError::NotFound));
        assert_eq!(handle(&service, path).await, versions.handle);
        assert_eq!(
            names(&service, versions.handle).await,
            [".", "..", "control", "a", "c", "d", "b"]
        );
        (versions, old)
    });
    bed.life(async |service| {
        assert_eq!(content(&service, "web/.aquifer/disk/c").await, 3);
        assert_eq!(content(&service, "web/.aquifer/disk/b").await, 2);
        let before = service.files.getattr(versions.handle).await.unwrap();
        assert!(versions.mtime < before.mtime);
        destroy(&service, "web/disk@c").await;
        let after = service.files.getattr(versions.handle).await.unwrap();
        assert!(before.change < after.change && before.mtime < after.mtime);
        assert_eq!(read(&service, old, 0).await, Err(FsError::Stale));
        assert_eq!(names(&service, versions.handle).await, [".", "..", "control", "a", "d", "b"]);
        // A new file of that name has versions of its own.
        let web = handle(&service, "web").await;
        let disk = make(&service, web, "disk").await;
        fill(&service, disk, 9).await;
        let new = handle(&service, path).await;
        assert_ne!(new, versions.handle);
        assert_eq!(names(&service, new).await, [".", "..", "control"]);
        of_file(&service, "web/disk@new").await;
        assert_eq!(content(&service, "web/.aquifer/disk/new").await, 9);
        for name in ["a", "d"] {
            destroy(&service, &format!("web/disk@{name}")).await;
        }
        assert_eq!(service.files.getattr(versions.handle).await, Err(FsError::Stale));
    });
    bed.assert_clean();
}

#[test]
fn a_directory_tells_no_name_there_that_it_does_not_tell() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        populate(&service).await;
        let files = &service.files;
        let web = handle(&service, "web").await;
        let hidden = handle(&service, "web/.aquifer").await;
        let user = Credentials { uid: 7, gid: 7, ..root() };
        for (mode, lists, finds) in
            [(0o755, true, true), (0o711, false, true), (0o700, false, false)]
        {
            let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            files.setattr(&root(), web, &set, None).await.kept().await.0.unwrap();
            assert_eq!(files.getattr(hidden).await.unwrap().mode, mode & 0o555);
            let listed = files.readdir(&user, hidden, 0, 9, true).await;
            assert_eq!(listed.is_ok(), lists, "{mode:o}");
            let found = files.lookup(&user, hidden, b"disk").await.0;
            assert_eq!(found.is_ok(), finds, "{mode:o}");
            let none = files.lookup(&user, hidden, b"none").await.0.map(drop);
            let expected = if finds { FsError::NotFound } else { FsError::AccessDenied };
            assert_eq!(none, Err(expected), "{mode:o}");
        }
        // The mode that the file had then.
        let old = handle(&service, "web/.aquifer/disk/a").await;
        assert!(files.read(&user, old, 0, 10).await.is_ok());
        let live = find(&service, VMS, "web").await.unwrap();
        let live = files.lookup(&root(), live, b"disk").await.0.unwrap().handle;
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        files.setattr(&root(), live, &set, None).await.kept().await.0.unwrap();
        of_file(&service, "web/disk@secret").await;
        let old = handle(&service, "web/.aquifer/disk/secret").await;
        assert_eq!(files.read(&user, old, 0, 10).await.map(drop), Err(FsError::AccessDenied));

        service.datasets.set(VMS, "snapdir", Some("disabled")).await.unwrap();
        for of in [hidden, old] {
            assert_eq!(files.getattr(of).await, Err(FsError::Stale));
        }
        assert_eq!(walk(&service, "web/.aquifer").await, Err(FsError::NotFound));
        let own = make(&service, web, ".aquifer").await;
        service.datasets.set(VMS, "snapdir", Some("visible")).await.unwrap();
        assert_eq!(handle(&service, "web/.aquifer").await, own);
        files.remove(&root(), web, b".aquifer").await.kept().await.0.unwrap();
        let mut shown = names(&service, web).await;
        shown.sort();
        assert_eq!(shown, [".", "..", ".aquifer", "below", "disk", "other"]);
    });
    bed.assert_clean();
}

/// Handles that nobody gave out, and listings from any cookie, with any limit.
#[test]
fn what_nobody_gave_out_opens_nothing() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let disk = populate(&service).await;
        let versions = handle(&service, "web/.aquifer/disk").await;
        let old = handle(&service, "web/.aquifer/disk/a").await;
        let of_whole = handle(&service, "web/.aquifer/disk/b").await;
        let mut rng = aquifer_sim::Rng::stream(1, "handles");
        for kind in 0..16 {
            for number in [0, 1, 2, 3, 4, disk.object.0, old.object.0 & ((1 << 58) - 1)] {
                for fs_guid in [disk.fs_guid, of_whole.fs_guid] {
                    let object = aquifer_ondisk::ObjectId(1 << 62 | kind << 58 | number);
                    for generation in [0, rng.next_u64()] {
                        let made_up = FileHandle { fs_guid, object, generation };
                        let found = service.files.getattr(made_up).await;
                        assert_eq!(found, Err(FsError::Stale), "{made_up:?}");
                    }
                }
            }
        }
        for cookie in [0, 1, 3, 70_000, 1 << 40, 1 << 60, (1 << 60) + 5, u64::MAX] {
            for limit in [0, 1, 2, 3, 9] {
                for at in [versions, handle(&service, "web/.aquifer").await] {
                    let listed = service.files.readdir(&root(), at, cookie, limit, true).await;
                    let (list, eof, _) = listed.unwrap();
                    assert!(list.len() <= limit && (eof || limit == 0 || !list.is_empty()));
                    assert!(list.iter().all(|entry| entry.cookie > cookie));
                }
            }
        }
    });
    bed.assert_clean();
}
