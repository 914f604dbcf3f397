use std::collections::BTreeMap;

use super::*;

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
    assert_eq!(told.status, "a spare takes the place of a disk (spare=/dev/c).");
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
        include_str!("../beside.rs"),
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
