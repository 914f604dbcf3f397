//! Clones: the daemon, the command line, and NFS.

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: usize = 1 << 20;

#[test]
fn a_clone_is_mounted_and_written_while_its_origin_lives_on() {
    let place = Place::new();
    let disk = place.image("a");
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
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
