//! Quotas and reservations on pools that are nearly full. Clients write more than there is room for
//! and remove files. Administrators, two at a time, change the limits.
//!
//! These rules must hold, also after a power cut. A limit that was set is there; one that was being
//! set is the old or the new one. A write that is answered fits the quotas in force. A write that a
//! reservation covers never fails for want of space, whatever others have written: no room is
//! promised twice.
//!
//! Every page is new and incompressible, and no page is overwritten. So the model knows the bytes
//! that a dataset takes: see [`ledger`].

mod ledger;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_dataset::{DatasetError, Property};
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{Image, Rng, SimDisk};
use futures_util::future::{Either, join_all, select, try_join};

use crate::machine::Machine;
use crate::{Shape, created, fill, open, story};
use ledger::{Answer, Ledger, Met, NAMES, Page};

/// The room that clients find at first.
const ROOM_BYTES: u64 = 8 << 20;
const PAGE: usize = 4096;

type Shared = Arc<Mutex<Ledger>>;

#[derive(Debug, Default)]
pub struct Run {
    cuts: u64,
    met: Met,
    pub trace: u64,
}

fn tell(what: &str) {
    if story() > 0 {
        println!("reserved: {what}");
    }
}

/// Content of which no two pages are equal and nothing compresses.
fn content(file: u64, page: usize) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    Rng::stream(file << 20 | page as u64, "content").fill(&mut bytes);
    bytes
}

/// A client that writes to one dataset, one call after the other.
struct Writer {
    service: Service,
    ledger: Shared,
    of: usize,
    top: FileHandle,
    rng: Rng,
}

impl Writer {
    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    async fn run(mut self, calls: u64) -> Result<(), String> {
        for _ in 0..calls {
            let done = match self.rng.below(20) {
                0..=1 => self.remove().await,
                2 => self.service.pool.sync().await.map(drop).map_err(|error| error.to_string()),
                3 => {
                    self.service.pool.request_txg();
                    Ok(())
                }
                _ => self.write().await.map(drop),
            };
            done.map_err(|why| format!("{}: {why}", NAMES[self.of]))?;
        }
        Ok(())
    }

    async fn handle(&mut self) -> Result<Option<(u64, FileHandle)>, String> {
        let files: Vec<u64> = self.ledger().accounts[self.of].files.keys().copied().collect();
        let (number, is_new) = match self.rng.pick(&files) {
            Some(number) if self.rng.below(4) > 0 => (*number, false),
            _ => (self.next_file(), true),
        };
        let (files, cred) = (self.service.files.clone(), Credentials::root());
        let name = number.to_string();
        let found = match is_new {
            false => files.lookup(&cred, self.top, name.as_bytes()).await.0,
            true => {
                let how = CreateHow::Guarded(SetAttributes::default());
                files.create(&cred, self.top, name.as_bytes(), how).await.kept().await.0
            }
        };
        match found {
            Ok(found) => {
                self.ledger().accounts[self.of].files.entry(number).or_default();
                Ok(Some((number, found.handle)))
            }
            Err(FsError::NoSpace | FsError::Quota) if is_new => Ok(None),
            Err(error) => Err(format!("file {number}: {error}")),
        }
    }

    fn next_file(&self) -> u64 {
        let mut ledger = self.ledger();
        ledger.next_file += 1;
        ledger.next_file
    }

    /// Adds new pages to a file. Returns whether there was room.
    async fn write(&mut self) -> Result<bool, String> {
        let Some((number, file)) = self.handle().await? else { return Ok(false) };
        let most = if self.rng.coin() { 4 } else { 64 };
        let pages = 1 + self.rng.index(most);
        let asked = if self.rng.coin() { Stability::FileSync } else { Stability::Unstable };
        let (question, first) = {
            let mut ledger = self.ledger();
            let first = ledger.accounts[self.of].files[&number].len();
            (ledger.ask(self.of, (pages * PAGE) as u64), first)
        };
        let data: Vec<u8> = (first..first + pages).flat_map(|at| content(number, at)).collect();
        let (files, cred) = (self.service.files.clone(), Credentials::root());
        tell(&format!("{}: file {number} pages {first}+{pages} {asked:?}", NAMES[self.of]));
        let done = files.write(&cred, file, (first * PAGE) as u64, &data, asked).await.0;
        tell(&format!("{}: {done:?}", NAMES[self.of]));
        let answer = match done {
            Ok(_) => Answer::Written,
            Err(FsError::NoSpace) => Answer::NoSpace,
            Err(FsError::Quota) => Answer::OverQuota,
            Err(error) => return Err(format!("write: {error}")),
        };
        let mut ledger = self.ledger();
        ledger.answer(&question, answer)?;
        if answer == Answer::Written {
            let is = if asked == Stability::FileSync { Page::Stable } else { Page::Unstable };
            let file = ledger.accounts[self.of].files.get_mut(&number).unwrap();
            file.resize(first + pages, is);
        }
        Ok(answer == Answer::Written)
    }

    async fn remove(&mut self) -> Result<(), String> {
        let files: Vec<u64> = self.ledger().accounts[self.of].files.keys().copied().collect();
        let Some(number) = self.rng.pick(&files).copied() else { return Ok(()) };
        self.ledger().remove(self.of, number);
        tell(&format!("{}: remove {number}", NAMES[self.of]));
        let (files, cred) = (self.service.files.clone(), Credentials::root());
        let removed =
            files.remove(&cred, self.top, number.to_string().as_bytes()).await.kept().await.0;
        removed.map_err(|error| format!("remove {number}: {error}"))?;
        self.ledger().accounts[self.of].going = None;
        Ok(())
    }

    /// Writes until there is no room.
    async fn exhaust(&mut self) -> Result<(), String> {
        let done = async {
            while self.write().await? {}
            Ok(())
        };
        done.await.map_err(|why: String| format!("{}: {why}", NAMES[self.of]))
    }
}

/// Sets the limits of two datasets, until the power goes.
async fn administrator(
    service: &Service,
    world: &Arc<dyn World>,
    ledger: &Shared,
    (mut rng, first): (Rng, usize),
) -> Result<(), String> {
    loop {
        world.sleep(Duration::from_micros(rng.below(8000))).await;
        let of = first + rng.index(2);
        let (property, sizes) = match rng.below(3) {
            0 => ("quota", ["none", "1M", "3M", "6M"]),
            _ => ("reservation", ["none", "2M", "3M", "5M"]),
        };
        let value = sizes[rng.index(sizes.len())];
        let bytes = match value {
            "none" if property == "quota" => u64::MAX,
            "none" => 0,
            megabytes => megabytes.trim_end_matches('M').parse::<u64>().unwrap() << 20,
        };
        limit(ledger, of, property, |limit| limit.begin(bytes));
        tell(&format!("{}: {property} {value}", NAMES[of]));
        let set = service.datasets.set(NAMES[of], property, Some(value)).await;
        tell(&format!("{}: {set:?}", NAMES[of]));
        let is_set = match set {
            Ok(()) => true,
            Err(DatasetError::BadProperty { .. }) => false,
            Err(error) => return Err(format!("{}: {property} {value}: {error}", NAMES[of])),
        };
        limit(ledger, of, property, |limit| limit.end(is_set));
        let met = &mut ledger.lock().unwrap().met;
        met.calls += 1;
        *(if is_set { &mut met.set } else { &mut met.refused }) += 1;
    }
}

fn limit(ledger: &Shared, of: usize, property: &str, change: impl FnOnce(&mut ledger::Limit)) {
    let account = &mut ledger.lock().unwrap().accounts[of];
    change(if property == "quota" { &mut account.quota } else { &mut account.reservation });
}

/// Compares the datasets after a restart with the ledger.
async fn check(service: &Service, ledger: &Shared) -> Result<(), String> {
    ledger.lock().unwrap().begin_life();
    for (of, name) in NAMES.iter().enumerate() {
        let dataset = service.datasets.by_name(name).ok_or_else(|| format!("{name} is gone"))?;
        let value = |property| service.datasets.value(&dataset, property).0.parse::<u64>().ok();
        let quota = value(Property::Quota).unwrap_or(u64::MAX);
        let reservation = value(Property::Reservation).unwrap_or(0);
        ledger.lock().unwrap().found(of, quota, reservation)?;
        let (mut known, going) = {
            let account = &mut ledger.lock().unwrap().accounts[of];
            (account.files.clone(), account.going.take())
        };
        let top = service.files.root(name).ok_or_else(|| format!("{name} has no root"))?;
        let mut found = crate::workload::snapshot(&service.files, top).await?;
        if let Some((file, pages)) = going
            && found.contains_key(&file.to_string())
        {
            known.insert(file, pages);
        }
        for (file, pages) in &mut known {
            let there = found.remove(&file.to_string());
            let (_, bytes) = there.ok_or_else(|| format!("{name}/{file} is gone"))?;
            settle(*file, pages, &bytes).map_err(|why| format!("{name}/{file}: {why}"))?;
        }
        // Files that were made without an answer.
        for (file, (_, bytes)) in found {
            let (file, mut pages) = (file.parse().unwrap(), Vec::new());
            settle(file, &mut pages, &bytes).map_err(|why| format!("{name}/{file}: {why}"))?;
            known.insert(file, pages);
        }
        ledger.lock().unwrap().accounts[of].files = known;
    }
    Ok(())
}

/// Compares a file's content with its known pages, and takes it over.
fn settle(file: u64, pages: &mut Vec<Page>, bytes: &[u8]) -> Result<(), String> {
    let stable = pages.iter().rposition(|page| *page == Page::Stable);
    if stable.is_some_and(|last| bytes.len() < (last + 1) * PAGE) {
        return Err(format!("{} bytes, and {} pages were stable", bytes.len(), pages.len()));
    }
    pages.resize(bytes.len() / PAGE, Page::Unstable);
    for ((at, known), is) in pages.iter_mut().enumerate().zip(bytes.chunks(PAGE)) {
        let is_there = is == content(file, at);
        if !is_there && (*known == Page::Stable || is.iter().any(|byte| *byte != 0)) {
            return Err(format!("page {at} does not hold what was written"));
        }
        *known = if is_there { Page::Stable } else { Page::Hole };
    }
    Ok(())
}

/// Waits until removed files are free.
async fn tidy(service: &Service, ledger: &Shared) -> Result<(), String> {
    for _ in 0..3 {
        service.pool.sync().await.map_err(|error| error.to_string())?;
    }
    for (of, name) in NAMES.iter().enumerate() {
        let dataset = service.datasets.by_name(name).ok_or("a dataset is gone")?;
        let mut ledger = ledger.lock().unwrap();
        let (refers, live) = (dataset.refer_bytes(), ledger.accounts[of].live());
        if refers < live {
            return Err(format!("{name}: {live} bytes are there, {refers} are counted"));
        }
        ledger.is_tidy(of, refers - live);
    }
    Ok(())
}

async fn life(
    world: Arc<dyn World>,
    disks: &[SimDisk],
    ledger: &Shared,
    (seed, calls): (u64, u64),
) -> Result<(), String> {
    let service = open(world.clone(), disks, &ImportOptions::default()).await?;
    check(&service, ledger).await?;
    let mut rng = Rng::stream(seed, "life");
    let writer = |of: usize, at: u64| {
        let top = service.files.root(NAMES[of]).ok_or("a dataset is gone")?;
        let rng = Rng::stream(seed, &format!("writer {of} {at}"));
        let (service, ledger) = (service.clone(), ledger.clone());
        Ok::<Writer, String>(Writer { service, ledger, of, top, rng })
    };
    if rng.coin() {
        tidy(&service, ledger).await?;
    }
    // Asks for the promised room, now and then at once.
    if calls == 0 || rng.below(4) == 0 {
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        for of in order {
            writer(of, 0)?.exhaust().await?;
        }
    }
    if calls == 0 {
        return Ok(());
    }
    let mut writers = Vec::new();
    for (of, at) in [(0, 0), (1, 0), (2, 0), (3, 0)] {
        writers.push(writer(of, at + 1)?.run(calls));
    }
    let work = join_all(writers);
    let rng = |at: usize| (Rng::stream(seed, &format!("administrator {at}")), 2 * at);
    let acts = try_join(
        administrator(&service, &world, ledger, rng(0)),
        administrator(&service, &world, ledger, rng(1)),
    );
    match select(std::pin::pin!(work), std::pin::pin!(acts)).await {
        Either::Left((done, _)) => done.into_iter().collect(),
        Either::Right((done, _)) => done.map(drop),
    }
}

pub fn run_seed(seed: u64, bases: &[(Shape, Vec<Image>)]) -> Result<Run, String> {
    let (mut machine, mut rng) = Machine::of("reserved", seed, bases);
    let ledger = Arc::new(Mutex::new(Ledger::new()));
    let mut run = Run::default();
    let lives = 2 + rng.below(3);
    for at in 0..=lives {
        let is_last = at == lives;
        if !is_last {
            machine.cut_within(&mut rng, 3000);
        }
        let work = (rng.next_u64(), if is_last { 0 } else { 10 + rng.below(80) });
        machine.run(async |world, disks| life(world, disks, &ledger, work).await)?;
        machine.go_down(&mut rng);
        run.cuts += 1;
        machine.inspect(rng.below(8) == 0, 0)?;
    }
    run.met = ledger.lock().unwrap().met;
    run.trace = machine.sim.trace_hash();
    Ok(run)
}

pub fn bases() -> Vec<(Shape, Vec<Image>)> {
    let base = |shape| {
        let images = created(shape, async |service| {
            let off = [("compression".to_string(), "off".to_string())];
            service.datasets.create("tank/raw", &off).await.unwrap();
            for name in NAMES {
                service.datasets.create(name, &off).await.unwrap();
            }
            fill(service, ROOM_BYTES).await;
        });
        (shape, images)
    };
    [Shape::Single, Shape::Mirror, Shape::SingleLog].into_iter().map(base).collect()
}

#[test]
fn what_is_promised_is_promised_to_one() {
    let bases = bases();
    let (mut cuts, mut all) = (0, Met::default());
    for seed in crate::seeds(25) {
        let run = run_seed(seed, &bases).unwrap_or_else(|what| panic!("{what}"));
        cuts += run.cuts;
        let met = run.met;
        all.calls += met.calls;
        all.set += met.set;
        all.refused += met.refused;
        all.over_quota += met.over_quota;
        all.no_space += met.no_space;
        all.kept += met.kept;
    }
    println!("{cuts} cuts, {all:?}");
    if cuts >= 80 {
        // Otherwise nothing was tried. With few cuts the numbers are up to chance.
        assert!(all.set > cuts && all.refused > 0 && all.kept > 0, "{all:?}");
    }
}

/// Each with the seeds within which the loss must show: some ten times what it took.
#[test]
#[ignore = "make sabotage"]
fn a_rule_left_out_is_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_sim::sabotage::must_be_found;
    let bases = bases();
    let rules = [(Rule::ReservationsAreKept, 0..40), (Rule::ActsOnDiskFirst, 0..20)];
    must_be_found(&rules, |seed| run_seed(seed, &bases).map(drop));
}
