//! Snapshots of single files: the daemon, the command line, and NFS.

use serde_json::Value;

use crate::bed::{Served, noise, served};
use crate::support::Place;

const MIB: usize = 1 << 20;

fn listed(place: &Place) -> Vec<Value> {
    place.json(&["list", "-t", "snapshot"]).as_array().unwrap().clone()
}

fn names(place: &Place) -> Vec<String> {
    listed(place).iter().map(|of| of["name"].as_str().unwrap().to_string()).collect()
}

/// Two disks of a VM are taken together, one is removed, and the power of the daemon goes.
#[test]
fn disks_of_a_vm_are_snapshotted_listed_and_destroyed() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let vm = client.mkdir(&root, "web 01");
    let disks = ["disk0.vhd", "disk1.vhd"].map(|name| client.create(&vm, name));
    client.write(&disks[0], 0, &noise(1, MIB), true);
    client.write(&disks[1], 0, &noise(2, 65536), true);
    client.write(&file, 0, &noise(3, MIB), true);

    place.must(&["snapshot", "tank/vms:disk.raw@before"]);
    let taken = place.json(&["snapshot", "tank/vms:/web 01/*.vhd@nightly"]);
    let set = ["tank/vms:web 01/disk0.vhd@nightly", "tank/vms:web 01/disk1.vhd@nightly"];
    assert_eq!(taken["names"], serde_json::json!(set));
    place.must(&["snapshot", "tank/vms@all"]);
    let of_file = "tank/vms:disk.raw@before";
    assert_eq!(names(&place), ["tank/vms@all", of_file, set[0], set[1]]);
    let (first, second) = (listed(&place)[2].clone(), listed(&place)[3].clone());
    assert_eq!(first["txg"], second["txg"], "of one moment");
    assert_eq!(
        (&first["path"], &first["dataset"]),
        (&"web 01/disk0.vhd".into(), &"tank/vms".into())
    );
    assert_eq!((&first["size_bytes"], &first["refer_bytes"]), (&MIB.into(), &MIB.into()));
    assert_eq!(first["used_bytes"], 0);

    // What both kinds show is in none; what one shows alone is its.
    client.write(&file, 0, &noise(4, 65536), true);
    place.must(&["destroy", "-f", "tank/vms@all"]);
    let dry = place.json(&["destroy", "-n", of_file]);
    let foretold = dry["free_bytes"].as_u64().unwrap();
    assert!((65536..65536 + 65536).contains(&foretold), "{dry}");
    let one = place.json(&["list", of_file]);
    assert_eq!(one[0]["used_bytes"], foretold);

    for (words, message) in [
        (vec!["snapshot", "tank/vms:disk.raw@before"], "exists already"),
        (vec!["snapshot", "tank/vms:web 01/*.iso@x"], "no regular file matches"),
        (vec!["snapshot", "tank/vms:web 01/none@x"], "there is no file"),
        (vec!["snapshot", "tank:none@x"], "there is no file"),
        (vec!["snapshot", "tank/vms:web 01@x"], "is no regular file"),
        (vec!["snapshot", "tank/vms:disk.raw@a/b"], "may hold letters"),
        (vec!["snapshot", "-r", "tank/vms:disk.raw@x"], "-r is for datasets"),
        (vec!["snapshot", "tank/vms@x", "tank/vms:disk.raw@x"], "with two commands"),
        (vec!["destroy", "-f", "tank/vms:disk.raw@none"], "there is no snapshot"),
        (vec!["hold", "-r", "audit", of_file], "-r is for datasets"),
        (vec!["hold", "audit", of_file, "tank/vms@all"], "with two commands"),
        (vec!["hold", "audit", "tank/vms:web 01/*@none"], "there is no snapshot"),
        (vec!["rollback", "tank/vms:disk.raw@none"], "there is no snapshot"),
        (vec!["clone", of_file, "tank/new"], "names no file"),
        (vec!["rename", of_file, "@a/b"], "may hold letters"),
        (vec!["rename", "tank/vms:disk.raw@none", "@x"], "there is no snapshot"),
        (vec!["rename", of_file, "tank/vms:other@x"], "stays with its dataset or file"),
        (vec!["rename", "-r", of_file, "@x"], "-r is for datasets"),
        (vec!["bookmark", of_file, "#x"], "a snapshot of a file"),
        (vec!["destroy", "-f", "tank/vms"], "has snapshots"),
    ] {
        let said = place.ask(&words);
        assert!(said.code != 0 && said.err.contains(message), "{words:?}: {said:?}");
    }
    assert_eq!(names(&place), [of_file, set[0], set[1]]);
    // Held, also by a pattern: nothing destroys them.
    place.must(&["hold", "backup", "tank/vms:web 01/*@nightly", set[0]]);
    place.must(&["hold", "audit", of_file]);
    let held = |words: &[&str]| {
        let holds = place.json(words).as_array().unwrap().clone();
        let text = |hold: &Value, field: &str| hold[field].as_str().unwrap().to_owned();
        holds.iter().map(|of| (text(of, "snapshot"), text(of, "tag"))).collect::<Vec<_>>()
    };
    let [disk0, disk1] = set.map(|name| (name.to_owned(), "backup".to_owned()));
    let before = (of_file.to_owned(), "audit".to_owned());
    assert_eq!(held(&["holds", "-r", "tank"]), [before.clone(), disk0.clone(), disk1.clone()]);
    assert_eq!(held(&["holds", set[1]]), std::slice::from_ref(&disk1));
    assert_eq!(place.json(&["list", set[0]])[0]["holds"], 1);
    for words in [vec!["destroy", "-f", set[0]], vec!["destroy", "-rf", "tank/vms"]] {
        let said = place.ask(&words);
        assert!(said.code != 0 && said.err.contains("is held by"), "{words:?}: {said:?}");
    }
    let done = place.json(&["rollback", "tank/vms:web 01/*@nightly"]);
    assert_eq!(done["name"], "tank/vms:web 01/*");

    // Another name, and the first one again.
    place.must(&["rename", "tank/vms:web 01/*@nightly", "@kept"]);
    assert_eq!(
        names(&place)[1..],
        ["tank/vms:web 01/disk0.vhd@kept", "tank/vms:web 01/disk1.vhd@kept"]
    );
    place.must(&["rename", "tank/vms:web 01/*@kept", "@nightly"]);

    // A file that is removed keeps its snapshots.
    client.remove(&vm, "disk0.vhd");
    daemon.kill9();
    let _daemon = place.serve();
    assert_eq!(names(&place), [of_file, set[0], set[1]]);
    let is_freed = || place.json(&["list", set[0]])[0]["used_bytes"].as_u64() >= Some(MIB as u64);
    place.wait_for(is_freed);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
    place.must(&["pool", "import", "-d", &disk, "tank"]);

    assert_eq!(held(&["holds"]), [before, disk0, disk1]);
    place.must(&["release", "backup", "tank/vms:web 01/*@nightly"]);
    place.must(&["release", "audit", of_file]);
    let done = place.json(&["destroy", "-f", "tank/vms:web 01/*@nightly"]);
    assert_eq!(done["snapshots"].as_array().unwrap().len(), 2);
    place.must(&["destroy", "-f", of_file]);
    assert_eq!(names(&place), [""; 0]);
    let used = || {
        let info = place.json(&["list", "tank/vms"])[0].clone();
        (info["used_bytes"].clone(), info["refer_bytes"].clone())
    };
    place.wait_for(|| used().0 == used().1);
    place.must(&["snapshot", of_file]);
    place.must(&["hold", "--until", "1h", "audit", of_file]);
    for (words, message) in [
        (vec!["release", "audit", of_file], "nobody can release it"),
        (vec!["destroy", "-f", of_file], "is held by"),
        (vec!["pool", "destroy", "-f", "tank"], "is held by"),
    ] {
        let said = place.ask(&words);
        assert!(said.code != 0 && said.err.contains(message), "{words:?}: {said:?}");
    }
    let history = place.must(&["pool", "history", "tank"]);
    assert!(history.contains("aquifer snapshot tank/vms:disk.raw@before"), "{history}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
