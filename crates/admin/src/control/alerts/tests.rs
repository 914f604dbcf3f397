use std::collections::BTreeMap;

use aquifer_api::{PoolSummary, ScrubInfo};

use super::*;
use crate::status::absent_status;

fn pool(allocated: u64, free: u64) -> PoolStatus {
    let summary = PoolSummary {
        name: "tank".into(),
        guid: "00000000000000ff".into(),
        health: Health::Online,
        size_bytes: allocated + free,
        allocated_bytes: allocated,
        free_bytes: free,
        freeing_bytes: 0,
        damaged_files: 0,
        reason: None,
    };
    absent_status(summary, None)
}

#[test]
fn a_pool_that_fills_is_told_by_the_limits() {
    let of = |allocated, limits| {
        full(&pool(allocated, 1000 - allocated), limits).map(|problem| problem.severity)
    };
    assert_eq!(of(799, [80, 90]), None);
    assert_eq!(of(800, [80, 90]), Some(Severity::Warning));
    assert_eq!(of(900, [80, 90]), Some(Severity::Error));
    assert_eq!(of(950, [0, 0]), None);
    assert_eq!(of(950, [80, 0]), Some(Severity::Warning));
    assert_eq!(full(&pool(0, 0), [80, 90]), None);
    let told = full(&pool(1 << 60, 1 << 60), [50, 90]).unwrap();
    assert!(told.status.contains("50 % full"), "{told:?}");
}

#[test]
fn a_scrub_is_overdue_after_two_of_its_intervals() {
    let begun_ns = 1_000_000_000_000_000_000;
    let scrubbed = |state| {
        let scrub = ScrubInfo {
            state,
            begun_ns,
            ended_ns: None,
            active_ms: 0,
            total_bytes: 0,
            examined_bytes: 0,
            repaired_bytes: 0,
            unreadable_blocks: 0,
            repaired_files: Vec::new(),
            more_repaired_files: 0,
        };
        PoolStatus { scrub: Some(scrub), ..pool(0, 1) }
    };
    let days = |days: u64| begun_ns + days * DAY.as_secs() * 1_000_000_000;
    let paused = scrubbed(ScrubState::Paused);
    assert_eq!(scrub_overdue(&paused, 7 * DAY, days(13)), None);
    let told = scrub_overdue(&paused, 7 * DAY, days(14)).unwrap();
    assert!(told.status.contains("began 14 days ago is paused"), "{told:?}");
    assert_eq!(scrub_overdue(&paused, 30 * DAY, days(14)), None);
    assert_eq!(scrub_overdue(&pool(0, 1), 7 * DAY, days(99)), None);
}

#[test]
fn events_that_people_should_know_are_told_with_what_they_are_about() {
    let event = |class: &str| Event {
        sequence: 1,
        wall_ns: 1,
        level: "warn".into(),
        class: class.into(),
        message: "a spare takes the place of a disk".into(),
        fields: BTreeMap::from([
            ("pool".to_string(), "tank".to_string()),
            ("spare".to_string(), "/dev/c".to_string()),
        ]),
    };
    let told = problem_of(&event("spare.taken")).unwrap();
    assert_eq!(told.code, "spare-taken");
    assert_eq!(told.see.as_deref(), Some("/usr/share/doc/aquifer/docs/alerts.md#spare-taken"));
    assert_eq!(told.status, "a spare takes the place of a disk (spare=/dev/c)");
    assert_eq!(problem_of(&event("client.connected")), None);
}

#[test]
fn a_clock_that_goes_on_has_not_jumped() {
    let clock = Clock::now();
    let before = clock.wall;
    assert!(before <= clock.checked().wall);
}

/// A code whose problem is made without [`Problem::new`] would lead nowhere.
#[test]
fn each_code_is_one_of_the_list() {
    let here = include_str!("../alerts.rs");
    let of_events = here.split("fn problem_of").nth(1).unwrap();
    for source in [
        include_str!("../../status/problems.rs"),
        include_str!("../../status/problems/copies.rs"),
        here,
    ] {
        assert!(!source.contains(" Problem { "), "a problem has its code from codes::ALL");
    }
    let is_class = |word: &&str| {
        word.contains('.')
            && word.chars().all(|char| char.is_ascii_lowercase() || "._".contains(char))
    };
    let classes: Vec<&str> = of_events.split('"').skip(1).step_by(2).filter(is_class).collect();
    assert!(classes.len() > 10, "{classes:?}");
    for class in classes {
        let code = class.replace('.', "-");
        let found = codes::ALL.iter().find(|known| known.word == code);
        assert!(found.is_some(), "{class} has no code");
    }
}
