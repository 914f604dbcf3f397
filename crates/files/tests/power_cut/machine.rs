//! Common parts of worlds of one machine: how a run begins, how a life ends, what is said of it.

use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_files::Service;
use aquifer_sim::{CutPlan, Image, Rng, Sim, SimConfig, SimDisk, Stop};

use crate::{Shape, disks_of, inspected, story};

/// A machine, with the disks of one of several bases.
pub struct Machine {
    seed: u64,
    shape: Shape,
    pub sim: Sim,
    pub disks: Vec<SimDisk>,
    pub world: Arc<dyn World>,
}

impl Machine {
    /// That of a seed, in the world of this name, and what the seed goes on with.
    pub fn of(name: &str, seed: u64, bases: &[(Shape, Vec<Image>)]) -> (Machine, Rng) {
        let mut rng = Rng::stream(seed, name);
        let (shape, images) = &bases[rng.index(bases.len())];
        let config = SimConfig { story_entries_max: story(), ..SimConfig::default() };
        let mut sim = Sim::with_config(seed, config);
        let disks = disks_of(&mut sim, images);
        let world: Arc<dyn World> = Arc::new(sim.world());
        (Machine { seed, shape: *shape, sim, disks, world }, rng)
    }

    /// Reports what is wrong with a life, with its story. A cut is nothing wrong.
    pub fn judge(&self, end: Result<Result<(), String>, Stop>) -> Result<(), String> {
        let what = match end {
            Ok(Ok(())) | Err(Stop::Halted) => return Ok(()),
            Ok(Err(what)) => what,
            Err(stop) => stop.to_string(),
        };
        Err(format!("seed {} {:?}: {what}\n{}", self.seed, self.shape, self.sim.story()))
    }

    /// Runs a life, or a look, to its end, or until the power goes.
    pub fn run(
        &mut self,
        life: impl AsyncFnOnce(Arc<dyn World>, &[SimDisk]) -> Result<(), String>,
    ) -> Result<(), String> {
        let done = self.sim.run_until(life(self.world.clone(), &self.disks));
        self.judge(done)
    }

    /// The power goes at one of the next events.
    pub fn cut_within(&mut self, rng: &mut Rng, events: u64) {
        self.sim.plan_cut(CutPlan::AtEvent(1 + rng.below(events)));
    }

    /// Inspects what is on the disks: as [`inspected`] does.
    pub fn inspect(&mut self, data: bool, rewind: u8) -> Result<(), String> {
        self.run(async |_, disks| inspected(disks, data, rewind).await)
    }

    /// A life with some acts, of which the power may go at one of so many events. What is there
    /// then is inspected.
    pub fn live(
        &mut self,
        rng: &mut Rng,
        (events, acts): (u64, u64),
        life: impl AsyncFnOnce(Arc<dyn World>, &[SimDisk], (u64, u64)) -> Result<(), String>,
    ) -> Result<(), String> {
        self.cut_within(rng, events);
        let work = (rng.next_u64(), 1 + rng.below(acts));
        self.run(async |world, disks| life(world, disks, work).await)?;
        self.go_down(rng);
        self.inspect(rng.below(4) == 0, rng.below(3) as u8)
    }

    /// The daemon is killed, or the power goes.
    pub fn go_down(&mut self, rng: &mut Rng) {
        match rng.below(4) {
            0 => self.sim.kill(),
            _ => drop(self.sim.power_cut_any()),
        }
    }
}

/// Checks that all that was destroyed is freed within so many txgs. Then the pool leaves, and holds
/// nothing more.
pub async fn is_freed(service: &Service, disks: &[SimDisk], txgs: u32) -> Result<(), String> {
    for _ in 0..txgs {
        if !service.datasets.has_background_work() {
            break;
        }
        service.pool.sync().await.map_err(|error| error.to_string())?;
    }
    if service.datasets.freeing_bytes() > 0 {
        return Err("what was destroyed is not freed".into());
    }
    service.pool.export().await.map_err(|error| error.to_string())?;
    inspected(disks, true, 2).await
}
