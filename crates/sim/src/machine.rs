//! The machine under the lock: clock, devices, operations, and the power switch.
//!
//! Invariants:
//! - Once the machine is halted nothing is submitted and nothing completes, not even later requests
//!   of the poll in which the power went.
//! - No waker is called and no future is dropped under the lock; wakers are handed out instead.
//! - An I/O event is a submission or a completion on any disk. One counter counts them all, so that
//!   "the k-th" names one moment of one seed.

use std::sync::Arc;
use std::task::Waker;

use aquifer_blockio::DiskError;
use parking_lot::Mutex;

use crate::clock::{Clock, Due, Event};
use crate::disk::device::Device;
use crate::disk::fate::{CutMode, Loss};
use crate::disk::fault::Vanish;
use crate::disk::op::{Body, Op, Ops, Plan, Request, Ticket};
use crate::executor::Tasks;
use crate::rng::Rng;
use crate::trace::{Action, Entry, Outcome, Trace};

/// The state that the handles (world, disks, executor) share.
pub(crate) struct Shared {
    pub(crate) machine: Mutex<Machine>,
    pub(crate) tasks: Arc<Tasks>,
}

/// The result of letting time pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something may be ready.
    Ran,
    /// Nothing is due, ever.
    Idle,
    /// The next event lies past the limit.
    TooLate,
    /// The power is off.
    Halted,
}

/// The result of a submission.
pub(crate) enum Submission {
    InFlight(Ticket),
    Refused(DiskError),
    /// The power is off: no result will ever come.
    Never,
}

pub(crate) struct Machine {
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) ops: Ops,
    pub(crate) devices: Vec<Device>,
    pub(crate) trace: Trace,
    /// Feeds `World::random`.
    pub(crate) random: Rng,
    /// Decides over power cuts where no disk's own stream does.
    pub(crate) cut_rng: Rng,
    pub(crate) wall_base_ns: u64,
    pub(crate) io_events: u64,
    pub(crate) cut_at_event: Option<u64>,
    /// The number of events from the first failed operation to the cut.
    pub(crate) cut_after_error: Option<u64>,
    /// The number of the clock's event for a cut by time.
    pub(crate) cut_timer: Option<u64>,
    pub(crate) halted: bool,
}

impl Machine {
    pub(crate) fn submit(
        &mut self,
        disk: usize,
        sector: u64,
        request: Request,
        waker: &Waker,
    ) -> Submission {
        if self.halted {
            return Submission::Never;
        }
        let now_ns = self.clock.now_ns();
        let (action, count) = (request.action(), request.count());
        let Some(device) = self.devices.get_mut(disk) else {
            return Submission::Refused(DiskError::Gone);
        };
        if let Err(error) = device.in_range(sector, count) {
            return Submission::Refused(error);
        }
        device.count(action, count);
        let plan = match device.judge((action, sector, count), now_ns, &mut self.trace) {
            Ok(plan) => plan,
            Err(how) => {
                self.vanish(disk, how);
                Plan::Gone
            }
        };
        let Some(device) = self.devices.get_mut(disk) else {
            return Submission::Refused(DiskError::Gone);
        };
        let body = device.begin(request, sector, plan);
        let due_ns = device.due_ns(now_ns, action, count);
        let event = self.clock.schedule(due_ns, Due::Io(self.ops.next_slot()));
        let ticket = self.ops.insert(Op {
            id: 0,
            disk,
            sector,
            count,
            action,
            body,
            plan,
            event,
            waker: Some(waker.clone()),
            abandoned: false,
            result: None,
        });
        self.note((disk, action, sector, count), Outcome::Submitted);
        self.count_io_event();
        Submission::InFlight(ticket)
    }

    /// Lets `cost_ns` pass, with all events due by then; `wakers` gets those to be woken.
    pub(crate) fn elapse(&mut self, cost_ns: u64, wakers: &mut Vec<Waker>) -> Progress {
        self.clock.advance_to(self.clock.now_ns().saturating_add(cost_ns));
        self.happen(wakers)
    }

    /// Lets time pass up to the next event, and carries that out.
    pub(crate) fn jump(&mut self, limit_ns: u64, wakers: &mut Vec<Waker>) -> Progress {
        match self.next_event() {
            _ if self.halted => Progress::Halted,
            None => Progress::Idle,
            Some(event) if event.at_ns > limit_ns => Progress::TooLate,
            Some(event) => {
                self.clock.advance_to(event.at_ns);
                self.happen(wakers)
            }
        }
    }

    fn happen(&mut self, wakers: &mut Vec<Waker>) -> Progress {
        while !self.halted {
            match self.next_event() {
                Some(event) if event.at_ns <= self.clock.now_ns() => {
                    self.clock.pop();
                    self.fire(event, wakers);
                }
                _ => return Progress::Ran,
            }
        }
        Progress::Halted
    }

    /// The next event that still counts. An event due in a stall moves to after it.
    fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.clock.peek()?;
            let live = match event.due {
                Due::Timer(slot) => self.clock.timer_live(slot, event.number),
                Due::Cut => self.cut_timer == Some(event.number),
                Due::Io(slot) => match self.ops.get_mut(slot) {
                    Some(op) if op.event == event.number => match self.devices.get_mut(op.disk) {
                        Some(device)
                            if op.plan != Plan::Gone && event.at_ns < device.stalled_until_ns =>
                        {
                            let later_ns = device.after_stall_ns();
                            op.event = self.clock.schedule(later_ns, event.due);
                            false
                        }
                        _ => true,
                    },
                    _ => false,
                },
            };
            if live {
                return Some(event);
            }
            self.clock.pop();
        }
    }

    fn fire(&mut self, event: Event, wakers: &mut Vec<Waker>) {
        match event.due {
            Due::Timer(slot) => wakers.extend(self.clock.timer_end(slot, event.number)),
            Due::Cut => self.halted = true,
            Due::Io(slot) => wakers.extend(self.complete(slot)),
        }
    }

    fn complete(&mut self, slot: usize) -> Option<Waker> {
        let mut op = self.ops.take(slot)?;
        let device = self.devices.get_mut(op.disk)?;
        let (result, outcome) = device.finish(&mut op, &self.ops);
        if result.is_err()
            && let Some(events) = self.cut_after_error.take()
        {
            let soon = self.io_events + 1 + events;
            self.cut_at_event = Some(self.cut_at_event.map_or(soon, |planned| planned.min(soon)));
        }
        self.note((op.disk, op.action, op.sector, op.count), outcome);
        let waker = self.ops.completed(slot, op, result);
        self.count_io_event();
        waker
    }

    fn count_io_event(&mut self) {
        self.io_events += 1;
        if self.cut_at_event.is_some_and(|at| self.io_events >= at) {
            self.halted = true;
        }
    }

    /// The device goes away. Its operations in flight are decided now and fail later.
    pub(crate) fn vanish(&mut self, disk: usize, how: Vanish) {
        let now_ns = self.clock.now_ns();
        let slots: Vec<usize> = self.ops.in_flight(disk).map(|(slot, _)| slot).collect();
        let Some(device) = self.devices.get_mut(disk) else {
            return;
        };
        for slot in slots {
            let Some(op) = self.ops.get_mut(slot).filter(|op| op.plan != Plan::Gone) else {
                continue;
            };
            device.carry_out(op);
            op.plan = Plan::Gone;
            op.body = Body::Void;
            let fails_ns = now_ns.saturating_add(device.hang_ns());
            op.event = self.clock.schedule(fails_ns, Due::Io(slot));
        }
        device.gone = true;
        self.note((disk, Action::Vanish, 0, 0), Outcome::Done);
        if how == Vanish::PowerLost {
            self.settle(disk, Loss::PerWrite);
        }
    }

    /// Takes the power off every disk: `mode` decides which unflushed writes survive.
    pub(crate) fn power_cut(&mut self, mode: CutMode) {
        let loser = self.cut_rng.index(self.devices.len());
        for disk in 0..self.devices.len() {
            let Some(device) = self.devices.get_mut(disk) else {
                continue;
            };
            for (_, op) in self.ops.in_flight(disk) {
                if let Some((sector, pages)) = op.would_store() {
                    device.platter.store(op.id, sector, pages.iter().cloned());
                }
            }
            let loss = match mode {
                CutMode::AllLost => Loss::All,
                CutMode::AllKept => Loss::Nothing,
                CutMode::PerWrite => Loss::PerWrite,
                CutMode::PerSector => Loss::PerSector,
                CutMode::AllTorn => Loss::Torn,
                CutMode::OneDiskLoses if disk == loser => Loss::All,
                CutMode::OneDiskLoses => Loss::Nothing,
            };
            self.settle(disk, loss);
        }
    }

    /// Ends the process alone. Completed writes stay in the caches; those in flight are carried out
    /// or not, in any order.
    pub(crate) fn kill(&mut self) {
        for disk in 0..self.devices.len() {
            let mut slots: Vec<usize> = self.ops.in_flight(disk).map(|(slot, _)| slot).collect();
            let Some(device) = self.devices.get_mut(disk) else {
                continue;
            };
            device.fate_rng.shuffle(&mut slots);
            for slot in slots {
                let Some(op) = self.ops.get(slot) else {
                    continue;
                };
                let Some(device) = self.devices.get_mut(disk) else {
                    continue;
                };
                let outcome = match (&op.body, op.plan) {
                    (Body::Flush { covered }, Plan::Normal) if device.fate_rng.coin() => {
                        device.flush(*covered);
                        Outcome::Kept
                    }
                    _ if op.would_store().is_some() => device.carry_out(op),
                    _ => continue,
                };
                let what = (disk, Action::Kill, op.sector, op.count);
                self.note(what, outcome);
            }
        }
    }

    /// Switches on again, or starts the next process. Returns the values to drop outside the lock.
    pub(crate) fn restart(&mut self, reboot: bool) -> (Vec<Option<Op>>, Vec<Waker>) {
        self.io_events = 0;
        self.cut_at_event = None;
        self.cut_after_error = None;
        self.cut_timer = None;
        self.halted = false;
        if reboot {
            self.devices.iter_mut().for_each(Device::idle);
        }
        (self.ops.clear(), self.clock.clear(reboot))
    }

    fn settle(&mut self, disk: usize, loss: Loss) {
        let at_ns = self.clock.now_ns();
        let Some(device) = self.devices.get_mut(disk) else {
            return;
        };
        let trace = &mut self.trace;
        device.platter.settle(loss, &mut device.fate_rng, |sector, outcome| {
            trace.note(Entry { at_ns, disk, action: Action::Cut, sector, count: 1, outcome });
        });
    }

    pub(crate) fn note(
        &mut self,
        (disk, action, sector, count): (usize, Action, u64, u64),
        outcome: Outcome,
    ) {
        let at_ns = self.clock.now_ns();
        self.trace.note(Entry { at_ns, disk, action, sector, count, outcome });
    }
}
