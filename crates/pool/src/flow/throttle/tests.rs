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

/// A change queues up on an open txg that is nearly full: it is let in before the other is on
/// disk, however long that takes, and long after the first would have been in steady flow.
#[test]
fn disks_that_stand_still_stop_nobody_for_ever() {
    let mut model = Model::new();
    model.run(10.0, 1e-3, 50.0, 1.0);
    let Model { mut throttle, mut now, .. } = model;
    let full = Closed { share: 1.0, sectors: 1_000_000 };
    throttle.begin(now, full);
    let turn = throttle.queue(now, 1e-3, 0.99, 0).unwrap();
    let begun = now;
    while let Some(delay) = throttle.wait(now, turn, 0.99, 0) {
        now += delay;
        assert!(now - begun < Duration::from_secs(60), "it is never let in");
    }
    assert!(now - begun > Duration::from_millis(100), "{:?}", now - begun);
}
