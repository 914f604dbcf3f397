//! A side that is being resilvered is left alone: it must not come up.

use aquifer_blockio::Disk;
use aquifer_pool::import::ImportOptions;
use aquifer_vdev::label_io::read_labels;

use super::Machine;
use crate::clients::{check, open_beside};
use crate::shapes::named;

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
        let disks = named(&self.disks);
        let read = self.sim.run_until(async {
            let mut all = Vec::new();
            for disk in &disks {
                all.push(read_labels(&disk.disk).await.ok());
            }
            all
        });
        let all = read.map_err(|stop| stop.to_string())?;
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
}
