//! The doctor, against daemons that are well, and others that are not.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aquifer_nfs::proto::v3::{
    Args3, DirOpArgs3, NfsFh3, Nfstime3, Readdir3Args, Readdir3Res, Sattr3, SetTime, Setattr3Args,
    Setattr3Res,
};
use aquifer_rig::wire::{Connection, decode, granted};
use serde_json::Value;

use crate::bed::{noise, removable};
use crate::exports::address;
use crate::eyes::client::Client;
use crate::remote;
use crate::support::{AQUIFER, Daemon, Place, Said};

/// A daemon with NFS and a portmapper on ports of its own.
fn serve(place: &Place) -> Daemon {
    let config = "[portmap]\nlisten = [\"127.0.0.1:0\"]\n";
    std::fs::write(place.path("config"), config).unwrap();
    let words = ["--nfs-addr", "127.0.0.1:0", "--memory", "64M", "--config"];
    let serve = aquifer_rig::process::Invocation::new(AQUIFER).arg("serve");
    let serve = serve.arg("--api-socket").arg(place.socket());
    let serve = serve.arg("--state-dir").arg(place.path("state")).args(words);
    let serve = serve.arg(place.path("config")).env_remove("RUST_LOG");
    let daemon = serve.spawn(&place.path("log")).unwrap();
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    daemon
}

/// Runs the doctor. Returns whether all is well, and what it says.
fn doctor(place: &Place, words: &[&str]) -> (bool, Value) {
    let said = place.ask(&[&["doctor", "--json"], words].concat());
    judged(&said)
}

fn judged(said: &Said) -> (bool, Value) {
    assert!(said.code <= 1 && said.err.is_empty(), "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let has_error = findings(&report).any(|finding| finding["level"] == "error");
    assert_eq!(said.code == 1, has_error, "{report:#}");
    (said.code == 0, report)
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().unwrap().iter()
}

fn finding<'r>(report: &'r Value, code: &str) -> Option<&'r Value> {
    findings(report).find(|finding| finding["code"] == code)
}

/// The names in an export's root.
pub fn names(place: &Place, path: &str) -> Vec<String> {
    let (mut client, root) = mounted(place, path);
    let args = Readdir3Args { dir: root, cookie: 0, cookieverf: [0; 8], count: 65_536 };
    client
        .call_nfs(&Args3::Readdir(args), |from| {
            let read = granted("READDIR", decode::<Readdir3Res<'_>>(from)?)?;
            let names = read.entries.iter().map(|it| String::from_utf8_lossy(it.name).into());
            Ok(names.filter(|name: &String| !name.trim_matches('.').is_empty()).collect())
        })
        .unwrap()
}

fn mounted(place: &Place, path: &str) -> (Connection, NfsFh3) {
    let stream = std::net::TcpStream::connect(address(place)).unwrap();
    let mut client = Connection::new(stream).unwrap();
    let root = client.mount(path).unwrap();
    (client, root)
}

#[test]
fn clients_of_all_hypervisors_are_replayed_and_nothing_stays() {
    let place = Place::new();
    let _daemon = serve(&place);
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "-o", "sharenfs=rw=127.0.0.1,insecure", "tank/vms"]);
    place.must(&["create", "-o", "sharenfs=ro=127.0.0.1,insecure", "tank/iso"]);
    let (is_well, report) = doctor(&place, &[]);
    assert!(is_well, "{report:#}");
    let replays: Vec<_> = report["replays"].as_array().unwrap().iter().collect();
    let clients = |path: &str| {
        let of_path = replays.iter().filter(|replay| replay["path"] == path);
        of_path.map(|replay| replay["client"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(clients("/tank/vms"), ["xcp-ng", "esxi", "linux", "qemu"]);
    assert_eq!(clients("/tank/iso"), ["any"]);
    let steps = replays.iter().flat_map(|replay| replay["steps"].as_array().unwrap());
    assert!(steps.clone().count() > 50);
    assert!(steps.into_iter().all(|step| step["error"].is_null()), "{report:#}");
    for code in ["portmap-right", "nfs-port-open", "clock-right", "export-ready"] {
        assert!(finding(&report, code).is_some(), "{code}: {report:#}");
    }
    assert_eq!(finding(&report, "nfs-loopback").unwrap()["level"], "warning");
    assert_eq!(names(&place, "/tank/vms"), [""; 0]);
    assert!(place.json(&["locks"])["locks"].as_array().unwrap().is_empty());
    // For people: each step, if they ask.
    let text = place.must(&["doctor", "-v"]);
    assert!(text.contains("CREATE exclusively: the lock file: ok"), "{text}");
    let text = place.must(&["doctor", "--dataset", "tank/iso"]);
    assert!(text.contains("any      /tank/iso") && !text.contains("xcp-ng"), "{text}");
}

#[test]
fn what_a_killed_doctor_left_goes_and_what_users_have_stays() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let (old, young) = (".aquifer-doctor-0123456789abcdef", ".aquifer-doctor-fedcba9876543210");
    let (mut client, root) = mounted(&place, "/tank/vms");
    let mkdir = |client: &mut Connection, name: &str| {
        let place = DirOpArgs3 { dir: root, name: name.as_bytes() };
        let args =
            Args3::Mkdir(aquifer_nfs::proto::v3::Mkdir3Args { place, attributes: Sattr3::NONE });
        client
            .call_nfs(&args, |from| {
                let made = decode::<aquifer_nfs::proto::v3::Mkdir3Res>(from)?;
                Ok(granted("MKDIR", made)?.obj.unwrap())
            })
            .unwrap()
    };
    let left = mkdir(&mut client, old);
    client.create(left, "esxi-flat").unwrap();
    let mtime = SetTime::ClientTime(Nfstime3 { seconds: 1_000_000, nseconds: 0 });
    let new_attributes = Sattr3 { mtime, ..Sattr3::NONE };
    let args = Args3::Setattr(Setattr3Args { object: left, new_attributes, guard: None });
    client.call_nfs(&args, |from| granted("SETATTR", decode::<Setattr3Res>(from)?)).unwrap();
    mkdir(&mut client, young);
    mkdir(&mut client, ".aquifer-doctor-of-mine");
    client.create(root, "disk.vhd").unwrap();
    place.must(&["doctor"]);
    let mut found = names(&place, "/tank/vms");
    found.sort();
    assert_eq!(found, [young, ".aquifer-doctor-of-mine", "disk.vhd"]);
}

#[test]
fn an_interrupted_doctor_cleans_up_and_says_so() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    for number in 0..8 {
        let name = format!("tank/vms{number}");
        place.must(&["create", "-o", "sharenfs=insecure", &name]);
    }
    let mut interrupted = 0;
    for wait_ms in [20, 60, 100, 140] {
        let mut command = place.command(&["doctor", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        // A signal that came before it was looked out for ended it: it had not begun then.
        if let Some(code) = output.status.code() {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let is_partial = finding(&report, "interrupted").is_some();
            assert_eq!(code, i32::from(is_partial), "{report:#}");
            interrupted += u32::from(is_partial);
        }
        for number in 0..8 {
            assert_eq!(names(&place, &format!("/tank/vms{number}")), [""; 0]);
        }
    }
    assert!(interrupted > 0);
}

#[test]
fn a_hypervisor_is_judged_as_share_why_judges_it_and_the_command_mends_it() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "-o", "sharenfs=rw=10.1.0.0/16,secure", "tank/vms"]);
    let (is_well, report) = doctor(&place, &["10.2.0.9"]);
    assert!(!is_well);
    place.must(&["create", "-o", "sharenfs=rw=10.2.0.9", "tank/iso"]);
    // Of a server that is none of its own clients, and should not be, there is one note for all.
    let (_, both) = doctor(&place, &["10.2.0.9"]);
    let notes = both["findings"].as_array().unwrap().iter();
    let notes: Vec<_> = notes.filter(|found| found["code"] == "not-admitted-here").collect();
    let what = notes[0]["what"].as_str().unwrap();
    assert!(notes.len() == 1 && what.contains("and another export"), "{both:#}");
    place.must(&["destroy", "-f", "tank/iso"]);
    let refused = finding(&report, "export-refuses-host").unwrap();
    let why = place.json(&["share", "why", "10.2.0.9", "/tank/vms"]);
    let why = why["answers"][0]["why"][0].as_str().unwrap();
    assert!(refused["what"].as_str().unwrap().ends_with(why), "{refused}\n{why}");
    // This machine is not let in either, so nothing is replayed, and nothing is tried.
    assert!(finding(&report, "not-admitted-here").is_some(), "{report:#}");
    assert_eq!(report["replays"], serde_json::json!([]));
    let command = refused["command"].as_str().unwrap();
    let typed = command.replacen(
        "aquifer",
        &format!("{AQUIFER} --api-socket {}", place.text("run/aquifer.sock")),
        1,
    );
    assert!(Command::new("bash").args(["-c", &typed]).status().unwrap().success(), "{typed}");
    let (_, report) = doctor(&place, &["10.2.0.9"]);
    assert!(finding(&report, "export-admits-host").is_some(), "{report:#}");
    assert!(finding(&report, "export-refuses-host").is_none(), "{report:#}");

    place.must(&["set", "sharenfs=rw=10.2.0.9,root_squash", "tank/vms"]);
    let (is_well, report) = doctor(&place, &["10.2.0.9"]);
    assert!(is_well && finding(&report, "export-squashes-root").is_some(), "{report:#}");
    let (is_well, report) = doctor(&place, &["no-such-host.invalid"]);
    assert!(!is_well && finding(&report, "host-unknown").is_some(), "{report:#}");
}

#[test]
fn a_server_that_is_down_empty_or_full_is_a_finding() {
    let place = Place::new();
    std::fs::create_dir(place.path("run")).unwrap();
    let (is_well, report) = doctor(&place, &[]);
    assert!(!is_well && finding(&report, "daemon-unreachable").is_some(), "{report:#}");
    let daemon = place.serve();
    let (is_well, report) = doctor(&place, &[]);
    assert!(!is_well && finding(&report, "no-pool").is_some(), "{report:#}");
    place.must(&["pool", "create", "tank", &place.image("a")]);
    let (is_well, report) = doctor(&place, &[]);
    assert!(!is_well && finding(&report, "nothing-exported").is_some(), "{report:#}");
    place.must(&["create", "-o", "sharenfs=insecure", "-o", "sync=disabled:a test", "tank/vms"]);
    let (is_well, report) = doctor(&place, &[]);
    assert!(is_well && finding(&report, "sync-disabled").is_some(), "{report:#}");

    // No room: a client writes until it hears that.
    place.must(&["set", "sync=standard", "quota=2M", "tank/vms"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk");
    let page = noise(1, 65536);
    let mut offsets = (0..200).map(|number| number * 65536);
    assert!(offsets.any(|offset| client.try_write(&file, offset, &page, true).is_err()));
    place.wait_for(|| finding(&doctor(&place, &[]).1, "dataset-full").is_some());
    assert_eq!(names(&place, "/tank/vms"), ["disk"]);

    // Named, and not exported.
    let (is_well, report) = doctor(&place, &["--dataset", "tank/none"]);
    assert!(!is_well && finding(&report, "nothing-exported").is_some(), "{report:#}");
    daemon.kill9();
    let (is_well, report) = doctor(&place, &[]);
    assert!(!is_well && finding(&report, "daemon-unreachable").is_some(), "{report:#}");
}

#[test]
fn a_pool_without_its_disk_is_a_finding_in_time() {
    let place = Place::new();
    let Some(disk) = removable(&place, "a") else { return };
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &disk.path]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    disk.vanish();
    let began = Instant::now();
    let (is_well, report) = loop {
        // Nothing is known of a disk before something is written to it.
        let answer = doctor(&place, &[]);
        if !answer.0 || began.elapsed() > Duration::from_secs(60) {
            break answer;
        }
    };
    assert!(!is_well && began.elapsed() < Duration::from_secs(90), "{report:#}");
    place.wait_for(|| place.health("tank") == "SUSPENDED");
    let began = Instant::now();
    let (is_well, report) = doctor(&place, &[]);
    assert!(!is_well && began.elapsed() < Duration::from_secs(60), "{report:#}");
    assert!(finding(&report, "pool-suspended").is_some(), "{report:#}");
    assert!(finding(&report, "not-replayed").is_some(), "{report:#}");
}

#[test]
fn a_remote_server_is_looked_at_from_here() {
    let place = Place::new();
    let (_daemon, port) = remote::serve(&place);
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let url = format!("https://127.0.0.1:{port}");
    let key = |name: &str| place.text(&format!("state/api/{name}"));
    let (certificate, token) = (key("certificate.pem"), key("token"));
    let start = ["--api", &url, "--api-certificate", &certificate, "--api-token", &token];
    let (is_well, report) = judged(&place.ask(&[&start[..], &["doctor", "--json"]].concat()));
    assert!(is_well, "{report:#}");
    assert_eq!(report["server"], "127.0.0.1");
    assert!(finding(&report, "mtu-right").is_some(), "{report:#}");
    assert_eq!(report["replays"].as_array().unwrap().len(), 3, "{report:#}");
}
