//! Start of the daemon: the pools on the list come into service.
//!
//! # Invariants
//! - A pool that cannot be imported stays on the list with the reason. It does not delay the
//!   others, even if a disk of it hangs.
//! - The import waits for a late side of a mirror (on a bus that is still being scanned), for the
//!   configured time. An import without it marks it as outdated, and the pool loses it.
//! - The list is a hint. A daemon that was killed between changing a pool and noting the change
//!   finds all disks again, because the labels name each other.
//! - Clients can connect at once, and reach each pool as soon as it is in service. Those of the
//!   others are asked to wait: "stale" would be the end of the file to them.
//! - Clients claim their locks when all pools are in service, or given up: a claim in a file of a
//!   pool that is not there would be lost.
//! - An import that failed is tried again, whatever the reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aquifer_api::{ApiError, guid_of};
use aquifer_ondisk::Guid;
use aquifer_pool::import::{FoundLeaf, ImportOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::serving::{Serving, close};
use super::{Control, State};
use crate::cache::CachedPool;
use crate::devices::{Search, Sought, all_paths, claim, is_complete, search};

impl Control {
    /// Admits clients, and imports the pools of the list. Returns when that is done, or when the
    /// time limit for a pool that hangs has run out: that pool joins later.
    pub async fn start(self: &Arc<Self>) {
        let listed: Vec<CachedPool> =
            self.pools.read().values().map(|listed| listed.cached.clone()).collect();
        let mut imports = JoinSet::new();
        for cached in listed {
            let control = Arc::clone(self);
            imports.spawn(async move {
                control.import_listed(cached).await;
                control.let_clients_in().await;
            });
        }
        self.let_clients_in().await;
        let all = async { while imports.join_next().await.is_some() {} };
        if timeout(START_LIMIT, all).await.is_err() {
            tracing::warn!("some pools are still being imported: their disks are slow, or hang");
            imports.detach_all();
        }
        self.frontend.begin();
        self.starting.store(false, Ordering::Relaxed);
    }

    async fn let_clients_in(&self) {
        self.keep_list();
        self.refresh_exports().await;
    }

    async fn import_listed(&self, cached: CachedPool) {
        let name = cached.name.clone();
        match self.bring_back(&cached).await {
            Ok(serving) if self.is_importing(&cached) => {
                let notes = serving.import_notes();
                tracing::info!(class = "pool.imported", pool = %name, ?notes, "pool imported");
                self.note_disks(&Arc::new(serving));
            }
            // It was exported by force meanwhile.
            Ok(serving) => {
                let serving = Arc::new(serving);
                if let Some(error) = serving.export().await {
                    tracing::error!(pool = %name, %error, "pool not exported cleanly");
                }
                close(serving.let_go().await).await;
            }
            Err(error) => {
                tracing::error!(
                    class = "pool.unavailable", pool = %name, %error, "pool not imported"
                );
                if self.is_importing(&cached) {
                    self.await_disks(&cached.guid);
                    self.put(cached, State::Unavail(error.message));
                }
            }
        }
    }

    /// Writes the list if the pools were found on other disks.
    fn keep_list(&self) {
        if self.cache.differs(&self.kept())
            && let Err(error) = self.store()
        {
            tracing::warn!(%error, "the list of pools is not up to date");
        }
    }

    async fn bring_back(&self, cached: &CachedPool) -> Result<Serving, ApiError> {
        let leaves = find_listed(cached, self.config.wait_for_disks).await?;
        let (leaves, cached) = self.prepare(leaves, cached)?;
        if cached.whole.is_some() {
            self.put(cached.clone(), State::Importing);
            self.store()?;
        }
        let guid = leaves.first().map(|leaf| leaf.labels.label.config.pool_guid);
        let paths = Search::paths(&leaves);
        drop(leaves);
        let claimed = claim(guid.unwrap_or_default(), paths).await?;
        let options = (self.import_options(), self.config.host_limits);
        Serving::bring_up(&cached.name, claimed, options).await
    }

    pub(super) fn import_options(&self) -> ImportOptions {
        ImportOptions {
            memory: self.config.memory.clone(),
            host: Some(self.host.clone()),
            ..ImportOptions::default()
        }
    }
}

/// The disks of a listed pool. It tries the disks of the list first. If some are missing, it tries
/// the places that the labels of the others name, and all usual places.
async fn find_listed(cached: &CachedPool, wait: Duration) -> Result<Vec<FoundLeaf>, ApiError> {
    let guid = guid_of(&cached.guid).map(Guid).ok_or_else(|| {
        ApiError::failed(format!("the list's guid {:?} of the pool is none", cached.guid))
    })?;
    let patience = Instant::now() + wait;
    let mut pause = LEAF_POLL;
    let mut known: Vec<PathBuf> = cached.disks.clone();
    loop {
        let there = known.iter().filter(|path| path.exists()).cloned().collect();
        let mut found = search(Sought::Places(there)).await;
        let leaves = found.pools.get(&guid).map(Vec::as_slice).unwrap_or_default();
        // A disk that came after the list was written may be outdated yet: it lacks nothing, but is
        // to be found.
        let unlisted = all_paths(leaves).into_iter().filter(|path| !known.contains(path));
        let unlisted: Vec<PathBuf> = unlisted.collect();
        let (lacks, has_more) = (!is_complete(leaves), !unlisted.is_empty());
        known.extend(unlisted);
        if leaves.is_empty() || lacks || has_more {
            found = search(Sought::Usual(known.clone())).await;
        }
        let chosen = found.pool(&cached.guid);
        let leaves = found.pools.remove(&guid).unwrap_or_default();
        let now = Instant::now();
        if !leaves.is_empty() && is_complete(&leaves) || now >= patience {
            if leaves.is_empty() {
                return Err(none_found(cached));
            }
            return chosen.map(|_| leaves);
        }
        if pause == LEAF_POLL {
            let (pool, wait_s) = (cached.name.as_str(), wait.as_secs());
            tracing::info!(pool, wait_s, "disks of a pool are missing: they are waited for");
        }
        sleep_until(patience.min(now + pause)).await;
        pause = LEAF_POLL_MAX.min(pause * 2);
    }
}

fn none_found(cached: &CachedPool) -> ApiError {
    let disks: Vec<String> = cached.disks.iter().map(|path| path.display().to_string()).collect();
    ApiError::not_found(format!("none of its disks was found: {}", disks.join(", ")))
}

/// Time limit of all imports together before clients are admitted. Clients are patient for 35 s (an
/// ESXi lock), and most of that must be left to them.
const START_LIMIT: Duration = Duration::from_secs(15);
/// Time between the first two searches for a late disk. Later searches are farther apart, since
/// each opens all disks of the machine.
const LEAF_POLL: Duration = Duration::from_millis(250);
/// Longest time between two searches.
const LEAF_POLL_MAX: Duration = Duration::from_secs(2);
