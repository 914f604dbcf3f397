//! A tree that several clients share, with many calls under way at once, on an engine whose sizes
//! are small: txgs of 64 KiB, nodes of a few entries, tails from four extents on, a ring of records
//! that goes round. What they saw is held against each other, and against what is there after each
//! cut: see `aquifer_checker`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_blockio::buf::pages_of;
use aquifer_blockio::world::Task;
use aquifer_checker::client::Habits;
use aquifer_checker::content::{CELL_BYTES, bytes_of};
use aquifer_checker::op::Place;
use aquifer_checker::tree::MODE;
use aquifer_checker::{Client, Door, End, Op, Reply, Shared, Witness, restart};
use aquifer_dataset::DatasetError;
use aquifer_files::{
    Around, Attributes, CreateHow, Credentials, FsError, Service, SetAttributes, Stability, Time,
};
use aquifer_pool::Scale;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{
    Corruption, CutPlan, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, When,
};
use futures_util::future::{join, join_all};

use crate::{Shape, disks_of, inspected, is_loss_at_import, open, story, upset, with_datasets};

const DATASET: &str = "tank/shared";
const SCALE: Scale = Scale {
    txg_dirty_bytes_max: 64 << 10,
    arc_bytes_max: 256 << 10,
    cut_extents_max: 4,
    reap_entries_max: 12,
    node_bytes: 400,
    record_segment_sectors: 32,
};

/// Tells every moment apart: no time of its wall clock comes twice.
struct Ticking {
    world: Arc<dyn World>,
    last_ns: Arc<AtomicU64>,
}

impl World for Ticking {
    fn now(&self) -> Duration {
        self.world.now()
    }

    fn wall_ns(&self) -> u64 {
        let now = self.world.wall_ns();
        let last = self.last_ns.load(Ordering::Relaxed);
        let next = now.max(last + 1);
        self.last_ns.store(next, Ordering::Relaxed);
        next
    }

    fn sleep(&self, delay: Duration) -> Task {
        self.world.sleep(delay)
    }

    fn yield_now(&self) -> Task {
        self.world.yield_now()
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.world.spawn(name, task);
    }
}

/// Straight to the files.
struct FilesDoor {
    service: Service,
    cred: Credentials,
}

fn changed(
    around: &Around,
    attributes: Option<Attributes>,
    stability: Stability,
) -> Result<Reply, FsError> {
    let after = around.after.expect("a change that succeeded tells what is after it");
    Ok(Reply::Changed { ctime_ns: nanoseconds(after.ctime), attributes, stability })
}

fn nanoseconds(time: Time) -> u64 {
    u64::try_from(time.seconds).unwrap() * 1_000_000_000 + u64::from(time.nanoseconds)
}

fn tagged(tag: u32) -> SetAttributes {
    SetAttributes { uid: Some(tag), mode: Some(MODE), ..SetAttributes::default() }
}

fn at(place: &Place) -> (aquifer_files::FileHandle, &[u8]) {
    (place.directory.handle, place.name.as_bytes())
}

impl FilesDoor {
    async fn made(&self, made: (Result<Attributes, FsError>, Around)) -> Result<Reply, FsError> {
        let (made, around) = made;
        changed(&around, Some(made?), Stability::FileSync)
    }

    async fn write(&self, op: &Op) -> Result<Reply, FsError> {
        let Op::Write { file, cells, stability } = op else { unreachable!() };
        let (files, handle) = (&self.service.files, file.handle);
        let data = |c: &aquifer_checker::op::Cells| bytes_of(c.first, c.count, c.cell);
        if let [cells] = cells.as_slice() {
            let offset = cells.first * CELL_BYTES;
            let (written, around) =
                files.write(&self.cred, handle, offset, &data(cells), *stability).await;
            return changed(&around, around.after, written?);
        }
        let pieces: Vec<_> =
            cells.iter().map(|c| (c.first * CELL_BYTES, pages_of(&data(c)))).collect();
        let pieces: Vec<_> = pieces.iter().map(|(at, pages)| (*at, &pages[..])).collect();
        match files.write_together(&self.cred, handle, &pieces, *stability).await {
            Some(made) => {
                files.keep_together(&made).await.map_err(|(error, _)| error)?;
                changed(made.arounds.last().unwrap(), None, made.stability())
            }
            // Nothing was changed; one of them would have to be carried out by itself.
            None => Err(FsError::NotSupported),
        }
    }

    async fn list(
        &self,
        directory: aquifer_files::FileHandle,
        limit: usize,
    ) -> Result<Reply, FsError> {
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            let files = &self.service.files;
            let (entries, eof, _) =
                files.readdir(&self.cred, directory, cookie, limit, true).await?;
            for entry in entries {
                cookie = entry.cookie;
                if cookie > 2 {
                    listed.push((String::from_utf8(entry.name).unwrap(), entry.attributes));
                }
            }
            if eof {
                return Ok(Reply::Listed(listed));
            }
        }
    }
}

impl Door for FilesDoor {
    async fn call(&self, op: &Op) -> Result<Reply, FsError> {
        let (files, cred) = (&self.service.files, &self.cred);
        let plain = |(done, around): (Result<(), FsError>, Around)| {
            done.and_then(|()| changed(&around, None, Stability::FileSync))
        };
        match op {
            Op::Create(place, tag) => {
                let ((dir, name), how) = (at(place), CreateHow::Guarded(tagged(*tag)));
                self.made(files.create(cred, dir, name, how).await).await
            }
            Op::Mkdir(place, tag) => {
                let (dir, name) = at(place);
                self.made(files.mkdir(cred, dir, name, &tagged(*tag)).await).await
            }
            Op::Symlink(place, tag) => {
                let ((dir, name), text) = (at(place), tag.to_string());
                let made = files.symlink(cred, dir, name, text.as_bytes(), &tagged(*tag)).await;
                self.made(made).await
            }
            Op::Remove(place) => {
                let (dir, name) = at(place);
                plain(files.remove(cred, dir, name).await)
            }
            Op::Rmdir(place) => {
                let (dir, name) = at(place);
                plain(files.rmdir(cred, dir, name).await)
            }
            Op::Rename(from, to) => {
                let (renamed, around, _) = files.rename(cred, at(from), at(to)).await;
                renamed?;
                let before = around.before.unwrap().ctime;
                match before == around.after.unwrap().ctime {
                    true => Ok(Reply::Nothing),
                    false => changed(&around, None, Stability::FileSync),
                }
            }
            Op::Link(node, place) => {
                let (dir, name) = at(place);
                let (linked, _, around) = files.link(cred, node.handle, dir, name).await;
                linked.and_then(|_| changed(&around, None, Stability::FileSync))
            }
            Op::Set { file, size, mode } => {
                let set = SetAttributes { size: *size, mode: *mode, ..SetAttributes::default() };
                let (set, around) = files.setattr(cred, file.handle, &set, None).await;
                set.and_then(|()| changed(&around, around.after, Stability::FileSync))
            }
            Op::Write { .. } => self.write(op).await,
            Op::Commit { file, offset, count } => {
                files.commit(cred, file.handle, *offset, *count).await.0?;
                Ok(Reply::Committed)
            }
            Op::Read { file, first, count } => {
                let (offset, count) = (first * CELL_BYTES, (count * CELL_BYTES) as u32);
                let read = files.read(cred, file.handle, offset, count).await?;
                let (eof, mut bytes) = (read.eof, Vec::new());
                for (page, range) in read.into_pieces() {
                    bytes.extend_from_slice(&page[range]);
                }
                Ok(Reply::Read(bytes, eof))
            }
            Op::Getattr(node) => Ok(Reply::Attributes(files.getattr(node.handle).await?)),
            Op::Readlink(node) => Ok(Reply::Text(files.readlink(cred, node.handle).await?.0)),
            Op::Lookup(place) => {
                let (dir, name) = at(place);
                Ok(Reply::Attributes(files.lookup(cred, dir, name).await.0?))
            }
            Op::List(directory, limit) => self.list(directory.handle, *limit).await,
        }
    }

    fn nudge(&self) {
        self.service.pool.request_txg();
    }

    async fn pause(&self, microseconds: u64) {
        self.service.pool.world().sleep(Duration::from_micros(microseconds)).await;
    }
}

/// An administrator: datasets come and go beside the one that is shared, and that is `sync=always`
/// now and then.
async fn administer(service: Service, mut rng: Rng, acts: u64) -> Result<(), String> {
    for _ in 0..acts {
        let name = format!("tank/other{}", rng.below(3));
        let done = match rng.below(4) {
            0 => {
                let sync = if rng.coin() { "always" } else { "standard" };
                service.datasets.set(DATASET, "sync", Some(sync)).await
            }
            1 => match service.datasets.destroy(&name, true).await {
                Err(DatasetError::NotFound(_)) => Ok(()),
                done => done,
            },
            _ => match service.datasets.create(&name, &[]).await {
                Err(DatasetError::Exists(_)) => Ok(()),
                done => done,
            },
        };
        done.map_err(|error| format!("administrator: {error}"))?;
        if let Some(top) = service.files.root(&name) {
            populate(&service, top, &mut rng).await?;
        }
    }
    Ok(())
}

/// Some files, so that there is something to be freed.
async fn populate(
    service: &Service,
    top: aquifer_files::FileHandle,
    rng: &mut Rng,
) -> Result<(), String> {
    let cred = Credentials::root();
    for _ in 0..rng.below(6) {
        let name = format!("f{}", rng.below(1000));
        let how = CreateHow::Unchecked(SetAttributes::default());
        let made = service.files.create(&cred, top, name.as_bytes(), how).await.0;
        let made = made.map_err(|error| format!("administrator: {name}: {error}"))?;
        let mut data = vec![0; 4096 * (1 + rng.index(12))];
        rng.fill(&mut data);
        let stability = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
        let written = service.files.write(&cred, made.handle, 0, &data, stability).await.0;
        written.map_err(|error| format!("administrator: {name}: {error}"))?;
    }
    Ok(())
}

/// What one life is to be like.
struct Life {
    options: ImportOptions,
    /// What an administrator does meanwhile.
    acts: u64,
    /// Of a million reads so many fail, and succeed when they are tried again.
    read_errors_ppm: u32,
    clients: u64,
    calls: u64,
    habits: Habits,
    seed: u64,
    exports: bool,
}

/// How the life before ended, as far as nobody has looked since; and who has seen what.
struct State {
    end: End,
    shared: Option<Shared>,
}

async fn live(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    life: &Life,
    state: &std::sync::Mutex<State>,
) -> Result<(), String> {
    if life.options.rewind > 0 {
        // Also if the import is cut off: it may have gone back by then.
        state.lock().unwrap().end = End::Rewind;
    }
    let service = open(world, disks, &life.options).await?;
    let door = || FilesDoor { service: service.clone(), cred: Credentials::root() };
    let (shared, end) = {
        let mut state = state.lock().unwrap();
        let root = service.files.root(DATASET).ok_or("no dataset")?;
        (state.shared.get_or_insert_with(|| Witness::new(root)).clone(), state.end)
    };
    restart::check(&door(), &shared, end).await?;
    state.lock().unwrap().end = End::Crash;
    if life.read_errors_ppm > 0 {
        let rule = FaultRule::new(Fault::ReadError, When::Ppm(life.read_errors_ppm));
        disks.iter().for_each(|disk| disk.inject(rule.clone()));
    }
    let administrator =
        administer(service.clone(), Rng::stream(life.seed, "administrator"), life.acts);
    let clients = (0..life.clients).map(|at| {
        let client = Client {
            door: door(),
            shared: shared.clone(),
            habits: life.habits,
            rng: Rng::stream(life.seed, &format!("shared {at}")),
            tells: std::env::var("AQUIFER_SEED").is_ok(),
        };
        client.run(life.calls)
    });
    let (done, administered) = join(join_all(clients), administrator).await;
    done.into_iter().chain([administered]).collect::<Result<Vec<()>, String>>()?;
    disks.iter().for_each(SimDisk::clear_faults);
    if life.exports {
        service.pool.export().await.map_err(|error| error.to_string())?;
        state.lock().unwrap().end = End::Export;
    }
    Ok(())
}

/// Some sectors of the first side of each mirror become garbage.
fn rot(disks: &[SimDisk], rng: &mut Rng) {
    for disk in disks.iter().step_by(2) {
        let mut used = Vec::new();
        disk.durable_image().for_each(|sector, _| used.push(sector));
        for _ in 0..rng.below(6) {
            if let Some(sector) = rng.pick(&used) {
                disk.corrupt(*sector, Corruption::Garbage);
            }
        }
    }
}

/// What a seed has shown.
#[derive(Default)]
pub struct Run {
    pub cuts: u64,
    pub calls: u64,
    pub trace: u64,
}

const SHAPES: [Shape; 5] =
    [Shape::Single, Shape::Mirror, Shape::TwoSingles, Shape::SingleLog, Shape::MirrorLogMirror];

/// Pools of different shapes.
pub fn bases() -> Vec<(Shape, Vec<Image>)> {
    SHAPES.map(|shape| (shape, with_datasets(&crate::base(shape), &[DATASET]))).into()
}

pub fn run_seed(seed: u64, bases: &[(Shape, Vec<Image>)]) -> Result<Run, String> {
    let mut rng = Rng::stream(seed, "shared");
    let (shape, images) = &bases[rng.index(bases.len())];
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let disks = disks_of(&mut sim, images);
    let last_ns = Arc::new(AtomicU64::new(0));
    let world: Arc<dyn World> = Arc::new(Ticking { world: Arc::new(sim.world()), last_ns });
    let fickle = shape.fickle(&mut rng).filter(|_| rng.coin()).map(|at| disks[at].clone());
    let rots = shape.is_mirror() && fickle.is_none() && rng.coin();
    let state = std::sync::Mutex::new(State { end: End::Export, shared: None });
    let tell = |sim: &Sim, what: String| format!("seed {seed} {shape:?}: {what}\n{}", sim.story());
    let habits = Habits {
        names: 3 + rng.below(30),
        directories: 1 + rng.index(4),
        files: 1 + rng.index(6),
        cells: 16 * (2 + rng.below(30)),
    };
    let mut run = Run::default();
    let lives = 2 + rng.below(5);
    for at in 0..=lives {
        let is_last = at == lives;
        let mut options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
        if rng.below(8) == 0 {
            options.scale = Scale::REAL;
        }
        if rng.below(4) == 0 {
            options.memory_cap_bytes = 64 << 20;
        }
        if !is_last && rng.below(12) == 0 {
            options.rewind = 1 + rng.below(2);
        }
        let life = Life {
            options,
            acts: if is_last || rng.below(3) > 0 { 0 } else { 1 + rng.below(8) },
            read_errors_ppm: if is_last || rng.below(4) > 0 { 0 } else { 3000 },
            clients: if is_last { 0 } else { 1 + rng.below(6) },
            calls: 5 + rng.below(80),
            habits,
            seed: rng.next_u64(),
            exports: is_last || rng.below(6) == 0,
        };
        let event = if rng.below(4) == 0 { rng.below(150) } else { rng.below(12_000) };
        match is_last {
            true => fickle.iter().for_each(SimDisk::clear_faults),
            false => {
                sim.plan_cut(CutPlan::AtEvent(event + 1));
                fickle.iter().for_each(|disk| upset(disk, &mut rng));
            }
        }
        let end = sim.run_until(live(world.clone(), &disks, &life, &state));
        match end {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            Ok(Err(what)) if fickle.is_some() && is_loss_at_import(&what) && !is_last => {}
            Ok(Err(what)) if life.options.rewind > 0 && what.contains("cannot go back") => {}
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
        if let Some(disk) = &fickle {
            if *shape == Shape::SingleLog {
                disk.come_back();
            }
        }
        if rots {
            // What lies on one side goes bad; the other has it.
            rot(&disks, &mut rng);
            continue;
        }
        match sim.run_until(inspected(&disks, rng.below(8) == 0, rng.below(3) as u8)) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => return Err(tell(&sim, what)),
            Err(stop) => return Err(tell(&sim, stop.to_string())),
        }
    }
    run.trace = sim.trace_hash();
    Ok(run)
}

#[cfg(not(sabotage))]
#[test]
fn clients_of_one_tree_see_one_history() {
    let bases = bases();
    let (mut cuts, mut calls) = (0, 0);
    for seed in aquifer_sim::seeds::seeds(200) {
        match run_seed(seed, &bases) {
            Ok(run) => (cuts, calls) = (cuts + run.cuts, calls + run.calls),
            Err(what) => panic!("{what}"),
        }
    }
    println!("{cuts} cuts, {calls} calls");
}

/// Each with the seeds within which it must show: some ten times what it took.
#[cfg(sabotage)]
#[test]
fn a_rule_left_out_is_found() {
    use aquifer_blockio::sabotage::Rule;
    let _alone = crate::alone();
    let bases = bases();
    for (rule, seeds) in
        [(Rule::FreshGenerations, 40), (Rule::ReplayRaisesIds, 60), (Rule::HoldBackFrees, 40)]
    {
        crate::must_be_found(rule, seeds, |seed| run_seed(seed, &bases).map(drop));
    }
}
