//! Cost that a vdev adds to an operation: `cargo run --release -p aquifer-vdev --example cost`. Its
//! disks do nothing, and answer at the second poll, the other side of a mirror at the third.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example tells its figures")]

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use aquifer_blockio::world::Task;
use aquifer_blockio::{Disk, IoFuture, Page, World};
use aquifer_ondisk::config::{Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::{Guid, Txg};
use aquifer_vdev::{Leaf, Vdev};

struct Clock(Instant);

impl World for Clock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
    fn wall_ns(&self) -> u64 {
        0
    }
    fn sleep(&self, _: Duration) -> Task {
        Box::pin(std::future::pending())
    }
    fn random(&self) -> u64 {
        4
    }
    fn spawn(&self, _: &'static str, task: Task) {
        std::mem::forget(task);
    }
}

struct Pause<T>(u32, Option<T>);

impl<T: Unpin> Future for Pause<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0 -= 1;
        if self.0 > 0 { Poll::Pending } else { Poll::Ready(self.1.take().unwrap()) }
    }
}

/// Answers at this poll.
struct Null(u32);

impl fmt::Debug for Null {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Null")
    }
}

impl Disk for Null {
    fn sectors(&self) -> u64 {
        1 << 20
    }
    fn name(&self) -> &str {
        "null"
    }
    fn read(&self, _: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        Box::pin(Pause(self.0, Some(Ok(vec![Page::zeroed(); count]))))
    }
    fn write(&self, _: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        drop(pages);
        Box::pin(Pause(self.0, Some(Ok(()))))
    }
    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()> {
        self.write(sector, pages)
    }
    fn flush(&self) -> IoFuture<'_, ()> {
        Box::pin(Pause(self.0, Some(Ok(()))))
    }
    fn discard(&self, _: u64, _: u64) -> IoFuture<'_, ()> {
        self.flush()
    }
}

fn vdev(polls: &[u32]) -> Vdev {
    let clock: Arc<dyn World> = Arc::new(Clock(Instant::now()));
    let config = VdevConfig::new(Guid(1), VdevClass::Data, Redundancy::Mirror, 64, Txg(1));
    let leaf = |(at, polls): (u64, &u32)| {
        let disk: Arc<dyn Disk> = Arc::new(Null(*polls));
        Arc::new(Leaf::new(Guid(at), "null".into(), Some(disk), clock.clone()))
    };
    let leaves = (10..).zip(polls).map(leaf).collect();
    Vdev::new(0, &config, leaves, clock.clone())
}

fn end<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
    }
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let page = Page::zeroed();
    for (what, polls) in [
        ("single disk", &[2][..]),
        ("mirror, both at once", &[2, 2]),
        ("mirror, one after the other", &[2, 3]),
    ] {
        let vdev = vdev(polls);
        let mut best = [f64::MAX; 2];
        for _ in 0..7 {
            let begun = Instant::now();
            for _ in 0..rounds {
                end(vdev.write_durable(7, vec![page.clone()])).unwrap();
            }
            let wrote = begun.elapsed();
            let begun = Instant::now();
            for _ in 0..rounds {
                drop(end(vdev.read_good(7, 1, &|_| true)).unwrap());
            }
            let read = begun.elapsed();
            for (best, took) in best.iter_mut().zip([wrote, read]) {
                *best = best.min(took.as_secs_f64() * 1e9 / f64::from(rounds));
            }
        }
        println!("{what}: write {:.0} ns, read {:.0} ns", best[0], best[1]);
    }
}
