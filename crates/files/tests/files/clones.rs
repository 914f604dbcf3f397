//! Clones: what they count, and what a promotion leaves behind.

use aquifer_dataset::DatasetError;
use aquifer_files::{FileHandle, FsError, Service, SetAttributes, Stability};

use crate::bed::{Bed, find, make, noise, read, root, settle, write};

const PAGE: u64 = 4096;

/// A dataset with a file of 300 pages, its snapshot `a`, and a clone of that. Returns the clone's
/// file.
async fn with_clone(service: &Service) -> FileHandle {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let file = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    for at in [0, 100, 200] {
        write(service, file, at, &noise(at, 100), Stability::FileSync).await.unwrap();
    }
    service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
    service.datasets.clone_snapshot("tank/d@a", "tank/c", &[]).await.unwrap();
    find(service, "tank/c", "disk").await.unwrap()
}

/// Returns how much a dataset counts, and how much it refers to, in pages; without dead nodes.
fn counts(service: &Service, name: &str) -> (u64, u64) {
    let dataset = service.datasets.by_name(name).unwrap();
    let used = service.datasets.used_bytes(&dataset) - dataset.dead_bytes();
    (used / PAGE, dataset.refer_bytes() / PAGE)
}

/// A clone begins with a tail whose file was removed. Its origin's bytes count right all the same.
#[test]
fn a_removed_file_goes_after_what_was_cut_off_it() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        let [file, other] = [make(&service, top, "disk").await, make(&service, top, "other").await];
        for at in 0..60 {
            write(&service, file, at * 2, &noise(at, 1), Stability::Unstable).await.unwrap();
            write(&service, other, at * 2, &noise(99 + at, 1), Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        let short = SetAttributes { size: Some(PAGE), ..SetAttributes::default() };
        service.files.setattr(&root(), file, &short, None).await.kept().await.0.unwrap();
        service.pool.sync().await.unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        service.pool.sync().await.unwrap();
        service.datasets.snapshot(&["tank/d@a".into()], false).await.unwrap();
        service.datasets.clone_snapshot("tank/d@a", "tank/c", &[]).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(counts(&service, "tank/c"), (0, 60));
    });
    bed.assert_clean();
}

#[test]
fn a_clone_counts_what_it_owns() {
    let mut bed = Bed::new(3, 65536);
    bed.life(async |service| {
        let file = with_clone(&service).await;
        assert_eq!(counts(&service, "tank/c"), (0, 300));
        assert_eq!(counts(&service, "tank/d"), (300, 300));
        // A quota does not count what it shares.
        service.datasets.set("tank/c", "quota", Some("131072")).await.unwrap();
        write(&service, file, 10, &noise(1, 8), Stability::FileSync).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(counts(&service, "tank/c"), (8, 300));
        let refused = write(&service, file, 100, &noise(2, 40), Stability::FileSync).await;
        assert_eq!(refused.unwrap_err(), FsError::Quota);
        service.datasets.set("tank/c", "quota", None).await.unwrap();
        service.datasets.snapshot(&["tank/c@x".into()], false).await.unwrap();
        write(&service, file, 100, &noise(3, 20), Stability::FileSync).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(counts(&service, "tank/c"), (28, 300));
        let gently = Default::default();
        service.datasets.rollback("tank/c@x", gently).await.unwrap();
        assert_eq!(counts(&service, "tank/c"), (8, 300), "and at once");
        settle(&service, 20).await;
        assert_eq!(counts(&service, "tank/c"), (8, 300));
    });
    bed.life(async |service| {
        assert_eq!(counts(&service, "tank/c"), (8, 300), "also after a restart");
    });
    bed.assert_clean();
}

#[test]
fn a_promoted_clone_outlives_its_origin() {
    let mut bed = Bed::new(4, 65536);
    bed.life(async |service| {
        let file = with_clone(&service).await;
        let origin = find(&service, "tank/d", "disk").await.unwrap();
        write(&service, origin, 0, &noise(5, 50), Stability::FileSync).await.unwrap();
        write(&service, file, 10, &noise(1, 8), Stability::FileSync).await.unwrap();
        let done = service.datasets.promote("tank/c").await.unwrap();
        assert_eq!((done.origin.as_str(), done.snapshots), ("tank/d", vec!["a".to_string()]));
        let again = service.datasets.promote("tank/c").await.unwrap_err();
        assert!(matches!(again, DatasetError::NoClone(_)), "{again}");
        // Back to what it was cloned from, which it lists itself now.
        service.datasets.rollback("tank/c@a", Default::default()).await.unwrap();
        assert_eq!(counts(&service, "tank/c"), (0, 300));
        write(&service, file, 10, &noise(1, 8), Stability::FileSync).await.unwrap();
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 20).await;
        // What both shared counts to the one that lists it.
        assert_eq!(counts(&service, "tank/c"), (308, 300));
        let (dataset, snapshot) = service.datasets.snapshot_by_name("tank/c@a").unwrap();
        let all = [(dataset, [snapshot.txg].into())];
        service.datasets.destroy_snapshots(&all, false).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(counts(&service, "tank/c"), (308, 300), "the clone needs it");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let file = find(&service, "tank/c", "disk").await.unwrap();
        assert_eq!(read(&service, file, 0).await.unwrap(), noise(0, 100)[..4096]);
        assert_eq!(read(&service, file, 10).await.unwrap(), noise(1, 8)[..4096]);
        service.datasets.destroy("tank/c", true).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(service.datasets.freeing_bytes(), 0);
        assert_eq!(service.datasets.used_bytes(&service.datasets.by_name("tank").unwrap()), 0);
    });
    bed.assert_clean();
}

/// Increments go into a copy by the snapshots that a promotion would take away.
#[test]
pub fn a_clone_of_a_copy_is_not_promoted() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        with_clone(&service).await;
        service.datasets.set("tank/d", "standby", Some("on")).await.unwrap();
        let refused = service.datasets.promote("tank/c").await;
        let (name, from) = ("tank/c".into(), "tank/d".into());
        assert_eq!(refused, Err(DatasetError::Copy { name, from }));
        service.datasets.set("tank/d", "standby", Some("off")).await.unwrap();
        service.datasets.promote("tank/c").await.unwrap();
    });
    bed.assert_clean();
}
