//! Missing disks, and the states of their pools.

use std::fs;

use crate::support::Place;

#[test]
fn a_pool_that_cannot_be_imported_stops_no_other_and_comes_back() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["pool", "create", "dozer", &b]);
    daemon.kill9();
    let away = place.path("away");
    fs::rename(&a, &away).unwrap();
    let _daemon = place.serve();
    assert_eq!(place.health("dozer"), "ONLINE");
    let reason = format!("none of its disks was found: {a}");
    // The line breaks depend on the length of the path.
    let status = place.must(&["pool", "status", "tank"]);
    let words: Vec<&str> = status.split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        format!(
            "pool: tank state: UNAVAIL status: {reason}. action: Attach what is missing: the \
             pool then comes by itself. To look for it at once, type `aquifer pool clear tank`. \
             `aquifer pool export tank` takes it off the list. see: \
             /usr/share/doc/aquifer/docs/runbook.md#a-pool-is-not-in-service"
        )
    );
    place.refuses(&["create", "tank/vms"], &format!("pool \"tank\" is not in service: {reason}"));
    place.refuses(
        &["pool", "wait", "tank"],
        "tank: is not in service; see `aquifer pool status tank`",
    );
    place.refuses(
        &["pool", "create", "tank", &place.image("c")],
        &format!(
            "a pool \"tank\" is on the list, and could not be imported ({reason}); `aquifer pool \
         export tank` takes it off"
        ),
    );
    fs::rename(&away, &a).unwrap();
    place.wait_for(|| place.health("tank") == "ONLINE");
    place.must(&["list", "tank"]);
    // One that was exported stays away.
    place.must(&["pool", "export", "tank"]);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!place.must(&["pool", "list"]).contains("tank"));
}

/// A pool that nobody waits for any more is still brought in by an order.
#[test]
fn a_pool_without_its_disks_is_imported_from_elsewhere() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    daemon.kill9();
    let away = place.text("away");
    fs::rename(&a, &away).unwrap();
    let _daemon = place.serve();
    assert_eq!(place.health("tank"), "UNAVAIL");
    place.must(&["pool", "import", "-d", &away, "tank"]);
    assert_eq!(place.health("tank"), "ONLINE");
}

#[test]
fn a_pool_that_is_given_up_leaves_the_list() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    daemon.kill9();
    fs::remove_file(&a).unwrap();
    let _daemon = place.serve();
    assert_eq!(place.health("tank"), "UNAVAIL");
    let said = place.ask(&["pool", "export", "tank"]);
    assert_eq!(
        (said.code, said.err.as_str()),
        (0, "note: tank: was not in service; it is only taken off the list\n")
    );
    assert!(place.must(&["pool", "list"]).starts_with("no pools"));
}

#[test]
fn a_mirror_runs_on_one_side_and_the_lost_one_does_not_vote() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["pool", "export", "tank"]);
    let away = place.path("away");
    fs::create_dir(&away).unwrap();
    fs::rename(&b, away.join("b")).unwrap();
    let said = place.ask(&["pool", "import", "-d", &a, "tank"]);
    let note = format!("note: {b}: missing, marked outdated\n");
    assert_eq!((said.code, said.err), (0, note));
    assert_eq!(place.states("tank"), ("DEGRADED".into(), vec!["ONLINE".into(), "MISSING".into()]));
    place.must(&["create", "tank/vms"]);
    daemon.kill9();

    // It is back, and old: the daemon comes up on the other one, and brings it up to date.
    fs::rename(away.join("b"), &b).unwrap();
    let daemon = place.serve();
    place.must(&["list", "tank/vms"]);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains(&format!("import: {b}: outdated, resilvered\n")), "{status}");
    let whole = ("ONLINE".to_string(), vec!["ONLINE".to_string(), "ONLINE".into()]);
    place.wait_for(|| place.states("tank") == whole);
    place.must(&["list", "tank/vms"]);

    // Both sides go with the pool.
    place.must(&["pool", "destroy", "-f", "tank"]);
    for disk in [&a, &b] {
        assert_eq!(place.ask(&["pool", "import", "-d", disk]).code, 1);
    }
    drop(daemon);
}

/// The start waits for a side that is a moment late, as after a cold start: it must not become
/// outdated.
#[test]
fn a_late_disk_is_waited_for() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    daemon.kill9();
    let away = place.path("away");
    fs::rename(&b, &away).unwrap();
    let daemon = place.spawn("state");
    place.wait_for(|| place.ask(&["pool", "list"]).out.contains("IMPORTING"));
    // As long as a controller takes to find its disks.
    std::thread::sleep(std::time::Duration::from_secs(5));
    fs::rename(&away, &b).unwrap();
    place.wait_for(|| !place.ask(&["pool", "list"]).out.contains("IMPORTING"));
    assert_eq!(place.states("tank"), ("ONLINE".into(), vec!["ONLINE".into(), "ONLINE".into()]));
    drop(daemon);
}

/// A start without a disk reports it, once: it must be brought up to date.
#[test]
fn a_disk_that_does_not_come_is_noted() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    daemon.kill9();
    fs::rename(&b, place.path("away")).unwrap();
    let begun = std::time::Instant::now();
    let daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "it is set to wait for a second");
    let missing = || {
        let events = place.json(&["events"]);
        let of = |event: &&serde_json::Value| event["class"] == "disk.missing";
        let missing: Vec<_> = events.as_array().unwrap().iter().filter(of).cloned().collect();
        missing
    };
    let [event] = &missing()[..] else { panic!("{}", place.log()) };
    assert_eq!((&event["level"], &event["fields"]["leaf"]), (&"warn".into(), &b.as_str().into()));
    daemon.kill9();
    // It is outdated now: the start neither waits for it nor reports it again.
    let _daemon = place.spawn_serving(&["--wait-for-disks", "3600"]);
    assert_eq!(place.states("tank").0, "DEGRADED");
    assert!(missing().is_empty(), "{:?}", missing());
}

/// A copy of a disk has the identity of the disk: only the administrator knows which is right.
#[test]
fn a_copied_disk_is_not_guessed_at() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["pool", "export", "tank"]);
    let copy = place.text("copy");
    fs::copy(&a, &copy).unwrap();
    place.refuses(
        &["pool", "import", "-d", &a, "-d", &copy, "tank"],
        &format!(
            "{a} and {copy} are copies of each other: only one can be in the pool; take the other \
         away, or name the right disks with -d"
        ),
    );
    place.must(&["pool", "import", "-d", &a, "tank"]);
}

#[test]
fn a_damaged_list_of_pools_is_not_overwritten() {
    let place = Place::new();
    fs::create_dir(place.path("state")).unwrap();
    fs::write(place.path("state/pools.json"), "{\"pools\": [").unwrap();
    let _daemon = place.serve();
    let said = place.ask(&["pool", "status", "-x"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.code == 3 && words.contains("is no list of pools"), "{said:?}");
    assert!(words.contains("`aquifer pool import`"), "{words}");
    assert_eq!(fs::read(place.path("state/pools.json")).unwrap(), b"{\"pools\": [");
    // Another list is made, and this one is kept aside.
    let a = place.image("a");
    place.must(&["pool", "create", "tank", &a]);
    assert_eq!(fs::read(place.path("state/pools.lost")).unwrap(), b"{\"pools\": [");
    place.wait_for(|| place.ask(&["pool", "status", "-x"]).code == 0);
}
