//! Holds on snapshots of datasets and files: what they refuse, and when they end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_dataset::{Dataset, DatasetError};
use aquifer_files::Service;
use aquifer_ondisk::Txg;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::keeping::HOLDS_MAX;

use crate::bed::{Bed, root, settle};
use crate::by_text::ByText;
use crate::file_rollback::{self as file, GENTLY, snapshot, take, with_disk};
use crate::head_lines::WITH_LATER;
use crate::spread::fill;

const DAY_S: u64 = 86_400;
const DAY_NS: u64 = DAY_S * 1_000_000_000;

fn one(service: &Service, name: &str) -> (Arc<Dataset>, Txg) {
    let (dataset, snapshot) = service.datasets.snapshot_by_name(name).unwrap();
    (dataset, snapshot.txg)
}

fn wall_s(service: &Service) -> u64 {
    service.pool.world().wall_ns() / 1_000_000_000
}

async fn destroy(service: &Service, names: &[&str]) -> Result<(), DatasetError> {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let txgs: BTreeSet<Txg> = names.iter().map(|name| one(service, name).1).collect();
    service.datasets.destroy_snapshots(&[(dataset, txgs)], false).await.map(drop)
}

fn is_held(done: &Result<(), DatasetError>) -> bool {
    matches!(done, Err(DatasetError::Held { .. }))
}

/// A pool with `tank/d@a` and `tank/d@b`.
fn with_snapshots() -> Bed {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        for name in ["tank/d@a", "tank/d@b"] {
            let taken = service.datasets.snapshot(&[name.into()], false).await.unwrap();
            assert_eq!(taken, [name]);
        }
    });
    bed
}

#[test]
fn a_held_snapshot_is_not_destroyed_by_anything() {
    let mut bed = with_snapshots();
    bed.cut_life(async |service| {
        let datasets = &service.datasets;
        let a = one(&service, "tank/d@a");
        datasets.hold("backup", std::slice::from_ref(&a), None).await.unwrap();
        let again = datasets.hold("backup", std::slice::from_ref(&a), None).await;
        assert!(again.unwrap_err().to_string().contains("there is one"));
        for bad in ["", "x\ny", &"x".repeat(65)] {
            assert!(datasets.hold(bad, std::slice::from_ref(&a), None).await.is_err(), "{bad:?}");
        }
        datasets.rename_snapshots(&[a], "c").await.unwrap();
    });
    bed.cut_life(async |service| {
        let datasets = &service.datasets;
        let c = one(&service, "tank/d@c");
        assert_eq!(datasets.holds(&c.0, c.1).len(), 1, "it is on disk, also under the new name");
        let refused = destroy(&service, &["tank/d@c", "tank/d@b"]).await;
        assert!(is_held(&refused));
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("\"tank/d@c\" is held by \"backup\""), "{said}");
        one(&service, "tank/d@b");
        assert!(is_held(&datasets.destroy("tank/d", true).await));
        for more in 1..HOLDS_MAX {
            datasets.hold(&format!("t{more}"), std::slice::from_ref(&c), None).await.unwrap();
        }
        let full = datasets.hold("more", std::slice::from_ref(&c), None).await;
        assert!(full.unwrap_err().to_string().contains("takes no more"));
        assert!(datasets.release("other", std::slice::from_ref(&c)).await.is_err());
        for more in 1..HOLDS_MAX {
            datasets.release(&format!("t{more}"), std::slice::from_ref(&c)).await.unwrap();
        }
        datasets.release("backup", std::slice::from_ref(&c)).await.unwrap();
    });
    bed.life(async |service| {
        destroy(&service, &["tank/d@c", "tank/d@b"]).await.unwrap();
        service.datasets.destroy("tank/d", true).await.unwrap();
    });
    bed.assert_clean();
}

#[test]
fn nobody_ends_a_hold_before_its_time() {
    let mut bed = with_snapshots();
    bed.cut_life(async |service| {
        let datasets = &service.datasets;
        let a = [one(&service, "tank/d@a")];
        let now_s = wall_s(&service);
        for bad in [now_s, now_s - 1, now_s + 4000 * DAY_S] {
            assert!(datasets.hold("audit", &a, Some(bad)).await.is_err(), "{bad}");
        }
        datasets.hold("audit", &a, Some(now_s + 10 * DAY_S)).await.unwrap();
        for shorter in [Some(now_s + 9 * DAY_S), Some(now_s + 10 * DAY_S), None] {
            assert!(datasets.hold("audit", &a, shorter).await.is_err(), "{shorter:?}");
        }
        datasets.hold("audit", &a, Some(now_s + 20 * DAY_S)).await.unwrap();
        let refused = datasets.release("audit", &a).await.unwrap_err().to_string();
        assert!(refused.contains("nobody can release it"), "{refused}");
        assert!(datasets.check_no_hold_with_end().is_err());
    });
    // Somebody sets the clock to next year, and then to the past.
    let wall_ns = bed.world().wall_ns();
    for wall_ns in [wall_ns + 365 * DAY_NS, wall_ns - 365 * DAY_NS, wall_ns] {
        bed.sim.set_wall_ns(wall_ns);
        bed.cut_life(async |service| {
            assert!(is_held(&destroy(&service, &["tank/d@a"]).await));
            let a = [one(&service, "tank/d@a")];
            assert!(service.datasets.release("audit", &a).await.is_err());
            let longer = service.datasets.hold("audit", &a, Some(wall_s(&service) + 60)).await;
            assert!(longer.is_err(), "it would be shorter by the clock that cannot be set");
            service.datasets.tend_holds().await.unwrap();
            assert!(is_held(&destroy(&service, &["tank/d@a"]).await));
        });
    }
}

/// Time out of service does not count, and no more than ten minutes get lost with a crash.
#[test]
fn a_hold_ends_by_itself() {
    let mut bed = with_snapshots();
    let service_time = |hours: u64| Duration::from_secs(hours * 3600);
    bed.cut_life(async |service| {
        // The hold clock counts from an import: it must be on disk with the hold.
        service.pool.world().sleep(service_time(5)).await;
        let until_s = wall_s(&service) + 2 * 3600;
        let a = [one(&service, "tank/d@a")];
        service.datasets.hold("audit", &a, Some(until_s)).await.unwrap();
        service.pool.world().sleep(service_time(1)).await;
        service.datasets.tend_holds().await.unwrap();
    });
    bed.sim.set_wall_ns(bed.world().wall_ns() + 30 * DAY_NS);
    bed.cut_life(async |service| {
        assert!(is_held(&destroy(&service, &["tank/d@a"]).await), "an hour is left");
        service.pool.world().sleep(service_time(1) - Duration::from_secs(120)).await;
        assert!(is_held(&destroy(&service, &["tank/d@a"]).await), "two minutes are left");
        service.pool.world().sleep(Duration::from_secs(180)).await;
        let a = one(&service, "tank/d@a");
        assert!(service.datasets.holds(&a.0, a.1).is_empty());
        service.datasets.tend_holds().await.unwrap();
    });
    bed.life(async |service| {
        // Its record is gone, too: else the clock of this import would count.
        let a = one(&service, "tank/d@a");
        assert!(service.datasets.holds(&a.0, a.1).is_empty());
        destroy(&service, &["tank/d@a"]).await.unwrap();
    });
    bed.assert_clean();
}

/// A held snapshot of a file stays, whatever would take it. Restarts know of it.
#[test]
fn a_held_snapshot_of_a_file_stays() {
    let mut bed = Bed::of_small_steps();
    bed.cut_life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        take(&service, "a").await;
        snapshot(&service, "whole").await;
        fill(&service, disk, 1000).await;
        let on = [(dataset, take(&service, "b").await.id)];
        service.datasets.hold("audit", &on, Some(wall_s(&service) + 7200)).await.unwrap();
        service.datasets.hold("backup", &on, None).await.unwrap();
    });
    bed.cut_life(async |service| {
        let datasets = &service.datasets;
        let (held, a) = (file::one(&service, "b").await, file::one(&service, "a").await);
        let dataset = datasets.by_name("tank/d").unwrap();
        let tags = datasets.holds(&dataset, held.id).into_iter().map(|hold| hold.tag);
        assert_eq!(tags.collect::<Vec<_>>(), ["audit", "backup"]);
        assert!(datasets.check_no_hold_with_end().is_err());
        let destroy = |ids: &[FileSnapshotId]| {
            let these = [(dataset.clone(), ids.iter().copied().collect::<BTreeSet<_>>())];
            async move { datasets.destroy_file_snapshots(&these).await }
        };
        let refused = destroy(&[a.id, held.id]).await;
        assert!(is_held(&refused));
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("\"tank/d:disk@b\" is held by \"audit\" until"), "{said}");
        assert!(is_held(&file::roll_back(&service, &a, WITH_LATER).await.map(drop)));
        assert!(is_held(&datasets.rollback("tank/d@whole", WITH_LATER).await.map(drop)));
        assert!(is_held(&datasets.destroy("tank/d", true).await));
        let on = [(dataset.clone(), held.id)];
        assert!(datasets.release("audit", &on).await.is_err(), "its end has not come");
        datasets.release("backup", &on).await.unwrap();
        assert!(is_held(&destroy(&[held.id]).await));
        // What takes nothing away may be done.
        file::roll_back(&service, &a, GENTLY).await.unwrap();
        datasets.rollback("tank/d@whole", GENTLY).await.unwrap();
        let removed = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), removed, b"disk").await.kept().await.0.unwrap();
        assert_eq!(file::one(&service, "b").await.id, held.id);
    });
    bed.life(async |service| {
        let datasets = &service.datasets;
        let held = file::one(&service, "b").await;
        let dataset = datasets.by_name("tank/d").unwrap();
        service.pool.world().sleep(Duration::from_secs(7260)).await;
        assert!(datasets.holds(&dataset, held.id).is_empty());
        datasets.tend_holds().await.unwrap();
        datasets.hold("more", &[(dataset.clone(), held.id)], None).await.unwrap();
        datasets.release("more", &[(dataset.clone(), held.id)]).await.unwrap();
        let ids = BTreeSet::from([held.id]);
        datasets.destroy_file_snapshots(&[(dataset.clone(), ids)]).await.unwrap();
        let gone = datasets.hold("late", &[(dataset, held.id)], None).await;
        assert!(matches!(gone, Err(DatasetError::NotFound(_))), "{gone:?}");
        settle(&service, 200).await;
    });
    bed.assert_clean();
}

/// One whose hold has ended, and that nobody has tended since, leaves no record of it; nor does one
/// that is hidden for a clone, or that goes with its dataset.
#[test]
fn ended_holds_of_files_go_with_their_snapshots() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let datasets = &service.datasets;
        let (dataset, _) = with_disk(&service).await;
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            ids.push(take(&service, name).await.id);
        }
        let on: Vec<_> = ids.iter().map(|id| (dataset.clone(), *id)).collect();
        datasets.hold("audit", &on, Some(wall_s(&service) + 60)).await.unwrap();
        let copy = ["tank/d:copy".to_owned()];
        service.files.clone_named("tank/d:disk@a", &copy).await.unwrap();
        service.pool.world().sleep(Duration::from_secs(120)).await;
        let these = ids[..2].iter().copied().collect();
        datasets.destroy_file_snapshots(&[(dataset, these)]).await.unwrap();
        settle(&service, 200).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 200).await;
    });
    bed.assert_clean();
}
