//! Snapshots of files: names and patterns, and what they keep of files that are cut, renamed and
//! removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, FileSnapshot};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{Service, SetAttributes};

use crate::bed::{Bed, find, make, noise, root, settle, snapshots_named};
use crate::by_text::ByText;
use crate::spread::{PAGES, fill};

async fn write_all(service: &Service, name: &str, salt: u64) {
    let file = find(service, "tank/d", name).await.unwrap();
    fill(service, file, salt).await;
}

async fn take(service: &Service, names: &[&str]) -> Result<Vec<String>, FileNameError> {
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    service.files.take_named(&names).await
}

async fn destroy(service: &Service, text: &str) -> usize {
    let (dataset, found) = snapshots_named(&service.files, text).await.unwrap();
    let ids: BTreeSet<_> = found.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
    found.len()
}

async fn used(service: &Service, (dataset, found): (Arc<Dataset>, Vec<Arc<FileSnapshot>>)) -> u64 {
    let ids = found.iter().map(|of| of.id).collect();
    service.datasets.unique_bytes_of_files(&dataset, &ids).await.unwrap()
}

/// A snapshot that was taken when a tail was cut off already does not keep the tail.
#[test]
fn what_is_cut_off_dies_as_its_files() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        let file = make(&service, top, "disk").await;
        write_all(&service, "disk", 1).await;
        take(&service, &["tank/d:disk@before"]).await.unwrap();
        let nothing = SetAttributes { size: Some(0), ..SetAttributes::default() };
        service.files.setattr(&root(), file, &nothing, None).await.kept().await.0.unwrap();
        let after = take(&service, &["tank/d:disk@after"]).await.unwrap();
        assert_eq!(after, ["tank/d:disk@after"]);
        settle(&service, 60).await;

        let before = snapshots_named(&service.files, "tank/d:disk@before").await.unwrap();
        let (dataset, of_before) = (before.0.clone(), before.1[0].clone());
        assert_eq!(of_before.record.inode.size, (2 * PAGES - 1) * 4096);
        let view = service.datasets.file_view(&dataset, of_before.id).unwrap();
        let pages = view.read_pages(&service.pool, 0, 2 * PAGES - 1).await.unwrap();
        for at in 0..PAGES {
            assert_eq!(pages[at as usize * 2].as_ref().unwrap().as_slice(), noise(1 + at, 1));
        }
        let dead = dataset.dead_bytes();
        assert!(dead >= PAGES * 4096, "{dead}");
        assert_eq!(used(&service, before).await, dead);
        let after = snapshots_named(&service.files, "tank/d:disk@after").await.unwrap();
        assert_eq!(used(&service, after).await, 0);
        assert_eq!(destroy(&service, "tank/d:disk@before").await, 1);
        settle(&service, 60).await;
        assert_eq!(dataset.dead_bytes(), 0);
        let error = view.read_pages(&service.pool, 0, 1).await.unwrap_err();
        assert!(error.to_string().contains("destroyed"), "{error}");
        assert!(service.datasets.file_view(&dataset, of_before.id).is_none());
    });
    bed.assert_clean();
}

#[test]
fn a_removed_file_is_kept_and_found_by_its_path() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        for name in ["one.vhd", "two.vhd", "three.iso"] {
            make(&service, top, name).await;
            write_all(&service, name, 1000).await;
        }
        let set = take(&service, &["tank/d:*.vhd@s", "tank/d:three.iso@s"]).await.unwrap();
        assert_eq!(set.len(), 3);
        let (from, to) = ((top, &b"two.vhd"[..]), (top, &b"new.vhd"[..]));
        service.files.rename(&root(), from, to).await.kept().await.0.unwrap();
        for name in ["one.vhd", "three.iso"] {
            service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
        }
    });
    bed.life(async |service| {
        settle(&service, 60).await;
        let files = &service.files;
        for (text, count) in [
            ("tank/d:one.vhd@s", 1),
            ("tank/d:two.vhd@s", 1),
            ("tank/d:new.vhd@s", 1),
            ("tank/d:*.vhd@?", 2),
            ("tank/d:*@*,s", 3),
        ] {
            assert_eq!(snapshots_named(files, text).await.unwrap().1.len(), count, "{text}");
        }
        for (text, expected) in [
            ("tank/d:one.vhd@t", "no snapshot"),
            ("tank/d:*/one.vhd@s", "no snapshot"),
            ("tank/d:*@s,t", "no snapshot"),
            ("tank/d@s", "names no snapshot of a file"),
            ("tank/none:one.vhd@s", "names no snapshot of a file"),
            ("tank/d:@s", "names no snapshot of a file"),
        ] {
            let error = snapshots_named(files, text).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("tank/d:new.vhd@s", "exists already"),
            ("tank/d:one.vhd@s", "there is no file"),
            ("tank/d:*.iso@u", "no regular file matches"),
            ("tank/d:new.vhd@", "no name"),
            ("tank/d:new.vhd@a,b", "may hold letters"),
        ] {
            let error = take(&service, &[text]).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let twice = take(&service, &["tank/d:new.vhd@u", "tank/d:*@u"]).await.unwrap();
        assert_eq!(twice, ["tank/d:new.vhd@u"], "once");
        let two = take(&service, &["tank/d:new.vhd@v", "tank/d:new.vhd@w"]).await.unwrap_err();
        assert!(two.to_string().contains("the second of one file"), "{two}");
        assert_eq!(destroy(&service, "tank/d:*@*").await, 4);
        settle(&service, 60).await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        assert_eq!((dataset.dead_bytes(), dataset.file_snapshot_count()), (0, 0));
    });
    bed.assert_clean();
}

/// A name that was listed means that file, whatever letters it has, also beside files that it would
/// mean as a pattern, and beside a dataset of which it could be a file.
#[test]
fn a_listed_name_means_its_file_only() {
    let hostile =
        ["*", "?", "a*", "a?", "a@s", "a@s@s", "a#s", "x:ab", ":ab", " ab", "ab ", "a\\0142"];
    let unseen = ["a\u{202e}", "a\u{2028}", "a\n"];
    let plain = ["ab", "aa", "a@", "a", "s"];
    let all: Vec<&str> = [&hostile[..], &unseen, &plain].concat();
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        for (name, files) in [("tank/d", &all[..]), ("tank/d:x", &["ab", "a"])] {
            service.datasets.create(name, &[]).await.unwrap();
            let top = service.files.root(name).unwrap();
            for file in files {
                make(&service, top, file).await;
            }
        }
        take(&service, &["tank/d:*@s", "tank/d:x:*@s"]).await.unwrap();
    });
    bed.life(async |service| {
        for (name, files) in [("tank/d", all.len()), ("tank/d:x", 2)] {
            let dataset = service.datasets.by_name(name).unwrap();
            let taken = dataset.file_snapshots(service.pool.committed_txg());
            assert_eq!(taken.len(), files);
            for of in taken {
                let (path, name) = (&of.record.path, &of.record.name);
                assert!(
                    !path.contains(|c: char| c.is_control() || "*?\u{202e}\u{2028}".contains(c))
                );
                let full = service.datasets.file_snapshot_name(&dataset, path, name);
                for found in [
                    snapshots_named(&service.files, &full).await.unwrap(),
                    service.files.listed_named(&full).await.unwrap(),
                ] {
                    let found: Vec<_> = found.1.iter().map(|of| of.id).collect();
                    assert_eq!(found, [of.id], "{full}");
                }
                // So does a new one of it, and of no other.
                let next = full.strip_suffix("@s").unwrap().to_owned() + "@t";
                assert_eq!(take(&service, &[&next]).await.unwrap(), [next.as_str()]);
                assert_eq!(destroy(&service, &full).await, 1, "{full}");
                assert_eq!(destroy(&service, &next).await, 1, "{next}");
            }
            assert_eq!(dataset.file_snapshot_count(), 0);
        }
    });
    bed.assert_clean();
}

/// Renamed, all at one moment, snapshots keep what they show and are found by the new name only;
/// no schedule prunes them. A name that another one has changes nothing.
#[test]
fn snapshots_of_files_are_renamed() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        for name in ["one", "two", "three"] {
            make(&service, top, name).await;
            write_all(&service, name, 1).await;
        }
        take(&service, &["tank/d:*@a"]).await.unwrap();
        take(&service, &["tank/d:two@b"]).await.unwrap();
        let cred = root();
        let moved = service.files.rename(&cred, (top, b"three"), (top, b"four")).await;
        moved.kept().await.0.unwrap();
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let ids = async |text: &str| {
            let found = snapshots_named(&service.files, text).await.unwrap().1;
            found.iter().map(|of| of.id).collect::<BTreeSet<_>>()
        };
        let before = ids("tank/d:*@a").await;
        assert_eq!(before.len(), 3);
        let both = &before | &ids("tank/d:two@b").await;
        for (ids, name) in [(&before, "b"), (&both, "c"), (&before, "a"), (&before, "x/y")] {
            let refused = service.datasets.rename_file_snapshots(&dataset, ids, name).await;
            assert!(refused.is_err(), "{name}: {refused:?}");
            assert_eq!(snapshots_named(&service.files, "tank/d:*@a").await.unwrap().1.len(), 3);
        }
        let names = service.datasets.rename_file_snapshots(&dataset, &before, "c").await.unwrap();
        assert_eq!(names, ["tank/d:one@c", "tank/d:three@c", "tank/d:two@c"].map(String::from));
        assert!(snapshots_named(&service.files, "tank/d:*@a").await.is_err());
        // The old name is free, and the new one is not.
        take(&service, &["tank/d:one@a"]).await.unwrap();
        assert!(take(&service, &["tank/d:four@c"]).await.is_err());
    });
    bed.life(async |service| {
        let (dataset, found) = snapshots_named(&service.files, "tank/d:*@c").await.unwrap();
        assert_eq!(found.len(), 3);
        for of in found {
            let view = service.datasets.file_view(&dataset, of.id).unwrap();
            let pages = view.read_pages(&service.pool, 0, 1).await.unwrap();
            assert_eq!(pages[0].as_ref().unwrap().as_slice(), noise(1, 1));
        }
        assert!(take(&service, &["tank/d:two@c"]).await.is_err());
    });
}
