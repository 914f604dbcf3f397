//! Programs that are NFS clients themselves, and the probes that hypervisors send before they
//! mount, against a running daemon: well-known ports, the portmapper, restarts between calls.

use std::fs;
use std::time::Duration;

use aquifer_conformance::capture::{Capture, MOUNT, PORTMAP};
use aquifer_conformance::clients::{Bench, Call};
use aquifer_conformance::{Error, Result, pattern};
use aquifer_rig::process::Invocation;

use crate::place::{Aquifer, DATASET, EXPORT, MIB, SOON, Setup, text};

/// Proxmox's probes before it mounts (PVE::Storage::NFSPlugin), and common calls of administrators.
/// XCP-ng's whole sequence has a test of its own.
#[test]
fn client_probes_of_hypervisors_are_answered() -> Result<()> {
    let aquifer = Aquifer::start("probes", Setup::default())?;
    let capture = Capture::start(aquifer.netns(), "lo", aquifer.scratch())?;
    let clients = aquifer.clients();
    for headers in [&["--no-headers"][..], &[]] {
        let exports = clients.showmount(&[headers, &["--exports", "127.0.0.1"]].concat()).done()?;
        let last = exports.text().lines().last().map(str::to_owned).unwrap_or_default();
        assert!(last.starts_with(EXPORT) && exports.took < PROXMOX, "{exports:?}");
    }
    let listed = clients.rpcinfo(&["-s", "127.0.0.1"]).done()?.text();
    let nfs = listed.lines().find(|line| line.contains("100003")).map(str::to_owned);
    let versions = nfs.as_deref().and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(versions, Some("3"), "no NFSv4: {listed}");
    for transport in ["tcp", "udp"] {
        // The portmapper itself answers over both.
        clients.rpcinfo(&["-T", transport, "127.0.0.1", "portmapper", "2"]).done()?;
    }
    for program in ["nfs", "mountd"] {
        let said = clients.rpcinfo(&["-T", "tcp", "127.0.0.1", program, "3"]).done()?;
        assert!(said.text().contains("ready and waiting") && said.took < PROXMOX, "{said:?}");
    }
    // A server without version 4 must refuse at once: the driver waits for the answer.
    let four = clients.rpcinfo(&["-T", "tcp", "127.0.0.1", "nfs", "4"])?;
    assert!(!four.status.success() && four.took < Duration::from_secs(5), "{four:?}");
    // XCP-ng probes the port with one byte and closes it, Proxmox without any byte.
    for byte in ["printf '\\n' >&3", "true"].repeat(10) {
        let probe = &format!("exec 3<>/dev/tcp/127.0.0.1/2049 && {byte}");
        Invocation::new("bash").args(["-c", probe]).inside(aquifer.netns()).check(SOON)?;
    }
    aquifer.must(&["set", "sharenfs=off", DATASET])?;
    let refused = clients.nfs_ls(&aquifer.url(""))?;
    assert!(!refused.status.success(), "{refused:?}");
    aquifer.must(&["set", "sharenfs=insecure", DATASET])?;
    clients.nfs_ls(&aquifer.url("")).done()?;
    let talk = capture.finish()?;
    eprintln!("{talk}");
    let nfs = (100_003, &[0, 17, 18, 19][..]);
    talk.is_sound_with(&[nfs, (MOUNT, &[0, 1, 5]), (PORTMAP, &[0, 3, 4])])?;
    aquifer.finish()
}

/// `rpcinfo` and `showmount` as people and drivers call them, over both families and with the
/// default configuration; their output is true.
#[test]
fn client_discovery_tells_the_truth_over_ipv4_and_ipv6() -> Result<()> {
    let mut aquifer = Aquifer::start("discovery", Setup::default())?;
    aquifer.must(&["create", "tank/iso"])?;
    aquifer.must(&[
        "set",
        "sharenfs=rw=localhost:@10.1,ro=[fd00::]/8,none=10.1.9.9",
        "tank/iso",
    ])?;
    // Also after the server was killed: its leftovers must not block the next one.
    for killed in [false, true] {
        if killed {
            aquifer.kill9();
            eprintln!("serving again after {:?}", aquifer.serve()?);
        }
        let clients = aquifer.clients();
        for (host, transports) in [("127.0.0.1", ["tcp", "udp"]), ("::1", ["tcp6", "udp6"])] {
            for version in ["3", "4"] {
                for transport in transports {
                    clients.rpcinfo(&["-T", transport, host, "portmapper", version]).done()?;
                }
            }
            for program in ["nfs", "mountd"] {
                clients.rpcinfo(&["-T", transports[0], host, program, "3"]).done()?;
            }
            let four = clients.rpcinfo(&["-T", transports[0], host, "nfs", "4"])?;
            assert!(!four.status.success() && four.took < Duration::from_secs(5), "{four:?}");
            let summary = clients.rpcinfo(&["-s", host]).done()?.text();
            let nfs = summary.lines().find(|line| line.contains("100003")).unwrap();
            assert!(nfs.contains("tcp") && nfs.contains("tcp6"), "{summary}");
            let exports = clients.showmount(&["--no-headers", "-e", host]).done()?.text();
            let mut lines: Vec<Vec<&str>> =
                exports.lines().map(|line| line.split_whitespace().collect()).collect();
            lines.sort();
            let iso = ["/tank/iso", "-10.1.9.9,localhost,10.1.0.0/16,fd00::/8"];
            assert_eq!(lines, [&iso[..], &[EXPORT, "(everyone)"]], "{exports}");
        }
        let mounted = clients.showmount(&["--no-headers", "-a", "127.0.0.1"]).done()?.text();
        assert_eq!(mounted.trim(), "", "nobody since the start");
        clients.nfs_ls(&aquifer.url("")).done()?;
        let mounted = clients.showmount(&["--no-headers", "-a", "::1"]).done()?.text();
        assert!(["", "127.0.0.1:/tank/vms"].contains(&mounted.trim()), "{mounted}");
    }
    let why = aquifer.must(&["share", "why", "::1", "/tank/iso"])?;
    eprintln!("{why}");
    aquifer.finish()
}

/// An export to everybody comes with a warning. Named hosts are admitted from ports of their
/// superuser, and by default from no others.
#[test]
fn client_access_is_narrow_by_default_and_warned_of() -> Result<()> {
    let aquifer = Aquifer::start("access", Setup::default())?;
    let clients = aquifer.clients();
    let set = |value: &str| aquifer.ask(&["set", &format!("sharenfs={value}"), DATASET], SOON);
    for (value, risks) in [("on", 1), ("insecure", 2), ("rw=127.0.0.1", 0), ("rw=@127,ro", 0)] {
        let said = set(value)?;
        assert!(said.status.success(), "{value}: {said:?}");
        let said = said.said();
        let status = aquifer.must(&["pool", "status"])?;
        for text in [said, status] {
            assert_eq!(text.matches("as root").count(), risks, "{value}: {text}");
        }
        let audit = aquifer.ask(&["share", "--audit"], SOON)?;
        assert_eq!(audit.status.success(), risks == 0, "{value}: {audit:?}");
    }
    set("rw=127.0.0.1")?;
    clients.nfs_ls(&aquifer.url("")).done()?;
    let as_nobody = |program: &str| {
        let arguments = ["--reuid=65534", "--clear-groups", program];
        Invocation::new("setpriv").args(arguments).arg(aquifer.url("")).inside(aquifer.netns())
    };
    let refused = as_nobody("nfs-ls").run(SOON)?;
    assert!(!refused.status.success(), "{refused:?}");
    set("rw=127.0.0.1,insecure")?;
    as_nobody("nfs-ls").check(SOON)?;
    aquifer.finish()
}

/// Copies and images survive restarts of both kinds between calls.
#[test]
fn client_tools_find_their_data_after_restarts() -> Result<()> {
    let setup = Setup { sync: "always", ..Setup::default() };
    let mut aquifer = Aquifer::start("tools", setup)?;
    let clients = aquifer.clients();
    let mut content = vec![0; 30_000_001];
    pattern::fill(3, 0, &mut content);
    let local = aquifer.scratch().join("local");
    fs::write(&local, &content).map_err(Error::at("write", &local))?;
    let local = text(&local);
    clients.nfs_cp(&local, &aquifer.url("copied")).done()?;
    let (raw, qcow2) = (aquifer.url("disk.raw"), aquifer.url("disk.qcow2"));
    clients.image_convert(("raw", &local), ("raw", &raw)).done()?;
    clients.image_create("qcow2", &qcow2, 64 * MIB).done()?;
    let write = ["write -P 0x5a 1M 128k", "write -z 1M 64k", "write -P 0xa5 63M 64k", "flush"];
    clients.image_io("qcow2", &qcow2, &write).done()?;
    let bench =
        Bench { count: 4000, depth: 32, bytes: 4096, write: true, flush_every: 64, pattern: 0x77 };
    let rate = clients.image_bench("raw", &raw, bench)?;
    eprintln!("{rate:.0} durable writes of 4 KiB/s");
    // The bench has overwritten the start of the raw image.
    let front = usize::try_from(bench.count * bench.bytes).unwrap();
    content[..front].fill(bench.pattern);
    fs::write(&local, &content).map_err(Error::at("write", local.as_ref()))?;
    for restart in ["kill -9", "SIGTERM"] {
        match restart {
            "kill -9" => aquifer.kill9(),
            _ => aquifer.stop()?,
        }
        eprintln!("serving again after {restart} and {:?}", aquifer.serve()?);
        let listed = clients.nfs_ls(&aquifer.url("")).done()?.text();
        assert!(listed.contains("copied") && listed.contains("30000001"), "{listed}");
        let copied = clients.nfs_cat(&aquifer.url("copied")).done()?.stdout;
        assert_eq!(pattern::first_difference(3, 0, &copied), None);
        assert_eq!(copied.len(), content.len());
        clients.image_compare(("raw", &local), ("raw", &raw)).done()?;
        let read = ["read -P 0 1M 64k", "read -P 0x5a 1088k 64k", "read -P 0xa5 63M 64k"];
        clients.image_io("qcow2", &qcow2, &read).done()?;
        let checked = clients.image_check("qcow2", &qcow2).done()?.text();
        assert!(checked.contains("No errors were found"), "{checked}");
    }
    let converted = aquifer.url("converted.qcow2");
    clients.image_convert(("raw", &raw), ("qcow2", &converted)).done()?;
    clients.image_compare(("raw", &local), ("qcow2", &converted)).done()?;
    aquifer.finish()
}

/// Proxmox's time limit for a probe is 2 s; the rest is for starting programs on a busy machine.
const PROXMOX: Duration = Duration::from_secs(10);
