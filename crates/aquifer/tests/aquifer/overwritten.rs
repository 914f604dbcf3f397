//! The alarm about a disk that is written far more than ever.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aquifer_blockio::{FileDisk, OpenOptions, TokioWorld, World};
use aquifer_dataset::load::{LoadGrain, LoadOf, LoadPart, LoadSample, Rough};
use aquifer_files::Service;
use aquifer_ondisk::ObjectId;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{ImportOptions, scan};
use tokio::runtime::{Builder, Handle};

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::{Daemon, PATIENCE, Place};

const DAY_S: u64 = 86_400;
const MIB: u64 = 1 << 20;
/// Loads are looked at when such a time of the wall clock ends.
const LOOK_MS: u64 = 10_000;

fn serve(place: &Place) -> Daemon {
    place.spawn_as("state", &[], &[], &["--config", &place.text("config")])
}

/// Gives the pool on this disk a past: so long ago, each file that `tank/vms` may have was written
/// so much within ten minutes.
fn has_a_past(path: &str, days: u64, bytes: u64) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world: Arc<dyn World> = Arc::new(TokioWorld::new(Handle::current()));
        let disk = FileDisk::open(path.as_ref(), OpenOptions::exclusive()).unwrap();
        let disk = NamedDisk { path: path.into(), disk: Arc::new(disk) };
        let (mut pools, _) = scan(vec![disk]).await;
        let (_, found) = pools.pop_first().unwrap();
        let service = Service::open(world, found, &ImportOptions::default()).await.unwrap();
        let fs_guid = service.datasets.by_name("tank/vms").unwrap().fs_guid;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let writes = LoadPart { bytes: Rough::of(bytes), ..LoadPart::default() };
        let writes = LoadPart { operations: Rough::of(1), ..writes };
        let sample = LoadSample { writes, ..LoadSample::default() };
        let of = |object| LoadOf::File { fs_guid, object: ObjectId(object) };
        let samples = (1..64).map(|object| (of(object), sample));
        let load = service.datasets.history().load();
        let at_s = now_s - days * DAY_S;
        load.note(service.pool.world().now(), (LoadGrain::TenMinutes, at_s), samples);
        load.leaves();
        service.pool.sync().await.unwrap();
        service.pool.export().await.unwrap();
    });
}

/// Returns what `pool status -x` says is wrong, in one line.
fn told(place: &Place) -> String {
    let said = place.ask(&["pool", "status", "-x"]).out;
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes so many MiB, and waits until a look has seen them.
fn write(place: &Place, file: &[u8], mib: u64) {
    let mut client = Client::new(place, "127.0.0.1");
    for at in 0..mib * 16 {
        client.write(file, at * 65536, &[7; 65536], false);
    }
    client.commit(file);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let next_ms = LOOK_MS - u64::try_from(now_ms).unwrap() % LOOK_MS;
    std::thread::sleep(Duration::from_millis(next_ms + 2000));
}

#[test]
fn a_disk_that_is_written_far_more_than_ever_is_told() {
    let place = Place::new();
    // A smaller pool keeps no past of VM disks.
    let disk = place.sized_image("large", 2 << 30);
    fs::write(place.path("config"), "[alerts]\noverwritten_gib_min = 0\n").unwrap();
    let daemon = serve(&place);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    let file = with_file(&place, "tank", &[&disk]);
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    has_a_past(&disk, 5, 2 * MIB);
    let daemon = serve(&place);
    place.wait_for(|| place.ask(&["list", "tank/vms"]).code == 0);
    write(&place, &file, 8);
    assert!(!told(&place).contains("far more"), "8 MiB are no more than 10: {}", told(&place));
    // Ten minutes may end between any two writes.
    place.wait_for(|| {
        write(&place, &file, 11);
        told(&place).contains("far more")
    });
    let text = told(&place);
    let said = "tank/vms:/disk.raw is written far more than usual: over 10M within ten minutes; \
                2M was the most before today";
    assert!(text.contains(said), "{text}");
    place.wait_for(|| place.must(&["alerts"]).contains("disk-overwritten"));
    drop(daemon);
}
