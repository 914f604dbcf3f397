//! A daemon without privileges: no root, no capability.

use std::os::unix::fs::chown;

use crate::support::{PATIENCE, Place};

const NOBODY: u32 = 65_534;

#[test]
fn on_image_files_and_high_ports_it_needs_no_root() {
    let place = Place::new();
    let image = place.image("a.img");
    for owned in [place.path(""), place.path("a.img"), place.path("log")] {
        if !owned.exists() {
            std::fs::write(&owned, "").unwrap();
        }
        chown(&owned, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Root opens the test's log; the daemon writes through its descriptor.
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
    ];
    let daemon = place.spawn_as("state", &[], &nobody, &[]);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    place.must(&["pool", "create", "tank", &image]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.wait_for(|| place.json(&["pool", "status", "tank"])["health"] == "ONLINE");
    assert!(!place.log().contains("Permission denied"), "{}", place.log());
    // Only the daemon's user can read its secrets.
    use std::os::unix::fs::MetadataExt;
    let mode = |name: &str| std::fs::metadata(place.path(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("run/aquifer.sock"), 0o600);
    assert_eq!(mode("state") & 0o022, 0);
    assert!(daemon.terminate(PATIENCE).unwrap().success(), "{}", place.log());
    // Root's does not serve what another user can exchange; it takes over what it is given.
    let daemon = place.serve();
    assert_eq!(place.health("tank"), "UNAVAIL");
    let refused = place.ask(&["pool", "import", "-d", &image, "tank"]);
    assert!(refused.err.contains("belongs to another user"), "{refused:?}");
    drop(daemon);
    for owned in [place.path(""), place.path("a.img")] {
        chown(&owned, Some(0), Some(0)).unwrap();
    }
    let daemon = place.serve();
    assert_eq!(place.health("tank"), "ONLINE");
    drop(daemon);
}
