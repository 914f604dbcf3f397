//! Clones of single files: the daemon, the command line, and NFS.

use crate::bed::{Served, noise, served};
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: usize = 1 << 20;

/// USED and REFER of the datastore.
fn counts(place: &Place) -> (u64, u64) {
    let info = place.json(&["list", "tank/vms"])[0].clone();
    (info["used_bytes"].as_u64().unwrap(), info["refer_bytes"].as_u64().unwrap())
}

fn inspected(place: &Place, disk: &str) {
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", disk, "tank"]);
    place.must(&["pool", "import", "-d", disk, "tank"]);
}

/// A hundred disks of VMs from a template that is destroyed then; the daemon is killed; all goes.
#[test]
fn a_hundred_disks_are_cloned_from_a_template() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let gold = noise(1, 4 * MIB);
    for (at, part) in (0..).zip(gold.chunks(MIB)) {
        client.write(&file, at * MIB as u64, part, true);
    }
    let vms = client.mkdir(&root, "web 01");
    place.must(&["snapshot", "tank/vms:disk.raw@v1"]);
    let names: Vec<String> = (0..100).map(|at| format!("tank/vms:web 01/d{at}.raw")).collect();
    let words = ["clone", "tank/vms:disk.raw@v1"].into_iter();
    let words: Vec<&str> = words.chain(names.iter().map(String::as_str)).collect();
    let done = place.json(&words);
    assert_eq!(done["name"], names[0].as_str());
    let (used, refer) = counts(&place);
    assert!(used < 5 * MIB as u64, "{used} bytes: what they share counts once");
    assert!(refer >= 101 * 4 * MIB as u64, "{refer} bytes: each refers to all");

    let disks = ["d7.raw", "d42.raw"].map(|name| client.lookup(&vms, name).unwrap());
    let read = |client: &mut Client, file: &[u8]| {
        let parts = (0..4).map(|at| client.read_bytes(file, at * MIB as u64, MIB as u32).unwrap());
        parts.collect::<Vec<Vec<u8>>>().concat()
    };
    assert!(read(&mut client, &disks[0]) == gold);
    let own = noise(2, 65536);
    client.write(&disks[1], 131_072, &own, true);
    assert!(client.read_bytes(&disks[1], 131_072, 65536).unwrap() == own);
    assert!(read(&mut client, &file) == gold, "the template stays as it is");
    assert!(read(&mut client, &disks[0]) == gold, "so does another clone");

    for (words, message) in [
        (vec!["clone", "tank/vms:disk.raw@v1", "tank/vms:disk.raw"], "file exists"),
        (vec!["clone", "tank/vms:disk.raw@v1", "tank/vms:no/x"], "make it first"),
        (vec!["clone", "tank/vms:disk.raw@none", "tank/vms:x"], "there is no snapshot"),
        (vec!["clone", "tank/vms:disk.raw@v1", "tank/new"], "names no file"),
        (vec!["clone", "tank/vms:disk.raw@v1", "tank/vms:x", "tank:x"], "in another dataset"),
        (vec!["clone", "tank/vms:disk.raw@v1", "tank/vms:x", "tank/vms:x"], "given twice"),
        (vec!["clone", "-o", "quota=1G", "tank/vms:disk.raw@v1", "tank/vms:x"], "no property"),
        (vec!["clone", "tank/vms@none", "tank/a", "tank/b"], "one name too many"),
    ] {
        let said = place.ask(&words);
        assert!(said.code != 0 && said.err.contains(message), "{words:?}: {said:?}");
    }

    // Template and snapshot go, and the daemon is killed: the clones have what they began with.
    place.must(&["destroy", "-f", "tank/vms:disk.raw@v1"]);
    client.remove(&root, "disk.raw");
    assert_eq!(place.json(&["list", "-t", "snapshot"]).as_array().unwrap().len(), 0);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let vms = client.lookup(&root, "web 01").unwrap();
    assert!(client.lookup(&vms, "d7.raw").unwrap() == disks[0], "handles stay");
    assert!(read(&mut client, &disks[0]) == gold);
    assert!(client.read_bytes(&disks[1], 131_072, 65536).unwrap() == own);
    inspected(&place, &disk);
    // The export has closed its connection.
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(read(&mut client, &disks[0]) == gold);

    for at in 0..100 {
        client.remove(&vms, &format!("d{at}.raw"));
    }
    place.wait_for(|| counts(&place).0 < MIB as u64);
    let (used, refer) = counts(&place);
    assert!(refer < MIB as u64, "{used} and {refer} bytes are left");
    let history = place.must(&["pool", "history", "tank"]);
    assert!(history.contains("aquifer clone tank/vms:disk.raw@v1"), "{history}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

/// A template in a dataset of its own, and a disk that is cloned from it into another one.
#[test]
fn a_disk_is_cloned_into_another_dataset() {
    let Served { place, disk, daemon, mut client, root, file } = served();
    let gold = noise(1, MIB);
    client.write(&file, 0, &gold, true);
    place.must(&["snapshot", "tank/vms:disk.raw@v1"]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/web"]);
    place.must(&["clone", "tank/vms:disk.raw@v1", "tank/web:web07.raw"]);
    let mut web = Client::new(&place, "127.0.0.1");
    let there = web.mount("/tank/web");
    let clone = web.lookup(&there, "web07.raw").unwrap();
    assert!(web.read_bytes(&clone, 0, MIB as u32).unwrap() == gold);
    let own = noise(2, 65536);
    web.write(&clone, 131_072, &own, true);

    // The template goes, with its snapshot: the dataset keeps what the clone began with.
    place.must(&["destroy", "-f", "tank/vms:disk.raw@v1"]);
    client.remove(&root, "disk.raw");
    let said = place.ask(&["destroy", "-f", "-r", "tank/vms"]);
    let why = "is the origin of files cloned into tank/web";
    assert!(said.code != 0 && said.err.contains(why), "{said:?}");
    daemon.kill9();
    let _daemon = place.serve();
    inspected(&place, &disk);
    let mut web = Client::new(&place, "127.0.0.1");
    let there = web.mount("/tank/web");
    assert!(web.lookup(&there, "web07.raw").unwrap() == clone, "handles stay");
    let bytes = web.read_bytes(&clone, 0, MIB as u32).unwrap();
    assert!(bytes[..131_072] == gold[..131_072] && bytes[131_072..196_608] == own);
    assert!(bytes[196_608..] == gold[196_608..]);

    // With the clone the rest goes, and the dataset can.
    web.remove(&there, "web07.raw");
    let destroys = || place.ask(&["destroy", "-f", "-r", "tank/vms"]).code == 0;
    place.wait_for(destroys);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
