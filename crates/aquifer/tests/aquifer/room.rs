//! Room that is kept for a disk, and image files that go astray, as administrators meet them.

use std::fs;
use std::process::Command;

use crate::bed::{fill, has};
use crate::eyes::client::Client;
use crate::support::{Loop, Place, has as has_tool};

fn cells(place: &Place, columns: &str, name: &str) -> Vec<String> {
    let said = place.must(&["list", "-H", "-o", columns, name]);
    said.split_whitespace().map(String::from).collect()
}

/// Returns what `pool status -x` says is wrong, in one line.
fn wrong(place: &Place) -> String {
    let said = place.ask(&["pool", "status", "-x"]);
    let words: Vec<&str> = said.out.split_whitespace().collect();
    words.join(" ")
}

fn alerts(place: &Place) -> String {
    place.json(&["alerts"])["active"].to_string()
}

#[track_caller]
fn refused(place: &Place, words: &[&str], why: &str) {
    let said = place.ask(words);
    assert!(said.code == 1 && said.err.contains(why), "{words:?}: {said:?}");
}

#[test]
fn a_snapshot_without_room_is_refused_and_the_disk_is_written_over() {
    let place = Place::new();
    let image = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &image]);
    let create = ["create", "-o", "sharenfs=insecure", "-o", "compression=off"];
    place.must(&[&create[..], &["-o", "refreservation=32M", "tank/vms"]].concat());
    assert_eq!(cells(&place, "used,usedbyrefreservation,refer", "tank/vms"), ["32M", "32M", "0B"]);
    refused(&place, &["set", "usedbyrefreservation=1", "tank/vms"], "cannot be set, only read");
    refused(&place, &["set", "refreservation=10G", "tank/vms"], "cannot be kept free");
    refused(&place, &["set", "quota=16M", "tank/vms"], "reserved");

    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    fill(&mut client, &file, 1, 0, 32);
    place.wait_for(|| cells(&place, "usedbyrefreservation", "tank/vms") == ["0B"]);
    place.must(&["snapshot", "tank/vms@a"]);
    assert_eq!(cells(&place, "used,usedbyrefreservation", "tank/vms"), ["64M", "32M"]);
    let listed = place.json(&["list", "tank/vms"]);
    assert_eq!(listed[0]["refreserved_bytes"], 32 << 20);

    // The quota has room for one snapshot of all.
    place.must(&["set", "quota=72M", "tank/vms"]);
    fill(&mut client, &file, 2, 0, 32);
    place.wait_for(|| cells(&place, "usedbyrefreservation", "tank/vms") == ["0B"]);
    let why = "bytes lack for it in the quota of tank/vms";
    refused(&place, &["snapshot", "tank/vms@b"], "refreservation=32M");
    refused(&place, &["snapshot", "tank/vms@b"], why);
    refused(&place, &["snapshot", "-r", "tank@b"], "No snapshot was taken");
    assert_eq!(place.ask(&["list", "-t", "snapshot", "tank"]).out.matches("@b").count(), 0);
    fill(&mut client, &file, 3, 0, 32);
    has(&mut client, &file, 3, 0, 32);

    // So a schedule cannot take its own, and one of another dataset is taken.
    place.must(&["create", "-o", "snapshots=daily=2", "tank/other"]);
    place.ask(&["set", "snapshots=hourly=2", "tank/vms"]);
    place.wait_for(|| wrong(&place).contains("Scheduled snapshots are not taken"));
    assert!(wrong(&place).contains("refreservation=32M"), "{}", wrong(&place));
    let taken = place.must(&["list", "-H", "-r", "-t", "snapshot", "-o", "name", "tank"]);
    assert!(taken.contains("tank/other@auto-daily"), "{taken}");
    place.must(&["set", "quota=none", "tank/vms"]);
    place.must(&["snapshot", "tank/vms@b"]);
}

#[test]
fn an_image_that_goes_astray_is_told_at_once() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.image(name));
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    let aside = place.text("aside");
    fs::rename(&a, &aside).unwrap();
    place.wait_for(|| wrong(&place).contains("are not at their paths any more"));
    assert!(wrong(&place).contains(&a), "{}", wrong(&place));
    fs::rename(&aside, &a).unwrap();
    place.wait_for(|| wrong(&place).contains("all pools are healthy"));

    fs::remove_file(&b).unwrap();
    place.wait_for(|| wrong(&place).contains("were removed while it is in service"));
    place.wait_for(|| alerts(&place).contains("disk-removed"));
    let events = place.must(&["events"]);
    assert!(events.contains("disk.removed") && events.contains("disk.in_place"), "{events}");
    // What it says to type helps.
    assert!(wrong(&place).contains(&format!("aquifer pool replace tank {b}")));
    place.must(&["pool", "replace", "tank", &b, &c]);
    place.must(&["pool", "wait", "tank"]);
    place.wait_for(|| wrong(&place).contains("all pools are healthy"));
    place.wait_for(|| !alerts(&place).contains("disk-removed"));
}

struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

/// The kernel gives a file system up after an error.
#[test]
fn an_image_on_a_file_system_that_is_given_up_is_told_at_once() {
    let place = Place::new();
    if !has_tool("mkfs.ext4") {
        return;
    }
    let below = place.sized_image("below", 512 << 20);
    let made = Command::new("mkfs.ext4").args(["-q", "-F", &below]).status().unwrap();
    assert!(made.success());
    let Some(device) = Loop::new(&below) else { return };
    let directory = place.text("images");
    fs::create_dir(&directory).unwrap();
    let words = ["-o", "errors=remount-ro", &device.0, &directory];
    let mounted = Command::new("mount").args(words).status();
    if !mounted.is_ok_and(|mounted| mounted.success()) {
        eprintln!("SKIPPED: a mount needs root");
        return;
    }
    let _mounted = Mounted(directory);
    let (a, b) = (place.image("a"), place.image("images/b"));
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    let name = device.0.trim_start_matches("/dev/");
    let trigger = format!("/sys/fs/ext4/{name}/trigger_fs_error");
    if fs::write(&trigger, "test").is_err() {
        eprintln!("SKIPPED: this kernel gives no file system up on request");
        return;
    }
    place.wait_for(|| wrong(&place).contains("file systems of these disks are read-only"));
    assert!(wrong(&place).contains(&b), "{}", wrong(&place));
    place.wait_for(|| alerts(&place).contains("disk-read_only"));
}
