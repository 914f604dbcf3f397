//! Faults that are put before disks: what each does to a pool in service, and that it ends.

use rustix::process::Signal;

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: usize = 1 << 20;
const PIECE: usize = 65536;

fn inject(place: &Place, disk: &str, faults: &[&str]) {
    place.must(&[&["inject", "tank", disk], faults].concat());
}

/// Writes some MiB, and lets memory forget them. The file's handle.
fn with_content(place: &Place, disks: &[&str], mib: usize) -> Vec<u8> {
    let file = with_file(place, "tank", disks);
    let mut client = Client::new(place, "127.0.0.1");
    for at in (0..mib * MIB).step_by(PIECE) {
        client.write(&file, at as u64, &noise(at as u64, PIECE), false);
    }
    client.commit(&file);
    drop(client);
    forget(place, disks);
    file
}

fn forget(place: &Place, disks: &[&str]) {
    place.must(&["pool", "export", "tank"]);
    let disks = disks.iter().filter(|disk| **disk != "mirror");
    let places: Vec<&str> = disks.flat_map(|disk| ["-d", disk]).collect();
    place.must(&[&["pool", "import"], places.as_slice(), &["tank"]].concat());
}

fn all_is_right(place: &Place, file: &[u8], mib: usize) {
    let mut client = Client::new(place, "127.0.0.1");
    for at in (0..mib * MIB).step_by(PIECE) {
        let read = client.read_bytes(file, at as u64, PIECE as u32).unwrap();
        assert!(read == noise(at as u64, PIECE), "at {at}");
    }
}

#[test]
fn bad_reads_cost_a_disk_and_rot_is_mended() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let disks = ["mirror", a.as_str(), b.as_str()];
    let _daemon = place.serve();
    let file = with_content(&place, &disks, 16);
    let errors = |what: &str| {
        place.json(&["pool", "status", "tank"])["vdevs"][0]["leaves"][1][what].as_u64().unwrap()
    };
    // One read of two: half of those that come to this disk.
    inject(&place, &b, &["--rot", "1/2"]);
    all_is_right(&place, &file, 16);
    assert!(errors("checksum_errors") > 10 && errors("repaired") > 10);
    assert_eq!(errors("read_errors"), 0);
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "DEGRADED"]);
    inject(&place, &b, &["--clear"]);
    place.must(&["pool", "clear", "tank", &b]);
    forget(&place, &disks);
    all_is_right(&place, &file, 16);
    assert_eq!(errors("checksum_errors"), 0, "the faults were cleared");

    forget(&place, &disks);
    inject(&place, &b, &["--read-errors", "1/1"]);
    all_is_right(&place, &file, 16);
    place.wait_for(|| place.states("tank").1[1] == "FAULTED");
    assert_eq!(errors("read_errors"), 10);
    inject(&place, &b, &["--clear"]);
    place.must(&["pool", "clear", "tank", &b]);
    place.must(&["pool", "wait", "tank"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &a, "-d", &b, "tank"]);
}

#[test]
fn a_disk_that_hangs_is_left_and_one_that_vanished_is_waited_for() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let disks = ["mirror", a.as_str(), b.as_str()];
    let _daemon = place.serve();
    let file = with_content(&place, &disks, 1);
    let mut client = Client::new(&place, "127.0.0.1");
    let mut write = |seed: u64| client.write(&file, 0, &noise(seed, PIECE), true);
    inject(&place, &b, &["--hang"]);
    write(1);
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "OUTDATED"]);
    write(2);
    inject(&place, &b, &["--clear"]);
    place.must(&["pool", "clear", "tank", &b]);
    place.must(&["pool", "wait", "tank"]);

    inject(&place, &b, &["--write-errors", "1/1"]);
    write(3);
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "OUTDATED"]);
    // Both are gone: the pool is suspended, and comes back by itself once they are there.
    [&a, &b].into_iter().for_each(|disk| inject(&place, disk, &["--clear", "--vanish"]));
    drop(client);
    let suspended = || place.health("tank") == "SUSPENDED";
    place.must(&["pool", "clear", "tank", &b]);
    place.wait_for(|| {
        let _ = place.ask(&["create", "tank/other"]);
        suspended()
    });
    [&a, &b].into_iter().for_each(|disk| inject(&place, disk, &["--clear"]));
    place.must(&["pool", "clear", "tank"]);
    place.wait_for(|| place.states("tank").1 == ["ONLINE", "ONLINE"]);
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(client.read_bytes(&file, 0, PIECE as u32).unwrap(), noise(3, PIECE));
}

/// With a client's call and an act that wait for the disk. The other pool is exported.
#[test]
fn a_daemon_ends_although_a_disk_hangs() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "dozer", &b]);
    let file = with_content(&place, &[&a], 1);
    inject(&place, &a, &["--hang"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let call = std::thread::spawn(move || client.try_write(&file, 0, &noise(2, 4096), true));
    let mut act = place.command(&["create", "tank/late"]).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    daemon.signal(Signal::TERM).unwrap();
    // Less than a service manager waits.
    let ended = daemon.wait(std::time::Duration::from_secs(110)).unwrap();
    assert!(ended.success(), "{}", place.log());
    assert!(place.log().contains("a pool is given up without an export"), "{}", place.log());
    assert_ne!(act.wait().unwrap().code(), Some(0));
    let _ = call.join();
    let exported = |disk: &str| place.json(&["inspect", disk])["exported"].clone();
    assert_eq!((exported(&b), exported(&a)), (true.into(), false.into()));
    let _daemon = place.serve();
    assert_eq!((place.health("tank"), place.health("dozer")), ("ONLINE".into(), "ONLINE".into()));
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    assert_eq!(place.ask(&["inject", "tank", &a]).code, 2, "no fault");
    for share in ["1", "2/1", "1/0", "-1/2", "x/y"] {
        let said = place.ask(&["inject", "tank", &a, &format!("--rot={share}")]);
        assert!(said.code == 2 && said.err.contains("is no share"), "{said:?}");
    }
    let other = place.ask(&["inject", "dozer", &a, "--hang"]);
    assert!(other.code == 1 && other.err.contains("there is no pool"), "{other:?}");
    // Slow, all of it, and no slower than that.
    inject(&place, &a, &["--delay-ms", "30"]);
    let begun = std::time::Instant::now();
    place.must(&["create", "tank/vms"]);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(60), "a write, a flush");
}
