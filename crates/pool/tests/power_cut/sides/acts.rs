//! Acts of an administrator while sides come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_pool::{ActError, Pool};

use aquifer_sim::{Latency, Rng, SimDisk};

use super::base::{DISK_SECTORS, DISK_SECTORS_MAX};
use super::{About, Machine, members_by_vdev};
use crate::clients::{Open, members};
use crate::shapes::vdev_of;
use crate::story;

/// Acts that were carried out.
#[derive(Default)]
pub(super) struct Acts {
    pub all: AtomicU64,
    /// Vdevs that were added, and acts by which one grew.
    pub added: AtomicU64,
    pub grown: AtomicU64,
}

impl Machine {
    /// Takes sides other than the keeper out of use and back, attaches, detaches and replaces them.
    pub(super) async fn administrate(&self, open: &Open, mut rng: Rng, done: &Acts) {
        let spares = matches!(self.about, About::Spares | About::Everything);
        if spares && rng.below(4) > 0 {
            let members = members(open);
            let is_free = |disk: &SimDisk| !members.iter().any(|of| of == disk.name());
            let free = self.disks.iter().position(is_free);
            let free = free.map(|at| self.found([at]).remove(0));
            if let Some(free) = free.filter(|_| open.pool.status().spares.is_empty()) {
                let _ = open.pool.add_spare(free, true).await;
            }
        }
        if self.about == About::Dense {
            self.replace_one(open, &mut rng).await;
        }
        for _ in 0..6 {
            self.world.sleep(Duration::from_millis(rng.below(300))).await;
            let (one, other) = (rng.index(self.disks.len()), rng.index(self.disks.len()));
            let disk = |at: usize| self.found([at]).remove(0);
            let spares = open.pool.status().spares;
            let spares = spares.into_iter().map(|spare| spare.path);
            let members: Vec<String> = members(open).into_iter().chain(spares).collect();
            let is_member = |at: usize| members.iter().any(|path| *path == disk(at).path);
            let (name, new) = (disk(one).path, disk(other));
            let pool = &open.pool;
            let kinds = match self.about {
                About::Growth => 18,
                About::Everything => 14,
                About::Spares => 11,
                _ => 6,
            };
            let kind = match self.about {
                About::Copies => [0, 0, 4, 5, 9, 9][rng.index(6)],
                _ => rng.below(kinds),
            };
            let result = match kind {
                6 | 7 if !is_member(other) => pool.add_spare(new, true).await,
                8 => pool.remove_spare(&disk(other).path).await,
                11 => self.add_vdev(open, &members, 1 + rng.index(2), done).await,
                14.. => self.expand(open, &name, &mut rng, done).await,
                12 if !is_member(other) => pool.attach_disk(&name, new, true).await,
                _ if self.keeps(one) => continue,
                0 => pool.offline_disk(&name, true).await,
                9 => pool.offline_disk(&name, false).await,
                1 if !is_member(other) => pool.attach_disk(&name, new, true).await,
                2 => pool.detach_disk(&name).await,
                3 if !is_member(other) => pool.replace_disk(&name, new, true).await.map(|_| ()),
                5 => self.drill(pool, &name, rng.below(300)).await,
                _ => pool.online_disk(&name, disk(one), false).await,
            };
            if story() > 0 {
                let now = self.world.now();
                println!("act {kind} on {name}, {}: {result:?} at {now:?}", disk(other).path);
            }
            done.all.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
    }

    /// A side other than the keeper gives its place to a new disk, which must be filled.
    pub(super) async fn replace_one(&self, open: &Open, rng: &mut Rng) {
        let members = members(open);
        let is_member = |at: usize| members.iter().any(|of| of == self.disks[at].name());
        let (old, free): (Vec<usize>, Vec<usize>) =
            (0..self.disks.len()).filter(|at| !self.keeps(*at)).partition(|at| is_member(*at));
        if let (Some(old), Some(free)) = (rng.pick(&old), free.first()) {
            let new = self.found([*free]).remove(0);
            let _ = open.pool.replace_disk(self.disks[*old].name(), new, true).await;
        }
    }

    async fn drill(&self, pool: &Pool, disk: &str, ms: u64) -> Result<(), ActError> {
        let away = pool.take_away(disk).await?;
        self.world.sleep(Duration::from_millis(ms)).await;
        drop(away);
        Ok(())
    }

    /// Adds a vdev of free disks. One of them is kept whole from now on.
    async fn add_vdev(
        &self,
        open: &Open,
        members: &[String],
        sides: usize,
        done: &Acts,
    ) -> Result<(), ActError> {
        let free = self.disks.iter().enumerate();
        let free = free.filter(|(_, disk)| !members.iter().any(|path| path == disk.name()));
        let new: Vec<usize> = free.take(sides).map(|(at, _)| at).collect();
        let Some(kept) = new.first() else { return Ok(()) };
        let disk = &self.disks[*kept];
        self.added.lock().unwrap().push(*kept);
        disk.clear_faults();
        disk.come_back();
        disk.set_latency(Latency::default());
        open.pool.add_data(&vdev_of(self.found(new)), true).await?;
        done.added.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// All disks of a vdev become larger, or one does, and the vdev uses what all have.
    async fn expand(
        &self,
        open: &Open,
        disk: &str,
        rng: &mut Rng,
        done: &Acts,
    ) -> Result<(), ActError> {
        let vdevs = members_by_vdev(open);
        let own = vdevs.into_iter().find(|sides| sides.iter().any(|side| side == disk));
        let (sectors, all) = (rng.below(DISK_SECTORS_MAX - DISK_SECTORS), rng.below(4) > 0);
        for (at, _) in self.disks.iter().enumerate().filter(|(_, side)| {
            side.name() == disk || all && own.iter().flatten().any(|own| own == side.name())
        }) {
            self.found[at].seen.grows_to(DISK_SECTORS + sectors);
        }
        let grown = open.pool.expand(disk).await?;
        done.grown.fetch_add(u64::from(grown > 0), Ordering::Relaxed);
        Ok(())
    }
}
