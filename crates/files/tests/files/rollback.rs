//! Rollback of a dataset: what clients see of it.

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::{FileHandle, FsError, Service, Stability};

use crate::bed::{Bed, find, make, noise, read, root, settle, write};

const GENTLY: RollbackOptions = RollbackOptions { destroy_later: false, force: false };

async fn take(service: &Service, name: &str) {
    service.datasets.snapshot(&[format!("tank/d@{name}")], false).await.unwrap();
}

async fn roll_back(service: &Service, name: &str) {
    service.datasets.rollback(&format!("tank/d@{name}"), GENTLY).await.unwrap();
}

/// A file of 300 pages, most of them the same.
async fn with_file(service: &Service) -> FileHandle {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let file = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    for at in 0..300 {
        write(service, file, at, &noise(at, 1), Stability::FileSync).await.unwrap();
    }
    file
}

#[test]
fn the_same_handle_reads_the_old_content_and_sees_a_change() {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        let file = with_file(&service).await;
        let top = service.files.root("tank/d").unwrap();
        let gone = make(&service, top, "gone").await;
        take(&service, "a").await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let refer = dataset.refer_bytes();
        service.files.remove(&root(), top, b"gone").await.kept().await.0.unwrap();
        write(&service, file, 7, &noise(900, 4), Stability::FileSync).await.unwrap();
        let new = make(&service, top, "new").await;
        // One change is on disk, one is not.
        service.pool.sync().await.unwrap();
        write(&service, file, 250, &noise(910, 100), Stability::FileSync).await.unwrap();
        let before = service.files.getattr(file).await.unwrap();
        let verifier = service.files.verifier();
        roll_back(&service, "a").await;
        for at in [0, 7, 10, 250, 299] {
            assert_eq!(read(&service, file, at).await.unwrap(), noise(at, 1), "page {at}");
        }
        let after = service.files.getattr(file).await.unwrap();
        assert_eq!(after.size, 300 * 4096);
        assert!(after.change > before.change && after.ctime > before.ctime, "{after:?}");
        assert!(service.files.getattr(gone).await.is_ok(), "it is back");
        assert_eq!(service.files.getattr(new).await, Err(FsError::Stale));
        assert_eq!(service.files.verifier(), verifier);
        assert_eq!(dataset.refer_bytes(), refer);
        let used = service.datasets.used_bytes(&dataset);
        assert_eq!(used, refer, "what came back counts once");
        // Ids are not given out again.
        let newer = make(&service, top, "newer").await;
        assert!(newer.object > new.object, "{newer:?}");
        settle(&service, 20).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let file = find(&service, "tank/d", "disk").await.unwrap();
        assert_eq!(read(&service, file, 7).await.unwrap(), noise(7, 1));
        // An object that was not in memory shows that it changed, too.
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let gone = find(&service, "tank/d", "gone").await.unwrap();
        let attributes = service.files.getattr(gone).await.unwrap();
        assert!(attributes.ctime > dataset.created() && attributes.ctime > attributes.mtime);
        assert_eq!(service.files.getattr(file).await.unwrap().ctime, attributes.ctime);
    });
}

#[test]
fn later_snapshots_go() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = with_file(&service).await;
        for (name, salt) in [("a", 1000), ("b", 2000), ("c", 3000)] {
            take(&service, name).await;
            write(&service, file, 0, &noise(salt, 20), Stability::FileSync).await.unwrap();
        }
        assert_eq!(read(&service, file, 0).await.unwrap(), noise(3000, 1));
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        let destroyed = service.datasets.rollback("tank/d@a", options).await.unwrap();
        assert_eq!(destroyed, ["b", "c"]);
        assert_eq!(read(&service, file, 0).await.unwrap(), noise(0, 1));
        let dataset = service.datasets.by_name("tank/d").unwrap();
        assert_eq!(dataset.snapshot_count(), 1);
        settle(&service, 20).await;
        assert_eq!(dataset.dead_bytes(), 0, "the snapshot shows what the head does");
        // Again, and then all of it goes.
        write(&service, file, 0, &noise(4000, 20), Stability::FileSync).await.unwrap();
        roll_back(&service, "a").await;
        roll_back(&service, "a").await;
        assert_eq!(read(&service, file, 0).await.unwrap(), noise(0, 1));
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 20).await;
    });
    bed.assert_clean();
}

#[test]
fn data_that_waits_for_commit_is_lost_by_force_only() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let file = with_file(&service).await;
        take(&service, "a").await;
        write(&service, file, 3, &noise(500, 1), Stability::Unstable).await.unwrap();
        let refused = service.datasets.rollback("tank/d@a", GENTLY).await;
        assert_eq!(refused, Err(DatasetError::WaitsForCommit("tank/d".into())));
        // Nothing waits for it.
        write(&service, file, 4, &noise(501, 1), Stability::FileSync).await.unwrap();
        assert_eq!(read(&service, file, 3).await.unwrap(), noise(500, 1));
        let options = RollbackOptions { force: true, ..GENTLY };
        service.datasets.rollback("tank/d@a", options).await.unwrap();
        assert_eq!(read(&service, file, 3).await.unwrap(), noise(3, 1));
        assert_eq!(read(&service, file, 4).await.unwrap(), noise(4, 1));
    });
    bed.assert_clean();
}

/// A removed file that waits to be freed when the snapshot is taken comes back to be freed, and no
/// import is needed for that.
#[test]
pub fn what_waited_to_be_freed_waits_again() {
    let mut bed = Bed::new(1, 65536);
    (bed.options.scale.reap_entries_max, bed.options.scale.node_bytes) = (12, 1000);
    bed.life(async |service| {
        let file = with_file(&service).await;
        let top = service.files.root("tank/d").unwrap();
        for at in 200..500 {
            write(&service, file, at * 2, &noise(at, 1), Stability::FileSync).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        take(&service, "a").await;
        for _ in 0..40 {
            service.pool.sync().await.unwrap();
        }
        let dataset = service.datasets.by_name("tank/d").unwrap();
        assert!(!service.datasets.has_background_work());
        let freed = dataset.refer_bytes();
        roll_back(&service, "a").await;
        assert!(dataset.refer_bytes() > freed, "it is there again");
        for _ in 0..40 {
            service.pool.sync().await.unwrap();
        }
        assert!(!service.datasets.has_background_work());
        assert_eq!(dataset.refer_bytes(), freed, "and freed again");
    });
    bed.assert_clean();
}

/// The snapshot goes while the old head is taken down, and the space of what they shared is used
/// for something else.
#[test]
fn an_old_head_does_without_its_snapshot() {
    let mut bed = Bed::new(1, 65536);
    (bed.options.scale.reap_entries_max, bed.options.scale.node_bytes) = (12, 1000);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        let mut files = Vec::new();
        for at in 0..200 {
            let file = make(&service, top, &format!("file {at}")).await;
            write(&service, file, 0, &noise(at, 2), Stability::FileSync).await.unwrap();
            files.push(file);
        }
        take(&service, "a").await;
        for at in (0..200).step_by(9) {
            let data = noise(1000 + at, 30);
            write(&service, files[at as usize], 1, &data, Stability::FileSync).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        roll_back(&service, "a").await;
        let snapshot = service.datasets.snapshot_by_name("tank/d@a").unwrap();
        let doomed = [(snapshot.0, [snapshot.1.txg].into())];
        service.datasets.destroy_snapshots(&doomed, false).await.unwrap();
        for (at, file) in (0..).zip(&files) {
            write(&service, *file, 0, &noise(2000 + at, 3), Stability::FileSync).await.unwrap();
            if at % 20 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        for _ in 0..300 {
            service.pool.sync().await.unwrap();
        }
        assert!(!service.datasets.has_background_work());
        assert!(service.datasets.damages().is_empty(), "{:?}", service.datasets.damages());
        for (at, file) in (0..).zip(&files) {
            assert_eq!(read(&service, *file, 0).await.unwrap(), noise(2000 + at, 3)[..4096]);
        }
    });
    bed.assert_clean();
}
