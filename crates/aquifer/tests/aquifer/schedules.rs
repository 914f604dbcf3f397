//! Snapshots by schedule, as an administrator sets it.

use std::time::{Duration, Instant};

use crate::bed::{Served, noise, served};
use crate::support::Place;

#[test]
fn a_schedule_takes_its_first_snapshots_at_once() {
    let place = Place::new();
    let image = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "tank/vms"]);
    place.must(&["create", "-o", "snapshots=off", "tank/scratch"]);
    for (value, why) in [
        ("snapshots=on", "say off, or how many of each stay"),
        ("snapshots=hourly=0", "\"hourly=0\" is not understood"),
        ("snapshots=hourly=1 hourly=2", "named twice"),
        ("next_snapshot=now", "cannot be set, only read"),
    ] {
        let said = place.ask(&["set", value, "tank"]);
        assert!(said.code == 1 && said.err.contains(why), "{value}: {said:?}");
    }
    place.must(&["set", "snapshots=daily=7, yearly=2", "tank"]);
    let value = place.must(&["-H", "get", "snapshots", "tank/vms"]);
    assert_eq!(value, "tank/vms\tsnapshots\tdaily=7 yearly=2\tinherited from tank\n");
    let next = place.must(&["-H", "get", "next_snapshot", "tank/vms"]);
    assert!(next.contains("T00:00:00Z daily\t-"), "{next}");
    let listed = place.json(&["list", "-t", "snapshot", "-r", "tank"]);
    let listed = listed.as_array().unwrap();
    let told: Vec<(&str, &str)> = listed
        .iter()
        .map(|of| (of["dataset"].as_str().unwrap(), of["schedule"].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [("tank", "daily"), ("tank", "yearly"), ("tank/vms", "daily"), ("tank/vms", "yearly")]
    );
    let name = listed[2]["name"].as_str().unwrap();
    assert!(name.starts_with("tank/vms@auto-daily-20") && name.ends_with('Z'), "{name}");
    let events = place.must(&["events"]);
    assert!(events.contains("snapshot.scheduled"), "{events}");
    daemon.kill9();
    let _daemon = place.serve();
    let again = place.json(&["list", "-t", "snapshot", "-r", "tank"]);
    assert_eq!(again.as_array().unwrap(), listed, "they are not taken twice");
}

/// The snapshots of files that there are: path and schedule, which the name has too.
fn of_files(place: &Place) -> Vec<(String, String)> {
    let listed = place.json(&["list", "-t", "snapshot", "tank/vms"]);
    let one = |of: &serde_json::Value| {
        let text = |key: &str| of[key].as_str().unwrap_or("-").to_string();
        let marked = format!("@auto-{}-20", text("schedule"));
        assert!(text("schedule") == "-" || text("name").contains(&marked), "{of}");
        (text("path"), text("schedule"))
    };
    let mut all: Vec<_> = listed.as_array().unwrap().iter().map(one).collect();
    all.sort();
    all
}

#[test]
fn files_follow_the_first_rule_that_means_them() {
    let Served { place, daemon, mut client, root, .. } = served();
    let (web, db) = (client.mkdir(&root, "web01"), client.mkdir(&root, "db 01"));
    let first = client.create(&web, "disk0.vhd");
    client.write(&first, 0, &noise(1, 65536), true);
    client.create(&db, "data.vhd");
    for (value, why) in [
        ("filesnapshots=on", "\"on\" does not say what stays"),
        ("filesnapshots=daily=7", "has no pattern"),
        ("filesnapshots=*/* daily=0", "\"daily=0\" is not understood"),
        ("filesnapshots=*/* minutely=5", "\"minutely=5\" is not understood"),
        ("filesnapshots=a;b/* daily=1", "A semicolon in a name is written \\0073"),
        ("filesnapshots=*/* daily=7;", "a rule is empty"),
        (&format!("filesnapshots={} daily=1", "x/".repeat(520)), "1024 are allowed"),
    ] {
        let said = place.ask(&["set", value, "tank/vms"]);
        assert!(said.code == 1 && said.err.contains(why), "{value}: {said:?}");
    }
    let rules = "filesnapshots=db 01/*  yearly=1,daily=2;*/*.vhd daily=7; iso/* daily=1";
    let said = place.ask(&["set", rules, "tank"]);
    assert!(said.code == 0 && said.err.contains("no file matches \"iso/*\" yet"), "{said:?}");
    assert!(!said.err.contains(".vhd"), "{said:?}");
    let value = place.must(&["-H", "get", "filesnapshots", "tank/vms"]);
    let shown = "db 01/* daily=2 yearly=1; */*.vhd daily=7; iso/* daily=1";
    assert_eq!(value, format!("tank/vms\tfilesnapshots\t{shown}\tinherited from tank\n"));
    let is = |of: &[(&str, &str)]| -> Vec<(String, String)> {
        of.iter().map(|(path, schedule)| (path.to_string(), schedule.to_string())).collect()
    };
    let (data, disk0) = ("db 01/data.vhd", "web01/disk0.vhd");
    let taken = [(data, "daily"), (data, "yearly"), (disk0, "daily")];
    assert_eq!(of_files(&place), is(&taken));
    let events = place.must(&["events"]);
    assert!(events.contains("snapshot.scheduled"), "{events}");
    // A new file has its first one with the next look, and the others are not taken twice.
    client.create(&web, "disk1.vhd");
    place.must(&["snapshot", "tank/vms:web01/*@auto-daily-mine"]);
    daemon.kill9();
    let _daemon = place.serve();
    let disk1 = "web01/disk1.vhd";
    let mut taken = taken.to_vec();
    taken.extend([(disk0, "-"), (disk1, "-"), (disk1, "daily")]);
    taken.sort_unstable();
    let begin = Instant::now();
    while of_files(&place) != is(&taken) {
        let there = of_files(&place);
        assert!(begin.elapsed() < Duration::from_secs(90), "{there:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.must(&["set", "filesnapshots=*/*.vhd daily=7", "tank/vms"]);
    assert_eq!(of_files(&place), is(&taken));
    // `off` prunes nothing; they go by their names.
    place.must(&["set", "filesnapshots=off", "tank/vms"]);
    assert_eq!(of_files(&place).len(), taken.len());
    place.must(&["destroy", "-f", "tank/vms:*/*@auto-*"]);
    assert!(of_files(&place).is_empty());
}
