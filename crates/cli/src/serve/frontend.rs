//! NFS as the pools' frontend.
//!
//! # What holds
//! - One server over the files of one pool: that is what `aquifer_nfs::Nfs` is made for. The pool
//!   that is served stays so while it is there and exports something; of others, it is said that
//!   they are not.
//! - A change of exports replaces the table of the running server; clients keep their connections.
//! - A server that was stopped lives until its pool is out of service: what the engine began on its
//!   threads must come to its end.

use std::collections::HashMap;
use std::sync::Arc;

use aquifer_admin::{Frontend, ServedPool};
use aquifer_daemon::{Config, PortmapState, Server};
use aquifer_files::{FileHandle, Files};
use aquifer_nfs::{Export, Exports, Nfs};
use aquifer_pool::BoxFuture;
use parking_lot::{Mutex, RwLock};

#[cfg(test)]
mod tests;

/// The NFS server, running or not.
#[derive(Debug)]
pub(super) struct NfsFrontend {
    config: Config,
    state: tokio::sync::Mutex<State>,
    listening: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    /// Stopped, and still to be dropped.
    stopped: Vec<Server>,
}

#[derive(Debug)]
struct Running {
    pool: String,
    files: Arc<Files>,
    server: Server,
    roots: Roots,
}

/// The root directories of datasets, by name: every NFS call asks for one, and the
/// datasets themselves would build the names of all to find it. Kept up by [`Frontend::serve`],
/// which follows every act that could change it.
type Roots = Arc<RwLock<HashMap<String, FileHandle>>>;

impl NfsFrontend {
    pub fn new(config: Config) -> Self {
        NfsFrontend { config, state: Default::default(), listening: Mutex::default() }
    }

    async fn serve_pools(&self, pools: Vec<ServedPool>) -> Vec<String> {
        let mut state = self.state.lock().await;
        let present = |running: &Running| {
            let same = |pool: &&ServedPool| Arc::ptr_eq(&pool.files, &running.files);
            pools.iter().find(same)
        };
        let current = state.running.as_ref().and_then(present).map(|pool| pool.name.clone());
        let each = pools.iter().map(|pool| (pool.name.as_str(), !pool.exports.is_empty()));
        let chosen = choose(&each.collect::<Vec<_>>(), current.as_deref());
        if state.running.is_some() && (current.is_none() || current.as_deref() != chosen) {
            self.stop(&mut state).await;
        }
        let mut notes = Vec::new();
        if let Some(pool) = pools.iter().find(|pool| Some(pool.name.as_str()) == chosen) {
            let exports = pool.exports.clone();
            let done = match &state.running {
                Some(running) => running.replace(exports),
                None => self.start(&mut state, pool, exports).await,
            };
            notes.extend(done.err());
            notes.extend(state.running.as_ref().and_then(Running::portmap_problem));
        }
        notes.extend(not_served(&pools, chosen));
        *self.listening.lock() = state.running.as_ref().map(Running::listening).unwrap_or_default();
        notes
    }

    async fn start(
        &self,
        state: &mut State,
        pool: &ServedPool,
        exports: Vec<Export>,
    ) -> Result<(), String> {
        let name = &pool.name;
        let failed = |why: String| {
            format!(
                "pool {name:?} is not served over NFS: {why}; end what is in the way, or start \
                 the daemon with another --nfs-addr"
            )
        };
        let files = Arc::clone(&pool.files);
        let roots: Roots = Arc::new(RwLock::new(roots_of(name, &files)));
        let known = Arc::clone(&roots);
        let exports = Exports::new(exports, move |name| known.read().get(name).copied());
        let exports = exports.map_err(|error| failed(error.to_string()))?;
        let nfs = Arc::new(Nfs::new(Arc::clone(&files), exports));
        let server = Server::start(self.config.clone(), nfs).await;
        let server = server.map_err(|error| failed(error.to_string()))?;
        state.running = Some(Running { pool: name.clone(), files, server, roots });
        Ok(())
    }

    async fn stop(&self, state: &mut State) {
        if let Some(running) = state.running.take() {
            let stopped = running.server.stop().await;
            if stopped.stuck > 0 {
                tracing::error!(
                    pool = %running.pool,
                    requests_of = stopped.stuck,
                    "connections have requests that do not end: the pool does not answer"
                );
            }
            state.stopped.push(running.server);
        }
    }
}

impl Frontend for NfsFrontend {
    fn serve(&self, pools: Vec<ServedPool>) -> BoxFuture<'_, Vec<String>> {
        Box::pin(self.serve_pools(pools))
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let servers = std::mem::take(&mut self.state.lock().await.stopped);
            // Dropping joins threads.
            if let Err(error) = tokio::task::spawn_blocking(move || drop(servers)).await {
                tracing::error!(%error, "an NFS server ended by a panic");
            }
        })
    }

    fn listening(&self) -> Vec<String> {
        self.listening.lock().clone()
    }
}

impl Running {
    fn replace(&self, exports: Vec<Export>) -> Result<(), String> {
        let roots = roots_of(&self.pool, &self.files);
        // Before the table: an export without a root would be refused for a moment.
        self.roots.write().extend(roots.clone());
        let replaced = self.server.nfs().exports().replace(exports);
        replaced.map_err(|error| {
            format!("pool {:?}: the exports stay as they were: {error}", self.pool)
        })?;
        *self.roots.write() = roots;
        Ok(())
    }

    fn listening(&self) -> Vec<String> {
        let addresses = self.server.addresses().iter().map(|address| format!("nfs {address}"));
        let portmap = match self.server.portmap() {
            PortmapState::Own(address) => Some(format!("portmap {address}")),
            PortmapState::Registered(address) => Some(format!("registered with {address}")),
            PortmapState::Off | PortmapState::Unavailable(_) => None,
        };
        addresses.chain(portmap).collect()
    }

    fn portmap_problem(&self) -> Option<String> {
        match self.server.portmap() {
            PortmapState::Unavailable(why) => Some(format!(
                "clients that ask a portmapper do not find pool {:?}: {why}",
                self.pool
            )),
            _ => None,
        }
    }
}

/// The pool to be served, of those with this name that export something or do not: the one that is,
/// the first that exports something, or the first.
fn choose<'a>(pools: &[(&'a str, bool)], current: Option<&str>) -> Option<&'a str> {
    let is_current = |pool: &&(&str, bool)| Some(pool.0) == current;
    let exporting = || pools.iter().filter(|pool| pool.1);
    let first = exporting().find(is_current).or_else(|| exporting().next());
    let first = first.or_else(|| pools.iter().find(is_current)).or(pools.first());
    first.map(|pool| pool.0)
}

fn not_served<'a>(
    pools: &'a [ServedPool],
    chosen: Option<&'a str>,
) -> impl Iterator<Item = String> + 'a {
    let others = pools.iter().filter(move |pool| Some(pool.name.as_str()) != chosen);
    others.filter(|pool| !pool.exports.is_empty()).map(move |pool| {
        format!(
            "pool {:?} is not served over NFS: this version serves the exports of one pool, and \
             that is {:?}",
            pool.name,
            chosen.unwrap_or_default()
        )
    })
}

/// The root directories of all datasets: one look at each, where `Files::root` looks at all.
fn roots_of(pool: &str, files: &Files) -> HashMap<String, FileHandle> {
    let datasets = files.datasets();
    let Some(root) = files.root(pool) else { return HashMap::new() };
    let each = datasets.all().into_iter().map(|dataset| {
        let name = datasets.full_name(&dataset);
        (name, FileHandle { fs_guid: dataset.fs_guid, ..root })
    });
    each.collect()
}
