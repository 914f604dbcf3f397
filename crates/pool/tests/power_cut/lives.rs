//! One seed: the lives of a machine, and the checks after each.

use std::sync::{Arc, Mutex};

use aquifer_blockio::World;
use aquifer_ondisk::uberblock::Host;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{
    CutPlan, DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish, When,
};
use aquifer_vdev::LeafState;

use crate::clients::{Model, check, check_space, mismatches, open, workload};
use crate::shapes::{SHAPES, Shape, named};
use crate::{Kind, story};

/// The results of a seed.
#[derive(Default)]
pub struct Run {
    pub cuts: u64,
    pub rewinds: u64,
    /// Lives in which the log went round all its segments.
    pub wraps: u64,
    /// A hash of everything that happened on the disks.
    pub trace: u64,
}

struct Machine {
    seed: u64,
    kind: Kind,
    shape: Shape,
    rng: Rng,
    /// Draws what happens after an error.
    errors: Rng,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    model: Arc<Mutex<Model>>,
    /// One side of each mirror that may go away and come back, and must never win over the other.
    fickle: usize,
    run: Run,
}

/// Runs a machine's lives as the seed decides.
pub fn run_seed(seed: u64, bases: &[Vec<Image>]) -> Result<Run, String> {
    let mut machine = Machine::new(seed, Kind::of(seed), bases);
    machine.lives().map_err(|what| machine.tell(&what))?;
    machine.run.trace = machine.sim.trace_hash();
    Ok(machine.run)
}

/// Runs a machine's lives as the seed decides; each life ends with several batches of the log in
/// progress.
pub fn run_tail_seed(seed: u64, bases: &[Vec<Image>]) -> Result<Run, String> {
    let mut machine = Machine::new(seed, Kind::Tails, bases);
    for _ in 0..12 {
        machine.short_life().map_err(|what| machine.tell(&what))?;
    }
    machine.last_life().map_err(|what| machine.tell(&what))?;
    Ok(machine.run)
}

impl Machine {
    fn new(seed: u64, kind: Kind, bases: &[Vec<Image>]) -> Machine {
        let mut rng = Rng::stream(seed, "test");
        let shape = match kind {
            Kind::SlowReaders { .. } => [Shape::Mirror, Shape::TwoMirrors][rng.index(2)],
            _ => SHAPES[rng.index(SHAPES.len())],
        };
        let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
        let mut sim = Sim::with_config(seed, config);
        let mut config = DiskConfig::default();
        if matches!(kind, Kind::Wraps { .. }) {
            // A write that takes so long that the log meanwhile goes all the way round.
            config.latency.outlier_ppm *= 10;
        }
        let add =
            |(at, image): (usize, &Image)| sim.add_disk(&format!("d{at}"), image.clone(), config);
        let disks: Vec<SimDisk> = bases[shape as usize].iter().enumerate().map(add).collect();
        let fickle = rng.index(disks.len().min(2));
        Machine {
            seed,
            kind,
            shape,
            rng,
            errors: Rng::stream(seed, "errors"),
            world: Arc::new(sim.world()),
            sim,
            disks,
            model: Arc::default(),
            fickle,
            run: Run::default(),
        }
    }

    /// Some pools name their host, and look for others.
    fn options(&self) -> ImportOptions {
        let host = (self.seed % 8 == 4).then(|| Host { id: 1, name: "sim".into() });
        ImportOptions { host, ..ImportOptions::default() }
    }

    fn tell(&self, what: &str) -> String {
        format!("seed {} {:?} {:?}: {what}\n{}", self.seed, self.shape, self.kind, self.sim.story())
    }

    fn lives(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(4) {
            self.life(0)?;
        }
        if self.rng.below(4) == 0 {
            // The roots before the newest are whole, and life continues from them.
            self.disks[self.fickle].clear_faults();
            let back = 1 + self.rng.below(2);
            self.life(back)?;
            self.run.rewinds += 1;
            for _ in 0..self.rng.below(3) {
                self.life(0)?;
            }
        }
        self.disks[self.fickle].clear_faults();
        if self.shape.mirrored() {
            self.one_side_is_enough()?;
        }
        self.last_life()
    }

    /// Imports, works, and dies at some moment. First goes back `rewind` txgs.
    fn life(&mut self, rewind: u64) -> Result<(), String> {
        let event = match (self.rng.below(4), self.kind) {
            (0, _) => self.rng.below(60),
            (_, Kind::Short | Kind::Sparse | Kind::Tails) => self.rng.below(1200),
            (_, Kind::SlowReaders { .. }) => self.rng.below(4000),
            (_, Kind::Wraps { .. }) => self.rng.below(2400),
        };
        self.sim.plan_cut(CutPlan::AtEvent(event + 1));
        let mut work = Rng::stream(self.rng.next_u64(), "work");
        let mut dies_of_error = false;
        if self.shape.mirrored() && self.kind.is_sound() && rewind == 0 {
            let fails_flush = upset(&self.disks[self.fickle], &mut self.rng);
            dies_of_error = fails_flush && self.errors.coin();
        }
        if dies_of_error {
            // Before anything on disk names the side.
            self.sim.cut_after_error(self.errors.below(12));
        }
        let options = ImportOptions { rewind, ..self.options() };
        if rewind > 0 {
            self.model.lock().unwrap().rewound();
        }
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let (kind, sim_disks) = (self.kind, &self.disks);
        let end = self.sim.run_until(async {
            let open = match open(world.clone(), disks, &options).await {
                Err(why) if rewind > 0 && why.contains("cannot go back") => return Ok(()),
                other => other?,
            };
            check(&open, &model).await?;
            world.spawn("txg", open.pool.clone().run());
            if rewind > 0 && work.coin() {
                open.pool.sync().await.map_err(|e| e.to_string())?;
                check_space(&open)?;
            }
            let done = workload(world.clone(), &open, model.clone(), sim_disks, kind, work).await;
            done.map_err(|error| error.to_string())?;
            match mismatches(&open.pool) {
                found if found > 0 && kind.is_sound() => {
                    Err(format!("{found} copies had a wrong checksum"))
                }
                _ => Ok(()),
            }
        });
        match end {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            // A disk that goes away while the log is read stops the import: the next import sees
            // the loss.
            Ok(Err(what)) if self.shape.mirrored() && what.contains("the device is gone") => {}
            Ok(Err(what)) => return Err(what),
            Err(stop) => return Err(stop.to_string()),
        }
        if self.rng.below(4) == 0 || dies_of_error {
            self.sim.kill();
        } else {
            self.sim.power_cut_any();
        }
        self.run.cuts += 1;
        let logged = std::mem::take(&mut self.model.lock().unwrap().logged_pages);
        self.run.wraps += u64::from(logged > self.disks.len() * LOG_PAGES_PER_DISK);
        Ok(())
    }

    /// Imports without faults, begins to write, and dies soon after.
    fn short_life(&mut self) -> Result<(), String> {
        let work = Rng::stream(self.rng.next_u64(), "work");
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let options = self.options();
        self.sim.plan_cut(CutPlan::Never);
        let opened = self.sim.run_until(async {
            let open = open(world.clone(), disks, &options).await?;
            check(&open, &model).await.map(|()| open)
        });
        let open = opened.map_err(|stop| stop.to_string())??;
        let soon = self.sim.io_events() + 1 + self.rng.below(20);
        self.sim.plan_cut(CutPlan::AtEvent(soon));
        let (world, model, kind) = (self.world.clone(), self.model.clone(), self.kind);
        let end = self.sim.run_until(async {
            world.spawn("txg", open.pool.clone().run());
            workload(world.clone(), &open, model, &self.disks, kind, work).await
        });
        match end {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(stop) => return Err(stop.to_string()),
        }
        self.sim.power_cut_any();
        self.run.cuts += 1;
        Ok(())
    }

    /// Checks that everything is there, no sector is lost, and the pool can be exported.
    fn last_life(&mut self) -> Result<(), String> {
        let options = self.options();
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let end = self.sim.run_until(async {
            let open = open(world.clone(), disks, &options).await?;
            check(&open, &model).await?;
            world.spawn("txg", open.pool.clone().run());
            open.pool.sync().await.map_err(|e| e.to_string())?;
            check_space(&open)?;
            open.pool.export().await.map_err(|e| e.to_string())
        });
        end.map_err(|stop| stop.to_string())?
    }

    /// Checks that a mirror that came up with all its sides is whole on each of them.
    fn one_side_is_enough(&mut self) -> Result<(), String> {
        let options = self.options();
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let sound = self.kind.is_sound();
        let opened = self.sim.run_until(async {
            let open = open(world.clone(), disks, &options).await?;
            if !sound {
                // Finds and repairs bit rot.
                world.spawn("txg", open.pool.clone().run());
                check(&open, &model).await?;
                open.pool.export().await.map_err(|e| e.to_string())?;
            }
            let vdevs = open.pool.status().vdevs;
            let leaves = vdevs.iter().flat_map(|vdev| &vdev.leaves);
            Ok::<bool, String>(leaves.into_iter().all(|leaf| leaf.state == LeafState::Online))
        });
        let whole = opened.map_err(|stop| stop.to_string())??;
        self.sim.power_cut_any();
        if !whole {
            return Ok(());
        }
        // The other side of the same mirror stays away.
        self.disks[self.fickle ^ 1].vanish(Vanish::PowerLost);
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let checked = self.sim.run_until(async {
            let open = open(world, disks, &options).await?;
            check(&open, &model).await
        });
        self.sim.power_cut_any();
        let checked = checked.map_err(|stop| stop.to_string())?;
        checked.map_err(|why| format!("on one side alone: {why}"))
    }
}

/// Pages of the intent log of a pool of one disk.
const LOG_PAGES_PER_DISK: usize = 4 * 1024;

/// Lets a disk vanish at some time, or return, or fail a single operation. Returns whether that
/// operation may be a flush.
fn upset(disk: &SimDisk, rng: &mut Rng) -> bool {
    disk.clear_faults();
    let choice = rng.below(6);
    match choice {
        0 => disk.inject(FaultRule::new(
            Fault::Vanish(Vanish::PowerLost),
            When::OnceAfter(20 + rng.below(300)),
        )),
        1 => disk.inject(FaultRule::new(Fault::WriteError, When::OnceAfter(rng.below(100)))),
        2 => disk.inject(FaultRule::new(Fault::FlushError, When::OnceAfter(rng.below(30)))),
        _ => disk.come_back(),
    }
    choice == 2
}
