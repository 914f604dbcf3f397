//! The lives of a machine, as each seed decides them.
//!
//! Pools have different shapes. The engine's sizes are small, so that much happens soon: txgs of 64
//! KiB, nodes of a few entries, tails from four extents on, a ring of records that goes round. Each
//! life is cut off at some I/O event. Its answers are compared with the state that the next life
//! finds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_files::Service;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{Memory, Scale};
use aquifer_sim::seeds::{seeds, story};
use aquifer_sim::{
    CutPlan, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish, When,
};
use futures_util::future::{join_all, join3};

use crate::administrator::Estate;
use crate::bed::{
    Shape, Ticking, created, disks_of, inspected, is_loss_at_import, named, open_found,
};
use crate::client::{Client, Habits};
use crate::mended::Mended;
use crate::op::Door;
use crate::trouble::Troubles;
use crate::witness::{End, Shared, Witness};

/// Where clients work.
pub const DATASET: &str = "tank/shared";

/// Small sizes, with which much happens soon.
pub const SCALE: Scale = Scale {
    txg_dirty_bytes_max: 64 << 10,
    arc_bytes_max: 256 << 10,
    cut_extents_max: 4,
    reap_entries_max: 12,
    node_bytes: 400,
    record_segment_sectors: 32,
    spare_after: Duration::from_secs(60),
    piece_blocks_max: 24,
    piece_copy_ms_max: 10,
    zeros_share: 0,
    autotrim_after: Duration::from_secs(10),
};

/// How the earlier life ended, if nobody has checked since; and the witness.
struct State {
    end: End,
    shared: Option<Shared>,
    estate: Estate,
}

/// One life, and its settings.
pub struct Life<'a> {
    /// Clock, randomness, tasks.
    pub world: Arc<Ticking>,
    /// How the pool is imported.
    pub options: ImportOptions,
    /// The number of clients; none if this life only checks.
    pub clients: u64,
    /// The seed of this life.
    pub seed: u64,
    calls: u64,
    /// The number of an administrator's acts meanwhile, and of those with a scrub.
    acts: u64,
    scrubs: u64,
    /// Of a million reads this many fail, and succeed on the next try.
    read_errors_ppm: u32,
    /// Reads of the import fail too; then the import may fail.
    errs_at_import: bool,
    habits: Habits,
    exports: bool,
    disks: &'a [SimDisk],
    /// As this life finds them.
    found: Vec<NamedDisk>,
    state: &'a Mutex<State>,
}

impl Life<'_> {
    /// Imports the pool.
    ///
    /// # Errors
    /// It cannot be imported.
    pub async fn open(&self) -> Result<Service, String> {
        let estate = self.state.lock().unwrap().estate.clone();
        if self.options.rewind > 0 || self.options.missing_log {
            // Even if the import is cut off: it may have gone back by then.
            self.state.lock().unwrap().end = End::Rewind;
            estate.forget();
        }
        if self.errs_at_import {
            self.inject_read_errors();
        }
        let service = open_found(self.world.clone(), self.found.clone(), &self.options).await?;
        estate.check(&service).await?;
        Ok(service)
    }

    /// Takes all disks away at once, by their links or by their power.
    pub fn lose_disks(&self, rng: &mut Rng) {
        let how = if rng.coin() { Vanish::LinkLost } else { Vanish::PowerLost };
        self.disks.iter().for_each(|disk| disk.vanish(how));
    }

    /// Lets all disks complete nothing for some time.
    pub fn stall_disks(&self, time: Duration) {
        self.disks.iter().for_each(|disk| disk.stall(time));
    }

    /// Whether all its disks are there, and may be lost for a moment.
    pub fn has_all_disks(&self) -> bool {
        !self.options.missing_log
    }

    /// Imports the pool once more in this life, after its disks were lost and its old instance has
    /// ended. They are back, and fail no more.
    ///
    /// # Errors
    /// It cannot be imported.
    pub async fn open_again(&self) -> Result<Service, String> {
        let estate = self.state.lock().unwrap().estate.clone();
        for disk in self.disks {
            disk.clear_faults();
            disk.come_back();
        }
        let options = ImportOptions { rewind: 0, ..self.options.clone() };
        let service = open_found(self.world.clone(), self.found.clone(), &options).await?;
        estate.check(&service).await?;
        Ok(service)
    }

    /// The witness of the clients.
    ///
    /// # Errors
    /// Their dataset is gone.
    pub fn shared(&self, service: &Service) -> Result<Shared, String> {
        let root = service.files.root(DATASET).ok_or("no dataset")?;
        let mut state = self.state.lock().unwrap();
        let shared = state.shared.get_or_insert_with(|| Witness::new(root)).clone();
        shared.lock().unwrap().begin_life();
        Ok(shared)
    }

    /// How the earlier life ended.
    pub fn end(&self) -> End {
        self.state.lock().unwrap().end
    }

    /// Notes that the rest of the earlier life was checked.
    pub fn is_checked(&self) {
        self.state.lock().unwrap().end = End::Crash;
    }

    /// Runs the clients, with a door for each.
    ///
    /// # Errors
    /// An answer that cannot be.
    pub async fn work<D: Door>(
        &self,
        service: &Service,
        shared: &Shared,
        door: impl Fn(u64) -> D,
    ) -> Result<(), String> {
        self.inject_read_errors();
        let rng = Rng::stream(self.seed, "administrator");
        let estate = self.state.lock().unwrap().estate.clone();
        let administrator = estate.administer(service, rng, self.acts);
        let rng = Rng::stream(self.seed, "scrubs");
        let scrubs = estate.scrubs().administer(service, rng, self.scrubs);
        let clients = (0..self.clients).map(|at| {
            let client = Client {
                door: door(at),
                shared: shared.clone(),
                habits: self.habits,
                rng: Rng::stream(self.seed, &format!("shared {at}")),
                tells: story() > 0,
            };
            client.run(self.calls)
        });
        let (done, administered, scrubbed) = join3(join_all(clients), administrator, scrubs).await;
        self.disks.iter().for_each(SimDisk::clear_faults);
        done.into_iter()
            .chain([administered, scrubbed])
            .collect::<Result<Vec<()>, String>>()
            .map(drop)
    }

    fn inject_read_errors(&self) {
        if self.read_errors_ppm > 0 {
            let rule = FaultRule::new(Fault::ReadError, When::Ppm(self.read_errors_ppm));
            self.disks.iter().for_each(|disk| disk.inject(rule.clone()));
        }
    }

    /// Whether this life may end with this error.
    fn may_end_with(&self, what: &str) -> bool {
        self.read_errors_ppm > 0 && self.errs_at_import && is_read_error(what)
            || self.options.rewind > 0 && what.contains("cannot go back")
    }

    /// Ends the life, if it was not cut off: exports the pool, or leaves it as it is.
    ///
    /// # Errors
    /// It cannot be exported.
    pub async fn finish(&self, service: &Service) -> Result<(), String> {
        if self.exports {
            service.pool.export().await.map_err(|error| error.to_string())?;
            self.state.lock().unwrap().end = End::Export;
        }
        Ok(())
    }
}

/// The results of a seed.
#[derive(Debug, Default)]
pub struct Run {
    /// How often the power went, or the process.
    pub cuts: u64,
    /// Calls of clients.
    pub calls: u64,
    /// Pages of files that rotted at the end, and were mended.
    pub mended: u64,
    /// The hash of all events on the disks.
    pub trace: u64,
}

const SHAPES: [Shape; 6] = [
    Shape::Single,
    Shape::Mirror,
    Shape::ThreeWay,
    Shape::TwoSingles,
    Shape::SingleLog,
    Shape::MirrorLogMirror,
];

/// Pools of different shapes.
pub fn bases() -> Vec<(Shape, Vec<Image>)> {
    let base = |shape| {
        let images = created(shape, async |service| {
            service.datasets.create(DATASET, &[]).await.unwrap();
            // So that a rewind finds it.
            for _ in 0..3 {
                service.pool.sync().await.unwrap();
            }
        });
        (shape, images)
    };
    SHAPES.map(base).into()
}

/// Runs that many seeds, or those that the environment names, and prints the totals.
///
/// # Panics
/// One of them shows an error.
pub fn run_seeds(count: u64, run_seed: impl Fn(u64) -> Result<Run, String>) {
    let mut sum = Run::default();
    for seed in seeds(count) {
        match run_seed(seed) {
            Ok(run) => {
                sum.cuts += run.cuts;
                sum.calls += run.calls;
                sum.mended += run.mended;
            }
            Err(what) => panic!("{what}"),
        }
    }
    let Run { cuts, calls, mended, .. } = sum;
    println!("{cuts} cuts, {calls} calls, {mended} rotten pages mended");
    assert!(cuts < 100 || mended > 0, "no page was mended");
}

/// Lives as the seed decides them, each run by `live`, with up to `turn` calls in a turn.
///
/// # Errors
/// A loss, or an answer that cannot be; with the story of the seed.
pub fn run_seed(
    seed: u64,
    bases: &[(Shape, Vec<Image>)],
    turn: usize,
    live: impl AsyncFn(&Life<'_>) -> Result<(), String>,
) -> Result<Run, String> {
    let mut rng = Rng::stream(seed, "shared");
    let (shape, images) = &bases[rng.index(bases.len())];
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let disks = disks_of(&mut sim, images);
    let world = Arc::new(Ticking::new(Arc::new(sim.world())));
    let troubles = Troubles::of(*shape, &mut rng);
    let state = Mutex::new(State { end: End::Export, shared: None, estate: Estate::default() });
    let tell = |sim: &Sim, what: String| {
        format!("seed {seed} {shape:?} {troubles:?}: {what}\n{}", sim.story())
    };
    // The log's only disk is away, and the next import must do without it.
    let mut does_without = false;
    let habits = habits(&mut rng, turn);
    let machine = Machine { world, disks: &disks, troubles: &troubles, state: &state };
    let mut run = Run::default();
    let lives = 2 + rng.below(5);
    for at in 0..=lives {
        let is_last = at == lives;
        if !is_last {
            troubles.begin(&disks, &mut rng);
        }
        let mut options = options(&mut rng, is_last);
        if std::mem::take(&mut does_without) {
            disks[shape.data_disks()].vanish(Vanish::PowerLost);
            options.missing_log = true;
        }
        let life = machine.life(options, habits, is_last, &mut rng);
        let event = if rng.below(4) == 0 { rng.below(150) } else { rng.below(12_000) };
        if !is_last {
            sim.plan_cut(CutPlan::AtEvent(event + 1));
        }
        match sim.run_until(live(&life)) {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            Ok(Err(what)) if troubles.takes_disks() && is_loss_at_import(&what) && !is_last => {
                let lacks_log = *shape == Shape::SingleLog && what.contains("missing");
                does_without = lacks_log && at + 1 < lives && rng.coin();
            }
            Ok(Err(what)) if life.may_end_with(&what) => {}
            Ok(Err(what)) => return Err(tell(&sim, what)),
            Err(stop) => return Err(tell(&sim, stop.to_string())),
        }
        if let Some(shared) = &state.lock().unwrap().shared {
            run.calls += shared.lock().unwrap().calls.len() as u64;
        }
        if is_last {
            break;
        }
        run.cuts += 1;
        if rng.below(4) == 0 {
            sim.kill();
        } else {
            sim.power_cut_any();
        }
        disks.iter().for_each(SimDisk::clear_faults);
        if *shape == Shape::SingleLog && !does_without {
            disks[1].come_back();
        }
        troubles.rest(&disks, &mut rng);
        if troubles.damages() {
            continue;
        }
        match sim.run_until(inspected(&disks, rng.below(8) == 0, rng.below(3) as u8)) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => return Err(tell(&sim, what)),
            Err(stop) => return Err(tell(&sim, stop.to_string())),
        }
    }
    run.mended = machine.mended(seed, *shape, &mut sim).map_err(|what| tell(&sim, what))?;
    run.trace = sim.trace_hash();
    Ok(run)
}

/// The common parts of all lives of a seed.
struct Machine<'a> {
    world: Arc<Ticking>,
    disks: &'a [SimDisk],
    troubles: &'a Troubles,
    state: &'a Mutex<State>,
}

impl<'a> Machine<'a> {
    /// The end of some seeds: what rots is mended. Returns how many pages were.
    fn mended(&self, seed: u64, shape: Shape, sim: &mut Sim) -> Result<u64, String> {
        let mut rng = Rng::stream(seed, "mended");
        if !shape.is_mirror() || rng.below(3) > 0 {
            return Ok(0);
        }
        let (world, disks) = (self.world.clone(), self.disks);
        let estate = self.state.lock().unwrap().estate.clone();
        let mended = Mended { sim, world, shape, disks, estate, rng };
        mended.run().map_err(|what| format!("at the end: {what}"))
    }

    /// A random life.
    fn life(
        &self,
        options: ImportOptions,
        habits: Habits,
        is_last: bool,
        rng: &mut Rng,
    ) -> Life<'a> {
        let mut life = Life {
            world: self.world.clone(),
            options,
            clients: if is_last { 0 } else { 1 + rng.below(6) },
            calls: 5 + rng.below(80),
            acts: if is_last || rng.below(3) > 0 { 0 } else { 1 + rng.below(8) },
            scrubs: 0,
            read_errors_ppm: if is_last || rng.below(4) > 0 { 0 } else { 3000 },
            errs_at_import: rng.coin(),
            habits,
            seed: rng.next_u64(),
            exports: is_last || rng.below(6) == 0,
            disks: self.disks,
            found: self.found(is_last, rng),
            state: self.state,
        };
        // From a stream of its own: the other choices of a seed stay.
        let mut rng = Rng::stream(life.seed, "number of scrubs");
        if !is_last && rng.below(3) == 0 {
            life.scrubs = 1 + rng.below(8);
        }
        life
    }

    /// The disks as a life finds them: sometimes under each other's names.
    fn found(&self, is_last: bool, rng: &mut Rng) -> Vec<NamedDisk> {
        let mut found = match is_last {
            true => named(self.disks),
            false => self.troubles.found(self.disks, rng),
        };
        if rng.below(4) == 0 {
            let mut paths: Vec<String> = found.iter().map(|of| of.path.clone()).collect();
            paths.rotate_left(rng.index(self.disks.len()));
            found.iter_mut().zip(paths).for_each(|(of, path)| of.path = path);
        }
        found
    }
}

fn habits(rng: &mut Rng, turn: usize) -> Habits {
    Habits {
        names: 3 + rng.below(30),
        directories: 1 + rng.index(4),
        files: 1 + rng.index(6),
        cells: 16 * (2 + rng.below(30)),
        turn,
    }
}

/// Whether an import reported a read error.
fn is_read_error(what: &str) -> bool {
    what == "no pool found" || what.starts_with("import: ")
}

fn options(rng: &mut Rng, is_last: bool) -> ImportOptions {
    let mut options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
    if rng.below(8) == 0 {
        options.scale = Scale::REAL;
    }
    if rng.below(4) == 0 {
        options.memory = Memory::new(64 << 20);
    }
    if !is_last && rng.below(12) == 0 {
        options.rewind = 1 + rng.below(2);
    }
    // It loses nothing as long as the log is whole.
    options.discard_log = rng.below(12) == 0;
    options
}
