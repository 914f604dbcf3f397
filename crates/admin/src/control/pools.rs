//! Acts on pools: create, import, export, destroy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_api::{
    AddVdevs, ApiError, CreatePool, DestroyPool, DroppedLog, ExportPool, ImportRequest,
    PoolCreated, PoolDone, ScanRequest, ScanResult, guid_text,
};
use aquifer_blockio::TokioWorld;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::PoolConfig;
use aquifer_pool::create::{PoolSpec, check_pool_name, create};
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{ImportError, Pool};
use aquifer_vdev::label_io::erase_labels;
use tokio::runtime::Handle;

use super::add::{Beside, add_beside};
use super::datasets::act_on;
use super::history::Leaving;
use super::serving::{Serving, close};
use super::vdevs::on_pool;
use super::{Control, Listed, State, layout, properties, still_importing};
use crate::cache::CachedPool;
use crate::devices::{
    Claimed, Identity, OpenDisk, Search, Sought, all_paths, claim, found_pool, search,
};

impl Control {
    /// Makes a pool, imports it and sets the properties of its own dataset.
    ///
    /// # Errors
    /// Any reason to refuse a disk; nothing was written then.
    pub async fn create_pool(&self, request: CreatePool) -> Result<PoolCreated, ApiError> {
        let _act = self.act().await?;
        let CreatePool { name, vdevs, logs, spares, caches, properties, force, .. } = request;
        let CreatePool { dry_run, create_bytes, held_until_s, .. } = request;
        let wanted =
            AddVdevs { vdevs, logs, spares, caches, force, dry_run, create_bytes, held_until_s };
        check_pool_name(&name).map_err(|error| ApiError::invalid(error.to_string()))?;
        self.check_name_is_free(&name, None)?;
        if wanted.vdevs.is_empty() {
            return Err(ApiError::invalid(
                "a pool needs at least one disk beside those of the log",
            ));
        }
        layout::check(std::iter::empty(), 0, &wanted)?;
        for (property, value) in &properties {
            properties::check(&name, property, value, &self.config.peers)?;
        }
        let (mut taken, mut created) = self.take_wanted(&name, &wanted).await?;
        if wanted.dry_run {
            return Ok(created);
        }
        let mut disks = taken.opened();
        let caches = disks.split_off(disks.len() - wanted.caches.len());
        let spares = disks.split_off(disks.len() - wanted.spares.len());
        let config = format(&name, &wanted, &disks).await?;
        taken.keep();
        let unimported =
            |error: ApiError| ApiError::failed(format!("pool {name:?} was made, but: {error}"));
        let claimed = Claimed::of(config.pool_guid, disks).await;
        let claimed = claimed.ok_or_else(|| ApiError::failed("its labels are not found"));
        let claimed = claimed.map_err(unimported)?;
        let options = self.import_options();
        let serving = self.bring_up(&name, config.pool_guid, claimed, options).await;
        let serving = serving.map_err(unimported)?;
        created.notes.extend(self.look_up_hosts(&created.name, properties.iter()).await);
        if let Err(error) = set_on_root(&serving, properties).await {
            created.notes.push(error.to_string());
        }
        for (beside, disk) in Beside::all(spares, caches) {
            if let Err(error) = add_beside(&serving, beside, disk, wanted.force).await {
                created.notes.push(error.to_string());
            }
        }
        created.notes.extend(self.list_anew(&serving));
        let guid = guid_text(config.pool_guid.0);
        tracing::info!(class = "pool.created", pool = %created.name, %guid, "pool created");
        created.notes.extend(self.refresh_exports().await);
        Ok(created)
    }

    /// The pools that could be imported.
    ///
    /// # Errors
    /// None at present: the answer names the disks that could not be read.
    pub async fn scan(&self, request: ScanRequest) -> Result<ScanResult, ApiError> {
        let found = search(self.sought(request.places)).await;
        let here: Vec<String> = {
            let pools = self.pools.read();
            let there = pools.values().filter(|listed| !matches!(listed.state, State::Unavail(_)));
            there.map(|listed| listed.cached.guid.clone()).collect()
        };
        let pools = found.pools.iter().filter(|(guid, _)| !here.contains(&guid_text(guid.0)));
        Ok(ScanResult {
            pools: pools.map(|(guid, leaves)| found_pool(*guid, leaves)).collect(),
            refused: found.refused,
        })
    }

    /// Brings a pool into service.
    ///
    /// # Errors
    /// The pool is not found, ambiguous, in use, or damaged.
    pub async fn import_pool(&self, request: ImportRequest) -> Result<PoolDone, ApiError> {
        let _act = self.act().await?;
        if request.new_name.is_none() {
            self.check_not_imported(&request.pool)?;
        }
        let mut found = search(self.sought(request.places)).await;
        let guid = found.pool(&request.pool)?;
        self.check_not_imported(&guid_text(guid.0))?;
        self.check_not_left(guid)?;
        let leaves = found.pools.remove(&guid).unwrap_or_default();
        let found_name = found_pool(guid, &leaves).name;
        let new_name = request.new_name.filter(|new| *new != found_name);
        let name = new_name.clone().unwrap_or_else(|| found_name.clone());
        check_pool_name(&name).map_err(|error| ApiError::invalid(error.to_string()))?;
        self.check_name_is_free(&name, Some(guid))?;
        let paths = Search::paths(&leaves);
        drop((leaves, found));
        let mut claimed = claim(guid, paths.clone()).await?;
        let mut options = ImportOptions {
            rewind: request.rewind,
            discard_log: request.discard_log,
            missing_log: request.missing_log,
            discard_unreadable: request.discard_unreadable,
            take_over: request.force,
            use_offline: request.use_offline,
            old_config: request.old_config,
            ..self.import_options()
        };
        let (mut notes, mut dropped_log) = (Vec::new(), None);
        if new_name.is_some() {
            let limited = (options, self.config.host_limits);
            let renamed = Serving::bring_up(&found_name, claimed, limited).await?;
            (notes, dropped_log) = self.rename_and_leave(renamed, guid, &name).await?;
            (claimed, options) = (claim(guid, paths).await?, self.import_options());
        }
        let serving = self.bring_up(&name, guid, claimed, options).await?;
        notes.extend_from_slice(serving.import_notes());
        dropped_log = dropped_log.or_else(|| serving.dropped_log().cloned());
        notes.extend(dropped_log.as_ref().map(DroppedLog::to_string));
        tracing::info!(class = "pool.imported", pool = %name, ?notes, "pool imported");
        notes.extend(self.refresh_exports().await);
        Ok(PoolDone { name, notes, dropped_log })
    }

    /// Gives a pool that nobody was offered yet another name, and lets it go: the import that
    /// follows finds it under that. A crash in between leaves it under the one name or the other.
    async fn rename_and_leave(
        &self,
        serving: Serving,
        guid: Guid,
        name: &str,
    ) -> Result<(Vec<String>, Option<DroppedLog>), ApiError> {
        let (serving, new) = (Arc::new(serving), name.to_string());
        let notes = serving.import_notes().to_vec();
        let dropped_log = serving.dropped_log().cloned();
        if let Some(dropped) = dropped_log.clone() {
            self.note_dropped(guid_text(guid.0), dropped);
        }
        let datasets = serving.service().datasets.clone();
        let renamed = act_on(&serving, async move { datasets.rename_pool(&new).await }).await;
        let unclean = serving.export().await;
        close(serving.let_go().await).await;
        renamed?;
        match unclean {
            Some(error) => Err(ApiError::failed(format!(
                "the pool is named {name:?} now, and could not be let go for its import: {error}. \
                 Import it under that name"
            ))),
            None => Ok((notes, dropped_log)),
        }
    }

    /// Keeps a notice of a loss until somebody clears it.
    fn note_dropped(&self, guid: String, dropped: DroppedLog) {
        let mut all = self.dropped_logs.lock();
        let dropped = match all.remove(&guid) {
            Some(before) => dropped.with(before),
            None => dropped,
        };
        all.insert(guid, dropped);
    }

    /// Takes a pool out of service, cleanly, and off the list.
    ///
    /// # Errors
    /// There is none of this name, or the list cannot be written.
    pub async fn export_pool(
        &self,
        name: &str,
        request: ExportPool,
        leaving: &Leaving,
    ) -> Result<PoolDone, ApiError> {
        if request.force {
            return self.export_by_force(name, leaving).await;
        }
        let _act = self.act().await?;
        let (disks, notes) = self.withdraw(name, leaving).await?;
        close(disks).await;
        self.store()?;
        Ok(PoolDone::new(name, notes))
    }

    /// Fails if snapshots of a pool are held until a time: out of service, its disks are anybody's
    /// who may write to them, so only an administrator takes it out.
    ///
    /// # Errors
    /// The first one that is held.
    pub fn check_export_of_held(&self, name: &str) -> Result<(), ApiError> {
        let Ok(serving) = self.serving(name) else { return Ok(()) };
        let held = serving.service().datasets.check_no_hold_with_end();
        held.map_err(|error| {
            ApiError::forbidden(format!(
                "{error}. To take the pool out of service needs the role admin then: no hold \
                 protects disks of which no pool is in service"
            ))
        })
    }

    /// Clears a pool's notice of a loss, which somebody has read, and the errors of its disks.
    ///
    /// # Errors
    /// There is none of this name, or the list cannot be written: the notice stays then.
    pub async fn clear_pool(&self, name: &str) -> Result<PoolDone, ApiError> {
        let _act = self.act().await?;
        let listed = self.listed(name)?;
        let guid = listed.cached.guid.clone();
        let cleared = self.dropped_logs.lock().remove(&guid);
        if let Some(cleared) = cleared {
            if let Err(error) = self.store() {
                self.dropped_logs.lock().insert(guid, cleared);
                return Err(error);
            }
            tracing::info!(class = "pool.cleared", pool = %name, notice = %cleared, "cleared");
        }
        if let Ok(serving) = self.serving(name) {
            let clear = async move |pool: Arc<Pool>| {
                pool.clear_errors(None);
                Ok(())
            };
            on_pool(&serving, clear).await?;
        }
        let is_looked_for = self.look_at_once(&listed);
        let note = format!(
            "{name}: is without its disks, which are looked for now; `aquifer pool status {name}` \
             shows what it waits for"
        );
        Ok(PoolDone::new(name, Vec::from_iter(is_looked_for.then_some(note))))
    }

    /// Exports a pool and blanks its labels.
    ///
    /// # Errors
    /// The name was not confirmed, the pool is not in service, or a disk cannot be written.
    pub async fn destroy_pool(
        &self,
        name: &str,
        request: DestroyPool,
        leaving: &Leaving,
    ) -> Result<PoolDone, ApiError> {
        let _act = self.act().await?;
        if request.confirm != name {
            return Err(ApiError::refused(format!(
                "destroying {name:?} loses everything in it; it must be confirmed by its name"
            )));
        }
        let datasets = self.serving(name)?.service().datasets.clone();
        datasets.check_no_hold_with_end().map_err(properties::api_error)?;
        let guid = self.listed(name)?.cached.guid;
        let (disks, notes) = self.withdraw(name, leaving).await?;
        self.dropped_logs.lock().remove(&guid);
        // Off the list first. A daemon that is killed now leaves a pool that can be imported, and
        // not a list with a pool that is half erased.
        self.store()?;
        let mut failed = Vec::new();
        for disk in &disks {
            if let Err(error) = erase_labels(&disk.named().disk).await {
                failed.push(format!("{}: {error}", disk.path));
            }
        }
        close(disks).await;
        tracing::info!(class = "pool.destroyed", pool = name, ?failed, "pool destroyed");
        if !failed.is_empty() {
            return Err(ApiError::failed(format!(
                "pool {name:?} was exported, but labels could not be erased: {}",
                failed.join("; ")
            )));
        }
        Ok(PoolDone::new(name, notes))
    }

    /// Takes a pool out of service; returns its disks, still open.
    async fn withdraw(
        &self,
        name: &str,
        leaving: &Leaving,
    ) -> Result<(Vec<OpenDisk>, Vec<String>), ApiError> {
        let Listed { state, .. } = self.listed(name)?;
        if matches!(state, State::Importing) {
            return Err(still_importing(name));
        }
        self.pools.write().remove(name);
        let State::Serving(serving) = state else {
            let note = format!("{name}: was not in service; it is only taken off the list");
            return Ok((Vec::new(), vec![note]));
        };
        let mut notes = self.refresh_exports().await;
        notes.extend(self.end_locks_of(&serving));
        if let Some(noting) = leaving.take() {
            self.note_end(noting, Ok(()), Vec::new());
        }
        let unclean = serving.export().await;
        self.frontend.release().await;
        tracing::info!(
            class = "pool.exported",
            pool = name,
            clean = unclean.is_none(),
            "pool exported"
        );
        if let Some(error) = unclean {
            notes.push(format!(
                "{name}: {error}; it is let go without the mark of a clean export, and the next \
                 import replays its log"
            ));
        }
        Ok((serving.let_go().await, notes))
    }

    /// Imports a pool, and puts it on the list.
    async fn bring_up(
        &self,
        name: &str,
        guid: Guid,
        claimed: Claimed,
        options: ImportOptions,
    ) -> Result<Arc<Serving>, ApiError> {
        let disks = all_paths(&claimed.leaves);
        let (name, guid) = (name.to_string(), guid_text(guid.0));
        let cached = CachedPool { name, guid, disks, whole: None };
        let serving = Arc::new(
            Serving::bring_up(&cached.name, claimed, (options, self.config.host_limits)).await?,
        );
        if let Some(dropped) = serving.dropped_log().cloned() {
            self.note_dropped(cached.guid.clone(), dropped);
        }
        self.put(cached, State::Serving(Arc::clone(&serving)));
        match self.store() {
            Ok(()) => Ok(serving),
            Err(error) => {
                // It is not on the list, so it must not stay in service: a restart would not bring
                // it back.
                self.pools.write().remove(serving.name());
                if let Some(error) = serving.export().await {
                    tracing::error!(pool = %serving.name(), %error, "pool not exported cleanly");
                }
                close(serving.let_go().await).await;
                Err(error)
            }
        }
    }

    /// The places to search for pools: the usual ones, and the disks of the pools on the list.
    fn sought(&self, places: Vec<PathBuf>) -> Sought {
        if !places.is_empty() {
            return Sought::Places(places);
        }
        let pools = self.pools.read();
        let absent = pools.values().filter(|listed| matches!(listed.state, State::Unavail(_)));
        Sought::Usual(absent.flat_map(|listed| listed.cached.disks.clone()).collect())
    }

    /// The disks of all pools in service, with the pools' names.
    pub(super) fn disks_in_use(&self) -> Vec<(Identity, String)> {
        let pools = self.pools.read();
        let serving = pools.values().filter_map(Listed::serving);
        let disks = serving.flat_map(|serving| {
            let name = serving.name();
            // What is open, not what lies at its path by now: that may be another disk.
            serving.disks().into_iter().filter_map(move |disk| {
                Some((Identity::of_opened(&disk.file).ok()?, name.to_string()))
            })
        });
        let left = self.remnants().into_iter().flat_map(|remnant| {
            let identity = |path: &String| Identity::of(Path::new(path)).ok();
            let held: Vec<_> = remnant.holds().iter().filter_map(identity).collect();
            held.into_iter().map(move |identity| (identity, remnant.name.clone()))
        });
        disks.chain(left).collect()
    }

    /// Checks that no other pool has this name. A pool on the list whose import failed keeps its
    /// name, unless it is this very one.
    fn check_name_is_free(&self, name: &str, own: Option<Guid>) -> Result<(), ApiError> {
        let pools = self.pools.read();
        let Some(listed) = pools.get(name) else { return Ok(()) };
        if own.is_some_and(|own| guid_text(own.0) == listed.cached.guid) {
            return Ok(());
        }
        Err(ApiError::conflict(match &listed.state {
            State::Unavail(why) => format!(
                "a pool {name:?} is on the list, and could not be imported ({why}); `aquifer pool \
                 export {name}` takes it off"
            ),
            _ => format!("pool {name:?} exists already; choose another name, or export it first"),
        }))
    }

    /// Checks that no pool in service, or about to be, has this name or guid.
    fn check_not_imported(&self, wanted: &str) -> Result<(), ApiError> {
        let pools = self.pools.read();
        let mut same = pools
            .values()
            .filter(|listed| listed.cached.name == wanted || listed.cached.guid == wanted);
        match same.next() {
            None | Some(Listed { state: State::Unavail(_), .. }) => Ok(()),
            Some(Listed { state: State::Importing, .. }) => Err(still_importing(wanted)),
            Some(Listed { cached, .. }) => {
                Err(ApiError::conflict(format!("pool {:?} is imported already", cached.name)))
            }
        }
    }
}

/// Writes labels, first txg record and first uberblock.
async fn format(name: &str, wanted: &AddVdevs, disks: &[OpenDisk]) -> Result<PoolConfig, ApiError> {
    let mut disks = disks.iter().map(OpenDisk::named);
    let spec = PoolSpec {
        name: name.into(),
        vdevs: layout::specs(&wanted.vdevs, &mut disks),
        logs: layout::specs(&wanted.logs, &mut disks),
        force: wanted.force,
    };
    let world = Arc::new(TokioWorld::new(Handle::current()));
    create(world, spec).await.map_err(|error| match error {
        ImportError::BadConfig(_) => ApiError::invalid(error.to_string()),
        ImportError::BadDisk { .. } => ApiError::refused(error.to_string()),
        error => ApiError::failed(format!("pool {name:?} could not be made: {error}")),
    })
}

async fn set_on_root(
    serving: &Serving,
    properties: BTreeMap<String, String>,
) -> Result<(), ApiError> {
    let datasets = serving.service().datasets.clone();
    let name = serving.name().to_string();
    let all: Vec<_> = properties.into_iter().map(|(name, value)| (name, Some(value))).collect();
    act_on(serving, async move { datasets.set_all(&name, &all).await }).await
}
