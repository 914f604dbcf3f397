//! Acts on pools: create, export, destroy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use aquifer_api::{
    AddVdevs, ApiError, CreatePool, DestroyPool, DroppedLog, ExportPool, PoolCreated, PoolDone,
    guid_text,
};
use aquifer_blockio::TokioWorld;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::PoolConfig;
use aquifer_pool::create::{PoolSpec, check_pool_name, create};
use aquifer_pool::import::ImportOptions;
use aquifer_pool::{ActError, Pool};
use aquifer_vdev::label_io::erase_labels;
use tokio::runtime::Handle;

use super::add::{Beside, add_beside};
use super::datasets::act_on;
use super::forced::SILENT;
use super::history::Leaving;
use super::serving::{Serving, close};
use super::vdevs::on_pool;
use super::{Control, Listed, State, errors, layout, properties, still_importing};
use crate::cache::CachedPool;
use crate::devices::{Claimed, Identity, OpenDisk, all_paths, while_they_answer};

impl Control {
    /// Makes a pool, imports it and sets the properties of its own dataset.
    ///
    /// # Errors
    /// Any reason to refuse a disk; nothing was written then.
    pub async fn create_pool(&self, request: CreatePool) -> Result<PoolCreated, ApiError> {
        let CreatePool { name, vdevs, logs, spares, caches, properties, force, .. } = request;
        let CreatePool { dry_run, create_bytes, held_until_s, .. } = request;
        let wanted =
            AddVdevs { vdevs, logs, spares, caches, force, dry_run, create_bytes, held_until_s };
        check_pool_name(&name).map_err(|error| ApiError::invalid(error.to_string()))?;
        let _act = self.turn(&name, "pool create").await?;
        self.check_name_is_free(&name, None)?;
        if wanted.vdevs.is_empty() {
            return Err(ApiError::invalid(
                "a pool needs at least one disk beside those of the log",
            ));
        }
        layout::check(std::iter::empty(), 0, &wanted)?;
        properties::check_new(&name, &properties, &self.config.peers)?;
        let (mut taken, mut created) = self.take_wanted(&name, &wanted).await?;
        if wanted.dry_run {
            return Ok(created);
        }
        let mut disks = taken.opened();
        let caches = disks.split_off(disks.len() - wanted.caches.len());
        let spares = disks.split_off(disks.len() - wanted.spares.len());
        let config = while_they_answer(&disks, format(name.clone(), wanted, disks.clone())).await;
        // If they do not answer they may still be written to.
        taken.keep();
        let config = config.map_err(|silent| {
            silent.error("the pool is not made. Labels of it may be on them when they answer")
        })??;
        let unimported =
            |error: ApiError| ApiError::failed(format!("pool {name:?} was made, but: {error}"));
        let claimed = Claimed::of(config.pool_guid, disks).await.map_err(unimported)?;
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
            if let Err(error) = add_beside(&serving, beside, disk, force).await {
                created.notes.push(error.to_string());
            }
        }
        created.notes.extend(self.list_anew(&serving));
        let guid = guid_text(config.pool_guid.0);
        tracing::info!(class = "pool.created", pool = %created.name, %guid, "pool created");
        created.notes.extend(self.refresh_exports().await);
        Ok(created)
    }

    /// Keeps a notice of a loss until somebody clears it.
    pub(super) fn note_dropped(&self, guid: String, dropped: DroppedLog) {
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
        let _act = self.turn(name, "pool export").await?;
        self.check_answers(name)?;
        let (disks, notes) = self.withdraw(name, leaving).await?;
        close(disks.unwrap_or_default()).await;
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
        let _act = self.turn(name, "pool clear").await?;
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
        if request.confirm != name {
            return Err(ApiError::refused(format!(
                "destroying {name:?} loses everything in it; it must be confirmed by its name"
            )));
        }
        let (_act, serving) = self.act(name, "pool destroy").await?;
        serving.service().datasets.check_no_hold_with_end().map_err(errors::api_error)?;
        drop(serving);
        let guid = self.listed(name)?.cached.guid;
        let (disks, notes) = self.withdraw(name, leaving).await?;
        self.dropped_logs.lock().remove(&guid);
        // Off the list first. A daemon that is killed now leaves a pool that can be imported, and
        // not a list with a pool that is half erased.
        self.store()?;
        let Some(disks) = disks else {
            return Err(ApiError::failed(format!(
                "the pool is out of service, and not destroyed: an import finds it again. {}",
                notes.join("\n")
            )));
        };
        let failed = while_they_answer(&disks, erase(disks.clone())).await;
        let failed = failed.map_err(|silent| {
            silent.error("the pool was exported, and labels of it may stay on them")
        })?;
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

    /// Takes a pool out of service; returns its disks, still open; `None`: they do not answer, and
    /// are left behind.
    async fn withdraw(
        &self,
        name: &str,
        leaving: &Leaving,
    ) -> Result<(Option<Vec<OpenDisk>>, Vec<String>), ApiError> {
        let Listed { state, .. } = self.listed(name)?;
        if matches!(state, State::Importing) {
            return Err(still_importing(name));
        }
        self.pools.write().remove(name);
        let State::Serving(serving) = state else {
            let note = format!("{name}: was not in service; it is only taken off the list");
            return Ok((Some(Vec::new()), vec![note]));
        };
        let mut notes = self.refresh_exports().await;
        notes.extend(self.end_locks_of(&serving));
        if let Some(noting) = leaving.take() {
            self.note_end(noting, Ok(()), Vec::new());
        }
        let exported = serving.unless_silent(serving.export()).await;
        let clean = exported.as_ref().is_ok_and(Option::is_none);
        tracing::info!(class = "pool.exported", pool = name, clean, "pool exported");
        let Ok(unclean) = exported else {
            notes.extend(self.leave_behind(serving, SILENT).await);
            return Ok((None, notes));
        };
        self.release_frontend().await;
        if let Some(error) = unclean {
            notes.push(format!(
                "{name}: {error}; it is let go without the mark of a clean export, and the next \
                 import replays its log"
            ));
        }
        Ok((Some(serving.let_go().await), notes))
    }

    /// Imports a pool, and puts it on the list.
    pub(super) async fn bring_up(
        &self,
        name: &str,
        guid: Guid,
        claimed: Claimed,
        options: ImportOptions,
    ) -> Result<Arc<Serving>, ApiError> {
        let disks = all_paths(&claimed.leaves);
        let serving = Arc::new(self.import_disks((name, guid), claimed, options).await?);
        let (name, guid) = (name.to_string(), guid_text(guid.0));
        let cached = CachedPool { name, guid, disks, whole: None, two_persons: None };
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
    pub(super) fn check_name_is_free(&self, name: &str, own: Option<Guid>) -> Result<(), ApiError> {
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
}

/// Erases labels. Returns what failed.
async fn erase(disks: Vec<OpenDisk>) -> Vec<String> {
    let mut failed = Vec::new();
    for disk in &disks {
        if let Err(error) = erase_labels(&disk.named().disk).await {
            failed.push(format!("{}: {error}", disk.path));
        }
    }
    failed
}

/// Writes labels, first txg record and first uberblock.
async fn format(
    name: String,
    wanted: AddVdevs,
    disks: Vec<OpenDisk>,
) -> Result<PoolConfig, ApiError> {
    let mut disks = disks.iter().map(OpenDisk::named);
    let spec = PoolSpec {
        name: name.clone(),
        vdevs: layout::specs(&wanted.vdevs, &mut disks),
        logs: layout::specs(&wanted.logs, &mut disks),
        force: wanted.force,
    };
    let world = Arc::new(TokioWorld::new(Handle::current()));
    create(world, spec).await.map_err(|error| match error {
        ActError::BadConfig(_) => ApiError::invalid(error.to_string()),
        ActError::BadDisk { .. } => ApiError::refused(error.to_string()),
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
