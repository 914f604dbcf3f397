//! A name in the top directory of a dataset means an entry, or a dataset below.

use aquifer_dataset::DatasetError;
use aquifer_files::{CreateHow, DirectoryEntry, FsError, Service, SetAttributes, dataset_below};
use aquifer_sim::Rng;
use futures_util::future::join;

use crate::bed::{Bed, find, make, root};
use crate::receive::{receive, snapshot, stream};

async fn mkdir(service: &Service, name: &str) -> Result<(), FsError> {
    let top = service.files.root("tank").unwrap();
    let set = SetAttributes::default();
    service.files.mkdir(&root(), top, name.as_bytes(), &set).await.kept().await.0.map(drop)
}

fn is_taken(done: Result<(), DatasetError>) -> bool {
    matches!(done, Err(DatasetError::BadName { why, .. }) if why.contains("file or directory"))
}

/// No dataset comes over what clients may have mounted, in any way.
#[test]
pub fn no_dataset_is_made_over_an_entry() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        mkdir(&service, "iso").await.unwrap();
        make(&service, service.files.root("tank").unwrap(), "file").await;
        datasets.create("tank/d", &[]).await.unwrap();
        snapshot(&service, "tank/d@a").await;
        let sent = stream(&service, "tank/d@a").await.unwrap();
        for name in ["tank/iso", "tank/file"] {
            assert!(is_taken(datasets.create(name, &[]).await), "{name}");
            assert!(is_taken(datasets.rename("tank/d", name).await), "{name}");
            assert!(is_taken(datasets.clone_snapshot("tank/d@a", name, &[]).await), "{name}");
            let refused = receive(&service, name, &sent, Default::default()).await.unwrap_err();
            assert!(refused.to_string().contains("file or directory"), "{refused}");
            assert!(datasets.by_name(name).is_none());
        }
        // Below another dataset, and when it is gone, the name is free.
        datasets.create("tank/d/iso", &[]).await.unwrap();
        let top = service.files.root("tank").unwrap();
        service.files.rmdir(&root(), top, b"iso").await.kept().await.0.unwrap();
        datasets.create("tank/iso", &[]).await.unwrap();
    });
    bed.assert_clean();
}

/// Nor is anything made where a dataset is.
#[test]
pub fn no_entry_gets_the_name_of_a_dataset() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        service.datasets.create("tank/d", &[]).await.unwrap();
        let file = make(&service, top, "file").await;
        mkdir(&service, "other").await.unwrap();
        let other = find(&service, "tank", "other").await.unwrap();
        assert_eq!(mkdir(&service, "d").await, Err(FsError::Exists));
        let linked = service.files.link(&root(), file, top, b"d").await.kept().await.0;
        assert_eq!(linked.map(drop), Err(FsError::Exists));
        let moved = service.files.rename(&root(), (top, b"file"), (top, b"d")).await.kept().await.0;
        assert_eq!(moved, Err(FsError::Exists));
        // Only in the top directory.
        let moved = service.files.rename(&root(), (top, b"file"), (other, b"d")).await;
        moved.kept().await.0.unwrap();
        service.datasets.rename("tank/d", "tank/e").await.unwrap();
        mkdir(&service, "d").await.unwrap();
        assert_eq!(mkdir(&service, "e").await, Err(FsError::Exists));
        service.datasets.destroy("tank/e", false).await.unwrap();
        mkdir(&service, "e").await.unwrap();
    });
    bed.assert_clean();
}

/// Of two that come at once, one has the name.
#[test]
fn one_of_two_has_the_name() {
    let mut bed = Bed::new(1, 65536);
    let won = bed.life(async |service| {
        let mut rng = Rng::stream(1, "places");
        let mut won = [0; 2];
        for at in 0..40 {
            let (name, full) = (format!("n{at}"), format!("tank/n{at}"));
            let wait = [rng.below(60), rng.below(60)].map(std::time::Duration::from_micros);
            let world = service.pool.world();
            let directory = async {
                world.sleep(wait[0]).await;
                mkdir(&service, &name).await
            };
            let dataset = async {
                world.sleep(wait[1]).await;
                service.datasets.create(&full, &[]).await
            };
            let (directory, dataset) = join(directory, dataset).await;
            assert_ne!(directory.is_ok(), dataset.is_ok(), "{directory:?} and {dataset:?}");
            won[usize::from(dataset.is_ok())] += 1;
        }
        won
    });
    assert!(won.into_iter().min() > Some(0), "{won:?}: only one came first");
    bed.assert_clean();
}

async fn listed(service: &Service, limit: usize) -> Vec<DirectoryEntry> {
    let top = service.files.root("tank").unwrap();
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let read = service.files.readdir(&root(), top, cookie, limit, true).await;
        let (entries, eof, _) = read.unwrap();
        assert!(entries.len() <= limit && (eof || !entries.is_empty()));
        cookie = entries.last().map_or(cookie, |last| last.cookie);
        all.extend(entries);
        if eof {
            return all;
        }
    }
}

/// The one above shows its datasets, in any pieces, among its entries, once each.
#[test]
fn a_dataset_shows_those_below() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        for at in 0..20 {
            datasets.create(&format!("tank/d{at}"), &[]).await.unwrap();
            mkdir(&service, &format!("e{at}")).await.unwrap();
        }
        datasets.create("tank/d1/deep", &[]).await.unwrap();
        let mut wanted: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
        wanted.extend((0..20).flat_map(|at| [format!("d{at}").into(), format!("e{at}").into()]));
        wanted.sort();
        for limit in [1, 2, 3, 7, 41, 42, 43, 1000] {
            let all = listed(&service, limit).await;
            assert!(all.is_sorted_by_key(|entry| entry.cookie), "{limit}");
            let mut names: Vec<_> = all.into_iter().map(|entry| entry.name).collect();
            names.sort();
            assert_eq!(names, wanted, "{limit}");
        }
        let top = service.files.root("tank").unwrap();
        for entry in listed(&service, 100).await {
            let found = service.files.lookup(&root(), top, &entry.name).await.0.unwrap();
            assert_eq!(Some(found.handle), entry.attributes.map(|of| of.handle));
            assert_eq!(service.files.getattr(found.handle).await.unwrap().handle, found.handle);
        }
        let d1 = datasets.by_name("tank/d1").unwrap().fs_guid;
        let shadow = find(&service, "tank", "d1").await.unwrap();
        assert_eq!((shadow.fs_guid, dataset_below(shadow)), (top.fs_guid, Some(d1)));
        assert_eq!(dataset_below(service.files.root("tank/d1").unwrap()), None);
    });
    // A handle outlives a restart, and ends with the name.
    bed.life(async |service| {
        let (a, b) = (find(&service, "tank", "d1").await, find(&service, "tank", "d2").await);
        let (a, b) = (a.unwrap(), b.unwrap());
        service.datasets.rename("tank/d1", "tank/new").await.unwrap();
        assert_eq!(service.files.getattr(a).await.unwrap().handle, a, "the directory is renamed");
        assert_eq!(find(&service, "tank", "new").await.unwrap(), a);
        assert_eq!(find(&service, "tank", "d1").await, Err(FsError::NotFound));
        service.datasets.rename("tank/new", "tank/d3/new").await.unwrap();
        assert_eq!(service.files.getattr(a).await, Err(FsError::Stale));
        service.datasets.destroy("tank/d2", false).await.unwrap();
        assert_eq!(service.files.getattr(b).await, Err(FsError::Stale));
        snapshot(&service, "tank@s").await;
        let shown = find(&service, "tank@s", "d4").await;
        assert_eq!(shown, Err(FsError::NotFound), "a snapshot shows no other dataset");
    });
    bed.assert_clean();
}

/// Nobody changes the directory that shows a dataset, or puts anything into it.
#[test]
fn what_shows_a_dataset_is_not_changed() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let files = &service.files;
        let top = files.root("tank").unwrap();
        let (file, shadow) =
            (make(&service, top, "file").await, find(&service, "tank", "d").await.unwrap());
        let attributes = files.getattr(shadow).await.unwrap();
        let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let read_only = Err(FsError::ReadOnly);
        let made = files.mkdir(&root(), shadow, b"x", &set).await.kept().await.0.map(drop);
        assert_eq!(made, read_only);
        let how = CreateHow::Guarded(SetAttributes::default());
        let made = files.create(&root(), shadow, b"x", how).await.kept().await.0.map(drop);
        assert_eq!(made, read_only);
        let linked = files.link(&root(), file, shadow, b"x").await.kept().await.0.map(drop);
        assert_eq!(linked, read_only);
        let moved = files.rename(&root(), (top, b"file"), (shadow, b"x")).await.kept().await.0;
        assert_eq!(moved, read_only);
        let changed = files.setattr(&root(), shadow, &set, None).await.kept().await.0;
        assert_eq!(changed, read_only);
        let gone = files.rmdir(&root(), top, b"d").await.kept().await.0;
        assert_eq!(gone, Err(FsError::NotPermitted));
        let moved = files.rename(&root(), (top, b"d"), (top, b"e")).await.kept().await.0;
        assert_eq!(moved, Err(FsError::NotPermitted));
        let moved = files.rename(&root(), (top, b"file"), (top, b"d")).await.kept().await.0;
        assert_eq!(moved, Err(FsError::Exists));
        let (entries, eof, _) = files.readdir(&root(), shadow, 0, 100, true).await.unwrap();
        let names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        assert!(eof && names == [b".".to_vec(), b"..".to_vec()], "{names:?}");
        let up = files.lookup(&root(), shadow, b"..").await.0.unwrap().handle;
        assert_eq!((up, files.getattr(shadow).await.unwrap()), (top, attributes));
        assert_eq!(files.lookup(&root(), shadow, b"x").await.0, Err(FsError::NotFound));
    });
    bed.assert_clean();
}
