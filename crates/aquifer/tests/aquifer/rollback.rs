//! Rollback of a dataset that a client has mounted: the daemon, the command line, and NFS.

use serde_json::{Value, json};

use crate::bed::{Served, noise, served};
use crate::eyes::client::Client;

const MIB: usize = 1 << 20;
const STALE: u32 = 70;

/// Its handle stays, and other files do not notice.
#[test]
fn a_file_is_rolled_back_while_others_go_on() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let old = noise(1, MIB);
    client.write(&file, 0, &old, true);
    let other = client.create(&root, "other.raw");
    place.must(&["snapshot", "tank/vms:disk.raw@a"]);
    client.write(&file, 8192, &noise(2, MIB / 4), true);
    place.must(&["snapshot", "tank/vms:disk.raw@b"]);
    client.write(&file, 0, &noise(3, 4096), false);
    client.write(&other, 0, &noise(4, 4096), false);

    place.refuses(
        &["rollback", "-r", "tank/vms:disk.raw@a"],
        "clients have data in \"tank/vms:disk.raw@a\" that waits for their COMMIT, and would be \
         lost: stop them, or use -f",
    );
    client.commit(&file);
    client.write(&other, 0, &noise(4, 4096), false);
    let done = place.json(&["rollback", "-r", "tank/vms:disk.raw@a"]);
    assert_eq!(done, json!({ "name": "tank/vms:disk.raw", "destroyed": ["tank/vms:disk.raw@b"] }));
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    assert!(client.read_bytes(&other, 0, 4096).unwrap() == noise(4, 4096));
    client.write(&file, 4096, &noise(5, 4096), true);
    daemon.kill9();
    let daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&file, 0, 4096).unwrap() == old[..4096]);
    assert!(client.read_bytes(&file, 4096, 4096).unwrap() == noise(5, 4096));
    place.must(&["rollback", "tank/vms:disk.raw@a"]);
    assert!(client.read_bytes(&file, 0, 16384).unwrap() == old[..16384]);

    // Past snapshots that stay, and forward again, over a kill.
    client.write(&file, 0, &noise(6, MIB / 2), true);
    place.must(&["snapshot", "tank/vms@all"]);
    place.must(&["snapshot", "tank/vms:disk.raw@c"]);
    client.write(&file, 0, &noise(7, MIB), true);
    let done = place.json(&["rollback", "tank/vms:disk.raw@a"]);
    assert_eq!(done, json!({ "name": "tank/vms:disk.raw", "destroyed": [] }));
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    place.must(&["destroy", "-f", "tank/vms:disk.raw@a"]);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    let mut all = root.clone();
    for name in [".aquifer", "snapshot", "all", "disk.raw"] {
        all = client.lookup(&all, name).unwrap();
    }
    assert!(client.read_bytes(&all, 0, 64 << 10).unwrap() == noise(6, MIB / 2)[..64 << 10]);
    place.must(&["rollback", "tank/vms:disk.raw@c"]);
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == noise(6, MIB / 2)[..64 << 10]);
    // To what the snapshot of the dataset shows, which then goes, and a clone of that.
    client.write(&file, 0, &noise(8, MIB), true);
    place.must(&["rollback", "tank/vms:disk.raw@all"]);
    place.must(&["clone", "tank/vms:disk.raw@all", "tank/vms:copy.raw"]);
    place.must(&["destroy", "-f", "tank/vms@all"]);
    let copy = client.lookup(&root, "copy.raw").unwrap();
    for file in [&file, &copy] {
        assert!(client.read_bytes(file, 0, 64 << 10).unwrap() == noise(6, MIB / 2)[..64 << 10]);
    }
    place.refuses(
        &["rollback", "tank/vms:disk.raw@all"],
        "there is no snapshot \"tank/vms:disk.raw@all\" of a file; `aquifer list -t snapshot` \
         shows those that there are",
    );
    assert!(place.log().contains("file.rolled_back"), "{}", place.log());
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

/// A host removed it by mistake. The handle that heard "stale" works again, over a kill too.
#[test]
fn a_removed_file_comes_back_by_a_rollback() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let old = noise(1, MIB);
    client.write(&file, 0, &old, true);
    place.must(&["snapshot", "tank/vms@night"]);
    client.write(&file, 0, &noise(2, MIB), true);
    place.must(&["snapshot", "tank/vms:disk.raw@own"]);
    client.remove(&root, "disk.raw");
    assert_eq!(client.read(&file, 0, 1), Err(STALE));
    place.must(&["clone", "tank/vms:disk.raw@own", "tank/vms:disk.raw"]);
    place.refuses(
        &["rollback", "tank/vms:disk.raw@night"],
        "\"tank/vms:disk.raw\" was removed, and something else has its name by now: rename that, \
         or clone the snapshot to another name",
    );
    // Another client: the same call of one client is not carried out twice.
    let remove = |from: &str| Client::new(&place, from).remove(&root, "disk.raw");
    remove("127.0.0.2");
    place.refuses(
        &["rollback", "-r", "tank/vms:disk.raw@night"],
        "\"tank/vms:disk.raw@night\" was removed, and would come back with all its snapshots: \
         leave out -r, which destroys later ones",
    );
    let done = place.json(&["rollback", "tank/vms:disk.raw@night"]);
    assert_eq!(done, json!({ "name": "tank/vms:disk.raw", "destroyed": [] }));
    assert_eq!(client.lookup(&root, "disk.raw").as_ref(), Ok(&file));
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    client.write(&file, 4096, &noise(3, 4096), true);
    place.must(&["destroy", "-f", "tank/vms@night"]);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&file, 0, 4096).unwrap() == old[..4096]);
    assert!(client.read_bytes(&file, 4096, 4096).unwrap() == noise(3, 4096));
    // Removed once more, it comes back as the snapshot of its first life.
    remove("127.0.0.3");
    place.must(&["rollback", "tank/vms:disk.raw@own"]);
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == noise(2, MIB)[..64 << 10]);
    assert!(place.log().contains("file.rolled_back"), "{}", place.log());
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

#[test]
fn a_mounted_dataset_is_rolled_back() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let old = noise(1, MIB);
    client.write(&file, 0, &old, true);
    place.must(&["snapshot", "tank/vms@a"]);
    client.write(&file, 8192, &noise(2, MIB / 4), true);
    let new = client.create(&root, "new.raw");
    place.must(&["snapshot", "tank/vms@b"]);
    client.write(&file, 0, &noise(3, 4096), false);

    // What is later stays: it goes back, and forward again.
    client.commit(&file);
    let done = place.json(&["rollback", "tank/vms@a"]);
    assert_eq!(done, json!({ "name": "tank/vms", "destroyed": [] }));
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    assert_eq!(client.read(&new, 0, 1), Err(STALE));
    daemon.kill9();
    let daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    place.must(&["rollback", "tank/vms@b"]);
    assert!(client.read_bytes(&file, 8192, 4096).unwrap() == noise(2, MIB / 4)[..4096]);
    assert!(client.read(&new, 0, 1).is_ok());

    client.write(&file, 0, &noise(3, 4096), false);
    place.refuses(
        &["rollback", "-r", "tank/vms@a"],
        "clients have data in \"tank/vms\" that waits for their COMMIT, and would be lost: stop \
         them, or use -f",
    );
    client.commit(&file);
    let done = place.json(&["rollback", "-r", "tank/vms@a"]);
    assert_eq!(done, json!({ "name": "tank/vms", "destroyed": ["tank/vms@b"] }));

    // The same handles, the old content.
    assert!(client.read_bytes(&file, 0, 64 << 10).unwrap() == old[..64 << 10]);
    assert_eq!(client.read(&new, 0, 1), Err(STALE));
    client.write(&file, 4096, &noise(4, 4096), true);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&file, 0, 4096).unwrap() == old[..4096]);
    assert!(client.read_bytes(&file, 4096, 4096).unwrap() == noise(4, 4096));
    place.must(&["rollback", "tank/vms@a"]);
    assert!(client.read_bytes(&file, 0, 16384).unwrap() == old[..16384]);

    let told = place.json(&["pool", "history", "-a", "tank"]);
    let acts = told["tank"].as_array().unwrap().iter();
    let of = |entry: &Value| (entry["act"].clone(), entry["outcome"].clone());
    let acts: Vec<_> = acts.map(of).filter(|(act, _)| act.to_string().contains("roll")).collect();
    let told: Vec<_> = acts.iter().map(|(act, _)| act.as_str().unwrap()).collect();
    let (gently, later) = ("rollback tank/vms@a", "rollback -r tank/vms@a");
    assert_eq!(told, [gently, "rollback tank/vms@b", later, later, gently]);
    assert_eq!((&acts[2].1, &acts[4].1), (&json!("failed"), &json!("done")));
    assert!(place.log().contains("dataset.rolled_back"), "{}", place.log());
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
