//! A side that is being resilvered is left alone: it must not come up.

use std::sync::Arc;

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{Span, Watch};
use aquifer_sim::{DiskConfig, Sim};

use super::{About, Machine};
use crate::clients::{check, open_beside, sound};
use crate::shapes::{labels_of, named};

impl Machine {
    /// With the others away a side that was being resilvered is refused, or it was whole already.
    pub(super) fn a_half_built_side_knows_it(&mut self) -> Result<(), String> {
        let keeper = match self.keepers[..] {
            [one] => one,
            _ => self.keepers[self.rng.index(self.keepers.len())],
        };
        let side = (keeper + 1 + self.rng.index(self.disks.len() - 1)) % self.disks.len();
        if self.keeps(side) {
            return Ok(());
        }
        let disks = self.all_found();
        let read = self.sim.run_until(labels_of(&disks));
        let all = read.map_err(|stop| stop.to_string())?;
        let is_marked = all[side].as_ref().is_some_and(|labels| labels.mark.is_some());
        if !is_marked && matches!(self.about, About::Sides | About::Hangs) {
            self.an_unmarked_side_is_as_it_was(side)?;
        }
        let kept = self.keepers.iter().filter_map(|at| all[*at].as_ref());
        let config = kept.map(|labels| &labels.label.config).max_by_key(|of| of.config_sequence);
        // Its own vdev, if it is marked, and still the pool's.
        let marked = all[side].as_ref().filter(|labels| labels.mark.is_some());
        let own = config.zip(marked).and_then(|(config, side)| {
            let guid = side.label.leaf_guid;
            config.vdevs.iter().find(|vdev| vdev.leaves.iter().any(|leaf| leaf.guid == guid))
        });
        if let Some(own) = own {
            // All of that stay away, and one disk of each other vdev is there.
            let own: Vec<&str> = own.leaves.iter().map(|leaf| leaf.path.as_str()).collect();
            let others = self.keepers.iter().copied();
            let others = others.filter(|at| !own.contains(&self.disks[*at].name()));
            let left: Vec<usize> = others.chain([side]).collect();
            self.leave_only(&left);
            let (world, model) = (self.world.clone(), self.model.clone());
            let opened = self.sim.run_until(async {
                let open = open_beside(world, disks, &ImportOptions::default(), |_| true).await?;
                check(&open, &model).await
            });
            if opened.map_err(|stop| stop.to_string())?.is_ok() {
                let name = self.disks[side].name();
                return Err(format!("{name} came up alone before it was whole"));
            }
        }
        self.sim.kill();
        self.all_come_back();
        Ok(())
    }

    /// A side without a mark may be behind, but it has all that its own uberblock tells. This looks
    /// at a copy: what comes up alone begins a past of its own.
    fn an_unmarked_side_is_as_it_was(&self, side: usize) -> Result<(), String> {
        // Of its own: the machine's chance goes on as without this look.
        let mut sim = Sim::new(u64::MAX - 11);
        let (name, image) = (self.disks[side].name(), self.disks[side].durable_image());
        let disk = sim.add_disk(name, image, DiskConfig::default());
        let world: Arc<dyn World> = Arc::new(sim.world());
        let looked = sim.run_until(async {
            let disks = named(std::slice::from_ref(&disk));
            let opened = open_beside(world, disks, &ImportOptions::default(), |_| true).await;
            // None of the pool's, or its log ends before what a mark proves.
            let Ok(open) = opened else { return Ok(()) };
            let mut next = Some(WalkPosition::default());
            while let Some(from) = next {
                let span = Span { from, to: WalkPosition::END };
                let examined = open.pool.examine(span, &Watch::default()).await;
                let examined = examined.map_err(|error| error.to_string())?;
                if let Some(lost) = examined.lost.first() {
                    return Err(format!("alone and unmarked: {}", lost.error));
                }
                next = examined.next;
            }
            sound(&open)
        });
        looked.map_err(|stop| stop.to_string())?.map_err(|what| format!("{name}: {what}"))
    }
}
