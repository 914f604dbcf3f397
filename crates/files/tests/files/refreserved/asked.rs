//! Snapshots, values and new datasets ask for the room that they take of others.

use aquifer_dataset::DatasetError;
use aquifer_files::{FileHandle, ReceiveError, Service, Stability};
use aquifer_ondisk::inode::Time;

use super::{
    OFF, SIZE, SIZE_PAGES, assert_kept, create, cut, dataset, fill, fill_but, in_a_pool,
    overwrite_all, snapshot, write_all, write_half,
};
use crate::bed::{find, noise, settle, write};
use crate::by_text::ByText;
use crate::receive::{STANDBY, changes, receive, stream};

fn taken(service: &Service, name: &str) -> usize {
    dataset(service, name).snapshots(service.pool.committed_txg()).len()
}

fn is_refused<T>(result: &Result<T, DatasetError>) -> bool {
    matches!(result, Err(DatasetError::NoRoomForSnapshot { .. }))
}

/// Two datasets ask for their room together, whichever of them is named first.
#[test]
fn a_snapshot_of_several_asks_for_the_room_of_each() {
    in_a_pool(async |service| {
        for name in ["tank/a", "tank/b"] {
            let file = create(&service, name, &[OFF, SIZE]).await;
            write_all(&service, file, 1).await;
        }
        // One of them has room for a snapshot, and half of the other has.
        fill_but(&service, SIZE_PAGES * 3 / 2).await;
        for both in [["tank/a@1", "tank/b@1"], ["tank/b@1", "tank/a@1"]] {
            let refused = service.datasets.snapshot(&both.map(String::from), false).await;
            assert!(is_refused(&refused), "{both:?}: {refused:?}");
            assert_eq!((taken(&service, "tank/a"), taken(&service, "tank/b")), (0, 0), "{both:?}");
        }
        snapshot(&service, "tank/a@1").await.unwrap();
        let refused = snapshot(&service, "tank/b@1").await;
        assert!(is_refused(&refused), "{refused:?}");
        assert_eq!((taken(&service, "tank/a"), taken(&service, "tank/b")), (1, 0));
        assert_kept(&service, &["tank/a", "tank/b"]);
        let a = find(&service, "tank/a", "disk").await.unwrap();
        overwrite_all(&service, a, 2).await.unwrap();
    });
}

/// Two datasets of which each has room for a snapshot, but not both, with a third that fills the
/// rest.
async fn with_room_for_one(service: &Service, properties: &[(&str, &str)]) -> [FileHandle; 2] {
    let all: Vec<_> = properties.iter().copied().chain([OFF, SIZE]).collect();
    let a = create(service, "tank/a", &all).await;
    let b = create(service, "tank/b", &all).await;
    for file in [a, b] {
        write_all(service, file, 1).await;
    }
    fill_but(service, SIZE_PAGES * 3 / 2).await;
    [a, b]
}

#[test]
fn a_schedule_takes_as_many_as_there_is_room_for() {
    in_a_pool(async |service| {
        with_room_for_one(&service, &[("snapshots", "hourly=3")]).await;
        let now = Time::from_ns(service.pool.world().wall_ns());
        let refused = service.datasets.snapshots_if_due(now).await;
        assert!(is_refused(&refused), "{refused:?}");
        assert_eq!(taken(&service, "tank/a") + taken(&service, "tank/b"), 1);
        assert_kept(&service, &["tank/a", "tank/b"]);
    });
}

#[test]
fn a_schedule_of_files_takes_as_many_as_there_is_room_for() {
    in_a_pool(async |service| {
        with_room_for_one(&service, &[("filesnapshots", "* hourly=3")]).await;
        let now = Time::from_ns(service.pool.world().wall_ns());
        let found = service.files.scheduled().await;
        let refused = service.files.tend_scheduled(found, now).await;
        assert!(refused.is_err());
        let files = |name| dataset(&service, name).file_snapshots(service.pool.committed_txg());
        assert_eq!(files("tank/a").len() + files("tank/b").len(), 1);
        assert_kept(&service, &["tank/a", "tank/b"]);
    });
}

/// A value that is set later asks for what snapshots show by then. It, and a new dataset, ask for
/// the room of trees too.
#[test]
fn a_value_asks_for_all_that_it_keeps() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF]).await;
        write_all(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        let rest = create(&service, "tank/rest", &[OFF]).await;
        let pages = fill(&service, rest, 0).await;
        // Room for half of it, then for all but trees, then for these too.
        for (free, is_enough) in [(8, false), (16, false), (18, true)] {
            cut(&service, rest, pages - SIZE_PAGES * free / 16).await;
            let size = [(SIZE.0.to_string(), SIZE.1.to_string())];
            let made = service.datasets.create("tank/new", &size).await;
            assert_eq!(made.is_ok(), is_enough, "{free}: {made:?}");
            if is_enough {
                service.datasets.destroy("tank/new", false).await.unwrap();
                settle(&service, 4).await;
            }
            let set = service.datasets.set("tank/vm", SIZE.0, Some(SIZE.1)).await;
            assert_eq!(set.is_ok(), is_enough, "{free}: {set:?}");
        }
        fill(&service, rest, 1 << 20).await;
        overwrite_all(&service, vm, 2).await.unwrap();
    });
}

#[test]
fn a_new_dataset_keeps_no_more_than_the_quotas_above_it() {
    in_a_pool(async |service| {
        create(&service, "tank/up", &[("quota", "40M")]).await;
        create(&service, "tank/up/mid", &[]).await;
        let of = |size: &str| [("refreservation".to_string(), size.to_string())];
        assert!(service.datasets.create("tank/up/mid/vm", &of("41M")).await.is_err());
        service.datasets.create("tank/up/mid/vm", &of("32M")).await.unwrap();
        assert!(service.datasets.create("tank/up/vm", &of("9M")).await.is_err());
        service.datasets.create("tank/up/vm", &of("8M")).await.unwrap();
    });
}

/// A dataset lacks what is known of it at most. If that is too much, it writes into what it still
/// lacks, and a snapshot that makes it lack no more finds no room all the same.
#[test]
fn a_snapshot_is_refused_if_what_lacks_is_not_there() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_all(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        write_half(&service, vm, 2).await;
        let take = async |name: &str| {
            service.files.take_named(&[format!("tank/vm:disk@{name}")]).await.map(drop)
        };
        // The other half is in the sum of the dataset and in that of the file.
        take("1").await.unwrap();
        let rest = create(&service, "tank/rest", &[OFF]).await;
        fill(&service, rest, 0).await;
        write_half(&service, vm, 3).await;
        let refused = take("2").await.unwrap_err().to_string();
        assert!(refused.contains("refreservation=32M"), "{refused}");
        overwrite_all(&service, vm, 4).await.unwrap();
    });
}

/// A receive makes a snapshot of the copy. Without room for another one, the copy is as it was.
#[test]
fn what_is_received_asks_for_room() {
    in_a_pool(async |service| {
        let from = create(&service, "tank/from", &[OFF]).await;
        write_all(&service, from, 1).await;
        snapshot(&service, "tank/from@1").await.unwrap();
        let bytes = stream(&service, "tank/from@1").await.unwrap();
        receive(&service, "tank/copy", &bytes, STANDBY).await.unwrap();
        service.datasets.set("tank/copy", SIZE.0, Some(SIZE.1)).await.unwrap();
        write_all(&service, from, 2).await;
        snapshot(&service, "tank/from@2").await.unwrap();
        let bytes = changes(&service, "tank/from@2", Some("@1")).await.unwrap();
        let rest = create(&service, "tank/rest", &[OFF]).await;
        let pages = fill(&service, rest, 0).await;
        let refused = receive(&service, "tank/copy", &bytes, STANDBY).await.map(drop);
        let is_it = |error: &ReceiveError| error.to_string().contains("refreservation=32M");
        assert!(refused.as_ref().is_err_and(is_it), "{refused:?}");
        assert_eq!(taken(&service, "tank/copy"), 1);
        settle(&service, 20).await;
        assert_kept(&service, &["tank/copy"]);
        cut(&service, rest, pages - SIZE_PAGES * 9 / 8).await;
        receive(&service, "tank/copy", &bytes, STANDBY).await.unwrap();
        assert_eq!(taken(&service, "tank/copy"), 2);
        assert_kept(&service, &["tank/copy"]);
    });
}

/// A write may take all that is kept at once.
#[test]
fn what_is_kept_is_taken_in_one_write() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, ("refreservation", "1M")]).await;
        write(&service, vm, 0, &noise(1, 256), Stability::Unstable).await.unwrap();
        let rest = create(&service, "tank/rest", &[OFF]).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        fill(&service, rest, 0).await;
        for seed in 2..6 {
            write(&service, vm, 0, &noise(seed, 256), Stability::Unstable).await.unwrap();
            settle(&service, 1).await;
        }
    });
}
