//! Spares take the place of disks that are away, and give it back.
//!
//! This waits for two real minutes. Tests begin by name: so it comes early.

use std::fs;
use std::time::{Duration, Instant};

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::Place;

/// Waits for longer than a disk is away before a spare stands in.
fn in_time(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(150), "{what}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// The states of the pool's spares, and for which disks they stand.
fn spares(place: &Place) -> Vec<(String, Option<String>)> {
    let status = place.json(&["pool", "status", "tank"]);
    let spares = status["spares"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
    spares
        .iter()
        .map(|spare| (text(&spare["state"]).unwrap(), text(&spare["stands_for"])))
        .collect()
}

#[test]
fn a_spare_takes_the_place_of_a_disk_that_is_away() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b, "spare", &c]);
    assert_eq!(spares(&place), [("AVAIL".into(), None)]);
    let mut client = Client::new(&place, "127.0.0.1");
    (0..200).for_each(|at| client.write(&file, at * 4096, &[(at % 250) as u8 + 1; 4096], true));

    // Bad input: a spare that is one already, a disk of the pool, too small to matter.
    let twice = place.ask(&["pool", "add", "tank", "spare", &c]);
    assert!(twice.code == 1 && twice.err.contains("tank"), "{}", twice.err);
    let mirror = place.ask(&["pool", "add", "tank", "spare", "mirror", &d, &b]);
    assert!(mirror.code == 2 && mirror.err.contains("come last"), "{}", mirror.err);
    // One comes and goes.
    place.must(&["pool", "add", "tank", "spare", &d]);
    assert_eq!(spares(&place).len(), 2);
    place.must(&["pool", "remove", "tank", &d]);
    assert_eq!(spares(&place).len(), 1);
    place.must(&["pool", "create", "dozer", &d]);
    place.must(&["pool", "destroy", "-f", "dozer"]);
    daemon.kill9();

    fs::rename(&b, place.path("away")).unwrap();
    let daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(spares(&place), [("AVAIL".into(), None)]);
    in_time("no spare", || spares(&place) == [("INUSE".into(), Some(b.clone()))]);
    (200..300).for_each(|at| client.write(&file, at * 4096, &[(at % 250) as u8 + 1; 4096], true));
    in_time("not whole", || place.states("tank").1 == ["ONLINE", "MISSING", "ONLINE"]);
    let told = place.must(&["pool", "status", "tank"]);
    assert!(told.contains(&format!("spare for {b}")), "{told}");
    let taken = format!("[by itself] spare {c} stands in for {b}\n");
    place.wait_for(|| place.must(&["pool", "history", "-i", "tank"]).contains(&taken));
    let used = place.ask(&["pool", "remove", "tank", &c]);
    assert!(used.code == 1 && used.err.contains("stands for another disk"), "{}", used.err);
    // By order it is a spare again, still the pool's, and stands in once more.
    place.must(&["pool", "detach", "tank", &c]);
    assert_eq!(spares(&place), [("AVAIL".into(), None)]);
    let ours = place.ask(&["pool", "create", "-f", "dozer", &c]);
    assert!(ours.code == 1 && ours.err.contains("in use by pool \"tank\""), "{}", ours.err);
    in_time("not again", || place.states("tank").1 == ["ONLINE", "MISSING", "ONLINE"]);
    // It goes on so after a kill, and does alone if it must.
    daemon.kill9();
    fs::rename(&a, place.path("a too")).unwrap();
    let daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    let mut client = Client::new(&place, "127.0.0.1");
    for at in 0..300 {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096), "page {at}");
    }
    fs::rename(place.path("a too"), &a).unwrap();
    place.must(&["pool", "online", "tank", &a]);
    fs::rename(place.path("away"), &b).unwrap();
    place.must(&["pool", "online", "tank", &b]);
    in_time("not given back", || spares(&place) == [("AVAIL".into(), None)]);
    in_time("not whole again", || place.states("tank").1 == ["ONLINE", "ONLINE"]);
    let history = || place.must(&["pool", "history", "-i", "tank"]);
    place.wait_for(|| history().contains(&format!("[by itself] {c} leaves its vdev")));
    // By those who stood in while the first was kept, too: the history lies in the pool.
    assert!(history().contains(&taken), "{}", history());
    daemon.kill9();

    // It is there over restarts, with labels that say so.
    let _daemon = place.serve();
    assert_eq!(spares(&place), [("AVAIL".into(), None)]);
    place.must(&["pool", "offline", "tank", &b]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "-d", &c, "tank"]);
    let (_, states) = place.states("tank");
    assert_eq!(states, ["ONLINE", "OFFLINE"], "a disk stays offline until it is asked back");
    place.must(&["pool", "online", "tank", &b]);
    place.must(&["pool", "wait", "tank"]);
    place.must(&["pool", "offline", "-t", "tank", &b]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "-d", &c, "tank"]);
    in_time("not back", || place.states("tank").1 == ["ONLINE", "ONLINE"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "-d", &b, "-d", &c, "tank"]);
}
