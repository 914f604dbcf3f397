//! Namespaces are separate from the machine and leave nothing behind.

use super::*;
use crate::work::WorkDir;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn namespace_has_loopback_only_and_a_run_directory_of_its_own() {
    let scratch = WorkDir::open().unwrap().scratch("netns").unwrap();
    let netns = NetNs::new(&scratch).unwrap();
    let links = Invocation::new("ip").args(["-o", "link"]).inside(&netns).check(SOON).unwrap();
    assert_eq!(links.text().lines().count(), 1, "{}", links.text());
    assert!(links.text().contains("lo:") && links.text().contains("UP"), "{}", links.text());
    let touch = Invocation::new("touch").arg("/run/aquifer-test-of-a-namespace");
    touch.inside(&netns).check(SOON).unwrap();
    assert!(!PathBuf::from("/run/aquifer-test-of-a-namespace").exists());
}

/// Starts a program that the death signal does not reach: an orphan, or one of another user.
fn escape(netns: &NetNs) -> PathBuf {
    let script = "setpriv --reuid 65534 sleep 100 >/dev/null 2>&1 & echo $!";
    let script = if netns.user { "sleep 100 >/dev/null 2>&1 & echo $!" } else { script };
    let shell = Invocation::new("sh").args(["-c", script]).inside(netns);
    let pid = shell.check(SOON).unwrap().text().trim().to_owned();
    let comm = PathBuf::from(format!("/proc/{pid}/comm"));
    let start = Instant::now();
    while !sleeps(&comm) {
        assert!(start.elapsed() < SOON);
        thread::sleep(Duration::from_millis(5));
    }
    comm
}

fn sleeps(comm: &PathBuf) -> bool {
    let alive = |comm: &PathBuf| {
        // A killed orphan stays in the process table until init reaps it, without a namespace.
        comm.parent().is_some_and(|process| process.join("ns/net").exists())
    };
    std::fs::read_to_string(comm).is_ok_and(|name| name == "sleep\n") && alive(comm)
}

#[test]
fn all_that_is_in_it_ends_with_the_namespace() {
    let scratch = WorkDir::open().unwrap().scratch("netns-end").unwrap();
    let netns = NetNs::new(&scratch).unwrap();
    let escaped = escape(&netns);
    let holder = PathBuf::from(format!("/proc/{}", netns.holder.0.pid()));
    let clone = netns.clone();
    drop(netns);
    assert!(holder.exists() && sleeps(&escaped), "a clone still holds it");
    drop(clone);
    assert!(!holder.exists() && !sleeps(&escaped));
}

#[test]
fn all_that_is_in_it_ends_with_a_killed_test_program() {
    const VARIABLE: &str = "AQUIFER_TEST_NETNS_PARENT";
    let scratch = WorkDir::open().unwrap().scratch("netns-parent").unwrap();
    if std::env::var_os(VARIABLE).is_some() {
        let netns = NetNs::new(&scratch).unwrap();
        println!("escaped {}", escape(&netns).display());
        thread::sleep(SOON);
        return;
    }
    let test = "netns::tests::all_that_is_in_it_ends_with_a_killed_test_program";
    let parent = Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLE, "1")
        .env("AQUIFER_WORK_DIR", scratch.path())
        .spawn(&scratch.join("log"))
        .unwrap();
    let start = Instant::now();
    let escaped = loop {
        let text = std::fs::read_to_string(scratch.join("log")).unwrap();
        if let Some(line) = text.lines().find_map(|line| line.split_once("escaped ")) {
            break PathBuf::from(line.1);
        }
        assert!(start.elapsed() < SOON, "{text}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(sleeps(&escaped));
    parent.kill9();
    while sleeps(&escaped) {
        assert!(start.elapsed() < SOON, "something outlived the test program");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn listener_is_seen_and_a_connection_is_none() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(is_listening(None, port));
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (served, _) = listener.accept().unwrap();
    drop(listener);
    // A child of another test holds the listener for the moment between its fork and its exec.
    let start = Instant::now();
    while is_listening(None, port) {
        assert!(start.elapsed() < SOON, "a connection counts as a listener");
        thread::sleep(Duration::from_millis(10));
    }
    drop((client, served));
}
