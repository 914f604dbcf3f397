//! A pool in numbers: writers that always want in, and disks that take so many full txgs a second.

use super::*;

/// A full txg is a million of these.
const SECTORS: f64 = 1e6;

struct Model {
    throttle: Throttle,
    /// Sectors of the one on its way that are on disk.
    written: u64,
    now: Duration,
    /// Shares of the open txg, of the one on its way, and what of that is on disk.
    open: f64,
    draining: Option<(f64, f64)>,
    /// Longest time in which nobody was let in, and how much was let in.
    let_in_at: Duration,
    gap: Duration,
    total: f64,
}

const STEP: Duration = Duration::from_micros(500);

impl Model {
    fn new() -> Model {
        Model {
            throttle: Throttle::default(),
            written: 0,
            now: Duration::from_secs(1),
            open: 0.0,
            draining: None,
            let_in_at: Duration::from_secs(1),
            gap: Duration::ZERO,
            total: 0.0,
        }
    }

    /// Changes of `share` come one after the other, as fast as they are let in but no faster than
    /// `offered` a second; the disks take `taken` a second.
    fn run(&mut self, seconds: f64, share: f64, offered: f64, taken: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        let mut turn: Option<Turn> = None;
        let mut owed = 0.0;
        while self.now < end {
            self.now += STEP;
            self.drain(taken);
            owed = (owed + offered * STEP.as_secs_f64()).min(share.max(offered / 100.0));
            while owed >= share {
                let waits = match turn {
                    Some(turn) => {
                        self.throttle.wait(self.now, turn, self.open, self.written).is_some()
                    }
                    None => {
                        turn = self.throttle.queue(self.now, share, self.open, self.written);
                        turn.is_some()
                    }
                };
                let held = self.draining.map_or(0.0, |(share, _)| share);
                if waits || self.open + held + share > 2.0 {
                    break;
                }
                turn = None;
                owed -= share;
                self.open += share;
                self.total += share;
                self.gap = self.gap.max(self.now - self.let_in_at);
                self.let_in_at = self.now;
            }
        }
    }

    fn drain(&mut self, taken: f64) {
        if let Some((share, done)) = &mut self.draining {
            let more = (taken * STEP.as_secs_f64()).min(*share - *done);
            *done += more;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let sectors = (more * SECTORS).round() as u64;
            self.written += sectors;
            if *done >= *share - 1e-9 {
                self.throttle.landed(self.now);
                self.throttle.end(self.now, self.written);
                self.draining = None;
            }
        }
        if self.draining.is_none() && self.open >= 1.0 {
            self.written = 0;
            self.throttle.begin(self.now, Closed { share: self.open, sectors: 1_000_000 });
            self.draining = Some((self.open, 0.0));
            self.open = 0.0;
        }
    }
}

#[test]
fn writers_follow_the_disks_without_a_stop() {
    let mut model = Model::new();
    model.run(10.0, 1e-3, 50.0, 0.5);
    (model.gap, model.total) = (Duration::ZERO, 0.0);
    model.run(30.0, 1e-3, 50.0, 0.5);
    // The disks could take 15.
    assert!(model.total > 13.0, "{}", model.total);
    assert!(model.gap < Duration::from_millis(60), "{:?}", model.gap);
}

/// As when what is free comes to lie in pieces.
#[test]
fn disks_that_become_ten_times_slower_do_not_stop_them() {
    let mut model = Model::new();
    model.run(10.0, 1e-3, 50.0, 1.0);
    model.gap = Duration::ZERO;
    model.run(0.5, 1e-3, 50.0, 1.0);
    model.run(60.0, 1e-3, 50.0, 0.1);
    assert!(model.gap < Duration::from_millis(500), "{:?}", model.gap);
    // And if they become faster again, that is seen, too.
    model.total = 0.0;
    model.run(20.0, 1e-3, 50.0, 1.0);
    assert!(model.total > 15.0, "{}", model.total);
}

#[test]
fn who_wants_less_than_the_disks_take_is_never_slowed() {
    let mut model = Model::new();
    model.run(30.0, 1e-3, 0.3, 0.5);
    assert!((model.total - 9.0).abs() < 0.1, "{}", model.total);
    assert!(model.gap < Duration::from_millis(10), "{:?}", model.gap);
}

#[test]
fn a_burst_that_memory_takes_is_taken_as_it_comes() {
    let mut throttle = Throttle::default();
    let now = Duration::from_secs(5);
    // A txg closed half full, because it was asked for.
    throttle.begin(now, Closed { share: 0.5, sectors: 1 << 18 });
    for fill in 0..49 {
        assert!(throttle.queue(now, 0.01, f64::from(fill) / 100.0, 0).is_none());
    }
}

#[test]
fn nothing_is_asked_of_changes_that_take_no_memory() {
    let mut throttle = Throttle::default();
    throttle.begin(Duration::from_secs(5), Closed { share: 1.0, sectors: 1 << 18 });
    assert!(throttle.queue(Duration::from_secs(6), 0.0, 0.99, 0).is_none());
}

/// Long after the first would have been in, if the disks had gone on: but not never.
#[test]
fn disks_that_stand_still_stop_nobody_for_ever() {
    for written in [0, 50_000] {
        let (mut throttle, mut now) = knowing();
        throttle.begin(now, FULL);
        let turn = throttle.queue(now, 1e-3, 0.99, 0).unwrap();
        let begun = now;
        while let Some(delay) = throttle.wait(now, turn, 0.99, written) {
            now += delay;
            assert!(now - begun < Duration::from_secs(60), "it is never let in");
        }
        assert!(now - begun > Duration::from_millis(500), "{:?}", now - begun);
    }
}

const FULL: Closed = Closed { share: 1.0, sectors: 1_000_000 };
const MS: Duration = Duration::from_millis(1);

/// One full txg of a million sectors has shown that their writes take a second, and what follows
/// them half of one.
fn knowing() -> (Throttle, Duration) {
    let mut throttle = Throttle::default();
    let now = Duration::from_secs(10);
    throttle.begin(now, FULL);
    throttle.landed(now + 1000 * MS);
    let now = now + 1500 * MS;
    throttle.end(now, 1_000_000);
    throttle.look(now, 0.0, 0);
    (throttle, now)
}

fn assert_pace(pace: Option<f64>, expected: f64) {
    let pace = pace.expect("a pace");
    assert!((pace / expected - 1.0).abs() < 1e-6, "{pace}, not {expected}");
}

#[test]
fn the_open_txg_is_full_when_the_other_is_on_disk() {
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    // As those before it: a second, and the half.
    assert_pace(throttle.pace(now, 0.2, 0), (0.95 - 0.2) / 1.5);
    assert_pace(throttle.pace(now, 0.2, 500_000), (0.95 - 0.2) / 1.0);
    // A part of it as long as that part takes, and the half.
    throttle.begin(now, Closed { share: 0.95, ..FULL });
    assert_pace(throttle.pace(now, 0.2, 0), (0.95 - 0.2) / (0.95 * 1.5));
    // What is left of two full ones is made to last.
    assert_pace(throttle.pace(now, 0.95, 0), (2.0 - 0.95 - 0.95) / (0.95 * 1.5 * 4.0));
    assert_pace(throttle.pace(now, 1.5, 0), 0.01 / (0.95 * 1.5 * 4.0));
    // Its writes have come back: what follows them, or a quarter of what they have taken already.
    throttle.begin(now, FULL);
    throttle.landed(now);
    assert_pace(throttle.pace(now, 0.9, 0), 0.05 / 0.5);
    assert_pace(throttle.pace(now + 300 * MS, 0.9, 0), 0.05 / 0.2);
    assert_pace(throttle.pace(now + 4000 * MS, 0.2, 0), 0.75 / 1.0);
    // Four times as fast as the disks at most.
    assert_pace(throttle.pace(now + 490 * MS, 0.2, 0), 4.0 / 1.5);
}

#[test]
fn more_than_seemed_is_expected_to_end_soon_but_not_at_once() {
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    throttle.look(now + 100 * MS, 0.5, 100_000);
    // A million a second, of which two in a hundred are always missing.
    assert_pace(throttle.pace(now + 100 * MS, 0.5, 2_000_000), 0.45 / 0.52);
}

#[test]
fn the_speed_of_late_counts() {
    let (mut throttle, mut now) = knowing();
    throttle.begin(now, FULL);
    let mut written = 0;
    // A few milliseconds say little, and count with those that follow.
    throttle.look(now + 10 * MS, 0.5, 90_000);
    assert!(throttle.draining.is_some_and(|of| of.sectors_per_second.is_none()));
    let mut speed_after = |steps: u64, each: u64| {
        for _ in 0..steps {
            now += 50 * MS;
            written += each;
            throttle.look(now, 0.5, written);
        }
        throttle.draining.and_then(|of| of.sectors_per_second).unwrap()
    };
    let speed = speed_after(4, 50_000);
    assert!((speed - 1e6).abs() < 1.0, "{speed}");
    // Ten times slower: after 50 ms a sixth is seen, after half a second five sixths.
    let speed = speed_after(1, 5000);
    assert!((speed - 850_000.0).abs() < 1.0, "{speed}");
    let speed = speed_after(9, 5000);
    assert!((speed - 245_000.0).abs() < 1000.0, "{speed}");
}

#[test]
fn nobody_waits_below_half_while_txgs_do_not_close_full() {
    let waits = |share: f64, fill: f64| {
        let (mut throttle, now) = knowing();
        throttle.begin(now, Closed { share, sectors: 1_000_000 });
        throttle.queue(now, 0.01, fill, 0).is_some()
    };
    assert!(!waits(0.899, 0.0) && !waits(0.899, 0.499));
    assert!(waits(0.899, 0.5) && waits(0.9, 0.0));
    // Nothing is on its way: it closes as soon as it is full, and until then nobody waits.
    let (mut throttle, now) = knowing();
    assert!(throttle.queue(now, 0.01, 0.999, 0).is_none());
    assert!(throttle.queue(now, 0.01, 1.0, 0).is_some());
}

#[test]
fn what_was_learnt_is_a_mean() {
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    throttle.landed(now + 2000 * MS);
    throttle.end(now + 3000 * MS, 3_000_000);
    assert_pace(throttle.pace(now, 1.0, 0), (1.0 / 1.5 + 1.0 / 3.0) / 2.0);
    let known = throttle.known.unwrap();
    assert_pace(Some(known.tail_seconds), 0.75);
    assert_pace(Some(known.sectors_per_share), 2e6);
}

#[test]
fn nothing_is_learnt_from_small_txgs() {
    for (share, learns) in [(0.1249, false), (0.125, true)] {
        let (mut throttle, now) = knowing();
        let before = throttle.pace(now, 1.0, 0).unwrap();
        throttle.begin(now, Closed { share, sectors: 1_000_000 });
        throttle.end(now + 10_000 * MS, 1_000_000);
        let after = throttle.pace(now, 1.0, 0).unwrap();
        assert_eq!((before - after).abs() > 0.1, learns, "{share}");
    }
    // One that took no time at all does not let in everything from then on.
    let mut throttle = Throttle::default();
    let now = Duration::from_secs(10);
    throttle.begin(now, FULL);
    throttle.end(now, 1_000_000);
    throttle.look(now, 0.0, 0);
    assert!(throttle.queue(now, 0.1, 1.0, 0).is_some());
    throttle.begin(now, FULL);
    assert!((1..100).all(|_| throttle.queue(now, 0.1, 0.5, 0).is_some()));
}

/// A change after a rest need not wait; a crowd after a rest is slowed as any other.
#[test]
fn a_rest_is_no_credit_for_a_crowd() {
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    assert!(throttle.queue(now, 1e-9, 0.2, 0).is_some());
    let later = now + 400 * MS;
    // At about half a share a second, 5 ms are worth 25 changes of 1e-4.
    let at_once = (0..1000).filter(|_| throttle.queue(later, 1e-4, 0.2, 0).is_none()).count();
    assert!((15..50).contains(&at_once), "{at_once} came in at once");
}

#[test]
fn a_change_that_waits_looks_soon_again_and_not_at_once() {
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    let turn = throttle.queue(now, 0.5, 0.5, 0).unwrap();
    assert_eq!(throttle.wait(now, turn, 0.5, 0), Some(50 * MS));
    let (mut throttle, now) = knowing();
    throttle.begin(now, FULL);
    let turn = throttle.queue(now, 1e-9, 0.5, 0).unwrap();
    assert_eq!(throttle.wait(now, turn, 0.5, 0), Some(Duration::from_micros(20)));
    // Its turn is exactly now.
    throttle.let_in = turn.0;
    assert_eq!(throttle.wait(now, turn, 0.5, 0), None);
}
