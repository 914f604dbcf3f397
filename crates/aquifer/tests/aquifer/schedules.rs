//! Snapshots by schedule, as an administrator sets it.

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
