//! Sides whose reads fail too often: they are taken out, and come back after a rest.
//!
//! A watcher looks at every side all the time. A side that is taken out has its reason, another
//! whole one is left at that moment, and it is back no earlier than its rest is long. While all
//! others are away the keeper errs as well, and stays.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_sim::{CutPlan, Fault, FaultRule, Rng, SimDisk, Vanish, When};
use aquifer_vdev::LeafState;
use futures_util::future::{Either, join, select};

use super::Machine;
use crate::clients::{Open, sound};
use crate::slots::SLOTS;

/// Events that the watcher has seen in a life.
#[derive(Default)]
struct Seen {
    /// Since when a side is taken out.
    since: BTreeMap<String, Duration>,
    taken_out: u64,
    came_back: u64,
}

/// How often the watcher looks: it may notice so late that a side was taken out.
const LOOK: Duration = Duration::from_millis(5);
/// The shortest rest of a side that was taken out.
const REST_MIN: Duration = Duration::from_secs(10);

impl Machine {
    /// Sides err, and come back; the last whole one errs.
    pub(super) fn sides_err(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.rng.below(3) {
            self.all_come_back();
            self.others_err()?;
            if self.rng.coin() {
                self.the_last_errs()?;
            }
        }
        Ok(())
    }

    /// Sides other than the keeper err while clients write and read. Some stop after a while.
    fn others_err(&mut self) -> Result<(), String> {
        if self.rng.below(4) > 0 {
            self.sim.plan_cut(CutPlan::AtEvent(1 + self.rng.below(12_000)));
        }
        let [mut work, reads] = ["work", "reads"].map(|of| Rng::stream(self.rng.next_u64(), of));
        let turns = 1 + self.rng.below(3);
        let rest = Duration::from_millis(self.rng.below(30_000));
        let seen = Mutex::new(Seen::default());
        let ended = self.live(0, async |open, machine| {
            for (_, disk) in machine.fickle() {
                let when = [When::Always, When::Ppm(300_000), When::Ppm(50_000)][work.index(3)];
                if work.below(3) > 0 {
                    disk.inject(FaultRule::new(Fault::ReadError, when));
                }
            }
            let work = async {
                for _ in 0..turns {
                    let rng = Rng::stream(work.next_u64(), "work");
                    let read = machine.read_some(open, reads.clone(), 300);
                    let (worked, failed) = join(machine.work(open, rng), read).await;
                    worked?;
                    // The keeper has everything.
                    if failed > 0 {
                        return Err(format!("{failed} reads failed"));
                    }
                    machine.world.sleep(rest).await;
                }
                machine.disks.iter().for_each(SimDisk::clear_faults);
                machine.world.sleep(rest).await;
                sound(open)
            };
            machine.watched(open, &seen, work).await
        });
        let seen = seen.into_inner().unwrap();
        self.run.faulted += seen.taken_out;
        self.run.came_back += seen.came_back;
        self.survives(ended)?;
        self.end();
        Ok(())
    }

    /// The keeper alone is there, and errs.
    fn the_last_errs(&mut self) -> Result<(), String> {
        for (_, disk) in self.fickle() {
            disk.clear_faults();
            disk.vanish(Vanish::PowerLost);
        }
        let reads = Rng::stream(self.rng.next_u64(), "reads");
        let (seen, failed) = (Mutex::new(Seen::default()), Mutex::new(0));
        let ended = self.live(0, async |open, machine| {
            for at in &machine.keepers {
                machine.disks[*at].inject(FaultRule::new(Fault::ReadError, When::Ppm(300_000)));
            }
            let work = async {
                *failed.lock().unwrap() = machine.read_some(open, reads, 300).await;
                Ok(())
            };
            let watched = machine.watched(open, &seen, work).await;
            machine.disks.iter().for_each(SimDisk::clear_faults);
            watched
        });
        ended?.map_err(|stop| stop.to_string())?;
        self.run.last_erred += u64::from(failed.into_inner().unwrap() > 0);
        if seen.into_inner().unwrap().taken_out > 0 {
            return Err("the last whole side was taken out".into());
        }
        self.end();
        Ok(())
    }

    /// Reads slots, of which memory holds few. Returns how many reads failed.
    async fn read_some(&self, open: &Open, mut rng: Rng, reads: u64) -> u64 {
        let mut failed = 0;
        for _ in 0..reads {
            failed += u64::from(open.slots.read(rng.below(SLOTS)).await.is_err());
        }
        failed
    }

    /// Does this while the watcher looks.
    async fn watched(
        &self,
        open: &Open,
        seen: &Mutex<Seen>,
        work: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let watch = async {
            loop {
                if let Err(what) = self.look(open, &mut seen.lock().unwrap()) {
                    return what;
                }
                self.world.sleep(LOOK).await;
            }
        };
        match select(pin!(work), pin!(watch)).await {
            Either::Left((done, _)) => done,
            Either::Right((what, _)) => Err(what),
        }
    }

    fn look(&self, open: &Open, seen: &mut Seen) -> Result<(), String> {
        let now = self.world.now();
        for vdev in open.pool.status().vdevs {
            let states = || vdev.leaves.iter().map(|leaf| leaf.state).collect::<Vec<_>>();
            if !states().contains(&LeafState::Online) {
                return Err(format!("no side is left: {:?}", states()));
            }
            for leaf in &vdev.leaves {
                let is_online = leaf.state == LeafState::Online;
                let was = seen.since.get(&leaf.path).copied();
                let kept = self.keepers.iter().any(|at| self.disks[*at].name() == leaf.path);
                if leaf.trouble.is_faulted && (kept || is_online) {
                    return Err(format!("{} is taken out, and {:?}", leaf.path, leaf.state));
                }
                match was {
                    None if leaf.trouble.is_faulted => {
                        let why = leaf.last_error.clone().unwrap_or_default();
                        if !why.starts_with("too many errors: 10 reads in 10 minutes; read") {
                            return Err(format!("{} is taken out: {why:?}", leaf.path));
                        }
                        seen.since.insert(leaf.path.clone(), now);
                        seen.taken_out += 1;
                    }
                    Some(since) if is_online => {
                        if now - since + LOOK < REST_MIN {
                            return Err(format!("{} is back after {:?}", leaf.path, now - since));
                        }
                        seen.since.remove(&leaf.path);
                        seen.came_back += 1;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
