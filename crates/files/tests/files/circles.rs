//! Datasets whose files were cloned into each other: none keeps another for ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, DatasetError};
use aquifer_files::Service;
use aquifer_sim::Rng;

use crate::bed::{Bed, find, make, root, settle};
use crate::by_text::ByText;
use crate::spread::fill;

fn dataset(service: &Service, name: &str) -> Arc<Dataset> {
    service.datasets.by_name(name).unwrap()
}

async fn take(service: &Service, full: &str) {
    service.files.take_named(&[full.into()]).await.unwrap();
}

async fn clone(service: &Service, from: &str, to: &str) {
    service.files.clone_named(from, &[to.into()]).await.unwrap();
}

async fn remove(service: &Service, of: &str, name: &str) {
    let top = service.files.root(of).unwrap();
    service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
}

async fn destroy_all_of_files(service: &Service, of: &Arc<Dataset>) {
    let all = of.file_snapshots(service.pool.committed_txg());
    let ids: BTreeSet<_> = all.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(of.clone(), ids)]).await.unwrap();
}

/// `tank/b:g@v` was cloned to `tank/a:f`, and `tank/a:f@x` to `tank/b:h`. Then `f`, `g` and both
/// snapshots went: `tank/a` shows nothing any more, and has what `h` began as.
async fn with_both(service: &Service) {
    for name in ["tank/a", "tank/b"] {
        service.datasets.create(name, &[]).await.unwrap();
    }
    let g = make(service, service.files.root("tank/b").unwrap(), "g").await;
    fill(service, g, 0).await;
    take(service, "tank/b:g@v").await;
    clone(service, "tank/b:g@v", "tank/a:f").await;
    let f = find(service, "tank/a", "f").await.unwrap();
    let some = crate::bed::noise(5000, 1);
    crate::bed::write(service, f, 0, &some, aquifer_files::Stability::FileSync).await.unwrap();
    take(service, "tank/a:f@x").await;
    clone(service, "tank/a:f@x", "tank/b:h").await;
    for name in ["tank/a", "tank/b"] {
        destroy_all_of_files(service, &dataset(service, name)).await;
    }
    remove(service, "tank/a", "f").await;
    remove(service, "tank/b", "g").await;
    settle(service, 300).await;
}

fn is_needed(refused: Result<(), DatasetError>, of: &str, by: &str) {
    let by = vec![by.to_string()];
    assert_eq!(refused, Err(DatasetError::NeededByFiles { name: of.into(), by }));
}

/// Needs that a dataset has only for the sake of the one that ends keep nobody.
#[test]
pub fn a_need_of_what_ends_ends_with_it() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        is_needed(service.datasets.destroy("tank/a", false).await, "tank/a", "tank/b");
    });
    bed.assert_clean();
    bed.life(async |service| {
        service.datasets.destroy("tank/b", false).await.unwrap();
        settle(&service, 300).await;
        let a = dataset(&service, "tank/a");
        assert_eq!((a.dead_bytes(), a.refer_bytes()), (0, 0));
        service.datasets.destroy("tank/a", false).await.unwrap();
        settle(&service, 100).await;
    });
    bed.assert_clean();
}

/// Needs that a dataset has only for the sake of a file end when that file goes by itself.
#[test]
fn the_last_clone_takes_a_chain_of_needs_along() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        remove(&service, "tank/b", "h").await;
        settle(&service, 300).await;
        for name in ["tank/a", "tank/b"] {
            let of = dataset(&service, name);
            assert_eq!((of.dead_bytes(), of.refer_bytes()), (0, 0), "{name}");
        }
        service.datasets.destroy("tank/a", false).await.unwrap();
        service.datasets.destroy("tank/b", false).await.unwrap();
    });
    bed.assert_clean();
}

/// A clone that is shown to people keeps what it began as, whoever else needs it.
#[test]
fn a_need_that_something_shows_stands() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_both(&service).await;
        // A chain of three: `tank/a:k` has what `h` began as, and is listed.
        take(&service, "tank/b:h@y").await;
        clone(&service, "tank/b:h@y", "tank/a:k").await;
        is_needed(service.datasets.destroy("tank/b", true).await, "tank/b", "tank/a");
        is_needed(service.datasets.destroy("tank/a", false).await, "tank/a", "tank/b");
        let k = find(&service, "tank/a", "k").await.unwrap();
        crate::spread::cut(&service, k, 1).await;
        destroy_all_of_files(&service, &dataset(&service, "tank/b")).await;
        remove(&service, "tank/b", "h").await;
        settle(&service, 300).await;
        is_needed(service.datasets.destroy("tank/b", true).await, "tank/b", "tank/a");
        remove(&service, "tank/a", "k").await;
        settle(&service, 300).await;
        service.datasets.destroy("tank/b", false).await.unwrap();
        service.datasets.destroy("tank/a", false).await.unwrap();
    });
    bed.assert_clean();
}

/// One act at random on files of three datasets. Refusals are part of it.
async fn any_act(service: &Service, rng: &mut Rng, step: u64) {
    let names = ["tank/a", "tank/b", "tank/c"];
    let name = names[rng.below(3) as usize];
    let Some(of) = service.datasets.by_name(name) else { return };
    let committed = service.pool.committed_txg();
    let own = of.file_snapshots(committed);
    let pick = |rng: &mut Rng, count: usize| rng.below(count.max(1) as u64) as usize;
    let file = ["f", "g", "h"][pick(rng, 3)];
    match rng.below(10) {
        0..=1 => {
            let names = [format!("{name}:{file}@s{step}")];
            drop(service.files.take_named(&names).await);
        }
        2..=4 => {
            let Some(from) = own.get(pick(rng, own.len())) else { return };
            let from = format!("{name}:{}@{}", from.record.path, from.record.name);
            let to = format!("{}:{}", names[pick(rng, 3)], ["f", "g", "h"][pick(rng, 3)]);
            drop(service.files.clone_named(&from, &[to]).await);
        }
        5 => {
            let Some(gone) = own.get(pick(rng, own.len())) else { return };
            let these = [(of.clone(), BTreeSet::from([gone.id]))];
            drop(service.datasets.destroy_file_snapshots(&these).await);
        }
        6..=7 => {
            let top = service.files.root(name).unwrap();
            drop(service.files.remove(&root(), top, file.as_bytes()).await.kept().await);
        }
        8 => {
            let full = format!("{name}@s{step}");
            drop(service.datasets.snapshot(&[full], false).await);
        }
        _ => {
            let all = of.snapshots(committed);
            let Some(to) = all.get(pick(rng, all.len())) else { return };
            let full = format!("{name}@{}", to.record.name);
            let options = crate::file_rollback::GENTLY;
            drop(service.datasets.rollback(&full, options).await);
        }
    }
}

/// After acts at random, datasets without a snapshot that anybody sees can be destroyed one by one,
/// whatever files they have: some one first, and so on.
#[test]
fn one_of_all_can_always_go() {
    for seed in 0..40 {
        let mut bed = Bed::of_small_steps();
        bed.life(async |service| {
            let mut rng = Rng::stream(seed, "circles");
            for name in ["tank/a", "tank/b", "tank/c"] {
                service.datasets.create(name, &[]).await.unwrap();
                let file = make(&service, service.files.root(name).unwrap(), "f").await;
                let some = crate::bed::noise(seed, 6);
                let stable = aquifer_files::Stability::FileSync;
                crate::bed::write(&service, file, 0, &some, stable).await.unwrap();
            }
            for step in 0..40 {
                any_act(&service, &mut rng, step).await;
            }
            let mut left = vec!["tank/a", "tank/b", "tank/c"];
            for name in &left {
                let of = dataset(&service, name);
                let all = of.snapshots(service.pool.committed_txg());
                let all: BTreeSet<_> = all.iter().map(|of| of.txg).collect();
                service.datasets.destroy_snapshots(&[(of.clone(), all)], false).await.unwrap();
                destroy_all_of_files(&service, &of).await;
                // Most of the files go: needs for their sake are in hidden snapshots then.
                for file in ["f", "g", "h"] {
                    if rng.below(4) > 0 && find(&service, name, file).await.is_ok() {
                        remove(&service, name, file).await;
                    }
                }
            }
            settle(&service, 300).await;
            // Files that are seen may need each other both ways: they go, one dataset at a time.
            while !left.is_empty() {
                let before = left.len();
                let mut refused = Vec::new();
                for name in std::mem::take(&mut left) {
                    if let Err(error) = service.datasets.destroy(name, false).await {
                        refused.push((name, error));
                        left.push(name);
                    }
                }
                settle(&service, 100).await;
                let has_files = async |name: &str| {
                    let mut any = false;
                    for file in ["f", "g", "h"] {
                        if find(&service, name, file).await.is_ok() {
                            remove(&service, name, file).await;
                            any = true;
                        }
                    }
                    any
                };
                if left.len() == before {
                    let mut any = false;
                    for name in &left {
                        any |= has_files(name).await;
                    }
                    assert!(any, "seed {seed}: they hold each other: {refused:?}");
                    settle(&service, 300).await;
                }
            }
        });
        bed.assert_clean();
    }
}
