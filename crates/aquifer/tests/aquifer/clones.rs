//! Clones: the daemon, the command line, and NFS.

use serde_json::json;

use crate::bed::{Served, noise, served};
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: usize = 1 << 20;

fn snapshots(place: &Place) -> Vec<String> {
    let listed = place.json(&["list", "-t", "snapshot"]);
    let listed = listed.as_array().unwrap().iter();
    listed.map(|of| of["name"].as_str().unwrap().to_string()).collect()
}

/// A golden image is replaced by an improved clone of it, while clients use both.
#[test]
fn a_clone_is_promoted_and_its_origin_destroyed() {
    let Served { place, disk, daemon, mut client, file, .. } = served();
    let old = noise(1, MIB);
    client.write(&file, 0, &old, true);
    place.must(&["snapshot", "tank/vms@a"]);
    place.must(&["hold", "audit", "tank/vms@a"]);
    client.write(&file, 0, &noise(2, 65536), true);
    place.must(&["snapshot", "tank/vms@b"]);
    client.write(&file, 65536, &noise(3, 65536), true);
    place.must(&["snapshot", "tank/vms@c"]);
    place.must(&["clone", "-o", "sharenfs=insecure", "tank/vms@b", "tank/new"]);
    let root = client.mount("/tank/new");
    let copy = client.create(&root, "disk.raw");
    client.write(&copy, 131_072, &noise(4, 65536), true);
    place.must(&["snapshot", "tank/new@a"]);

    let said = place.ask(&["promote", "tank/vms"]);
    assert!(said.code == 1 && said.err.contains("no clone"), "{said:?}");
    let said = place.ask(&["promote", "tank/new"]);
    assert!(said.code == 1 && said.err.contains("snapshots called a:"), "{said:?}");
    place.must(&["rename", "tank/new@a", "@own"]);
    let done = place.json(&["promote", "tank/new"]);
    assert_eq!(done["origin"], "tank/vms");
    assert_eq!(done["snapshots"], json!(["tank/new@a", "tank/new@b"]));
    let said = place.ask(&["promote", "tank/new"]);
    assert!(said.code == 1 && said.err.contains("no clone"), "{said:?}");

    let of_new = ["tank/new@a", "tank/new@b", "tank/new@own"];
    assert_eq!(snapshots(&place), [&of_new[..], &["tank/vms@c"]].concat());
    assert_eq!(place.json(&["list", "tank/vms"])[0]["origin"], "tank/new@b");
    assert!(place.json(&["list", "tank/new"])[0]["origin"].is_null());
    assert_eq!(place.json(&["holds", "tank/new@a"])[0]["tag"], "audit");
    // Clients find them where they are listed.
    let below = |client: &mut Client, name: &str| {
        let root = client.mount("/tank/new");
        let names = [".aquifer", "snapshot", name, "disk.raw"];
        names.iter().fold(root, |at, name| client.lookup(&at, name).unwrap())
    };
    let as_of_a = below(&mut client, "a");
    assert!(client.read_bytes(&as_of_a, 0, 65536).unwrap() == old[..65536]);

    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(client.read_bytes(&as_of_a, 0, 65536).unwrap() == old[..65536]);
    let said = place.ask(&["destroy", "-f", "tank/new@b"]);
    assert!(said.code == 1 && said.err.contains("has clones: tank/vms"), "{said:?}");
    place.must(&["destroy", "-r", "-f", "tank/vms"]);
    assert_eq!(snapshots(&place), of_new);
    let of_clone = |client: &mut Client| {
        let read = |at: u64| client.read_bytes(&copy, at, 65536).unwrap();
        let found = [0, 65536, 131_072].map(read).concat();
        assert!(found == [&noise(2, 65536), &old[65536..131_072], &noise(4, 65536)].concat());
    };
    of_clone(&mut client);
    place.must(&["destroy", "-f", "tank/new@b"]);
    let said = place.ask(&["destroy", "-f", "tank/new@a"]);
    assert!(said.code == 1 && said.err.contains("is held"), "{said:?}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
    place.must(&["pool", "import", "-d", &disk, "tank"]);
    let mut client = Client::new(&place, "127.0.0.1");
    of_clone(&mut client);
    assert!(client.read_bytes(&as_of_a, 0, 65536).unwrap() == old[..65536]);
    place.must(&["release", "audit", "tank/new@a"]);
    place.must(&["destroy", "-f", "tank/new@%"]);
    of_clone(&mut client);
    place.must(&["destroy", "-f", "tank/new"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

#[test]
fn a_clone_is_mounted_and_written_while_its_origin_lives_on() {
    let Served { place, disk, daemon, mut client, file, .. } = served();
    let old = noise(1, MIB);
    client.write(&file, 0, &old, true);
    place.must(&["snapshot", "tank/vms@a"]);
    client.write(&file, 0, &noise(2, 65536), true);
    place.must(&["clone", "-o", "sharenfs=insecure", "tank/vms@a", "tank/new"]);
    let root = client.mount("/tank/new");
    let copy = client.create(&root, "disk.raw");
    assert_ne!(copy, file, "it has handles of its own");
    assert!(client.read_bytes(&copy, 0, 65536).unwrap() == old[..65536]);
    client.write(&copy, 65536, &noise(3, 65536), true);
    let content = |client: &mut Client, file: &[u8]| {
        let read = |at: u64| client.read_bytes(file, at, 65536).unwrap();
        [0, 65536, 131_072].map(read).concat()
    };
    let of_clone = [&old[..65536], &noise(3, 65536), &old[131_072..196_608]].concat();
    let of_origin = [&noise(2, 65536), &old[65536..196_608]].concat();
    assert!(content(&mut client, &copy) == of_clone);
    assert!(content(&mut client, &file) == of_origin);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(content(&mut client, &copy) == of_clone);
    assert!(content(&mut client, &file) == of_origin);

    let listed = place.json(&["list", "tank/new"]);
    assert_eq!(listed[0]["origin"], "tank/vms@a");
    for name in ["tank/vms@a", "tank/vms"] {
        let said = place.ask(&["destroy", "-r", "-f", name]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("has clones: tank/new"), "{said:?}");
    }
    place.must(&["snapshot", "tank/vms@b"]);
    place.must(&["rollback", "-r", "tank/vms@a"]);
    assert!(content(&mut client, &file) == old[..196_608]);
    // A hold keeps the snapshot, and so its clones.
    place.must(&["hold", "audit", "tank/vms@a"]);
    for name in ["tank/vms@a", "tank/vms"] {
        let said = place.ask(&["destroy", "-R", "-f", name]);
        assert!(said.code == 1 && said.err.contains("is held by \"audit\""), "{said:?}");
        place.must(&["list", "tank/new"]);
    }
    place.must(&["release", "audit", "tank/vms@a"]);
    place.must(&["destroy", "-R", "-f", "tank/vms@a"]);
    assert_eq!(place.ask(&["list", "tank/new"]).code, 1);
    assert!(content(&mut client, &file) == old[..196_608]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
