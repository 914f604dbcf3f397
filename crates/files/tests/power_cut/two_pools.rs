//! Two pools of one name in one machine: a mirror and a single disk. The power goes for both at
//! once, their disks come back under each other's names, and all disks of one may vanish. A side of
//! the mirror may become a third pool while the first one is out of service. A power cut may
//! interrupt that, too.
//!
//! These rules must hold. Each pool finds its own disks and all changes that it acknowledged,
//! whatever happens to the others. A handle of one pool is stale to the others. A pool on a disk
//! that another pool had is empty, and the disk has no part in that other pool any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_checker::bed::{created_by, is_loss_at_import, named};
use aquifer_files::{Credentials, FileHandle, FsError, Service, Stability};
use aquifer_ondisk::Guid;
use aquifer_pool::create::{NamedDisk, create};
use aquifer_pool::import::{FoundLeaf, ImportOptions, scan};
use aquifer_sim::{
    CutPlan, Fault, FaultRule, Image, Rng, Sim, SimConfig, SimDisk, Stop, Vanish, When,
};
use futures_util::future::join_all;

use crate::workload::Shared;
use crate::{CLIENTS, Shape, checked, directory, disks_of, furnish, inspected, story};

/// Disks of the mirror and of the single-disk pool.
const DISKS: [&[usize]; 2] = [&[0, 1], &[2]];
/// The disk that may leave the mirror.
const GIVEN_AWAY: usize = 1;

/// The present state of the third pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Third {
    No,
    /// Its creation was interrupted.
    Perhaps,
    Made(Guid),
    /// It exists, and clients use it.
    Furnished(Guid),
}

/// The known state of the pools.
struct World3 {
    world: Arc<dyn World>,
    disks: Vec<SimDisk>,
    guids: [Guid; 2],
    third: Third,
    clients: [Vec<Shared>; 3],
}

#[derive(Default, Debug)]
pub struct Run {
    cuts: u64,
    given_away: u64,
    vanished: u64,
    pub trace: u64,
}

/// The parameters of a life, drawn from the seed.
struct Life {
    seed: u64,
    ops: u64,
    found: Vec<NamedDisk>,
    /// The pool whose disks vanish.
    loser: Option<usize>,
}

type Pools = BTreeMap<Guid, Vec<FoundLeaf>>;

impl World3 {
    /// The pools that should be there, with the leaves found of each.
    fn sort(&mut self, mut found: Pools) -> Result<Vec<(usize, Vec<FoundLeaf>)>, String> {
        let mut pools = Vec::new();
        for (at, guid) in self.guids.iter().enumerate() {
            let leaves = found.remove(guid).ok_or_else(|| format!("pool {at} is gone"))?;
            pools.push((at, leaves));
        }
        let has_left = matches!(self.third, Third::Made(_) | Third::Furnished(_));
        if has_left && pools[0].1.len() != 1 {
            return Err("a disk that was given away is found of its old pool".into());
        }
        match (self.third, found.pop_first()) {
            (Third::Made(guid) | Third::Furnished(guid), Some((is, leaves))) if guid == is => {
                pools.push((2, leaves));
            }
            (Third::Perhaps, Some((_, leaves))) => pools.push((2, leaves)),
            (Third::No | Third::Perhaps, None) => {}
            (third, other) => {
                let other = other.map(|(guid, _)| guid);
                return Err(format!("the third pool is {third:?}, found is {other:?}"));
            }
        }
        Ok(pools)
    }

    async fn live(&mut self, life: Life) -> Result<(), String> {
        let found = self.sort(scan(life.found.clone()).await.0)?;
        let mut pools = Vec::new();
        for (at, leaves) in found {
            let guid = leaves[0].labels.label.config.pool_guid;
            let options = ImportOptions::default();
            match Service::open(self.world.clone(), leaves, &options).await {
                Ok(service) => {
                    if at == 2 && !matches!(self.third, Third::Furnished(_)) {
                        self.third = Third::Made(guid);
                        is_new(&service).await?;
                    }
                    pools.push((at, service));
                }
                // Its creation was not finished.
                Err(_) if at == 2 && self.third == Third::Perhaps => {}
                Err(error) => {
                    let what = format!("import: {error}");
                    if life.loser != Some(at) || !is_loss_at_import(&what) {
                        return Err(format!("pool {at}: {what}"));
                    }
                }
            }
        }
        if let (Third::Made(guid), Some((_, service))) =
            (self.third, pools.iter().find(|(at, _)| *at == 2))
        {
            furnish(service).await?;
            self.third = Third::Furnished(guid);
        }
        foreign_handles(&pools, life.loser).await?;
        let losing = |at: usize| life.loser == Some(at);
        let mut clients = Vec::new();
        for (at, service) in &pools {
            let known = checked(service, &self.world, &self.clients[*at], life.seed).await;
            let known = match known {
                Err(_) if losing(*at) => continue,
                known => known.map_err(|why| format!("pool {at}: {why}"))?,
            };
            for (mut client, carried_out) in known {
                let (at, ops) = (*at, life.ops);
                clients.push(async move {
                    let done = async {
                        client.after_restart(carried_out).await?;
                        client.run(ops).await
                    };
                    done.await.map_err(|why| format!("pool {at}: {why}"))
                });
            }
        }
        if let Some(loser) = life.loser {
            let of_another = |disk: &&usize| self.third != Third::No && **disk == GIVEN_AWAY;
            for disk in DISKS[loser].iter().filter(|disk| !of_another(disk)) {
                let when = When::OnceAfter(life.seed % 300);
                let rule = FaultRule::new(Fault::Vanish(Vanish::PowerLost), when);
                self.disks[*disk].inject(rule);
            }
        }
        let lost = life.loser.map(|at| format!("pool {at}: "));
        for done in join_all(clients).await {
            match (done, &lost) {
                (Err(why), Some(lost)) if why.starts_with(lost.as_str()) => {}
                (done, _) => done?,
            }
        }
        Ok(())
    }
}

/// A new pool is empty, whatever its disk held.
async fn is_new(service: &Service) -> Result<(), String> {
    let ours = ["tank", "tank/vms", "tank/raw"];
    let other = service.datasets.list().into_iter().find(|of| !ours.contains(&of.name.as_str()));
    if let Some(other) = other {
        return Err(format!("a new pool has {}", other.name));
    }
    match service.report.log_batches {
        0 => Ok(()),
        // Its own batches, if a power cut ended an earlier life.
        _ if service.datasets.by_name("tank/vms").is_some() => Ok(()),
        count => Err(format!("a new pool has {count} batches to replay")),
    }
}

/// A handle of one pool is stale to the others.
async fn foreign_handles(pools: &[(usize, Service)], loser: Option<usize>) -> Result<(), String> {
    let cred = Credentials::root();
    for (of, service) in pools.iter().filter(|(of, _)| loser != Some(*of)) {
        let mut handles: Vec<FileHandle> = Vec::new();
        for client in 0..CLIENTS {
            let directory = directory(service, client).await?;
            let root = service.files.root(crate::dataset(client)).ok_or("dataset is gone")?;
            handles.extend([root, directory]);
            let listed = service.files.readdir(&cred, directory, 2, 8, false).await;
            let (entries, ..) = listed.map_err(|error| format!("readdir: {error}"))?;
            handles.extend(entries.iter().map(|entry| entry.handle));
        }
        for (to, other) in pools.iter().filter(|(to, _)| to != of) {
            for handle in &handles {
                let seen = other.files.getattr(*handle).await.map(drop);
                let found = other.files.lookup(&cred, *handle, b"c0").await.0.map(drop);
                let data = [7; 4096];
                let stable = Stability::FileSync;
                let written = other.files.write(&cred, *handle, 0, &data, stable).await.0.map(drop);
                let answers = [seen, found, written];
                if answers != [const { Err(FsError::Stale) }; 3] {
                    return Err(format!("{handle:?} of pool {of} to {to}: {answers:?}"));
                }
            }
        }
    }
    Ok(())
}

pub fn run_seed(seed: u64, bases: &[Vec<Image>; 2]) -> Result<Run, String> {
    let mut rng = Rng::stream(seed, "two pools");
    let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
    let mut sim = Sim::with_config(seed, config);
    let disks = disks_of(&mut sim, &bases.concat());
    let guids = sim.run_until(async {
        let (pools, _) = scan(named(&disks)).await;
        let first = |leaves: &[FoundLeaf]| leaves[0].disk.path.clone();
        let mut guids: Vec<_> = pools.iter().map(|(guid, of)| (first(of), *guid)).collect();
        guids.sort();
        [guids[0].1, guids[1].1]
    });
    let mut machine = World3 {
        world: Arc::new(sim.world()),
        disks: disks.clone(),
        guids: guids.map_err(|stop| stop.to_string())?,
        third: Third::No,
        clients: [(); 3].map(|()| (0..CLIENTS).map(|_| Shared::default()).collect()),
    };
    let mut run = Run::default();
    let tell = |sim: &Sim, what: String| format!("seed {seed}: {what}\n{}", sim.story());
    let lives = 2 + rng.below(5);
    let mut mirror_is_whole = true;
    for at in 0..=lives {
        let is_last = at == lives;
        // If a side of a mirror was away, the newest data may lie on the other side alone, for
        // good. That side must not be given away.
        let may_go = mirror_is_whole && matches!(machine.third, Third::No | Third::Perhaps);
        if !is_last && may_go && rng.below(4) == 0 {
            give_away(&mut sim, &mut machine, &mut rng).map_err(|what| tell(&sim, what))?;
            run.given_away += 1;
            run.cuts += 1;
        }
        if !is_last {
            let event = if rng.below(4) == 0 { rng.below(200) } else { rng.below(2500) };
            sim.plan_cut(CutPlan::AtEvent(event + 1));
        }
        let mut found = named(&disks);
        if rng.coin() {
            let mut paths: Vec<String> = found.iter().map(|of| of.path.clone()).collect();
            rng.shuffle(&mut paths);
            found.iter_mut().zip(paths).for_each(|(of, path)| of.path = path);
        }
        rng.shuffle(&mut found);
        let loser = (!is_last && rng.below(4) == 0).then(|| rng.index(2));
        mirror_is_whole &= loser != Some(0);
        run.vanished += u64::from(loser.is_some());
        let ops = if is_last { 0 } else { 5 + rng.below(50) };
        let life = Life { seed: rng.next_u64(), ops, found, loser };
        match sim.run_until(machine.live(life)) {
            Ok(Ok(())) | Err(Stop::Halted) => {}
            Ok(Err(what)) => return Err(tell(&sim, what)),
            Err(stop) => return Err(tell(&sim, stop.to_string())),
        }
        run.cuts += 1;
        cut(&mut sim, &disks, &mut rng);
        let (data, rewind) = (rng.below(8) == 0, rng.below(3) as u8);
        // A disk that is being given away belongs to no pool; or it does still, and then the other
        // may have fallen behind it, and may have been marked for a resilver.
        let whole = match (machine.third == Third::No, mirror_is_whole) {
            (true, _) => Some(&disks[..2]),
            (false, true) => Some(&disks[..1]),
            (false, false) => None,
        };
        for of in whole.into_iter().chain([&disks[2..]]) {
            match sim.run_until(inspected(of, data, rewind)) {
                Ok(Ok(())) => {}
                Ok(Err(what)) => return Err(tell(&sim, what)),
                Err(stop) => return Err(tell(&sim, stop.to_string())),
            }
        }
    }
    run.trace = sim.trace_hash();
    Ok(run)
}

fn cut(sim: &mut Sim, disks: &[SimDisk], rng: &mut Rng) {
    if rng.below(4) == 0 {
        sim.kill();
    } else {
        sim.power_cut_any();
    }
    for disk in disks {
        disk.clear_faults();
        disk.come_back();
    }
}

/// Makes a side of the mirror a pool of its own, or tries to.
fn give_away(sim: &mut Sim, machine: &mut World3, rng: &mut Rng) -> Result<(), String> {
    if rng.coin() {
        sim.plan_cut(CutPlan::AtEvent(1 + rng.below(60)));
    }
    let mut spec = Shape::Single.spec(named(&machine.disks[GIVEN_AWAY..=GIVEN_AWAY]));
    spec.force = true;
    machine.third = Third::Perhaps;
    match sim.run_until(create(machine.world.clone(), spec)) {
        Ok(Ok(config)) => machine.third = Third::Made(config.pool_guid),
        Err(Stop::Halted) => {}
        Ok(Err(error)) => return Err(format!("making the third pool: {error}")),
        Err(stop) => return Err(stop.to_string()),
    }
    cut(sim, &machine.disks, rng);
    Ok(())
}

pub fn bases() -> [Vec<Image>; 2] {
    let base = |seed, shape| created_by(seed, shape, async |of| furnish(of).await.unwrap());
    [base(u64::MAX - 21, Shape::Mirror), base(u64::MAX - 22, Shape::Single)]
}

#[test]
fn what_becomes_of_one_pool_is_nothing_to_the_other() {
    let bases = bases();
    let mut all = Run::default();
    for seed in crate::seeds(60) {
        let run = run_seed(seed, &bases).unwrap_or_else(|what| panic!("{what}"));
        all.cuts += run.cuts;
        all.given_away += run.given_away;
        all.vanished += run.vanished;
    }
    println!("{} cuts, {all:?}", all.cuts);
}
