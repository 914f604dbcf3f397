//! `kill -9` of the daemon, over and over, while clients keep a ledger of its acknowledgements: the
//! power-cut simulator's test, made with the real program.
//!
//! Invariants: after each start every unit of every file and every name is verified, before and
//! while the next kill comes. Kills fall at moments drawn from a seed (`AQUIFER_SEED`, else the
//! clock): also in the import and the replay, and while the clients verify. The same seed gives the
//! same moments, but the daemon may be doing something else at them. A failure prints seed and
//! story, and keeps the disks.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use aquifer_conformance::{Error, Result};
use aquifer_rig::netns;
use aquifer_rig::process::{Invocation, Outcome};
use aquifer_rig::random::Random;
use aquifer_rig::wire::Connection;

use crate::administrator::Administrator;
use crate::diary::Clock;
use crate::namer::{self, Namer};
use crate::place::{Aquifer, SOON, Setup, is_long, text};
use crate::writer::{Plan, Tally, Writer};

/// Pools whose server is killed. On a pool with a spare disk an administrator changes the log.
const POOLS: [(&str, Setup); 5] = [
    ("one disk", Setup { sides: 1, ..SMALL }),
    ("mirror", SMALL),
    ("mirror, log", Setup { log_sides: 1, ..SMALL }),
    ("mirror, log mirror", Setup { log_sides: 2, ..SMALL }),
    ("mirror, log mirror that changes", Setup { log_sides: 2, spares: 1, ..SMALL }),
];

/// Little memory, so that txgs close in the middle of operations.
const SMALL: Setup = Setup { memory: "96M", disk_bytes: 1 << 30, ..Setup::DEFAULT };

#[test]
fn client_finds_all_that_was_acknowledged_after_each_of_many_kills() -> Result<()> {
    let mut random = Random::new(seed());
    let kills = std::env::var("AQUIFER_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = kills.unwrap_or(if is_long() { 75 } else { 2 });
    let (mut killed, mut all, mut names) = (0, Tally::default(), namer::Tally::default());
    for (pool, setup) in POOLS {
        let mut run = KillLoop::start(pool, setup, random.next_u64())?;
        while run.kills < kills {
            if let Err(error) = run.life() {
                panic!("{error}\nseed {}, {pool}:\n{}", seed(), run.story);
            }
        }
        let acts = run.administrator.as_ref().map(|administrator| administrator.acts);
        let (kills, tally, named) = run.finish()?;
        killed += kills;
        all.add(tally);
        names.add(named);
        eprintln!("{pool}: {kills} kills, {}\n  {named:?}", told(tally));
        eprint!(
            "{}",
            acts.map(|acts| format!("  the administrator: {acts:?}\n")).unwrap_or_default()
        );
    }
    eprintln!("in all: {killed} kills, 0 lost, {} (seed {})\n  {names:?}", told(all), seed());
    assert!(all.stable > 0 && all.committed > 0 && all.verified > 0, "{all:?}");
    assert!(names.made > 0 && names.moved > 0 && names.removed > 0, "{names:?}");
    // In few lives there may be no COMMIT of writes to an earlier server.
    assert!(!is_long() || all.sent_again > 0 && all.newer > 0, "{all:?}");
    assert!(!is_long() || names.done > 0 && names.undone > 0, "{names:?}");
    Ok(())
}

/// A test that finds no loss must be able to find one: `sync=disabled` reports everything as
/// durable.
#[test]
fn client_finds_that_a_dataset_without_sync_loses_what_it_has_acknowledged() -> Result<()> {
    for (pool, writes) in [("lies", true), ("lies-of-names", false)] {
        let setup = Setup { sync: "disabled:to be caught", ..POOLS[0].1 };
        let mut run = KillLoop::start(pool, setup, seed())?;
        if !writes {
            run.writers.clear();
        }
        let lives = (0..20).map(|_| run.life());
        match lives.collect() {
            Ok(()) => panic!("nothing was lost:\n{}", run.story),
            Err(Error::Mismatch(what)) if what.starts_with("LOST") => {
                eprintln!("{pool}, after {} kills: {what}", run.kills);
                run.aquifer.serve()?;
                run.aquifer.finish()?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Request of an administrator in a time that ends with a kill.
pub struct Acting {
    pub command: Invocation,
    /// Whether the time until the kill begins with the answer, not with the command.
    pub is_answered: bool,
}

/// A daemon, its clients, and their history.
pub struct KillLoop {
    pub aquifer: Aquifer,
    pub writers: Vec<Writer>,
    pub namer: Namer,
    /// Present if there is a spare disk.
    administrator: Option<Administrator>,
    random: Random,
    kills: u32,
    pub story: String,
}

impl KillLoop {
    fn start(pool: &str, setup: Setup, seed: u64) -> Result<Self> {
        let aquifer = Aquifer::start(&format!("kills-{}", pool.replace([',', ' '], "")), setup)?;
        let mut run = Self::on(aquifer, seed);
        let Self { aquifer, random, .. } = &mut run;
        let logs = aquifer.disks().iter().skip(setup.sides as usize).map(|disk| text(disk));
        run.administrator = (setup.spares > 0).then(|| {
            let random = Random::new(random.next_u64());
            Administrator::new(aquifer.command(), logs.collect(), random)
        });
        Ok(run)
    }

    /// A loop on a pool that nobody changes beside it.
    pub fn on(aquifer: Aquifer, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let writers = (1..=CLIENTS).map(|number| Writer::new(number, random.next_u64()));
        let writers = writers.collect();
        let namer = Namer::new(random.next_u64());
        let (administrator, story) = (None, String::new());
        Self { aquifer, writers, namer, administrator, random, kills: 0, story }
    }

    /// A loop on a pool whose disks and clients use `clock`.
    pub fn recorded(aquifer: Aquifer, seed: u64, clock: &Clock) -> Self {
        let mut random = Random::new(seed);
        let writers = (1..=CLIENTS).map(|number| Writer::new(number, random.next_u64()));
        let writers = writers.map(|writer| writer.with_diary(clock)).collect();
        let namer = Namer::new(random.next_u64()).with_diary(clock);
        let (administrator, story) = (None, String::new());
        Self { aquifer, writers, namer, administrator, random, kills: 0, story }
    }

    /// The clients continue from their state at `moment`.
    pub fn rewind(&mut self, moment: u64) {
        self.writers.iter_mut().for_each(|writer| writer.rewind(moment));
        self.namer.rewind(moment);
    }

    /// One life of the daemon from the start of service to its end, and the next start, which may
    /// take several attempts.
    fn life(&mut self) -> Result<()> {
        let before = self.tally();
        let span = self.span();
        // Now and then before all files are verified.
        let verified = self.random.below(4) > 0;
        self.write_until_killed(verified, span, None)?;
        let now = self.tally();
        let since = if verified { "all was verified" } else { "it served" };
        let (verified, newer) = (now.verified - before.verified, now.newer - before.newer);
        self.tell(&format!(
            "killed {span:?} after {since}: {verified} units verified, {newer} of them newer than \
             promised; {} WRITEs stable, {} by {} COMMITs, {} to be sent again",
            now.stable - before.stable,
            now.committed - before.committed,
            now.commits - before.commits,
            now.sent_again - before.sent_again,
        ));
        self.kills += 1;
        if self.kills.is_multiple_of(INSPECT_EVERY) {
            // An independent check of the disks that a killed daemon has left.
            self.aquifer.inspect_clean()?;
        }
        while self.random.below(3) == 0 {
            let span = Duration::from_millis(self.random.below(START_MS));
            self.aquifer.serve_for(span)?;
            self.kills += 1;
            self.tell(&format!("killed {span:?} after its start"));
        }
        let took = self.aquifer.serve()?;
        self.tell(&format!("serving after {took:?}"));
        Ok(())
    }

    /// Kills the daemon after `span`, which begins when the clients do, or when they have verified
    /// their files. `act` is run at the beginning of that span, or right before it; returns its
    /// outcome.
    pub fn write_until_killed(
        &mut self,
        verified: bool,
        span: Duration,
        act: Option<Acting>,
    ) -> Result<Option<Outcome>> {
        let (killed, ready) = (AtomicBool::new(false), AtomicU32::new(0));
        let pid = self.aquifer.daemon()?.pid();
        let Self { aquifer, writers, namer, administrator, random, .. } = self;
        let plans: Vec<Plan> = writers.iter().map(|_| Plan::new(random)).collect();
        let names_at_once = [1, 4, 12][random.index(3)];
        let (ends, said) = thread::scope(|scope| {
            let (killed, ready) = (&killed, &ready);
            let until_killed = |ended: Result<()>| match ended {
                Err(Error::Io { .. }) if killed.load(Ordering::SeqCst) => Ok(()),
                ended => ended,
            };
            let clients = writers.iter_mut().zip(&plans).map(|(writer, plan)| {
                let mut live = move || writer.live(&mut connect(pid)?, Some(*plan), ready);
                scope.spawn(move || until_killed(live()))
            });
            let mut clients: Vec<_> = clients.collect();
            let mut live = move || namer.live(&mut connect(pid)?, Some(names_at_once), ready);
            clients.push(scope.spawn(move || until_killed(live())));
            let administrator = administrator.as_mut();
            let administrator = administrator.map(|it| scope.spawn(|| it.work(killed)));
            while verified
                && (ready.load(Ordering::SeqCst) as usize) < clients.len()
                && !clients.iter().any(|client| client.is_finished())
            {
                thread::sleep(Duration::from_millis(1));
            }
            let is_answered = act.as_ref().is_some_and(|act| act.is_answered);
            let act = act.map(|act| scope.spawn(move || act.command.run(SOON)));
            while is_answered && act.as_ref().is_some_and(|act| !act.is_finished()) {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(span);
            killed.store(true, Ordering::SeqCst);
            aquifer.kill9();
            let ended = clients.into_iter().chain(administrator);
            let ends = ended.map(|client| client.join().unwrap()).collect::<Vec<_>>();
            (ends, act.map(|act| act.join().unwrap()))
        });
        self.tell(&format!("{plans:?}"));
        if let Some(administrator) = &mut self.administrator {
            self.story.push_str(&std::mem::take(&mut administrator.story));
        }
        ends.into_iter().collect::<Result<()>>()?;
        said.transpose()
    }

    /// The time until a kill. Mostly short: the first WRITEs are then in progress.
    fn span(&mut self) -> Duration {
        let most = [30, 150, 400, if is_long() { 1500 } else { 400 }][self.random.index(4)];
        Duration::from_millis(self.random.below(most))
    }

    /// Verifies everything once more, and the disks.
    pub fn finish(mut self) -> Result<(u32, Tally, namer::Tally)> {
        let pid = self.aquifer.daemon()?.pid();
        let verified = AtomicU32::new(0);
        let mut writers = self.writers.iter_mut();
        let ended = writers.try_for_each(|it| it.live(&mut connect(pid)?, None, &verified));
        let ended = ended.and_then(|()| self.namer.live(&mut connect(pid)?, None, &verified));
        if let Err(error) = ended {
            panic!("{error}\nin the end, seed {}:\n{}", seed(), self.story);
        }
        let (tally, named) = (self.tally(), self.namer.tally);
        self.aquifer.finish()?;
        Ok((self.kills, tally, named))
    }

    pub fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.writers.iter().for_each(|writer| all.add(writer.tally));
        all
    }

    pub fn tell(&mut self, what: &str) {
        writeln!(self.story, "kill {}: {what}", self.kills).unwrap();
    }
}

/// Connects to the server that is process `pid`.
pub fn connect(pid: u32) -> Result<Connection> {
    let address = SocketAddr::from(([127, 0, 0, 1], 2049));
    Ok(Connection::new(netns::connect(Some(pid), address)?)?)
}

fn told(tally: Tally) -> String {
    let Tally { stable, committed, commits, sent_again, verified, newer } = tally;
    format!(
        "{} WRITEs acknowledged as durable ({stable} by themselves, {committed} by {commits} \
         COMMITs, {sent_again} sent again for another verifier), {verified} units of 512 bytes \
         verified, {newer} of them newer than promised",
        stable + committed
    )
}

/// The seed of this run.
pub fn seed() -> u64 {
    use std::sync::LazyLock;
    static SEED: LazyLock<u64> = LazyLock::new(|| {
        let given = std::env::var("AQUIFER_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        given.unwrap_or(clock as u64)
    });
    *SEED
}

/// Clients that write; one more changes names.
const CLIENTS: u32 = 3;
/// About the time that a start takes.
const START_MS: u64 = 300;
const INSPECT_EVERY: u32 = 10;
