//! Others write while a snapshot has its room and is not on disk yet.
//!
//! Flushes are slow here, and nothing else is. So an act has asked long before the txg before its
//! own is on disk. Until then nothing but the question keeps the room.

use std::cell::Cell;
use std::time::Duration;

use aquifer_dataset::NewFileSnapshot;
use aquifer_files::{FileHandle, FsError, Receiver, Service, Stability};
use aquifer_sim::{Latency, SimDisk};
use futures_util::future::join3;

use super::{
    OFF, SIZE, SIZE_PAGES, assert_kept, create, dataset, fill_but, in_a_pool_on, overwrite_all,
    snapshot, write_all,
};
use crate::bed::{find, noise, settle, write};
use crate::by_text::ByText;
use crate::receive::{STANDBY, changes, receive, stream};

const FLUSH: Duration = Duration::from_secs(1);
/// Pages that one snapshot needs, with those for trees, and not many more.
const FOR_ONE: u64 = SIZE_PAGES * 69 / 64;

/// Begins `act` while a txg is on its way to the disk, and `others` when room is kept for it.
async fn while_room_is_kept<A>(
    service: &Service,
    disk: &SimDisk,
    act: impl Future<Output = A>,
    others: impl AsyncFnOnce(),
) -> A {
    settle(service, 4).await;
    let (world, vm) = (service.pool.world(), dataset(service, "tank/vm"));
    let first = find(service, "tank/first", "disk").await.unwrap();
    write(service, first, 0, &noise(1, 1), Stability::Unstable).await.unwrap();
    let (before, committed) = (vm.lacking_bytes(), service.pool.committed_txg());
    disk.set_latency(Latency::fixed(1_000, FLUSH.as_nanos() as u64));
    let is_over = Cell::new(false);
    let act = async {
        world.sleep(FLUSH / 10).await;
        let done = act.await;
        is_over.set(true);
        done
    };
    let others = async {
        world.sleep(FLUSH / 5).await;
        assert!(!is_over.get() && service.pool.committed_txg() == committed);
        assert!(vm.lacking_bytes() > before, "no room is kept before it is on disk");
        others().await;
    };
    let syncing = async { service.pool.sync().await.unwrap() };
    let (_, done, ()) = join3(syncing, act, others).await;
    disk.set_latency(Latency::default());
    settle(service, 4).await;
    done
}

/// Adds pages until not one fits. One that is refused waits for commits first.
async fn grow(service: &Service, file: FileHandle, from: u64) {
    let committed = service.pool.committed_txg();
    for page in (from..from + SIZE_PAGES).step_by(64) {
        let data = noise(page, 64);
        match write(service, file, page, &data, Stability::Unstable).await {
            Ok(()) if service.pool.committed_txg() == committed => {}
            Ok(()) | Err(FsError::NoSpace) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A disk that is written whole, with room for one snapshot of it, and a file that fills the rest;
/// the first page after its end.
async fn with_room_for_one(service: &Service) -> (FileHandle, FileHandle, u64) {
    let vm = create(service, "tank/vm", &[OFF, SIZE]).await;
    write_all(service, vm, 1).await;
    // The first snapshot of a pool waits for the labels before it asks.
    create(service, "tank/first", &[]).await;
    snapshot(service, "tank/first@1").await.unwrap();
    service.files.take_named(&["tank/first:disk@1".to_string()]).await.unwrap();
    let (rest, end) = fill_but(service, FOR_ONE).await;
    (vm, rest, end)
}

async fn assert_can_be_written_over(service: &Service) {
    assert_kept(service, &["tank/vm"]);
    let vm = find(service, "tank/vm", "disk").await.unwrap();
    for seed in [2, 3] {
        overwrite_all(service, vm, seed).await.unwrap();
    }
}

#[test]
fn another_dataset_grows_beside_a_snapshot() {
    in_a_pool_on(async |service, disk| {
        let (_, rest, end) = with_room_for_one(&service).await;
        let grows = async || grow(&service, rest, end).await;
        let act = snapshot(&service, "tank/vm@1");
        let taken = while_room_is_kept(&service, &disk, act, grows).await;
        taken.unwrap();
        assert_can_be_written_over(&service).await;
    });
}

#[test]
fn another_dataset_grows_beside_a_snapshot_of_a_file() {
    in_a_pool_on(async |service, disk| {
        let (vm, rest, end) = with_room_for_one(&service).await;
        let grows = async || grow(&service, rest, end).await;
        let FileHandle { object, generation, .. } = vm;
        let (path, name) = ("disk".to_string(), "1".to_string());
        let dataset = dataset(&service, "tank/vm");
        let new = NewFileSnapshot { dataset, object, generation, path, name };
        // By its name, it would wait for a sync before it asks.
        let act = service.datasets.snapshot_files(vec![new]);
        let taken = while_room_is_kept(&service, &disk, act, grows).await;
        taken.unwrap();
        assert_can_be_written_over(&service).await;
    });
}

/// The dataset itself takes no room of its snapshot: what it writes meanwhile is shown by it.
#[test]
fn the_dataset_grows_beside_its_snapshot() {
    in_a_pool_on(async |service, disk| {
        let (vm, ..) = with_room_for_one(&service).await;
        let grows = async || grow(&service, vm, SIZE_PAGES).await;
        let act = snapshot(&service, "tank/vm@1");
        let taken = while_room_is_kept(&service, &disk, act, grows).await;
        taken.unwrap();
        assert_kept(&service, &["tank/vm"]);
    });
}

#[test]
fn another_dataset_grows_beside_what_a_copy_receives() {
    in_a_pool_on(async |service, disk| {
        create(&service, "tank/first", &[]).await;
        let from = create(&service, "tank/from", &[OFF]).await;
        write_all(&service, from, 1).await;
        snapshot(&service, "tank/from@1").await.unwrap();
        let bytes = stream(&service, "tank/from@1").await.unwrap();
        receive(&service, "tank/vm", &bytes, STANDBY).await.unwrap();
        service.datasets.set("tank/vm", SIZE.0, Some(SIZE.1)).await.unwrap();
        write_all(&service, from, 2).await;
        snapshot(&service, "tank/from@2").await.unwrap();
        let bytes = changes(&service, "tank/from@2", Some("@1")).await.unwrap();
        let mut receiver = Receiver::new(&service.files, "tank/vm".into(), STANDBY);
        for piece in bytes.chunks(100_000) {
            receiver.push(piece.to_vec()).await.unwrap();
        }
        let (rest, end) = fill_but(&service, FOR_ONE).await;
        let grows = async || grow(&service, rest, end).await;
        let act = receiver.finish();
        let received = while_room_is_kept(&service, &disk, act, grows).await;
        received.unwrap();
        assert!(dataset(&service, "tank/vm").lacking_bytes() >= SIZE_PAGES * 4096);
        assert_kept(&service, &["tank/vm"]);
    });
}
