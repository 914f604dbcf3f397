//! Shares of the free space: what datasets take, what is kept free for them, and what a reservation
//! that is to be set would keep.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::DatasetId;
use aquifer_pool::PoolError;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::Property;
use crate::refreserved::TREES_SHARE;
use crate::tree::children_first;

/// Requested sizes of `reservation` and `refreservation`. `None`: as it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub reservation: Option<u64>,
    pub refreservation: Option<u64>,
}

impl Sizes {
    /// Whether any is requested.
    pub fn are_any(self) -> bool {
        self.reservation.is_some() || self.refreservation.is_some()
    }

    /// Returns the bytes that these sizes keep for a dataset that has nothing: the larger of the
    /// two.
    fn bytes(self) -> u64 {
        self.reservation.unwrap_or(0).max(self.refreservation.unwrap_or(0))
    }

    fn property(self) -> Property {
        match self.refreservation {
            Some(_) => Property::Refreservation,
            None => Property::Reservation,
        }
    }
}

/// For whom they are requested.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// For this dataset, instead of its present ones, with this quota of its own.
    Of(DatasetId, Sizes, Option<u64>),
    /// For a new one below this.
    Below(DatasetId, Sizes),
}

impl Wanted {
    fn sizes(self) -> Sizes {
        match self {
            Wanted::Of(_, sizes, _) | Wanted::Below(_, sizes) => sizes,
        }
    }
}

/// See [`Datasets::room`].
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// By each dataset and all below it, with what is promised.
    pub taken: BTreeMap<DatasetId, u64>,
    /// Bytes that `refreservation` keeps free for each dataset and all below it.
    pub lacks: BTreeMap<DatasetId, u64>,
    /// Promised to writes that are not on disk.
    promised: u64,
    /// Bytes that are kept free for data.
    kept: u64,
    /// And for trees.
    trees: u64,
}

impl Room {
    /// Bytes of free space that are promised or kept for data.
    pub fn of_data(&self) -> u64 {
        self.promised.saturating_add(self.kept)
    }

    /// Returns the bytes of free space that are promised, or kept for data or for trees.
    pub fn spoken_for(&self) -> u64 {
        self.of_data().saturating_add(self.trees)
    }

    /// Whether anything is kept.
    pub fn keeps_any(&self) -> bool {
        self.kept > 0 || self.trees > 0
    }

    /// Returns the bytes that a dataset and all below it take of a quota.
    pub fn claimed(&self, id: DatasetId) -> u64 {
        let of = |map: &BTreeMap<DatasetId, u64>| map.get(&id).copied().unwrap_or(0);
        of(&self.taken).saturating_add(of(&self.lacks))
    }
}

impl Datasets {
    /// Sums what datasets take and what is kept for them. Reservations of those in `line` are not
    /// counted, nor what is kept for the `writer` alone, unless a snapshot of it is about to be
    /// taken. It is as if a dataset already had the `wanted` sizes.
    pub(crate) fn room(
        &self,
        line: &BTreeSet<DatasetId>,
        wanted: Option<Wanted>,
        writer: Option<&Dataset>,
    ) -> Room {
        let mut room = Room::default();
        // Room that a child keeps counts within the room that its parent keeps.
        let mut below: BTreeMap<DatasetId, u64> = BTreeMap::new();
        if let Some(Wanted::Below(parent, sizes)) = wanted {
            below.insert(parent, sizes.bytes());
            let lacks = sizes.refreservation.unwrap_or(0);
            room.lacks.insert(parent, lacks);
            room.trees = lacks / TREES_SHARE;
        }
        room.taken.extend(self.hidden_space().into_iter().map(|(id, of)| (id, of.bytes)));
        let mut done = BTreeSet::new();
        for dataset in children_first(self.keeping()) {
            let id = dataset.id;
            done.insert(id);
            let promised = dataset.promised_bytes();
            room.promised = room.promised.saturating_add(promised);
            let taken = room.taken.entry(id).or_default();
            *taken = taken.saturating_add(dataset.own_bytes()).saturating_add(promised);
            let taken = *taken;
            let sizes = match wanted {
                Some(Wanted::Of(of, sizes, _)) if of == id => sizes,
                _ => Sizes::default(),
            };
            let refreserved = sizes.refreservation.unwrap_or_else(|| dataset.refreserved_bytes());
            room.trees = room.trees.saturating_add(refreserved / TREES_SHARE);
            let is_writers = writer.is_some_and(|of| of.id == id) && !dataset.is_asked();
            let lacks = if is_writers { 0 } else { dataset.lacking_for(refreserved) };
            let lacks_below = room.lacks.entry(id).or_default();
            *lacks_below = lacks_below.saturating_add(lacks);
            let lacks_below = *lacks_below;
            let mut kept = below.remove(&id).unwrap_or(0).saturating_add(lacks);
            if !line.contains(&id) {
                let reserved = sizes.reservation.unwrap_or_else(|| dataset.reserved_bytes());
                kept = kept.max(reserved.saturating_sub(taken));
            }
            let parent = dataset.record.lock().parent;
            // A hostile namespace may have a dataset below itself.
            if done.contains(&parent) || parent.0 == 0 || dataset.is_destroyed() {
                room.kept = room.kept.saturating_add(kept);
                continue;
            }
            for (sums, more) in
                [(&mut room.taken, taken), (&mut room.lacks, lacks_below), (&mut below, kept)]
            {
                let above = sums.entry(parent).or_default();
                *above = above.saturating_add(more);
            }
        }
        let orphaned = below.into_values();
        room.kept = orphaned.fold(room.kept, u64::saturating_add);
        if left_out(Rule::ReservationsAreKept) {
            (room.kept, room.trees) = (0, 0);
        }
        room
    }

    /// Commits to make room for a reservation that has too little.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn make_room(&self, wanted: Wanted) -> Result<(), PoolError> {
        self.commit_while(|| self.lacking_bytes(wanted) > 0).await
    }

    /// Fails if there is too little free space for a reservation. If it succeeds, and the
    /// reservation comes into force before the lock of promises is released, the space stays free.
    pub(crate) fn check_reservation(&self, wanted: Wanted) -> Result<(), DatasetError> {
        // From here on every promise takes reservations into account.
        self.limited.store(true, Ordering::SeqCst);
        let lacking = self.lacking_bytes(wanted);
        if lacking == 0 {
            return Ok(());
        }
        self.refresh_properties();
        let sizes = wanted.sizes();
        Err(DatasetError::BadProperty {
            property: sizes.property().name().into(),
            why: format!("{lacking} of {} bytes cannot be kept free", sizes.bytes()),
        })
    }

    /// Bytes that a reservation lacks.
    pub(crate) fn lacking_bytes(&self, wanted: Wanted) -> u64 {
        let sizes = wanted.sizes();
        let of = match wanted {
            Wanted::Of(id, ..) => self.by_id(id),
            Wanted::Below(..) => None,
        };
        let held = of.as_ref().map_or(0, |of| of.reserved_bytes());
        let refheld = of.as_ref().map_or(0, |of| of.refreserved_bytes());
        let is_less = |wanted: Option<u64>, held: u64| wanted.is_none_or(|wanted| wanted <= held);
        // A change that takes no space from others always succeeds.
        if is_less(sizes.reservation, held) && is_less(sizes.refreservation, refheld) {
            return 0;
        }
        let room = self.room(&BTreeSet::new(), Some(wanted), None);
        let lacking = room.spoken_for().saturating_sub(self.pool.writable_bytes());
        lacking.max(self.over_quotas(wanted, &room))
    }

    /// By how much a request goes beyond quotas.
    fn over_quotas(&self, wanted: Wanted, room: &Room) -> u64 {
        let (Wanted::Of(id, ..) | Wanted::Below(id, _)) = wanted;
        let Some(dataset) = self.by_id(id) else { return 0 };
        let above = self.line_of(&dataset);
        let reserved = wanted.sizes().reservation.unwrap_or(0);
        let own = match wanted {
            Wanted::Of(..) => self.used_bytes(&dataset),
            Wanted::Below(..) => 0,
        };
        let over = self.living().into_iter().filter(|of| above.contains(&of.id)).map(|of| {
            let quota = match wanted {
                Wanted::Of(id, _, quota) if id == of.id => quota?,
                _ => of.properties().quota_bytes?,
            };
            let left = quota.saturating_sub(self.used_bytes(&of).saturating_sub(own));
            let claimed = match wanted.sizes().refreservation {
                Some(_) => room.claimed(of.id),
                None => 0,
            };
            Some(reserved.saturating_sub(left).max(claimed.saturating_sub(quota)))
        });
        over.flatten().max().unwrap_or(0)
    }
}
