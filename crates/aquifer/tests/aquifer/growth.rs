//! Pools that get more room in service: vdevs that are added, disks that become larger.

use std::fs::OpenOptions;

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: u64 = 1 << 20;

/// Free bytes of the pool.
fn free_bytes(place: &Place) -> u64 {
    place.json(&["pool", "list", "tank"])[0]["free_bytes"].as_u64().unwrap()
}

fn grow(path: &str, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_pool_takes_more_vdevs_of_any_size_while_clients_write() {
    let place = Place::new();
    let [a, b, e] = ["a", "b", "e"].map(|name| place.sized_image(name, 256 * MIB));
    let [c, d] = ["c", "d"].map(|name| place.sized_image(name, 700 * MIB));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    let page = |at: u64| [(at % 251) as u8 + 1; 4096];
    let mut written = 0u64;
    let mut write = |client: &mut Client, times: u64| {
        for _ in 0..times {
            client.write(&file, written * 4096, &page(written), true);
            written += 1;
        }
    };
    write(&mut client, 200);
    let small = free_bytes(&place);
    let why = "mirrors and single disks would hold data beside each other";
    let refused = place.ask(&["pool", "add", "tank", &e]);
    assert!(refused.code == 1 && refused.err.contains(why), "{}", refused.err);
    let twice = place.ask(&["pool", "add", "tank", "mirror", &c, &c]);
    assert!(twice.code == 1 && twice.err.contains("twice"), "{}", twice.err);
    let ours = place.ask(&["pool", "add", "-f", "tank", &a]);
    assert!(ours.code == 1 && ours.err.contains("tank"), "{}", ours.err);
    let dry = place.must(&["pool", "add", "-n", "tank", "mirror", &c, &d]);
    assert!(dry.contains("would add") && dry.contains(&c), "{dry}");
    assert_eq!(place.states("tank").1.len(), 2);

    place.must(&["pool", "add", "tank", "mirror", &c, &d]);
    assert_eq!(place.states("tank"), ("ONLINE".into(), vec!["ONLINE".into(); 4]));
    assert!(free_bytes(&place) > small + 600 * MIB, "{} {small}", free_bytes(&place));
    write(&mut client, 2000);
    // A single disk beside them, which the pool is lost with.
    place.must(&["pool", "add", "-f", "tank", &e]);
    write(&mut client, 2000);
    daemon.kill9();

    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    for at in 0..written {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096), "page {at}");
    }
    client.write(&file, written * 4096, &page(written), true);
    place.must(&["pool", "export", "tank"]);
    let on = |disk: &String| ["-d".to_string(), disk.clone()];
    let disks: Vec<String> = [&a, &b, &c, &d, &e].into_iter().flat_map(on).collect();
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    place.must(&[&["inspect", "--deep"], &disks[..], &["tank"]].concat());
}

#[test]
fn a_vdev_grows_when_all_of_its_disks_have_grown() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.sized_image(name, 300 * MIB));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["create", "tank/vms"]);
    let before = free_bytes(&place);
    let none = place.ask(&["pool", "online", "-e", "tank", &a]);
    assert!(none.code == 0 && none.err.contains("has no more room"), "{}", none.err);
    grow(&a, 900 * MIB);
    place.must(&["pool", "online", "-e", "tank", &a]);
    assert!(free_bytes(&place) <= before, "one side is still small");
    grow(&b, 600 * MIB);
    let grown = place.ask(&["pool", "online", "-e", "tank", &b]);
    assert!(grown.code == 0 && grown.err.contains("has grown by 300M"), "{}", grown.err);
    let after = free_bytes(&place);
    assert!(after > before + 280 * MIB, "{before} {after}");
    daemon.kill9();

    // The labels lie elsewhere now, and the pool has its size.
    let daemon = place.serve();
    assert!(free_bytes(&place) > before + 280 * MIB);
    place.must(&["pool", "offline", "tank", &b]);
    let away = place.ask(&["pool", "online", "-e", "tank", &a]);
    assert!(away.code == 1 && away.err.contains("is not online"), "{}", away.err);
    place.must(&["pool", "online", "tank", &b]);
    place.must(&["pool", "wait", "tank"]);

    // By itself, as soon as the daemon looks.
    place.must(&["set", "autoexpand=on", "tank"]);
    let on_vms = place.ask(&["set", "autoexpand=on", "tank/vms"]);
    assert!(on_vms.code == 1, "{}", on_vms.err);
    grow(&b, 1200 * MIB);
    drop(daemon);
    let daemon = place.serve();
    place.wait_for(|| free_bytes(&place) > after + 280 * MIB);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "-d", &b, "tank"]);
    drop(daemon);
}
