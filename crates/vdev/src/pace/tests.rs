use super::*;

const MS: u64 = 1_000_000;

/// So many operations of each of these times in milliseconds, of one kind.
fn times(kind: IoKind, each: &[(u64, u64)]) -> Times {
    let mut times = Times::default();
    let at = KINDS.iter().position(|other| *other == kind).unwrap();
    for (count, ms) in each {
        (0..*count).for_each(|_| times.0[at].record(ms * MS));
    }
    times
}

fn writes(each: &[(u64, u64)]) -> Times {
    times(IoKind::Write, each)
}

fn is_slow(own: &Times, others: &[&Times], others_min: usize) -> Option<bool> {
    match verdict(own, others, others_min) {
        Verdict::Slow(_) => Some(true),
        Verdict::KeepsUp(_) => Some(false),
        Verdict::Unknown => None,
    }
}

#[test]
fn ten_times_the_others_is_slow() {
    let fast = writes(&[(60, 4)]);
    assert_eq!(is_slow(&writes(&[(60, 60)]), &[&fast], 1), Some(true));
    assert_eq!(is_slow(&writes(&[(60, 30)]), &[&fast], 1), Some(false));
    assert_eq!(is_slow(&fast, &[&writes(&[(60, 60)])], 1), Some(false));
    // Both are slow.
    assert_eq!(is_slow(&writes(&[(60, 200)]), &[&writes(&[(60, 60)])], 1), Some(false));
}

#[test]
fn times_that_nobody_notices_are_never_slow() {
    let cached = writes(&[(60, 0)]);
    assert_eq!(is_slow(&writes(&[(60, 10)]), &[&cached], 1), Some(false));
}

#[test]
fn few_operations_say_nothing() {
    let (fast, slow) = (writes(&[(60, 1)]), writes(&[(60, 900)]));
    assert_eq!(is_slow(&writes(&[(40, 900)]), &[&fast], 1), None);
    assert_eq!(is_slow(&slow, &[&writes(&[(40, 1)])], 1), None);
    assert_eq!(is_slow(&slow, &[&times(IoKind::Read, &[(60, 1)])], 1), None);
    assert_eq!(is_slow(&slow, &[], 1), None);
    // Single disks: with two others it may just be another kind.
    assert_eq!(is_slow(&slow, &[&fast, &fast], 3), None);
    assert_eq!(is_slow(&slow, &[&fast, &fast, &fast], 3), Some(true));
}

/// A disk that stalls at some sectors.
#[test]
fn one_in_fifty_operations_is_enough_if_there_are_many() {
    let fast = writes(&[(2000, 1), (5, 900)]);
    let stalls = |count| writes(&[(count, 1), (count / 50, 900)]);
    assert_eq!(is_slow(&stalls(2000), &[&fast], 1), Some(true));
    assert_eq!(is_slow(&stalls(500), &[&fast], 1), Some(false));
}

/// Where two sides of three are slow, it may be the third that is fast.
#[test]
fn the_slower_of_two_others_counts() {
    let (fast, slow) = (writes(&[(60, 1)]), writes(&[(60, 100)]));
    assert_eq!(is_slow(&slow, &[&fast, &fast], 1), Some(true));
    assert_eq!(is_slow(&slow, &[&fast, &slow], 1), Some(false));
    assert_eq!(is_slow(&fast, &[&fast, &slow], 1), Some(false));
}

#[test]
fn a_verdict_holds_after_two_looks() {
    let slow = |own_ns| {
        let kind = IoKind::Write;
        Verdict::Slow(Slow { kind, thousandths: 500, own_ns, others_ns: 1 })
    };
    let keeps_up = || Verdict::KeepsUp(vec![IoKind::Write]);
    let pace = Pace::default();
    assert!(!pace.take(slow(1)) && !pace.take(keeps_up()) && !pace.take(slow(2)));
    assert!(pace.slow().is_none() && !pace.is_read_last(256));
    // A look that saw nothing is not against it.
    assert!(!pace.take(Verdict::Unknown) && pace.take(slow(3)));
    assert_eq!(pace.slow().unwrap().own_ns, 3);
    assert!(pace.is_read_last(256) && !pace.is_read_last(256 * PROBE));
    assert!(!pace.take(keeps_up()) && !pace.take(slow(4)) && !pace.take(keeps_up()));
    assert_eq!(pace.slow().unwrap().own_ns, 4);
    // It was not slow at reads.
    assert!(!pace.take(Verdict::KeepsUp(vec![IoKind::Read])));
    assert!(pace.take(keeps_up()));
    assert!(pace.slow().is_none() && !pace.is_read_last(256));
}
