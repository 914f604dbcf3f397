//! Guests that are hosts on a network of their own, where the server can call them back. They run
//! the services that a Debian or XCP-ng host runs beside its mounts (rpcbind, status monitor).

use aquifer_conformance::Result;
use aquifer_conformance::capture::Capture;
use aquifer_conformance::guest::initramfs::{GuestFile, program_files};
use aquifer_conformance::guest::{Guest, GuestConfig};
use aquifer_conformance::qemu::Network;
use aquifer_rig::work::WorkDir;

use crate::place::{Aquifer, SOON};

/// The server's address among the hosts.
pub const SERVER: &str = "10.9.0.1";
const TAPS: [&str; 3] = ["tap1", "tap2", "tap3"];

/// A host to boot.
pub struct Host<'a> {
    /// Its tap device, 1 to 3.
    pub number: u8,
    /// Its name: `one` is 10.9.0.11, any other is 10.9.0.12.
    pub name: &'a str,
    /// Programs beside busybox and the services.
    pub programs: &'a [&'a str],
    /// The state of its status monitor from an earlier life.
    pub monitored: Option<Monitor>,
}

/// The files of a status monitor.
pub struct Monitor {
    /// The monitored host: the file's name.
    pub of: String,
    /// The file's content.
    pub entry: String,
    /// How many times the host has started, as its monitor counts.
    pub state: Vec<u8>,
}

impl Monitor {
    /// The present files of a host's monitor.
    pub fn of(guest: &Guest) -> Result<Monitor> {
        let of = guest.check("ls /var/lib/nfs/sm", SOON)?.output.trim().to_owned();
        let entry = guest.check(&format!("cat /var/lib/nfs/sm/{of}"), SOON)?.output;
        let bytes = guest.check("od -An -v -t u1 /var/lib/nfs/state", SOON)?.output;
        let state = bytes.split_whitespace().filter_map(|byte| byte.parse().ok()).collect();
        Ok(Monitor { of, entry, state })
    }
}

/// Connects the server to the hosts' network, and captures the traffic there.
pub fn network(aquifer: &Aquifer) -> Result<Capture> {
    aquifer.netns().bridge(&format!("{SERVER}/24"), &TAPS)?;
    Capture::start(aquifer.netns(), "bridge", aquifer.scratch())
}

/// Two hosts, booted at the same time.
pub fn both(boot: impl Fn(u8, &str) -> Result<Guest> + Sync) -> Result<(Guest, Guest)> {
    let (one, two) = std::thread::scope(|scope| {
        let two = scope.spawn(|| boot(2, "two"));
        (boot(1, "one"), two.join().unwrap())
    });
    Ok((one?, two?))
}

/// Boots a host, nothing mounted yet.
pub fn boot(aquifer: &Aquifer, host: &Host<'_>) -> Result<Guest> {
    let mut files = vec![
        text_file("/etc/nsswitch.conf", "hosts: files\nservices: files\nrpc: files\n"),
        // rpcbind looks up its port, rpcinfo and showmount the programs.
        text_file("/etc/services", "sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n"),
        text_file("/etc/rpc", "portmapper 100000\nnfs 100003 nfsprog\nmountd 100005 mount\n"),
        text_file("/etc/netconfig", include_str!("locks/netconfig")),
        text_file(
            "/etc/hosts",
            &format!("127.0.0.1 localhost\n10.9.0.11 one\n10.9.0.12 two\n{SERVER} storage\n"),
        ),
    ];
    for program in ["rpcbind", "rpc.statd", "sm-notify"].iter().chain(host.programs) {
        files.extend(program_files(program, "clients")?);
    }
    if let Some(Monitor { of, entry, state }) = &host.monitored {
        files.push(text_file(&format!("/var/lib/nfs/sm/{of}"), entry));
        let (path, content) = ("/var/lib/nfs/state".into(), state.as_slice().into());
        files.push(GuestFile { path, mode: 0o644, content });
    }
    // Programs share libraries.
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    let device = TAPS[usize::from(host.number) - 1].to_string();
    let defaults = GuestConfig::default();
    let config = GuestConfig {
        netns: Some(aquifer.netns().clone()),
        network: Network::Tap { device, number: host.number },
        // XCP-ng also tries to mount with version 4.
        modules: [&defaults.modules[..], &["nfsv4"]].concat(),
        files,
        ..defaults
    };
    let guest = Guest::boot(&WorkDir::open()?, aquifer.scratch(), &config)?;
    let (name, last) = (host.name, if host.name == "one" { 11 } else { 12 });
    let setup = format!(
        "hostname {name} && ip addr flush dev eth0 && ip addr add 10.9.0.{last}/24 dev eth0 && \
         mkdir -p /run /var/lib/nfs/sm /var/lib/nfs/sm.bak && rmdir /var/run && \
         ln -s /run /var/run && echo '_rpc:x:101:101::/:/bin/false' >>/etc/passwd && \
         export PATH=$PATH:/usr/sbin:/sbin && rpcbind && sm-notify && rpc.statd --no-notify"
    );
    guest.check(&setup, SOON)?;
    Ok(guest)
}

fn text_file(path: &str, content: &str) -> GuestFile {
    GuestFile { path: path.into(), mode: 0o644, content: content.into() }
}
