//! `pool status`: what is wrong, what to type, and the exit code that monitoring goes by.

use std::fs;

use serde_json::json;

use crate::support::{Daemon, Place};

/// The commands between backticks of a text, as words without the program.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.map(|command| command.split(' ').skip(1).collect()).collect()
}

/// How often a daemon has a file open.
fn open_files(daemon: &Daemon, path: &str) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.to_str() == Some(path)).count()
}

#[test]
fn monitoring_goes_by_the_exit_code() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let _daemon = place.serve();
    assert_eq!(place.must(&["pool", "status", "-x"]), "no pools\n");
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["pool", "create", "dozer", &c]);
    assert_eq!(place.must(&["pool", "status", "-x"]), "all pools are healthy\n");
    assert_eq!(place.must(&["pool", "status", "-x", "tank"]), "pool 'tank' is healthy\n");
    assert_eq!(place.json(&["pool", "status", "-x"]), json!([]));
    let healthy = place.json(&["pool", "status", "tank"]);
    assert_eq!((&healthy["status"], &healthy["action"]), (&json!(null), &json!(null)));
    assert!(place.must(&["pool", "status"]).ends_with("\n\nerrors: No known data errors\n"));

    place.must(&["pool", "offline", "tank", &b]);
    let sick = place.ask(&["pool", "status", "-x"]);
    assert_eq!((sick.code, sick.err.as_str()), (3, ""));
    assert!(sick.out.starts_with("  pool: tank\n state: DEGRADED\nstatus: "), "{}", sick.out);
    assert!(!sick.out.contains("dozer"), "{}", sick.out);
    assert_eq!(place.ask(&["pool", "status", "-x", "tank"]).code, 3);
    assert_eq!(place.must(&["pool", "status", "-x", "dozer"]), "pool 'dozer' is healthy\n");
    place.must(&["pool", "status"]);
    let unknown = place.ask(&["pool", "status", "-x", "nowhere"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    // Scripts get the same as people.
    let said = place.ask(&["pool", "status", "-x", "--json"]);
    assert_eq!(said.code, 3);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let [tank] = &told.as_array().unwrap()[..] else { panic!("{told}") };
    let status = format!("{b} was taken offline by the administrator; the pool runs on the other");
    assert!(tank["status"].as_str().unwrap().starts_with(&status), "{tank}");
    assert_eq!((&tank["name"], &tank["health"]), (&json!("tank"), &json!("DEGRADED")));
    assert_eq!(tank["vdevs"][0]["leaves"][1]["state"], "OFFLINE");
    // What it says to type helps.
    let action = tank["action"].as_str().unwrap();
    let [command] = &commands(action)[..] else { panic!("{action}") };
    place.must(command);
    place.must(&["pool", "wait", "tank"]);
    assert_eq!(place.must(&["pool", "status", "-x"]), "all pools are healthy\n");
}

#[test]
fn a_disk_in_use_is_not_brought_online() {
    let place = Place::new();
    let [a, b, l] = ["a", "b", "l"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b, "log", &l]);
    let before = open_files(&daemon, &b);
    for disk in [&a, &b, &l] {
        let message = format!("{disk}: is online already");
        place.refuses(&["pool", "online", "tank", disk], &message);
    }
    assert_eq!(open_files(&daemon, &b), before);
    let log = place.log();
    assert!(!log.contains("still held"), "{log}");
    assert_eq!(place.states("tank").0, "ONLINE");
}

#[test]
fn a_replaced_disk_is_let_go_once_it_has_left() {
    let place = Place::new();
    let [a, b, c, l, m] = ["a", "b", "c", "l", "m"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b, "log", &l]);
    assert!(open_files(&daemon, &b) > 0);
    place.must(&["pool", "replace", "tank", &b, &c]);
    // The next look at the status releases it.
    place.wait_for(|| place.states("tank").1.len() == 3 && open_files(&daemon, &b) == 0);
    assert!(open_files(&daemon, &c) > 0);
    let events = place.json(&["events"]);
    let mut left = events.as_array().unwrap().iter();
    let left = left.find(|event| event["class"] == "disk.replaced").unwrap();
    assert_eq!(left["fields"]["disk"], b.as_str());
    let list = fs::read_to_string(place.path("state/pools.json")).unwrap();
    assert!(list.contains(&c) && !list.contains(&format!("{b}\"")), "{list}");
    // One of the log leaves at once. Neither has labels any more.
    place.must(&["pool", "replace", "tank", &l, &m]);
    assert_eq!(open_files(&daemon, &l), 0);
    for disk in [&b, &l] {
        assert_eq!(place.ask(&["pool", "import", "-d", disk]).code, 1);
    }
    place.must(&["pool", "create", "dozer", "mirror", &b, &l]);
    let log = place.log();
    assert!(!log.contains("still held"), "{log}");
}
