//! Sides that are in use apart from each other: an administrator brings up an older side alone, by
//! force or with a rewind, while the others have gone on elsewhere. Both attach, detach and replace
//! disks. When disks of both meet, the import is refused. Nothing else ever is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_pool::ActError;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{CutPlan, DiskConfig, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish};
use aquifer_vdev::LeafState;
use aquifer_vdev::label_io::DiskLabels;

use crate::clients::{
    Model, Open, begin, check, check_space, end, members, open_beside, sound, told, workload,
};
use crate::shapes::{labels_of, named};
use crate::sides::Base;
use crate::{Kind, story};

/// Events that a seed has shown.
#[derive(Default)]
pub struct SplitRun {
    pub cuts: u64,
    /// Imports that were refused because sides had gone apart.
    pub refused: u64,
    /// Imports of disks of both parts, of which one had not gone on.
    pub met: u64,
}

/// Disks that are in use apart from the others, and what their clients know.
struct Part {
    disks: BTreeSet<usize>,
    model: Arc<Mutex<Model>>,
}

struct Machine {
    rng: Rng,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    run: SplitRun,
}

/// Disks beside the mirror's: each part may take some.
const FREE: usize = 4;

pub fn run_splits_seed(seed: u64, bases: &[Base]) -> Result<SplitRun, String> {
    let mut rng = Rng::stream(seed, "splits");
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let images = bases[rng.index(bases.len())].images.clone();
    let sides = images.len();
    let blank = (0..FREE).map(|_| Image::new(65536));
    let disks = (0..).zip(images.into_iter().chain(blank));
    let disks: Vec<SimDisk> = disks
        .map(|(at, image)| sim.add_disk(&format!("d{at}"), image, DiskConfig::default()))
        .collect();
    let world: Arc<dyn World> = Arc::new(sim.world());
    let mut machine = Machine { rng, sim, world, disks, run: SplitRun::default() };
    let lives = machine.lives(sides);
    lives.map_err(|what| format!("seed {seed}, {sides} sides: {what}\n{}", machine.sim.story()))?;
    Ok(machine.run)
}

impl Machine {
    fn lives(&mut self, sides: usize) -> Result<(), String> {
        let mut model = Arc::new(Mutex::new(Model::default()));
        let all: BTreeSet<usize> = (0..sides).collect();
        self.life(&Part { disks: all.clone(), model: model.clone() }, 0)?;
        let split = 1 + self.rng.index(sides - 1);
        let mut order: Vec<usize> = all.into_iter().collect();
        for at in (1..sides).rev() {
            order.swap(at, self.rng.index(at + 1));
        }
        let mut part = |range: std::ops::Range<usize>, free: [usize; 2]| {
            let disks = order[range].iter().copied().chain(free.map(|at| sides + at)).collect();
            let copy = model.lock().unwrap().clone();
            model = Arc::new(Mutex::new(copy));
            Part { disks, model: model.clone() }
        };
        let parts = [part(0..split, [0, 1]), part(split..sides, [2, 3])];
        let last = self.newest()?.into_iter().flatten().max().unwrap_or(0);
        for (at, part) in parts.iter().enumerate() {
            for turn in 0..self.rng.below(4) {
                let rewinds = at == 1 && turn == 0 && self.rng.below(3) == 0;
                let rewind = if rewinds { 1 + self.rng.below(2) } else { 0 };
                self.life(part, rewind)?;
            }
        }
        self.meet(&parts, last)
    }

    fn only(&self, disks: &BTreeSet<usize>) {
        for (at, disk) in self.disks.iter().enumerate() {
            disk.come_back();
            if !disks.contains(&at) {
                disk.vanish(Vanish::PowerLost);
            }
        }
    }

    /// A part alone: clients write, an administrator changes its disks.
    fn life(&mut self, part: &Part, rewind: u64) -> Result<(), String> {
        self.only(&part.disks);
        let cut = self.rng.coin().then(|| 1 + self.rng.below(3000));
        self.sim.plan_cut(cut.map_or(CutPlan::Never, CutPlan::AtEvent));
        let mut work = Rng::stream(self.rng.next_u64(), "work");
        if rewind > 0 {
            part.model.lock().unwrap().rewound();
        }
        let ended = self.live(part, rewind, async |open, machine| {
            for _ in 0..1 + work.below(3) {
                let (world, model) = (machine.world.clone(), part.model.clone());
                let rng = Rng::stream(work.next_u64(), "work");
                let done = workload(world, open, model, &[], Kind::Short, rng).await;
                done.map_err(|error| error.to_string())?;
                machine.act(open, part, &mut work).await;
                machine.world.sleep(Duration::from_millis(work.below(4000))).await;
            }
            sound(open)
        });
        match ended {
            Ok(Ok(()) | Err(Stop::Halted)) => {}
            Ok(Err(stop)) => return Err(stop.to_string()),
            // A part that rewinds twice, and one whose only whole side the other part has.
            Err(why) if rewind > 0 && why.contains("cannot go back") => {}
            Err(why) => return Err(why),
        }
        self.end();
        Ok(())
    }

    async fn act(&self, open: &Open, part: &Part, rng: &mut Rng) {
        // The part of all disks stays as it is: each half must have a pool.
        if part.disks.iter().all(|at| *at < self.disks.len() - FREE) {
            return;
        }
        let own = members(open);
        let is_free = |at: &usize| !own.iter().any(|name| name == self.disks[*at].name());
        let free = part.disks.iter().copied().find(is_free);
        let free = free.map(|at| named(&self.disks[at..=at]).remove(0));
        let Some(one) = rng.pick(&own) else { return };
        let result = match (rng.below(5), free) {
            (0 | 1, Some(free)) => open.pool.attach_disk(one, free, true).await,
            (2, Some(free)) => open.pool.replace_disk(one, free, true).await.map(|_| ()),
            (3, _) => open.pool.detach_disk(one).await,
            _ => return,
        };
        if story() > 0 {
            println!("act on {one}: {result:?} at {:?}", self.world.now());
        }
    }

    fn end(&mut self) {
        end(&mut self.sim, &mut self.rng);
        self.run.cuts += 1;
    }

    /// The labels of all disks.
    fn labels(&mut self) -> Result<Vec<Option<DiskLabels>>, String> {
        self.only(&(0..self.disks.len()).collect());
        let disks = named(&self.disks);
        let read = self.sim.run_until(labels_of(&disks));
        read.map_err(|stop| stop.to_string())
    }

    /// The newest uberblock of each disk that counts.
    fn newest(&mut self) -> Result<Vec<Option<u64>>, String> {
        let newest = |labels: DiskLabels| Some(labels.uberblocks.first()?.sequence);
        Ok(self.labels()?.into_iter().map(|labels| labels.and_then(newest)).collect())
    }

    /// Some disks of both parts are there.
    fn meet(&mut self, parts: &[Part; 2], last: u64) -> Result<(), String> {
        let newest = self.newest()?;
        let some = |rng: &mut Rng, part: &Part| {
            part.disks.iter().copied().filter(|_| rng.below(3) > 0).collect::<BTreeSet<usize>>()
        };
        let there = [some(&mut self.rng, &parts[0]), some(&mut self.rng, &parts[1])];
        let newest_of = |disks: &BTreeSet<usize>| disks.iter().filter_map(|at| newest[*at]).max();
        let went_on = there.each_ref().map(|disks| newest_of(disks) > Some(last));
        self.only(&there.iter().flatten().copied().collect());
        let (world, disks) = (self.world.clone(), named(&self.disks));
        let opened = self.sim.run_until(async {
            let open = open_beside(world, disks, &ImportOptions::default(), |_| true).await?;
            // Who has gone on alone wins, if all that it acknowledged is there.
            for at in (0..2).filter(|at| went_on[*at] && !went_on[1 - at]) {
                if newest_of(&there[at]) == newest_of(&parts[at].disks) {
                    check(&open, &parts[at].model).await?;
                }
            }
            Ok::<(), String>(())
        });
        let opened = opened.map_err(|stop| stop.to_string())?;
        self.sim.kill();
        let refused = opened.as_ref().is_err_and(|why| why.contains("in use apart"));
        match (refused, went_on == [true, true]) {
            (true, true) => {
                self.run.refused += 1;
                let chosen = self.rng.index(2);
                self.one_part_goes_on(&parts[chosen])
            }
            (true, false) => Err(format!("refused without need: {opened:?}, {went_on:?}")),
            (false, true) => Err(format!("{there:?} were imported together: {opened:?}")),
            (false, false) => {
                self.run.met += 1;
                match opened {
                    Err(why) if why.contains("slot") => Err(why),
                    _ => Ok(()),
                }
            }
        }
    }

    /// The administrator keeps one part. Its missing disks come back from the other part, and get
    /// what they lack. Then one disk does alone.
    fn one_part_goes_on(&mut self, part: &Part) -> Result<(), String> {
        self.only(&part.disks);
        let sides = Mutex::new(Vec::new());
        let ended = self.live(part, 0, async |open, machine| {
            machine.disks.iter().for_each(SimDisk::come_back);
            for _ in 0..600 {
                let vdevs = open.pool.status().vdevs;
                let leaves = &vdevs[0].leaves;
                if leaves.iter().all(|leaf| leaf.state == LeafState::Online) {
                    *sides.lock().unwrap() = members(open);
                    return sound(open);
                }
                for leaf in leaves.iter().filter(|leaf| leaf.state == LeafState::Missing) {
                    let at = machine.disks.iter().position(|disk| disk.name() == leaf.path);
                    let at = at.ok_or("a disk without a name")?;
                    let again = named(&machine.disks[at..=at]).remove(0);
                    if come_back(open, &leaf.path, again).await.is_err() {
                        // The other part has given it another name, or wiped it.
                        open.pool.detach_disk(&leaf.path).await.map_err(|e| e.to_string())?;
                    }
                }
                machine.world.sleep(Duration::from_millis(100)).await;
            }
            Err("not resilvered".into())
        });
        ended?.map_err(|stop| stop.to_string())?;
        self.end();
        let sides = sides.into_inner().unwrap();
        let alone = &sides[self.rng.index(sides.len())];
        let at = self.disks.iter().position(|disk| disk.name() == alone).unwrap();
        self.only(&BTreeSet::from([at]));
        let ended = self.live(part, 0, async |open, _| {
            open.pool.sync().await.map_err(|error| error.to_string())?;
            check_space(open)?;
            sound(open)
        });
        ended.map_err(|why| format!("{alone} alone: {why}"))?.map_err(|stop| stop.to_string())
    }

    /// Imports, checks, and does this. The error of `Result` is one that the engine told.
    fn live(
        &mut self,
        part: &Part,
        rewind: u64,
        work: impl AsyncFnOnce(&Open, &Machine) -> Result<(), String>,
    ) -> Result<Result<(), Stop>, String> {
        let mut options = ImportOptions { rewind, ..ImportOptions::default() };
        options.scale.piece_blocks_max = 24;
        let (world, disks) = (self.world.clone(), named(&self.disks));
        // The machine is only read while its simulation runs.
        let mut sim = std::mem::replace(&mut self.sim, Sim::new(0));
        let end = sim.run_until(async {
            let open = begin(&world, disks, &options, &part.model, |_| true).await?;
            work(&open, self).await
        });
        self.sim = sim;
        told(end)
    }
}

/// A disk of the other part comes back. What it did there is dropped by force only.
async fn come_back(open: &Open, path: &str, again: NamedDisk) -> Result<(), ActError> {
    match open.pool.online_disk(path, again.clone(), false).await {
        Err(ActError::OwnPast { .. }) => open.pool.online_disk(path, again, true).await,
        done => done,
    }
}
