//! Counts and times, compared with a disk that says how long it takes, on a clock that only it
//! moves.

use aquifer_blockio::world::Task;
use aquifer_blockio::{Disk, DiskError, IoFuture, Page};
use aquifer_ondisk::config::{Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::{Guid, Txg};
use futures_util::FutureExt;

use super::*;
use crate::{Leaf, Vdev};

/// Time passes when a disk works.
#[derive(Default)]
struct Clock(AtomicU64);

impl World for Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
    fn wall_ns(&self) -> u64 {
        0
    }
    fn sleep(&self, _: Duration) -> Task {
        Box::pin(async {})
    }
    fn random(&self) -> u64 {
        4
    }
    fn spawn(&self, _: &'static str, _: Task) {}
}

/// A disk whose every operation takes `us`, and which may be broken.
struct Slow {
    clock: Arc<Clock>,
    us: u64,
    broken: bool,
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}

impl Slow {
    fn work<T: Send + 'static>(&self, result: T) -> IoFuture<'_, T> {
        Box::pin(async move {
            self.clock.0.fetch_add(self.us * 1000, Ordering::Relaxed);
            if self.broken { Err(DiskError::Gone) } else { Ok(result) }
        })
    }
}

impl Disk for Slow {
    fn sectors(&self) -> u64 {
        1 << 20
    }
    fn name(&self) -> &str {
        "slow"
    }
    fn read(&self, _: u64, count: usize) -> IoFuture<'_, Vec<Page>> {
        self.work(vec![Page::zeroed(); count])
    }
    fn write(&self, _: u64, _: Vec<Page>) -> IoFuture<'_, ()> {
        self.work(())
    }
    fn write_durable(&self, _: u64, _: Vec<Page>) -> IoFuture<'_, ()> {
        self.work(())
    }
    fn flush(&self) -> IoFuture<'_, ()> {
        self.work(())
    }
    fn discard(&self, _: u64, _: u64) -> IoFuture<'_, ()> {
        self.work(())
    }
}

fn leaf(clock: &Arc<Clock>, us: u64, broken: bool) -> Arc<Leaf> {
    let disk: Arc<dyn Disk> = Arc::new(Slow { clock: Arc::clone(clock), us, broken });
    Arc::new(Leaf::new(Guid(us), format!("disk-{us}"), Some(disk), Arc::clone(clock) as _))
}

fn mirror(clock: &Arc<Clock>, leaves: Vec<Arc<Leaf>>) -> Vdev {
    let config = VdevConfig::new(Guid(1), VdevClass::Data, Redundancy::Mirror, 64, Txg(1));
    Vdev::new(0, &config, leaves, Arc::clone(clock) as _)
}

fn of(count: &IoCount) -> (u64, u64, u64) {
    (count.latency.count(), count.bytes, count.latency.total_ns() / 1000)
}

#[test]
fn each_disk_and_the_mirror_count_what_was_done_and_how_long_it_took() {
    let clock = Arc::new(Clock::default());
    let vdev = mirror(&clock, vec![leaf(&clock, 100, false), leaf(&clock, 300, false)]);
    for sector in [0, 256, 300] {
        vdev.read(sector, 3, &|_| true).now_or_never().unwrap().unwrap();
    }
    vdev.write(0, vec![Page::zeroed(); 5]).now_or_never().unwrap().unwrap();
    vdev.write_durable(9, vec![Page::zeroed(); 2]).now_or_never().unwrap().unwrap();
    vdev.flush().now_or_never().unwrap().unwrap();
    let leaves: Vec<IoCounts> = vdev.leaves.iter().map(|leaf| leaf.io.look()).collect();
    // Reads go to one side, the next MiB to the other; writes and flushes to both, and to these
    // disks one after the other.
    assert_eq!(of(&leaves[0].reads), (1, 3 * 4096, 100));
    assert_eq!(of(&leaves[1].reads), (2, 6 * 4096, 600));
    for (leaf, us) in leaves.iter().zip([100, 300]) {
        assert_eq!(of(&leaf.writes), (1, 5 * 4096, us));
        assert_eq!(of(&leaf.durable_writes), (1, 2 * 4096, us));
        assert_eq!(of(&leaf.flushes), (1, 0, us));
    }
    let all = vdev.io.look();
    assert_eq!(of(&all.reads), (3, 9 * 4096, 700));
    assert_eq!((of(&all.writes), of(&all.flushes)), ((1, 5 * 4096, 400), (1, 0, 400)));
    assert_eq!(of(&all.durable_writes), (1, 2 * 4096, 400));
}

#[test]
fn what_failed_is_an_error_and_no_operation() {
    let clock = Arc::new(Clock::default());
    let vdev = mirror(&clock, vec![leaf(&clock, 100, true), leaf(&clock, 300, false)]);
    vdev.read(0, 1, &|_| true).now_or_never().unwrap().unwrap();
    vdev.write(0, vec![Page::zeroed()]).now_or_never().unwrap().unwrap();
    let (bad, good) = (&vdev.leaves[0], &vdev.leaves[1]);
    assert_eq!(bad.io.look(), IoCounts::default());
    assert_eq!(bad.counters.read_errors.load(Ordering::Relaxed), 1);
    assert_eq!(bad.counters.write_errors.load(Ordering::Relaxed), 1);
    assert_eq!(of(&good.io.look().reads), (1, 4096, 300));
    // The vdev's own time includes the failed try: its reader waited for that too.
    assert_eq!(of(&vdev.io.look().reads), (1, 4096, 400));
}
