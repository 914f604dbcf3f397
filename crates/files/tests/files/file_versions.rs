//! Files that begin as a snapshot of their dataset shows them: clones, and rollbacks.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, DatasetError, RollbackOptions};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{FileHandle, Service, Stability};

use crate::bed::{Bed, find, make, noise, root, settle, write};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, snapshot, take, with_disk};
use crate::spread::{PAGES, cut, fill, is_filled};

async fn destroy(service: &Service, name: &str) {
    let (dataset, of) = service.datasets.snapshot_by_name(&format!("tank/d@{name}")).unwrap();
    let all = BTreeSet::from([of.txg]);
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

async fn clone(service: &Service, from: &str, to: &str) -> Result<(), FileNameError> {
    let to = [format!("tank/d:{to}")];
    service.files.clone_named(&format!("tank/d:{from}"), &to).await
}

async fn roll_back(
    service: &Service,
    to: &str,
    options: RollbackOptions,
) -> Result<Vec<String>, FileNameError> {
    let (dataset, found) = service.files.versions_named(&format!("tank/d:{to}")).await?;
    let versions: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
    Ok(service.datasets.rollback_files(&dataset, &versions, options).await?)
}

async fn file(service: &Service, name: &str) -> FileHandle {
    find(service, "tank/d", name).await.unwrap()
}

async fn remove(service: &Service, name: &str) {
    let top = service.files.root("tank/d").unwrap();
    service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
}

fn dataset(service: &Service) -> Arc<Dataset> {
    service.datasets.by_name("tank/d").unwrap()
}

/// `disk` and `other` as of `x` (0 and 100), then changed, cut, and as of `y` (2000 and 3000).
async fn with_two(service: &Service) {
    let (_, disk) = with_disk(service).await;
    let other = make(service, service.files.root("tank/d").unwrap(), "other").await;
    fill(service, other, 100).await;
    snapshot(service, "x").await;
    // Each page dies in a txg of its own, so all is not gathered at once.
    for at in 0..PAGES {
        let data = noise(1000 + at, 1);
        write(service, disk, at * 2, &data, Stability::Unstable).await.unwrap();
        service.pool.sync().await.unwrap();
    }
    // What is cut off dies as an object of its own.
    cut(service, disk, 7).await;
    settle(service, 60).await;
    fill(service, disk, 2000).await;
    fill(service, other, 3000).await;
    snapshot(service, "y").await;
}

/// The file keeps what it began with, and nothing else of the snapshot stays.
#[test]
pub fn one_file_stays_when_the_snapshot_goes() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_two(&service).await;
        clone(&service, "disk@x", "copy").await.unwrap();
        destroy(&service, "x").await;
    });
    bed.assert_clean();
    for life in 0..10 {
        // Some of it is gathered.
        bed.short_life(async |service| {
            is_filled(&service, file(&service, "copy").await, 0).await;
            for _ in 0..life {
                service.pool.sync().await.unwrap();
            }
        });
        bed.assert_clean();
    }
    bed.life(async |service| {
        settle(&service, 200).await;
        is_filled(&service, file(&service, "copy").await, 0).await;
        let one = PAGES * 4096;
        let dead = dataset(&service).dead_bytes();
        assert!((one..one + one / 2).contains(&dead), "{dead}: of one file, and not of two");
        // It is written, and snapshots come and go.
        fill(&service, file(&service, "copy").await, 5000).await;
        take(&service, "late").await;
        snapshot(&service, "z").await;
        fill(&service, file(&service, "disk").await, 6000).await;
        destroy(&service, "y").await;
        settle(&service, 200).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, file(&service, "copy").await, 5000).await;
        destroy(&service, "z").await;
        remove(&service, "copy").await;
        settle(&service, 200).await;
        let dead = dataset(&service).dead_bytes();
        assert!(dead < PAGES * 4096 * 3 / 2, "{dead}: only `late` is left");
    });
    bed.assert_clean();
}

/// Bytes that a destroy says it frees are those that it frees, with a derived snapshot beside it.
#[test]
fn a_dry_run_is_exact() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_two(&service).await;
        clone(&service, "disk@x", "copy").await.unwrap();
        settle(&service, 200).await;
        for name in ["x", "y"] {
            let (of, known) = service.datasets.snapshot_by_name(&format!("tank/d@{name}")).unwrap();
            let these = BTreeSet::from([known.txg]).into();
            let says = service.datasets.unique_bytes(&of, &these).await.unwrap();
            let before = of.dead_bytes();
            destroy(&service, name).await;
            settle(&service, 200).await;
            assert_eq!(before - of.dead_bytes(), says, "{name}");
        }
    });
    bed.assert_clean();
}

/// A handle stays, and reads what the snapshot of the dataset shows; several files go at one
/// moment.
#[test]
fn files_go_back_to_a_snapshot_of_all() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_two(&service).await;
        let (disk, other) = (file(&service, "disk").await, file(&service, "other").await);
        let top = service.files.root("tank/d").unwrap();
        roll_back(&service, "*@x", GENTLY).await.unwrap();
        is_filled(&service, disk, 0).await;
        is_filled(&service, other, 100).await;
        roll_back(&service, "disk@y", GENTLY).await.unwrap();
        is_filled(&service, disk, 2000).await;
        // Under another name, and by that.
        let (from, new) = ((top, &b"disk"[..]), (top, &b"new"[..]));
        service.files.rename(&root(), from, new).await.kept().await.0.unwrap();
        fill(&service, disk, 7000).await;
        roll_back(&service, "new@x", GENTLY).await.unwrap();
        is_filled(&service, disk, 0).await;
        destroy(&service, "x").await;
        settle(&service, 200).await;
        is_filled(&service, disk, 0).await;
        is_filled(&service, other, 100).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        destroy(&service, "y").await;
        remove(&service, "new").await;
        remove(&service, "other").await;
        settle(&service, 200).await;
        let dataset = dataset(&service);
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 0));
    });
    bed.assert_clean();
}

/// A disk is renamed, and another has its name: a text means the snapshot that is listed so. What
/// changes or destroys goes by nothing else.
#[test]
fn a_path_that_two_files_had_changes_neither_by_mistake() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (_, base) = with_disk(&service).await;
        let top = service.files.root("tank/d").unwrap();
        take(&service, "a").await;
        snapshot(&service, "x").await;
        let rename = async |from: &str, to: &str| {
            let (from, to) = ((top, from.as_bytes()), (top, to.as_bytes()));
            service.files.rename(&root(), from, to).await.kept().await.0.unwrap();
        };
        rename("disk", "base").await;
        fill(&service, base, 1000).await;
        let disk = make(&service, top, "disk").await;
        fill(&service, disk, 2000).await;
        let back = async |text: &str| {
            let text = format!("tank/d:{text}");
            let (dataset, found) = service.files.versions_named(&text).await?;
            let versions: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
            service.files.roll_back_named(&text, (&dataset, &versions), GENTLY).await
        };
        // It would change the image, and the disk was meant.
        for text in ["disk@a", "*@a", "disk@x", "*@x"] {
            let (name, now) = ("tank/d:disk".into(), "tank/d:base".into());
            assert_eq!(back(text).await, Err(FileNameError::AnotherFile { name, now }), "{text}");
        }
        is_filled(&service, base, 1000).await;
        is_filled(&service, disk, 2000).await;
        clone(&service, "disk@a", "copy").await.unwrap();
        is_filled(&service, file(&service, "copy").await, 0).await;
        back("base@x").await.unwrap();
        is_filled(&service, base, 0).await;
        fill(&service, base, 1000).await;
        back("base@a").await.unwrap();
        is_filled(&service, base, 0).await;
        // Both have an `n`: the listed one first, and then that of the file.
        rename("base", "old").await;
        rename("disk", "base").await;
        settle(&service, 100).await;
        let names = ["tank/d:old@n".into(), "tank/d:base@n".into()];
        service.files.take_named(&names).await.unwrap();
        rename("base", "disk").await;
        rename("old", "base").await;
        clone(&service, "base@n", "first").await.unwrap();
        is_filled(&service, file(&service, "first").await, 2000).await;
        let listed = async |text: &str| service.files.listed_named(text).await;
        let (dataset, found) = listed("tank/d:base@n").await.unwrap();
        let ids = found.iter().map(|of| of.id).collect();
        service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
        // The same command once more does not destroy another.
        let (text, other) = ("tank/d:base@n".into(), "tank/d:old@n".into());
        let again = listed("tank/d:base@n").await.unwrap_err();
        assert_eq!(again, FileNameError::Listed { text, listed: other });
        clone(&service, "base@n", "then").await.unwrap();
        is_filled(&service, file(&service, "then").await, 0).await;
        // The path has listed snapshots, and the file one of another name.
        rename("disk", "spare").await;
        rename("base", "disk").await;
        assert_eq!(listed("tank/d:disk@a,n").await.unwrap_err().to_string(), concat!(
            "there is no snapshot \"tank/d:disk@a,n\": the file had another path then, and it is ",
            "\"tank/d:old@n\""
        ));
        clone(&service, "disk@n", "last").await.unwrap();
        is_filled(&service, file(&service, "last").await, 0).await;
    });
    bed.assert_clean();
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_two(&service).await;
        let disk = file(&service, "disk").await;
        let refused = async |from: &str, part: &str| {
            let error = clone(&service, from, "z").await.unwrap_err().to_string();
            assert!(error.contains(part), "{from}: {error}");
        };
        refused("none@x", "there is no file").await;
        refused("disk@none", "there is no snapshot").await;
        refused("*@x", "several snapshots").await;
        let later = make(&service, service.files.root("tank/d").unwrap(), "later").await;
        fill(&service, later, 1).await;
        refused("later@x", "there is no file").await;
        // A part of it waited to be freed.
        cut(&service, disk, 3).await;
        service.pool.sync().await.unwrap();
        snapshot(&service, "u").await;
        refused("disk@u", "cut off the file").await;
        let refused = roll_back(&service, "disk@u", GENTLY).await;
        let unsettled = DatasetError::Unsettled("tank/d:disk@u".into());
        assert_eq!(refused, Err(FileNameError::Dataset(unsettled)));
        assert_eq!(find(&service, "tank/d", "z").await.ok(), None);
    });
    bed.assert_clean();
}
