//! Property `sharenfs` as clients see it: over TCP, at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{Place, has};

/// The paths that MOUNT's EXPORT lists (RFC 1813 section 5.2.6).
fn exported(address: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // xid, CALL, RPC 2, MOUNT, version 3, EXPORT, credentials and verifier AUTH_NONE.
    let words: [u32; 10] = [7, 0, 2, 100_005, 3, 5, 0, 0, 0, 0];
    let mut call = (0x8000_0000u32 | 40).to_be_bytes().to_vec();
    call.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    stream.write_all(&call).unwrap();
    let mut reply = Reply { stream };
    let length = reply.word() & 0x7fff_ffff;
    // xid, REPLY, accepted, verifier (flavor, length), SUCCESS.
    let header: Vec<u32> = (0..6).map(|_| reply.word()).collect();
    assert_eq!((header, length >= 28), (vec![7, 1, 0, 0, 0, 0], true));
    let mut paths = Vec::new();
    while reply.word() == 1 {
        paths.push(reply.text());
        while reply.word() == 1 {
            let client = reply.text();
            paths.last_mut().unwrap().push_str(&format!(" {client}"));
        }
    }
    paths
}

struct Reply {
    stream: TcpStream,
}

impl Reply {
    fn word(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.stream.read_exact(&mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    }

    fn text(&mut self) -> String {
        let length = self.word() as usize;
        let mut bytes = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        String::from_utf8(bytes).unwrap()
    }
}

/// Where NFS listens, by the daemon's log: the newest start counts.
fn address(place: &Place) -> String {
    let log = place.log();
    let start = log.lines().rev().find(|line| line.contains("serving NFS addresses=[")).unwrap();
    let rest = start.split_once("addresses=[").unwrap().1;
    rest.split_once(']').unwrap().0.to_string()
}

#[test]
fn exports_follow_the_property_at_once() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    let nfs = address(&place);
    assert_eq!(exported(&nfs), [""; 0]);
    place.must(&["create", "-o", "sharenfs=on", "tank/vms"]);
    assert_eq!(exported(&nfs), ["/tank/vms"]);
    place.must(&["create", "tank/vms/one"]);
    assert_eq!(exported(&nfs), ["/tank/vms", "/tank/vms/one"]);
    place.must(&["set", "sharenfs=rw=10.1.0.0/16:[fd00::]/8", "tank/vms"]);
    let clients = "10.1.0.0/16 fd00::/8";
    assert_eq!(
        exported(&nfs),
        [format!("/tank/vms {clients}"), format!("/tank/vms/one {clients}")]
    );
    place.must(&["set", "sharenfs=off", "tank/vms/one"]);
    assert_eq!(exported(&nfs), [format!("/tank/vms {clients}")]);
    place.must(&["inherit", "sharenfs", "tank/vms"]);
    assert_eq!(exported(&nfs), [""; 0]);
    place.must(&["set", "sharenfs=ro", "tank"]);
    assert_eq!(exported(&nfs), ["/tank", "/tank/vms"]);

    daemon.kill9();
    let _daemon = place.serve();
    place.wait_for(|| address(&place) != nfs);
    assert_eq!(exported(&address(&place)), ["/tank", "/tank/vms"]);
    place.must(&["pool", "export", "tank"]);
    assert!(TcpStream::connect(address(&place)).is_err(), "nothing is served, nobody listens");
}

#[test]
fn a_second_pool_is_told_that_it_is_not_served() {
    let place = Place::new();
    let _daemon = place.serve();
    let (a, b) = (place.image("a"), place.image("b"));
    place.must(&["pool", "create", "-o", "sharenfs=on", "tank", &a]);
    let note = "note: pool \"dozer\" is not served over NFS: this version serves the exports of \
                one pool, and that is \"tank\"\n";
    let said = place.ask(&["pool", "create", "-o", "sharenfs=on", "dozer", &b]);
    assert_eq!((said.code, said.err.as_str()), (0, note));
    assert_eq!(exported(&address(&place)), ["/tank"]);
    let status = place.must(&["pool", "status", "dozer"]);
    assert!(status.contains("  note: pool \"dozer\" is not served over NFS"), "{status}");
    assert!(!place.must(&["pool", "status", "tank"]).contains("note:"));
    // Its turn comes when the other one goes.
    place.must(&["pool", "export", "tank"]);
    assert_eq!(exported(&address(&place)), ["/dozer"]);
}

/// A client's file, stable or committed, is there after kill -9; the handles too would be, but
/// this client asks anew.
#[test]
fn what_a_client_wrote_survives_kill_9() {
    let place = Place::new();
    if !(has("nfs-cp") && has("nfs-cat")) {
        return;
    }
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["create", "-o", "sharenfs=on", "tank/vms"]);
    let content: Vec<u8> =
        (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(place.path("local"), &content).unwrap();
    let url = |place: &Place| {
        let port = address(place).rsplit_once(':').unwrap().1.to_string();
        format!("nfs://127.0.0.1/tank/vms/disk?nfsport={port}&mountport={port}&version=3")
    };
    let copy = Command::new("nfs-cp").arg(place.path("local")).arg(url(&place)).output().unwrap();
    assert!(copy.status.success(), "{copy:?}\n{}", place.log());
    let before = address(&place);
    daemon.kill9();
    let daemon = place.serve();
    place.wait_for(|| address(&place) != before);
    let read = Command::new("nfs-cat").arg(url(&place)).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert!(read.stdout == content, "{} of {} bytes", read.stdout.len(), content.len());
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.ended().success());
    let report = place.json(&["inspect", "--deep", "--data", &a, &b]);
    assert_eq!((&report["exported"], &report["errors"]), (&true.into(), &0.into()), "{report}");
}
