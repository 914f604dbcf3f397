//! Rollback of a dataset past later snapshots, which stay: its head begins a line.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::{FileHandle, Service, Stability};

use crate::bed::{Bed, find, make, noise, root, settle, snapshots_named, write};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, destroy, one, roll_back, snapshot, take, with_disk};
use crate::spread::{PAGES, cut, fill, is_filled};

pub const WITH_LATER: RollbackOptions = RollbackOptions { destroy_later: true, force: false };

async fn go_to(service: &Service, name: &str) {
    let gone = service.datasets.rollback(&format!("tank/d@{name}"), GENTLY).await.unwrap();
    assert_eq!(gone, Vec::<String>::new());
}

async fn disk(service: &Service) -> FileHandle {
    find(service, "tank/d", "disk").await.unwrap()
}

async fn destroy_whole(service: &Service, names: &[&str]) {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    let is_one = |name: &str| names.contains(&name);
    let all: BTreeSet<_> =
        all.iter().filter(|of| is_one(&of.record.name)).map(|of| of.txg).collect();
    assert_eq!(all.len(), names.len());
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

fn names(service: &Service) -> Vec<String> {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    all.iter().map(|of| of.record.name.clone()).collect()
}

fn used(service: &Service) -> u64 {
    service.datasets.used_bytes(&service.datasets.by_name("tank/d").unwrap())
}

/// The file, with snapshots of the dataset `a` (0), `b` (1000) and `c` (2000), and now 3000.
async fn with_history(service: &Service) -> FileHandle {
    let (_, disk) = with_disk(service).await;
    for (name, salt) in [("a", 1000), ("b", 2000), ("c", 3000)] {
        snapshot(service, name).await;
        fill(service, disk, salt).await;
    }
    disk
}

async fn shows(service: &Service, name: &str, salt: u64) {
    is_filled(service, find(service, &format!("tank/d@{name}"), "disk").await.unwrap(), salt).await;
}

/// A file began again as a snapshot, on a line that the dataset left, and does so once more on its
/// new one. The part that is cut off it then is on the line of before, until it is freed.
#[test]
fn a_file_begins_again_as_one_snapshot_on_two_lines() {
    let mut bed = Bed::of_small_steps();
    bed.short_life(async |service| {
        let (_, disk) = with_disk(&service).await;
        take(&service, "f").await;
        fill(&service, disk, 1000).await;
        take(&service, "later").await;
        roll_back(&service, &*one(&service, "f").await, GENTLY).await.unwrap();
        fill(&service, disk, 2000).await;
        for name in ["a", "b"] {
            snapshot(&service, name).await;
        }
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        settle(&service, 20).await;
        go_to(&service, "a").await;
        fill(&service, disk, 3000).await;
        roll_back(&service, &*one(&service, "f").await, GENTLY).await.unwrap();
    });
    bed.assert_clean();
    bed.life(async |service| {
        settle(&service, 200).await;
        is_filled(&service, disk(&service).await, 0).await;
    });
    bed.assert_clean();
}

/// The handle stays, and what is later too: so it goes forward again. In the end all is free.
#[test]
pub fn a_dataset_goes_back_and_forth() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        for (name, salt) in [("a", 0), ("c", 2000), ("b", 1000), ("a", 0)] {
            go_to(&service, name).await;
            is_filled(&service, disk, salt).await;
        }
        assert_eq!(names(&service), ["a", "b", "c"]);
    });
    bed.assert_clean();
    for life in 0..8 {
        // Old heads are half filed.
        bed.short_life(async |service| {
            is_filled(&service, disk(&service).await, 0).await;
            for _ in 0..life {
                service.pool.sync().await.unwrap();
            }
        });
        bed.assert_clean();
    }
    bed.life(async |service| {
        let disk = disk(&service).await;
        settle(&service, 200).await;
        for (name, salt) in [("a", 0), ("b", 1000), ("c", 2000)] {
            shows(&service, name, salt).await;
        }
        // On its new line it is a dataset like any other, with cuts and rollbacks in line.
        fill(&service, disk, 4000).await;
        snapshot(&service, "d").await;
        cut(&service, disk, 7).await;
        go_to(&service, "d").await;
        is_filled(&service, disk, 4000).await;
        fill(&service, disk, 5000).await;
        go_to(&service, "d").await;
        settle(&service, 200).await;
        is_filled(&service, disk, 4000).await;
        go_to(&service, "b").await;
        settle(&service, 200).await;
        shows(&service, "d", 4000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        destroy_whole(&service, &["a", "b", "c", "d"]).await;
        settle(&service, 300).await;
        is_filled(&service, disk(&service).await, 1000).await;
        let used = used(&service);
        assert!(used < PAGES * 4096 + 400_000, "{used}: one version, and no other, is there");
    });
    bed.assert_clean();
    bed.life(async |service| {
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 300).await;
    });
    bed.assert_clean();
}

/// Snapshots of files, and clones of files and of the dataset, stay on the line that was left.
#[test]
pub fn what_is_on_a_line_stays() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        take(&service, "own").await;
        fill(&service, disk, 4000).await;
        service.datasets.clone_snapshot("tank/d@b", "tank/k", &[]).await.unwrap();
        go_to(&service, "a").await;
        is_filled(&service, disk, 0).await;
        let options = RollbackOptions { destroy_later: false, force: false };
        let own = one(&service, "own").await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        service.datasets.rollback_files(&dataset, &[own.id], options).await.unwrap();
        is_filled(&service, disk, 3000).await;
        settle(&service, 200).await;
        destroy(&service, &dataset, &[&own]).await;
        destroy_whole(&service, &["a", "c"]).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 3000).await;
        is_filled(&service, find(&service, "tank/k", "disk").await.unwrap(), 1000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let disk = disk(&service).await;
        is_filled(&service, disk, 3000).await;
        fill(&service, disk, 5000).await;
        let refused = service.datasets.promote("tank/k").await;
        assert_eq!(refused, Err(DatasetError::HasLines("tank/d".into())));
        service.datasets.destroy("tank/k", true).await.unwrap();
        // Later ones go, and the line with them.
        assert_eq!(service.datasets.rollback("tank/d@b", WITH_LATER).await.unwrap().len(), 0);
        settle(&service, 300).await;
        is_filled(&service, disk, 1000).await;
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        settle(&service, 200).await;
        shows(&service, "b", 1000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 300).await;
    });
    bed.assert_clean();
}

/// A dataset that goes while its old head is being filed leaves nothing.
#[test]
fn a_dataset_goes_with_its_old_heads() {
    for txgs in 0..6 {
        let mut bed = Bed::of_small_steps();
        bed.life(async |service| {
            with_history(&service).await;
            go_to(&service, "a").await;
            for _ in 0..txgs {
                service.pool.sync().await.unwrap();
            }
            service.datasets.destroy("tank/d", true).await.unwrap();
            settle(&service, 300).await;
        });
        bed.assert_clean();
    }
}

/// Bookmarks that are made while an old head is being filed keep nothing of it.
#[test]
pub fn a_later_bookmark_keeps_nothing_of_an_old_head() {
    for txgs in [1, 3, 6] {
        let mut bed = Bed::of_small_steps();
        bed.life(async |service| {
            let mark = async |name: &str| {
                let of = format!("tank/d@{name}");
                service.datasets.bookmark(&of, &format!("#{name}")).await.unwrap();
                destroy_whole(&service, &[name]).await;
            };
            let unmark = async |name: &str| {
                service.datasets.destroy_bookmarks(&[format!("tank/d#{name}")]).await.unwrap();
                settle(&service, 300).await;
            };
            let disk = with_history(&service).await;
            // The head that is left has the nodes that the bookmark needs.
            fill(&service, disk, 4000).await;
            snapshot(&service, "before").await;
            mark("before").await;
            go_to(&service, "a").await;
            for _ in 0..txgs {
                service.pool.sync().await.unwrap();
            }
            snapshot(&service, "after").await;
            mark("after").await;
            settle(&service, 300).await;
            let dataset = service.datasets.by_name("tank/d").unwrap();
            let with_both = dataset.dead_bytes();
            unmark("before").await;
            let with_one = dataset.dead_bytes();
            assert!(with_one < with_both, "{with_one} of {with_both}: nodes went with it");
            unmark("after").await;
            assert_eq!(dataset.dead_bytes(), with_one, "it never kept any");
            destroy_whole(&service, &["b", "c"]).await;
            settle(&service, 300).await;
        });
        bed.assert_clean();
    }
}

/// Until an old head is filed or free it counts as before: no client writes past its quota.
#[test]
pub fn an_old_head_counts_until_it_is_filed() {
    const PAGE: u64 = 4096;
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_history(&service).await;
        let top = service.files.root("tank/d").unwrap();
        let before = used(&service);
        go_to(&service, "a").await;
        assert!(used(&service) >= before, "{} of {before}: nothing is free yet", used(&service));
        let more = make(&service, top, "more").await;
        let quota = before + 4 * PAGE;
        service.datasets.set("tank/d", "quota", Some(&quota.to_string())).await.unwrap();
        let mut written = 0;
        while written < 1000 {
            let page = noise(9000 + written, 1);
            if write(&service, more, written, &page, Stability::FileSync).await.is_err() {
                break;
            }
            written += 1;
        }
        // Trees do not count for writes, and some of theirs are filed.
        let nodes = 40 * PAGE;
        for _ in 0..200 {
            let now = used(&service);
            assert!(now <= quota + nodes, "{now} of {quota}, after {written} pages");
            service.pool.sync().await.unwrap();
        }
        assert!(!service.datasets.has_background_work());
        let lowest = used(&service);
        assert!(lowest + nodes >= before - PAGES * PAGE + written * PAGE, "{lowest} of {before}");
    });
    bed.assert_clean();
}

/// A kill at any time while it is filed loses nothing of what counts, and counts nothing twice.
#[test]
fn what_an_old_head_counts_outlives_restarts() {
    let mut bed = Bed::of_small_steps();
    let (mut most, mut lives) = (u64::MAX, 0);
    bed.life(async |service| {
        with_history(&service).await;
        go_to(&service, "a").await;
    });
    loop {
        let (first, last, done) = bed.short_life(async |service| {
            let first = used(&service);
            service.pool.sync().await.unwrap();
            (first, used(&service), !service.datasets.has_background_work())
        });
        bed.assert_clean();
        // Nodes are filed, and count from then on.
        assert!(first <= most.saturating_add(30 * 4096), "{first}, not {most}");
        (most, lives) = (last, lives + 1);
        if done {
            break;
        }
    }
    assert!(lives > 3, "{lives}: the old head was there for some lives");
    bed.life(async |service| {
        assert!(used(&service) >= 3 * PAGES * 4096, "{}: a, b and c", used(&service));
    });
}

/// A snapshot takes with it what was hidden for it, and what was hidden for that: four links.
#[test]
fn a_dry_run_counts_all_that_goes_with_one() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        make(&service, service.files.root("tank/d").unwrap(), "other").await;
        snapshot(&service, "start").await;
        let mut salts = (1..).map(|number| number * 1000);
        let mut fill = async || fill(&service, disk, salts.next().unwrap()).await;
        let mut of_file = Vec::new();
        for (first, second) in [("a", "b"), ("c", "d")] {
            // A line of the file, which `first` of the dataset shows, and a line of the head.
            fill().await;
            // What a line of the head left is freed: it is a snapshot to go back to.
            settle(&service, 300).await;
            let to = take(&service, first).await;
            fill().await;
            of_file.extend([to.clone(), take(&service, second).await]);
            roll_back(&service, &to, GENTLY).await.unwrap();
            fill().await;
            snapshot(&service, first).await;
            fill().await;
            snapshot(&service, second).await;
            go_to(&service, first).await;
        }
        let other = ["tank/d:other@last".to_owned()];
        service.files.take_named(&other).await.unwrap();
        go_to(&service, "start").await;
        settle(&service, 300).await;
        destroy_whole(&service, &["a", "b", "c", "d"]).await;
        destroy(&service, &dataset, &of_file.iter().map(Arc::as_ref).collect::<Vec<_>>()).await;
        settle(&service, 300).await;
        let (_, last) = snapshots_named(&service.files, &other[0]).await.unwrap();
        let ids = BTreeSet::from([last[0].id]);
        let foretold = service.datasets.unique_bytes_of_files(&dataset, &ids).await.unwrap();
        assert!(foretold > 4 * PAGES * 4096, "{foretold}: all four are kept for the last one");
        let before = used(&service);
        destroy(&service, &dataset, &[&last[0]]).await;
        settle(&service, 300).await;
        assert_eq!(before - used(&service), foretold);
    });
    bed.assert_clean();
}
