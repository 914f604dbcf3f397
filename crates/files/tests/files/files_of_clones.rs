//! Single files in a clone of a dataset: they are cloned, go back and come back as any others.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, RollbackOptions};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{FileHandle, Service};

use crate::bed::{Bed, find, root, settle};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, snapshot, take, with_disk};
use crate::spread::{PAGES, cut, fill, is_filled};

fn dataset(service: &Service, name: &str) -> Arc<Dataset> {
    service.datasets.by_name(name).unwrap()
}

/// `disk` in `tank/d` (0, then 1000), and `tank/c`, a clone of `tank/d@x`, in which it is still 0.
async fn with_clone(service: &Service) -> FileHandle {
    let (_, disk) = with_disk(service).await;
    take(service, "a").await;
    snapshot(service, "x").await;
    fill(service, disk, 1000).await;
    service.datasets.clone_snapshot("tank/d@x", "tank/c", &[]).await.unwrap();
    at(service, "tank/c:disk").await
}

async fn at(service: &Service, path: &str) -> FileHandle {
    let (dataset, path) = path.split_once(':').unwrap();
    find(service, dataset, path).await.unwrap()
}

async fn clone(service: &Service, from: &str, to: &str) {
    service.files.clone_named(from, &[to.to_string()]).await.unwrap();
}

async fn take_in(service: &Service, full: &str) {
    service.files.take_named(&[full.to_string()]).await.unwrap();
}

async fn remove(service: &Service, path: &str) {
    let (dataset, path) = path.split_once(':').unwrap();
    let top = service.files.root(dataset).unwrap();
    service.files.remove(&root(), top, path.as_bytes()).await.kept().await.0.unwrap();
}

async fn roll_back(service: &Service, text: &str, options: RollbackOptions) -> Vec<String> {
    let (dataset, found) = service.files.versions_named(text).await.unwrap();
    let versions: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
    let done = service.files.roll_back_named(text, (&dataset, &versions), options).await;
    done.map_err(|error: FileNameError| error.to_string()).unwrap()
}

async fn destroy_whole(service: &Service, full: &str) {
    let (dataset, of) = service.datasets.snapshot_by_name(full).unwrap();
    let all = BTreeSet::from([of.txg]);
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

/// Returns the space that the clone takes, in the size of the file.
fn files_used(service: &Service) -> u64 {
    service.datasets.used_bytes(&dataset(service, "tank/c")) / (PAGES * 4096)
}

/// A clone of a file that the clone has of its origin costs nothing, and outlives it.
#[test]
pub fn a_file_is_cloned_from_what_the_dataset_began_with() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_clone(&service).await;
        take_in(&service, "tank/c:disk@own").await;
        clone(&service, "tank/c:disk@own", "tank/c:one").await;
        service.datasets.snapshot(&["tank/c@all".into()], false).await.unwrap();
        clone(&service, "tank/c:disk@all", "tank/c:two").await;
        assert_eq!(files_used(&service), 0);
        fill(&service, disk, 2000).await;
        assert_eq!(files_used(&service), 1);
        let one = at(&service, "tank/c:one").await;
        fill(&service, one, 3000).await;
        assert_eq!(files_used(&service), 2);
        // Back and forth between datasets.
        service.datasets.create("tank/e", &[]).await.unwrap();
        clone(&service, "tank/d:disk@a", "tank/c:three").await;
        clone(&service, "tank/c:disk@own", "tank/e:four").await;
        is_filled(&service, at(&service, "tank/c:three").await, 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        remove(&service, "tank/c:disk").await;
        destroy_whole(&service, "tank/c@all").await;
        settle(&service, 200).await;
        is_filled(&service, at(&service, "tank/c:one").await, 3000).await;
        for path in ["tank/c:two", "tank/c:three", "tank/e:four"] {
            is_filled(&service, at(&service, path).await, 0).await;
        }
        assert_eq!(files_used(&service), 1, "one was written");
        cut(&service, at(&service, "tank/c:two").await, 7).await;
        cut(&service, at(&service, "tank/c:one").await, 7).await;
        settle(&service, 200).await;
        assert_eq!(files_used(&service), 0);
    });
    bed.assert_clean();
    bed.life(async |service| {
        for name in ["tank/e", "tank/c"] {
            service.datasets.destroy_all(&[name.into()], true, false).await.unwrap();
        }
        settle(&service, 300).await;
        is_filled(&service, at(&service, "tank/d:disk").await, 1000).await;
    });
    bed.assert_clean();
}

/// It goes back over what the dataset began with, with later snapshots and without, and the sums
/// stay right.
#[test]
pub fn a_file_goes_back_to_what_the_dataset_began_with() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_clone(&service).await;
        take_in(&service, "tank/c:disk@zero").await;
        fill(&service, disk, 2000).await;
        take_in(&service, "tank/c:disk@two").await;
        service.datasets.snapshot(&["tank/c@all".into()], false).await.unwrap();
        fill(&service, disk, 3000).await;
        assert_eq!(files_used(&service), 2);
        let texts = [("zero", 0), ("two", 2000), ("all", 2000), ("zero", 0)];
        for (name, salt) in texts {
            let gone = roll_back(&service, &format!("tank/c:disk@{name}"), GENTLY).await;
            assert_eq!(gone, Vec::<String>::new());
            is_filled(&service, disk, salt).await;
            settle(&service, 200).await;
        }
        assert_eq!(files_used(&service), 1, "what `two` shows");
    });
    bed.assert_clean();
    bed.life(async |service| {
        destroy_whole(&service, "tank/c@all").await;
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        let gone = roll_back(&service, "tank/c:disk@zero", options).await;
        assert_eq!(gone, ["tank/c:disk@two"]);
        settle(&service, 200).await;
        let disk = at(&service, "tank/c:disk").await;
        is_filled(&service, disk, 0).await;
        assert_eq!(files_used(&service), 0);
        // Removed, it comes back.
        remove(&service, "tank/c:disk").await;
        settle(&service, 200).await;
        roll_back(&service, "tank/c:disk@zero", GENTLY).await;
        is_filled(&service, disk, 0).await;
        fill(&service, disk, 4000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        // The dataset goes back to what it began with.
        service.datasets.snapshot(&["tank/c@end".into()], false).await.unwrap();
        service.datasets.promote("tank/c").await.unwrap();
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        service.datasets.rollback("tank/c@x", options).await.unwrap();
        settle(&service, 300).await;
        is_filled(&service, at(&service, "tank/c:disk").await, 0).await;
        assert_eq!(files_used(&service), 0);
        is_filled(&service, at(&service, "tank/d:disk").await, 1000).await;
    });
    bed.assert_clean();
}
