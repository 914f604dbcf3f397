//! More room for a pool in service: vdevs that are added, and disks that have become larger.

use aquifer_api::{AddVdevs, ApiError, PoolCreated, VdevClass};
use aquifer_dataset::Property;
use aquifer_meter::size;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::VdevClass as Class;
use aquifer_pool::VdevStatus;
use aquifer_pool::create::VdevSpec;

use super::serving::Serving;
use super::vdevs::on_pool;
use super::{Control, layout};
use crate::devices::{OpenDisk, TakeRequest, Taken, take};

impl Control {
    /// Adds vdevs to a pool: for data, and for the log.
    ///
    /// # Errors
    /// Vdevs of another redundancy than the pool's without `force`, or any reason to refuse a disk.
    /// Nothing was written then.
    pub async fn add_vdevs(&self, name: &str, request: AddVdevs) -> Result<PoolCreated, ApiError> {
        let (_act, serving) = self.act(name, "pool add").await?;
        let beside = request.spares.is_empty() && request.caches.is_empty();
        if request.vdevs.is_empty() && request.logs.is_empty() && beside {
            return Err(ApiError::invalid("nothing is named that could be added"));
        }
        let status = serving.service().pool.status();
        let data = status.vdevs.iter().filter(|vdev| vdev.class == Class::Data);
        let present = data.map(|vdev: &VdevStatus| layout::kind(vdev.redundancy));
        let leaves = status.vdevs.iter().map(|vdev| vdev.leaves.len()).sum::<usize>();
        let beside = status.waiting_spares().count() + status.caches.len();
        layout::check(present, leaves + beside, &request)?;
        let (mut taken, mut added) = self.take_wanted(name, &request).await?;
        if request.dry_run {
            return Ok(added);
        }
        let mut opened = taken.opened();
        let caches = opened.split_off(opened.len() - request.caches.len());
        let spares = opened.split_off(opened.len() - request.spares.len());
        let mut disks = opened.iter().map(OpenDisk::named);
        let data = layout::specs(&request.vdevs, &mut disks);
        let logs = layout::specs(&request.logs, &mut disks);
        let data = data.into_iter().map(|spec| (VdevClass::Data, spec));
        for (class, spec) in data.chain(logs.into_iter().map(|spec| (VdevClass::Log, spec))) {
            let paths: Vec<String> = spec.disks.iter().map(|disk| disk.path.clone()).collect();
            add(&serving, class, spec, request.force).await?;
            // Each is the pool's own at once: a later one may be refused.
            taken.keep_made(&paths);
            let own = opened.iter().filter(|disk| paths.contains(&disk.path)).cloned();
            serving.take_disks(own.collect());
            added.notes.extend(self.list_anew(&serving));
            let disks = paths.join(", ");
            let (class, message) = match class {
                VdevClass::Log => ("log.added", "log device added"),
                VdevClass::Data => ("vdev.added", "vdev added"),
            };
            tracing::info!(class, pool = name, disks, "{message}");
        }
        for (beside, open) in Beside::all(spares, caches) {
            let disk = open.path.clone();
            add_beside(&serving, beside, open, request.force).await?;
            taken.keep_made(std::slice::from_ref(&disk));
            added.notes.extend(self.list_anew(&serving));
            let (class, message) = match beside {
                Beside::Spare => ("spare.added", "spare added"),
                Beside::Cache => ("cache.added", "cache disk added"),
            };
            tracing::info!(class, pool = name, disk, "{message}");
        }
        Ok(added)
    }

    /// Takes the disks of vdevs that are wanted for a pool. Returns them, and what comes of it.
    pub(super) async fn take_wanted(
        &self,
        name: &str,
        wanted: &AddVdevs,
    ) -> Result<(Taken, PoolCreated), ApiError> {
        let AddVdevs { vdevs, logs, spares, caches, .. } = wanted;
        let AddVdevs { force, dry_run, create_bytes, held_until_s, .. } = wanted;
        let taken = take(TakeRequest {
            disks: layout::disks(vdevs.iter().chain(logs), spares.iter().chain(caches)),
            force: *force,
            create_bytes: *create_bytes,
            dry_run: *dry_run,
            in_use: self.disks_in_use(),
            pool: name.into(),
            own: self.serving(name).ok().map(|serving| serving.service().pool.guid()),
            held_until_s: *held_until_s,
        });
        let taken = taken.await?;
        let mut takers = taken.disks.iter();
        let shown = PoolCreated {
            name: name.into(),
            dry_run: *dry_run,
            vdevs: layout::shown(vdevs, &mut takers),
            logs: layout::shown(logs, &mut takers),
            spares: layout::paths_shown(takers.by_ref().take(spares.len())),
            caches: layout::paths_shown(takers),
            notes: Vec::new(),
        };
        Ok((taken, shown))
    }
}

/// Lets a pool whose property `autoexpand` is on use disks that have become larger.
pub(super) async fn expand_grown(serving: &Serving) {
    let datasets = &serving.service().datasets;
    let own = datasets.by_name(serving.name());
    let is_on = own.is_some_and(|own| datasets.value(&own, Property::Autoexpand).0 == "on");
    if !is_on {
        return;
    }
    let vdevs = serving.service().pool.status().vdevs;
    for vdev in vdevs.iter().filter(|vdev| vdev.class == Class::Data) {
        let Some(leaf) = vdev.leaves.first() else { continue };
        if let Err(error) = expand(serving, leaf.guid, &leaf.path).await {
            tracing::debug!(pool = serving.name(), %error, "vdev does not grow");
        }
    }
}

async fn add(
    serving: &Serving,
    class: VdevClass,
    spec: VdevSpec,
    force: bool,
) -> Result<(), ApiError> {
    on_pool(serving, async move |pool| match class {
        VdevClass::Data => pool.add_data(&spec, force).await,
        VdevClass::Log => pool.add_log(&spec, force).await,
    })
    .await
}

/// Purpose of a disk beside the vdevs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// To take the place of another one.
    Spare,
    /// The read cache.
    Cache,
}

impl Beside {
    /// Disks with what they are for.
    pub fn all(
        spares: Vec<OpenDisk>,
        caches: Vec<OpenDisk>,
    ) -> impl Iterator<Item = (Beside, OpenDisk)> {
        let spares = spares.into_iter().map(|disk| (Beside::Spare, disk));
        spares.chain(caches.into_iter().map(|disk| (Beside::Cache, disk)))
    }
}

/// Makes a disk a spare or a cache disk of the pool.
pub(super) async fn add_beside(
    serving: &Serving,
    beside: Beside,
    disk: OpenDisk,
    force: bool,
) -> Result<(), ApiError> {
    let named = disk.named();
    on_pool(serving, async move |pool| match beside {
        Beside::Spare => pool.add_spare(named, force).await,
        Beside::Cache => pool.add_cache(named, force).await,
    })
    .await?;
    serving.take_disks(vec![disk]);
    Ok(())
}

/// Lets the vdev of a disk use all of its disks. Returns what came of it, for people.
pub(super) async fn expand(serving: &Serving, disk: Guid, path: &str) -> Result<String, ApiError> {
    let grown = on_pool(serving, async move |pool| pool.expand(&disk.to_string()).await).await?;
    if grown == 0 {
        return Ok(format!("{path}: its vdev cannot grow: its smallest disk has no more room"));
    }
    let (pool, by) = (serving.name(), size::human(grown * 4096));
    tracing::info!(class = "vdev.grown", pool, disk = path, by, "vdev has grown");
    Ok(format!("{path}: its vdev has grown by {by}"))
}
