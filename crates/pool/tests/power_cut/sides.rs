//! Sides of a mirror that go away and come back. Once resilvered, each must do alone, for good.
//!
//! In some worlds sides other than the keeper also hang: with single requests, which are carried
//! out late, or with all. Late writes reach a disk after its side has failed. In others there are
//! spares, which stand in and give the place back, and disks stay offline over restarts.
//!
//! In the world of errors reads of sides fail too often (`errs`). In that of growth disks become
//! larger and vdevs are added, beside sides that are resilvered. In dense pools new sides are
//! filled beside busy clients, which get the holes between the blocks.
//!
//! In the world of copies disks are put back from copies of themselves (`copies`), and scrubs run
//! beside acts on disks, while labels rot.
//!
//! The world of everything has all of that in one pool: several data vdevs, log vdevs, spares, and
//! vdevs that are added; sides that rot, err and are slow; scrubs; imports that are cut off several
//! times in a row. Of each vdev one disk is kept whole, and in the end one is left alone.

mod about;
mod acts;
mod base;
mod copies;
mod errs;
mod half_built;
mod rot;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::config::{Stands, VdevClass};
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{
    CutPlan, DiskConfig, Fault, FaultRule, Image, Latency, Rng, Sim, SimConfig, SimDisk, Stop,
    Vanish, When,
};
use aquifer_vdev::LeafState;
use futures_util::future::join4;

use crate::clients::{Model, Open, begin, check_space, end, sound, told, workload};
use crate::shapes::Found;
use crate::{Kind, story};

pub use about::{About, SidesRun};
use acts::Acts;
pub use base::{Base, dense_mirrors, growing_pools, mirrors, pools};
use base::{DISK_SECTORS, DISK_SECTORS_MAX};

struct Machine {
    rng: Rng,
    /// How sides hang, if they do.
    hangs: Option<Rng>,
    about: About,
    sim: Sim,
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    /// The disks as the machine finds them.
    found: Vec<Found>,
    model: Arc<Mutex<Model>>,
    piece_blocks_max: usize,
    /// These disks are whole, one of each vdev; the others may be, or are none of the pool's.
    keepers: Vec<usize>,
    /// Disks of vdevs that may have been added since: they are spared, too.
    added: Mutex<Vec<usize>>,
    /// The disks that were the pool's when all were whole, by vdev.
    members: Vec<Vec<String>>,
    /// All disks at the ends of earlier lives.
    copies: Vec<Vec<Image>>,
    /// Something rots in this round.
    rots: bool,
    run: SidesRun,
}

/// Lets a machine live and die as the seed says.
pub fn run_sides_seed(seed: u64, bases: &[Base], about: About) -> Result<SidesRun, String> {
    let mut machine = Machine::new(seed, bases, about);
    for _ in 0..2 + machine.rng.below(3) {
        machine.round().map_err(|what| {
            let kept = machine.keepers.iter().map(|at| machine.disks[*at].name());
            let kept = kept.collect::<Vec<_>>().join(", ");
            let disks = machine.disks.len();
            format!("seed {seed}, {disks} disks, {kept} kept: {what}\n{}", machine.sim.story())
        })?;
    }
    Ok(machine.run)
}

impl Machine {
    fn new(seed: u64, bases: &[Base], about: About) -> Machine {
        let mut rng = Rng::stream(seed, "sides");
        let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
        let mut sim = Sim::with_config(seed, config);
        let base = &bases[rng.index(bases.len())];
        let mut disks: Vec<SimDisk> = (base.names.iter().zip(&base.images))
            .map(|(name, image)| sim.add_disk(name, image.clone(), DiskConfig::default()))
            .collect();
        let free: &[&str] = if about.grows() { &["free0", "free1", "free2"] } else { &["spare"] };
        for name in free {
            disks.push(sim.add_disk(name, Image::new(DISK_SECTORS_MAX), DiskConfig::default()));
        }
        let found = disks.iter().map(|disk| Found::new(disk.clone(), DISK_SECTORS)).collect();
        let mut hangs = Rng::stream(seed, "hangs");
        let hang = match about {
            About::Hangs | About::Dense => true,
            About::Everything => hangs.below(3) == 0,
            _ => false,
        };
        Machine {
            rng,
            hangs: hang.then_some(hangs),
            about,
            world: Arc::new(sim.world()),
            sim,
            disks,
            found,
            model: Arc::default(),
            piece_blocks_max: if seed.is_multiple_of(3) { 8 } else { 24 },
            keepers: base.keepers.clone(),
            added: Mutex::default(),
            members: Vec::new(),
            copies: Vec::new(),
            rots: false,
            run: SidesRun::default(),
        }
    }

    /// Disks as the machine finds them.
    fn found(&self, which: impl IntoIterator<Item = usize>) -> Vec<NamedDisk> {
        which.into_iter().map(|at| self.found[at].named()).collect()
    }

    fn all_found(&self) -> Vec<NamedDisk> {
        self.found(0..self.disks.len())
    }

    /// Whether a disk must not fail.
    fn keeps(&self, at: usize) -> bool {
        self.keepers.contains(&at) || self.added.lock().unwrap().contains(&at)
    }

    /// The disks that may fail.
    fn fickle(&self) -> impl Iterator<Item = (usize, &SimDisk)> {
        self.disks.iter().enumerate().filter(|(at, _)| !self.keeps(*at))
    }

    /// Sides miss something, come back, are resilvered with cuts on the way; one of them is left.
    fn round(&mut self) -> Result<(), String> {
        if self.about == About::Errs {
            self.sides_err()?;
            self.all_become_whole()?;
            return self.one_does_alone();
        }
        let all = self.about == About::Everything;
        self.rots = all && self.rng.below(3) == 0;
        self.some_go_away();
        for _ in 0..1 + self.rng.below(2) {
            self.broken_life()?;
            self.look_at_copies()?;
        }
        self.all_come_back();
        for _ in 0..self.rng.below(4) {
            if all && self.rng.coin() {
                self.imports_are_cut_off()?;
            }
            self.broken_life()?;
            self.look_at_copies()?;
            if self.rng.below(3) == 0 && self.about != About::Copies {
                self.a_half_built_side_knows_it()?;
            }
        }
        self.all_become_whole()?;
        if self.rots {
            self.a_scrub_mends_what_rots()?;
        }
        self.one_does_alone()
    }

    /// In the world of copies.
    fn look_at_copies(&mut self) -> Result<(), String> {
        if self.about != About::Copies {
            return Ok(());
        }
        for _ in 0..3 {
            if !self.copies.is_empty() {
                self.a_look_with_copies()?;
            }
        }
        self.make_copies();
        if self.rng.coin() {
            self.some_are_put_back();
        }
        Ok(())
    }

    /// Several cuts in a row, in the import or soon after.
    fn imports_are_cut_off(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(4) {
            self.sim.plan_cut(CutPlan::AtEvent(1 + self.rng.below(250)));
            let ended = self.live(0, async |open, _| {
                open.pool.sync().await.map(|_| ()).map_err(|error| error.to_string())
            });
            self.survives(ended)?;
            self.end();
        }
        Ok(())
    }

    fn some_go_away(&mut self) {
        for (at, disk) in self.disks.iter().enumerate() {
            disk.clear_faults();
            if !self.keeps(at) && self.rng.coin() {
                disk.vanish(Vanish::PowerLost);
            }
        }
    }

    fn all_come_back(&mut self) {
        for disk in &self.disks {
            disk.clear_faults();
            disk.come_back();
            disk.set_latency(Latency::default());
        }
    }

    /// A life that a cut ends anywhere, in which sides other than the keeper may fail.
    fn broken_life(&mut self) -> Result<(), String> {
        let longest = [60, 1200, 4000][self.rng.index(3)];
        let event = 1 + self.rng.below(longest) * if self.about == About::Sides { 1 } else { 3 };
        self.sim.plan_cut(CutPlan::AtEvent(event));
        self.some_fail();
        self.some_hang();
        let turns = match self.about {
            About::Spares | About::Growth | About::Everything => 1 + self.rng.below(6),
            About::Dense => 1 + self.rng.below(12),
            _ => self.hangs.as_mut().map_or(1, |rng| 1 + rng.below(4)),
        };
        let all = self.about == About::Everything;
        let is_short = all || matches!(self.about, About::Spares | About::Growth);
        let longest_ms = match self.about {
            About::Dense => 100,
            _ if is_short => 2000,
            _ => 12_000,
        };
        let mut work = Rng::stream(self.rng.next_u64(), "work");
        let acts = Rng::stream(self.rng.next_u64(), "acts");
        let busy = self.rng.coin() || all || !matches!(self.about, About::Sides | About::Hangs);
        let copies = self.about == About::Copies;
        let [scrubs, rots] = ["scrubs", "rots"]
            .map(|of| (all || copies).then(|| Rng::stream(self.rng.next_u64(), of)));
        let rots = rots.filter(|_| self.rots);
        let [hung, stood_in] = [(); 2].map(|()| AtomicU64::new(0));
        let done_acts = Acts::default();
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
            let (scrub, rot) = (machine.scrub_now_and_then(open, scrubs), machine.rot(open, rots));
            let (done, (), scrubbed, ()) = join4(work, acts, scrub, rot).await;
            done?;
            scrubbed?;
            hung.store(failed_by_hang(open), Ordering::Relaxed);
            stood_in.store(u64::from(!all_for_themselves(open)), Ordering::Relaxed);
            if machine.rots { Ok(()) } else { sound(open) }
        });
        self.run.hung += hung.into_inner();
        self.run.stood_in += stood_in.into_inner();
        self.run.acts += done_acts.all.into_inner();
        self.run.added += done_acts.added.into_inner();
        self.run.grown += done_acts.grown.into_inner();
        self.survives(ended)?;
        self.end();
        Ok(())
    }

    fn survives(&self, ended: Result<Result<(), Stop>, String>) -> Result<(), String> {
        match ended {
            Ok(Ok(()) | Err(Stop::Halted)) => Ok(()),
            Ok(Err(stop)) => Err(stop.to_string()),
            // A disk that goes away while the log is read stops the import: the next one knows.
            Err(what) if what.contains("the device is gone") => Ok(()),
            Err(what) => Err(what),
        }
    }

    fn some_fail(&mut self) {
        let kinds = if self.about == About::Everything { 9 } else { 6 };
        for at in 0..self.disks.len() {
            if self.keeps(at) {
                continue;
            }
            let disk = &self.disks[at];
            disk.clear_faults();
            let after = When::OnceAfter(self.rng.below(300));
            match self.rng.below(kinds) {
                0 => disk.inject(FaultRule::new(Fault::Vanish(Vanish::PowerLost), after)),
                1 => disk.inject(FaultRule::new(Fault::WriteError, after)),
                2 => disk.inject(FaultRule::new(Fault::FlushError, after)),
                3 if at == 0 => disk.come_back(),
                6 => disk.inject(FaultRule::new(Fault::ReadError, When::Always)),
                7 => disk.inject(FaultRule::new(Fault::ReadError, When::Ppm(50_000))),
                8 => disk.set_latency(Latency::fixed(60_000_000, 60_000_000)),
                _ => {}
            }
        }
    }

    /// Sides other than the keeper hang from some moment on, with one request or some or all.
    fn some_hang(&mut self) {
        let Some(mut rng) = self.hangs.take() else { return };
        if self.about == About::Dense {
            // What is written over free sectors lands after what is allocated there meanwhile.
            for (_, disk) in self.fickle() {
                let late = Fault::Late(Duration::from_millis(1 + rng.below(100)));
                disk.inject(FaultRule::new(late, When::Ppm(200_000)));
            }
            self.hangs = Some(rng);
            return;
        }
        for (_, disk) in self.fickle() {
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
        self.hangs = Some(rng);
    }

    async fn work(&self, open: &Open, rng: Rng) -> Result<(), String> {
        let (world, model) = (self.world.clone(), self.model.clone());
        let kind = if self.about == About::Dense { Kind::Sparse } else { Kind::Short };
        let done = workload(world, open, model, &self.disks, kind, rng).await;
        done.map_err(|error| error.to_string())
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
        if self.about == About::Errs {
            // Reads go to the disks.
            options.scale.arc_bytes_max = 64 << 10;
        }
        if matches!(self.about, About::Spares | About::Everything) {
            options.scale.spare_after = Duration::from_millis(300);
        }
        let (world, model, disks) = (self.world.clone(), self.model.clone(), self.all_found());
        // The machine is only read while its simulation runs.
        let mut sim = std::mem::replace(&mut self.sim, Sim::new(0));
        let end = sim.run_until(async {
            let torn = |path: &str| !self.keepers.iter().any(|at| self.disks[*at].name() == path);
            let open = begin(&world, disks, &options, &model, torn).await?;
            work(&open, self).await
        });
        self.sim = sim;
        told(end)
    }

    fn leave_only(&mut self, left: &[usize]) {
        self.all_come_back();
        for (at, disk) in self.disks.iter().enumerate() {
            if !left.contains(&at) {
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
            let dense = machine.about == About::Dense;
            if dense {
                machine.replace_one(open, &mut work).await;
            }
            // What is written later than the copies hides what is wrong with these.
            let busy_turns = if dense { 1 + work.below(4) } else { 0 };
            let writes = dense || work.coin();
            if writes {
                machine.work(open, work.clone()).await?;
            }
            let hang = machine.about != About::Sides;
            for turn in 0..if hang { 6000 } else { 1000 } {
                let is_busy = if dense { turn < busy_turns } else { turn % 10 == 0 };
                if hang && writes && is_busy {
                    machine.work(open, Rng::stream(work.next_u64(), "work")).await?;
                }
                if turn == 100 {
                    machine.disks.iter().for_each(SimDisk::clear_faults);
                }
                machine.all_online(open).await;
                if whole(open) {
                    *members.lock().unwrap() = members_by_vdev(open);
                    if machine.rots {
                        return Ok(());
                    }
                    sound(open)?;
                    if writes {
                        return Ok(());
                    }
                    // An import may have taken segments for records in its open txg.
                    open.pool.sync().await.map_err(|error| error.to_string())?;
                    check_space(open)?;
                    // A side that hangs may have failed meanwhile.
                    if whole(open) {
                        return Ok(());
                    }
                }
                machine.world.sleep(Duration::from_millis(100)).await;
            }
            Err(format!("not resilvered: {:?}", states(open)))
        })?;
        ended.map_err(|stop| stop.to_string())?;
        self.end();
        self.members = members.into_inner().unwrap();
        self.added.lock().unwrap().clear();
        Ok(())
    }

    /// Disks that were taken offline for good are taken into use again, and those of the log.
    async fn all_online(&self, open: &Open) {
        let vdevs = open.pool.status().vdevs;
        let out = |vdev: &VdevClass, leaf: &aquifer_pool::LeafStatus| {
            leaf.offline || *vdev == VdevClass::Log && leaf.state != LeafState::Online
        };
        let leaves =
            vdevs.iter().flat_map(|vdev| vdev.leaves.iter().map(|leaf| (vdev.class, leaf)));
        for (_, leaf) in leaves.filter(|(class, leaf)| out(class, leaf)) {
            let at = self.disks.iter().position(|disk| disk.name() == leaf.path).unwrap();
            let again = self.found([at]).remove(0);
            let _ = open.pool.online_disk(&leaf.path, again, false).await;
        }
    }

    /// One side of each vdev is left alone for good: it has all, its older roots too. It is the
    /// keeper now.
    fn one_does_alone(&mut self) -> Result<(), String> {
        let at = |name: &String| self.disks.iter().position(|disk| disk.name() == name).unwrap();
        self.keepers =
            (self.members.iter()).map(|sides| at(&sides[self.rng.index(sides.len())])).collect();
        self.leave_only(&self.keepers.clone());
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

fn members_by_vdev(open: &Open) -> Vec<Vec<String>> {
    let vdevs = open.pool.status().vdevs.into_iter().filter(|vdev| !vdev.leaves.is_empty());
    let of = |leaf: aquifer_pool::LeafStatus| leaf.path;
    vdevs.map(|vdev| vdev.leaves.into_iter().map(of).collect()).collect()
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
