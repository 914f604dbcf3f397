//! Programs end when and how they should.

use super::*;
use crate::work::WorkDir;

const SOON: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Invocation {
    Invocation::new("sh").args(["-c", script])
}

#[test]
fn outcome_has_status_and_both_outputs() {
    let outcome = shell("echo out; echo err >&2; exit 3").run(SOON).unwrap();
    assert_eq!(outcome.status.code(), Some(3));
    assert_eq!(outcome.text(), "out\n");
    assert_eq!(outcome.stderr, "err\n");
}

#[test]
fn check_turns_a_failure_into_an_error_with_the_output() {
    let error = shell("echo reason >&2; exit 1").check(SOON).unwrap_err();
    assert!(matches!(&error, Error::Failed { said, .. } if said == "reason"), "{error}");
}

#[test]
fn run_kills_at_the_limit_and_tells_what_was_said() {
    let error = shell("echo before; exec sleep 100").run(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, Error::Timeout { said, .. } if said == "before"), "{error}");
}

#[test]
fn missing_tool_names_its_package_group() {
    let error = Invocation::tool("no-such-program", "guest").unwrap_err();
    assert!(error.to_string().contains("setup-deps.sh guest"), "{error}");
}

#[test]
fn drop_kills() {
    let scratch = WorkDir::open().unwrap().scratch("process-drop").unwrap();
    let process = Invocation::new("sleep").arg("100").spawn(&scratch.join("log")).unwrap();
    let proc_entry = PathBuf::from(format!("/proc/{}", process.pid()));
    assert!(process.is_running() && proc_entry.exists());
    drop(process);
    assert!(!proc_entry.exists());
}

#[test]
fn life_limit_kills_without_anybody_waiting() {
    let scratch = WorkDir::open().unwrap().scratch("process-life").unwrap();
    let process = Invocation::new("sleep").arg("100").spawn(&scratch.join("log")).unwrap();
    process.kill_after(Duration::from_millis(100));
    let status = process.wait(SOON).unwrap();
    assert!(!status.success());
}

#[test]
fn children_survive_the_thread_that_asked_for_them() {
    let scratch = WorkDir::open().unwrap().scratch("process-thread").unwrap();
    let log = scratch.join("log");
    let asked = thread::spawn(move || Invocation::new("sleep").arg("100").spawn(&log).unwrap());
    let process = asked.join().unwrap();
    // setpriv has set the death signal once the process has the command's name.
    let comm = PathBuf::from(format!("/proc/{}/comm", process.pid()));
    let start = Instant::now();
    while std::fs::read_to_string(&comm).unwrap() != "sleep\n" {
        assert!(start.elapsed() < SOON);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(process.is_running());
}

/// The test program itself runs as the parent: it starts a child as the harness does, prints its
/// pid, and is killed.
#[test]
fn children_die_with_a_killed_parent() {
    if let Some(log) = std::env::var_os("AQUIFER_TEST_PARENT") {
        let process = Invocation::new("sleep").arg("100").spawn(Path::new(&log)).unwrap();
        println!("child {}", process.pid());
        thread::sleep(SOON);
        return;
    }
    let scratch = WorkDir::open().unwrap().scratch("process-parent").unwrap();
    let test = "process::tests::children_die_with_a_killed_parent";
    let parent = Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("AQUIFER_TEST_PARENT", scratch.join("child.log"))
        .spawn(&scratch.join("log"))
        .unwrap();
    let start = Instant::now();
    let child = loop {
        let text = std::fs::read_to_string(scratch.join("log")).unwrap();
        let pid = text.lines().find_map(|line| line.split_once("child ").map(|(_, pid)| pid));
        if let Some(pid) = pid {
            break PathBuf::from(format!("/proc/{pid}/comm"));
        }
        assert!(start.elapsed() < SOON, "{text}");
        thread::sleep(Duration::from_millis(10));
    };
    while std::fs::read_to_string(&child).unwrap() != "sleep\n" {
        assert!(start.elapsed() < SOON);
        thread::sleep(Duration::from_millis(5));
    }
    parent.kill9();
    while std::fs::read_to_string(&child).is_ok_and(|name| name == "sleep\n") {
        assert!(start.elapsed() < SOON, "the child outlived its parent");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn cpu_time_grows_with_work() {
    let scratch = WorkDir::open().unwrap().scratch("process-cpu").unwrap();
    let process = shell("while :; do :; done").spawn(&scratch.join("log")).unwrap();
    let start = Instant::now();
    while process.cpu_time().unwrap() < Duration::from_millis(30) {
        assert!(start.elapsed() < SOON);
        thread::sleep(Duration::from_millis(10));
    }
}
