//! Our own portmapper, registration with rpcbind, and the questions of storage drivers.

use std::time::{Duration, Instant};

use aquifer_conformance::clients::Call;
use aquifer_rig::netns::{is_listening, wait_for_listener};
use aquifer_rig::process::{Invocation, Process};

use crate::{SOON, Served};

fn rpcbind(served: &Served) -> Process {
    let invocation = Invocation::tool("rpcbind", "clients").unwrap().arg("-f");
    let process = invocation.inside(&served.netns).spawn(&served.scratch.join("rpcbind")).unwrap();
    wait_for_listener(Some(&served.netns), 111, &process, SOON).unwrap();
    process
}

/// The lines of `rpcinfo -p`: program, version, protocol, port.
fn registered(served: &Served) -> Vec<String> {
    let text = served.clients.rpcinfo(&["-p", "127.0.0.1"]).done().unwrap().text();
    let words = |line: &str| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().skip(1).map(words).collect();
    lines.retain(|line| !line.starts_with("100000 "));
    lines.sort();
    lines
}

const OURS: [&str; 7] = [
    "100003 3 tcp 2049",
    "100005 1 tcp 2049",
    "100005 3 tcp 2049",
    "100021 4 tcp 2049",
    "100021 4 udp 2049",
    "100024 1 tcp 2049",
    "100024 1 udp 2049",
];

#[test]
fn our_own_portmapper_serves_where_no_rpcbind_runs() {
    let mut served = Served::started("portmap-own");
    says(&served, "Own([[::]:111])");
    assert_eq!(registered(&served), OURS);
    // As XCP-ng's driver asks; and Proxmox, over TCP and for a version that does not exist.
    let summary = served.clients.rpcinfo(&["-s", "127.0.0.1"]).done().unwrap().text();
    let nfs = summary.lines().find(|line| line.contains("100003")).unwrap();
    assert!(nfs.contains('3') && !nfs.contains('4'), "{summary}");
    for (program, version, served_) in
        [("nfs", "3", true), ("mountd", "3", true), ("mountd", "1", true), ("nfs", "4", false)]
    {
        let began = Instant::now();
        let asked = served.clients.rpcinfo(&["-T", "tcp", "127.0.0.1", program, version]).unwrap();
        assert_eq!(asked.status.success(), served_, "{program} {version}: {}", asked.said());
        assert!(began.elapsed() < Duration::from_secs(2), "refused at once");
    }
    // Over UDP.
    let asked = served.clients.rpcinfo(&["-n", "111", "-u", "127.0.0.1", "100000", "2"]).unwrap();
    assert!(asked.status.success(), "{}", asked.said());
    for (transport, version) in [("udp", "2"), ("udp", "3"), ("tcp", "4"), ("udp6", "4")] {
        let host = if transport.ends_with('6') { "::1" } else { "127.0.0.1" };
        let words = ["-T", transport, host, "portmapper", version];
        served.clients.rpcinfo(&words).done().unwrap();
    }
    // By version 4: on which transports, and whose.
    assert_eq!(netids(&served, "127.0.0.1"), BOTH_FAMILIES);
    let listed = served.clients.rpcinfo(&["-l", "127.0.0.1", "nfs", "3"]).done().unwrap().text();
    assert!(listed.contains("127.0.0.1.8.1") && listed.contains("inet6/tcp"), "{listed}");
    let exports = served.clients.showmount(&["--no-headers", "-e", "127.0.0.1"]).done().unwrap();
    let text = exports.text();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), ["/vms", "(everyone)"], "{text}");
    assert_eq!(words(lines[1]), ["/iso", "127.0.0.0/8"], "{text}");
    served.stop();
    assert!(!is_listening(Some(&served.netns), 111));
}

/// The transports of NFS, by `rpcinfo -s`.
fn netids(served: &Served, host: &str) -> Vec<String> {
    let summary = served.clients.rpcinfo(&["-s", host]).done().unwrap().text();
    let nfs = summary.lines().find(|line| line.contains("100003"));
    let words = nfs.and_then(|line| line.split_whitespace().nth(2)).unwrap_or_default();
    let mut netids: Vec<String> = words.split(',').map(str::to_owned).collect();
    netids.sort();
    netids
}

/// Waits for this line of the server: it may listen before.
#[track_caller]
fn says(served: &Served, what: &str) {
    let limit = Instant::now() + SOON;
    while !served.server.said().contains(what) {
        assert!(Instant::now() < limit, "{what}: {}", served.server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

const BOTH_FAMILIES: [&str; 2] = ["tcp", "tcp6"];

/// The tools' questions over IPv6 alone. And a client over IPv4 belongs to IPv4's networks, though
/// its socket is one of both families.
#[test]
fn over_ipv6_all_is_found_as_well() {
    let mut served = Served::started("portmap-v6");
    let clients = &served.clients;
    assert_eq!(netids(&served, "::1"), BOTH_FAMILIES);
    for (program, version, served_) in
        [("nfs", "3", true), ("mountd", "3", true), ("mountd", "1", true), ("nfs", "4", false)]
    {
        let began = Instant::now();
        let asked = clients.rpcinfo(&["-T", "tcp6", "::1", program, version]).unwrap();
        assert_eq!(asked.status.success(), served_, "{program} {version}: {}", asked.said());
        assert!(began.elapsed() < Duration::from_secs(2), "refused at once");
    }
    // By its universal address, without a portmapper.
    clients.rpcinfo(&["-a", "::1.8.1", "-T", "tcp6", "nfs", "3"]).done().unwrap();
    for option in ["-e", "-a", "-d"] {
        for host in ["::1", "127.0.0.1"] {
            clients.showmount(&[option, host]).done().unwrap();
        }
    }
    // /iso is for 127.0.0.0/8.
    clients.nfs_ls("nfs://127.0.0.1/iso/").done().unwrap();
    served.stop();
}

#[test]
fn an_rpcbind_that_runs_already_is_told_and_told_again_and_untold() {
    let mut served = Served::new("portmap-rpcbind");
    let rpcbind = rpcbind(&served);
    served.server.start(SOON).unwrap();
    says(&served, "Registered(127.0.0.1:111)");
    assert_eq!(registered(&served), OURS);
    assert_eq!(netids(&served, "127.0.0.1"), BOTH_FAMILIES);
    for (transport, host) in [("tcp", "127.0.0.1"), ("tcp6", "::1")] {
        for program in ["nfs", "mountd"] {
            served.clients.rpcinfo(&["-T", transport, host, program, "3"]).done().unwrap();
        }
        served.clients.showmount(&["-e", host]).done().unwrap();
    }
    // Killed, it leaves its registrations behind; the next server takes them over.
    served.server.restart(SOON).unwrap();
    says(&served, "Registered(127.0.0.1:111)");
    assert_eq!(registered(&served), OURS);
    assert_eq!(netids(&served, "127.0.0.1"), BOTH_FAMILIES);
    served.stop();
    assert_eq!(registered(&served), Vec::<String>::new());
    let left = served.clients.rpcinfo(&["-s", "127.0.0.1"]).done().unwrap().text();
    assert!(!left.contains("100003") && !left.contains("100005"), "{left}");
    assert!(rpcbind.is_running());
}

/// The machine's own status monitor, for its own mounts, keeps its place.
#[test]
fn a_status_monitor_of_somebody_else_is_left_alone() {
    let mut served = Served::new("portmap-statd");
    let _rpcbind = rpcbind(&served);
    let statd = Invocation::tool("rpc.statd", "clients").unwrap().line();
    // The namespace's own, which is empty.
    let start =
        format!("mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak && {statd} -F -d --no-notify");
    let statd = Invocation::new("sh").args(["-c", &start]).inside(&served.netns);
    let statd = statd.spawn(&served.scratch.join("statd")).unwrap();
    let of_monitor = |served: &Served| {
        let mut lines = registered(served);
        lines.retain(|line| line.starts_with("100024 "));
        lines
    };
    let began = Instant::now();
    while of_monitor(&served).len() < 2 {
        assert!(began.elapsed() < SOON && statd.is_running(), "{}", statd.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = of_monitor(&served);
    served.server.start(SOON).unwrap();
    says(&served, "Registered(127.0.0.1:111)");
    assert_eq!(of_monitor(&served), before);
    assert!(registered(&served).contains(&"100021 4 tcp 2049".to_string()));
    served.stop();
    assert_eq!(of_monitor(&served), before);
}

/// Another program has the portmapper's port.
#[test]
fn without_any_portmapper_the_server_serves_and_says_what_will_not_work() {
    let mut served = Served::new("portmap-none");
    let httpd = Invocation::new("busybox").args(["httpd", "-f", "-p", "127.0.0.1:111", "-h", "/"]);
    let httpd = httpd.inside(&served.netns).spawn(&served.scratch.join("httpd")).unwrap();
    wait_for_listener(Some(&served.netns), 111, &httpd, SOON).unwrap();
    served.server.start(SOON).unwrap();
    let asked = || served.clients.rpcinfo(&["-a", "127.0.0.1.8.1", "-T", "tcp", "nfs", "3"]);
    let began = Instant::now();
    while !served.server.said().contains("Unavailable") {
        assert!(began.elapsed() < SOON, "{}", served.server.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(asked().unwrap().status.success(), "NFS itself is served");
    served.stop();
}
