//! Writers that submit more than the disks take are slowed evenly: none stands still while a txg
//! goes to slow disks. Limits are on the simulator's clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_files::{FileHandle, Service, Stability};
use aquifer_pool::Memory;
use aquifer_sim::{DiskConfig, Latency, Rng};

use crate::bed::{Bed, make, noise, read, write};

const FILE_PAGES: u64 = 32 * 1024;

/// A spinning disk: 180 operations a second, and this many bytes.
pub fn slow(bytes_per_second: u64) -> DiskConfig {
    let latency = Latency {
        service_ns: 5_500_000,
        sector_ns: 4096 * 1_000_000_000 / bytes_per_second,
        base_ns: 10_000,
        spread_ns: 10_000,
        flush_base_ns: 5_000_000,
        flush_spread_ns: 5_000_000,
        outlier_ppm: 0,
        outlier_ns_max: 0,
    };
    DiskConfig { latency, ..DiskConfig::default() }
}

pub fn fast() -> DiskConfig {
    let latency = Latency { flush_spread_ns: 50_000, outlier_ppm: 0, ..Latency::default() };
    DiskConfig { latency, ..DiskConfig::default() }
}

/// When writes were answered, and the time that each took.
#[derive(Default)]
struct Seen {
    writes: Vec<(Duration, Duration)>,
}

impl Seen {
    fn quantile(&self, per_mille: usize) -> Duration {
        let mut took: Vec<Duration> = self.writes.iter().map(|(_, took)| *took).collect();
        took.sort();
        took[(took.len() - 1) * per_mille / 1000]
    }

    /// The longest time without an answer.
    fn gap(&self) -> Duration {
        let pairs = self.writes.windows(2);
        pairs.map(|pair| pair[1].0.saturating_sub(pair[0].0)).max().unwrap()
    }
}

async fn fill(service: &Service, file: FileHandle) {
    let data = noise(3, 256);
    for page in (0..FILE_PAGES).step_by(256) {
        write(service, file, page, &data, Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

/// Random writes of 8 KiB, with this many outstanding.
async fn random_writes(
    service: &Service,
    file: FileHandle,
    clients: u64,
    length: Duration,
) -> Seen {
    let world = service.pool.world().clone();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let end = world.now() + length;
    let data = noise(4, 2);
    let client = |number: u64| {
        let (world, seen, data) = (world.clone(), seen.clone(), &data);
        async move {
            let mut rng = Rng::stream(number, "client");
            while world.now() < end {
                let begun = world.now();
                let page = rng.below(FILE_PAGES / 2) * 2;
                write(service, file, page, data, Stability::FileSync).await.unwrap();
                seen.lock().unwrap().writes.push((world.now(), world.now() - begun));
            }
        }
    };
    futures_util::future::join_all((0..clients).map(client)).await;
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

/// Lets writers of 8 KiB run freely on a file of a pool with slow disks.
fn overrun(sectors: u64, clients: u64, memory_cap_bytes: u64, bytes_per_second: u64) -> Seen {
    let mut bed = Bed::with_log(sectors, slow(bytes_per_second), fast());
    bed.options.memory = Memory::new(memory_cap_bytes);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "disk").await;
        fill(&service, file).await;
        random_writes(&service, file, clients, LENGTH).await
    })
}

const LENGTH: Duration = Duration::from_secs(8);

#[test]
fn writers_that_outrun_the_disks_are_slowed_evenly() {
    for (clients, memory_mib, rate) in [(8, 128, 20_000_000), (64, 64, 40_000_000)] {
        let seen = overrun(524_288, clients, memory_mib << 20, rate);
        let (middle, late) = (seen.quantile(500), seen.quantile(999));
        let told = format!("{clients}: p50 {middle:?}, p99.9 {late:?}, gap {:?}", seen.gap());
        // Without slowing: some 6000 times, and up to a second.
        assert!(late < middle * 20, "{told}");
        assert!(seen.gap() < Duration::from_millis(100), "{told}");
        // The disks are busy all the same: 8 KiB for each write, and more for trees.
        let rate = seen.writes.len() as u64 * 8192 / LENGTH.as_secs();
        assert!(rate > 14_000_000, "{told}: {rate} bytes a second");
    }
}

/// Writers wait for reserved room in the same way as for memory.
#[test]
fn on_a_pool_with_little_room_nobody_stands_still_either() {
    let seen = overrun(66_560, 8, 256 << 20, 20_000_000);
    let (middle, late) = (seen.quantile(500), seen.quantile(999));
    let told =
        format!("{}: p50 {middle:?}, p99.9 {late:?}, gap {:?}", seen.writes.len(), seen.gap());
    assert!(late < middle * 20, "{told}");
    assert!(seen.gap() < Duration::from_millis(100), "{told}");
}

/// Changes that nobody waits for are synced little by little; others at once.
#[test]
fn a_sync_takes_the_time_it_has() {
    let mut bed = Bed::with_log(262_144, fast(), fast());
    let (alone, awaited) = bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "disk").await;
        let (world, pool) = (service.pool.world().clone(), &service.pool);
        let data = noise(6, 16);
        let dirty = async || {
            for page in (0..4096).step_by(16) {
                write(&service, file, page, &data, Stability::Unstable).await.unwrap();
            }
        };
        dirty().await;
        let open = pool.open_txg();
        while pool.open_txg() == open {
            world.sleep(Duration::from_millis(1)).await;
        }
        let closed = world.now();
        while pool.committed_txg() < open {
            world.sleep(Duration::from_millis(1)).await;
        }
        let alone = world.now() - closed;
        dirty().await;
        let begun = world.now();
        pool.sync().await.unwrap();
        (alone, world.now() - begun)
    });
    assert!(alone > Duration::from_millis(150), "{alone:?}");
    assert!(alone < Duration::from_millis(400), "{alone:?}");
    assert!(awaited < Duration::from_millis(50), "{awaited:?}");
}

/// Writers that wait for room are woken in the order in which they came, not at random. The story
/// of a seed is the same in every process.
#[test]
fn a_crowd_that_waits_runs_the_same_again() {
    let trace = || {
        let mut bed = Bed::new(1, 65_536);
        bed.options.memory = Memory::new(64 << 20);
        bed.life(async |service| {
            let top = service.files.root("tank").unwrap();
            let file = make(&service, top, "disk").await;
            let data = noise(5, 16);
            let writer = |number: u64| {
                let (service, data) = (&service, &data);
                async move {
                    let mut rng = Rng::stream(number, "writer");
                    for _ in 0..20 {
                        let page = rng.below(256) * 16;
                        write(service, file, page, data, Stability::Unstable).await.unwrap();
                    }
                }
            };
            futures_util::future::join_all((0..500).map(writer)).await;
        });
        bed.sim.trace_hash()
    };
    assert_eq!(trace(), trace());
}

/// The renewal of a lock beside bulk writes waits for a batch of the log, not for the writes.
#[test]
fn small_writes_do_not_queue_behind_bulk_ones() {
    let mut bed = Bed::with_log(524_288, slow(20_000_000), fast());
    bed.options.memory = Memory::new(64 << 20);
    let longest = bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let (file, lock) = (make(&service, top, "disk").await, make(&service, top, ".lck").await);
        fill(&service, file).await;
        let world = service.pool.world().clone();
        let bulk = random_writes(&service, file, 128, LENGTH);
        let renewals = async {
            let mut longest = Duration::ZERO;
            for number in 0..3u8 {
                world.sleep(Duration::from_millis(2600)).await;
                let begun = world.now();
                write(&service, lock, 0, &[number; 84], Stability::FileSync).await.unwrap();
                let name = format!("made{number}");
                make(&service, top, &name).await;
                longest = longest.max(world.now() - begun);
            }
            longest
        };
        let (seen, longest) = futures_util::future::join(bulk, renewals).await;
        // The bulk writes do wait for each other.
        assert!(seen.quantile(500) > Duration::from_millis(40), "{:?}", seen.quantile(500));
        longest
    });
    assert!(longest < Duration::from_millis(10), "{longest:?}");
}

/// Readers see a txg only once it is on disk. Until then they need what it replaces: that stays in
/// the cache, and no read waits for a disk that is busy with the txg.
#[test]
fn what_a_txg_replaces_is_cached_until_it_is_on_disk() {
    let data = slow(20 << 20);
    let mut bed = Bed::with_log(1 << 16, data, fast());
    bed.life(async |service| {
        let file = make(&service, service.files.root("tank").unwrap(), "disk.img").await;
        let content = noise(3, 256);
        for page in (0..2048).step_by(256) {
            write(&service, file, page, &content, Stability::Unstable).await.unwrap();
        }
        service.pool.sync().await.unwrap();
        for page in (0..2048).step_by(16) {
            write(&service, file, page, &noise(4, 1), Stability::Unstable).await.unwrap();
        }
        let missed = || service.pool.cache_stats().misses;
        let (before, world) = (missed(), service.pool.world().clone());
        let reads = async {
            let mut count = 0;
            for page in (1..2048).step_by(16) {
                let at = usize::try_from(page % 256).unwrap();
                assert!(read(&service, file, page).await.unwrap() == content[at << 12..][..4096]);
                world.sleep(Duration::from_millis(1)).await;
                count += 1;
            }
            (count, missed() - before)
        };
        let begun = world.now();
        let synced = async {
            service.pool.sync().await.unwrap();
            world.now() - begun
        };
        let ((count, missed), took) = futures_util::future::join(reads, synced).await;
        println!("{count} reads missed {missed} times during a sync of {took:?}");
        assert!(took > Duration::from_millis(100), "reads and the sync meet: {took:?}");
        assert_eq!(missed, 0);
    });
    bed.assert_clean();
}
