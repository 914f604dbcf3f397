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
fn a_scrub_that_somebody_paused_is_told_after_a_day() {
    let scrub = ScrubInfo {
        state: ScrubState::Paused,
        begun_ns: OLD_NS,
        ended_ns: None,
        active_ms: 0,
        total_bytes: 0,
        examined_bytes: 0,
        repaired_bytes: 0,
        unreadable_blocks: 0,
        repaired_files: Vec::new(),
        more_repaired_files: 0,
    };
    let mut status = PoolStatus { scrub: Some(scrub), ..pool(0, 1) };
    assert_eq!(scrub_paused(&status, 2 * OLD_NS - 1), None);
    assert!(scrub_paused(&status, 2 * OLD_NS).unwrap().status.contains("1 days ago is paused"));
    status.scrub.as_mut().unwrap().state = ScrubState::Running;
    assert_eq!(scrub_paused(&status, 9 * OLD_NS), None);
}

#[test]
fn a_dataset_that_nears_its_quota_is_told_by_the_limits() {
    let of = |used_bytes: u64, limits| {
        let all = [
            Bounded { name: "tank/a".into(), used_bytes: 0, quota_bytes: 1 },
            Bounded { name: "tank/vms".into(), used_bytes, quota_bytes: 1000 },
        ];
        quotas(&all, limits)
    };
    let severity = |used, limits| of(used, limits).map(|problem| problem.severity);
    assert_eq!(severity(799, [80, 90]), None);
    assert_eq!(severity(800, [80, 90]), Some(Severity::Warning));
    assert_eq!(severity(900, [80, 90]), Some(Severity::Error));
    assert_eq!(severity(1000, [0, 0]), None);
    let told = of(905, [80, 90]).unwrap();
    assert!(told.status.contains("tank/vms at 90 %") && !told.status.contains("tank/a"));
}
