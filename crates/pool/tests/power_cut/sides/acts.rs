//! Acts of an administrator while sides come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::VdevSpec;
use aquifer_pool::{ImportError, Pool};

use aquifer_sim::{Latency, Rng, SimDisk};

use super::{About, Machine};
use crate::clients::{Open, members};
use crate::shapes::named;
use crate::story;

impl Machine {
    /// Takes sides other than the keeper out of use and back, attaches, detaches and replaces them.
    pub(super) async fn administrate(&self, open: &Open, mut rng: Rng, done: &AtomicU64) {
        let spares = matches!(self.about, About::Spares | About::Everything);
        if spares && rng.below(4) > 0 {
            let members = members(open);
            let free = self.disks.iter().find(|disk| !members.iter().any(|of| of == disk.name()));
            let free = free.map(|disk| named(std::slice::from_ref(disk)).remove(0));
            if let Some(free) = free.filter(|_| open.pool.status().spares.is_empty()) {
                let _ = open.pool.add_spare(free, true).await;
            }
        }
        for _ in 0..6 {
            self.world.sleep(Duration::from_millis(rng.below(300))).await;
            let (one, other) = (rng.index(self.disks.len()), rng.index(self.disks.len()));
            let disk = |at: usize| named(std::slice::from_ref(&self.disks[at])).remove(0);
            let spares = open.pool.status().spares;
            let spares = spares.into_iter().map(|spare| spare.path);
            let members: Vec<String> = members(open).into_iter().chain(spares).collect();
            let is_member = |at: usize| members.iter().any(|path| *path == disk(at).path);
            let (name, new) = (disk(one).path, disk(other));
            let pool = &open.pool;
            let kinds = match self.about {
                About::Everything => 14,
                About::Spares => 11,
                About::Sides | About::Hangs => 6,
            };
            let kind = rng.below(kinds);
            let result = match kind {
                6 | 7 if !is_member(other) => pool.add_spare(new, true).await,
                8 => pool.remove_spare(&disk(other).path).await,
                11 => self.add_vdev(open, &members, 1 + rng.index(2)).await,
                12 if !is_member(other) => pool.attach_disk(&name, new, true).await,
                _ if self.keeps(one) => continue,
                0 => pool.offline_disk(&name, true).await,
                9 => pool.offline_disk(&name, false).await,
                1 if !is_member(other) => pool.attach_disk(&name, new, true).await,
                2 => pool.detach_disk(&name).await,
                3 if !is_member(other) => pool.replace_disk(&name, new, true).await.map(|_| ()),
                5 => self.drill(pool, &name, rng.below(300)).await,
                _ => pool.online_disk(&name, disk(one)).await,
            };
            if story() > 0 {
                let now = self.world.now();
                println!("act {kind} on {name}, {}: {result:?} at {now:?}", disk(other).path);
            }
            done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
    }

    async fn drill(&self, pool: &Pool, disk: &str, ms: u64) -> Result<(), ImportError> {
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
    ) -> Result<(), ImportError> {
        let free = self.disks.iter().enumerate();
        let free = free.filter(|(_, disk)| !members.iter().any(|path| path == disk.name()));
        let new: Vec<(usize, SimDisk)> =
            free.take(sides).map(|(at, disk)| (at, disk.clone())).collect();
        let Some((kept, disk)) = new.first() else { return Ok(()) };
        self.added.lock().unwrap().push(*kept);
        disk.clear_faults();
        disk.come_back();
        disk.set_latency(Latency::default());
        let redundancy = if new.len() == 1 { Redundancy::Single } else { Redundancy::Mirror };
        let disks: Vec<SimDisk> = new.into_iter().map(|(_, disk)| disk).collect();
        open.pool.add_data(&VdevSpec { redundancy, disks: named(&disks) }, true).await
    }
}
