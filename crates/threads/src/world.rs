//! Time and tasks for threads that are permuted.
//!
//! Every task is a thread of its own. That is more than in service, where the tasks of one runtime
//! take turns: the engine does not know on which runtime it is.
//!
//! Nothing in here is a switching point, except for the tasks. The state is under std's locks, for
//! a moment only.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_blockio::world::Task;
use aquifer_sim::Rng;

use crate::schedule::{is_alone, is_clock, is_late};

/// A thread that takes longer waits for an event that never comes.
const LONGEST: Duration = Duration::from_secs(3600);
/// The most time that passes while others could go on: less than anything is forgotten after.
const LATEST: Duration = Duration::from_secs(300);
/// Nanoseconds: the 13th of September 2020.
const WALL_BEGAN_NS: u64 = 1_600_000_000_000_000_000;

/// The longest moment, in microseconds.
const MOMENT_US: u64 = 200;

/// A thread.
pub type Thread<T> = shuttle::thread::JoinHandle<T>;

/// Clock, randomness and tasks of a run.
#[derive(Clone)]
pub struct Threads(Arc<Mutex<State>>);

struct State {
    now: Duration,
    /// The part of it that passed while no thread could go on.
    idle: Duration,
    wall_ns: u64,
    rng: Rng,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    /// They wait until no other thread can go on.
    rests: Vec<Waker>,
    clock: Option<Waker>,
}

impl Threads {
    /// A world, within a run.
    pub fn new() -> Threads {
        let state = State {
            now: Duration::ZERO,
            idle: Duration::ZERO,
            wall_ns: WALL_BEGAN_NS,
            rng: Rng::stream(crate::schedule::seed(), "world"),
            timers: BTreeMap::new(),
            next_timer: 0,
            rests: Vec::new(),
            clock: None,
        };
        let world = Threads(Arc::new(Mutex::new(state)));
        drop(shuttle::future::spawn(world.clone().pass_time()));
        world
    }

    /// Waits until no other thread can go on without time passing: none is in the middle of an
    /// operation.
    pub async fn rest(&self) {
        let mut waits = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waits, true) {
                return Poll::Ready(());
            }
            let mut state = self.state();
            state.rests.push(context.waker().clone());
            state.wake_clock();
            Poll::Pending
        })
        .await;
    }

    /// How long no thread could go on before a timer ended.
    pub fn idle(&self) -> Duration {
        self.state().idle
    }

    /// Some number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.state().rng.below(bound)
    }

    /// Lets others go on, or some time pass.
    pub async fn a_moment(&self) {
        match self.below(3) {
            0 => self.sleep(Duration::from_micros(self.below(MOMENT_US))).await,
            _ => aquifer_sync::point(),
        }
    }

    /// Runs `work` in a thread of its own.
    pub fn thread<T: Send + 'static, F: Future<Output = T>>(
        &self,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Thread<T> {
        shuttle::thread::spawn(|| shuttle::future::block_on(work()))
    }

    async fn pass_time(self) {
        is_clock();
        loop {
            let asleep = {
                let mut state = self.state();
                if is_alone() && !state.rests.is_empty() {
                    std::mem::take(&mut state.rests).into_iter().for_each(Waker::wake);
                    false
                } else if let Some(((at, _), waker)) = state.timers.pop_first() {
                    let passes = at.saturating_sub(state.now);
                    state.now += passes;
                    if is_alone() {
                        state.idle += passes;
                        assert!(state.idle < LONGEST, "a wait that nobody ends");
                    } else if state.now - state.idle > LATEST {
                        is_late();
                    }
                    waker.wake();
                    false
                } else {
                    state.rests.is_empty()
                }
            };
            if asleep {
                let mut waits = false;
                poll_fn(|context| {
                    if std::mem::replace(&mut waits, true) {
                        return Poll::Ready(());
                    }
                    self.state().clock = Some(context.waker().clone());
                    Poll::Pending
                })
                .await;
            } else {
                shuttle::future::yield_now().await;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Threads {
    fn default() -> Self {
        Threads::new()
    }
}

impl State {
    fn wake_clock(&mut self) {
        self.clock.take().into_iter().for_each(Waker::wake);
    }
}

impl World for Threads {
    fn now(&self) -> Duration {
        self.state().now
    }

    /// No time occurs twice.
    fn wall_ns(&self) -> u64 {
        let mut state = self.state();
        let passed = u64::try_from(state.now.as_nanos()).unwrap();
        state.wall_ns = (state.wall_ns + 1).max(WALL_BEGAN_NS + passed);
        state.wall_ns
    }

    fn sleep(&self, delay: Duration) -> Task {
        let until = self.now() + delay;
        Box::pin(Sleep { world: self.clone(), until, timer: None })
    }

    fn random(&self) -> u64 {
        self.state().rng.next_u64()
    }

    fn spawn(&self, _name: &'static str, task: Task) {
        drop(shuttle::future::spawn(task));
    }
}

struct Sleep {
    world: Threads,
    until: Duration,
    timer: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        let mut state = world.state();
        if let Some(timer) = self.timer.take() {
            state.timers.remove(&timer);
        }
        if state.now >= self.until {
            return Poll::Ready(());
        }
        state.next_timer += 1;
        let timer = (self.until, state.next_timer);
        state.timers.insert(timer, context.waker().clone());
        self.timer = Some(timer);
        state.wake_clock();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.world.state().timers.remove(&timer);
        }
    }
}
