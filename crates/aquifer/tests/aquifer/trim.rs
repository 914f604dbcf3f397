//! Free space that goes back to the disks: image files become smaller.

use std::os::unix::fs::MetadataExt;

use crate::bed::noise;
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 48 * MIB;

/// Bytes that an image takes where it lies.
fn taken(image: &str) -> u64 {
    std::fs::metadata(image).unwrap().blocks() * 512
}

/// Writes a file of noise.
fn fill(client: &mut Client, root: &[u8], name: &str, seed: u64) -> Vec<u8> {
    let file = client.create(root, name);
    for at in 0..FILE_BYTES / MIB {
        client.write(&file, at * MIB, &noise(seed + at, 1 << 20), false);
    }
    client.commit(&file);
    file
}

fn is_whole(client: &mut Client, file: &[u8], seed: u64) -> bool {
    let is_right = |at: u64| {
        client.content(file, at * MIB, 1 << 20).as_ref() == Ok(&noise(seed + at, 1 << 20))
    };
    (0..FILE_BYTES / MIB).all(is_right)
}

/// Lets so many txgs pass that what was freed may be reused.
fn release(place: &Place) {
    for word in ["off", "weekly", "off", "monthly", "off", "monthly"] {
        place.must(&["set", &format!("scrub={word}"), "tank"]);
    }
}

/// The row of a disk.
fn row<'a>(status: &'a str, disk: &str) -> &'a str {
    status.lines().find(|line| line.trim_start().starts_with(disk)).unwrap()
}

#[test]
fn a_trim_gives_back_what_is_free_and_nothing_else() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.sized_image(name, 512 * MIB));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let kept = fill(&mut client, &root, "kept", 1);
    fill(&mut client, &root, "gone", 1000);
    client.remove(&root, "gone");
    release(&place);
    let before = [taken(&a), taken(&b)];
    let none = place.ask(&["pool", "trim", "-c", "tank"]);
    assert!(none.code == 1 && none.err.contains("no trim goes on"), "{}", none.err);
    let foreign = place.ask(&["pool", "trim", "tank", "/dev/none"]);
    assert!(
        foreign.code == 1 && foreign.err.contains("no disk that holds data"),
        "{}",
        foreign.err
    );

    // One side, suspended on its way, and resumed.
    place.must(&["pool", "trim", "-r", "64M", "tank", &a]);
    let again = place.ask(&["pool", "trim", "tank"]);
    assert!(again.code == 1 && again.err.contains("goes on already"), "{}", again.err);
    place.must(&["pool", "trim", "-s", "tank", &a]);
    assert!(place.must(&["pool", "status", "tank"]).contains("trimmed, suspended, started on"));
    let said = place.must(&["pool", "trim", "-w", "tank", &a]);
    assert!(said.contains("trimmed on"), "{said}");
    assert!(taken(&a) + FILE_BYTES * 9 / 10 < before[0], "{} {before:?}", taken(&a));
    assert!(taken(&b) >= before[1], "the other side is left alone");

    // Killed in the midst of the other.
    place.must(&["pool", "trim", "-r", "64M", "tank", &b]);
    release(&place);
    daemon.kill9();
    let daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(is_whole(&mut client, &kept, 1));
    // What ended before the kill is known, what did not goes on.
    let told = place.must(&["pool", "status", "-t", "tank"]);
    assert!(row(&told, &a).contains("(trimmed on "), "{told}");
    assert!(!row(&told, &b).contains("(untrimmed)"), "{told}");
    place.wait_for(|| {
        row(&place.must(&["pool", "status", "-t", "tank"]), &b).contains("(trimmed on ")
    });
    assert!(taken(&b) + FILE_BYTES * 9 / 10 < before[1], "{} {before:?}", taken(&b));
    assert!(is_whole(&mut client, &kept, 1));
    let events = place.must(&["events"]);
    assert!(events.contains("disk.free_work_ended"), "{events}");
    assert!(place.must(&["pool", "history", "tank"]).contains("pool trim"));
    let trims = || {
        let status = place.json(&["pool", "status", "tank"]);
        [0, 1].map(|at| status["vdevs"][0]["leaves"][at]["trim"].clone())
    };
    let before = trims();
    assert!(before.iter().all(|trim| trim["state"] == "finished"), "{before:?}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "-d", &b, "tank"]);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);
    assert_eq!(trims(), before);
    drop(daemon);
}

#[test]
fn autotrim_gives_back_what_is_removed_and_initialize_takes_all() {
    let place = Place::new();
    let a = place.sized_image("a", 512 * MIB);
    let daemon = place.serve();
    place.must(&["pool", "create", "-o", "autotrim=on", "tank", &a]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let refused = place.ask(&["set", "autotrim=on", "tank/vms"]);
    assert!(refused.code == 1, "{}", refused.err);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let kept = fill(&mut client, &root, "kept", 1);
    fill(&mut client, &root, "gone", 1000);
    let before = taken(&a);
    client.remove(&root, "gone");
    release(&place);
    place.wait_for(|| taken(&a) + FILE_BYTES * 9 / 10 < before);
    assert!(is_whole(&mut client, &kept, 1));

    place.must(&["pool", "initialize", "-w", "tank"]);
    assert!(taken(&a) > 400 * MIB, "{}", taken(&a));
    assert!(place.must(&["pool", "status", "tank"]).contains("initialized on"));
    assert!(place.must(&["pool", "status", "-i", "tank"]).contains("initialized on"));
    place.must(&["pool", "initialize", "-u", "tank"]);
    assert!(place.must(&["pool", "status", "-i", "tank"]).contains("uninitialized"));
    assert!(!place.must(&["pool", "status", "tank"]).contains("initialized on"));
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert!(is_whole(&mut client, &kept, 1));
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "tank"]);
}

/// Work of a kind on the only disk of `tank`.
fn work_on_the_disk(place: &Place, kind: &str) -> serde_json::Value {
    place.json(&["pool", "status", "tank"])["vdevs"][0]["leaves"][0][kind].clone()
}

#[test]
fn trim_and_initialize_go_on_after_a_kill_as_they_stood() {
    let place = Place::new();
    let a = place.sized_image("a", 512 * MIB);
    let mut daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    let mut killed = |place: &Place| {
        daemon.kill9();
        daemon = place.serve();
    };
    for kind in ["trim", "initialize"] {
        let work = |place: &Place| work_on_the_disk(place, kind);
        let begin: &[&str] = match kind {
            "trim" => &["pool", "trim", "-r", "32M", "tank"],
            _ => &["pool", "initialize", "tank"],
        };
        // Suspended at once: it stands so after the kill, with what it has done.
        place.must(begin);
        place.must(&["pool", kind, "-s", "tank"]);
        let before = work(&place);
        assert_eq!(before["state"], "suspended", "{before}");
        killed(&place);
        let after = work(&place);
        for of in ["state", "begun_ns"] {
            assert_eq!(after[of], before[of], "{kind}: {before} {after}");
        }
        assert!(after["done_bytes"].as_u64() <= before["done_bytes"].as_u64(), "{after}");
        place.must(&["pool", kind, "-c", "tank"]);
        killed(&place);
        assert_eq!(work(&place)["state"], "canceled");

        // Under way: it goes on by itself to its end, and begins no second time after that.
        place.must(begin);
        let begun = work(&place)["begun_ns"].clone();
        killed(&place);
        let after = work(&place);
        assert_eq!(after["begun_ns"], begun, "{after}");
        if kind == "trim" {
            assert_eq!(after["state"], "running", "{after}");
            let again = place.ask(&["pool", "trim", "tank"]);
            assert!(again.code == 1 && again.err.contains("goes on already"), "{}", again.err);
            // At the rate that was asked for: a suspended one takes another.
            place.must(&["pool", "trim", "-s", "tank"]);
            place.must(&["pool", "trim", "tank"]);
        }
        place.wait_for(|| work(&place)["state"] == "finished");
        let ended = work(&place);
        // Its end is on disk with the next txg.
        release(&place);
        killed(&place);
        assert_eq!(work(&place), ended);
    }
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "tank"]);
}
