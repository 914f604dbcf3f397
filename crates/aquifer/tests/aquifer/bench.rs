//! `aquifer bench`: its figures, and that nothing stays.

use std::process::Stdio;
use std::time::Duration;

use crate::doctor::names;
use crate::support::{MIB, Place};

#[test]
fn each_program_gives_figures_and_nothing_stays() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.sized_image("a", 1024 * MIB)]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.must(&["create", "tank/hidden"]);
    for (like, runs) in [
        ("sqlio", 1),
        ("iometer", 1),
        ("crystaldiskmark", 8),
        ("fio-randwrite", 1),
        ("dd", 2),
        ("iperf", 1),
    ] {
        let words = ["bench", "--like", like, "--seconds", "1", "--size", "16", "tank/vms"];
        let figures = place.json(&words);
        let figures = figures.as_array().unwrap();
        assert_eq!(figures.len(), runs, "{like}");
        for one in figures {
            let number = |name: &str| one[name].as_u64().unwrap();
            assert!(number("ops") > 0 && number("bytes_per_s") > 0, "{like}: {one}");
            assert!(number("p50_ns") <= number("p99_ns"), "{like}: {one}");
            assert!(number("p99_ns") <= number("max_ns"), "{like}: {one}");
        }
        assert_eq!(names(&place, "/tank/vms"), [""; 0]);
    }
    let table =
        place.must(&["bench", "--like", "dd", "--seconds", "1", "--size", "16", "tank/vms"]);
    assert!(table.lines().count() == 3 && table.lines().all(|line| line.len() <= 80), "{table}");

    // What would take the room of others is refused before anything is written.
    let full = place.ask(&["bench", "--like", "dd", "--size", "4096", "tank/vms"]);
    assert!(full.code == 1 && full.err.contains("give a smaller --size"), "{full:?}");
    let hidden = place.ask(&["bench", "--like", "dd", "tank/hidden"]);
    assert!(hidden.code == 1 && hidden.err.contains("aquifer share"), "{hidden:?}");
    place.must(&["set", "sharenfs=rw=10.1.0.9", "tank/vms"]);
    let refused = place.ask(&["bench", "--like", "dd", "tank/vms"]);
    assert!(refused.code == 1 && refused.err.contains("does not let"), "{refused:?}");
}

/// Calls that took longer than the run are what somebody with a slow disk looks for.
#[test]
fn the_slowest_calls_count() {
    let place = Place::new();
    let _daemon = place.serve();
    let disk = place.sized_image("a", 1024 * MIB);
    place.must(&["pool", "create", "tank", &disk]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.must(&["inject", "--delay-ms=1500", "tank", &disk]);
    let words = ["bench", "--like", "sqlio", "--seconds", "1", "--size", "16", "tank/vms"];
    let figures = place.json(&words);
    let number = |name: &str| figures[0][name].as_u64().unwrap();
    assert!(number("ops") >= 8, "each call that was sent counts: {figures}");
    assert!(number("p50_ns") >= 1_000_000_000 && number("bytes_per_s") > 0, "{figures}");
}

#[test]
fn an_interrupted_bench_removes_its_file() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.sized_image("a", 1024 * MIB)]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let words = ["bench", "--like", "sqlio", "--seconds", "60", "--size", "16", "tank/vms"];
    let mut command = place.command(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for(|| names(&place, "/tank/vms").len() == 1);
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("interrupted"), "{said}");
    assert_eq!(names(&place, "/tank/vms"), [""; 0]);
}
