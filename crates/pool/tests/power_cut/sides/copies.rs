//! Disks that are put back from copies of themselves, of any age and class, several at once.
//!
//! Copies are made at the ends of lives. Sides that are not kept are put back while the machine is
//! down, and are resilvered. Any disks are put back in a machine beside this one: it must refuse to
//! come up, or have all that was acknowledged. A disk with the newest uberblock is always there:
//! without it nobody could know.

use std::sync::{Arc, Mutex};

use aquifer_blockio::{Disk, World};
use aquifer_ondisk::layout::CONFIG_OFFSET;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{Span, Watch};
use aquifer_sim::{Corruption, DiskConfig, Image, Rng, Sim, SimDisk};

use super::Machine;
use crate::clients::{Open, check, open_beside, sound};
use crate::shapes::{labels_of, named};

/// Why an import may be refused when disks that are needed were put back from copies.
const REFUSALS: [&str; 5] = [
    "no disk that holds the pool's newest state",
    "the log device is missing or outdated",
    "no usable disk",
    "taken offline by order",
    "in use apart from each other",
];

impl Machine {
    /// Copies all disks.
    pub(super) fn make_copies(&mut self) {
        self.copies.push(self.disks.iter().map(SimDisk::durable_image).collect());
    }

    /// Some disks that are not kept are put back from copies.
    pub(super) fn some_are_put_back(&mut self) {
        let mut rng = Rng::stream(self.rng.next_u64(), "put back");
        let fickle: Vec<usize> = self.fickle().map(|(at, _)| at).collect();
        for at in fickle {
            if rng.below(3) == 0
                && let Some(copies) = rng.pick(&self.copies)
            {
                self.disks[at].put_copy(copies[at].clone());
                self.run.put_back += 1;
            }
        }
    }

    /// Another machine, in which any disks are put back from copies, beside themselves too.
    pub(super) fn a_look_with_copies(&mut self) -> Result<(), String> {
        let mut rng = Rng::stream(self.rng.next_u64(), "look");
        let Some(witness) = self.witness()? else { return Ok(()) };
        // Of its own: the machine's chance goes on as without this look.
        let mut sim = Sim::new(u64::MAX - 12);
        let (mut disks, mut lacks, mut story) = (Vec::new(), false, String::new());
        for (at, disk) in self.disks.iter().enumerate() {
            let age = (at != witness && rng.below(3) == 0).then(|| rng.index(self.copies.len()));
            let beside = rng.below(4) == 0;
            let mut images = Vec::new();
            if age.is_none() || beside {
                images.push((disk.name().to_string(), disk.durable_image()));
            }
            if let Some(age) = age {
                images.push((format!("{}copy", disk.name()), self.copies[age][at].clone()));
                lacks |= self.keeps(at) && !beside;
                story += &format!(" {} of {age}{}", disk.name(), if beside { "*" } else { "" });
            }
            for (name, image) in images {
                let place = rng.index(disks.len() + 1);
                disks.insert(place, sim.add_disk(&name, image, DiskConfig::default()));
            }
        }
        let world: Arc<dyn World> = Arc::new(sim.world());
        let model = Mutex::new(self.model.lock().unwrap().clone());
        let looked = sim.run_until(async {
            let options = ImportOptions::default();
            let open = open_beside(world, named(&disks), &options, |_| true).await?;
            check(&open, &model).await?;
            believed_is_whole(&open).await
        });
        let now = self.copies.len();
        let told = |what: String| format!("put back at {now}:{story}: {what}");
        match looked.map_err(|stop| stop.to_string())? {
            Ok(()) => self.run.looks += 1,
            Err(why) if lacks && REFUSALS.iter().any(|refusal| why.contains(refusal)) => {
                self.run.refused += 1;
            }
            // It is of the same moment.
            Err(why) if why.contains("are copies of each other") => {}
            Err(why) => return Err(told(why)),
        }
        Ok(())
    }

    /// A disk that is kept and has the newest uberblock of all.
    fn witness(&mut self) -> Result<Option<usize>, String> {
        // Those that are away are looked at, too.
        let images: Vec<Image> = self.disks.iter().map(SimDisk::durable_image).collect();
        let mut sim = Sim::new(u64::MAX - 13);
        let disks: Vec<SimDisk> = (images.into_iter().zip(&self.disks))
            .map(|(image, disk)| sim.add_disk(disk.name(), image, DiskConfig::default()))
            .collect();
        let read = sim.run_until(labels_of(&named(&disks))).map_err(|stop| stop.to_string())?;
        let newest = |at: usize| read[at].as_ref()?.uberblocks.first();
        let kept = self.keepers.iter().copied().filter_map(|at| Some((newest(at)?.sequence, at)));
        Ok(kept.max().map(|(_, at)| at))
    }

    /// Labels rot while a scrub may be under way: one of four of a disk.
    pub(super) fn a_label_rots(&self, rng: &mut Rng) {
        let disk = &self.disks[rng.index(self.disks.len())];
        disk.corrupt(CONFIG_OFFSET, Corruption::Garbage);
    }
}

/// Each disk that is in use has all.
async fn believed_is_whole(open: &Open) -> Result<(), String> {
    let mut next = Some(WalkPosition::default());
    while let Some(from) = next {
        let span = Span { from, to: WalkPosition::END };
        let examined = open.pool.examine(span, &Watch::default()).await;
        let examined = examined.map_err(|error| error.to_string())?;
        if let Some(lost) = examined.lost.first() {
            return Err(format!("lost: {}", lost.error));
        }
        if examined.repaired_bytes > 0 {
            return Err("a disk in use lacked blocks".into());
        }
        next = examined.next;
    }
    sound(open)
}
