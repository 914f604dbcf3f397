//! Descriptions of the disks of pools: looked at in the background, and told with their pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use aquifer_api::{ApiError, DiskInfo, guid_text};
use aquifer_ondisk::Guid;

use super::Control;
use super::serving::Serving;
use super::vdevs::{Member, member_named};
use crate::inventory::Asked;

impl Control {
    /// Asks what the disks of pools in service are, and for their health, as long as the daemon
    /// runs.
    pub async fn watch_disks(&self) {
        loop {
            let disks: Vec<Asked> =
                self.all_serving().iter().flat_map(|serving| asked(serving)).collect();
            self.inventory.identify(disks.clone(), self.listed_guids()).await;
            self.inventory.ask_health(&disks).await;
            self.inventory.next_look().await;
        }
    }

    /// Returns what is known of the disks of pools in service, by the disks' guids.
    pub fn disks(&self) -> BTreeMap<String, DiskInfo> {
        let pools = self.all_serving();
        let each = pools.iter().flat_map(|serving| self.inventory.of_pool(&pool_guid(serving)));
        each.map(|(guid, disk)| (guid_text(guid.0), disk)).collect()
    }

    /// Looks at the disks of a pool, and describes them.
    pub(super) async fn disks_of(&self, serving: &Serving) -> BTreeMap<Guid, DiskInfo> {
        self.inventory.identify(asked(serving), self.listed_guids()).await;
        self.inventory.of_pool(&pool_guid(serving))
    }

    /// Finds a disk: by its path or another name of it, by its guid, by the name of its vdev, or by
    /// what it is known as, even if it is gone: persistent name, serial number.
    pub(super) fn member(&self, serving: &Serving, name: &str) -> Result<Member, ApiError> {
        member_named(serving, name).or_else(|error| {
            let known = self.inventory.named(&pool_guid(serving), name);
            known.map_or(Err(error), |guid| member_named(serving, &guid_text(guid.0)))
        })
    }

    fn listed_guids(&self) -> BTreeSet<String> {
        self.pools.read().values().map(|listed| listed.cached.guid.clone()).collect()
    }
}

fn pool_guid(serving: &Serving) -> String {
    guid_text(serving.service().pool.guid().0)
}

/// The disks of a pool, for questions about them.
pub(super) fn asked(serving: &Serving) -> Vec<Asked> {
    let (pool, open) = (pool_guid(serving), serving.disks());
    let status = serving.service().pool.status();
    let of = |guid: Guid, path: &str| Asked {
        file: open
            .iter()
            .find(|disk| disk.path == path)
            .map_or_else(Weak::new, |disk| Arc::downgrade(&disk.file)),
        guid,
        path: path.into(),
        pool: pool.clone(),
    };
    let leaves = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let leaves = leaves.map(|leaf| of(leaf.guid, &leaf.path));
    let spares = status.waiting_spares().map(|spare| of(spare.guid, &spare.path));
    let caches = status.caches.iter().map(|cache| of(cache.leaf.guid, &cache.leaf.path));
    leaves.chain(spares).chain(caches).collect()
}
