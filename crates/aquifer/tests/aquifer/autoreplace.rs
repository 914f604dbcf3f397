//! A new disk in the place of one that is gone replaces it by itself, if it is blank.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Daemon, Loop, Place};

/// A loop device at a port, as udev would tell.
fn plug(place: &Place, image: &str, port: &str) -> Option<Loop> {
    let device = Loop::new(image)?;
    let number = fs::metadata(Path::new(&device.0)).unwrap().rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::create_dir_all(place.path("udev")).unwrap();
    let data = place.path(&format!("udev/b{major}:{minor}"));
    fs::write(data, format!("E:ID_PATH={port}\n")).unwrap();
    Some(device)
}

fn serve(place: &Place) -> Daemon {
    let environment = [("AQUIFER_UDEV_DATA", place.text("udev"))];
    let daemon = place.spawn_as("state", &environment, &[], &["--wait-for-disks", "1"]);
    place.wait_for(|| {
        let said = place.ask(&["pool", "list", "--json"]);
        said.code == 0 && !said.out.contains("IMPORTING")
    });
    daemon
}

fn events(place: &Place, class: &str) -> usize {
    let events = place.json(&["events"]);
    events.as_array().unwrap().iter().filter(|event| event["class"] == class).count()
}

#[test]
fn a_blank_disk_in_the_place_of_one_that_is_gone_replaces_it() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.image(name));
    let Some(one) = plug(&place, &a, "pci-1") else { return };
    let Some(other) = plug(&place, &b, "pci-2") else { return };
    let daemon = serve(&place);
    place.must(&["pool", "create", "tank", "mirror", &one.0, &other.0]);
    let value = place.json(&["get", "autoreplace", "tank"]);
    assert!(value.to_string().contains("\"off\""), "{value}");
    place.must(&["set", "autoreplace=on", "tank"]);
    place.must(&["create", "tank/vms"]);
    let known = place.json(&["pool", "status", "tank"]);
    assert_eq!(known["vdevs"][0]["leaves"][1]["disk"]["port"], "pci-2");
    // A disk of another pool, which is not imported.
    place.must(&["pool", "create", "other", &c]);
    place.must(&["pool", "export", "other"]);
    daemon.kill9();

    drop(other);
    let foreign = plug(&place, &c, "pci-2").unwrap();
    let before = fs::read(&c).unwrap();
    let _daemon = serve(&place);
    place.wait_for(|| events(&place, "disk.not_replaced") == 1);
    assert_eq!(place.states("tank").1, ["ONLINE", "MISSING"]);
    assert!(fs::read(&c).unwrap() == before, "it was changed");
    drop(foreign);
    std::thread::sleep(std::time::Duration::from_secs(6));
    // At another port a blank one is none of ours.
    let elsewhere = plug(&place, &d, "pci-3").unwrap();
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(place.states("tank").1, ["ONLINE", "MISSING"]);
    drop(elsewhere);

    let new = plug(&place, &d, "pci-2").unwrap();
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "ONLINE"]);
    assert_eq!(events(&place, "disk.replacing"), 1);
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(status["vdevs"][0]["leaves"][1]["path"], new.0.as_str());
    let by_itself = format!(" is replaced by {} (autoreplace)\n", new.0);
    place.wait_for(|| place.must(&["pool", "history", "-i", "tank"]).contains(&by_itself));
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &one.0, "-d", &new.0, "tank"]);
}
