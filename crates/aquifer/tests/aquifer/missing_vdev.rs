//! A pool of two mirrors of which one is gone: files are rescued, and nothing changes.

use std::fs;

use crate::eyes::client::Client;
use crate::support::Place;

const FILES: u32 = 60;
const IO: u32 = 5;
const READ_ONLY: u32 = 30;

/// Reads all files: how many can be read, and how many give I/O errors.
fn read_all(client: &mut Client, root: &[u8]) -> (u32, u32) {
    let (mut read, mut lost) = (0, 0);
    for at in 0..FILES {
        let file = client.lookup(root, &format!("file{at}")).unwrap();
        match client.content(&file, 0, 65536) {
            Ok(content) => {
                assert!(content.iter().all(|byte| *byte == at as u8 + 1), "file{at}");
                read += 1;
            }
            Err(status) => {
                assert_eq!(status, IO, "file{at}");
                lost += 1;
            }
        }
    }
    (read, lost)
}

#[test]
fn a_pool_without_a_vdev_is_imported_read_only() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.image(name));
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b, "mirror", &c, &d]);
    place.must(&["create", "-o", "sharenfs=insecure", "-o", "compression=off", "tank/vms"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    for at in 0..FILES {
        let file = client.create(&root, &format!("file{at}"));
        client.write(&file, 0, &vec![at as u8 + 1; 65536], true);
    }
    place.must(&["snapshot", "tank/vms@before"]);
    place.must(&["pool", "export", "tank"]);

    let drawer = place.path("drawer");
    fs::create_dir_all(&drawer).unwrap();
    let away = |disk: &String| drawer.join(std::path::Path::new(disk).file_name().unwrap());
    [&c, &d].into_iter().for_each(|disk| fs::rename(disk, away(disk)).unwrap());
    let before = [&a, &b].map(|disk| fs::read(disk).unwrap());
    let dir = place.text(".");
    let refused = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert!(refused.code == 1 && refused.err.contains("--missing-vdev"), "{refused:?}");

    let said = place.ask(&["pool", "import", "--missing-vdev", "-d", &dir, "tank"]);
    let notes = format!("{}{}", said.out, said.err);
    assert!(said.code == 0 && notes.contains("read-only"), "{said:?}");
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "UNAVAIL", "{status}");
    assert_eq!(status["problems"][0]["code"], "pool-read-only", "{status}");
    let list = place.must(&["list", "-t", "all"]);
    assert!(list.contains("tank/vms@before"), "{list}");
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let (read, lost) = read_all(&mut client, &root);
    println!("{read} files can be read, {lost} are lost");
    assert!(read > 0 && lost > 0, "{read} can be read, {lost} are lost");
    assert_eq!(client.try_mkdir(&root, "new").err(), Some(READ_ONLY));
    for act in
        [&["create", "tank/new"][..], &["snapshot", "tank/vms@after"], &["pool", "scrub", "tank"]]
    {
        let refused = place.ask(act);
        assert!(refused.code != 0 && refused.err.contains("read-only"), "{act:?}: {refused:?}");
    }
    assert_ne!(place.ask(&["pool", "offline", "tank", &a]).code, 0);
    place.must(&["pool", "export", "tank"]);
    assert!([&a, &b].map(|disk| fs::read(disk).unwrap()) == before, "something was written");

    [&c, &d].into_iter().for_each(|disk| fs::rename(away(disk), disk).unwrap());
    place.must(&["pool", "import", "-d", &dir, "tank"]);
    assert_eq!(place.health("tank"), "ONLINE");
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    assert_eq!(read_all(&mut client, &root), (FILES, 0));
    client.mkdir(&root, "new");
}
