//! Reads of a mirror with a slow side, by the simulator's clock.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

mod mirror;

use aquifer_blockio::Page;
use aquifer_sim::{DiskConfig, Latency};
use aquifer_vdev::{IoKind, Slow, pace};

use mirror::{Mirror, SECTORS, mirror};

/// A MiB: neighbouring reads go to one side.
const NEAR: u64 = 256;

impl Mirror {
    /// Reads a page of each MiB, twice. Returns how many each side was asked for.
    fn read(&mut self) -> Vec<u64> {
        let before: Vec<u64> = self.disks.iter().map(|disk| disk.counters().reads).collect();
        let vdev = &self.vdev;
        let read = self.sim.run_until(async {
            for at in (0..SECTORS / 2).step_by(usize::try_from(NEAR).unwrap()).chain([0]) {
                for _ in 0..2 {
                    vdev.read(at, 1, &|_: &[Page]| true).await.unwrap();
                }
            }
        });
        read.unwrap();
        self.disks.iter().zip(before).map(|(disk, then)| disk.counters().reads - then).collect()
    }

    fn slow(&self) -> Vec<Option<Slow>> {
        pace::compare(&self.vdev.leaves, 1);
        self.vdev.leaves.iter().map(|leaf| leaf.trouble().slow).collect()
    }
}

/// With 50 ms, its reads are waited for. With 400 ms, the other side is asked as well and answers
/// first: only what becomes of the late read shows how slow the disk is.
#[test]
fn reads_go_to_the_faster_side_until_the_slow_one_keeps_up() {
    for slow_ns in [50_000_000, 400_000_000] {
        let latency = Latency::fixed(1_000_000, 1_000_000);
        let mut mirror = mirror(DiskConfig { latency, ..DiskConfig::default() });
        let even = mirror.read();
        assert!(even[0].abs_diff(even[1]) <= 2, "{even:?}");
        mirror.slow();
        mirror.disks[1].set_latency(Latency::fixed(slow_ns, slow_ns));
        for _ in 0..3 {
            // While it owes an answer, the other side is asked first: it gets few.
            for _ in 0..100 {
                mirror.read();
            }
            mirror.slow();
        }
        let slow = mirror.slow();
        let [None, Some(found)] = slow[..] else { panic!("{slow_ns}: {slow:?}") };
        assert_eq!(found.kind, IoKind::Read);
        // Within a bucket, a quarter wide.
        assert!(found.own_ns * 5 / 4 >= slow_ns && found.others_ns < 2_000_000, "{found:?}");
        let uneven = mirror.read();
        assert!(uneven[1] > 0 && uneven[1] * 10 < uneven[0], "{uneven:?}");
        // The few reads that it still gets show that it is fast again.
        mirror.disks[1].set_latency(Latency::fixed(1_000_000, 1_000_000));
        mirror.slow();
        for _ in 0..2 {
            for _ in 0..40 {
                mirror.read();
            }
            mirror.slow();
        }
        assert_eq!(mirror.slow(), [None, None]);
        let even = mirror.read();
        assert!(even[0].abs_diff(even[1]) <= 2, "{even:?}");
    }
}
