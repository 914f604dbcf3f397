//! Examines what is written in place: labels, live txg records, bitmap slots.

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::layout::LABELS;
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_ondisk::{Place, Txg};
use aquifer_space::MetaslabId;
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::Vdev;
use aquifer_vdev::label_io::{self, LabelError};

use super::Examined;
use crate::error::PoolError;
use crate::pool::{BoxFuture, Pool};

/// Metaslabs whose slots are looked at between two txgs.
pub(crate) const SLOTS_AT_ONCE: usize = 32;

impl Pool {
    /// Reads every copy of labels, live txg records and bitmap slots, and rewrites bad copies
    /// from good ones. What no copy has is not counted as lost: a later txg rewrites all of it.
    ///
    /// # Errors
    /// The pool answers nothing any more.
    pub fn examine_in_place(&self) -> BoxFuture<'_, Result<Examined, PoolError>> {
        Box::pin(async move {
            let _background = self.acts.background.lock().await;
            let mut examined = Examined::default();
            {
                // An act writes labels too: one that is read meanwhile is torn, and the tree of
                // before is not the one that belongs there.
                let act = self.acts.turn.lock().await;
                let _act = Some(act).filter(|_| !left_out(Rule::LabelsAreScrubbedInTurn));
                let _turn = self.sync_turn.lock().await;
                let _writing = self.reading();
                self.txgs.check()?;
                examined.repaired_bytes += self.examine_labels().await;
            }
            {
                let _turn = self.sync_turn.lock().await;
                let _writing = self.reading();
                self.txgs.check()?;
                for pointer in self.live_records().await? {
                    let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == pointer.checksum;
                    let places: Vec<Place> = pointer.copies().collect();
                    let sectors = usize::try_from(pointer.sectors).unwrap_or(0);
                    examined.add(self.examine_copies(&places, sectors, &verify).await?);
                }
            }
            for ids in self.metaslabs().chunks(SLOTS_AT_ONCE) {
                let _turn = self.sync_turn.lock().await;
                let _writing = self.reading();
                self.txgs.check()?;
                for id in ids {
                    let Some((entry, places)) = self.space.lock().slot(*id) else { continue };
                    let count = self.vdev_slot_sectors(&places)?;
                    let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == entry.checksum;
                    let of_slot = self.examine_copies(&places, count, &verify);
                    examined.add(self.in_background(of_slot).await?);
                }
            }
            Ok(examined)
        })
    }

    fn vdev_slot_sectors(&self, places: &[Place]) -> Result<usize, PoolError> {
        let Some(place) = places.first() else { return Ok(0) };
        Ok(usize::try_from(self.vdev(*place)?.geometry.slot_sectors()).unwrap_or(0))
    }

    /// Rewrites the config on leaves of which a label is damaged. Returns bytes. Only for who has
    /// the turn of acts.
    async fn examine_labels(&self) -> u64 {
        let tree = self.tree();
        let mut repaired_bytes = 0;
        for leaf in tree.data().flat_map(|vdev| vdev.online()) {
            let damaged = match label_io::read_labels_of(leaf).await {
                Ok(labels) => u64::from(labels.damaged),
                Err(LabelError::Disk(_)) => continue,
                Err(_) => LABELS,
            };
            if damaged == 0 {
                continue;
            }
            if let Ok(true) = label_io::write_config(leaf, &tree.config).await {
                leaf.counters.repaired.fetch_add(damaged, Ordering::Relaxed);
                repaired_bytes += damaged * 4096;
            }
        }
        repaired_bytes
    }

    /// The records that a root in the uberblock needs: its own, and those of its window.
    pub(crate) async fn live_records(&self) -> Result<Vec<RecordPointer>, PoolError> {
        let roots = self.uberblock_roots().await;
        let mut live: Vec<RecordPointer> = Vec::new();
        let mut back_to = Txg(u64::MAX);
        for root in roots.iter().flatten() {
            live.push(*root);
            if let Some(record) = self.read_live_record(root).await? {
                back_to = back_to.min(record.window_start).min(root.txg);
            }
        }
        let [mut next, ..] = roots;
        while let Some(pointer) = next.filter(|pointer| pointer.txg >= back_to) {
            if !live.contains(&pointer) {
                live.push(pointer);
            }
            let Some(record) = self.read_live_record(&pointer).await? else { break };
            next = record.previous;
        }
        Ok(live)
    }

    /// `None` if no copy of it verifies.
    async fn read_live_record(
        &self,
        pointer: &RecordPointer,
    ) -> Result<Option<TxgRecord>, PoolError> {
        let pages = self.read_live(pointer).await?;
        Ok(pages.and_then(|pages| TxgRecord::decode(&bytes_of(&pages)).ok()))
    }

    /// A live record from a copy that verifies, if any does.
    pub(crate) async fn read_live(
        &self,
        pointer: &RecordPointer,
    ) -> Result<Option<Vec<Page>>, PoolError> {
        let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == pointer.checksum;
        let sectors = usize::try_from(pointer.sectors).unwrap_or(0);
        for place in pointer.copies() {
            let read = self.vdev(place)?.read_good(place.sector(), sectors, &verify).await;
            if let Ok(good) = read {
                return Ok(Some(good.pages));
            }
        }
        Ok(None)
    }

    /// All metaslabs of the pool.
    pub(crate) fn metaslabs(&self) -> Vec<MetaslabId> {
        let of = |vdev: &Arc<Vdev>| {
            let vdev_index = vdev.index;
            let ids = 0..vdev.geometry.metaslabs();
            ids.map(move |index| MetaslabId { vdev: vdev_index, index }).collect::<Vec<_>>()
        };
        self.tree().data().flat_map(of).collect()
    }

    /// Examines the same content at several places, and mends it.
    async fn examine_copies(
        &self,
        places: &[Place],
        sectors: usize,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
    ) -> Result<Examined, PoolError> {
        let mut examined =
            Examined { examined_bytes: (sectors * 4096) as u64, ..Examined::default() };
        let (mut good, mut bad) = (None, Vec::new());
        for place in places {
            let vdev = self.vdev(*place)?;
            vdev.check()?;
            let verify = |_, pages: &[Page]| verify(pages);
            let found = vdev.examine(place.sector(), sectors, &[(0, sectors)], &verify).await;
            for copies in found {
                bad.extend(copies.bad.into_iter().map(|leaf| (vdev.clone(), *place, leaf)));
                good = good.or(copies.good);
            }
        }
        let Some(good) = good else { return Ok(examined) };
        for (vdev, place, leaf) in bad {
            vdev.repair(&leaf, place.sector(), &good).await;
            examined.repaired_bytes += (sectors * 4096) as u64;
        }
        Ok(examined)
    }
}
