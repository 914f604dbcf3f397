//! A new disk in the place of one that is gone replaces it by itself, with `autoreplace=on`.
//!
//! The place is the port that udev names (`ID_PATH`): a disk that is plugged into it has that port
//! too. The inventory remembers where a disk was.
//!
//! # Invariants
//! - Only a disk is replaced that holds data, is out of use and gone from its port, and was not
//!   taken offline. One that still sits there is not touched.
//! - Only a whole disk that a `pool replace` without `-f` takes comes in: nothing recognised is on
//!   it, no label of any pool either, and nobody uses it. It must be the only one at that port.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{ReplaceDisk, guid_text};
use aquifer_dataset::Property;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::VdevClass;
use aquifer_pool::LeafStatus;
use aquifer_vdev::LeafState;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Control;
use super::rounds::Round;
use super::serving::Serving;

/// New disks that were not taken, why, and when.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<HashMap<(Guid, String), (String, Instant)>>);

impl Refused {
    fn forget_old(&self) {
        self.0.lock().retain(|_, (_, at)| at.elapsed() < FORGET_AFTER);
    }

    /// Forgets the new disks that were refused for one that is gone: a disk that comes next is
    /// another one, even under the same name.
    fn forget(&self, gone: Guid) {
        self.0.lock().retain(|(disk, _), _| *disk != gone);
    }

    fn is_fresh(&self, key: &(Guid, String)) -> bool {
        self.0.lock().get(key).is_some_and(|(_, at)| at.elapsed() < AGAIN_AFTER)
    }

    /// Whether that is news.
    fn note(&self, key: (Guid, String), why: &str) -> bool {
        let before = self.0.lock().insert(key, (why.into(), Instant::now()));
        before.is_none_or(|(before, _)| before != why)
    }
}

impl Control {
    /// Lets new disks replace those that are gone, in pools whose property `autoreplace` is on, as
    /// long as the daemon runs.
    pub async fn replace_gone_disks(self: &Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            self.refused.forget_old();
            self.begin_round(Round::Replacing);
        }
    }

    pub(super) async fn replace_gone_in(&self, pool: &str) {
        let (away, known) = {
            let Ok(serving) = self.serving(pool) else { return };
            let away = if is_on(&serving) { away(&serving) } else { Vec::new() };
            if away.is_empty() {
                return;
            }
            let known = self.disks_of(&serving).await;
            (away, known)
        };
        for leaf in away {
            let gone = known.get(&leaf.guid).filter(|disk| disk.gone && disk.partition.is_none());
            let Some(port) = gone.and_then(|disk| disk.port.clone()) else { continue };
            let Some(new) = self.inventory.only_disk_at(port.clone()).await else {
                self.refused.forget(leaf.guid);
                continue;
            };
            if let Err(why) = self.replace_gone(pool, &leaf, &new).await {
                let disk = &leaf.path;
                tracing::warn!(
                    class = "disk.not_replaced",
                    pool,
                    disk,
                    new,
                    port,
                    why,
                    "a disk is gone, and the one in its place is not taken"
                );
            }
        }
    }

    /// Replaces a disk. It logs an error once for each new disk and reason.
    async fn replace_gone(&self, pool: &str, leaf: &LeafStatus, new: &str) -> Result<(), String> {
        let key = (leaf.guid, new.to_string());
        if self.refused.is_fresh(&key) {
            return Ok(());
        }
        let disk = guid_text(leaf.guid.0);
        let request = ReplaceDisk { disk, new: Some(new.into()), ..ReplaceDisk::default() };
        let Err(error) = self.replace_disk(pool, request).await else {
            tracing::warn!(
                class = "disk.autoreplaced", pool, leaf = %leaf.path, new,
                "a new disk takes the place of one that is gone"
            );
            return Ok(());
        };
        match self.refused.note(key, &error.message) {
            true => Err(error.message),
            false => Ok(()),
        }
    }
}

fn is_on(serving: &Serving) -> bool {
    let datasets = &serving.service().datasets;
    let own = datasets.by_name(serving.name());
    own.is_some_and(|own| datasets.value(&own, Property::Autoreplace).0 == "on")
}

/// Disks with data that are out of use, and not because somebody wants that.
fn away(serving: &Serving) -> Vec<LeafStatus> {
    let vdevs = serving.service().pool.status().vdevs.into_iter();
    let leaves = vdevs.filter(|vdev| vdev.class == VdevClass::Data).flat_map(|vdev| vdev.leaves);
    let is_away = |leaf: &LeafStatus| {
        let is_out =
            matches!(leaf.state, LeafState::Failed | LeafState::Outdated | LeafState::Missing);
        is_out && !leaf.offline
    };
    leaves.filter(is_away).collect()
}

/// How often it is looked whether a disk is gone.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A disk that was not taken is not tried again before.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// After this time it logs once more why it was not replaced.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
