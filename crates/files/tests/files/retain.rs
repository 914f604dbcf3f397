//! The property `retain`: each new snapshot is held for a time, whatever takes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::Disk;
use aquifer_dataset::{DatasetError, Holdable};
use aquifer_files::{Credentials, Service, SetAttributes};
use aquifer_ondisk::config::{FEATURE_FILE_HOLDS, FEATURE_KEEPING};
use aquifer_ondisk::held::held_until;
use aquifer_ondisk::inode::Time;
use aquifer_vdev::label_io::read_labels;

use crate::bed::{Bed, make, root, snapshots_named};
use crate::by_text::ByText;
use crate::receive::{STANDBY, changes, receive, snapshot, stream};

const DAY_S: u64 = 86_400;

fn wall_s(service: &Service) -> u64 {
    service.pool.world().wall_ns() / 1_000_000_000
}

/// A snapshot of a dataset, or of a file.
async fn find(service: &Service, name: &str) -> (String, Holdable) {
    let of = name.split_once('@').unwrap().0;
    let dataset = of.split(':').next().unwrap().to_string();
    if of.contains(':') {
        let found = snapshots_named(&service.files, name).await.unwrap();
        return (dataset, found.1[0].id.into());
    }
    (dataset, service.datasets.snapshot_by_name(name).unwrap().1.txg.into())
}

/// The seconds for which a snapshot is held by itself yet.
async fn left_s(service: &Service, name: &str) -> Option<u64> {
    let (dataset, snapshot) = find(service, name).await;
    let dataset = service.datasets.by_name(&dataset).unwrap();
    let holds = service.datasets.holds(&dataset, snapshot);
    let hold = holds.iter().find(|hold| hold.tag == "retain")?;
    Some(hold.ends_s.unwrap() - wall_s(service))
}

/// Returns the days for which a snapshot is held by itself yet: it was taken a moment ago.
async fn days(service: &Service, name: &str) -> Option<u64> {
    Some(left_s(service, name).await?.div_ceil(DAY_S))
}

async fn set(service: &Service, dataset: &str, value: &str) -> Result<(), DatasetError> {
    service.datasets.set(dataset, "retain", Some(value)).await
}

async fn destroy(service: &Service, name: &str) -> Result<(), DatasetError> {
    let (dataset, snapshot) = find(service, name).await;
    let dataset = service.datasets.by_name(&dataset).unwrap();
    match snapshot {
        Holdable::OfDataset(txg) => {
            let these = [(dataset, BTreeSet::from([txg]))];
            service.datasets.destroy_snapshots(&these, false).await.map(drop)
        }
        Holdable::OfFile(id) => {
            service.datasets.destroy_file_snapshots(&[(dataset, BTreeSet::from([id]))]).await
        }
    }
}

/// Snapshots of each origin: a command, of several datasets; one of files; schedules of both; a
/// host over NFS.
#[test]
fn each_snapshot_that_is_taken_is_held_whatever_takes_it() {
    let mut bed = Bed::new(1, 65536);
    let all = bed.cut_life(async |service| {
        let datasets = &service.datasets;
        datasets.create("tank/d", &[("retain".into(), "7h".into())]).await.unwrap();
        datasets.create("tank/d/below", &[]).await.unwrap();
        make(&service, service.files.root("tank/d").unwrap(), "disk").await;
        let mut all: Vec<String> = datasets.snapshot(&["tank/d@a".into()], true).await.unwrap();
        assert_eq!(all, ["tank/d/below@a", "tank/d@a"]);
        all.extend(service.files.take_named(&["tank/d:disk@f".into()]).await.unwrap());
        let host = Credentials { snapcontrol: Some([10, 0, 0, 7].into()), ..root() };
        let mut at = service.files.root("tank/d").unwrap();
        for name in [&b".aquifer"[..], b"snapshot"] {
            at = service.files.lookup(&root(), at, name).await.0.unwrap().handle;
        }
        let set = SetAttributes::default();
        service.files.mkdir(&host, at, b"host", &set).await.kept().await.0.unwrap();
        // What a host took it cannot destroy.
        let refused = service.files.rmdir(&host, at, b"host").await.kept().await.0;
        assert!(refused.is_err());
        all.push("tank/d@host".into());
        datasets.set("tank/d", "snapshots", Some("hourly=1")).await.unwrap();
        datasets.set("tank/d", "filesnapshots", Some("* daily=1")).await.unwrap();
        let now = Time::from_ns(service.pool.world().wall_ns());
        datasets.snapshots_if_due(now).await.unwrap();
        service.pool.sync().await.unwrap();
        let found = service.files.scheduled().await;
        service.files.tend_scheduled(found, now).await.unwrap();
        let dataset = datasets.by_name("tank/d").unwrap();
        let listed = dataset.snapshots(service.pool.committed_txg());
        let newest = &listed.last().unwrap().record.name;
        assert!(newest.starts_with("auto-hourly"), "{newest}");
        all.push(format!("tank/d@{newest}"));
        let of_files = dataset.file_snapshots(service.pool.committed_txg());
        let newest = &of_files.last().unwrap().record.name;
        assert!(newest.starts_with("auto-daily"), "{newest}");
        all.push(format!("tank/d:disk@{newest}"));
        all
    });
    assert_eq!(all.len(), 6, "{all:?}");
    bed.life(async |service| {
        for name in &all {
            let left_s = left_s(&service, name).await.unwrap_or_default();
            assert!((7 * 3600 - 60..7 * 3600 + 60).contains(&left_s), "{name}: {left_s} s");
            let refused = destroy(&service, name).await;
            assert!(matches!(refused, Err(DatasetError::Held { .. })), "{name}: {refused:?}");
        }
        assert!(service.datasets.check_no_hold_with_end().is_err());
        // They end by themselves.
        service.pool.world().sleep(std::time::Duration::from_secs(7 * 3600 + 60)).await;
        service.datasets.tend_holds().await.unwrap();
        for name in &all {
            assert_eq!(days(&service, name).await, None, "{name}");
            destroy(&service, name).await.unwrap();
        }
    });
    bed.assert_clean();
}

/// Each of several datasets holds by its own value.
#[test]
fn snapshots_taken_together_are_held_by_the_values_of_each() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let values = [("tank/d", Some(3)), ("tank/e", None), ("tank/f", Some(5))];
        for (name, days) in values {
            let value = days.map_or("off".into(), |days| format!("{days}d"));
            service.datasets.create(name, &[("retain".into(), value)]).await.unwrap();
            make(&service, service.files.root(name).unwrap(), "disk").await;
        }
        let names = |of: &str| values.map(|(name, _)| format!("{name}{of}"));
        service.datasets.snapshot(&names("@a"), false).await.unwrap();
        service.files.take_named(&names(":disk@a")).await.unwrap();
        for (name, held) in values {
            assert_eq!(days(&service, &format!("{name}@a")).await, held, "{name}");
            assert_eq!(days(&service, &format!("{name}:disk@a")).await, held, "{name}");
        }
    });
    bed.assert_clean();
}

/// Older releases and other hosts read the labels only.
#[test]
fn the_labels_say_what_a_new_snapshot_brings() {
    for of_file in [false, true] {
        let mut bed = Bed::new(1, 65536);
        let disk: Arc<dyn Disk> = Arc::new(bed.disks[0].clone());
        let until_s = bed.cut_life(async |service| {
            service.datasets.create("tank/d", &[]).await.unwrap();
            make(&service, service.files.root("tank/d").unwrap(), "disk").await;
            set(&service, "tank/d", "7d").await.unwrap();
            match of_file {
                true => {
                    let names = ["tank/d:disk@a".to_string()];
                    service.files.take_named(&names).await.unwrap();
                }
                false => snapshot(&service, "tank/d@a").await,
            }
            wall_s(&service) + 7 * DAY_S - 60
        });
        let labels = bed.sim.run_until(read_labels(&disk)).unwrap().unwrap();
        let features = labels.label.config.features_write;
        assert!(held_until(&features) >= Some(until_s), "{features:?}");
        assert!(features.iter().any(|of| of == FEATURE_KEEPING), "{features:?}");
        assert_eq!(features.iter().any(|of| of == FEATURE_FILE_HOLDS), of_file, "{features:?}");
    }
}

/// Setting the clock ends no hold that a snapshot got by itself.
#[test]
fn a_clock_that_is_set_ends_no_hold() {
    let mut bed = Bed::new(1, 65536);
    let names = ["tank/d@a", "tank/d:disk@a"];
    let wall_ns = bed.cut_life(async |service| {
        let retain = [("retain".into(), "7d".into())];
        service.datasets.create("tank/d", &retain).await.unwrap();
        make(&service, service.files.root("tank/d").unwrap(), "disk").await;
        snapshot(&service, names[0]).await;
        service.files.take_named(&[names[1].into()]).await.unwrap();
        service.pool.world().wall_ns()
    });
    bed.sim.set_wall_ns(wall_ns + 365 * DAY_S * 1_000_000_000);
    bed.life(async |service| {
        service.datasets.tend_holds().await.unwrap();
        for name in names {
            let refused = destroy(&service, name).await;
            assert!(matches!(refused, Err(DatasetError::Held { .. })), "{name}: {refused:?}");
        }
    });
    bed.assert_clean();
}

/// The value is the copy's own: none comes with a stream, and its own holds what comes.
#[test]
fn what_a_copy_receives_is_held_by_its_own_value() {
    let mut bed = Bed::new(1, 65536);
    bed.cut_life(async |service| {
        let datasets = &service.datasets;
        datasets.create("tank/d", &[("retain".into(), "3d".into())]).await.unwrap();
        datasets.create("tank/copies", &[("retain".into(), "20d".into())]).await.unwrap();
        snapshot(&service, "tank/d@a").await;
        let bytes = stream(&service, "tank/d@a").await.unwrap();
        for copy in ["tank/copies/d", "tank/e"] {
            receive(&service, copy, &bytes, STANDBY).await.unwrap();
        }
        snapshot(&service, "tank/d@b").await;
        let bytes = changes(&service, "tank/d@b", Some("@a")).await.unwrap();
        receive(&service, "tank/copies/d", &bytes, STANDBY).await.unwrap();
    });
    bed.life(async |service| {
        for (name, held) in [
            ("tank/d@a", Some(3)),
            ("tank/d@b", Some(3)),
            ("tank/copies/d@a", Some(20)),
            ("tank/copies/d@b", Some(20)),
            ("tank/e@a", None),
        ] {
            assert_eq!(days(&service, name).await, held, "{name}");
        }
    });
    bed.assert_clean();
}

#[test]
fn a_changed_value_touches_no_hold_that_stands() {
    let mut bed = Bed::new(1, 65536);
    bed.cut_life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        snapshot(&service, "tank/d@before").await;
        for (value, name) in [("9d", "a"), ("2d", "b"), ("off", "c"), ("4d", "d")] {
            set(&service, "tank/d", value).await.unwrap();
            snapshot(&service, &format!("tank/d@{name}")).await;
        }
        for (name, held) in
            [("before", None), ("a", Some(9)), ("b", Some(2)), ("c", None), ("d", Some(4))]
        {
            assert_eq!(days(&service, &format!("tank/d@{name}")).await, held, "{name}");
        }
        // It can be made longer by hand, as every hold can.
        let (dataset, b) = service.datasets.snapshot_by_name("tank/d@b").unwrap();
        let until_s = wall_s(&service) + 30 * DAY_S;
        service.datasets.hold("retain", &[(dataset, b.txg)], Some(until_s)).await.unwrap();
        assert_eq!(days(&service, "tank/d@b").await, Some(30));
    });
}

#[test]
fn no_value_is_longer_than_holds_may_be() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        datasets.create("tank/d", &[]).await.unwrap();
        for bad in ["", "7", "0d", "d", "-1d", "none", "4000d", "7 d", "99999999999999999999d"] {
            assert!(set(&service, "tank/d", bad).await.is_err(), "{bad:?}");
        }
        set(&service, "tank/d", "30d").await.unwrap();
        // Not below what is set somewhere, and nothing changes.
        let refused = datasets.set("tank", "hold_max", Some("29d")).await.unwrap_err().to_string();
        assert!(refused.contains("tank/d") && refused.contains("retain=30d"), "{refused}");
        assert_eq!(datasets.hold_max_s(), None);
        datasets.set("tank", "hold_max", Some("30d")).await.unwrap();
        let refused = set(&service, "tank/d", "31d").await.unwrap_err().to_string();
        assert!(refused.contains("hold_max") && refused.contains("30d"), "{refused}");
        let new = [("retain".to_string(), "31d".to_string())];
        assert!(datasets.create("tank/new", &new).await.is_err());
        assert!(datasets.by_name("tank/new").is_none());
        snapshot(&service, "tank/d@a").await;
        assert!(datasets.clone_snapshot("tank/d@a", "tank/c", &new).await.is_err());
        // Both in one act, of the pool's own dataset.
        let both = |hold_max: &str, retain: &str| {
            let of = |name: &str, value: &str| (name.to_string(), Some(value.to_string()));
            let changes = [of("hold_max", hold_max), of("retain", retain)];
            async move { datasets.set_all("tank", &changes).await }
        };
        assert!(both("30d", "31d").await.is_err());
        both("31d", "31d").await.unwrap();
        // The one below inherits.
        datasets.set("tank/d", "retain", None).await.unwrap();
        snapshot(&service, "tank/d@b").await;
        assert_eq!(days(&service, "tank/d@b").await, Some(31));
        // A lower bound looks at the value that comes with it, not at the one before.
        both("20d", "20d").await.unwrap();
    });
    bed.assert_clean();
}

/// A schedule has more than it keeps while they are held, and destroys them once they are not.
#[test]
fn a_schedule_leaves_what_is_held_until_it_is_not() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let datasets = &service.datasets;
        datasets.create("tank/d", &[("retain".into(), "5h".into())]).await.unwrap();
        datasets.set("tank/d", "snapshots", Some("hourly=2")).await.unwrap();
        let dataset = datasets.by_name("tank/d").unwrap();
        let mut most = 0;
        for _ in 0..12 {
            let now = Time::from_ns(service.pool.world().wall_ns());
            datasets.tend_holds().await.unwrap();
            datasets.snapshots_if_due(now).await.unwrap();
            most = most.max(dataset.snapshot_count());
            service.pool.world().sleep(std::time::Duration::from_secs(3600)).await;
        }
        assert!((5..=7).contains(&most), "{most}");
        datasets.set("tank/d", "retain", Some("off")).await.unwrap();
        service.pool.world().sleep(std::time::Duration::from_secs(6 * 3600)).await;
        datasets.tend_holds().await.unwrap();
        datasets.snapshots_if_due(Time::from_ns(service.pool.world().wall_ns())).await.unwrap();
        assert_eq!(dataset.snapshot_count(), 2);
    });
    bed.assert_clean();
}
