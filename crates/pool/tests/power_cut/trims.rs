//! Free space that is discarded and written over while clients write: by autotrim, and by an
//! administrator. Disks err on discards, and carry some out late. Vdevs grow, sides of mirrors go
//! out of use and come back, imports go back to older roots.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{FreeWork, PoolError};
use aquifer_sim::{CutPlan, DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimConfig, Stop, When};
use futures_util::future::join3;

use crate::clients::{Model, Open, begin, check_space, end, sound, told, went_back, workload};
use crate::shapes::Found;
use crate::{Kind, story};

/// Events that a seed has shown.
#[derive(Default)]
pub struct TrimsRun {
    pub cuts: u64,
    /// Imports that went back to an older root.
    pub rewinds: u64,
    /// Discards that the disks got.
    pub discards: u64,
    /// Acts of the administrator that were carried out.
    pub acts: u64,
}

/// Segments of a disk when the pool is made, and later.
const SEGMENTS: [u64; 3] = [64, 65, 81];

struct Machine {
    rng: Rng,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<Found>,
    model: Arc<Mutex<Model>>,
    run: TrimsRun,
}

/// Lets a machine live and die as the seed says.
pub fn run_trims_seed(seed: u64, bases: &[Vec<Image>]) -> Result<TrimsRun, String> {
    let mut rng = Rng::stream(seed, "trims");
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let images = bases[rng.index(bases.len())].iter().enumerate();
    let disks = images.map(|(at, image)| {
        let disk = sim.add_disk(&format!("d{at}"), image.clone(), DiskConfig::default());
        Found::new(disk, SEGMENTS[0] * SEGMENT_SECTORS)
    });
    let disks = disks.collect();
    let (world, model): (Arc<dyn World>, _) = (Arc::new(sim.world()), Arc::default());
    let mut machine = Machine { rng, sim, world, disks, model, run: TrimsRun::default() };
    let lives = machine.lives();
    lives.map_err(|what| format!("seed {seed}: {what}\n{}", machine.sim.story()))?;
    let discards = machine.disks.iter().map(|found| found.disk.counters().discards);
    machine.run.discards = discards.sum();
    Ok(machine.run)
}

impl Machine {
    fn lives(&mut self) -> Result<(), String> {
        for _ in 0..2 + self.rng.below(3) {
            self.upset();
            let longest = [400, 2000, 6000][self.rng.index(3)];
            self.sim.plan_cut(CutPlan::AtEvent(1 + self.rng.below(longest)));
            self.life(0)?;
            end(&mut self.sim, &mut self.rng);
            self.run.cuts += 1;
            if self.rng.below(3) == 0 {
                self.goes_back()?;
            }
        }
        self.disks.iter().for_each(|found| found.disk.clear_faults());
        self.is_all_there()
    }

    /// Some discards err, and some are carried out late.
    fn upset(&mut self) {
        for Found { disk, .. } in &self.disks {
            disk.clear_faults();
            let late = Fault::LateDiscard(Duration::from_micros(self.rng.below(200_000)));
            match self.rng.below(4) {
                0 => disk.inject(FaultRule::new(Fault::DiscardError, When::Ppm(100_000))),
                1 => disk.inject(FaultRule::new(late, When::Ppm(200_000))),
                2 => disk.inject(FaultRule::new(late, When::Always)),
                _ => {}
            }
        }
    }

    fn life(&mut self, rewind: u64) -> Result<(), String> {
        let work = Rng::stream(self.rng.next_u64(), "work");
        let acts = Rng::stream(self.rng.next_u64(), "acts");
        let autotrim = self.rng.coin();
        let done = AtomicU64::new(0);
        let ended = self.live(rewind, async |open, machine| {
            open.pool.set_autotrim(autotrim);
            let (world, model) = (machine.world.clone(), machine.model.clone());
            let work = workload(world, open, model, &[], Kind::Short, work);
            let acts = machine.administrate(open, acts, &done);
            let (done, churned, ()) = join3(work, machine.churn(open), acts).await;
            done.and(churned).map_err(|error| error.to_string())?;
            sound(open)
        });
        self.run.acts += done.into_inner();
        match ended? {
            Ok(()) | Err(Stop::Halted) => Ok(()),
            Err(stop) => Err(stop.to_string()),
        }
    }

    /// Whole chunks come and go.
    async fn churn(&self, open: &Open) -> Result<(), PoolError> {
        for _ in 0..6 {
            match open.slots.churn(100).await {
                Ok(()) | Err(PoolError::NoSpace) => {}
                Err(error) => return Err(error),
            }
            open.pool.request_txg();
            self.world.sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn administrate(&self, open: &Open, mut rng: Rng, done: &AtomicU64) {
        let pool = &open.pool;
        for _ in 0..rng.below(12) {
            self.world.sleep(Duration::from_micros(rng.below(6000))).await;
            let one = &self.disks[rng.index(self.disks.len())];
            let name = one.name().to_string();
            let disks = if rng.coin() { vec![name.clone()] } else { Vec::new() };
            let work = if rng.below(3) == 0 { FreeWork::Initialize } else { FreeWork::Trim };
            let rate = (rng.below(4) == 0).then_some(1 << 30);
            let result = match rng.below(12) {
                0 => pool.end_free_work(work, &disks, true).is_ok(),
                1 => pool.end_free_work(work, &disks, false).is_ok(),
                2 => pool.forget_free_work(work, &disks).is_ok(),
                3 => {
                    one.seen.grows_to(*rng.pick(&SEGMENTS).unwrap() * SEGMENT_SECTORS);
                    pool.expand(&name).await.is_ok()
                }
                4 => pool.offline_disk(&name, true).await.is_ok(),
                5 | 6 => pool.online_disk(&name, one.named(), false).await.is_ok(),
                7 => {
                    pool.set_autotrim(rng.coin());
                    true
                }
                _ => pool.start_free_work(work, &disks, rate).is_ok(),
            };
            done.fetch_add(u64::from(result), Ordering::Relaxed);
        }
    }

    /// An older root finds all its blocks, whatever was discarded since.
    fn goes_back(&mut self) -> Result<(), String> {
        self.model.lock().unwrap().rewound();
        let back = 1 + self.rng.below(2);
        self.run.rewinds += u64::from(went_back(self.life(back))?);
        end(&mut self.sim, &mut self.rng);
        self.run.cuts += 1;
        Ok(())
    }

    /// Nothing is lost, no sector leaks or stays lent, and the export waits for nothing for long.
    fn is_all_there(&mut self) -> Result<(), String> {
        let ended = self.live(0, async |open, _| {
            let told = |error: PoolError| error.to_string();
            open.pool.start_free_work(FreeWork::Trim, &[], None).map_err(|e| e.to_string())?;
            open.pool.sync().await.map_err(told)?;
            check_space(open)?;
            open.pool.export().await.map_err(told)?;
            sound(open)
        });
        ended?.map_err(|stop| stop.to_string())?;
        self.sim.power_cut_any();
        let ended = self.live(0, async |open, _| sound(open));
        ended?.map_err(|stop| stop.to_string())
    }

    /// Imports, checks, and does this. The error of `Result` is one that the engine told.
    fn live(
        &mut self,
        rewind: u64,
        work: impl AsyncFnOnce(&Open, &Machine) -> Result<(), String>,
    ) -> Result<Result<(), Stop>, String> {
        let mut options = ImportOptions { rewind, ..ImportOptions::default() };
        options.scale.record_segment_sectors = 32;
        options.scale.autotrim_after = Duration::from_micros(100);
        let (world, model) = (self.world.clone(), self.model.clone());
        let disks: Vec<NamedDisk> = self.disks.iter().map(Found::named).collect();
        // The machine is only read while its simulation runs.
        let mut sim = std::mem::replace(&mut self.sim, Sim::new(0));
        let end = sim.run_until(async {
            let open = begin(&world, disks, &options, &model, |_| false).await?;
            work(&open, self).await
        });
        self.sim = sim;
        told(end)
    }
}

mod by_the_clock {
    use aquifer_blockio::Disk;
    use aquifer_pool::{FreeWorkState, FreeWorkStatus};

    use super::*;
    use crate::hangs::{Machine, load, write};
    use crate::shapes::{Shape, base};
    use crate::slots::SLOTS;

    fn trims(open: &Open) -> Vec<FreeWorkStatus> {
        let vdevs = open.pool.status().vdevs;
        vdevs
            .into_iter()
            .flat_map(|vdev| vdev.leaves)
            .filter_map(|leaf| leaf.free_space.trim)
            .collect()
    }

    async fn ends(world: &dyn World, open: &Open) -> Vec<FreeWorkStatus> {
        let runs = |status: &FreeWorkStatus| status.ended_ns.is_none();
        while trims(open).iter().any(runs) {
            world.sleep(Duration::from_millis(100)).await;
        }
        trims(open)
    }

    /// A disk whose discards take 30 s each, or never end: no client waits for one.
    #[test]
    fn nobody_waits_for_a_discard() {
        for (shape, late) in
            [(Shape::Mirror, Duration::from_secs(30)), (Shape::Single, Duration::from_secs(3))]
        {
            let mut machine = Machine::new(77, base(shape));
            let (world, disk) = (machine.world.clone(), machine.disks[0].clone());
            machine.live(async |open| {
                disk.inject(FaultRule::new(Fault::LateDiscard(late), When::Always));
                open.pool.set_autotrim(true);
                open.pool.start_free_work(FreeWork::Trim, &[], None).unwrap();
                let (longest, _) = load(&*world, open, 20).await.unwrap();
                assert!(longest < Duration::from_secs(1), "{longest:?}");
                assert!(disk.counters().discards > 0);
                disk.clear_faults();
                let begun = world.now();
                open.pool.export().await.unwrap();
                // What is on its way must end: the disk may be another pool's after that.
                assert!(world.now() - begun < late + Duration::from_secs(1));
            });
        }
    }

    /// Beside clients a trim goes on, and finds everything that is free.
    #[test]
    fn a_trim_ends_and_says_what_it_did() {
        let mut machine = Machine::new(78, base(Shape::Mirror));
        let (world, disks) = (machine.world.clone(), machine.disks.clone());
        machine.live(async |open| {
            for slot in 0..SLOTS {
                write(open, slot, 1).await.unwrap();
            }
            open.pool.sync().await.unwrap();
            open.pool.start_free_work(FreeWork::Trim, &[], None).unwrap();
            let again = open.pool.start_free_work(FreeWork::Trim, &[], None);
            assert!(again.is_err(), "goes on already");
            let (longest, _) = load(&*world, open, 2).await.unwrap();
            assert!(longest < Duration::from_millis(500), "{longest:?}");
            for status in ends(&*world, open).await {
                assert_eq!(status.state, FreeWorkState::Finished);
                assert_eq!(status.passed_bytes, status.total_bytes);
                let used = open.pool.used_sectors() * 4096;
                let free = status.total_bytes - used;
                assert!(status.done_bytes > free * 9 / 10, "{status:?}, {free} free");
                assert_eq!(status.skipped_bytes, 0);
            }
            assert!(open.pool.end_free_work(FreeWork::Trim, &[], false).is_err());
            open.pool.export().await.unwrap();
        });
        machine.live(async |open| {
            disks[1].inject(FaultRule::new(Fault::DiscardError, When::Always));
            open.pool.start_free_work(FreeWork::Trim, &[], None).unwrap();
            let found = ends(&*world, open).await;
            let states: Vec<_> = found.iter().map(|status| status.state).collect();
            assert_eq!(states, [FreeWorkState::Finished, FreeWorkState::Failed]);
            assert!(found[1].last_error.is_some());
            let leaves = open.pool.status().vdevs.remove(0).leaves;
            assert_eq!(leaves[1].write_errors, 0, "the disk stays in use");
            open.pool.export().await.unwrap();
        });
    }

    /// A disk that is out of use is waited for, and trimmed after it is whole again.
    #[test]
    fn a_disk_out_of_use_is_trimmed_once_it_is_back() {
        let mut machine = Machine::new(79, base(Shape::Mirror));
        let (world, disks) = (machine.world.clone(), machine.disks.clone());
        machine.live(async |open| {
            let name = disks[1].name().to_string();
            open.pool.offline_disk(&name, true).await.unwrap();
            open.pool.start_free_work(FreeWork::Trim, &[], None).unwrap();
            world.sleep(Duration::from_secs(20)).await;
            let states =
                |open: &Open| trims(open).iter().map(|trim| trim.state).collect::<Vec<_>>();
            assert_eq!(states(open), [FreeWorkState::Finished, FreeWorkState::Waiting]);
            assert_eq!(disks[1].counters().discards, 0);
            let again = crate::shapes::named(&disks[1..]).remove(0);
            open.pool.online_disk(&name, again, false).await.unwrap();
            ends(&*world, open).await;
            assert_eq!(states(open), [FreeWorkState::Finished; 2]);
            open.pool.export().await.unwrap();
        });
    }
}
