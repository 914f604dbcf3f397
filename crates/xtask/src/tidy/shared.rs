//! Objects that threads share come from one crate: others are never permuted.

use super::report::Report;
use super::source::{code_without_tests, is_test, line_of};
use super::tree::{File, Tree};

/// Rooms that must take locks, atomics and notices from `aquifer_sync`.
const ROOMS: [&str; 7] = ["arc", "space", "vdev", "object", "pool", "dataset", "files"];
/// Files elsewhere with the same rule; the rest of blockio is on the system's side.
const FILES: [&str; 2] = ["crates/blockio/src/buf.rs", "crates/blockio/src/page_pool.rs"];
/// Files in those rooms to which the rule does not apply, with the reason.
const LEFT_OUT: [(&str, &str); 1] = [("crates/object/src/mem_store.rs", "a module of tests")];
/// Types that may come from `std::sync`: they are not permuted, and the docs say so.
const OF_STD: [&str; 3] = ["Arc", "Weak", "self"];
/// A file of [`FILES`] whose data changes only under a lock.
const UNDER_A_LOCK: &str = "crates/blockio/src/page_pool.rs";

/// Checks all sources.
pub fn check(tree: &Tree, report: &mut Report) {
    for file in tree.files.iter().filter(|file| is_meant(&file.path)) {
        check_file(file, report);
    }
}

fn is_meant(path: &str) -> bool {
    let of_room = |room: &str| path.starts_with(&format!("crates/{room}/src/"));
    let listed = FILES.contains(&path) || ROOMS.iter().any(|room| of_room(room));
    let left_out = LEFT_OUT.iter().any(|(other, _)| *other == path);
    path.ends_with(".rs") && listed && !is_test(path) && !left_out
}

/// Checks one source.
pub fn check_file(file: &File, report: &mut Report) {
    let code = code_without_tests(&file.text);
    let mut refuse = |at: usize, what: &str| {
        let what = format!("{what}: take it from aquifer_sync, where tests permute it");
        report.error(&file.path, line_of(&code, at), what);
    };
    for around in ["parking_lot", "tokio::sync"] {
        code.match_indices(around).for_each(|(at, _)| refuse(at, around));
    }
    for (at, path) in code.match_indices("std::sync::") {
        let rest = code.get(at + path.len()..).unwrap_or_default();
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""),
        };
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        for name in names {
            let under_a_lock = name == "atomic" && file.path == UNDER_A_LOCK;
            if !OF_STD.contains(&name) && !under_a_lock {
                refuse(at, &format!("std::sync::{name}"));
            }
        }
    }
}
