//! Virtual time and the events due in it.
//!
//! Invariants:
//! - Only `advance_to` moves time, and only forward.
//! - Of two events due at one time the one scheduled first comes first.
//! - Every scheduled event has a number of its own. The owner of a slot (timer, operation) keeps
//!   the number of the event that it still waits for. An event with another number is stale and
//!   moves nothing, not even time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::task::Waker;

#[cfg(test)]
mod tests;

/// The purpose of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// A timer, by slot.
    Timer(usize),
    /// The end of a disk operation, by slot.
    Io(usize),
    /// The planned power cut.
    Cut,
}

/// One event of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) number: u64,
    pub(crate) due: Due,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Names a registered timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimerTicket {
    slot: usize,
    number: u64,
}

#[derive(Debug)]
struct Timer {
    /// The event waited for, 0 if the slot is free.
    number: u64,
    waker: Option<Waker>,
}

/// Time, timers and the heap of due events.
#[derive(Debug)]
pub(crate) struct Clock {
    now_ns: u64,
    boot_ns: u64,
    heap: BinaryHeap<Reverse<Event>>,
    last_number: u64,
    timers: Vec<Timer>,
    free: Vec<usize>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            now_ns: 0,
            boot_ns: 0,
            heap: BinaryHeap::new(),
            last_number: 0,
            timers: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Time since the start of the simulation.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Time since the machine was last switched on.
    pub(crate) fn uptime_ns(&self) -> u64 {
        self.now_ns - self.boot_ns
    }

    pub(crate) fn advance_to(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Puts `due` on the heap; returns the event's number, never 0.
    pub(crate) fn schedule(&mut self, at_ns: u64, due: Due) -> u64 {
        self.last_number += 1;
        self.heap.push(Reverse(Event { at_ns, number: self.last_number, due }));
        self.last_number
    }

    pub(crate) fn peek(&self) -> Option<Event> {
        self.heap.peek().map(|event| event.0)
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|event| event.0)
    }

    pub(crate) fn timer_start(&mut self, at_ns: u64, waker: Waker) -> TimerTicket {
        let slot = self.free.pop().unwrap_or(self.timers.len());
        let number = self.schedule(at_ns, Due::Timer(slot));
        let timer = Timer { number, waker: Some(waker) };
        match self.timers.get_mut(slot) {
            Some(place) => *place = timer,
            None => self.timers.push(timer),
        }
        TimerTicket { slot, number }
    }

    /// Whether the timer still waits for the event with this number.
    pub(crate) fn timer_live(&self, slot: usize, number: u64) -> bool {
        self.timers.get(slot).is_some_and(|timer| timer.number == number)
    }

    /// Wakes `waker` instead; returns whether the timer still runs, and a waker to be dropped
    /// outside the lock.
    pub(crate) fn timer_renew(
        &mut self,
        ticket: TimerTicket,
        waker: &Waker,
    ) -> (bool, Option<Waker>) {
        match self.timers.get_mut(ticket.slot) {
            Some(timer) if timer.number == ticket.number => {
                if timer.waker.as_ref().is_some_and(|held| held.will_wake(waker)) {
                    return (true, None);
                }
                (true, timer.waker.replace(waker.clone()))
            }
            _ => (false, None),
        }
    }

    /// Ends the timer, fired or cancelled; a stale ticket does nothing.
    pub(crate) fn timer_end(&mut self, slot: usize, number: u64) -> Option<Waker> {
        let timer = self.timers.get_mut(slot).filter(|timer| timer.number == number)?;
        timer.number = 0;
        self.free.push(slot);
        timer.waker.take()
    }

    /// How many timers ever ran at one time.
    #[cfg(test)]
    pub(crate) fn timer_slots(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn timer_cancel(&mut self, ticket: TimerTicket) -> Option<Waker> {
        self.timer_end(ticket.slot, ticket.number)
    }

    /// Forgets every timer and event: the process is gone. `reboot` also restarts the uptime.
    /// Returns the wakers, to be dropped outside the lock.
    pub(crate) fn clear(&mut self, reboot: bool) -> Vec<Waker> {
        self.heap.clear();
        self.free.clear();
        if reboot {
            self.boot_ns = self.now_ns;
        }
        self.timers.drain(..).filter_map(|timer| timer.waker).collect()
    }
}
