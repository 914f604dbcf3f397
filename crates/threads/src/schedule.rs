//! Which thread runs next.
//!
//! Each seed has a manner of its own: one manner finds in the second run what another never finds.
//! The clock's task is the last that may go on, so that time does not pass while other threads
//! work. Now and then it runs earlier, as on a machine where every thread is late.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;

use aquifer_sim::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

thread_local! {
    static CLOCKS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
    static IS_LATE: Cell<bool> = const { Cell::new(false) };
    static SEED: Cell<u64> = const { Cell::new(0) };
    static TRACE: Cell<u64> = const { Cell::new(0) };
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The calling task is a clock's. A restarted machine has another clock, and the first one
/// continues for the rest of the earlier life.
pub(crate) fn is_clock() {
    CLOCKS.with_borrow_mut(|clocks| {
        clocks.extend(shuttle::current::get_current_task().map(usize::from));
    });
}

/// Whether only clocks could go on when the calling task was chosen.
pub(crate) fn is_alone() -> bool {
    ALONE.get()
}

/// No more time may pass while others can go on: from now on clocks wait for them.
pub(crate) fn is_late() {
    IS_LATE.set(true);
}

/// The seed that runs, or ran last, on this thread of the system.
pub fn seed() -> u64 {
    SEED.get()
}

/// The schedule's trace: a hash, and its steps.
pub(crate) fn trace() -> (u64, u64) {
    (TRACE.get(), STEPS.get())
}

/// How a seed chooses.
#[derive(Debug)]
enum Manner {
    /// Any thread.
    Any,
    /// The running thread continues, except for one step in this many.
    Sticky(u64),
    /// The thread with the highest priority; at these steps the running one gets the lowest.
    Priorities(Vec<u64>),
    /// The running thread continues. But one in `of` threads falls asleep in one step of `one_in`,
    /// briefly or for long.
    Naps { of: u64, salt: u64, one_in: u64 },
}

/// A schedule for each of these seeds.
pub(crate) struct Chance {
    seeds: Range<u64>,
    rng: Rng,
    manner: Manner,
    /// The lower, the sooner.
    priorities: HashMap<usize, u64>,
    /// The step until which a thread sleeps.
    naps: HashMap<usize, u64>,
    napped: u64,
    lowest: u64,
}

/// Steps within which priorities change, at most: as many as whole calls take.
const CHANGES_WITHIN_LOG2: u64 = 14;
/// Steps of a nap, at most.
const NAP_LOG2_MAX: u64 = 15;
/// Steps of all naps of a run, about: after that no thread sleeps, and the run comes to its end.
const NAPS_STEPS_MAX: u64 = 1 << 19;
/// The clock runs early once in this many steps.
const EARLY_ONE_IN: u64 = 300;

impl Chance {
    pub(crate) fn new(seeds: Range<u64>) -> Self {
        let rng = Rng::stream(0, "threads");
        Chance {
            seeds,
            rng,
            manner: Manner::Any,
            priorities: HashMap::new(),
            naps: HashMap::new(),
            napped: 0,
            lowest: 0,
        }
    }

    fn choose(&mut self, ready: &[usize], current: Option<usize>) -> usize {
        match &self.manner {
            Manner::Any => ready[self.rng.index(ready.len())],
            Manner::Sticky(one_in) => {
                let one_in = *one_in;
                match current.filter(|current| ready.contains(current)) {
                    Some(current) if self.rng.below(one_in) > 0 => current,
                    _ => ready[self.rng.index(ready.len())],
                }
            }
            Manner::Naps { of, salt, one_in } => {
                let tires = |task: &usize| (*task as u64).wrapping_mul(*salt) >> 32 & (of - 1) == 0;
                if let Some(current) = current.filter(tires)
                    && self.napped < NAPS_STEPS_MAX
                    && self.rng.below(*one_in) == 0
                {
                    let long = 1 << self.rng.below(NAP_LOG2_MAX);
                    self.napped += long;
                    self.naps.insert(current, STEPS.get() + long);
                }
                match current.filter(|current| ready.contains(current)) {
                    Some(current) if !self.sleeps(current) => current,
                    _ => ready[self.rng.index(ready.len())],
                }
            }
            Manner::Priorities(changes) => {
                if let Some(current) = current.filter(|_| changes.contains(&STEPS.get())) {
                    self.is_last(current);
                }
                for task in ready {
                    let priority = self.rng.next_u64() >> 8;
                    self.priorities.entry(*task).or_insert(priority);
                }
                let priority = |task: &&usize| self.priorities[*task];
                *ready.iter().min_by_key(priority).unwrap()
            }
        }
    }

    fn sleeps(&self, task: usize) -> bool {
        self.naps.get(&task).is_some_and(|until| STEPS.get() < *until)
    }

    fn is_last(&mut self, task: usize) {
        self.lowest += 1;
        self.priorities.insert(task, (1 << 60) + self.lowest);
    }
}

impl Scheduler for Chance {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next()?;
        SEED.set(seed);
        // Nothing that ran before may affect this run.
        aquifer_blockio::settle();
        CLOCKS.take();
        IS_LATE.set(false);
        TRACE.set(0);
        STEPS.set(0);
        self.priorities.clear();
        self.naps.clear();
        self.napped = 0;
        let mut rng = Rng::stream(seed, "threads");
        self.manner = match rng.below(8) {
            0 => Manner::Any,
            1 => Manner::Sticky(4),
            2 => Manner::Sticky(50),
            3..=5 => {
                let one_in = [10, 40, 200][rng.index(3)];
                Manner::Naps { of: 1 << rng.below(3), salt: rng.next_u64(), one_in }
            }
            _ => {
                let within = 1 << (4 + rng.below(CHANGES_WITHIN_LOG2 - 3));
                Manner::Priorities((0..1 + rng.below(6)).map(|_| rng.below(within)).collect())
            }
        };
        self.rng = rng;
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let current = current.map(usize::from);
        let is_clock = |task: &usize| CLOCKS.with_borrow(|clocks| clocks.contains(task));
        let (clocks, mut ready): (Vec<usize>, Vec<usize>) =
            runnable.iter().map(|task| usize::from(task.id())).partition(is_clock);
        ALONE.set(ready.is_empty());
        let others_sleep = ready.iter().all(|task| self.sleeps(*task));
        let is_early = self.rng.below(EARLY_ONE_IN) == 0 || others_sleep;
        let is_early = ready.is_empty() || is_early && !IS_LATE.get();
        let chosen = if is_early && !clocks.is_empty() {
            clocks[self.rng.index(clocks.len())]
        } else {
            if ready.iter().any(|task| !self.sleeps(*task)) {
                ready.retain(|task| !self.sleeps(*task));
            }
            if is_yielding && ready.len() > 1 {
                ready.retain(|task| Some(*task) != current);
                current.into_iter().for_each(|current| self.is_last(current));
            }
            self.choose(&ready, current)
        };
        STEPS.set(STEPS.get() + 1);
        TRACE.set((TRACE.get() ^ chosen as u64).wrapping_mul(0x0000_0100_0000_01b3));
        Some(TaskId::from(chosen))
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
