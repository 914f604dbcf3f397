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
        (&["hold", "t", "tank/vms"], "does not exist"),
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
