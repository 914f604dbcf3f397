//! Clones of single files: what they share, who owns what, and what is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_dataset::{Dataset, RollbackOptions};
use aquifer_files::{FileHandle, Service, Stability};
use aquifer_sim::{CutMode, CutPlan};
use futures_util::future::select;

use crate::bed::{Bed, find, make, noise, open, root, settle, snapshots_named, write};
use crate::by_text::ByText;
use crate::spread::{self, PAGES, fill};

/// `gold` in a dataset of its own, and a snapshot of it.
async fn with_gold(service: &Service) -> (Arc<Dataset>, FileHandle) {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let gold = make(service, service.files.root("tank/d").unwrap(), "gold").await;
    fill(service, gold, 0).await;
    take(service, "gold@v1").await;
    (service.datasets.by_name("tank/d").unwrap(), gold)
}

async fn take(service: &Service, file: &str) {
    service.files.take_named(&[format!("tank/d:{file}")]).await.unwrap();
}

async fn clone(service: &Service, from: &str, to: &[&str]) -> Result<(), String> {
    let to: Vec<String> = to.iter().map(|to| format!("tank/d:{to}")).collect();
    let done = service.files.clone_named(&format!("tank/d:{from}"), &to).await;
    done.map_err(|error| error.to_string())
}

async fn destroy(service: &Service, file: &str) {
    let (dataset, found) =
        snapshots_named(&service.files, &format!("tank/d:{file}")).await.unwrap();
    let ids: BTreeSet<_> = found.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(dataset, ids)]).await.unwrap();
}

async fn remove(service: &Service, name: &str) {
    let top = service.files.root("tank/d").unwrap();
    service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
}

async fn is_filled(service: &Service, name: &str, salt: u64) {
    let file = find(service, "tank/d", name).await.unwrap();
    spread::is_filled(service, file, salt).await;
}

async fn cut(service: &Service, name: &str, pages: u64) {
    let file = find(service, "tank/d", name).await.unwrap();
    spread::cut(service, file, pages).await;
}

/// Returns the bytes that files have of their own, without what snapshots keep.
fn own(service: &Service) -> u64 {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    service.datasets.used_bytes(&dataset) - dataset.dead_bytes()
}

#[test]
fn a_clone_shares_all_and_changes_nothing_of_its_origin() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        let used = service.datasets.used_bytes(&dataset);
        let names: Vec<String> = (0..20).map(|at| format!("c{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        clone(&service, "gold@v1", &names).await.unwrap();
        for name in &names {
            is_filled(&service, name, 0).await;
        }
        let file = find(&service, "tank/d", "c3").await.unwrap();
        let inode = service.files.getattr(file).await.unwrap();
        assert_ne!(file.object, gold.object);
        assert_eq!((inode.nlink, inode.mode), (1, 0o644));
        assert_eq!(service.datasets.used_bytes(&dataset), used, "what they share counts once");
        assert!(dataset.refer_bytes() >= 21 * PAGES * 4096, "each refers to all");
        fill(&service, file, 5000).await;
        is_filled(&service, "c3", 5000).await;
        is_filled(&service, "c4", 0).await;
        is_filled(&service, "gold", 0).await;
        let more = PAGES * 4096;
        assert_eq!(
            service.datasets.used_bytes(&dataset),
            used + more,
            "what one writes is its own"
        );
        fill(&service, gold, 7000).await;
        is_filled(&service, "c4", 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "c3", 5000).await;
        is_filled(&service, "c19", 0).await;
        is_filled(&service, "gold", 7000).await;
    });
    bed.assert_clean();
}

/// The snapshot is destroyed, the file removed: the clones have what they began with. When they are
/// gone, so is that.
#[test]
pub fn what_a_clone_began_with_stays_until_it_is_gone() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        clone(&service, "gold@v1", &["one", "two"]).await.unwrap();
        fill(&service, gold, 1000).await;
        destroy(&service, "gold@v1").await;
        assert_eq!(dataset.file_snapshot_count(), 0, "nobody lists it");
        remove(&service, "gold").await;
        settle(&service, 200).await;
        is_filled(&service, "one", 0).await;
        assert!(dataset.dead_bytes() >= PAGES * 4096, "kept for the clones");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        is_filled(&service, "two", 0).await;
        remove(&service, "one").await;
        settle(&service, 200).await;
        is_filled(&service, "two", 0).await;
        remove(&service, "two").await;
        settle(&service, 200).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 0), "all of it is free");
        assert_eq!(service.datasets.used_bytes(&dataset), 0);
    });
    bed.assert_clean();
}

/// A snapshot shows a clone that was removed, and a clone of a clone does.
#[test]
pub fn what_a_snapshot_shows_of_a_clone_stays() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        clone(&service, "gold@v1", &["one"]).await.unwrap();
        take(&service, "one@own").await;
        clone(&service, "one@own", &["far"]).await.unwrap();
        fill(&service, gold, 1000).await;
        service.datasets.snapshot(&["tank/d@all".into()], false).await.unwrap();
        for name in ["gold@v1", "one@own"] {
            destroy(&service, name).await;
        }
        for name in ["gold", "one"] {
            remove(&service, name).await;
        }
        settle(&service, 200).await;
        is_filled(&service, "far", 0).await;
        remove(&service, "far").await;
        settle(&service, 200).await;
        assert!(dataset.dead_bytes() >= PAGES * 4096, "kept for what shows the clones");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let options = RollbackOptions::default();
        service.datasets.rollback("tank/d@all", options).await.unwrap();
        for (name, salt) in [("gold", 1000), ("one", 0), ("far", 0)] {
            is_filled(&service, name, salt).await;
            remove(&service, name).await;
        }
        settle(&service, 200).await;
        let (of, listed) = service.datasets.snapshot_by_name("tank/d@all").unwrap();
        let these = BTreeSet::from([listed.txg]);
        let foretold = service.datasets.unique_bytes(&of, &these.clone().into()).await.unwrap();
        assert_eq!(foretold, dataset.dead_bytes(), "with what it keeps of the origins");
        service.datasets.destroy_snapshots(&[(of, these)], false).await.unwrap();
        settle(&service, 200).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 0));
    });
    bed.assert_clean();
}

/// Cut short, grown and rolled back: a clone's parts own what is theirs, while the origin goes on.
#[test]
pub fn a_clone_is_cut_and_rolled_back() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        clone(&service, "gold@v1", &["one", "two"]).await.unwrap();
        take(&service, "one@own").await;
        destroy(&service, "gold@v1").await;
        fill(&service, gold, 1000).await;
        for (pages, salt) in [(0, 2000), (3, 3000), (100, 4000)] {
            cut(&service, "one", pages).await;
            // The cut is in a tail now, which is not freed.
            service.pool.sync().await.unwrap();
            let one = find(&service, "tank/d", "one").await.unwrap();
            write(&service, one, 2, &noise(salt, 1), Stability::FileSync).await.unwrap();
            let (of, to) = snapshots_named(&service.files, "tank/d:one@own").await.unwrap();
            service
                .datasets
                .rollback_files(&of, &[to[0].id], RollbackOptions::default())
                .await
                .unwrap();
            is_filled(&service, "one", 0).await;
        }
        // The parts of one that goes are freed with it.
        cut(&service, "two", 3).await;
        service.pool.sync().await.unwrap();
        remove(&service, "two").await;
        settle(&service, 200).await;
        assert_eq!(own(&service), PAGES * 4096, "what gold has");
        assert!(dataset.dead_bytes() >= PAGES * 4096, "what it had");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        is_filled(&service, "one", 0).await;
        destroy(&service, "one@own").await;
        cut(&service, "one", 1).await;
        service.pool.sync().await.unwrap();
        remove(&service, "one").await;
        settle(&service, 200).await;
        assert_eq!(dataset.dead_bytes(), 0);
        is_filled(&service, "gold", 1000).await;
    });
    bed.assert_clean();
}

/// Killed while a clone and its parts are freed piece by piece.
#[test]
pub fn a_part_of_a_clone_keeps_what_it_began_with() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (_, gold) = with_gold(&service).await;
        clone(&service, "gold@v1", &["one"]).await.unwrap();
        destroy(&service, "gold@v1").await;
        fill(&service, gold, 1000).await;
        // The cut leaves a tail, which goes first.
        cut(&service, "one", 100).await;
        service.pool.sync().await.unwrap();
        remove(&service, "one").await;
    });
    for _ in 0..20 {
        bed.short_life(async |service| {
            service.pool.sync().await.unwrap();
        });
        bed.assert_clean();
    }
}

/// The dataset goes back to before the clone was made, and to when it was there.
#[test]
pub fn a_dataset_goes_back() {
    let mut bed = Bed::of_small_steps();
    let back = async |service: &Service, name: &str| {
        let options = RollbackOptions { destroy_later: true, force: false };
        service.datasets.rollback(&format!("tank/d@{name}"), options).await.unwrap();
    };
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        service.datasets.snapshot(&["tank/d@before".into()], false).await.unwrap();
        clone(&service, "gold@v1", &["one"]).await.unwrap();
        destroy(&service, "gold@v1").await;
        fill(&service, gold, 1000).await;
        service.datasets.snapshot(&["tank/d@after".into()], false).await.unwrap();
        let one = find(&service, "tank/d", "one").await.unwrap();
        fill(&service, one, 2000).await;
        remove(&service, "one").await;
        settle(&service, 200).await;
        back(&service, "after").await;
        is_filled(&service, "one", 0).await;
        settle(&service, 200).await;
        is_filled(&service, "one", 0).await;
        assert_eq!(own(&service), PAGES * 4096, "what gold has");
        assert!(dataset.dead_bytes() >= PAGES * 4096, "what it had");
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, "one", 0).await;
        remove(&service, "one").await;
        settle(&service, 200).await;
        back(&service, "after").await;
        is_filled(&service, "one", 0).await;
        back(&service, "before").await;
        assert!(find(&service, "tank/d", "one").await.is_err());
        settle(&service, 200).await;
        is_filled(&service, "gold", 0).await;
        assert_eq!(own(&service), PAGES * 4096);
    });
    bed.assert_clean();
}

/// A clone of the dataset, promoted, outlives it with what its files began with.
#[test]
pub fn a_clone_of_the_dataset_has_the_clones_of_files() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (_, gold) = with_gold(&service).await;
        clone(&service, "gold@v1", &["one"]).await.unwrap();
        destroy(&service, "gold@v1").await;
        fill(&service, gold, 1000).await;
        service.datasets.snapshot(&["tank/d@all".into()], false).await.unwrap();
        service.datasets.clone_snapshot("tank/d@all", "tank/k", &[]).await.unwrap();
        service.datasets.promote("tank/k").await.unwrap();
        service.datasets.destroy_all(&["tank/d".into()], true, false).await.unwrap();
        settle(&service, 200).await;
        service.datasets.rename("tank/k", "tank/d").await.unwrap();
        is_filled(&service, "one", 0).await;
        let one = find(&service, "tank/d", "one").await.unwrap();
        write(&service, one, 2, &noise(9, 1), Stability::FileSync).await.unwrap();
    });
    bed.assert_clean();
    bed.life(async |service| {
        remove(&service, "one").await;
        settle(&service, 200).await;
        is_filled(&service, "gold", 1000).await;
        let refused = clone(&service, "gold@v1", &["x"]).await.unwrap_err();
        assert!(refused.contains("no snapshot"), "{refused}");
        service.datasets.destroy_all(&["tank/d".into()], true, false).await.unwrap();
        settle(&service, 200).await;
    });
    bed.assert_clean();
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, gold) = with_gold(&service).await;
        service.datasets.create("tank/other", &[]).await.unwrap();
        let refused = async |from: &str, to: &[&str], why: &str| {
            let error = clone(&service, from, to).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused("gold@v2", &["x"], "no snapshot").await;
        refused("none@v1", &["x"], "no snapshot").await;
        refused("gold@v1", &["gold"], "file exists").await;
        refused("gold@v1", &["x", "gold"], "file exists").await;
        refused("gold@v1", &["x", "x"], "given twice").await;
        refused("gold@v1", &["no/x"], "make it first").await;
        refused("gold@v1", &["gold/x"], "make it first").await;
        refused("gold@v1", &[".."], "file exists").await;
        refused("gold@v1", &["/"], "names no file").await;
        refused("gold@v1", &[&"x".repeat(300)], "name too long").await;
        take(&service, "gold@v2").await;
        refused("gold@v*", &["x"], "several snapshots").await;
        let many: Vec<String> = (0..1001).map(|at| format!("c{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        refused("gold@v1", &many, "at most 1000").await;
        let two = ["tank/d:x".into(), "tank/other:x".into()];
        let other = service.files.clone_named("tank/d:gold@v1", &two).await;
        assert!(other.unwrap_err().to_string().contains("another dataset"));
        let set = async |property: &str, value: Option<&str>| {
            service.datasets.set("tank/d", property, value).await.unwrap();
        };
        set("readonly", Some("on")).await;
        refused("gold@v1", &["x"], "read-only").await;
        set("readonly", None).await;
        set("quota", Some("480K")).await;
        refused("gold@v1", &["x"], "quota").await;
        set("quota", None).await;
        // A rollback past a snapshot that a clone began as: it is hidden.
        fill(&service, gold, 500).await;
        take(&service, "gold@v3").await;
        clone(&service, "gold@v3", &["x"]).await.unwrap();
        fill(&service, gold, 1000).await;
        let options = RollbackOptions { destroy_later: true, force: false };
        let v1 = snapshots_named(&service.files, "tank/d:gold@v1").await.unwrap().1[0].id;
        let gone = service.datasets.rollback_files(&dataset, &[v1], options).await.unwrap();
        assert_eq!(gone, ["tank/d:gold@v2", "tank/d:gold@v3"]);
        is_filled(&service, "gold", 0).await;
        settle(&service, 200).await;
        is_filled(&service, "x", 500).await;
        remove(&service, "x").await;
        settle(&service, 200).await;
        is_filled(&service, "gold", 0).await;
    });
    bed.assert_clean();
}

/// Somebody asks for clones, and gives up at any time.
#[test]
fn what_nobody_waits_for_is_freed() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, _) = with_gold(&service).await;
        for at in 0..60 {
            let world = service.pool.world().clone();
            let (one, two) = (format!("a{at}"), format!("b{at}"));
            let names = [one.as_str(), two.as_str()];
            let cloned = clone(&service, "gold@v1", &names);
            let given_up = world.sleep(Duration::from_micros(at * 20));
            select(std::pin::pin!(cloned), std::pin::pin!(given_up)).await;
            for name in names {
                if find(&service, "tank/d", name).await.is_ok() {
                    is_filled(&service, name, 0).await;
                    remove(&service, name).await;
                }
            }
            if at % 8 == 0 {
                service.pool.sync().await.unwrap();
            }
        }
        destroy(&service, "gold@v1").await;
        settle(&service, 200).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, PAGES * 4096));
    });
    bed.assert_clean();
}

/// A cut at any moment leaves a clone whole, or nothing.
#[test]
fn a_clone_has_its_name_or_is_not() {
    for cut in 0..40 {
        let mut bed = Bed::of_small_steps();
        bed.life(async |service| {
            with_gold(&service).await;
        });
        let (world, disks) = (bed.world(), bed.disks.clone());
        bed.sim.plan_cut(CutPlan::AtEvent(40 + cut * 7));
        let done = bed.sim.run_until(async move {
            let service = open(world, &disks).await;
            clone(&service, "gold@v1", &["one", "two"]).await.unwrap();
        });
        let answered = done.is_ok();
        bed.sim.power_cut(CutMode::AllLost);
        bed.assert_clean();
        bed.life(async |service| {
            let there =
                [find(&service, "tank/d", "one").await, find(&service, "tank/d", "two").await];
            assert!(!answered || there.iter().all(Result::is_ok), "{cut}: answered, and gone");
            for (found, name) in there.iter().zip(["one", "two"]) {
                if found.is_ok() {
                    is_filled(&service, name, 0).await;
                    remove(&service, name).await;
                }
            }
            destroy(&service, "gold@v1").await;
            settle(&service, 200).await;
            let dataset = service.datasets.by_name("tank/d").unwrap();
            assert_eq!(dataset.dead_bytes(), 0);
            assert_eq!(dataset.refer_bytes(), PAGES * 4096);
        });
        bed.assert_clean();
    }
}

/// Of very many removed files, a sync looks a piece up to know the parts of a clone among them.
#[test]
fn a_sync_looks_up_a_piece_of_what_was_removed() {
    const FILES: usize = 9_000;
    let mut bed = Bed::new(1, 262_144);
    bed.life(async |service| {
        let (_, gold) = with_gold(&service).await;
        fill(&service, gold, 1000).await;
        clone(&service, "gold@v1", &["one"]).await.unwrap();
        let one = find(&service, "tank/d", "one").await.unwrap();
        spread::cut(&service, one, 7).await;
        // Younger than the clone: the youngest are freed first.
        let top = service.files.root("tank/d").unwrap();
        for at in 0..FILES {
            make(&service, top, &format!("x{at}")).await;
        }
        destroy(&service, "gold@v1").await;
    });
    // Nearly nothing is freed meanwhile.
    let scale = bed.options.scale;
    bed.options.scale.reap_entries_max = 1;
    bed.short_life(async |service| {
        let top = service.files.root("tank/d").unwrap();
        for at in 0..FILES {
            let name = format!("x{at}");
            service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
        }
        remove(&service, "one").await;
        // On the list on disk.
        service.pool.sync().await.unwrap();
    });
    bed.options.scale = scale;
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        // The import's own txgs looked at some.
        let (mut most, first) = (0, service.pool.committed_txg().0);
        for _ in 0..40 {
            let before = dataset.orphans_looked_up();
            service.pool.sync().await.unwrap();
            most = most.max(dataset.orphans_looked_up() - before);
        }
        let all = dataset.orphans_looked_up();
        assert!(most <= 4_000, "{most} in a txg");
        assert!((5_000..=FILES as u64 + 100).contains(&all), "{all} from {first} on, none twice");
        settle(&service, 10).await;
        assert_eq!(dataset.dead_bytes(), 0, "nothing needs the snapshot");
    });
    bed.assert_clean();
}
