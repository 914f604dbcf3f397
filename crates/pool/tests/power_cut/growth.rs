//! Pools that grow while clients write: an administrator adds data vdevs of any redundancy, and
//! disks become larger. Power cuts come anywhere, in the acts too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::create::{NamedDisk, PoolSpec, create};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{CutPlan, DiskConfig, Image, Rng, Sim, SimConfig, SimDisk, Stop};
use futures_util::future::join;

use crate::clients::{
    Model, Open, begin, check_space, end, members, sound, told, went_back, workload,
};
use crate::shapes::{Found, vdev_of};
use crate::slots::{How, SLOTS, content};
use crate::{Kind, story};

/// Events that a seed has shown.
#[derive(Default)]
pub struct GrowthRun {
    pub cuts: u64,
    /// Vdevs that were added, and acts by which a vdev grew.
    pub added: u64,
    pub grown: u64,
    /// Imports that went back to an older root.
    pub rewinds: u64,
}

/// Disks of every pool, and those that may be added.
const MEMBERS: [usize; 2] = [1, 2];
const OTHERS: usize = 4;
/// Segments of a disk when it is made, and those that it may have later. Metaslabs of a vdev that
/// is made with the largest size are larger.
const SEGMENTS: [u64; 5] = [64, 65, 81, 130, 5000];

struct Machine {
    rng: Rng,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<Found>,
    model: Arc<Mutex<Model>>,
    /// Disks that the pool has for good: an act with them was carried out.
    members: Arc<Mutex<Vec<String>>>,
    run: GrowthRun,
}

fn largest() -> u64 {
    SEGMENTS.into_iter().max().unwrap() * SEGMENT_SECTORS
}

/// Fresh pools of a single disk, and of a mirror of two.
pub fn small_pools() -> Vec<Vec<Image>> {
    let pool = |disks: usize| {
        let mut sim = Sim::new(u64::MAX);
        let blank =
            |at| sim.add_disk(&format!("d{at}"), Image::new(largest()), DiskConfig::default());
        let disks: Vec<SimDisk> = (0..disks).map(blank).collect();
        let found =
            |disk: &SimDisk| Found::new(disk.clone(), SEGMENTS[0] * SEGMENT_SECTORS).named();
        let world: Arc<dyn World> = Arc::new(sim.world());
        let vdevs = vec![vdev_of(disks.iter().map(found).collect())];
        let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
        sim.run_until(create(world, spec)).unwrap().unwrap();
        disks.iter().map(SimDisk::durable_image).collect()
    };
    MEMBERS.map(pool).to_vec()
}

/// Lets a machine live and die as the seed says.
pub fn run_growth_seed(seed: u64, bases: &[Vec<Image>]) -> Result<GrowthRun, String> {
    let mut rng = Rng::stream(seed, "growth");
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let base = bases[rng.index(bases.len())].clone();
    let members: Vec<String> = (0..base.len()).map(|at| format!("d{at}")).collect();
    let blank = || Image::new(largest());
    let images = base.into_iter().chain((0..OTHERS).map(|_| blank()));
    let mut disks = Vec::new();
    for (at, image) in images.enumerate() {
        let disk = sim.add_disk(&format!("d{at}"), image, DiskConfig::default());
        let segments = if at < members.len() { SEGMENTS[0] } else { *rng.pick(&SEGMENTS).unwrap() };
        disks.push(Found::new(disk, segments * SEGMENT_SECTORS));
    }
    let world: Arc<dyn World> = Arc::new(sim.world());
    let mut machine = Machine {
        rng,
        sim,
        world,
        disks,
        model: Arc::default(),
        members: Arc::new(Mutex::new(members)),
        run: GrowthRun::default(),
    };
    let lives = machine.lives();
    lives.map_err(|what| format!("seed {seed}: {what}\n{}", machine.sim.story()))?;
    Ok(machine.run)
}

impl Machine {
    fn lives(&mut self) -> Result<(), String> {
        for _ in 0..2 + self.rng.below(4) {
            // Often in the first act, or soon after.
            let longest = [400, 400, 4000][self.rng.index(3)];
            self.sim.plan_cut(CutPlan::AtEvent(1 + self.rng.below(longest)));
            self.life(0)?;
            self.end();
            if self.rng.below(4) == 0 {
                self.goes_back()?;
            }
        }
        self.is_all_there()
    }

    /// Clients write, and an administrator lets the pool grow.
    fn life(&mut self, rewind: u64) -> Result<(), String> {
        let work = Rng::stream(self.rng.next_u64(), "work");
        let acts = Rng::stream(self.rng.next_u64(), "acts");
        let (added, grown) = (AtomicU64::new(0), AtomicU64::new(0));
        let ended = self.live(rewind, async |open, machine| {
            let (world, model) = (machine.world.clone(), machine.model.clone());
            let work = workload(world, open, model, &[], Kind::Short, work);
            let (done, ()) = join(work, machine.administrate(open, acts, (&added, &grown))).await;
            done.map_err(|error| error.to_string())?;
            sound(open)
        });
        self.run.added += added.into_inner();
        self.run.grown += grown.into_inner();
        match ended? {
            Ok(()) | Err(Stop::Halted) => Ok(()),
            Err(stop) => Err(stop.to_string()),
        }
    }

    async fn administrate(&self, open: &Open, mut rng: Rng, done: (&AtomicU64, &AtomicU64)) {
        let pause_us = [1, 2000, 40_000][rng.index(3)];
        for _ in 0..rng.below(5) {
            self.world.sleep(Duration::from_micros(rng.below(pause_us))).await;
            let one = &self.disks[rng.index(self.disks.len())];
            let is_member = |disk: &Found| members(open).iter().any(|name| name == disk.name());
            let result = if is_member(one) {
                one.seen.grows_to(*rng.pick(&SEGMENTS).unwrap() * SEGMENT_SECTORS);
                let grown = open.pool.expand(one.name()).await;
                done.1
                    .fetch_add(u64::from(grown.as_ref().is_ok_and(|by| *by > 0)), Ordering::SeqCst);
                grown.map(|_| ())
            } else {
                let sides = 1 + rng.index(2);
                let free = self.disks.iter().filter(|disk| !is_member(disk)).take(sides);
                let new: Vec<NamedDisk> = free.map(Found::named).collect();
                let names: Vec<String> = new.iter().map(|disk| disk.path.clone()).collect();
                let result = open.pool.add_data(&vdev_of(new), true).await;
                if result.is_ok() {
                    self.members.lock().unwrap().extend(names);
                    done.0.fetch_add(1, Ordering::SeqCst);
                }
                result
            };
            if story() > 0 {
                println!("act with {}: {result:?} at {:?}", one.name(), self.world.now());
            }
        }
    }

    /// An older root knows less of the pool, and the vdevs stay.
    fn goes_back(&mut self) -> Result<(), String> {
        self.model.lock().unwrap().rewound();
        let back = 1 + self.rng.below(2);
        self.run.rewinds += u64::from(went_back(self.life(back))?);
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        end(&mut self.sim, &mut self.rng);
        self.run.cuts += 1;
    }

    /// Nothing is lost, no sector leaks, what was added is there and takes what is written.
    fn is_all_there(&mut self) -> Result<(), String> {
        let wanted = self.members.lock().unwrap().clone();
        let ended = self.live(0, async |open, _| {
            for name in &wanted {
                if !members(open).contains(name) {
                    return Err(format!("{name} is not in the pool any more"));
                }
            }
            let told = |error: aquifer_pool::PoolError| error.to_string();
            for slot in 0..SLOTS {
                let written = open.slots.write(slot, content(slot, 1 << 40), How::Early, 1).await;
                if let Some(ticket) = written.map_err(told)? {
                    ticket.durable().await.map_err(told)?;
                }
            }
            open.pool.sync().await.map_err(told)?;
            check_space(open)?;
            sound(open)?;
            open.pool.export().await.map_err(told)
        });
        ended?.map_err(|stop| stop.to_string())
    }

    /// Imports, checks, and does this. The error of `Result` is one that the engine told.
    fn live(
        &mut self,
        rewind: u64,
        work: impl AsyncFnOnce(&Open, &Machine) -> Result<(), String>,
    ) -> Result<Result<(), Stop>, String> {
        let mut options = ImportOptions { rewind, ..ImportOptions::default() };
        // Records go through all of their segments.
        options.scale.record_segment_sectors = 32;
        let (world, model) = (self.world.clone(), self.model.clone());
        let disks: Vec<NamedDisk> = self.disks.iter().map(Found::named).collect();
        let members = self.members.lock().unwrap().clone();
        // The machine is only read while its simulation runs.
        let mut sim = std::mem::replace(&mut self.sim, Sim::new(0));
        let end = sim.run_until(async {
            let torn = |path: &str| !members.iter().any(|member| member == path);
            let open = begin(&world, disks, &options, &model, torn).await?;
            work(&open, self).await
        });
        self.sim = sim;
        told(end)
    }
}
