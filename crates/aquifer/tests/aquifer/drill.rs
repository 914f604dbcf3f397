//! Drills: a disk is taken away while clients work, and comes back in any case.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

/// Bytes of a request.
const PIECE: usize = 16384;
/// Requests after which the load begins from the start of the file again.
const PIECES: u64 = 200;

/// Writes and reads all the time, and looks at what it reads, while `act` goes on.
fn under_load<T>(place: &Place, file: &[u8], act: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = Client::new(place, "127.0.0.1");
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed) {
                let content = noise(at + 1, PIECE);
                let offset = at % PIECES * PIECE as u64;
                client.write(file, offset, &content, true);
                assert_eq!(client.read_bytes(file, offset, PIECE as u32).unwrap(), content);
                at += 1;
            }
            at
        });
        let done = act();
        is_over.store(true, Ordering::Relaxed);
        assert!(load.join().unwrap() > 10, "the load did nothing");
        done
    })
}

fn drill(place: &Place) -> Value {
    place.json(&["pool", "status", "tank"])["drill"].clone()
}

/// Begins a drill in a process of its own, and waits until its disk is away, for three seconds.
fn begin(place: &Place, disk: &str) -> Child {
    let words = ["pool", "drill", "--yes", "--seconds", "3", "tank", disk];
    let mut command = place.command(&words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "OUTDATED"]);
    child
}

fn is_whole(place: &Place) -> bool {
    place.states("tank") == ("ONLINE".into(), vec!["ONLINE".into(), "ONLINE".into()])
}

#[test]
fn a_drill_measures_clients_and_gives_the_disk_back() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let words = ["pool", "drill", "-y", "--seconds", "2", "tank", &b];
    let told = under_load(&place, &file, || place.json(&words));
    assert_eq!((&told["state"], &told["disk"]), (&"done".into(), &b.as_str().into()), "{told}");
    let phases = told["phases"].as_array().unwrap();
    let steps: Vec<&str> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(steps, ["whole", "away", "resilver"]);
    for phase in &phases[..2] {
        let took = phase["took_ms"].as_u64().unwrap();
        assert!((2000..3500).contains(&took), "{phase}");
        let count = |what: &str| phase["clients"][what]["latency"]["count"].as_u64().unwrap();
        let bytes = |what: &str| phase["clients"][what]["bytes"].as_u64().unwrap();
        // One call after the other: they alternate.
        assert!(count("reads") > 5 && count("reads").abs_diff(count("writes")) <= 1, "{phase}");
        assert_eq!(bytes("writes"), count("writes") * PIECE as u64);
        assert_eq!(phase["clients"]["errors"], 0);
    }
    assert!(told["back_ms"].as_u64().unwrap() > 0);
    assert!(told["resilvered_bytes"].as_u64().unwrap() >= PIECE as u64, "{told}");
    assert!(is_whole(&place));
    let status = place.must(&["pool", "status", "tank"]);
    assert!(!status.contains("drill"), "it is over, and nothing is left of it: {status}");
    assert_eq!(place.ask(&["pool", "status", "-x"]).code, 0);
    let events = place.json(&["events"]);
    let events = events.as_array().unwrap().iter();
    let classes = events.map(|event| event["class"].as_str().unwrap().to_string());
    let classes: Vec<String> = classes.filter(|class| class.starts_with("drill.")).collect();
    assert_eq!(classes, ["drill.begun", "drill.away", "drill.ended"]);
    assert!(place.must(&["pool", "history", "tank"]).contains("pool drill --seconds 2 tank"));

    // For people, without a terminal: a table on stdout, a line for each phase on stderr.
    let said = place.ask(&["pool", "drill", "-y", "--seconds", "1", "tank", &a]);
    assert_eq!(said.code, 0, "{said:?}");
    let firsts = said.out.lines().filter_map(|line| line.split_whitespace().next());
    let firsts: Vec<&str> = firsts.collect();
    assert_eq!(firsts, ["PHASE", "whole", "degraded", "resilver", &a], "{}", said.out);
    assert!(said.err.contains(&format!("drill of {a}: the disk is away: ")), "{}", said.err);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "-d", &b, "tank"]);
}

#[test]
fn a_drill_is_refused_where_redundancy_does_not_bear_it() {
    let place = Place::new();
    let [a, b, c, d, e, f] = ["a", "b", "c", "d", "e", "f"].map(|name| place.image(name));
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b, "log", &c, "spare", &d]);
    place.must(&["pool", "create", "dozer", &e]);
    let drill = |pool: &str, disk: &str| {
        let said = place.ask(&["pool", "drill", "-y", "--seconds", "1", pool, disk]);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        said.err
    };
    assert!(drill("tank", &e).contains("is no disk of pool \"tank\""));
    assert!(drill("tank", "mirror-0").contains("is a mirror; name one of its disks"));
    assert!(drill("tank", &d).contains("is a spare"));
    assert!(drill("tank", &c).contains("is a disk of the log"));
    assert!(drill("dozer", &e).contains("is the only disk with its data"));
    let none = place.ask(&["pool", "drill", "--stop", "tank"]);
    assert!(none.code == 1 && none.err.contains("no drill goes on"), "{none:?}");
    // It asks, and there is nobody to answer.
    let asks = place.ask_with_input(&["pool", "drill", "tank", &b], "yes\n");
    assert!(asks.code == 2 && asks.err.contains("--yes"), "{asks:?}");
    for seconds in ["0", "3601"] {
        assert_eq!(place.ask(&["pool", "drill", "-y", "--seconds", seconds, "tank", &b]).code, 2);
    }
    // Degraded, and while it is resilvered.
    place.must(&["pool", "offline", "tank", &a]);
    assert!(drill("tank", &b).contains(&format!("{a} is not in use")));
    assert!(drill("tank", &a).contains(&format!("{a} is not in use")));
    place.must(&["pool", "online", "--wait", "tank", &a]);
    place.must(&["pool", "attach", "--wait", "dozer", &e, &f]);
    // One at a time; and another act may take the disk's place in the meantime.
    let child = place.command(&["pool", "drill", "-y", "--seconds", "600", "tank", &b]);
    let mut child = { child }.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    place.wait_for(|| self::drill(&place)["state"] == "running");
    assert!(drill("tank", &a).contains(&format!("a drill goes on, with {b}")));
    place.must(&["pool", "drill", "--stop", "tank"]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(self::drill(&place)["state"], "stopped");
}

#[test]
fn the_disk_comes_back_whatever_ends_the_drill() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    let mut write = |seed| client.write(&file, seed * 65536, &noise(seed, 65536), true);

    // The command is killed: the daemon goes on alone.
    let mut child = begin(&place, &b);
    drop(child.kill());
    drop(child.wait());
    write(1);
    place.wait_for(|| drill(&place)["state"] == "done");
    assert!(is_whole(&place));

    // ^C.
    let child = begin(&place, &b);
    write(2);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains(&format!("A drill has taken {b} away")), "{status}");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && told.contains("ended early"), "{told}");
    place.wait_for(|| is_whole(&place));

    // The daemon is killed.
    let child = begin(&place, &b);
    write(3);
    daemon.kill9();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let daemon = place.serve();
    place.wait_for(|| is_whole(&place));
    assert_eq!(drill(&place), Value::Null);

    // The pool is exported.
    let child = begin(&place, &b);
    place.must(&["pool", "export", "tank"]);
    drop(child.wait_with_output());
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);
    place.wait_for(|| is_whole(&place));
    // The administrator takes it offline meanwhile: his word counts.
    let child = begin(&place, &b);
    place.must(&["pool", "offline", "tank", &b]);
    place.must(&["pool", "drill", "--stop", "tank"]);
    drop(child.wait_with_output());
    assert_eq!(place.states("tank").1, ["ONLINE", "OFFLINE"]);
    place.must(&["pool", "online", "-w", "tank", &b]);
    drop(daemon);
}
