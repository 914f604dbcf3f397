//! `aquifer events`, compared with faults of the disks and requests to the daemon.

use std::fs;
use std::io::{BufRead, BufReader};

use serde_json::Value;

use super::client::Client;
use super::{number, served};
use crate::support::{PATIENCE, Place};

fn of_class<'a>(events: &'a Value, class: &str) -> Vec<&'a Value> {
    events.as_array().unwrap().iter().filter(|event| event["class"] == class).collect()
}

/// The places of a page of this content in an image: aligned, and more than once if it is in the
/// log.
fn places_of(image: &str, page: &[u8]) -> Vec<u64> {
    let bytes = fs::read(image).unwrap();
    let pages = bytes.chunks(4096).enumerate().filter(|(_, found)| *found == page);
    pages.map(|(index, _)| index as u64 * 4096).collect()
}

#[test]
fn rot_is_told_when_it_is_met_and_when_it_is_mended() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = served(&place, &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    let page: Vec<u8> = (0..4096u32).map(|at| (at * 7 % 251) as u8).collect();
    for at in 0..64 {
        client.write(&file, at * 4096, &page, true);
    }
    drop(client);
    place.must(&["pool", "export", "tank"]);
    drop(daemon);
    for (name, image) in [("a", &a), ("b", &b)] {
        let places = places_of(image, &page);
        assert!(places.len() >= 64, "{}", places.len());
        // Half of them on each side, so that each has what the other lacks.
        for at in places.into_iter().filter(|at| (at / 4096 % 2 == 0) == (name == "a")) {
            place.write(name, at, &[0xee; 4096]);
        }
    }
    let _daemon = place.serve();
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);
    let mut client = Client::new(&place, "127.0.0.1");
    for at in 0..64 {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096));
    }
    // Repairs follow after the answer.
    let all_mended = || {
        let status = place.json(&["pool", "status", "tank"]);
        let mut leaves = status["vdevs"][0]["leaves"].as_array().unwrap().iter();
        leaves.all(|leaf| leaf["checksum_errors"] == leaf["repaired"])
    };
    place.wait_for(all_mended);
    let events = place.json(&["events"]);
    let status = place.json(&["pool", "status", "tank"]);
    let leaves = status["vdevs"][0]["leaves"].as_array().unwrap();
    let mut met = 0;
    for leaf in leaves {
        let of_leaf = |class: &str| {
            let found = of_class(&events, class).into_iter();
            found.filter(|event| event["fields"]["leaf"] == leaf["path"]).count() as u64
        };
        // A line of each disk in a minute: the counters have all.
        for class in ["disk.checksum", "disk.repaired"] {
            let (told, counted) = (of_leaf(class), number(&leaf["checksum_errors"]));
            assert!((told > 0) == (counted > 0) && told < 8, "{class}: {events}");
        }
        assert_eq!(number(&leaf["checksum_errors"]), number(&leaf["repaired"]));
        met += number(&leaf["repaired"]);
    }
    assert!(met > 10, "each side was read for something: {events}");
    let imported = of_class(&events, "pool.imported");
    assert_eq!(imported.len(), 1);
    assert_eq!(imported[0]["fields"]["pool"], "tank");
    let found = number(&of_class(&events, "disk.checksum")[0]["sequence"]);
    assert!(found > number(&imported[0]["sequence"]));
    // For people, a line each.
    let text = place.must(&["events"]);
    assert_eq!(text.lines().count(), 1 + events.as_array().unwrap().len());
    assert!(text.contains("disk.repaired"), "{text}");
    // The log says it too.
    assert!(place.log().contains("bad copy rewritten from a good one"));
}

#[test]
fn acts_and_clients_are_told_as_they_come() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = served(&place, &[&a]);
    let mut follower = place.start(&["events", "-f", "--json"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = |class: &str| loop {
        let line = lines.next().expect("it goes on").unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["class"] == class {
            return event;
        }
    };
    // Earlier events come first.
    assert_eq!(next("daemon.started")["fields"]["pid"], daemon.pid().to_string());
    assert_eq!(next("pool.created")["fields"]["pool"], "tank");
    assert_eq!(next("dataset.created")["fields"]["dataset"], "tank/vms");
    assert_eq!(next("exports.changed")["fields"]["set"], "/tank/vms");
    let mut client = Client::new(&place, "127.0.0.1");
    next("client.connected");
    client.mount("/tank/vms");
    let mounted = next("client.mounted");
    assert_eq!(mounted["fields"]["client"], "127.0.0.1");
    assert_eq!(mounted["fields"]["export"], "/tank/vms");
    drop(client);
    next("client.disconnected");
    place.must(&["set", "sharenfs=rw=10.0.0.0/8", "tank/vms"]);
    let set = next("dataset.set");
    assert_eq!(set["fields"]["property"], "sharenfs");
    assert_eq!(next("exports.changed")["fields"]["set"], "/tank/vms");
    let refused = std::panic::catch_unwind(|| Client::new(&place, "127.0.0.1").mount("/tank/vms"));
    assert!(refused.is_err());
    assert_eq!(next("client.refused")["level"], "warn");
    place.must(&["set", "sharenfs=off", "tank/vms"]);
    assert_eq!(next("exports.changed")["fields"]["removed"], "/tank/vms");
    place.must(&["destroy", "-f", "tank/vms"]);
    assert_eq!(next("dataset.destroyed")["fields"]["dataset"], "tank/vms");
    place.must(&["pool", "export", "tank"]);
    assert_eq!(next("pool.exported")["fields"]["clean"], "true");
    // A waiting reader does not delay the end of the daemon, and ends with it.
    let begun = std::time::Instant::now();
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
