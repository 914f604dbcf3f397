//! Identity and health of disks: `pool status -v`, by `smartctl` where it is installed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Daemon, Loop, Place};

/// Returns what `smartctl` prints of a disk.
fn health(passed: bool) -> String {
    json!({
        "smartctl": {"exit_status": 0},
        "smart_status": {"passed": passed},
        "temperature": {"current": 34},
        "power_on_time": {"hours": 21034},
        "ata_smart_attributes": {"table": [{"id": 197, "raw": {"value": 3}}]},
    })
    .to_string()
}

/// A `smartctl` that runs this script.
fn install(place: &Place, script: &str) {
    let (path, new) = (place.path("bin/smartctl"), place.path("bin/new"));
    fs::create_dir_all(place.path("bin")).unwrap();
    fs::write(&new, format!("#!/bin/sh\necho \"$@\" >> {}\n{script}\n", place.text("asked")))
        .unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, path).unwrap();
}

fn serve(place: &Place) -> Daemon {
    let path = format!("{}:{}", place.text("bin"), std::env::var("PATH").unwrap());
    let daemon = place.spawn_with("state", &[("PATH", path)]);
    place.wait_for(|| {
        let said = place.ask(&["pool", "list", "--json"]);
        said.code == 0 && !said.out.contains("IMPORTING")
    });
    daemon
}

/// The first disk of the pool, as JSON.
fn disk(place: &Place) -> Value {
    place.json(&["pool", "status", "tank"])["vdevs"][0]["leaves"][0].clone()
}

fn smart(place: &Place) -> Value {
    disk(place)["disk"]["smart"].clone()
}

fn metrics(place: &Place) -> String {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: aquifer\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// Whether a loop device has an image: another test may take the one that was let go.
fn is_attached(device: &str) -> bool {
    let name = device.trim_start_matches("/dev/");
    std::path::Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

/// A daemon with a pool on a loop device, which this `smartctl` is asked about.
fn on_a_loop_device(place: &Place, script: &str) -> Option<(Daemon, Loop)> {
    let image = place.image("a");
    let device = Loop::new(&image)?;
    install(place, script);
    let daemon = serve(place);
    place.must(&["pool", "create", "tank", &device.0]);
    Some((daemon, device))
}

#[test]
fn a_disk_is_shown_with_what_it_is_and_how_it_feels() {
    let place = Place::new();
    let script = format!("echo '{}'", health(true));
    let Some((_daemon, device)) = on_a_loop_device(&place, &script) else { return };
    let info = disk(&place)["disk"].clone();
    assert_eq!((&info["bus"], &info["device"]), (&json!("loop"), &json!(device.0)));
    assert_eq!((&info["size_bytes"], &info["file"]), (&json!(256 << 20), &json!(place.text("a"))));
    place.wait_for(|| smart(&place)["passed"] == true);
    let asked = fs::read_to_string(place.path("asked")).unwrap();
    assert_eq!(asked, format!("--json=c -i -H -A -n standby {}\n", device.0));
    let status = place.must(&["pool", "status", "-v", "tank"]);
    let row = status.lines().find(|line| line.contains("passed")).unwrap();
    assert!(row.trim_start().starts_with(&device.0), "{status}");
    assert!(row.contains("passed, 34 C, 21034 h, 3 pending"), "{status}");
    assert!(row.ends_with(&place.text("a")), "{status}");
    assert!(!place.must(&["pool", "status", "tank"]).contains("21034"), "only with -v");
    assert_eq!(place.must(&["pool", "status", "-x"]), "all pools are healthy\n");
    // It is asked once in ten minutes, not by each who looks.
    for _ in 0..20 {
        place.must(&["pool", "status", "-v", "tank"]);
    }
    assert_eq!(fs::read_to_string(place.path("asked")).unwrap(), asked);
    // Image files have no health of their own.
    let image = place.image("b");
    place.must(&["pool", "create", "dozer", &image]);
    let info = place.json(&["pool", "status", "dozer"])["vdevs"][0]["leaves"][0]["disk"].clone();
    assert_eq!(info["file"], json!(image));
    assert_eq!(fs::read_to_string(place.path("asked")).unwrap(), asked);
}

#[test]
fn a_disk_that_expects_to_fail_is_a_problem_an_event_and_a_metric() {
    let place = Place::new();
    let script = format!("echo '{}'", health(false));
    let Some((daemon, device)) = on_a_loop_device(&place, &script) else { return };
    place.wait_for(|| smart(&place)["passed"] == false);
    let said = place.ask(&["pool", "status", "-x", "tank"]);
    assert_eq!(said.code, 3);
    let problem = format!("status: {} expects to fail soon, by its own SMART health.\n", device.0);
    assert!(said.out.contains(&problem), "{}", said.out);
    let replace = format!("`aquifer pool replace tank {} NEW`", device.0);
    assert!(said.out.contains(&replace), "{}", said.out);
    let failing = |value: u8| {
        format!(
            "disk_smart_failing{{pool=\"tank\",vdev=\"{0}\",class=\"data\",disk=\"{0}\"}} {value}",
            device.0
        )
    };
    assert!(metrics(&place).contains(&failing(1)), "{}", metrics(&place));
    let classes = |place: &Place| -> Vec<String> {
        let events = place.json(&["events"]);
        let classes = events.as_array().unwrap().iter();
        let classes = classes.map(|event| event["class"].as_str().unwrap().to_string());
        classes.filter(|class| class.starts_with("disk.smart")).collect()
    };
    assert_eq!(classes(&place), ["disk.smart_failing"]);
    // The verdict holds over a restart, until the disk says something else.
    install(&place, "exec sleep 1000");
    drop(daemon);
    let daemon = serve(&place);
    assert_eq!(place.ask(&["pool", "status", "-x", "tank"]).code, 3);
    assert_eq!(classes(&place), [""; 0]);
    install(&place, &format!("echo '{}'", health(true)));
    drop(daemon);
    let _daemon = serve(&place);
    place.wait_for(|| smart(&place)["passed"] == true);
    assert_eq!(classes(&place), ["disk.smart_passed"]);
    assert_eq!(place.ask(&["pool", "status", "-x", "tank"]).code, 0);
    assert!(metrics(&place).contains(&failing(0)));
}

#[test]
fn spares_and_disks_of_the_log_are_shown_too() {
    let place = Place::new();
    let [log, spare] = ["log", "spare"].map(|name| place.image(name));
    // Whatever its name: all that are asked expect to fail.
    let script = format!("echo '{}'", health(false));
    let (Some(log), Some(spare)) = (Loop::new(&log), Loop::new(&spare)) else { return };
    let data = place.image("data");
    install(&place, &script);
    let daemon = serve(&place);
    place.must(&["pool", "create", "tank", &data, "log", &log.0, "spare", &spare.0]);
    let info = |of: &str| -> Value {
        let status = place.json(&["pool", "status", "tank"]);
        match of {
            "log" => status["vdevs"][1]["leaves"][0]["disk"].clone(),
            _ => status["spares"][0]["disk"].clone(),
        }
    };
    for (of, device) in [("log", &log.0), ("spare", &spare.0)] {
        place.wait_for(|| info(of)["smart"]["passed"] == false);
        assert_eq!(info(of)["device"], json!(device));
        let status = place.must(&["pool", "status", "-v", "tank"]);
        let (_, table) = status.split_once(" disks:").unwrap();
        let row = table.lines().find(|line| line.trim_start().starts_with(device)).unwrap();
        assert!(row.contains("FAILING, 34 C, 21034 h") && row.contains("256M"), "{status}");
    }
    let said = place.ask(&["pool", "status", "-x", "tank"]);
    assert_eq!(said.code, 3);
    let add = format!("`aquifer pool remove tank {}`", spare.0);
    let flat = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("`aquifer pool add tank spare NEW`, then "), "{flat}");
    assert!(flat.contains(&add), "{flat}");
    let failing = format!("pool=\"tank\",vdev=\"\",class=\"spare\",disk=\"{}\"}} 1", spare.0);
    assert!(metrics(&place).contains(&failing), "{}", metrics(&place));
    // A spare that is not there is known over a restart.
    daemon.kill9();
    let path = spare.0.clone();
    drop(spare);
    let _daemon = serve(&place);
    place.wait_for(|| info("spare")["gone"] == true || is_attached(&path));
    if is_attached(&path) {
        eprintln!("SKIPPED: another test has {path} by now");
        return;
    }
    let status = place.must(&["pool", "status", "-v", "tank"]);
    let (_, table) = status.split_once(" disks:").unwrap();
    let row = table.lines().find(|line| line.trim_start().starts_with(&path)).unwrap();
    assert!(row.contains("(gone)"), "{status}");
}

#[test]
fn a_smartctl_that_hangs_holds_up_nobody() {
    let place = Place::new();
    let Some((_daemon, device)) = on_a_loop_device(&place, "sleep 1000; sleep 1000") else {
        return;
    };
    place.wait_for(|| place.path("asked").exists());
    for _ in 0..10 {
        let begun = Instant::now();
        place.must(&["pool", "status", "-v", "tank"]);
        place.must(&["create", "tank/vms"]);
        place.must(&["destroy", "-f", "tank/vms"]);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    place.wait_for(|| disk(&place)["disk"]["smart_note"] == "smartctl did not answer for 10s");
    let status = place.must(&["pool", "status", "-v", "tank"]);
    assert!(status.contains("\n\tsmartctl did not answer for 10s\n"), "{status}");
    assert_eq!(place.ask(&["pool", "status", "-x", "tank"]).code, 0);
    let begun = Instant::now();
    place.must(&["pool", "export", "tank"]);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(device);
}

#[test]
fn without_smartctl_or_with_garbage_one_note_says_so() {
    let place = Place::new();
    let Some((daemon, _device)) = on_a_loop_device(&place, "echo {; echo $0 failed") else {
        return;
    };
    let note = "smartctl says no health: it printed no JSON";
    place.wait_for(|| disk(&place)["disk"]["smart_note"] == note);
    drop(daemon);
    for (smartctl, note) in [
        ("/nowhere/smartctl", json!("/nowhere/smartctl is not installed (package smartmontools)")),
        ("", json!(null)),
    ] {
        fs::write(place.path("c"), format!("smartctl = \"{smartctl}\"\n")).unwrap();
        let _daemon = place.spawn_serving(&["--config", &place.text("c")]);
        place.wait_for(|| place.ask(&["pool", "status", "tank"]).out.contains("ONLINE"));
        std::thread::sleep(Duration::from_millis(300));
        place.wait_for(|| disk(&place)["disk"]["smart_note"] == note);
        let status = place.must(&["pool", "status", "-v", "tank"]);
        assert_eq!(
            status.matches("smartctl").count(),
            if note.is_null() { 0 } else { 1 },
            "{status}"
        );
    }
}

#[test]
fn a_disk_that_is_gone_is_still_named() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["pool", "status", "tank"]);
    daemon.kill9();
    fs::remove_file(&b).unwrap();
    let _daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    let leaves = place.json(&["pool", "status", "tank"])["vdevs"][0]["leaves"].clone();
    assert_eq!(leaves[1]["state"], "MISSING");
    let known = &leaves[1]["disk"];
    assert_eq!((&known["file"], &known["gone"]), (&json!(b), &json!(true)));
    let status = place.must(&["pool", "status", "-v", "tank"]);
    assert!(status.lines().any(|line| line.contains(&b) && line.ends_with("(gone)")), "{status}");
}
