//! Clones of files in other datasets: what these keep for each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, DatasetError, RollbackOptions};
use aquifer_files::Service;
use aquifer_files::file_snapshots::FileNameError;

use crate::bed::{Bed, find, make, root, settle};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, snapshot, take, with_disk};
use crate::receive::{STANDBY, changes, receive, stream};
use crate::spread::{self, PAGES, fill};

const WITH_LATER: RollbackOptions = RollbackOptions { destroy_later: true, force: false };

fn dataset(service: &Service, name: &str) -> Arc<Dataset> {
    service.datasets.by_name(name).unwrap()
}

/// `disk` in `tank/d` (0), with a snapshot `a` of it and `x` of the dataset, then filled once more
/// (1000), and an empty `tank/e`.
async fn with_both(service: &Service) {
    let (_, disk) = with_disk(service).await;
    take(service, "a").await;
    snapshot(service, "x").await;
    fill(service, disk, 1000).await;
    service.datasets.create("tank/e", &[]).await.unwrap();
}

async fn clone(service: &Service, from: &str, to: &[&str]) -> Result<(), FileNameError> {
    let to: Vec<String> = to.iter().map(|to| format!("tank/e:{to}")).collect();
    service.files.clone_named(&format!("tank/d:{from}"), &to).await
}

async fn is_filled(service: &Service, of: &str, name: &str, salt: u64) {
    spread::is_filled(service, find(service, of, name).await.unwrap(), salt).await;
}

async fn remove(service: &Service, of: &str, name: &str) {
    let top = service.files.root(of).unwrap();
    service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
}

async fn destroy_own(service: &Service, text: &str) {
    let (dataset, found) = service.files.listed_named(text).await.unwrap();
    let ids: BTreeSet<_> = found.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
}

async fn destroy_whole(service: &Service, full: &str) {
    let (dataset, of) = service.datasets.snapshot_by_name(full).unwrap();
    let all = BTreeSet::from([of.txg]);
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

async fn snapshot_e(service: &Service, name: &str) {
    service.datasets.snapshot(&[format!("tank/e@{name}")], false).await.unwrap();
}

fn is_needed(error: DatasetError) {
    let by = vec!["tank/e".to_string()];
    assert_eq!(error, DatasetError::NeededByFiles { name: "tank/d".into(), by });
}

/// Content of clones stays when all that names it in the dataset of the origin goes, and goes with
/// the last of them.
#[test]
pub fn what_a_clone_elsewhere_began_with_stays_until_it_is_gone() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        let used = service.datasets.used_bytes(&dataset(&service, "tank/e"));
        clone(&service, "disk@a", &["one", "two"]).await.unwrap();
        clone(&service, "disk@x", &["whole"]).await.unwrap();
        let e = dataset(&service, "tank/e");
        let own = service.datasets.used_bytes(&e) - used;
        assert!(own <= 3 * 4096 && e.refer_bytes() >= 3 * PAGES * 4096, "{own}");
        destroy_own(&service, "tank/d:disk@a").await;
        destroy_whole(&service, "tank/d@x").await;
        let d = dataset(&service, "tank/d");
        assert_eq!(d.file_snapshot_count(), 0, "nobody lists it");
        remove(&service, "tank/d", "disk").await;
        settle(&service, 200).await;
        for name in ["one", "two", "whole"] {
            is_filled(&service, "tank/e", name, 0).await;
        }
        assert!(d.dead_bytes() >= PAGES * 4096, "kept for them");
        fill(&service, find(&service, "tank/e", "two").await.unwrap(), 2000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "tank/e", "one", 0).await;
        is_filled(&service, "tank/e", "two", 2000).await;
        remove(&service, "tank/e", "one").await;
        remove(&service, "tank/e", "two").await;
        settle(&service, 200).await;
        is_filled(&service, "tank/e", "whole", 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        remove(&service, "tank/e", "whole").await;
        settle(&service, 200).await;
        for name in ["tank/d", "tank/e"] {
            let of = dataset(&service, name);
            assert_eq!((of.dead_bytes(), of.refer_bytes()), (0, 0), "{name}");
        }
    });
    bed.assert_clean();
}

/// The first act after an import is the end of the snapshot.
#[test]
fn an_import_knows_what_others_need() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        clone(&service, "disk@a", &["one"]).await.unwrap();
    });
    bed.life(async |service| destroy_own(&service, "tank/d:disk@a").await);
    bed.assert_clean();
    bed.life(async |service| {
        settle(&service, 100).await;
        destroy_whole(&service, "tank/d@x").await;
        settle(&service, 100).await;
        is_filled(&service, "tank/e", "one", 0).await;
    });
    bed.assert_clean();
}

/// The dataset of the clone goes back and forth; its snapshots show what was removed.
#[test]
pub fn the_dataset_of_the_clone_goes_back() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        snapshot_e(&service, "empty").await;
        clone(&service, "disk@a", &["one"]).await.unwrap();
        snapshot_e(&service, "with").await;
        remove(&service, "tank/e", "one").await;
        destroy_own(&service, "tank/d:disk@a").await;
        destroy_whole(&service, "tank/d@x").await;
        settle(&service, 200).await;
        is_filled(&service, "tank/e@with", "one", 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let error = service.datasets.destroy("tank/d", true).await.unwrap_err();
        is_needed(error);
        service.datasets.rollback("tank/e@with", GENTLY).await.unwrap();
        settle(&service, 100).await;
        is_filled(&service, "tank/e", "one", 0).await;
        fill(&service, find(&service, "tank/e", "one").await.unwrap(), 2000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "tank/e", "one", 2000).await;
        is_filled(&service, "tank/e@with", "one", 0).await;
        service.datasets.rollback("tank/e@empty", WITH_LATER).await.unwrap();
        settle(&service, 200).await;
        remove(&service, "tank/d", "disk").await;
        settle(&service, 200).await;
        let d = dataset(&service, "tank/d");
        assert_eq!((d.dead_bytes(), d.refer_bytes()), (0, 0));
    });
    bed.assert_clean();
}

/// A clone is a file like any other: it is cut, has snapshots, goes back, and is cloned in turn,
/// into the dataset that it came from.
#[test]
pub fn a_clone_elsewhere_is_cut_rolled_back_and_cloned() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        clone(&service, "disk@a", &["one"]).await.unwrap();
        let one = find(&service, "tank/e", "one").await.unwrap();
        service.files.take_named(&["tank/e:one@s".into()]).await.unwrap();
        spread::cut(&service, one, 7).await;
        settle(&service, 100).await;
        fill(&service, one, 3000).await;
        snapshot_e(&service, "t").await;
        let (e, found) = service.files.versions_named("tank/e:one@s").await.unwrap();
        let to: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
        service.datasets.rollback_files(&e, &to, GENTLY).await.unwrap();
        spread::is_filled(&service, one, 0).await;
        settle(&service, 100).await;
        let back = ["tank/d:back".to_string()];
        service.files.clone_named("tank/e:one@s", &back).await.unwrap();
        service.files.clone_named("tank/e:one@t", &["tank/d:later".into()]).await.unwrap();
        // All between goes: each keeps what it began as.
        destroy_own(&service, "tank/e:one@s").await;
        destroy_whole(&service, "tank/e@t").await;
        destroy_own(&service, "tank/d:disk@a").await;
        destroy_whole(&service, "tank/d@x").await;
        remove(&service, "tank/e", "one").await;
        remove(&service, "tank/d", "disk").await;
        settle(&service, 300).await;
        is_filled(&service, "tank/d", "back", 0).await;
        is_filled(&service, "tank/d", "later", 3000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "tank/d", "back", 0).await;
        is_filled(&service, "tank/d", "later", 3000).await;
        // Each needs the other: neither goes alone.
        let error = service.datasets.destroy("tank/e", true).await.unwrap_err();
        assert!(matches!(error, DatasetError::NeededByFiles { .. }), "{error}");
        remove(&service, "tank/d", "later").await;
        remove(&service, "tank/d", "back").await;
        settle(&service, 300).await;
        for name in ["tank/d", "tank/e"] {
            let of = dataset(&service, name);
            assert_eq!((of.dead_bytes(), of.refer_bytes()), (0, 0), "{name}");
        }
    });
    bed.assert_clean();
}

/// The dataset of a clone goes, with what only it needed; both go at once, too.
#[test]
fn datasets_go_in_an_order() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        clone(&service, "disk@a", &["one"]).await.unwrap();
        clone(&service, "disk@x", &["whole"]).await.unwrap();
        is_needed(service.datasets.destroy("tank/d", true).await.unwrap_err());
        destroy_own(&service, "tank/d:disk@a").await;
        service.datasets.destroy("tank/e", true).await.unwrap();
        settle(&service, 200).await;
        destroy_whole(&service, "tank/d@x").await;
        settle(&service, 200).await;
        let d = dataset(&service, "tank/d");
        assert_eq!(d.dead_bytes(), 0);
    });
    bed.assert_clean();
    bed.life(async |service| {
        take(&service, "b").await;
        service.datasets.create("tank/e", &[]).await.unwrap();
        clone(&service, "disk@b", &["one"]).await.unwrap();
        let both = ["tank/d".to_string(), "tank/e".into()];
        service.datasets.destroy_all(&both, true, false).await.unwrap();
        settle(&service, 200).await;
        assert_eq!(service.datasets.by_name("tank/d").map(|of| of.id), None);
    });
    bed.assert_clean();
}

#[test]
fn what_others_need_is_not_rolled_back() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        take(&service, "late").await;
        clone(&service, "disk@late", &["one"]).await.unwrap();
        let error = service.datasets.rollback("tank/d@x", WITH_LATER).await.unwrap_err();
        is_needed(error);
        destroy_own(&service, "tank/d:disk@late").await;
        // Hidden, it is in the way all the same.
        is_needed(service.datasets.rollback("tank/d@x", GENTLY).await.unwrap_err());
        is_filled(&service, "tank/d", "disk", 1000).await;
        remove(&service, "tank/e", "one").await;
        settle(&service, 200).await;
        service.datasets.rollback("tank/d@x", GENTLY).await.unwrap();
        is_filled(&service, "tank/d", "disk", 0).await;
        // One of before may stay.
        clone(&service, "disk@a", &["two"]).await.unwrap();
        clone(&service, "disk@x", &["three"]).await.unwrap();
        service.datasets.rollback("tank/d@x", GENTLY).await.unwrap();
        settle(&service, 100).await;
        is_filled(&service, "tank/e", "two", 0).await;
        is_filled(&service, "tank/e", "three", 0).await;
    });
    bed.assert_clean();
}

/// The line of the dataset with the clone outlives that, since a promoted clone of it has snapshots
/// on it.
#[test]
fn a_line_without_its_dataset_needs_what_it_needed() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        clone(&service, "disk@a", &["one"]).await.unwrap();
        snapshot_e(&service, "s").await;
        service.datasets.clone_snapshot("tank/e@s", "tank/f", &[]).await.unwrap();
        service.datasets.promote("tank/f").await.unwrap();
        service.datasets.destroy("tank/e", true).await.unwrap();
        destroy_own(&service, "tank/d:disk@a").await;
        destroy_whole(&service, "tank/d@x").await;
        remove(&service, "tank/d", "disk").await;
        settle(&service, 200).await;
        is_filled(&service, "tank/f", "one", 0).await;
        let error = service.datasets.destroy("tank/d", true).await.unwrap_err();
        let by = vec!["tank/f".to_string()];
        assert_eq!(error, DatasetError::NeededByFiles { name: "tank/d".into(), by });
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "tank/f", "one", 0).await;
        is_filled(&service, "tank/f@s", "one", 0).await;
        service.datasets.destroy("tank/f", true).await.unwrap();
        settle(&service, 200).await;
        let d = dataset(&service, "tank/d");
        assert_eq!((d.dead_bytes(), d.refer_bytes()), (0, 0));
        service.datasets.destroy("tank/d", true).await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn what_cannot_be_cloned_elsewhere_is_refused() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        let refused = async |from: &str, to: &[&str], part: &str| {
            let to: Vec<String> = to.iter().map(|to| to.to_string()).collect();
            let error = service.files.clone_named(from, &to).await.unwrap_err().to_string();
            assert!(error.contains(part), "{from} {to:?}: {error}");
        };
        let from = "tank/d:disk@a";
        refused(from, &["tank/e:one", "tank/d:two"], "in another dataset").await;
        refused(from, &["tank/none:one"], "names no file").await;
        refused(from, &["tank/e:none/one"], "does not exist").await;
        make(&service, service.files.root("tank/e").unwrap(), "one").await;
        refused(from, &["tank/e:one"], "exist").await;
        assert!(dataset(&service, "tank/e").refer_bytes() == 0, "nothing was made");
    });
    bed.assert_clean();
}

/// A snapshot of a file that nobody sees is in the way of an increment, and has no name to tell.
#[test]
fn what_is_hidden_has_no_name() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        let sent = stream(&service, "tank/d@x").await.unwrap();
        receive(&service, "tank/copy", &sent, STANDBY).await.unwrap();
        service.files.take_named(&["tank/copy:disk@secret".into()]).await.unwrap();
        service.files.clone_named("tank/copy:disk@secret", &["tank/e:one".into()]).await.unwrap();
        destroy_own(&service, "tank/copy:disk@secret").await;
        snapshot(&service, "y").await;
        let sent = changes(&service, "tank/d@y", Some("@x")).await.unwrap();
        let error = receive(&service, "tank/copy", &sent, STANDBY).await.unwrap_err().to_string();
        assert!(error.contains("tank/e") && !error.contains("secret"), "{error}");
        remove(&service, "tank/e", "one").await;
        settle(&service, 200).await;
        receive(&service, "tank/copy", &sent, STANDBY).await.unwrap();
    });
    bed.assert_clean();
}
