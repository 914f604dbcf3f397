//! A ring and all operations under way on it.
//!
//! An operation goes through three places, in this order. Each has a limit or a reason for none:
//! - `queue`: accepted. Bounded by the operations of callers, who account for their memory.
//! - `staged`: in the submission ring, not yet taken by the kernel. At most `ENTRIES`.
//! - With the kernel: `in_kernel`, at most `IN_KERNEL_MAX`, so that the completion ring cannot
//!   overflow.
//!
//! Invariants:
//! - A flight stays in the slab, and with it its memory, from `start` until its outcome is fetched
//!   or, if its future was dropped, until the kernel has answered. Memory that the kernel never
//!   answered for is leaked, not freed.
//! - Queueing work wakes the driver. The driver submits all that was queued since its last turn in
//!   one system call. It runs after the tasks that were ready before it: so operations started in
//!   one round go out in one batch.
//! - Wakers are woken, and pages dropped, after the lock is released.
#![expect(unsafe_code, reason = "hands memory to the kernel; reviewed here and in flight.rs")]

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use parking_lot::Mutex;

use super::flight::{Flight, Step};
use super::slab::Slab;
use crate::Page;
use crate::request::Request;

// SAFETY: the raw pointers in a flight's iovecs point into pages that the same flight owns, whose
// ownership may pass to another thread; no reference to them is kept anywhere else.
unsafe impl Send for Flight {}

/// One thread's ring.
pub(super) struct Ring {
    fd: RawFd,
    state: Mutex<State>,
}

struct State {
    uring: IoUring,
    flights: Slab<Flight>,
    queue: VecDeque<u32>,
    staged: VecDeque<u32>,
    in_kernel: usize,
    /// Wakes the driver; taken when used, put back at the driver's next turn.
    driver: Option<Waker>,
    /// Turns in a row in which the kernel had no resources and nothing was under way.
    starved: u32,
    /// The thread has ended: the driver ends with the last flight.
    retiring: bool,
    /// Accepts nothing more: the driver is gone or the ring failed.
    closed: bool,
    /// Nothing may be submitted any more.
    broken: bool,
    /// Wakers of tasks that wait for outcomes: woken after the lock is released.
    wakers: Vec<Waker>,
    /// Ended flights without a waiting task: their pages are freed after the lock is released.
    dropped: Vec<Flight>,
}

/// The driver's next step after a turn.
pub(super) enum Turn {
    /// Wait for a completion, or for new work.
    Wait,
    /// Take another turn soon: the kernel could not take all work now.
    Soon,
    /// Nothing will come any more.
    Finished,
}

/// Tries whether the kernel allows rings with the operations that are used here.
pub(super) fn probe() -> io::Result<()> {
    let uring = build()?;
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Readv::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
    ];
    match needed.iter().all(|code| probe.is_supported(*code)) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
    }
}

/// A ring with the best settings that this kernel knows.
fn build() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    // Completions are handled when the thread is in the kernel anyway, not by an interrupt sent to
    // it (5.19). One bad entry does not stop a batch (5.18). DEFER_TASKRUN is left out: it would
    // bind a ring to one thread for ever, and a runtime, and with it the driver, may move between
    // threads.
    builder.setup_cqsize(COMPLETIONS).setup_coop_taskrun().setup_submit_all();
    match builder.build(ENTRIES) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(COMPLETIONS).build(ENTRIES)
        }
        other => other,
    }
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        let uring = build()?;
        let state = State {
            flights: Slab::new(),
            queue: VecDeque::new(),
            staged: VecDeque::new(),
            in_kernel: 0,
            driver: None,
            starved: 0,
            retiring: false,
            closed: false,
            broken: false,
            wakers: Vec::new(),
            dropped: Vec::new(),
            uring,
        };
        Ok(Ring { fd: state.uring.as_raw_fd(), state: Mutex::new(state) })
    }

    /// Accepts `request`; gives it back if the ring accepts nothing more.
    pub(super) fn start(self: Arc<Self>, request: Request) -> Result<UringOperation, Request> {
        let flight = Flight::new(request);
        let mut state = self.state.lock();
        if state.closed {
            return Err(flight.request);
        }
        let key = match state.flights.insert(flight) {
            Ok(key) => key,
            Err(flight) => return Err(flight.request),
        };
        state.queue.push_back(key);
        if state.queue.len() >= SUBMIT_EARLY {
            state.submit();
        }
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(UringOperation { ring: Some(self), key })
    }

    /// One turn of the driver: submits the queue, takes completions, and puts the wakers of waiting
    /// tasks into `wakers`.
    pub(super) fn turn(&self, driver: &Waker, wakers: &mut Vec<Waker>) -> Turn {
        let mut state = self.state.lock();
        state.submit();
        state.reap();
        // A completion may have queued the rest of its operation, or made room for others.
        state.submit();
        let turn = state.next_turn();
        if !matches!(turn, Turn::Finished) {
            state.driver = Some(driver.clone());
        }
        mem::swap(&mut state.wakers, wakers);
        let dropped = mem::take(&mut state.dropped);
        drop(state);
        drop(dropped);
        turn
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The thread of this ring has ended.
    pub(super) fn retire(&self) {
        let driver = {
            let mut state = self.state.lock();
            state.retiring = true;
            state.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// The driver ends, with its runtime or after [`Turn::Finished`]. Finishes accepted operations,
    /// waiting for the kernel for at most `patience`, and accepts nothing more.
    pub(super) fn close(self: &Arc<Self>, patience: Duration) {
        let mut state = self.state.lock();
        let deadline = Instant::now() + patience;
        while state.is_busy() && Instant::now() < deadline {
            state.submit();
            state.wait();
            state.reap();
        }
        state.closed = true;
        if state.is_busy() {
            state.ground();
            // The kernel may still use the memory of the flights: ring and slab stay for ever.
            mem::forget(Arc::clone(self));
            tracing::error!("disk operations did not end in time at shutdown: given up");
        }
        let wakers = mem::take(&mut state.wakers);
        let dropped = mem::take(&mut state.dropped);
        drop(state);
        drop(dropped);
        wakers.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    pub(super) fn fail_for_test(&self, errno: i32) {
        self.state.lock().fail(errno);
    }

    /// The outcome of a flight, if it has ended. Otherwise wakes `waker` when it has.
    fn fetch(&self, key: u32, waker: &Waker) -> Poll<io::Result<Vec<Page>>> {
        let (flight, outcome) = {
            let mut state = self.state.lock();
            let Some(flight) = state.flights.get_mut(key) else {
                debug_assert!(false, "an operation without a flight");
                return Poll::Ready(Err(io::ErrorKind::NotFound.into()));
            };
            let Some(outcome) = flight.outcome.take() else {
                match &mut flight.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                return Poll::Pending;
            };
            if flight.grounded {
                return Poll::Ready(outcome.map(|()| Vec::new()));
            }
            (state.flights.remove(key), outcome)
        };
        match flight {
            Some(flight) => Poll::Ready(flight.request.into_pages(outcome)),
            None => Poll::Ready(outcome.map(|()| Vec::new())),
        }
    }

    /// Nobody waits for this flight any more.
    fn abandon(&self, key: u32) {
        let flight = {
            let mut state = self.state.lock();
            match state.flights.get_mut(key) {
                Some(flight) if flight.grounded => None,
                Some(flight) if flight.outcome.is_some() => state.flights.remove(key),
                Some(flight) => {
                    flight.abandoned = true;
                    flight.waker = None;
                    None
                }
                None => None,
            }
        };
        drop(flight);
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl State {
    fn is_busy(&self) -> bool {
        self.in_kernel > 0 || self.is_waiting()
    }

    fn is_waiting(&self) -> bool {
        !self.staged.is_empty() || !self.queue.is_empty()
    }

    /// Moves the queue into the submission ring, as far as the limits allow, and tells the kernel.
    fn submit(&mut self) {
        loop {
            self.stage();
            if self.staged.is_empty() {
                return;
            }
            match self.uring.submit() {
                Ok(taken) => {
                    self.starved = 0;
                    self.in_kernel += taken;
                    self.staged.drain(..taken.min(self.staged.len()));
                    if taken == 0 || self.queue.is_empty() {
                        return;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // No resources just now: the next completion brings another turn.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => return,
                    errno => return self.fail(errno.unwrap_or(libc::EIO)),
                },
            }
        }
    }

    fn stage(&mut self) {
        if self.broken {
            return;
        }
        let mut submission = self.uring.submission();
        while !submission.is_full() && self.in_kernel + self.staged.len() < IN_KERNEL_MAX {
            let Some(key) = self.queue.pop_front() else {
                break;
            };
            let Some(flight) = self.flights.get_mut(key) else {
                continue;
            };
            let entry = flight.entry(key);
            // SAFETY: the memory that the entry names belongs to the flight, which stays in the
            // slab, its pages and iovecs unchanged, until the kernel has answered, or for ever if
            // it never does (`ground`). Its request holds the file descriptor open.
            if unsafe { submission.push(&entry) }.is_err() {
                self.queue.push_front(key);
                break;
            }
            self.staged.push_back(key);
        }
    }

    /// Takes the completions.
    fn reap(&mut self) {
        for completion in self.uring.completion() {
            self.in_kernel = self.in_kernel.saturating_sub(1);
            let key = u32::try_from(completion.user_data()).unwrap_or(u32::MAX);
            let Some(flight) = self.flights.get_mut(key) else {
                debug_assert!(false, "a completion for no operation");
                continue;
            };
            match flight.complete(completion.result()) {
                Step::Again => self.queue.push_front(key),
                Step::Landed if flight.abandoned => self.dropped.extend(self.flights.remove(key)),
                Step::Landed => self.wakers.extend(flight.waker.take()),
            }
        }
    }

    fn next_turn(&mut self) -> Turn {
        if self.is_waiting() && self.in_kernel == 0 {
            self.starved += 1;
            if self.starved > STARVED_MAX {
                self.fail(libc::EAGAIN);
            }
            return Turn::Soon;
        }
        match (self.closed || self.retiring) && !self.is_busy() {
            true => Turn::Finished,
            false => Turn::Wait,
        }
    }

    /// Waits briefly for a completion.
    fn wait(&mut self) {
        if self.broken || self.in_kernel == 0 {
            std::thread::sleep(PAUSE);
            return;
        }
        let patience = Timespec::from(DRAIN_STEP);
        let arguments = SubmitArgs::new().timespec(&patience);
        match self.uring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
            Err(_) => std::thread::sleep(PAUSE),
        }
    }

    /// The kernel refuses this ring's submissions for good: operations that it has not taken fail,
    /// and the ring accepts nothing more. Staged entries are never submitted, so their memory is
    /// free.
    fn fail(&mut self, errno: i32) {
        tracing::error!(errno, "io_uring failed: what waits for it fails, a new ring is tried");
        self.broken = true;
        self.closed = true;
        self.staged.extend(self.queue.drain(..));
        for key in mem::take(&mut self.staged) {
            let Some(flight) = self.flights.get_mut(key) else {
                continue;
            };
            flight.land(Err(io::Error::from_raw_os_error(errno)));
            match flight.abandoned {
                true => self.dropped.extend(self.flights.remove(key)),
                false => self.wakers.extend(flight.waker.take()),
            }
        }
    }

    /// Gives up waiting for the kernel: every flight without an outcome ends with an error and
    /// keeps its memory for ever.
    fn ground(&mut self) {
        for flight in self.flights.iter_mut().filter(|flight| flight.outcome.is_none()) {
            flight.land(Err(io::Error::from_raw_os_error(libc::EINTR)));
            flight.grounded = true;
            self.wakers.extend(flight.waker.take());
        }
    }
}

/// One operation on a ring. Dropping it does not cancel the operation.
pub(crate) struct UringOperation {
    /// `None` once the outcome has been fetched.
    ring: Option<Arc<Ring>>,
    key: u32,
}

impl Future for UringOperation {
    type Output = io::Result<Vec<Page>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ring) = &self.ring else {
            return Poll::Pending;
        };
        let outcome = ring.fetch(self.key, cx.waker());
        if outcome.is_ready() {
            self.ring = None;
        }
        outcome
    }
}

impl Drop for UringOperation {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            ring.abandon(self.key);
        }
    }
}

/// Places in the submission ring: what one system call can submit.
const ENTRIES: u32 = 256;

/// Places in the completion ring.
const COMPLETIONS: u32 = 1024;

/// Operations that the kernel may have at once. Well below `COMPLETIONS`, so completions are never
/// lost for lack of room. More than disks take at once (256 requests per queue is usual).
const IN_KERNEL_MAX: usize = 512;

/// From this many queued operations on, they are submitted at once, not at the end of the round:
/// the disk starts while the round goes on.
const SUBMIT_EARLY: usize = 64;

/// How long a ring that closes waits for the kernel at a time.
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// The pause before the kernel is asked again after it had no resources.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// After this many pauses in a row (5 s) with no operation under way, the operations fail.
const STARVED_MAX: u32 = 5000;
