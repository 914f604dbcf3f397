//! Property `sharenfs` as clients see it: over TCP, at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{PATIENCE, Place, has};

/// The paths that MOUNT's EXPORT lists (RFC 1813 section 5.2.6).
fn exported(address: &str) -> Vec<String> {
    let mut reply = call(address, 100_005, 5, &[]);
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

/// MNT: the handle of a directory.
fn mounted(address: &str, path: &str) -> Vec<u8> {
    let mut reply = call(address, 100_005, 1, &opaque(path.as_bytes()));
    assert_eq!(reply.word(), 0, "{path}");
    reply.bytes()
}

/// The status of GETATTR.
fn getattr(address: &str, handle: &[u8]) -> u32 {
    call(address, 100_003, 1, &opaque(handle)).word()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    encoded.extend(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// Calls a procedure of version 3 of a program; returns the results behind RPC's SUCCESS.
fn call(address: &str, program: u32, procedure: u32, args: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // xid, CALL, RPC 2, program, version, procedure, credentials and verifier AUTH_NONE.
    let words: [u32; 10] = [7, 0, 2, program, 3, procedure, 0, 0, 0, 0];
    let length = u32::try_from(40 + args.len()).unwrap();
    let mut call = (0x8000_0000 | length).to_be_bytes().to_vec();
    call.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    call.extend(args);
    stream.write_all(&call).unwrap();
    let mut reply = Reply { stream };
    let length = reply.word() & 0x7fff_ffff;
    // xid, REPLY, accepted, verifier (flavor, length), SUCCESS.
    let header: Vec<u32> = (0..6).map(|_| reply.word()).collect();
    assert_eq!((header, length >= 28), (vec![7, 1, 0, 0, 0, 0], true));
    reply
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

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.word() as usize;
        let mut bytes = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

/// Where NFS listens, by the daemon's log: the newest start counts.
pub fn address(place: &Place) -> String {
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
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
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

/// MNT's status, or OK.
fn mount_status(address: &str, path: &str) -> u32 {
    call(address, 100_005, 1, &opaque(path.as_bytes())).word()
}

/// Hosts in the static file are known at once. A DNS server that does not answer delays the others,
/// and clients of those are asked to wait.
#[test]
fn hosts_are_looked_up_and_rules_are_told() {
    let place = Place::new();
    let dns = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = format!("[names]\nservers = [\"{}\"]\n", dns.local_addr().unwrap());
    std::fs::write(place.path("config"), config).unwrap();
    let a = place.image("a");
    let _daemon = place.spawn_serving(&["--config", &place.text("config")]);
    place.must(&["pool", "create", "tank", &a]);
    let nfs = address(&place);
    let refused_at_first = place.must(&["share", "why", "127.0.0.1", "/tank"]);
    assert!(refused_at_first.contains("sharenfs=off (default)"), "{refused_at_first}");

    let said = place.ask(&["set", "sharenfs=rw=localhost,root=localhost,insecure", "tank"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "by /etc/hosts");
    assert_eq!(exported(&nfs), ["/tank localhost"]);
    let handle = mounted(&nfs, "/tank");
    let why = place.must(&["share", "why", "localhost", "/tank"]);
    assert!(why.contains("127.0.0.1 may read and write /tank\n  rw=localhost lets it in"), "{why}");
    assert!(why.contains("its superuser is superuser here: root=localhost"), "{why}");
    let listed = place.must(&["share"]);
    assert!(listed.contains("rw=localhost,root=localhost,root_squash,anonuid=65534"), "{listed}");
    assert!(listed.contains("  localhost: 127.0.0.1"), "{listed}");

    let start = std::time::Instant::now();
    let said = place.ask(&["set", "sharenfs=rw=hv1.example,insecure", "tank"]);
    let took = start.elapsed();
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(6), "{took:?}");
    // By then the server has not answered twice, or not yet once on a machine that is busy.
    assert!(
        said.code == 0 && said.err.starts_with("note: host hv1.example in sharenfs: "),
        "{said:?}"
    );
    assert!(said.err.contains("; it is not let in until it has one"), "{said:?}");
    assert_eq!(getattr(&nfs, &handle), NFS3ERR_JUKEBOX, "it may be hv1.example");
    assert_eq!(mount_status(&nfs, "/tank"), MNT3ERR_ACCES);
    let why = place.must(&["share", "why", "127.0.0.1", "tank"]);
    assert!(why.starts_with("127.0.0.1 has to wait at /tank"), "{why}");
    place.wait_for(|| {
        let status = place.must(&["pool", "status", "tank"]);
        status.contains("host hv1.example in sharenfs: DNS server")
    });
    assert!(place.log().contains("names of hosts in sharenfs could not be looked up yet"));

    place.must(&["set", "sharenfs=ro=@127,none=10.0.0.1,insecure", "tank"]);
    assert_eq!(getattr(&nfs, &handle), NFS3_OK);
    place.must(&["set", "sharenfs=rw=10.0.0.1", "tank"]);
    for _ in 0..50 {
        assert_eq!(getattr(&nfs, &handle), NFS3ERR_ACCES);
    }
    let refusals = place.log().matches("no rule of sharenfs lets it in").count();
    assert_eq!(refusals, 1, "once a while, not per call");

    // A contradictory value changes nothing.
    place.refuses(
        &["set", "compression=zstd", "sharenfs=rw,ro", "tank"],
        "property sharenfs: rw and ro contradict each other: say one of them, or who may read and \
         write and who may only read: rw=CLIENTS,ro=CLIENTS",
    );
    let value = place.json(&["get", "sharenfs,compression", "tank"]);
    assert_eq!(
        (value[0]["value"].as_str(), value[1]["source"].as_str()),
        (Some("rw=10.0.0.1"), Some("default"))
    );
}

const MNT3ERR_ACCES: u32 = 13;
const NFS3ERR_ACCES: u32 = 13;
const NFS3_OK: u32 = 0;
const NFS3ERR_STALE: u32 = 70;
const NFS3ERR_JUKEBOX: u32 = 10_008;

#[test]
fn two_pools_are_served_side_by_side_and_leave_one_by_one() {
    let place = Place::new();
    let daemon = place.serve();
    let (a, b) = (place.image("a"), place.image("b"));
    place.must(&["pool", "create", "-o", "sharenfs=insecure", "tank", &a]);
    let said = place.ask(&["pool", "create", "-o", "sharenfs=insecure", "dozer", &b]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let nfs = address(&place);
    assert_eq!(exported(&nfs), ["/dozer", "/tank"]);
    let (dozer, tank) = (mounted(&nfs, "/dozer"), mounted(&nfs, "/tank"));
    assert_eq!((getattr(&nfs, &dozer), getattr(&nfs, &tank)), (NFS3_OK, NFS3_OK));

    // Exported on purpose: its files are gone for its clients, and other clients notice nothing.
    place.must(&["pool", "export", "tank"]);
    assert_eq!(exported(&nfs), ["/dozer"]);
    assert_eq!((getattr(&nfs, &dozer), getattr(&nfs, &tank)), (NFS3_OK, NFS3ERR_STALE));
    place.must(&["pool", "import", "-d", &a, "tank"]);
    assert_eq!((getattr(&nfs, &dozer), getattr(&nfs, &tank)), (NFS3_OK, NFS3_OK));

    // Missing at a start: its clients should wait for it.
    daemon.kill9();
    std::fs::rename(&a, place.path("elsewhere")).unwrap();
    let _daemon = place.serve();
    place.wait_for(|| address(&place) != nfs);
    let nfs = address(&place);
    assert_eq!((getattr(&nfs, &dozer), getattr(&nfs, &tank)), (NFS3_OK, NFS3ERR_JUKEBOX));
    std::fs::rename(place.path("elsewhere"), &a).unwrap();
    place.must(&["pool", "import", "-d", &a, "tank"]);
    assert_eq!((getattr(&nfs, &dozer), getattr(&nfs, &tank)), (NFS3_OK, NFS3_OK));
}

#[test]
fn a_destroyed_dataset_is_gone_for_clients_at_once() {
    let place = Place::new();
    let daemon = place.serve();
    let a = place.image("a");
    place.must(&["pool", "create", "-o", "sharenfs=insecure", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    place.must(&["create", "tank/vms/old"]);
    let nfs = address(&place);
    let (tank, vms) = (mounted(&nfs, "/tank"), mounted(&nfs, "/tank/vms"));
    let below = mounted(&nfs, "/tank/vms/old");
    let said = place.ask_with_input(&["destroy", "tank/vms"], "tank/vms\n");
    assert!(said.code == 1 && said.err.contains("-r"), "{said:?}");
    let said = place.ask_with_input(&["destroy", "-r", "tank/vms"], "tank\n");
    assert!(said.code == 1 && said.err.contains("is not its name"), "{said:?}");
    assert_eq!([getattr(&nfs, &vms), getattr(&nfs, &below)], [NFS3_OK, NFS3_OK]);
    let said = place.ask_with_input(&["destroy", "-r", "tank/vms"], "tank/vms\n");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(exported(&nfs), ["/tank"]);
    assert_eq!(getattr(&nfs, &tank), NFS3_OK);
    assert_eq!([getattr(&nfs, &vms), getattr(&nfs, &below)], [NFS3ERR_STALE; 2]);
    assert_eq!(place.ask(&["destroy", "-f", "tank/vms"]).code, 1);
    assert!(place.ask(&["destroy", "-f", "tank"]).err.contains("destroy the pool instead"));
    // The name is free, and now names another file system.
    place.must(&["create", "tank/vms"]);
    assert_eq!(getattr(&nfs, &vms), NFS3ERR_STALE);
    let said = place.ask(&["clear", "tank/vms", "/disk"]);
    assert!(said.code == 1 && said.err.contains("known to be damaged"), "{said:?}");
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    let report = place.json(&["inspect", "--deep", "--data", &a]);
    assert_eq!(report["errors"], 0, "{report}");
}

#[test]
fn what_to_type_on_a_hypervisor() {
    let place = Place::new();
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &place.image("a")]);
    place.must(&["create", "tank/vms"]);
    let connect = |hypervisor: &str| {
        place.ask(&["connect", "--host=storage1", "--for", hypervisor, "tank/vms"])
    };
    let said = connect("esxi");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("aquifer set sharenfs=rw=HOST:@NETWORK tank/vms"), "{said:?}");
    place.must(&["set", "sharenfs=insecure", "tank/vms"]);
    for (hypervisor, line) in [
        ("esxi", "esxcli storage nfs add -H storage1 -s /tank/vms -v vms"),
        ("xcp-ng", "device-config:serverpath=/tank/vms device-config:nfsversion=3"),
        ("proxmox", "pvesm add nfs vms --server storage1 --export /tank/vms"),
        ("libvirt", "mount -t nfs -o vers=3,hard storage1:/tank/vms /var/lib/libvirt"),
        ("linux", "mount -t nfs -o vers=3,hard storage1:/tank/vms /mnt"),
    ] {
        let said = connect(hypervisor);
        assert!(said.code == 0 && said.out.contains(line), "{hypervisor}: {said:?}");
    }
    // Only with sync=always: this driver loses data that a restart loses.
    let said = connect("qemu");
    assert!(said.code == 1 && said.err.contains("sync=always"), "{said:?}");
    place.must(&["set", "sync=always", "tank/vms"]);
    assert!(connect("qemu").out.contains("file=nfs://storage1/tank/vms/DISK"));
    assert_eq!(place.ask(&["connect", "--for", "hyper-v", "tank/vms"]).code, 2);
    assert_eq!(place.ask(&["connect", "--for", "esxi", "tank/no"]).code, 1);
}

/// A server that could not start holds no pool: the pool leaves at once, and all of its disks.
#[test]
fn a_pool_that_is_not_served_is_exported_at_once() {
    let place = Place::new();
    let a = place.image("a");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let _daemon = place.spawn_serving(&["--nfs-addr", &at]);
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let status = place.must(&["pool", "status", "tank"]);
    let words: Vec<&str> = status.split_whitespace().collect();
    let note = format!("Not served over NFS: cannot listen on {at}");
    assert!(words.join(" ").contains(&note), "{status}");
    let begun = std::time::Instant::now();
    place.must(&["pool", "export", "tank"]);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let log = place.log();
    assert!(log.matches("ERROR").count() == log.matches("nfs.not_served").count(), "{log}");
    // Its disks are free, and once the port is too, it is served.
    drop(taken);
    place.must(&["pool", "import", "-d", &a, "tank"]);
    assert_eq!(exported(&at), ["/tank/vms"]);
}

/// A client's file, stable or committed, is there after kill -9. The handles would be valid too,
/// but this client looks them up again.
#[test]
fn what_a_client_wrote_survives_kill_9() {
    let place = Place::new();
    if !(has("nfs-cp") && has("nfs-cat")) {
        return;
    }
    let (a, b) = (place.image("a"), place.image("b"));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
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
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    let report = place.json(&["inspect", "--deep", "--data", &a, &b]);
    assert_eq!((&report["exported"], &report["errors"]), (&true.into(), &0.into()), "{report}");
}
