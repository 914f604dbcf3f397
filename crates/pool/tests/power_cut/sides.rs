//! Sides of a mirror that go away and come back. Once resilvered, each must do alone, for good.
//!
//! In some worlds sides other than the keeper also hang: with single requests, which are carried
//! out late, or with all. Late writes reach a disk after its side has failed. In others there are
//! spares, which stand in and give the place back, and disks stay offline over restarts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::{Redundancy, Stands};
use aquifer_pool::create::{PoolSpec, VdevSpec, create};
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{ImportError, Pool};
use aquifer_sim::{
    CutPlan, DiskConfig, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish, When,
};
use aquifer_vdev::LeafState;
use futures_util::future::join;

use crate::clients::{
    Model, Open, check, check_space, end, members, open_beside, sound, told, workload,
};
use crate::shapes::named;
use crate::{Kind, story};

/// What a seed has shown.
#[derive(Default)]
pub struct SidesRun {
    pub cuts: u64,
    /// Times that a side was resilvered while the others watched, and then did alone.
    pub alone: u64,
    /// Of these, those that went back to an older root.
    pub rewinds: u64,
    /// Acts of an administrator that were carried out.
    pub acts: u64,
    /// Sides that failed because they did not answer.
    pub hung: u64,
    /// Lives at whose end a spare stood in.
    pub stood_in: u64,
}

/// What a world is about.
#[derive(Clone, Copy, PartialEq)]
pub enum About {
    Sides,
    Hangs,
    Spares,
}

struct Machine {
    rng: Rng,
    /// How sides hang, if they do.
    hangs: Option<Rng>,
    about: About,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    model: Arc<Mutex<Model>>,
    piece_blocks_max: usize,
    /// This disk is whole; the others may be, or are none of the pool's.
    keeper: usize,
    /// The disks that were the pool's when all were whole.
    members: Vec<String>,
    run: SidesRun,
}

/// Fresh mirrors of two and of three sides.
pub fn mirrors() -> Vec<Vec<Image>> {
    [2, 3].map(mirror).to_vec()
}

fn mirror(sides: usize) -> Vec<Image> {
    // No seed of a world: its disks would get the same identities.
    let mut sim = Sim::new(u64::MAX);
    let blank = |at| sim.add_disk(&format!("d{at}"), Image::new(65536), DiskConfig::default());
    let disks: Vec<SimDisk> = (0..sides).map(blank).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let vdevs = vec![VdevSpec { redundancy: Redundancy::Mirror, disks: named(&disks) }];
    let spec = PoolSpec { name: "tank".into(), vdevs, logs: Vec::new(), force: false };
    sim.run_until(create(world, spec)).unwrap().unwrap();
    disks.iter().map(SimDisk::durable_image).collect()
}

/// Lets a machine live and die as the seed says.
pub fn run_sides_seed(seed: u64, bases: &[Vec<Image>], about: About) -> Result<SidesRun, String> {
    let mut rng = Rng::stream(seed, "sides");
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let images = bases[rng.index(bases.len())].iter().enumerate();
    let disks: Vec<SimDisk> = images
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image.clone(), DiskConfig::default()))
        .collect();
    let spare = sim.add_disk("spare", Image::new(65536), DiskConfig::default());
    let disks: Vec<SimDisk> = disks.into_iter().chain([spare]).collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let model = Arc::default();
    let mut machine = Machine {
        rng,
        hangs: (about == About::Hangs).then(|| Rng::stream(seed, "hangs")),
        about,
        sim,
        world,
        disks,
        model,
        piece_blocks_max: if seed.is_multiple_of(3) { 8 } else { 24 },
        keeper: 0,
        members: Vec::new(),
        run: SidesRun::default(),
    };
    for _ in 0..2 + machine.rng.below(3) {
        machine.round().map_err(|what| {
            let (sides, keeper) = (machine.disks.len(), machine.keeper);
            format!("seed {seed}, {sides} sides, d{keeper} kept: {what}\n{}", machine.sim.story())
        })?;
    }
    Ok(machine.run)
}

impl Machine {
    /// Sides miss something, come back, are resilvered with cuts on the way; one of them is left.
    fn round(&mut self) -> Result<(), String> {
        self.some_go_away();
        for _ in 0..1 + self.rng.below(2) {
            self.broken_life()?;
        }
        self.all_come_back();
        for _ in 0..self.rng.below(4) {
            self.broken_life()?;
            if self.rng.below(3) == 0 {
                self.a_half_built_side_knows_it()?;
            }
        }
        self.all_become_whole()?;
        self.one_does_alone()
    }

    fn some_go_away(&mut self) {
        for (at, disk) in self.disks.iter().enumerate() {
            disk.clear_faults();
            if at != self.keeper && self.rng.coin() {
                disk.vanish(Vanish::PowerLost);
            }
        }
    }

    fn all_come_back(&mut self) {
        for disk in &self.disks {
            disk.clear_faults();
            disk.come_back();
        }
    }

    /// A life that a cut ends anywhere, in which sides other than the keeper may fail.
    fn broken_life(&mut self) -> Result<(), String> {
        let longest = [60, 1200, 4000][self.rng.index(3)];
        let event = 1 + self.rng.below(longest) * if self.about == About::Sides { 1 } else { 3 };
        self.sim.plan_cut(CutPlan::AtEvent(event));
        for (at, disk) in self.disks.iter().enumerate().filter(|(at, _)| *at != self.keeper) {
            disk.clear_faults();
            let after = When::OnceAfter(self.rng.below(300));
            match self.rng.below(6) {
                0 => disk.inject(FaultRule::new(Fault::Vanish(Vanish::PowerLost), after)),
                1 => disk.inject(FaultRule::new(Fault::WriteError, after)),
                2 => disk.inject(FaultRule::new(Fault::FlushError, after)),
                3 if at == 0 => disk.come_back(),
                _ => {}
            }
        }
        self.some_hang();
        let turns = match self.about {
            About::Spares => 1 + self.rng.below(6),
            _ => self.hangs.as_mut().map_or(1, |rng| 1 + rng.below(4)),
        };
        let longest_ms = if self.about == About::Spares { 2000 } else { 12_000 };
        let mut work = Rng::stream(self.rng.next_u64(), "work");
        let acts = Rng::stream(self.rng.next_u64(), "acts");
        let busy = self.rng.coin() || self.about == About::Spares;
        let [done_acts, hung, stood_in] = [(); 3].map(|()| AtomicU64::new(0));
        let ended = self.live(0, async |open, machine| {
            let work = async {
                machine.work(open, work.clone()).await?;
                for _ in 1..turns {
                    machine.world.sleep(Duration::from_millis(work.below(longest_ms))).await;
                    machine.work(open, Rng::stream(work.next_u64(), "work")).await?;
                }
                Ok::<(), String>(())
            };
            let acts = async {
                if busy {
                    machine.administrate(open, acts, &done_acts).await;
                }
            };
            let (done, ()) = join(work, acts).await;
            done?;
            hung.store(failed_by_hang(open), Ordering::Relaxed);
            stood_in.store(u64::from(!all_for_themselves(open)), Ordering::Relaxed);
            sound(open)
        });
        self.run.hung += hung.into_inner();
        self.run.stood_in += stood_in.into_inner();
        self.run.acts += done_acts.into_inner();
        match ended {
            Ok(Ok(()) | Err(Stop::Halted)) => {}
            Ok(Err(stop)) => return Err(stop.to_string()),
            // A disk that goes away while the log is read stops the import: the next one knows.
            Err(what) if what.contains("the device is gone") => {}
            Err(what) => return Err(what),
        }
        self.end();
        Ok(())
    }

    /// Sides other than the keeper hang from some moment on, with one request or some or all.
    fn some_hang(&mut self) {
        let Some(rng) = &mut self.hangs else { return };
        for (_, disk) in self.disks.iter().enumerate().filter(|(at, _)| *at != self.keeper) {
            // Often for longer than the rest before the first try to resilver it.
            let least_ms = if rng.coin() { 10_500 } else { 0 };
            let more_ms = [100, 1000, 4000, 20_000, 60_000][rng.index(5)];
            let time = Duration::from_millis(least_ms + rng.below(more_ms));
            let once = When::OnceAfter(rng.below(2000));
            match rng.below(5) {
                0 => disk.inject(FaultRule::new(Fault::Late(time), once)),
                1 => disk.inject(FaultRule::new(Fault::Stall(time), once)),
                2 | 3 => disk.inject(FaultRule::new(Fault::Late(time), When::Ppm(2000))),
                _ => {}
            }
        }
    }

    async fn work(&self, open: &Open, rng: Rng) -> Result<(), String> {
        let (world, model) = (self.world.clone(), self.model.clone());
        let done = workload(world, open, model, &self.disks, Kind::Short, rng).await;
        done.map_err(|error| error.to_string())
    }

    /// Takes sides other than the keeper out of use and back, attaches, detaches and replaces them.
    async fn administrate(&self, open: &Open, mut rng: Rng, done: &AtomicU64) {
        if self.about == About::Spares && rng.below(4) > 0 {
            let members = members(open);
            let free = self.disks.iter().find(|disk| !members.iter().any(|of| of == disk.name()));
            let free = free.map(|disk| named(std::slice::from_ref(disk)).remove(0));
            if let Some(free) = free.filter(|_| open.pool.status().spares.is_empty()) {
                let _ = open.pool.add_spare(free, true).await;
            }
        }
        for _ in 0..6 {
            self.world.sleep(Duration::from_millis(rng.below(300))).await;
            let (one, other) = (rng.index(self.disks.len()), rng.index(self.disks.len()));
            let disk = |at: usize| named(std::slice::from_ref(&self.disks[at])).remove(0);
            let spares = open.pool.status().spares;
            let spares = spares.into_iter().map(|spare| spare.path);
            let members: Vec<String> = members(open).into_iter().chain(spares).collect();
            let is_member = |at: usize| members.iter().any(|path| *path == disk(at).path);
            let (name, new) = (disk(one).path, disk(other));
            let pool = &open.pool;
            let kinds = if self.about == About::Spares { 11 } else { 6 };
            let result = match rng.below(kinds) {
                6 | 7 if !is_member(other) => pool.add_spare(new, true).await,
                8 => pool.remove_spare(&disk(other).path).await,
                _ if one == self.keeper => continue,
                0 => pool.offline_disk(&name, true).await,
                9 => pool.offline_disk(&name, false).await,
                1 if !is_member(other) => pool.attach_disk(&name, new, true).await,
                2 => pool.detach_disk(&name).await,
                3 if !is_member(other) => pool.replace_disk(&name, new, true).await.map(|_| ()),
                5 => self.drill(pool, &name, rng.below(300)).await,
                _ => pool.online_disk(&name, disk(one)).await,
            };
            if story() > 0 {
                println!("act on {name}: {result:?} at {:?}", self.world.now());
            }
            done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
    }

    async fn drill(&self, pool: &Pool, disk: &str, ms: u64) -> Result<(), ImportError> {
        let away = pool.take_away(disk).await?;
        self.world.sleep(Duration::from_millis(ms)).await;
        drop(away);
        Ok(())
    }

    fn end(&mut self) {
        end(&mut self.sim, &mut self.rng);
        self.run.cuts += 1;
    }

    /// Imports, checks, and does this. The error of `Result` is one that the engine told.
    fn live(
        &mut self,
        rewind: u64,
        work: impl AsyncFnOnce(&Open, &Machine) -> Result<(), String>,
    ) -> Result<Result<(), Stop>, String> {
        let mut options = ImportOptions { rewind, ..ImportOptions::default() };
        // A resilver takes many pieces, and each has another root. Or few, whose blocks lie close.
        options.scale.piece_blocks_max = self.piece_blocks_max;
        options.scale.piece_copy_ms_max = 5;
        options.scale.zeros_share = 0;
        if self.about == About::Spares {
            options.scale.spare_after = Duration::from_millis(300);
        }
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        // The machine is only read while its simulation runs.
        let mut sim = std::mem::replace(&mut self.sim, Sim::new(0));
        let end = sim.run_until(async {
            let keeper = self.disks[self.keeper].name().to_string();
            let torn = |path: &str| path != keeper;
            let open = open_beside(world.clone(), disks, &options, torn).await?;
            check(&open, &model).await?;
            world.spawn("txg", open.pool.clone().run());
            work(&open, self).await
        });
        self.sim = sim;
        told(end)
    }

    /// With the others away a side that was being resilvered is refused, or it was whole already.
    fn a_half_built_side_knows_it(&mut self) -> Result<(), String> {
        let side = (self.keeper + 1 + self.rng.index(self.disks.len() - 1)) % self.disks.len();
        self.leave_only(side);
        let (world, model, disks) = (self.world.clone(), self.model.clone(), named(&self.disks));
        let mark = self.sim.run_until(async {
            let labels = aquifer_vdev::label_io::read_labels(&disks[side].disk).await;
            labels.is_ok_and(|labels| labels.mark.is_some())
        });
        if mark == Ok(true) {
            let disks = named(&self.disks);
            let opened = self.sim.run_until(async {
                let open = open_beside(world, disks, &ImportOptions::default(), |_| true).await?;
                check(&open, &model).await
            });
            if opened.map_err(|stop| stop.to_string())?.is_ok() {
                return Err(format!("d{side} came up alone before it was whole"));
            }
        }
        self.sim.kill();
        self.all_come_back();
        Ok(())
    }

    fn leave_only(&mut self, side: usize) {
        self.all_come_back();
        for (at, disk) in self.disks.iter().enumerate() {
            if at != side {
                disk.vanish(Vanish::PowerLost);
            }
        }
    }

    /// In peace every side is resilvered, while clients write.
    fn all_become_whole(&mut self) -> Result<(), String> {
        self.all_come_back();
        self.some_hang();
        let mut work = Rng::stream(self.rng.next_u64(), "work");
        let members = Mutex::new(Vec::new());
        let ended = self.live(0, async |open, machine| {
            let writes = work.coin();
            if writes {
                machine.work(open, work.clone()).await?;
            }
            let hang = machine.about != About::Sides;
            for turn in 0..if hang { 6000 } else { 1000 } {
                if hang && writes && turn % 10 == 0 {
                    machine.work(open, Rng::stream(work.next_u64(), "work")).await?;
                }
                if turn == 100 {
                    machine.disks.iter().for_each(SimDisk::clear_faults);
                }
                machine.all_online(open).await;
                if whole(open) {
                    *members.lock().unwrap() = crate::clients::members(open);
                    sound(open)?;
                    return if writes { Ok(()) } else { check_space(open) };
                }
                machine.world.sleep(Duration::from_millis(100)).await;
            }
            Err(format!("not resilvered: {:?}", states(open)))
        })?;
        ended.map_err(|stop| stop.to_string())?;
        self.end();
        self.members = members.into_inner().unwrap();
        Ok(())
    }

    /// Disks that were taken offline for good are taken into use again.
    async fn all_online(&self, open: &Open) {
        let vdevs = open.pool.status().vdevs;
        let leaves = vdevs.iter().flat_map(|vdev| &vdev.leaves);
        for leaf in leaves.filter(|leaf| leaf.offline) {
            let disk = self.disks.iter().find(|disk| disk.name() == leaf.path).unwrap();
            let again = named(std::slice::from_ref(disk)).remove(0);
            let _ = open.pool.online_disk(&leaf.path, again).await;
        }
    }

    /// One side is left alone for good: it has all, its older roots too. It is the keeper now.
    fn one_does_alone(&mut self) -> Result<(), String> {
        let keeper = self.members[self.rng.index(self.members.len())].clone();
        self.keeper = self.disks.iter().position(|disk| disk.name() == keeper).unwrap();
        self.leave_only(self.keeper);
        let rewind = if self.rng.below(3) == 0 { 1 + self.rng.below(2) } else { 0 };
        if rewind > 0 {
            self.model.lock().unwrap().rewound();
            self.run.rewinds += 1;
        }
        let ended = self.live(rewind, async |open, _| {
            open.pool.sync().await.map_err(|error| error.to_string())?;
            check_space(open)?;
            sound(open)
        });
        match ended {
            // There was a rewind a moment ago.
            Err(why) if rewind > 0 && why.contains("cannot go back") => {}
            ended => {
                ended.map_err(|why| format!("alone: {why}"))?.map_err(|stop| stop.to_string())?;
                self.run.alone += 1;
            }
        }
        self.end();
        Ok(())
    }
}

fn states(open: &Open) -> Vec<LeafState> {
    let vdevs = open.pool.status().vdevs;
    vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.state).collect()
}

fn failed_by_hang(open: &Open) -> u64 {
    let vdevs = open.pool.status().vdevs;
    let errors = vdevs.iter().flat_map(|vdev| &vdev.leaves).filter_map(|leaf| {
        leaf.last_error.as_ref().filter(|error| error.contains("did not answer"))
    });
    errors.count() as u64
}

fn whole(open: &Open) -> bool {
    states(open).iter().all(|state| *state == LeafState::Online) && all_for_themselves(open)
}

/// No disk stands for another one.
fn all_for_themselves(open: &Open) -> bool {
    let vdevs = open.pool.status().vdevs;
    let mut leaves = vdevs.iter().flat_map(|vdev| &vdev.leaves);
    leaves.all(|leaf| leaf.stands == Stands::ForItself)
}
