//! Import: looking for pools, and bringing one into service.
//!
//! Invariant: nothing here waits for ever for a disk. A search passes over disks that do not
//! answer, and names them. An import whose disks fall silent is given up.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_api::{
    ApiError, DroppedLog, ImportRequest, PoolDone, ScanRequest, ScanResult, guid_text,
};
use aquifer_ondisk::Guid;
use aquifer_pool::create::check_pool_name;
use aquifer_pool::import::ImportOptions;

use super::datasets::act_on;
use super::forced::SILENT;
use super::serving::{Remnant, Serving, close};
use super::{Control, Listed, State, still_importing};
use crate::devices::{
    Claimed, Identity, Search, Silent, Sought, claim, found_pool, is_complete, search_answering,
    unanswering_error, while_they_answer,
};

impl Control {
    /// The pools that could be imported.
    ///
    /// # Errors
    /// None at present: the answer names the disks that could not be read.
    pub async fn scan(&self, request: ScanRequest) -> Result<ScanResult, ApiError> {
        let mut found = self.search(request.places).await;
        found.refused.extend(found.silent.iter().map(|path| unanswered_text(path)));
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
        self.check_goes_on()?;
        if request.new_name.is_none() {
            self.check_not_imported(&request.pool)?;
        } else if request.missing_vdev {
            let why = "a pool that is imported read-only keeps its name: import it without another";
            return Err(ApiError::invalid(why));
        }
        let mut found = self.search(request.places).await;
        let guid = self.found(&found, &request.pool)?;
        let leaves = found.pools.remove(&guid).unwrap_or_default();
        let found_name = found_pool(guid, &leaves).name;
        let new_name = request.new_name.filter(|new| *new != found_name);
        let name = new_name.clone().unwrap_or_else(|| found_name.clone());
        check_pool_name(&name).map_err(|error| ApiError::invalid(error.to_string()))?;
        // Not before: nobody waits for a search. What another act changed meanwhile is seen here,
        // or when the disks are claimed.
        let _act = self.turn(&name, "pool import").await?;
        self.check_not_imported(&guid_text(guid.0))?;
        self.check_not_left(guid)?;
        self.check_name_is_free(&name, Some(guid))?;
        let paths = Search::paths(&leaves);
        drop((leaves, found));
        let mut claimed = claim(guid, paths.clone()).await?;
        let mut options = ImportOptions {
            rewind: request.rewind,
            discard_log: request.discard_log,
            missing_log: request.missing_log,
            missing_vdev: request.missing_vdev,
            discard_unreadable: request.discard_unreadable,
            take_over: request.force,
            use_offline: request.use_offline,
            old_config: request.old_config,
            ..self.import_options()
        };
        let (mut notes, mut dropped_log) = (Vec::new(), None);
        if new_name.is_some() {
            let renamed = self.import_disks((&found_name, guid), claimed, options).await?;
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
        let rename = act_on(&serving, async move { datasets.rename_pool(&new).await });
        let end = async {
            let renamed = rename.await;
            (renamed, serving.export().await)
        };
        let (renamed, unclean) = match serving.unless_silent(end).await {
            Ok(ended) => ended,
            Err(disks) => {
                let notes = self.leave_behind(Arc::clone(&serving), SILENT).await.join("\n");
                let so = format!("the pool may have the new name already. {notes}");
                return Err(unanswering_error(&disks, &so));
            }
        };
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

    /// Imports a pool, as long as its disks answer. If they do not, the import is given up: what it
    /// began ends when they answer, and the pool is let go then.
    pub(super) async fn import_disks(
        &self,
        (name, guid): (&str, Guid),
        claimed: Claimed,
        options: ImportOptions,
    ) -> Result<Serving, ApiError> {
        let leaves = claimed.leaves.iter();
        let leaves = leaves.map(|leaf| (leaf.labels.label.leaf_guid, leaf.disk.path.as_str()));
        let remnant = Remnant::new((name, guid), leaves, &claimed.disks);
        let (disks, limits) = (claimed.disks.clone(), self.config.host_limits);
        let opened_as = name.to_string();
        let open = async move { Serving::bring_up(&opened_as, claimed, (options, limits)).await };
        let Silent { disks, rest } = match while_they_answer(&disks, open).await {
            Ok(opened) => return opened,
            Err(silent) => silent,
        };
        self.note_remnant(remnant);
        tokio::spawn(async move {
            if let Ok(Ok(serving)) = rest.await {
                let serving = Arc::new(serving);
                if let Some(error) = serving.export().await {
                    tracing::error!(pool = serving.name(), %error, "pool not exported cleanly");
                }
                close(serving.let_go().await).await;
            }
        });
        let so = format!("the import of {name:?} is given up. Try again when they do");
        Err(unanswering_error(&disks, &so))
    }

    /// Looks for pools on disks that answer.
    async fn search(&self, places: Vec<PathBuf>) -> Search {
        let mut found = search_answering(self.sought(places), self.unanswered_disks()).await;
        // Disks of pools in service hold no other pool.
        let own = self.disks_in_use();
        let is_own = |path: &PathBuf| {
            Identity::of(path).is_ok_and(|disk| own.iter().any(|(used, _)| *used == disk))
        };
        found.silent.retain(|path| !is_own(path));
        found
    }

    /// The pool that is meant. A disk that does not answer may be one of its: the pool is not
    /// imported without it by mistake, which would leave the disk behind.
    fn found(&self, found: &Search, wanted: &str) -> Result<Guid, ApiError> {
        let guid = found.pool(wanted);
        let leaves = guid.as_ref().ok().and_then(|guid| found.pools.get(guid));
        if found.silent.is_empty() || leaves.is_some_and(|leaves| is_complete(leaves)) {
            return guid;
        }
        let silent: Vec<String> = found.silent.iter().map(|path| unanswered_text(path)).collect();
        Err(ApiError::conflict(format!(
            "{}. Nobody knows whether that is a disk of {wanted:?}, so nothing is imported. Try \
             again when it answers; -d names the disks to import without it",
            silent.join(", ")
        )))
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

/// A disk that a search passed over.
fn unanswered_text(path: &Path) -> String {
    format!("{}: does not answer", path.display())
}
