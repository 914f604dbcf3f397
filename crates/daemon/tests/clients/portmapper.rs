//! Our own portmapper, registration with rpcbind, and what the storage drivers ask.

use std::time::{Duration, Instant};

use aquifer_conformance::clients::Call;
use aquifer_conformance::netns::{is_listening, wait_for_listener};
use aquifer_conformance::process::{Invocation, Process};

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
    assert!(served.server.said().contains("Own(0.0.0.0:111)"), "{}", served.server.said());
    assert_eq!(registered(&served), OURS);
    // As XCP-ng's driver asks; and Proxmox, over TCP and for a version that there is not.
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
    let exports = served.clients.showmount(&["--no-headers", "-e", "127.0.0.1"]).done().unwrap();
    let text = exports.text();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[0]), ["/vms", "(everyone)"], "{text}");
    assert_eq!(words(lines[1]), ["/iso", "127.0.0.0/8"], "{text}");
    served.stop();
    assert!(!is_listening(Some(&served.netns), 111));
}

#[test]
fn an_rpcbind_that_runs_already_is_told_and_told_again_and_untold() {
    let mut served = Served::new("portmap-rpcbind");
    let rpcbind = rpcbind(&served);
    served.server.start(SOON).unwrap();
    assert!(served.server.said().contains("Registered(127.0.0.1:111)"), "{}", served.server.said());
    assert_eq!(registered(&served), OURS);
    assert!(served.clients.showmount(&["-e", "127.0.0.1"]).unwrap().status.success());
    // Killed, it leaves its registrations behind; the next one takes them over.
    served.server.restart(SOON).unwrap();
    assert!(served.server.said().contains("Registered(127.0.0.1:111)"), "{}", served.server.said());
    assert_eq!(registered(&served), OURS);
    served.stop();
    assert_eq!(registered(&served), Vec::<String>::new());
    assert!(rpcbind.is_running());
}

/// The machine's own status monitor, for what it mounts from elsewhere, keeps its place.
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
    assert!(served.server.said().contains("Registered(127.0.0.1:111)"), "{}", served.server.said());
    assert_eq!(of_monitor(&served), before);
    assert!(registered(&served).contains(&"100021 4 tcp 2049".to_string()));
    served.stop();
    assert_eq!(of_monitor(&served), before);
}

/// Something that is no portmapper has the port.
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
