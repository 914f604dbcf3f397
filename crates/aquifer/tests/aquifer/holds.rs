//! Holds, by the administrator's commands.

use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Place};

#[test]
fn held_snapshots_stay_whatever_an_administrator_types() {
    let place = Place::new();
    let image = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "tank/vms"]);
    for name in ["a", "b", "c"] {
        place.must(&["snapshot", "-r", &format!("tank@{name}")]);
    }
    place.must(&["hold", "-r", "backup", "tank@b"]);
    daemon.kill9();
    let _daemon = place.serve();
    place.must(&["hold", "second copy", "tank/vms@b"]);
    let holds = place.must(&["-H", "holds", "-r", "tank"]);
    let lines: Vec<Vec<&str>> = holds.lines().map(|line| line.split('\t').collect()).collect();
    let told: Vec<[&str; 3]> = lines.iter().map(|line| [line[0], line[1], line[3]]).collect();
    let expected = [
        ["tank@b", "backup", "released"],
        ["tank/vms@b", "backup", "released"],
        ["tank/vms@b", "second copy", "released"],
    ];
    assert_eq!(told, expected);
    place.refuses(
        &["destroy", "-f", "tank/vms@a%c"],
        "snapshot \"tank/vms@b\" is held by \"backup\", \"second copy\"; nothing was destroyed; \
         `aquifer release TAG SNAPSHOT` ends a hold without a time",
    );
    for words in [&["destroy", "-rf", "tank@%"][..], &["destroy", "-rf", "tank/vms"]] {
        let said = place.ask(words);
        assert!(said.code == 1 && said.err.contains("is held by"), "{words:?}: {said:?}");
    }
    let listed = place.json(&["list", "-t", "snapshot", "-r", "tank"]);
    let counts: Vec<u64> =
        listed.as_array().unwrap().iter().map(|of| of["holds"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1, 0, 0, 2, 0], "all are there");
    for (words, why) in [
        (&["hold", "backup", "tank@b"][..], "there is one, and it ends no earlier"),
        (&["hold", "t", "tank@none"], "snapshot \"tank@none\" does not exist"),
        (&["hold", "t", "tank/vms"], "is a dataset, and no snapshot of a dataset"),
        (&["hold", "t", "tank@a,b"], "may hold letters"),
        (&["hold", "t", "tank@a%b"], "may hold letters"),
        (&["hold", "--until", "1970-01-02", "t", "tank@a"], "has passed"),
        (&["hold", "--until", "9999-01-01", "t", "tank@a"], "more than 10 years ahead"),
        (&["hold", "--until", "soon", "t", "tank@a"], "is no time"),
        (&["release", "none", "tank@b"], "there is none"),
        (&["release", "-r", "none", "tank@b"], "no snapshot of these names is held by"),
    ] {
        let said = place.ask(words);
        assert!(said.code != 0 && said.err.contains(why), "{words:?}: {said:?}");
    }
    place.must(&["release", "-r", "backup", "tank@b"]);
    place.must(&["rename", "tank/vms@b", "@kept"]);
    place.must(&["destroy", "-f", "tank@b"]);
    assert!(place.ask(&["destroy", "-f", "tank/vms@kept"]).err.contains("is held by"));
    place.must(&["release", "second copy", "tank/vms@kept"]);
    place.must(&["destroy", "-f", "tank/vms@kept"]);
    let history = place.must(&["pool", "history", "tank"]);
    for line in ["aquifer hold -r backup tank@b", "aquifer release \"second copy\" tank/vms@kept"] {
        assert!(history.contains(line), "{line}: {history}");
    }
    let events = place.must(&["events"]);
    for class in ["snapshot.held", "snapshot.released"] {
        assert!(events.contains(class), "{class}: {events}");
    }
}

#[test]
fn a_hold_with_an_end_is_released_by_time_alone() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["snapshot", "tank@a"]);
    place.must(&["hold", "--until", "5s", "audit", "tank@a"]);
    for words in [
        &["release", "audit", "tank@a"][..],
        &["hold", "--until", "1s", "audit", "tank@a"],
        &["hold", "audit", "tank@a"],
        &["destroy", "-f", "tank@a"],
        &["pool", "destroy", "-f", "tank"],
    ] {
        let said = place.ask(words);
        assert_eq!(said.code, 1, "{words:?}: {said:?}");
    }
    let begun = Instant::now();
    while place.ask(&["destroy", "-f", "tank@a"]).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", place.must(&["holds", "tank@a"]));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    place.must(&["pool", "destroy", "-f", "tank"]);
}

/// Checks that snapshots which a schedule, a command and a stream bring are held by themselves,
/// over a kill of the daemon.
#[test]
fn a_dataset_retains_what_it_takes_and_receives() {
    let place = Place::new();
    let image = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "-o", "retain=12h", "tank/vms"]);
    place.must(&["create", "tank/copies"]);
    let said = place.ask(&["set", "retain=30d", "tank/copies"]);
    assert!(said.code == 0 && said.err.contains("is held for 30d"), "{said:?}");
    place.refuses(
        &["set", "retain=forever", "tank/vms"],
        "property retain: \"forever\" is no span: say 30d, 12h or off",
    );
    place.refuses(
        &["set", "hold_max=29d", "tank"],
        "property hold_max: tank/copies has retain=30d, which is longer: lower that first",
    );
    place.must(&["set", "hold_max=30d", "tank"]);
    place.refuses(
        &["set", "retain=31d", "tank/vms"],
        "property retain: 31d is longer than the pool's hold_max allows, which is 30d",
    );
    place.must(&["snapshot", "tank/vms@a"]);
    place.must(&["replicate", "tank/vms", "tank/copies/vms"]);
    place.must(&["set", "snapshots=yearly=1", "tank/vms"]);
    daemon.kill9();
    let _daemon = place.serve();
    let holds = place.json(&["holds", "-r", "tank"]);
    let retained = holds.as_array().unwrap().iter().filter(|of| of["tag"] == "retain");
    let held: Vec<&str> = retained.map(|of| of["snapshot"].as_str().unwrap()).collect();
    let of = |dataset: &str| held.iter().filter(|name| name.starts_with(dataset)).count();
    // By hand, for the copy, and by schedule; the copy has the one that was sent.
    assert_eq!((of("tank/vms@"), of("tank/copies/vms@")), (3, 1), "{held:?}");
    place.must(&["set", "retain=off", "tank/vms"]);
    for name in &held {
        let said = place.ask(&["destroy", "-f", name]);
        assert!(said.code == 1 && said.err.contains("\"retain\" until"), "{name}: {said:?}");
    }
    let shown = place.must(&["-H", "get", "retain", "tank/copies/vms"]);
    assert_eq!(shown, "tank/copies/vms\tretain\t30d\tinherited from tank/copies\n");
}
