//! Schedules of snapshots, by a clock that the test sets.

use aquifer_files::{Service, Stability};
use aquifer_ondisk::inode::Time;

use crate::bed::{Bed, make, noise, write};

const HOUR_S: u64 = 3600;
/// 2026-11-26T07:43:00Z, a Thursday.
const NOW_S: u64 = 1_795_678_980;

/// Takes and prunes what is due so many hours after the beginning.
async fn after(service: &Service, hours: u64) {
    let now = Time::from_ns((NOW_S + hours * HOUR_S) * 1_000_000_000);
    service.datasets.snapshots_if_due(now).await.unwrap();
}

fn names(service: &Service, dataset: &str) -> Vec<String> {
    let dataset = service.datasets.by_name(dataset).unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    all.iter().map(|snapshot| snapshot.record.name.clone()).collect()
}

async fn set(service: &Service, dataset: &str, value: &str) {
    service.datasets.set(dataset, "snapshots", Some(value)).await.unwrap();
}

#[test]
fn each_cadence_is_taken_once_a_period_and_the_newest_stay() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        service.datasets.create("tank/d/below", &[]).await.unwrap();
        after(&service, 0).await;
        assert!(names(&service, "tank/d").is_empty(), "off is the default");
        set(&service, "tank/d", "hourly=3 daily=2").await;
        set(&service, "tank/d/below", "off").await;
        service.datasets.snapshot(&["tank/d@mine".into()], false).await.unwrap();
        for _ in 0..3 {
            after(&service, 0).await;
        }
        let first = ["mine", "auto-hourly-2026-11-26T07:43Z", "auto-daily-2026-11-26T07:43Z"];
        assert_eq!(names(&service, "tank/d"), first);
        assert!(names(&service, "tank").is_empty() && names(&service, "tank/d/below").is_empty());
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let now = Time::from_ns(NOW_S * 1_000_000_000);
        let (next_s, _) = service.datasets.next_snapshot(&dataset, now).unwrap();
        assert_eq!(next_s, NOW_S + 17 * 60);
        service.datasets.set("tank/d/below", "snapshots", None).await.unwrap();
    });
    bed.cut_life(async |service| {
        // Five hours out of service: it is caught up once.
        after(&service, 5).await;
        after(&service, 6).await;
        assert_eq!(names(&service, "tank/d/below").len(), 3, "it inherits the schedule");
        after(&service, 30).await;
        let now = [
            "mine",
            "auto-daily-2026-11-26T07:43Z",
            "auto-hourly-2026-11-26T12:43Z",
            "auto-hourly-2026-11-26T13:43Z",
            "auto-hourly-2026-11-27T13:43Z",
            "auto-daily-2026-11-27T13:43Z",
        ];
        assert_eq!(names(&service, "tank/d"), now);
    });
    bed.life(async |service| {
        // The marks are on disk. What is held or renamed stays, and what has no mark.
        let full = |name: &str| format!("tank/d@{name}");
        let of = |name: &str| service.datasets.snapshot_by_name(&full(name)).unwrap();
        let (dataset, held) = of("auto-hourly-2026-11-26T12:43Z");
        service.datasets.hold("t", &[(dataset.clone(), held.txg)], None).await.unwrap();
        let (_, renamed) = of("auto-hourly-2026-11-26T13:43Z");
        service.datasets.rename_snapshots(&[(dataset.clone(), renamed.txg)], "kept").await.unwrap();
        service.datasets.snapshot(&[full("auto-hourly-mine")], false).await.unwrap();
        // Somebody has the name that the next one would have.
        service.datasets.snapshot(&[full("auto-hourly-2026-11-27T14:43Z")], false).await.unwrap();
        set(&service, "tank/d", "hourly=1").await;
        after(&service, 31).await;
        let now = [
            "mine",
            "auto-daily-2026-11-26T07:43Z",
            "auto-hourly-2026-11-26T12:43Z",
            "kept",
            "auto-daily-2026-11-27T13:43Z",
            "auto-hourly-mine",
            "auto-hourly-2026-11-27T14:43Z",
            "auto-hourly-2026-11-27T14:43:00Z",
        ];
        assert_eq!(names(&service, "tank/d"), now);
        service.datasets.release("t", &[(dataset, held.txg)]).await.unwrap();
        // A clock that is set back does not take again what it took.
        after(&service, 31).await;
        assert!(!names(&service, "tank/d").contains(&"auto-hourly-2026-11-26T12:43Z".into()));
        set(&service, "tank/d", "off").await;
        after(&service, 100).await;
        assert_eq!(names(&service, "tank/d").len(), now.len() - 1, "off prunes nothing");
    });
    bed.assert_clean();
}

#[test]
fn a_full_pool_is_pruned() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        set(&service, "tank/d", "hourly=5").await;
        let root = service.files.root("tank/d").unwrap();
        let file = make(&service, root, "disk").await;
        'full: for round in 0..5 {
            after(&service, round).await;
            for at in 0..40 {
                let data = noise(round * 1000 + at, 256);
                let done = write(&service, file, at * 256, &data, Stability::Unstable).await;
                if done.is_err() {
                    break 'full;
                }
            }
            service.pool.sync().await.unwrap();
        }
        let before = names(&service, "tank/d").len();
        assert!(before > 2, "{before}");
        set(&service, "tank/d", "hourly=1").await;
        let now = Time::from_ns((NOW_S + 50 * HOUR_S) * 1_000_000_000);
        // There may be room for the next one, or not.
        let _ = service.datasets.snapshots_if_due(now).await;
        assert_eq!(names(&service, "tank/d").len(), 1);
    });
    bed.assert_clean();
}
