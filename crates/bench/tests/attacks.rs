//! Each attack, for a short time: the checks that do not depend on the machine's load.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use aquifer_bench::attacks::verdict::{LOG_LINES_MAX, text};
use aquifer_bench::attacks::{self, ATTACKS, Lab, Options};

/// No lock is lost, memory and log stay within their limits, strangers get their share of
/// connections and no more. Times are not checked.
#[test]
fn attacks_take_nothing_from_a_host() {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_aquifer-bench"));
    let options = Options {
        aquifer: common::aquifer(&bench),
        length: Duration::from_secs(3),
        calm: Duration::from_millis(100),
        only: Vec::new(),
        image_bytes: 512 << 20,
        file_bytes: 4 << 20,
        lab: Lab { files: 200, snapshots: 20 },
    };
    let results = attacks::run(&options).unwrap();
    let shown = text(&results);
    assert_eq!(results.attacks.len(), ATTACKS.len());
    for with in &results.attacks {
        let name = &with.name;
        assert!(with.calls_per_s > 0.0 && with.sent_per_s > 0.0, "{name}: {shown}");
        assert_eq!(with.locks_held, results.locks, "{name}: {shown}");
        assert_eq!(with.new_locks_refused, 0, "{name}: {shown}");
        assert!(with.resident_bytes <= results.promised_bytes, "{name}: {shown}");
        assert!(with.log_lines_in_worst_minute <= LOG_LINES_MAX, "{name}: {shown}");
        // A sixteenth of 4096 for strangers; in `garbage`, users of the host hold some, too. Those
        // that are let in may have all.
        let most = if ["addresses", "inside"].contains(&name.as_str()) { 4200 } else { 1000 };
        assert!(with.connections_most <= most, "{name}: {shown}");
        assert_eq!(with.api_failed, 0, "{name}: {shown}");
        let (acts, mounts) = (with.acts_failed, with.mounts_failed);
        assert_eq!((acts, mounts, &with.missing), (0, 0, &vec![]), "{name}: {shown}");
        assert!(with.acts.count > 0 && with.mounts.count > 0, "{name}: {shown}");
    }
    let idle = results.attacks.iter().find(|with| with.name == "idle").unwrap();
    assert!(idle.connections_most > 200, "nobody came: this tests nothing; {shown}");
}

#[test]
fn an_attack_that_is_not_known_is_refused_before_anything_starts() {
    let bench = env!("CARGO_BIN_EXE_aquifer-bench");
    let output = Command::new(bench).args(["attacks", "--only", "war"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no attack war: [\"elsewhere\""), "{said}");
}
