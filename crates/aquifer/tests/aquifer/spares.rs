//! Spares that stand in, and what the administrator does with them.

use std::fs;

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::{Daemon, Place};

/// The pool's spares: path, state, and for which disk each stands.
pub fn spares(place: &Place) -> Vec<(String, String, Option<String>)> {
    let status = place.json(&["pool", "status", "tank"]);
    let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
    let spare = |spare: &serde_json::Value| {
        (text(&spare["path"]).unwrap(), text(&spare["state"]).unwrap(), text(&spare["stands_for"]))
    };
    status["spares"].as_array().unwrap().iter().map(spare).collect()
}

fn avail(path: &str) -> Vec<(String, String, Option<String>)> {
    vec![(path.into(), "AVAIL".into(), None)]
}

fn stands(path: &str, whom: &str) -> Vec<(String, String, Option<String>)> {
    vec![(path.into(), "INUSE".into(), Some(whom.into()))]
}

/// The disks of the mirror, by path and state.
fn sides(place: &Place) -> Vec<(String, String)> {
    let status = place.json(&["pool", "status", "tank"]);
    let leaves = status["vdevs"][0]["leaves"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    leaves.map(|leaf| (text(&leaf["path"]), text(&leaf["state"]))).collect()
}

fn with_states(paths: &[&str], states: &[&str]) -> Vec<(String, String)> {
    paths.iter().zip(states).map(|(path, state)| (path.to_string(), state.to_string())).collect()
}

/// A mirror of `a` and `b` of which `b` is gone, and `c` stands in by order. Pages are in a file.
struct StandsIn {
    place: Place,
    daemon: Option<Daemon>,
    file: Vec<u8>,
    paths: [String; 4],
}

impl StandsIn {
    fn new() -> StandsIn {
        let place = Place::new();
        let paths = ["a", "b", "c", "d"].map(|name| place.image(name));
        let [a, b, c, _] = &paths;
        let daemon = place.serve();
        let file = with_file(&place, "tank", &["mirror", a, b, "spare", c]);
        let mut client = Client::new(&place, "127.0.0.1");
        (0..100).for_each(|at| client.write(&file, at * 4096, &[at as u8 + 1; 4096], true));
        place.refuses(
            &["pool", "replace", "tank", b, c],
            &format!(
                "{b} is in use, and a spare stands only for a disk that is not: `pool offline` of \
                 {b} comes first; or `pool remove` the spare, and replace the disk by it"
            ),
        );
        daemon.kill9();
        fs::rename(b, place.path("away")).unwrap();
        let mut bed = StandsIn { place, daemon: None, file, paths: paths.clone() };
        bed.serve();
        bed.place.must(&["pool", "replace", "tank", b, c]);
        assert_eq!(spares(&bed.place), stands(c, b));
        bed.settles(&[a, b, c], &["ONLINE", "MISSING", "ONLINE"]);
        bed
    }

    fn serve(&mut self) {
        self.daemon = Some(self.place.spawn_serving(&["--wait-for-disks", "1"]));
    }

    #[track_caller]
    fn settles(&self, paths: &[&str], states: &[&str]) {
        let wanted = with_states(paths, states);
        self.place.wait_for(|| sides(&self.place) == wanted);
    }

    /// After a kill all is as it was, everything is there, and the labels agree.
    fn holds(mut self, paths: &[&str], wanted: &[(String, String, Option<String>)]) {
        self.daemon.take().unwrap().kill9();
        self.serve();
        self.place.wait_for(|| sides(&self.place) == with_states(paths, &["ONLINE"; 4]));
        assert_eq!(spares(&self.place), wanted);
        let mut client = Client::new(&self.place, "127.0.0.1");
        for at in 0..100 {
            assert_eq!(client.read(&self.file, at * 4096, 4096), Ok(4096), "page {at}");
        }
        self.place.must(&["pool", "export", "tank"]);
        let spares = wanted.iter().map(|(path, ..)| path.as_str());
        let disks = paths.iter().copied().chain(spares).flat_map(|path| ["-d", path]);
        let words: Vec<&str> = ["inspect", "--deep"].into_iter().chain(disks).collect();
        self.place.must(&[&words[..], &["tank"]].concat());
    }
}

#[test]
fn a_new_disk_for_the_failed_one_makes_the_spare_free_again() {
    let bed = StandsIn::new();
    let [a, b, c, d] = bed.paths.clone();
    bed.place.must(&["pool", "replace", "tank", &b, &d]);
    bed.settles(&[&a, &d], &["ONLINE", "ONLINE"]);
    assert_eq!(spares(&bed.place), avail(&c));
    bed.holds(&[&a, &d], &avail(&c));
}

#[test]
fn without_the_failed_disk_the_spare_stays_for_good() {
    let bed = StandsIn::new();
    let [a, b, c, d] = bed.paths.clone();
    bed.place.must(&["pool", "detach", "tank", &b]);
    bed.settles(&[&a, &c], &["ONLINE", "ONLINE"]);
    bed.place.wait_for(|| spares(&bed.place).is_empty());
    assert!(!bed.place.must(&["pool", "status", "tank"]).contains("spare"));
    // It is a disk like others, and is replaced as such.
    bed.place.must(&["pool", "replace", "-w", "tank", &c, &d]);
    bed.settles(&[&a, &d], &["ONLINE", "ONLINE"]);
    assert_eq!(spares(&bed.place), []);
    bed.place.must(&["pool", "create", "dozer", &c]);
    bed.place.must(&["pool", "destroy", "-f", "dozer"]);
    bed.holds(&[&a, &d], &[]);
}

#[test]
fn a_new_disk_for_the_spare_is_the_spare() {
    let bed = StandsIn::new();
    let [a, b, c, d] = bed.paths.clone();
    bed.place.must(&["pool", "replace", "tank", &c, &d]);
    bed.settles(&[&a, &b, &d], &["ONLINE", "MISSING", "ONLINE"]);
    assert_eq!(spares(&bed.place), stands(&d, &b));
    // The old one belongs to no pool any more.
    bed.place.must(&["pool", "create", "dozer", &c]);
    bed.place.must(&["pool", "destroy", "-f", "dozer"]);
    // And once more, with the spare itself gone: in its place.
    bed.place.must(&["pool", "offline", "tank", &d]);
    bed.place.must(&["pool", "replace", "tank", &d, &c]);
    bed.settles(&[&a, &b, &c], &["ONLINE", "MISSING", "ONLINE"]);
    assert_eq!(spares(&bed.place), stands(&c, &b));
    fs::rename(bed.place.path("away"), &b).unwrap();
    bed.place.must(&["pool", "online", "tank", &b]);
    bed.settles(&[&a, &b], &["ONLINE", "ONLINE"]);
    assert_eq!(spares(&bed.place), avail(&c));
    bed.holds(&[&a, &b], &avail(&c));
}

#[test]
fn wrong_acts_on_spares_say_what_to_do() {
    let bed = StandsIn::new();
    let place = &bed.place;
    let [a, b, c, d] = &bed.paths;
    place.refuses(
        &["pool", "replace", "tank", b, c],
        &format!("{c} stands beside {b} already: `pool detach` of {c} ends that"),
    );
    place.must(&["pool", "add", "tank", "spare", d]);
    place.refuses(
        &["pool", "replace", "tank", c, d],
        &format!(
            "{c} stands for another disk itself; `pool detach` of it, or of the other one, ends \
             that"
        ),
    );
    let waits = format!(
        "{d}: is a spare of pool \"tank\" that stands for no disk now; `aquifer pool remove tank \
         {d}` takes it out of the pool"
    );
    for act in ["detach", "offline", "online"] {
        place.refuses(&["pool", act, "tank", d], &waits);
    }
    let log = place.image("log");
    place.must(&["pool", "add", "tank", "log", &log]);
    place.refuses(
        &["pool", "replace", "tank", &log, d],
        &format!(
            "{log}: is a disk of the log, and spares stand only for disks that hold data; \
             `aquifer pool remove tank` the spare, and replace the disk by it"
        ),
    );
    place.must(&["pool", "remove", "tank", &log]);
    let new = place.image("new");
    place.refuses(&["pool", "replace", "tank", d, &new], &waits);
    place.refuses(&["pool", "attach", "tank", d, &new], &waits);
    // By order it is a spare again. The failed disk may also be one that was taken offline.
    place.must(&["pool", "detach", "tank", c]);
    place.must(&["pool", "remove", "tank", d]);
    assert_eq!(spares(place), avail(c));
    place.must(&["pool", "replace", "tank", b, c]);
    bed.settles(&[a, b, c], &["ONLINE", "MISSING", "ONLINE"]);
}

/// While one disk replaces another one, that is not replaced a second time.
#[test]
fn a_disk_is_replaced_once_at_a_time() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.image(name));
    let _daemon = place.serve();
    with_file(&place, "tank", &["mirror", &a, &b]);
    // The new one does not get far.
    place.must(&["inject", "tank", &a, "--delay-ms", "300"]);
    place.must(&["inject", "tank", &b, "--delay-ms", "300"]);
    place.must(&["pool", "replace", "tank", &b, &c]);
    place.refuses(
        &["pool", "replace", "tank", &b, &d],
        &format!(
            "{b} is being replaced by {c} already; wait until that is done, or end it with `pool \
             detach` of {c}"
        ),
    );
    place.must(&["pool", "detach", "tank", &c]);
    assert_eq!(sides(&place), with_states(&[&a, &b], &["ONLINE", "ONLINE"]));
}
