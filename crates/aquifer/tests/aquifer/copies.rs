//! Disks that are put back from copies, and disks with two pasts: the program believes neither.

use std::fs;
use std::path::PathBuf;

use crate::eyes::client::Client;
use crate::support::{Daemon, Place};

/// A mirror with these words behind it, with a dataset that is served.
fn mirror(place: &Place, words: &[&str]) -> (Daemon, [String; 2]) {
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    let create = ["pool", "create", "tank", "mirror", &a, &b];
    place.must(&create.iter().chain(words).copied().collect::<Vec<_>>());
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    (daemon, [a, b])
}

/// A place that no scan of the directory looks into.
fn drawer(place: &Place, name: &str) -> PathBuf {
    fs::create_dir_all(place.path("drawer")).unwrap();
    place.path("drawer").join(name)
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The log device comes back from a copy that was made before the last import.
#[test]
fn an_older_copy_of_the_log_device_is_not_taken_for_the_log() {
    let place = Place::new();
    let log = place.image("log-disk");
    let (daemon, _) = mirror(&place, &["log", &log]);
    let dir = place.text(".");
    place.must(&["pool", "export", "tank"]);
    let copy = drawer(&place, "copy");
    fs::copy(&log, &copy).unwrap();
    place.must(&["pool", "import", "-d", &dir, "tank"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let files: Vec<_> = (0..40_u8)
        .map(|at| {
            let file = client.create(&root, &format!("file{at}"));
            client.write(&file, 0, &[at + 1; 4096], true);
            file
        })
        .collect();
    daemon.kill9();
    let away = drawer(&place, "log");
    fs::rename(&log, &away).unwrap();
    fs::rename(&copy, &log).unwrap();

    let _daemon = place.serve();
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "UNAVAIL", "{status}");
    let reason = status["reason"].as_str().unwrap();
    for said in [&format!("{log} (an older copy: it holds txg"), "--missing-log", "s later"] {
        assert!(reason.contains(said), "{reason}");
    }
    let found = flat(&place.must(&["pool", "import", "-d", &dir]));
    assert!(found.contains("OUTDATED"), "{found}");
    let said = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert!(said.code == 1 && said.err.contains("an older copy"), "{said:?}");

    fs::rename(&away, &log).unwrap();
    place.must(&["pool", "import", "-d", &dir, "tank"]);
    let mut client = Client::new(&place, "127.0.0.1");
    for file in &files {
        assert_eq!(client.read(file, 0, 4096), Ok(4096));
    }
}

/// A side comes back from a copy: it is resilvered, and meanwhile the other is the last one.
#[test]
fn an_older_copy_of_a_side_is_resilvered() {
    let place = Place::new();
    let (daemon, [a, _]) = mirror(&place, &[]);
    let dir = place.text(".");
    place.must(&["pool", "export", "tank"]);
    let copy = drawer(&place, "a");
    fs::copy(&a, &copy).unwrap();
    place.must(&["pool", "import", "-d", &dir, "tank"]);
    place.must(&["create", "tank/later"]);
    place.must(&["set", "compression=off", "tank/later"]);
    daemon.kill9();
    fs::remove_file(&a).unwrap();
    fs::rename(&copy, &a).unwrap();
    let _daemon = place.serve();
    assert!(place.log().contains("an older copy: it holds txg"), "{}", place.log());
    // On a busy machine the disk may be late once, and is tried again.
    place.wait_for(|| place.ask(&["pool", "wait", "tank"]).code == 0);
    place.wait_for(|| place.health("tank") == "ONLINE");
    place.must(&["get", "compression", "tank/later"]);
}

/// `pool online` drops nothing that only the disk has, unless it is forced.
#[test]
fn a_disk_with_a_past_of_its_own_comes_back_by_force_only() {
    let place = Place::new();
    let (_daemon, [a, b]) = mirror(&place, &[]);
    let dir = place.text(".");
    place.must(&["pool", "offline", "tank", &a]);
    place.must(&["create", "tank/on-b"]);
    place.must(&["pool", "export", "tank"]);
    let away = drawer(&place, "b");
    fs::rename(&b, &away).unwrap();

    // The disk says itself that it was taken offline.
    let said = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert_eq!(said.code, 1, "{said:?}");
    for words in ["was taken offline by order", "--use-offline", &a] {
        assert!(said.err.contains(words), "{said:?}");
    }
    let said = place.ask(&["pool", "import", "--use-offline", "-d", &dir, "tank"]);
    assert_eq!(said.code, 0, "{said:?}");
    place.must(&["create", "tank/on-a"]);
    fs::rename(&away, &b).unwrap();

    let said = place.ask(&["pool", "online", "tank", &b]);
    assert_eq!(said.code, 1, "{said:?}");
    for words in ["was in use apart from this pool", "they parted at txg", "`pool online -f`"] {
        assert!(said.err.contains(words), "{said:?}");
    }
    let status = flat(&place.must(&["pool", "status", "tank"]));
    for way in [format!("`aquifer pool online -f tank {b}`"), format!("import -d {b} tank`")] {
        assert!(status.contains(&way), "{status}");
    }
    place.must(&["pool", "online", "-f", "-w", "tank", &b]);
    assert_eq!(place.health("tank"), "ONLINE");
    let status = flat(&place.must(&["pool", "status", "tank"]));
    assert!(!status.contains("online -f"), "{status}");
    let datasets = place.must(&["list"]);
    assert!(datasets.contains("tank/on-a") && !datasets.contains("tank/on-b"), "{datasets}");
}

/// Disks with two pasts are called by their paths.
#[test]
fn two_pasts_are_called_by_their_paths() {
    let place = Place::new();
    let (_daemon, [a, b]) = mirror(&place, &[]);
    let dir = place.text(".");
    place.must(&["pool", "export", "tank"]);
    let away = drawer(&place, "disk");
    for (at, (alone, other)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
        fs::rename(other, &away).unwrap();
        place.must(&["pool", "import", "-d", &dir, "tank"]);
        place.must(&["create", &format!("tank/past{at}{}", alone.len())]);
        place.must(&["pool", "export", "tank"]);
        fs::rename(&away, other).unwrap();
    }
    let said = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert_eq!(said.code, 1, "{said:?}");
    for words in ["were in use apart from each other", &format!("{a} (txg"), &format!("{b} (txg")] {
        assert!(said.err.contains(words), "{said:?}");
    }
}
