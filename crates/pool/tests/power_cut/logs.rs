//! One seed of a pool with log vdevs. They fail, vanish and come back. Under load an administrator
//! adds, removes and replaces them, and takes them offline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::Pool;
use aquifer_pool::create::VdevSpec;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{
    CutPlan, DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish, When,
};
use futures_util::future::join;

use crate::clients::{Model, check, check_space, open, workload};
use crate::shapes::{LOG_SHAPES, Shape, disk_name, named};
use crate::{Kind, story};

/// The results of a seed.
#[derive(Default)]
pub struct LogRun {
    pub cuts: u64,
    /// Acts of the administrator that were carried out.
    pub acts: u64,
    /// Imports that dropped the log.
    pub dropped: u64,
    /// A hash of everything that happened on the disks.
    pub trace: u64,
}

struct Machine {
    seed: u64,
    shape: Shape,
    kind: Kind,
    /// Both sides of the log fail, one soon after the other, and the second stays away.
    rivals: bool,
    rng: Rng,
    /// Draws what happens after an error.
    errors: Rng,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    model: Arc<Mutex<Model>>,
    run: LogRun,
}

/// Seeds with this remainder of eight test two sides that fail one soon after the other.
const RIVALS: u64 = 7;

/// The seeds of that test.
pub fn rivals(number: u64) -> u64 {
    number * 8 + RIVALS
}

/// Runs a machine's lives as the seed decides.
pub fn run_log_seed(seed: u64, bases: &[Vec<Image>]) -> Result<LogRun, String> {
    let mut machine = Machine::new(seed, bases);
    machine.lives().map_err(|what| machine.tell(&what))?;
    machine.run.trace = machine.sim.trace_hash();
    Ok(machine.run)
}

impl Machine {
    fn new(seed: u64, bases: &[Vec<Image>]) -> Machine {
        let mut rng = Rng::stream(seed, "log test");
        let rivals = seed % 8 == RIVALS;
        let mirror = LOG_SHAPES.iter().position(|shape| *shape == Shape::MirrorLogMirror);
        let at = if rivals { mirror.unwrap() } else { rng.index(LOG_SHAPES.len()) };
        let kind = match rng.below(if rivals { 1 } else { 3 }) {
            0 => Kind::Wraps { record_pages: 120 },
            _ => Kind::Short,
        };
        let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
        let mut sim = Sim::with_config(seed, config);
        let shape = LOG_SHAPES[at];
        let add = |(at, image): (usize, &Image)| {
            sim.add_disk(&disk_name(shape, at), image.clone(), DiskConfig::default())
        };
        let disks: Vec<SimDisk> = bases[at].iter().enumerate().map(add).collect();
        let mut model = Model::default();
        model.log_disks = disks[shape.data_disks()..].to_vec();
        Machine {
            seed,
            shape,
            kind,
            rivals,
            rng,
            errors: Rng::stream(seed, "errors"),
            world: Arc::new(sim.world()),
            sim,
            disks,
            model: Arc::new(Mutex::new(model)),
            run: LogRun::default(),
        }
    }

    fn tell(&self, what: &str) -> String {
        format!("seed {} {:?} {:?}: {what}\n{}", self.seed, self.shape, self.kind, self.sim.story())
    }

    fn log_disks(&self) -> &[SimDisk] {
        &self.disks[self.shape.data_disks()..]
    }

    fn lives(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(5) {
            self.life()?;
            self.between_lives();
        }
        self.last_life()
    }

    /// A disk of the log may go away in a power cut, or for good; others come back.
    fn between_lives(&mut self) {
        let may_lose = self.model.lock().unwrap().may_lose_log();
        let chance = self.rng.below(8);
        let which = self.rng.index(self.log_disks().len());
        for (at, disk) in self.log_disks().to_vec().iter().enumerate() {
            disk.clear_faults();
            match chance {
                0 if may_lose && at == which => disk.vanish(Vanish::PowerLost),
                // A missing disk stays away for another life.
                1 => {}
                _ if self.rivals && at == 1 => {}
                _ => disk.come_back(),
            }
        }
    }

    fn life(&mut self) -> Result<(), String> {
        let span = if self.kind == Kind::Short { 1200 } else { 2400 };
        let event = match self.rng.below(4) {
            0 => self.rng.below(80),
            _ if self.rivals => 80 + self.rng.below(320),
            _ => self.rng.below(span),
        };
        self.sim.plan_cut(CutPlan::AtEvent(event + 1));
        if self.rivals {
            self.log_disks().iter().for_each(SimDisk::clear_faults);
            if !self.log_disks().iter().any(SimDisk::is_gone) {
                // Before the txg that their loss forces is on disk.
                self.sim.cut_after_error(self.errors.below(60));
            }
        } else {
            self.upset();
        }
        let mut faults = Rng::stream(self.rng.next_u64(), "faults");
        let rivals = self.rivals;
        let work = Rng::stream(self.rng.next_u64(), "work");
        let acts = Rng::stream(self.rng.next_u64(), "acts");
        let busy = self.rng.coin() && !self.rivals;
        let do_without = self.rng.coin();
        let (world, model, disks) = (self.world.clone(), self.model.clone(), &self.disks);
        let (kind, run) = (self.kind, &mut self.run);
        let log_disks = &self.disks[self.shape.data_disks()..];
        let end = self.sim.run_until(async {
            let mut options = ImportOptions::default();
            let mut opened = open(world.clone(), named(disks), &options).await;
            if opened.as_ref().is_err_and(|why| why.contains("the log device is missing")) {
                if !model.lock().unwrap().may_miss_log() {
                    return opened.map(|_| ());
                }
                if do_without {
                    options.missing_log = true;
                    run.dropped += 1;
                    model.lock().unwrap().log_dropped();
                } else {
                    log_disks.iter().for_each(SimDisk::clear_faults);
                    log_disks.iter().for_each(SimDisk::come_back);
                }
                // With all disks present the log must never be missing.
                opened = open(world.clone(), named(disks), &options).await;
            }
            let open = opened?;
            model.lock().unwrap().imported(&open.pool);
            check(&open, &model).await?;
            if rivals {
                one_after_the_other(&log_disks[0], &log_disks[1], &mut faults);
            }
            world.spawn("txg", open.pool.clone().run());
            let work = workload(world.clone(), &open, model.clone(), &[], kind, work);
            let acts = administrator(&world, &open.pool, log_disks, if busy { 6 } else { 0 }, acts);
            let (done, acted) = join(work, acts).await;
            run.acts += acted;
            done.map_err(|error| error.to_string())
        });
        match end {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            // A disk that goes away while the log is read stops the import: the next import sees
            // the loss.
            Ok(Err(what)) if what.contains("the device is gone") => {}
            Ok(Err(what)) if what.contains("import: ") && what.contains("no disk left") => {}
            Ok(Err(what)) => return Err(what),
            Err(stop) => return Err(stop.to_string()),
        }
        if self.rng.below(4) == 0 {
            self.sim.kill();
        } else {
            self.sim.power_cut_any();
        }
        self.run.cuts += 1;
        Ok(())
    }

    /// Injects faults into disks of the log.
    fn upset(&mut self) {
        let disks = self.log_disks().to_vec();
        let which = self.rng.index(disks.len());
        let both = self.rng.below(3) == 0;
        if self.rng.below(4) == 0 {
            one_after_the_other(&disks[0], &disks[1], &mut self.rng);
            return;
        }
        for (at, disk) in disks.iter().enumerate().filter(|(at, _)| both || *at == which) {
            let after = self.rng.below(if at == which { 300 } else { 320 });
            match self.rng.below(8) {
                0 => disk.inject(FaultRule::new(
                    Fault::Vanish(Vanish::PowerLost),
                    When::OnceAfter(after),
                )),
                1 => disk.inject(FaultRule::new(Fault::WriteError, When::OnceAfter(after / 3))),
                2 => disk.inject(FaultRule::new(Fault::FlushError, When::OnceAfter(after / 3))),
                _ => {}
            }
        }
    }

    /// Checks that everything is there, no sector is lost, the log is in its proper place, and the
    /// pool can be exported.
    fn last_life(&mut self) -> Result<(), String> {
        for disk in self.log_disks() {
            disk.clear_faults();
            disk.come_back();
        }
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let end = self.sim.run_until(async {
            let options = ImportOptions::default();
            let open = open(world.clone(), disks, &options).await?;
            check(&open, &model).await?;
            world.spawn("txg", open.pool.clone().run());
            open.pool.sync().await.map_err(|e| e.to_string())?;
            check_space(&open)?;
            open.pool.export().await.map_err(|e| e.to_string())
        });
        end.map_err(|stop| stop.to_string())?
    }
}

/// One side fails after the other, inside the log, perhaps before an uberblock names the first. The
/// first may fail slowly, and then batches are durable on the other side alone.
fn one_after_the_other(one: &SimDisk, other: &SimDisk, rng: &mut Rng) {
    let log = 1024..63 * 1024;
    let after = rng.below(30);
    if rng.coin() {
        let long = Fault::Stall(Duration::from_millis(1 + rng.below(4)));
        one.inject(FaultRule::new(long, When::OnceAfter(after)).within(log.clone()));
    }
    one.inject(FaultRule::new(Fault::WriteError, When::OnceAfter(after)).within(log.clone()));
    let soon = When::OnceAfter(after + rng.below(4));
    other.inject(FaultRule::new(Fault::Vanish(Vanish::PowerLost), soon).within(log));
}

/// Carries out an administrator's acts. An impossible act is refused without any effect. Returns
/// the number of acts that were carried out.
async fn administrator(
    world: &Arc<dyn World>,
    pool: &Arc<Pool>,
    disks: &[SimDisk],
    acts: usize,
    mut rng: Rng,
) -> u64 {
    let mut done = 0;
    for _ in 0..acts {
        world.sleep(Duration::from_micros(rng.below(4000))).await;
        let (one, other) = (rng.index(disks.len()), rng.index(disks.len()));
        let disk = |at: usize| named(std::slice::from_ref(&disks[at])).remove(0);
        let (name, other_disk) = (disk(one).path, disk(other));
        let act = rng.below(6);
        let result = match act {
            0 => {
                let spec = VdevSpec { redundancy: Redundancy::Single, disks: vec![disk(one)] };
                let mine = pool
                    .status()
                    .vdevs
                    .iter()
                    .any(|vdev| vdev.leaves.iter().any(|leaf| leaf.path == name));
                if mine { continue } else { pool.add_log(&spec, true).await }
            }
            1 => pool.remove_log(&name).await,
            2 => {
                let mine = pool
                    .status()
                    .vdevs
                    .iter()
                    .any(|vdev| vdev.leaves.iter().any(|leaf| leaf.path == other_disk.path));
                if mine {
                    continue;
                }
                pool.replace_disk(&name, other_disk, true).await.map(|_| ())
            }
            3 => pool.offline_disk(&name, false).await,
            _ => pool.online_disk(&name, disk(one), false).await,
        };
        if story() > 0 {
            println!("act {act} on {name}: {result:?} at {:?}", world.now());
        }
        done += u64::from(result.is_ok());
    }
    done
}
