//! The cost of an input: peak memory, and the total of steps. A target asserts that both stay in
//! proportion to the input, so that a few bytes cannot keep a server busy.
//!
//! A step is an edge between blocks of the workspace's own code, or [`BYTES_PER_STEP`] bytes of
//! allocation. Steps are counted, not timed: the same input takes the same steps on any machine,
//! however busy it is. Edges are counted in the program of `make fuzz`, whose code is compiled to
//! call [`__sanitizer_cov_trace_pc`] at each. In other builds only the bytes count.
//!
//! Rules:
//! - A limit is a constant for the cost of every input, plus steps for each byte of it, or for each
//!   thing that it names. The limit is four to ten times the highest cost seen. So a slow change
//!   passes, and a factor that grows with the input does not.
//! - Only the product is measured, not the target's own checks: [`fair`] and [`Metered`] go around
//!   only the calls of the product.
//! - The thread's clock measures work that costs no steps (a `memmove`, a search in `std`), with a
//!   wide margin. It does so where the work can be repeated: the shortest of some tries counts.
#![expect(unsafe_code, reason = "a global allocator that counts, and a hook of the compiler's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The cost of some work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Peak memory in bytes, above the memory held before.
    pub peak: usize,
    /// Steps.
    pub steps: u64,
}

/// The allowed cost.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Memory for any input.
    pub peak: usize,
    /// Memory for each byte of it.
    pub peak_per_byte: usize,
    /// Steps for any input.
    pub steps: u64,
    /// Steps for each byte of it.
    pub steps_per_byte: u64,
}

/// The result of `work` on `bytes` bytes of input. Asserts that its cost is within `limit`. `work`
/// must be repeatable.
pub fn fair<T>(what: &str, bytes: usize, limit: &Limit, mut work: impl FnMut() -> T) -> T {
    let began = thread_time();
    let (value, cost) = cost_of(&mut work);
    let mut took = thread_time().saturating_sub(began);
    cost.check(what, bytes, limit);
    let time = TIME + TIME_PER_BYTE * u32::try_from(bytes).unwrap();
    for _ in 0..TIME_TRIES {
        if took <= time {
            break;
        }
        let began = thread_time();
        std::hint::black_box(work());
        took = took.min(thread_time().saturating_sub(began));
    }
    assert!(took <= time, "{what}: {took:?} for {bytes} bytes, each of {TIME_TRIES} times");
    value
}

/// The result of `work`, and its cost.
pub fn cost_of<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = Counted::now();
    PEAK.set(before.live);
    let value = work();
    (value, before.since())
}

impl Cost {
    /// Panics if this is more than `limit` allows for an input of this many bytes.
    pub fn check(&self, what: &str, bytes: usize, limit: &Limit) {
        let peak = limit.peak + limit.peak_per_byte * bytes;
        assert!(self.peak <= peak, "{what}: {} bytes of memory for {bytes}, not {peak}", self.peak);
        let steps = limit.steps + limit.steps_per_byte * u64::try_from(bytes).unwrap();
        assert!(self.steps <= steps, "{what}: {} steps for {bytes} bytes, not {steps}", self.steps);
    }
}

/// A future, and the steps that its polls take: work of others in between is not its cost.
#[derive(Debug)]
pub struct Metered<F> {
    work: Pin<Box<F>>,
    steps: u64,
}

impl<F: Future> Metered<F> {
    /// A future that was not polled yet.
    pub fn new(work: F) -> Self {
        Metered { work: Box::pin(work), steps: 0 }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = (F::Output, u64);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let before = Counted::now();
        let polled = self.work.as_mut().poll(context);
        self.steps += before.steps_since();
        let steps = self.steps;
        polled.map(|output| (output, steps))
    }
}

/// The counters at some moment.
struct Counted {
    live: isize,
    allocated: u64,
    edges: u64,
}

impl Counted {
    fn now() -> Self {
        let edges = EDGES.load(Ordering::Relaxed);
        Counted { live: LIVE.get(), allocated: ALLOCATED.get(), edges }
    }

    fn since(&self) -> Cost {
        let peak = usize::try_from(PEAK.get() - self.live).unwrap_or(0);
        Cost { peak, steps: self.steps_since() }
    }

    fn steps_since(&self) -> u64 {
        let now = Counted::now();
        now.edges - self.edges + (now.allocated - self.allocated) / BYTES_PER_STEP
    }
}

/// Edges passed so far. Other threads beside the target's could lose some counts: the target runs
/// alone.
static EDGES: AtomicU64 = AtomicU64::new(0);

/// The function that code compiled for `make fuzz` calls at each edge. The compiler does not
/// instrument functions of such names.
#[unsafe(no_mangle)]
pub extern "C" fn __sanitizer_cov_trace_pc() {
    // Not `fetch_add`, which would take as long as ten edges.
    EDGES.store(EDGES.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

thread_local! {
    // Signed: a thread may free memory that another one allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        let more = u64::try_from(bytes).unwrap_or(0);
        let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + more));
    });
}

// SAFETY: everything is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(now.tv_nsec).unwrap();
    Duration::new(u64::try_from(now.tv_sec).unwrap(), nanos)
}

/// Clearing a page takes as long as the edges that it counts for.
const BYTES_PER_STEP: u64 = 32;
/// Far more than an input's steps can take: this limits work that costs no steps.
const TIME: Duration = Duration::from_millis(20);
const TIME_PER_BYTE: Duration = Duration::from_micros(10);
const TIME_TRIES: u32 = 5;

#[test]
fn what_is_held_and_allocated_is_counted() {
    let (list, cost) = cost_of(|| {
        drop(Vec::<u64>::with_capacity(500));
        Vec::<u64>::with_capacity(1000)
    });
    assert_eq!(list.capacity(), 1000);
    assert_eq!((cost.peak, cost.steps), (8000, 12_000 / BYTES_PER_STEP));
}

#[test]
#[should_panic(expected = "a list: 312 steps for 10 bytes, not 110")]
fn what_is_out_of_proportion_breaks() {
    let limit = Limit { peak: 1 << 20, peak_per_byte: 0, steps: 10, steps_per_byte: 10 };
    fair("a list", 10, &limit, || Vec::<u8>::with_capacity(10_000));
}

#[test]
fn of_a_future_only_its_own_polls_count() {
    let mut slow = Box::pin(Metered::new(async {
        drop(Vec::<u8>::with_capacity(3200));
        let mut first = true;
        std::future::poll_fn(|_| {
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        drop(Vec::<u8>::with_capacity(3200));
    }));
    let context = &mut Context::from_waker(std::task::Waker::noop());
    assert!(slow.as_mut().poll(context).is_pending());
    drop(Vec::<u8>::with_capacity(1 << 20));
    assert_eq!(slow.as_mut().poll(context), Poll::Ready(((), 200)));
}
