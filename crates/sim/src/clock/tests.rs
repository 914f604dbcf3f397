use std::task::Waker;

use crate::clock::{Clock, Due};

fn waker() -> Waker {
    Waker::noop().clone()
}

#[test]
fn events_come_in_order_of_time_and_then_of_scheduling() {
    let mut clock = Clock::new();
    clock.schedule(20, Due::Io(1));
    clock.schedule(10, Due::Io(2));
    clock.schedule(10, Due::Io(3));
    let order: Vec<(u64, Due)> =
        std::iter::from_fn(|| clock.pop()).map(|event| (event.at_ns, event.due)).collect();
    assert_eq!(order, [(10, Due::Io(2)), (10, Due::Io(3)), (20, Due::Io(1))]);
}

#[test]
fn a_cancelled_timer_is_stale_even_when_its_slot_serves_another() {
    let mut clock = Clock::new();
    let first = clock.timer_start(10, waker());
    let first_event = clock.peek().unwrap();
    assert!(clock.timer_cancel(first).is_some());
    let second = clock.timer_start(20, waker());
    assert_eq!(first.slot, second.slot);
    assert!(!clock.timer_live(first.slot, first_event.number));
    assert!(clock.timer_live(second.slot, second.number));
    assert!(clock.timer_cancel(first).is_none(), "a stale ticket cancels nothing");
    assert!(!clock.timer_renew(first, &waker()).0);
    assert!(clock.timer_renew(second, &waker()).0);
}

#[test]
fn time_never_goes_back_and_uptime_restarts_at_a_reboot_only() {
    let mut clock = Clock::new();
    clock.advance_to(50);
    clock.advance_to(40);
    assert_eq!(clock.now_ns(), 50);
    clock.timer_start(60, waker());
    assert_eq!(clock.clear(false).len(), 1);
    assert_eq!(clock.uptime_ns(), 50);
    assert!(clock.peek().is_none());
    clock.clear(true);
    assert_eq!(clock.uptime_ns(), 0);
    assert_eq!(clock.now_ns(), 50);
}
