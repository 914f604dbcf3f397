use std::fs;
use std::io::Write;
use std::time::Instant;

use tempfile::TempDir;

use super::*;

const ATA: &str = include_str!("ata.json");
const NVME: &str = include_str!("nvme.json");

/// A program in place of `smartctl`. A shell writes it: a child of this process, started by another
/// test meanwhile, could inherit a file that is open for writing, and nobody can run it then.
fn program(script: &str) -> (TempDir, Smart) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("smartctl");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let script = format!("#!/bin/sh\n{script}\n");
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    let smart = Smart { patience: Duration::from_secs(2), ..Smart::new(path) };
    (dir, smart)
}

fn why(error: &SmartError) -> String {
    let text = error.to_string();
    text.split_once(' ').unwrap().1.to_string()
}

#[test]
fn an_ata_disk_and_an_nvme_disk() {
    let ata = SmartInfo { asked_ns: 0, ..health(ATA.as_bytes()).unwrap() };
    let wanted = SmartInfo {
        passed: true,
        temperature_c: Some(34),
        power_on_hours: Some(21034),
        reallocated_sectors: Some(0),
        pending_sectors: Some(3),
        uncorrectable_sectors: Some(1),
        ..SmartInfo::default()
    };
    assert_eq!(ata, wanted);
    let nvme = SmartInfo { asked_ns: 0, ..health(NVME.as_bytes()).unwrap() };
    let wanted = SmartInfo {
        passed: false,
        temperature_c: Some(41),
        power_on_hours: Some(11503),
        media_errors: Some(12),
        used_percent: Some(103),
        ..SmartInfo::default()
    };
    assert_eq!(nvme, wanted);
}

#[test]
fn whatever_else_is_printed_is_no_health() {
    assert_eq!(health(b"").unwrap_err(), "it printed no JSON");
    assert_eq!(health(b"\xff\x00{{{").unwrap_err(), "it printed no JSON");
    assert_eq!(health(b"[]").unwrap_err(), "it has none");
    assert_eq!(health(br#"{"smart_status":{"passed":"yes"}}"#).unwrap_err(), "it has none");
    let refused = r#"{"smartctl":{"exit_status":2,"messages":[
        {"string":"Smartctl open device: /dev/sda failed: Permission denied"}]}}"#;
    assert!(health(refused.as_bytes()).unwrap_err().ends_with("Permission denied"));
    let odd = r#"{"smart_status":{"passed":true},"temperature":{"current":"hot"},
        "ata_smart_attributes":{"table":[{"id":5},{"raw":{"value":1}},7]},
        "power_on_time":{"hours":-1}}"#;
    let odd = SmartInfo { asked_ns: 0, ..health(odd.as_bytes()).unwrap() };
    assert_eq!(odd, SmartInfo { passed: true, ..SmartInfo::default() });
}

#[tokio::test]
async fn it_is_asked_for_the_device() {
    let (dir, smart) = program(&format!("echo \"$@\" > $(dirname $0)/words; cat <<'E'\n{ATA}\nE"));
    // As smartctl ends for a disk with old errors.
    assert!(smart.ask("/dev/sdb").await.unwrap().passed);
    let words = fs::read_to_string(dir.path().join("words")).unwrap();
    assert_eq!(words, "--json=c -i -H -A -n standby /dev/sdb\n");
}

#[tokio::test]
async fn without_the_program_nothing_is_known() {
    let smart = Smart::new("/nowhere/smartctl".into());
    let error = smart.ask("/dev/sdb").await.unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/smartctl is not installed (package smartmontools)");
    let (_dir, smart) = program("head -c 3000000 /dev/zero; echo '{}'");
    let error = smart.ask("/dev/sdb").await.unwrap_err();
    assert_eq!(why(&error), "says no health: it printed no JSON");
    let (_dir, smart) = program("exit 2");
    assert_eq!(why(&smart.ask("x").await.unwrap_err()), "says no health: it printed no JSON");
}

/// The limits hold in time that passes by itself: a program is no task of this runtime.
#[tokio::test]
async fn one_that_hangs_is_ended_with_its_children() {
    let (dir, smart) = program("echo $$ > $(dirname $0)/pid; sleep 1000 & sleep 1000");
    let begun = Instant::now();
    let error = smart.ask("/dev/sdb").await.unwrap_err();
    assert_eq!(why(&error), "did not answer for 2s");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    let group = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    // A killed child stays until init has looked at it.
    let until = Instant::now() + Duration::from_secs(5);
    while rustix::process::test_kill_process_group(group).is_ok() && Instant::now() < until {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(stat.is_err(), "{stat:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(smart.stuck.lock().is_empty());
}

/// No second program for a disk whose first one does not even end.
#[tokio::test]
async fn none_is_started_beside_one_that_is_stuck() {
    let (dir, smart) = program("touch $(dirname $0)/asked; exit 1");
    let stuck = Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    smart.stuck.lock().insert("/dev/sdb".into(), stuck);
    assert_eq!(why(&smart.ask("/dev/sdb").await.unwrap_err()), "did not answer for 2s");
    assert!(!dir.path().join("asked").exists());
    smart.ask("/dev/sdc").await.unwrap_err();
    assert!(dir.path().join("asked").exists());
    let mut stuck = smart.stuck.lock().remove("/dev/sdb").unwrap();
    stuck.start_kill().unwrap();
    smart.stuck.lock().insert("/dev/sdb".into(), stuck);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!smart.is_stuck("/dev/sdb"));
}
