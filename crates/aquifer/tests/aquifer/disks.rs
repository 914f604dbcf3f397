//! Disks that hold data go away, come back, and are replaced, while clients write.

use std::fs;

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::Place;

/// States of the pool's disks, once none of them is being resilvered.
fn settled(place: &Place) -> (String, Vec<String>) {
    place.wait_for(|| {
        let (_, states) = place.states("tank");
        states.iter().all(|state| state == "ONLINE" || state == "MISSING")
    });
    place.states("tank")
}

fn all_online(count: usize) -> (String, Vec<String>) {
    ("ONLINE".into(), vec!["ONLINE".into(); count])
}

#[test]
fn sides_of_a_mirror_come_and_go_while_clients_write() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    let mut written = 0u64;
    let mut write = |times: u64| {
        for _ in 0..times {
            client.write(&file, written * 4096, &[written as u8 + 1; 4096], true);
            written += 1;
        }
    };
    write(20);
    place.must(&["pool", "offline", "tank", &b]);
    assert_eq!(place.health("tank"), "DEGRADED");
    write(20);
    place.refuses(
        &["pool", "offline", "tank", &a],
        &format!("{a} is the last disk that holds all data of its vdev"),
    );
    place.must(&["pool", "online", "tank", &b]);
    write(20);
    place.must(&["pool", "wait", "tank"]);
    assert_eq!(place.states("tank"), all_online(2));
    let status = place.must(&["pool", "status", "tank"]);
    assert!(
        status.contains("  scan: resilvered ") && status.contains(&format!(" on {b} in")),
        "{status}"
    );

    // A third side, and one of the first goes.
    place.must(&["pool", "attach", "tank", &a, &c]);
    write(20);
    assert_eq!(settled(&place), all_online(3));
    place.must(&["pool", "detach", "tank", &a]);
    write(20);
    assert_eq!(place.states("tank"), all_online(2));
    // It belongs to no pool any more.
    place.must(&["pool", "create", "dozer", &a]);
    place.must(&["pool", "destroy", "-f", "dozer"]);

    // One that holds everything is replaced, and leaves by itself.
    place.must(&["pool", "replace", "tank", &b, &a]);
    place.wait_for(|| place.states("tank") == all_online(2));
    assert!(!place.must(&["pool", "status", "tank"]).contains(&b));
    write(20);
    daemon.kill9();

    // What is left does alone.
    fs::rename(&a, place.path("away")).unwrap();
    let _daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    assert_eq!(settled(&place), ("DEGRADED".into(), vec!["ONLINE".into(), "MISSING".into()]));
    let said = place.ask(&["pool", "wait", "tank"]);
    assert!(said.code == 1 && said.err.contains("not every disk is up to date"), "{}", said.err);
    let mut client = Client::new(&place, "127.0.0.1");
    for at in 0..written {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096));
    }
    // The one that is gone is replaced.
    place.must(&["pool", "replace", "-f", "tank", &a, &b]);
    assert_eq!(settled(&place), all_online(2));
    let report = place.must(&["pool", "status", "tank"]);
    assert!(report.ends_with("errors: No known data errors\n"), "{report}");
}

#[test]
fn a_single_disk_becomes_a_mirror() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    place.refuses(
        &["pool", "detach", "tank", &a],
        &format!("{a} is the last disk that holds all data of its vdev"),
    );
    let small = place.sized_image("small", 64 << 20);
    let refused = place.ask(&["pool", "attach", "tank", &a, &small]);
    assert!(refused.code == 1 && refused.err.contains("too small"), "{}", refused.err);
    place.must(&["pool", "attach", "tank", &a, &b]);
    assert_eq!(settled(&place), all_online(2));
    place.must(&["pool", "detach", "tank", &a]);
    assert_eq!(place.states("tank"), all_online(1));
    daemon.kill9();
    let _daemon = place.serve();
    place.must(&["list", "tank/vms"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &b, "tank"]);
}

/// The daemon writes its list of disks after it has changed the pool: a kill in between leaves the
/// old list. The new disk is outdated then, and only the labels say where it is.
#[test]
fn a_new_disk_that_was_never_noted_is_found_again() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    let list = place.path("state/pools.json");
    let before = fs::read(&list).unwrap();
    place.must(&["pool", "attach", "tank", &a, &b]);
    let noted = fs::read(&list).unwrap();
    assert_ne!(noted, before);
    assert_eq!(settled(&place), all_online(2));
    // So that it is outdated, as if the kill had come before it had everything.
    place.must(&["pool", "offline", "-t", "tank", &b]);
    daemon.kill9();
    fs::write(&list, before).unwrap();
    let _daemon = place.serve();
    place.wait_for(|| place.states("tank") == all_online(2));
    assert_eq!(fs::read(&list).unwrap(), noted, "the list is mended");
}

#[test]
fn a_blank_disk_at_an_old_path_is_no_old_disk() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    daemon.kill9();
    fs::remove_file(&b).unwrap();
    let _daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    place.image("b");
    place.refuses(
        &["pool", "online", "tank", &b],
        &format!("{b}: no pool label on this disk; `pool replace` takes a new disk in its place"),
    );
    place.refuses(
        &["pool", "replace", "tank", &a, &a],
        &format!("{a}: is a disk of pool \"tank\" already; use another disk"),
    );
    place.refuses(
        &["pool", "replace", "tank", &a],
        &format!(
            "{a}: is in use, so no other disk is in its place; name the new disk, or type `aquifer \
             pool offline tank {a}`, put the new disk in its place, and try again"
        ),
    );
    place.must(&["pool", "replace", "-w", "tank", &b]);
    assert_eq!(place.states("tank"), all_online(2));
    // The same with one that was taken offline, by its guid. Until then the old one is there.
    place.must(&["pool", "offline", "tank", &b]);
    let status = place.json(&["pool", "status", "tank"]);
    let guid = status["vdevs"][0]["leaves"][1]["guid"].as_str().unwrap().to_string();
    place.refuses(
        &["pool", "replace", "tank", &guid],
        &format!("{b}: is a disk of pool \"tank\" already; use another disk"),
    );
    fs::remove_file(&b).unwrap();
    place.image("b");
    place.must(&["pool", "replace", "-w", "tank", &guid]);
    assert_eq!(place.states("tank"), all_online(2));
    let history = place.must(&["pool", "history", "tank"]);
    assert!(history.contains(&format!("pool replace tank {guid}\n")), "{history}");
}

#[test]
fn a_pool_of_too_many_disks_is_refused_before_any_is_looked_at() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    let many: Vec<String> = (0..128).map(|disk| place.text(&format!("none {disk}"))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let too_many =
        "a pool has at most 128 disks, spares and those of log and cache too: that would be 129";
    place.refuses(&[&["pool", "create", "tank"], &many[..], &["spare", &a]].concat(), too_many);
    place.must(&["pool", "create", "tank", &a]);
    place.refuses(&[&["pool", "add", "tank"], &many[..]].concat(), too_many);
}
