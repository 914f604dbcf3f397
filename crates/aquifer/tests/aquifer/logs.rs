//! Log devices: made with a pool or later, changed in service, lost in every way.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::eyes::client::Client;
use crate::support::{Daemon, Place, has};

/// Names and states of the vdevs that are shown, of one class.
#[track_caller]
fn vdevs(place: &Place, class: &str) -> Vec<(String, String)> {
    let status = place.json(&["pool", "status", "tank"]);
    let vdevs = status["vdevs"].as_array().unwrap().iter().filter(|vdev| vdev["class"] == class);
    let text = |value: &Value| value.as_str().unwrap().to_string();
    vdevs.map(|vdev| (text(&vdev["name"]), text(&vdev["health"]))).collect()
}

fn online(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| (name.to_string(), "ONLINE".into())).collect()
}

/// Bytes that log devices were written, durably, since the import.
fn logged_bytes(place: &Place) -> u64 {
    let stat = place.json(&["iostat", "tank"]);
    let vdevs = stat[0]["vdevs"].as_array().unwrap().iter().filter(|vdev| vdev["class"] == "log");
    vdevs.map(|vdev| vdev["io"]["durable_writes"]["bytes"].as_u64().unwrap()).sum()
}

/// A pool of one disk, with a dataset that is served.
fn with_log(place: &Place, words: &[&str]) -> Daemon {
    let data = place.image("data");
    let daemon = place.serve();
    let create = ["pool", "create", "tank", &data];
    place.must(&create.iter().chain(words).copied().collect::<Vec<_>>());
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    daemon
}

fn classes(place: &Place) -> BTreeSet<String> {
    let events = place.json(&["events"]);
    let class = |event: &Value| event["class"].as_str().unwrap().to_string();
    events.as_array().unwrap().iter().map(class).collect()
}

#[test]
fn a_log_device_comes_goes_and_is_changed_while_clients_write() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.image(name));
    let _daemon = with_log(&place, &["log", &a]);
    assert_eq!(vdevs(&place, "log"), online(&[&a]));
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    let mut written = 0u64;
    let mut write = |times: u64| {
        for _ in 0..times {
            client.write(&file, written * 4096, &[written as u8 + 1; 4096], true);
            written += 1;
        }
    };
    let before = logged_bytes(&place);
    write(20);
    assert!(logged_bytes(&place) >= before + 20 * 8192, "the log is not where it should be");

    // Another one beside it, removed before the first: its number is free, and shown nowhere.
    place.must(&["pool", "add", "tank", "log", &b]);
    write(20);
    assert_eq!(vdevs(&place, "log"), online(&[&a, &b]));
    place.must(&["pool", "remove", "tank", &a]);
    write(20);
    assert_eq!(vdevs(&place, "log"), online(&[&b]));
    assert!(!place.must(&["iostat", "-v", "tank"]).contains(&a));
    // A removed disk belongs to no pool, and needs no force.
    place.must(&["pool", "create", "dozer", &a]);
    place.must(&["pool", "destroy", "-f", "dozer"]);

    place.must(&["pool", "replace", "tank", &b, &c]);
    write(20);
    assert_eq!(vdevs(&place, "log"), online(&[&c]));
    place.must(&["pool", "remove", "tank", &c]);
    write(20);
    assert_eq!(logged_bytes(&place), 0, "no log device is left");
    place.must(&["pool", "add", "tank", "log", "mirror", &b, &d]);
    write(20);
    assert_eq!(vdevs(&place, "log"), online(&["mirror-1"]));
    place.must(&["pool", "offline", "tank", &d]);
    write(20);
    assert_eq!(vdevs(&place, "log")[0].1, "DEGRADED");
    assert_eq!(place.health("tank"), "DEGRADED");
    let status = place.must(&["pool", "status", "tank"]);
    let flat = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("the other side of the mirror, and nothing is lost."), "{status}");
    assert!(flat.contains("taken offline by the administrator"), "{status}");
    place.must(&["pool", "offline", "tank", &b]);
    write(20);
    let status = place.must(&["pool", "status", "tank"]);
    let flat = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("the log is on the data disks, and nothing is lost."), "{status}");
    for disk in [&b, &d] {
        place.must(&["pool", "online", "tank", disk]);
    }
    write(20);
    assert_eq!(vdevs(&place, "log"), online(&["mirror-1"]));
    assert_eq!(place.health("tank"), "ONLINE");
    let text = place.must(&["pool", "status", "tank"]);
    let log = text.split_once("\tlogs\n").unwrap().1;
    assert!(log.starts_with("\t  mirror-1 "), "{text}");
    place.must(&["pool", "remove", "tank", "mirror-1"]);
    write(20);
    assert_eq!(vdevs(&place, "log"), []);
    for at in 0..written {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096));
    }
    let classes = classes(&place);
    for act in ["added", "removed", "replaced", "offline", "online"] {
        assert!(classes.contains(&format!("log.{act}")), "{act}: {classes:?}");
    }
}

#[test]
fn log_devices_survive_every_end_of_the_daemon() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let daemon = with_log(&place, &["log", &c, "mirror", &a, &b]);
    let dry =
        place.must(&["pool", "add", "-n", "--create-size", "256M", "tank", "log", "/nowhere/x"]);
    assert_eq!(dry, "would add to pool \"tank\":\n\n\ttank\n\tlogs\n\t  /nowhere/x  256M\n");
    let both = online(&[&c, "mirror-2"]);
    assert_eq!(vdevs(&place, "log"), both);
    place.must(&["create", "tank/one"]);
    daemon.kill9();
    let daemon = place.serve();
    assert_eq!(vdevs(&place, "log"), both);
    place.must(&["pool", "remove", "tank", &c]);
    daemon.kill9();
    let _daemon = place.serve();
    assert_eq!(vdevs(&place, "log"), online(&["mirror-2"]));
    place.must(&["pool", "export", "tank"]);
    let found = place.json(&["pool", "import", "-d", &place.text(".")]);
    let classes: Vec<_> =
        found["pools"][0]["vdevs"].as_array().unwrap().iter().map(|v| &v["class"]).collect();
    assert_eq!(classes, ["data", "log"]);
    let found = place.must(&["pool", "import", "-d", &place.text(".")]);
    assert!(found.contains("\tlogs\n\t  mirror-2"), "{found}");
    place.must(&["pool", "import", "-d", &place.text("."), "tank"]);
    // The number of a removed device is given again.
    place.must(&["pool", "add", "tank", "log", &c]);
    assert_eq!(vdevs(&place, "log"), online(&[&c, "mirror-2"]));
    let metrics = Command::new("curl")
        .args(["-s", "--unix-socket", place.socket().to_str().unwrap(), "http://aquifer/metrics"])
        .output();
    if let Ok(metrics) = metrics {
        let page = String::from_utf8(metrics.stdout).unwrap();
        let of =
            format!(r#"aquifer_disk_online{{pool="tank",vdev="{c}",class="log",disk="{c}"}} 1"#);
        assert!(page.contains(&of), "{page}");
    }
}

/// The daemon writes its list of disks after it has changed the pool: a kill in between leaves the
/// old list. Then only the labels say where the new disks are.
#[test]
fn a_change_of_the_log_that_was_never_noted_is_found_again() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let mut daemon = with_log(&place, &[]);
    let list = place.path("state/pools.json");
    for change in [
        &["pool", "add", "tank", "log", "mirror", &a, &b][..],
        &["pool", "replace", "tank", &b, &c],
    ] {
        let before = fs::read(&list).unwrap();
        place.must(change);
        daemon.kill9();
        let noted = fs::read(&list).unwrap();
        assert_ne!(noted, before);
        fs::write(&list, before).unwrap();
        daemon = place.serve();
        let (_, disks) = place.states("tank");
        assert!(disks.iter().all(|state| state == "ONLINE"), "{change:?}: {disks:?}");
        assert_eq!(vdevs(&place, "log"), online(&["mirror-1"]));
        assert_eq!(fs::read(&list).unwrap(), noted, "the list is mended");
    }
}

/// A kill between the removal of a log device and the erasure of its labels. The next daemon looks
/// at the disk, finds that it is no disk of the pool, and leaves it free.
#[test]
fn a_removal_that_was_cut_off_leaves_a_disk_that_can_be_taken() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = with_log(&place, &["log", &a]);
    let list = place.path("state/pools.json");
    let (noted, labels) = (fs::read(&list).unwrap(), fs::read(&a).unwrap());
    place.must(&["pool", "remove", "tank", &a]);
    daemon.kill9();
    fs::write(&list, noted).unwrap();
    fs::write(&a, labels).unwrap();
    let _daemon = place.serve();
    assert_eq!(vdevs(&place, "log"), []);
    let refused = place.ask(&["pool", "add", "tank", "log", &a]);
    assert!(refused.code == 1 && refused.err.contains("take the disk with -f"), "{}", refused.err);
    place.must(&["pool", "add", "-f", "tank", "log", "mirror", &a, &b]);
    assert_eq!(vdevs(&place, "log"), online(&["mirror-1"]));
}

#[test]
fn what_cannot_be_done_with_log_devices_says_why() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let _daemon = with_log(&place, &["log", "mirror", &a, &b]);
    let data = place.text("data");
    place.refuses(
        &["pool", "remove", "tank", &data],
        &format!(
            "{data}: holds data, which cannot be removed. `aquifer pool detach tank DISK` takes a \
             side off a mirror; else copy the datasets to another pool"
        ),
    );
    place.refuses(
        &["pool", "attach", "tank", &a, &c],
        &format!("{a}: is a disk of the log; only disks that hold data are attached and detached"),
    );
    place.refuses(
        &["pool", "remove", "tank", &a],
        &format!(
            "{a}: is one side of mirror-1; `aquifer pool remove tank mirror-1` removes all of it"
        ),
    );
    place.refuses(
        &["pool", "offline", "tank", "mirror-1"],
        &format!("mirror-1: is a mirror; name one of its disks: {a}, {b}"),
    );
    place.refuses(
        &["pool", "offline", "tank", &c],
        &format!(
            "{c}: is no disk of pool \"tank\"; `aquifer pool status tank` shows those that are"
        ),
    );
    place.refuses(
        &["pool", "add", "tank", "log", &a],
        &format!("{a}: is a disk of pool \"tank\" already; use another disk"),
    );
    place.write("c", 1024 + 0x38, &[0x53, 0xEF]);
    let foreign = format!(
        "{c}: holds something already: ext2 file system (signature at byte 1080); -f takes it \
         nevertheless, and what it holds is lost"
    );
    place.refuses(&["pool", "add", "tank", "log", &c], &foreign);
    place.refuses(&["pool", "replace", "tank", &a, &c], &foreign);
    place.must(&["pool", "replace", "-f", "tank", &a, &c]);
    assert_eq!(vdevs(&place, "log"), online(&["mirror-1"]));
    // A replaced disk is no disk of the pool any more.
    place.must(&["pool", "create", "dozer", &a]);
}

/// A place whose pool has a log, and where that disk is put away.
fn with_drawer() -> (Place, Daemon, String, PathBuf) {
    let place = Place::new();
    let (log, away) = (place.image("log-disk"), place.path("drawer/log-disk"));
    fs::create_dir(place.path("drawer")).unwrap();
    let daemon = with_log(&place, &["log", &log]);
    (place, daemon, log, away)
}

/// The machine went down, and comes back without the disk that the log lies on.
#[test]
fn a_log_device_that_comes_back_late_has_lost_nothing() {
    let (place, daemon, log, away) = with_drawer();
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    client.write(&file, 0, &[7; 4096], true);
    daemon.kill9();
    fs::rename(&log, &away).unwrap();
    let _daemon = place.serve();
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "UNAVAIL");
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("the log device is missing or outdated: {log}")), "{reason}");
    assert!(reason.contains("`import --missing-log` drops that"), "{reason}");
    let dir = place.text(".");
    let said = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert!(said.code == 1 && said.err.contains("--missing-log"), "{said:?}");
    let found = place.must(&["pool", "import", "-d", &dir]);
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("a log device is missing"), "{found}");

    // It comes back after all: nothing is lost, and nobody had to act.
    fs::rename(&away, &log).unwrap();
    let said = place.ask(&["pool", "import", "-d", &dir, "tank"]);
    assert!(said.code == 0 && said.err.contains("batches to replay"), "{said:?}");
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(client.read(&file, 0, 4096), Ok(4096));
}

/// It does not come back.
#[test]
fn a_log_device_that_is_gone_is_given_up_by_name_only() {
    let (place, daemon, log, away) = with_drawer();
    place.must(&["create", "-o", "readonly=on", "tank/archive"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    client.write(&file, 0, &[7; 4096], true);
    // An act of the administrator commits what was written.
    place.must(&["set", "compression=off", "tank/vms"]);
    client.write(&file, 4096, &[8; 4096], true);
    daemon.kill9();
    fs::rename(&log, &away).unwrap();
    let daemon = place.serve();
    assert_eq!(place.health("tank"), "UNAVAIL");
    let dir = place.text(".");
    let done = place.json(&["pool", "import", "-m", "-d", &dir, "tank"]);
    let from = done["dropped_log"]["from_txg"].as_u64().unwrap();
    assert_eq!(done["dropped_log"]["datasets"], json!(["tank", "tank/vms"]));
    let since_ns = done["dropped_log"]["since_ns"].as_u64().unwrap();
    let age = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_nanos(since_ns));
    assert!(age.unwrap() < Duration::from_secs(120), "{done}");
    let since = aquifer_api::time::text(since_ns);
    let note = format!(
        "an import did without the log: changes acknowledged since txg {from}, written at about \
         {since}, may be missing in tank, tank/vms"
    );
    assert!(done["notes"].as_array().unwrap().contains(&json!(note)), "{done}");
    assert!(classes(&place).contains("log.dropped"));
    assert!(place.log().contains("acknowledged changes may be missing"));
    let text = place.must(&["pool", "status", "tank"]);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("lost: {note}")), "{text}");
    assert!(flat.contains("`aquifer pool clear tank`"), "{text}");
    assert!(!flat.contains("othing is lost"), "{text}");
    assert_eq!(place.health("tank"), "DEGRADED");
    assert_eq!(vdevs(&place, "log"), [(log.clone(), "UNAVAIL".to_string())]);
    // Earlier data is there, and clients can write more; the device may come back.
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(client.read(&file, 0, 4096), Ok(4096));
    client.write(&file, 8192, &[9; 4096], true);
    let missing = place.ask(&["pool", "online", "tank", &log]);
    assert!(missing.code == 1 && missing.err.contains("does not exist"), "{missing:?}");
    fs::rename(&away, &log).unwrap();
    place.must(&["pool", "online", "tank", &log]);
    assert_eq!(vdevs(&place, "log"), online(&[&log]));
    client.write(&file, 12288, &[9; 4096], true);
    assert!(logged_bytes(&place) > 0);
    the_loss_stays_to_be_read(&place, daemon, &done["dropped_log"]);
}

/// Until somebody has read it, whatever happens in between.
fn the_loss_stays_to_be_read(place: &Place, daemon: Daemon, dropped: &Value) {
    let dir = place.text(".");
    let lost = || place.json(&["pool", "status", "tank"])["dropped_log"].clone();
    daemon.kill9();
    let daemon = place.serve();
    assert_eq!(lost(), *dropped);
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &dir, "tank"]);
    assert_eq!(lost(), *dropped);
    let text = place.must(&["pool", "status", "tank"]);
    assert!(text.contains("  lost: an import did without the log"), "{text}");
    place.must(&["pool", "clear", "tank"]);
    assert_eq!(lost(), json!(null));
    daemon.kill9();
    let _daemon = place.serve();
    assert_eq!(lost(), json!(null));
    let text = place.must(&["pool", "status", "tank"]);
    assert!(!text.contains("lost"), "{text}");
    // Nothing to clear is no failure.
    place.must(&["pool", "clear", "tank"]);
    place.refuses(&["pool", "clear", "dozer"], &nowhere("dozer"));
}

fn nowhere(pool: &str) -> String {
    format!(
        "there is no pool {pool:?}; `aquifer pool list` shows those that are imported, `aquifer \
         pool import` those that could be"
    )
}

/// A mount, gone when it is dropped.
pub struct Mounted(String);

impl Mounted {
    /// A file system in memory of that many MiB; `None`, and a message, where there can be none.
    pub fn tmpfs(path: &str, mib: u64) -> Option<Mounted> {
        fs::create_dir(path).unwrap();
        let size = format!("size={mib}M,mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none", path]).status();
        if !(has("mount") && mount.is_ok_and(|status| status.success())) {
            eprintln!("SKIPPED: nothing can be mounted here");
            return None;
        }
        Some(Mounted(path.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", &self.0]).status();
    }
}

/// Takes all room of a file system with one file.
pub fn fill(filler: &Path) {
    let mut full = vec![0x55; 1 << 20];
    let mut out = fs::File::create(filler).unwrap();
    while let Ok(some) = std::io::Write::write(&mut out, &full) {
        full.truncate(some);
    }
}

/// The disk returns errors from some moment on: the file system behind it is full.
#[test]
fn a_log_device_that_fails_in_service_costs_nobody_anything() {
    let place = Place::new();
    let Some(_mounted) = Mounted::tmpfs(&place.text("memory"), 64) else { return };
    let log = place.image("memory/log");
    let daemon = with_log(&place, &["log", &log]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    client.write(&file, 0, &[1; 4096], true);
    assert!(logged_bytes(&place) > 0);
    let filler = place.path("memory/filler");
    fill(&filler);
    // Every one of these is answered as stable, and is.
    for at in 1..200 {
        client.write(&file, at * 4096, &[at as u8; 4096], true);
    }
    assert_eq!(vdevs(&place, "log"), [(log.clone(), "UNAVAIL".to_string())]);
    assert_eq!(place.health("tank"), "DEGRADED");
    let classes = classes(&place);
    assert!(classes.contains("log.lost") && classes.contains("disk.failed"), "{classes:?}");
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    for at in 0..200 {
        assert_eq!(client.read(&file, at * 4096, 4096), Ok(4096), "page {at}");
    }
    fs::remove_file(&filler).unwrap();
    place.must(&["pool", "online", "tank", &log]);
    assert_eq!(vdevs(&place, "log"), online(&[&log]));
    client.write(&file, 0, &[3; 4096], true);
    assert!(logged_bytes(&place) > 0);
}
