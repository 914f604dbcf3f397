//! One simulated machine with its disks: runs futures, takes the power away, starts again.
//!
//! Invariants:
//! - Everything follows from the seed and from the calls made: no thread, no real time, no order of
//!   a hash map.
//! - An incarnation ends with `power_cut` or `kill`. Every task is dropped first, then the fate of
//!   the writes that were not durable is decided, then the next incarnation may run.
//! - Each step polls one of the ready tasks, drawn from the schedule stream, and costs a little
//!   virtual time. Events due by then happen before the next step.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Due};
use crate::disk::device::{Device, nanoseconds};
use crate::disk::op::Ops;
use crate::disk::{CutMode, DiskConfig, Image, SimDisk};
use crate::executor::{Body, Key, Tasks};
use crate::machine::{Machine, Progress, Shared};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::SimWorld;

#[cfg(test)]
mod tests;

/// Limits and habits of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimConfig {
    /// Polls and leaps of the clock in one `run_until` before it gives up.
    pub steps_max: u64,
    /// Virtual time in one `run_until` before it gives up.
    pub time_max: Duration,
    /// A step costs up to this much virtual time, so that completions and deadlines also fall
    /// between the steps of ready tasks. 0: time passes only while nothing is ready.
    pub step_ns_max: u64,
    /// Entries kept for the story; 0 switches it off.
    pub story_entries_max: usize,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            steps_max: 10_000_000,
            time_max: Duration::from_secs(24 * 3600),
            step_ns_max: 2_000,
            story_entries_max: 0,
        }
    }
}

/// When the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutPlan {
    /// Never by itself.
    Never,
    /// At the k-th I/O event (submission or completion, on any disk) of this incarnation, counted
    /// from 1. A submission is in flight then. A completion has had its effect, but no task has
    /// seen it.
    AtEvent(u64),
    /// After this time from now.
    After(Duration),
}

/// Why a run ended without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Nothing can ever run again; the names of all waiting tasks.
    Deadlock(Vec<&'static str>),
    /// The planned power cut fired. All tasks are dropped; call `power_cut` or `kill` next.
    Halted,
    /// Too many steps: something spins; the names of all tasks that have not ended.
    StepLimit(Vec<&'static str>),
    /// Too much virtual time: a task waits for an event that never comes, while timers go on.
    TimeLimit(Vec<&'static str>),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Deadlock(names) => write!(f, "deadlock; waiting: {}", names.join(", ")),
            Stop::Halted => f.write_str("the power is off"),
            Stop::StepLimit(names) => write!(f, "step limit; running: {}", names.join(", ")),
            Stop::TimeLimit(names) => write!(f, "time limit; waiting: {}", names.join(", ")),
        }
    }
}

impl std::error::Error for Stop {}

/// One machine, its disks, and all its incarnations.
pub struct Sim {
    shared: Arc<Shared>,
    schedule: Rng,
    config: SimConfig,
    /// Kept between steps so that waking needs no memory.
    wakers: Vec<Waker>,
}

impl Sim {
    /// A machine without disks.
    pub fn new(seed: u64) -> Self {
        Sim::with_config(seed, SimConfig::default())
    }

    /// Makes a machine without disks, with other limits.
    pub fn with_config(seed: u64, config: SimConfig) -> Self {
        let machine = Machine {
            seed,
            clock: Clock::new(),
            ops: Ops::default(),
            devices: Vec::new(),
            trace: Trace::new(config.story_entries_max),
            random: Rng::stream(seed, "world.random"),
            cut_rng: Rng::stream(seed, "cut"),
            wall_base_ns: WALL_START_NS,
            io_events: 0,
            cut_at_event: None,
            cut_after_error: None,
            cut_timer: None,
            halted: false,
        };
        let shared = Shared { machine: Mutex::new(machine), tasks: Tasks::new() };
        let schedule = Rng::stream(seed, "schedule");
        Sim { shared: Arc::new(shared), schedule, config, wakers: Vec::new() }
    }

    /// Adds a disk that holds `image`.
    pub fn add_disk(&mut self, name: &str, image: Image, config: DiskConfig) -> SimDisk {
        let mut machine = self.shared.machine.lock();
        let index = machine.devices.len();
        let device = Device::new((index, name), machine.seed, image, config);
        let disk = SimDisk::new(Arc::clone(&self.shared), &device);
        machine.devices.push(device);
        disk
    }

    /// Clock, randomness and tasks for the pool.
    pub fn world(&self) -> SimWorld {
        SimWorld::new(Arc::clone(&self.shared))
    }

    /// A stream of the seed for the caller's own use: a workload, a choice of faults.
    pub fn stream(&self, name: &str) -> Rng {
        Rng::stream(self.shared.machine.lock().seed, &format!("user.{name}"))
    }

    /// Runs `root` beside all spawned tasks until it ends. Tasks that have not ended continue in
    /// the next call.
    pub fn run_until<F: Future>(&mut self, root: F) -> Result<F::Output, Stop> {
        let Some(key) = self.shared.tasks.add("root", None) else {
            return Err(Stop::Halted);
        };
        // One loop for all kinds of roots: copies of it were a fifth of what some tests compile.
        let mut output = None;
        let result = self.drive(pin!(async { output = Some(root.await) }), key);
        self.shared.tasks.end(key);
        if result.as_ref().is_err_and(|stop| *stop == Stop::Halted) {
            self.shared.tasks.close();
        }
        result.and_then(|()| output.ok_or(Stop::Halted))
    }

    fn drive(
        &mut self,
        mut root: Pin<&mut dyn Future<Output = ()>>,
        root_key: Key,
    ) -> Result<(), Stop> {
        let mut steps = 0;
        let start_ns = self.shared.machine.lock().clock.now_ns();
        let limit_ns = start_ns.saturating_add(nanoseconds(self.config.time_max));
        loop {
            if steps == self.config.steps_max {
                return Err(Stop::StepLimit(self.shared.tasks.pending()));
            }
            steps += 1;
            let progress = match self.shared.tasks.pick(&mut self.schedule) {
                None => self.shared.machine.lock().jump(limit_ns, &mut self.wakers),
                Some((key, body)) => {
                    if key == root_key {
                        let mut context = Context::from_waker(&body.waker);
                        if root.as_mut().poll(&mut context).is_ready() {
                            return self.root_done();
                        }
                        self.shared.tasks.put_back(key, body);
                    } else {
                        self.step(key, body);
                    }
                    let cost_ns = self.schedule.below(self.config.step_ns_max.saturating_add(1));
                    let mut machine = self.shared.machine.lock();
                    machine.trace.mix(key.slot as u64);
                    machine.elapse(cost_ns, &mut self.wakers)
                }
            };
            self.wakers.drain(..).for_each(Waker::wake);
            match progress {
                Progress::Ran => {}
                Progress::Halted => return Err(Stop::Halted),
                Progress::Idle => return Err(Stop::Deadlock(self.shared.tasks.pending())),
                Progress::TooLate => return Err(Stop::TimeLimit(self.shared.tasks.pending())),
            }
        }
    }

    /// The root ended in the very poll in which the power went: it does not count as ended.
    fn root_done(&self) -> Result<(), Stop> {
        if self.shared.machine.lock().halted { Err(Stop::Halted) } else { Ok(()) }
    }

    fn step(&self, key: Key, mut body: Body) {
        let mut context = Context::from_waker(&body.waker);
        let ended = match &mut body.future {
            Some(future) => future.as_mut().poll(&mut context).is_ready(),
            None => true,
        };
        if ended {
            self.shared.tasks.end(key);
        } else {
            self.shared.tasks.put_back(key, body);
        }
    }

    /// Plans the power cut of this incarnation, in place of the earlier plan.
    pub fn plan_cut(&mut self, plan: CutPlan) {
        let mut machine = self.shared.machine.lock();
        machine.cut_at_event = None;
        machine.cut_after_error = None;
        machine.cut_timer = None;
        match plan {
            CutPlan::Never => {}
            CutPlan::AtEvent(event) => machine.cut_at_event = Some(event),
            CutPlan::After(time) => {
                let at_ns = machine.clock.now_ns().saturating_add(nanoseconds(time));
                machine.cut_timer = Some(machine.clock.schedule(at_ns, Due::Cut));
            }
        }
    }

    /// Moves the planned power cut forward if an operation fails before it: this many I/O events
    /// after that.
    pub fn cut_after_error(&mut self, events: u64) {
        self.shared.machine.lock().cut_after_error = Some(events);
    }

    /// I/O events of this incarnation so far: where [`CutPlan::AtEvent`] can cut.
    pub fn io_events(&self) -> u64 {
        self.shared.machine.lock().io_events
    }

    /// Takes the power off machine and disks, and switches on again.
    pub fn power_cut(&mut self, mode: CutMode) {
        self.end_incarnation(true, |machine| machine.power_cut(mode));
    }

    /// Takes the power off as [`Sim::power_cut`] does, in a mode drawn from the seed, and returns
    /// the mode.
    pub fn power_cut_any(&mut self) -> CutMode {
        let choice = self.shared.machine.lock().cut_rng.pick(&CutMode::ALL).copied();
        let mode = choice.unwrap_or(CutMode::PerWrite);
        self.power_cut(mode);
        mode
    }

    /// Kills the process; machine and disks stay on, with the content of their caches.
    pub fn kill(&mut self) {
        self.end_incarnation(false, Machine::kill);
    }

    fn end_incarnation(&mut self, reboot: bool, act: impl FnOnce(&mut Machine)) {
        // The drops of the tasks must not reach a disk.
        self.shared.machine.lock().halted = true;
        self.shared.tasks.close();
        let mut machine = self.shared.machine.lock();
        act(&mut machine);
        let leftovers = machine.restart(reboot);
        drop(machine);
        drop(leftovers);
        self.shared.tasks.reopen();
    }

    /// Sets the wall clock, in nanoseconds since 1970-01-01 UTC: it may jump either way.
    pub fn set_wall_ns(&mut self, wall_ns: u64) {
        let mut machine = self.shared.machine.lock();
        machine.wall_base_ns = wall_ns.wrapping_sub(machine.clock.now_ns());
    }

    /// A hash of all events: equal for equal seeds and calls.
    pub fn trace_hash(&self) -> u64 {
        self.shared.machine.lock().trace.hash()
    }

    /// The last events, one line for each: `time disk operation sector count outcome`. Empty unless
    /// [`SimConfig::story_entries_max`] asked for it.
    pub fn story(&self) -> String {
        let machine = self.shared.machine.lock();
        let name = |disk: usize| machine.devices.get(disk).map_or("?", |device| &device.name);
        machine.trace.story().map(|entry| entry.line(name(entry.disk))).collect()
    }
}

impl Drop for Sim {
    /// Tasks hold the world and the world holds the tasks: this breaks the cycle.
    fn drop(&mut self) {
        self.shared.machine.lock().halted = true;
        self.shared.tasks.close();
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim(seed {})", self.shared.machine.lock().seed)
    }
}

/// 2026-11-01 00:00:00 UTC.
const WALL_START_NS: u64 = 1_793_491_200_000_000_000;
