//! A pool that two hosts reach: two daemons, each with a state directory of its own.

use crate::support::Place;

#[test]
fn another_host_needs_force_for_a_minute() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    daemon.kill9();
    // The host that used it comes back at once.
    let daemon = place.serve();
    assert_eq!(place.health("tank"), "ONLINE");
    daemon.kill9();
    let daemon = place.spawn("other");
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    let refused = place.ask(&["pool", "import", "-d", &a, "tank"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    for part in ["cannot be imported: host", "did not export it", "import -f"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    place.must(&["pool", "import", "-f", "-d", &a, "tank"]);
    place.must(&["pool", "export", "tank"]);
    drop(daemon);
    // Any host may take an exported pool; and `inspect` names its last host.
    let inspected = place.must(&["inspect", &a]);
    let id = std::fs::read_to_string(place.path("other/host_id")).unwrap();
    assert!(inspected.contains(&format!("(id {})", id.trim_end())), "{inspected}");
    let _daemon = place.spawn("third");
    place.wait_for(|| place.ask(&["pool", "import", "-d", &a, "tank"]).code == 0);
}
