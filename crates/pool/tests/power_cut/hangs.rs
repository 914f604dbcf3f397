//! Disks that do not answer: one side of a mirror, both, the only one.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_pool::PoolError;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::Vanish;
use aquifer_sim::{DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimDisk, When};
use aquifer_vdev::LeafState;
use futures_util::future::join_all;

use crate::clients::{Open, open};
use crate::shapes::{Shape, base, named};
use crate::slots::SLOTS;
use crate::slots::{How, content, version_of};

pub struct Machine {
    pub sim: Sim,
    pub world: Arc<dyn World>,
    pub disks: Vec<SimDisk>,
}

impl Machine {
    pub fn new(seed: u64, images: Vec<Image>) -> Machine {
        let mut sim = Sim::new(seed);
        let each = images.into_iter().enumerate();
        let disks = each
            .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
            .collect();
        Machine { world: Arc::new(sim.world()), sim, disks }
    }

    /// Runs `work` on the imported pool, then ends the process.
    pub fn live<T>(&mut self, work: impl AsyncFnOnce(&Open) -> T) -> T {
        let (world, disks) = (self.world.clone(), named(&self.disks));
        let done = self.sim.run_until(async {
            let open = open(world.clone(), disks, &ImportOptions::default()).await.unwrap();
            world.spawn("txg", open.pool.clone().run());
            work(&open).await
        });
        self.sim.kill();
        done.unwrap()
    }
}

pub fn states(open: &Open) -> Vec<LeafState> {
    let vdevs = open.pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.state).collect()
}

fn whole(open: &Open) -> bool {
    states(open).iter().all(|state| *state == LeafState::Online)
}

pub async fn write(open: &Open, slot: u64, version: u64) -> Result<(), PoolError> {
    let ticket = open.slots.write(slot, content(slot, version), How::Stable, 1).await?;
    ticket.unwrap().durable().await
}

pub async fn check(open: &Open, slot: u64, version: u64) -> Result<(), String> {
    let page = open.slots.read(slot).await.map_err(|error| error.to_string())?;
    let found = page.map_or(0, |page| version_of(slot, &page));
    if found < version { Err(format!("slot {slot}: {found}, not {version}")) } else { Ok(()) }
}

/// Eight clients write for so many seconds, each 20 ms after its last answer. Returns the longest
/// time that one waited, and the last version of each slot.
pub async fn load(
    world: &dyn World,
    open: &Open,
    seconds: u64,
) -> Result<(Duration, Vec<u64>), PoolError> {
    let until = world.now() + Duration::from_secs(seconds);
    let client = async |slot: u64| {
        let (mut longest, mut version) = (Duration::ZERO, 0);
        while world.now() < until {
            let begun = world.now();
            write(open, slot, version + 1).await?;
            version += 1;
            longest = longest.max(world.now() - begun);
            world.sleep(Duration::from_millis(20)).await;
        }
        Ok((longest, version))
    };
    let done: Result<Vec<_>, PoolError> = join_all((0..8).map(client)).await.into_iter().collect();
    let (longest, versions): (Vec<Duration>, Vec<u64>) = done?.into_iter().unzip();
    Ok((longest.into_iter().max().unwrap(), versions))
}

async fn becomes_whole(world: &dyn World, open: &Open) -> Duration {
    let begun = world.now();
    while !whole(open) {
        world.sleep(Duration::from_millis(100)).await;
    }
    world.now() - begun
}

#[test]
fn a_side_that_hangs_holds_nobody_up_and_comes_back_whole() {
    for hung in [0, 1] {
        let mut machine = Machine::new(41, base(Shape::Mirror));
        let (world, disk) = (machine.world.clone(), machine.disks[hung].clone());
        let versions = machine.live(async |open| {
            let hang = async {
                world.sleep(Duration::from_secs(5)).await;
                disk.stall(Duration::from_secs(30));
                world.sleep(Duration::from_secs(1)).await;
                let mut wanted = [LeafState::Online; 2];
                wanted[hung] = LeafState::Outdated;
                assert_eq!(states(open), wanted);
                let leaf = open.pool.status().vdevs[0].leaves[hung].clone();
                let why = leaf.last_error.unwrap();
                assert!(why.contains("did not answer for 5"), "{why}");
            };
            let (loaded, ()) = futures_util::future::join(load(&*world, open, 45), hang).await;
            let (longest, versions) = loaded.unwrap();
            println!("d{hung} hung: {longest:?} was the longest wait");
            assert!(longest < Duration::from_secs(1), "{longest:?}");
            let took = becomes_whole(&*world, open).await;
            assert!(took < Duration::from_secs(60), "{took:?}");
            versions
        });
        machine.disks[1 - hung].vanish(Vanish::PowerLost);
        machine.live(async |open| {
            for (slot, version) in (0..).zip(versions) {
                check(open, slot, version).await.unwrap();
            }
        });
    }
}

#[test]
fn while_all_hang_all_wait_and_nobody_fails() {
    for shape in [Shape::Single, Shape::Mirror] {
        let mut machine = Machine::new(42, base(shape));
        let (world, disks) = (machine.world.clone(), machine.disks.clone());
        machine.live(async |open| {
            write(open, 1, 1).await.unwrap();
            disks.iter().for_each(|disk| disk.stall(Duration::from_secs(10)));
            let begun = world.now();
            write(open, 1, 2).await.unwrap();
            let waited = (world.now() - begun).as_millis();
            assert!((10_000..10_600).contains(&waited), "{waited} ms");
            open.pool.sync().await.unwrap();
            assert!(whole(open), "{:?}", states(open));
            let status = open.pool.status();
            let errors = status.vdevs[0].leaves.iter().map(|leaf| leaf.write_errors).sum::<u64>();
            assert_eq!(errors, 0);
            check(open, 1, 2).await.unwrap();
        });
    }
}

/// Single requests hang on either side, now here, now there: one side may fail, the last one never.
pub fn requests_hang_on_both_sides(seed: u64) -> Result<(), String> {
    let mut machine = Machine::new(seed, base(Shape::Mirror));
    let mut rng = Rng::stream(seed, "hangs");
    for disk in &machine.disks {
        let late = Duration::from_millis(1000 + rng.below(9000));
        disk.inject(FaultRule::new(Fault::Late(late), When::Ppm(5000)));
    }
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        let loaded = load(&*world, open, 3).await;
        disks.iter().for_each(SimDisk::clear_faults);
        let (_, versions) = loaded.map_err(|error| error.to_string())?;
        for (slot, version) in (0..).zip(versions) {
            check(open, slot, version).await?;
        }
        for _ in 0..300 {
            if whole(open) {
                return Ok(());
            }
            world.sleep(Duration::from_secs(1)).await;
        }
        Err(format!("after 300 s: {:?}", states(open)))
    })
}

#[test]
fn the_last_side_never_fails_by_a_hang() {
    for seed in 0..20 {
        requests_hang_on_both_sides(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// An export ends although a side hangs for good: one that is idle, and one that was written to.
#[test]
fn an_export_waits_for_no_side_that_hangs() {
    for idle in [true, false] {
        let mut machine = Machine::new(43, base(Shape::Mirror));
        let (world, disk) = (machine.world.clone(), machine.disks[1].clone());
        let took = machine.live(async |open| {
            for slot in 0..SLOTS {
                write(open, slot, 1).await.unwrap();
            }
            disk.stall(Duration::from_secs(3600));
            if !idle {
                write(open, 1, 2).await.unwrap();
            }
            let begun = world.now();
            open.pool.export().await.unwrap();
            world.now() - begun
        });
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

/// A side that fails with a write under way is not taken back before that write has landed.
pub fn a_side_that_hangs_must_answer_before_it_is_resilvered() {
    let mut machine = Machine::new(49, base(Shape::Mirror));
    let (world, disk) = (machine.world.clone(), machine.disks[1].clone());
    let late = Duration::from_secs(60);
    let versions = machine.live(async |open| {
        write(open, 1, 1).await.unwrap();
        disk.inject(FaultRule::once(Fault::Late(late)).within(2048..60_000));
        let begun = world.now();
        let (_, versions) = load(&*world, open, 5).await.unwrap();
        while world.now() - begun < late - Duration::from_secs(6) {
            let wanted = [LeafState::Online, LeafState::Outdated];
            assert_eq!(states(open), wanted, "{:?}", world.now() - begun);
            world.sleep(Duration::from_millis(200)).await;
        }
        becomes_whole(&*world, open).await;
        versions
    });
    machine.disks[0].vanish(Vanish::PowerLost);
    machine.live(async |open| {
        for (slot, version) in (0..).zip(versions) {
            check(open, slot, version).await.unwrap();
        }
    });
}

#[test]
fn a_side_that_hangs_must_answer_first() {
    a_side_that_hangs_must_answer_before_it_is_resilvered();
}

/// One side hangs for good, another one comes back: it does not wait for the first.
#[test]
fn a_side_that_hangs_does_not_hold_up_the_resilver_of_another() {
    let images = crate::sides::mirrors().pop().unwrap().images;
    let mut machine = Machine::new(44, images);
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        write(open, 1, 1).await.unwrap();
        disks[1].inject(FaultRule::once(Fault::Late(Duration::MAX)));
        write(open, 1, 2).await.unwrap();
        world.sleep(Duration::from_secs(1)).await;
        disks[2].inject(FaultRule::once(Fault::FlushError));
        open.pool.sync().await.unwrap();
        let (online, outdated) = (LeafState::Online, LeafState::Outdated);
        assert_eq!(states(open), [online, outdated, outdated]);
        world.sleep(Duration::from_secs(15)).await;
        assert_eq!(states(open), [online, outdated, online]);
        write(open, 1, 3).await.unwrap();
        open.pool.export().await.unwrap();
    });
}

/// While a side that hangs is being resilvered, it holds nobody up, and is outdated again.
#[test]
fn a_side_that_hangs_in_its_resilver_is_left() {
    for after in 0..40 {
        let mut machine = Machine::new(45 + after, base(Shape::Mirror));
        let (world, disk) = (machine.world.clone(), machine.disks[1].clone());
        machine.live(async |open| {
            for slot in 0..SLOTS {
                write(open, slot, 1).await.unwrap();
            }
            disk.inject(FaultRule::once(Fault::FlushError));
            write(open, 1, 2).await.unwrap();
            open.pool.sync().await.unwrap();
            let rule =
                FaultRule::new(Fault::Late(Duration::from_secs(60)), When::OnceAfter(after * 7));
            disk.inject(rule);
            let (longest, _) = load(&*world, open, 15).await.unwrap();
            assert!(longest < Duration::from_secs(1), "{longest:?} after {after}");
            let took = becomes_whole(&*world, open).await;
            assert!(took < Duration::from_secs(200), "{took:?} after {after}");
            let begun = world.now();
            open.pool.export().await.unwrap();
            assert!(world.now() - begun < Duration::from_secs(2));
        });
    }
}

/// Reads do not wait for a side that hangs, and no side fails for a read.
#[test]
fn a_slow_read_asks_the_other_side() {
    let mut machine = Machine::new(46, base(Shape::Mirror));
    machine.live(async |open| {
        for slot in 0..SLOTS {
            write(open, slot, 1).await.unwrap();
        }
        open.pool.export().await.unwrap();
    });
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    for hung in [0, 1] {
        machine.live(async |open| {
            disks[hung].stall(Duration::from_secs(30));
            let begun = world.now();
            let read = async |slot| check(open, slot, 1).await;
            let all: Result<Vec<()>, String> =
                join_all((0..SLOTS).map(read)).await.into_iter().collect();
            all.unwrap();
            let took = world.now() - begun;
            assert!(took < Duration::from_millis(600), "{took:?}");
            assert!(whole(open), "{:?}", states(open));
            let status = open.pool.status();
            let errors = status.vdevs[0].leaves.iter().map(|leaf| leaf.read_errors).sum::<u64>();
            assert_eq!(errors, 0);
        });
    }
}

/// An import cannot know whether the others hold everything before it has seen all.
#[test]
fn an_import_waits_for_a_side_that_hangs() {
    let mut machine = Machine::new(47, base(Shape::Mirror));
    machine.disks[1].stall(Duration::from_secs(20));
    let world = machine.world.clone();
    machine.live(async |open| {
        assert!(world.now() >= Duration::from_secs(20));
        assert!(whole(open));
    });
}

/// A side of the log hangs with one write: nobody waits for it, and it is not taken back before
/// that write has ended.
#[test]
fn a_side_of_the_log_that_hangs_is_left_and_must_answer_first() {
    let shape = Shape::MirrorLogMirror;
    let mut machine = Machine::new(48, base(shape));
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        write(open, 1, 1).await.unwrap();
        let late = FaultRule::once(Fault::Late(Duration::from_secs(40)));
        disks[2].inject(late.within(2048..60_000));
        let (longest, _) = load(&*world, open, 5).await.unwrap();
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        let (online, outdated) = (LeafState::Online, LeafState::Outdated);
        assert_eq!(states(open), [online, online, outdated, online]);
        let name = open.pool.status().vdevs[1].leaves[0].path.clone();
        let again = || named(std::slice::from_ref(&disks[2])).remove(0);
        let why = open.pool.online_disk(&name, again(), false).await.unwrap_err().to_string();
        assert!(why.contains("has not answered"), "{why}");
        world.sleep(Duration::from_secs(40)).await;
        open.pool.online_disk(&name, again(), false).await.unwrap();
        assert!(whole(open), "{:?}", states(open));
        write(open, 1, 2000).await.unwrap();
        open.pool.export().await.unwrap();
    });
}
