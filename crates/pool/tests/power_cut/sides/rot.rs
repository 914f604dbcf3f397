//! Copies that rot, and scrubs that mend them.
//!
//! While sides come and go, sides other than those that are kept rot anywhere. Once all are whole,
//! any copies rot of which another one is left: a scrub must mend exactly these.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_pool::{Span, Watch};
use aquifer_sim::{Corruption, Rng};
use futures_util::future::join;

use super::{About, Machine, members_by_vdev, states, whole};
use crate::clients::{Open, check, sound};
use crate::slots::SLOTS;

/// Where blocks, records, bitmaps and the log lie on a disk: not its labels.
const INNER: std::ops::Range<u64> = 1024..64_512;

impl Machine {
    /// Places of sides that are not kept rot, now and then: those of slots, and any that are used.
    pub(super) async fn rot(&self, open: &Open, rng: Option<Rng>) {
        let Some(mut rng) = rng else { return };
        for _ in 0..rng.below(6) {
            self.world.sleep(Duration::from_millis(rng.below(1000))).await;
            let vdevs = members_by_vdev(open);
            for _ in 0..rng.below(8) {
                let Some(extent) = open.slots.committed(rng.below(SLOTS)) else { continue };
                let sides = &vdevs[usize::from(extent.place.vdev())];
                for (_, disk) in
                    self.fickle().filter(|(_, disk)| sides.contains(&disk.name().into()))
                {
                    if rng.coin() {
                        disk.corrupt(extent.place.sector(), Corruption::FlipBits(3));
                    }
                }
            }
            let fickle: Vec<_> = self.fickle().map(|(_, disk)| disk).collect();
            let Some(disk) = rng.pick(&fickle) else { continue };
            let mut used = Vec::new();
            disk.durable_image().for_each(|sector, _| used.push(sector));
            used.retain(|sector| INNER.contains(sector));
            for sector in (0..rng.below(6)).filter_map(|_| rng.pick(&used)) {
                disk.corrupt(*sector, Corruption::Garbage);
            }
        }
    }

    /// Scrubs under load. They are stopped, or go on to their end: nothing is lost.
    pub(super) async fn scrub_now_and_then(
        &self,
        open: &Open,
        rng: Option<Rng>,
    ) -> Result<(), String> {
        let Some(mut rng) = rng else { return Ok(()) };
        for _ in 0..rng.below(4) {
            let longest_ms = if self.about == About::Copies { 400 } else { 1500 };
            self.world.sleep(Duration::from_millis(rng.below(longest_ms))).await;
            if self.about == About::Copies {
                self.a_label_rots(&mut rng);
            }
            self.scrub(open, rng.coin().then(|| rng.below(200))).await?;
        }
        Ok(())
    }

    /// A scrub of the whole pool, which stops after so many ms, and goes on after a pause. Returns
    /// the bytes of bad copies that it mended.
    async fn scrub(&self, open: &Open, stops: Option<u64>) -> Result<u64, String> {
        // What ends the pool ends a scrub. Another place reports that.
        let Ok(in_place) = open.pool.examine_in_place().await else { return Ok(0) };
        let mut mended_bytes = in_place.repaired_bytes;
        let mut next = Some(WalkPosition::default());
        let mut stops = stops;
        while let Some(from) = next {
            let (watch, span) = (Watch::default(), Span { from, to: WalkPosition::END });
            let stop = async {
                if let Some(after) = stops {
                    self.world.sleep(Duration::from_millis(after)).await;
                    watch.stop();
                }
            };
            let (examined, ()) = join(open.pool.examine(span, &watch), stop).await;
            stops = None;
            let Ok(examined) = examined else { return Ok(mended_bytes) };
            if let Some(lost) = examined.lost.first() {
                return Err(format!("a scrub found no copy: {lost:?}"));
            }
            mended_bytes += examined.repaired_bytes;
            next = examined.next;
        }
        Ok(mended_bytes)
    }

    /// All sides are whole. What has rotted is mended. Then any copies rot of which another one is
    /// left, and a scrub mends these and no others; another scrub finds nothing.
    pub(super) fn a_scrub_mends_what_rots(&mut self) -> Result<(), String> {
        let mut rng = Rng::stream(self.rng.next_u64(), "rots");
        let mended = AtomicU64::new(0);
        self.all_come_back();
        let ended = self.live(0, async |open, machine| {
            // The older roots refer to what the newest one does: a scrub reads that alone.
            let settle = async || {
                for _ in 0..4 {
                    open.pool.sync().await.map_err(|error| error.to_string())?;
                }
                Ok::<(), String>(())
            };
            settle().await?;
            machine.scrub(open, None).await?;
            if !whole(open) {
                return Err(format!("not whole any more: {:?}", states(open)));
            }
            // What was mended is durable: it would hide what rots below it.
            settle().await?;
            let vdevs = members_by_vdev(open);
            let mut rotten_bytes = 0;
            for extent in (0..SLOTS).filter_map(|slot| open.slots.committed(slot)) {
                let sides = &vdevs[usize::from(extent.place.vdev())];
                let good = rng.index(sides.len());
                for (at, side) in sides.iter().enumerate() {
                    if at != good && rng.below(4) == 0 {
                        let disk = machine.disks.iter().find(|disk| disk.name() == side).unwrap();
                        disk.corrupt(extent.place.sector(), Corruption::FlipBits(3));
                        rotten_bytes += 4096;
                    }
                }
            }
            for wanted in [rotten_bytes, 0] {
                settle().await?;
                let found = machine.scrub(open, None).await?;
                if found != wanted {
                    return Err(format!("a scrub mended {found} bytes, {wanted} had rotted"));
                }
            }
            mended.store(rotten_bytes / 4096, Ordering::Relaxed);
            Ok(())
        })?;
        ended.map_err(|stop| stop.to_string())?;
        self.run.mended += mended.into_inner();
        self.end();
        // What was mended is durable.
        let model = self.model.clone();
        let ended = self.live(0, async |open, machine| {
            check(open, &model).await?;
            let found = machine.scrub(open, None).await?;
            let clean =
                if found == 0 { Ok(()) } else { Err(format!("{found} bytes rotted again")) };
            clean.and(sound(open))
        })?;
        ended.map_err(|stop| stop.to_string())?;
        self.end();
        Ok(())
    }
}
