//! NFS as the pools' frontend.
//!
//! # What holds
//! - One server for all pools. It listens as long as there is a pool on the list, in service or
//!   not, so that clients that could wait are not refused.
//! - Nothing that a part of it lacks keeps the rest from serving: an address, a portmapper, keys
//!   for TLS, the list of lock clients. What is off is a problem, and is tried again.
//! - A change of exports replaces the table of the running server; clients keep their connections.
//!   When a pool leaves, its exports go first. Then this waits for the requests that still work on
//!   the pool.
//! - A stopped server lives until its pools are out of service, because the engine's work on its
//!   threads must finish.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aquifer_admin::{Frontend, NfsCounts, Offer, ServedPool};
use aquifer_api::{HostInfo, NfsLoad, Problem};
use aquifer_files::{FileHandle, Files, Guid};
use aquifer_nfs::limits::EXPORTS_MAX;
use aquifer_nfs::lock::LockView;
use aquifer_nfs::{Explanation, Export, Exports, Nfs, Root, Volume};
use aquifer_nfsd::{
    Config, KnownHost, LockKeeper, Names, NamesConfig, Observer, PortmapState, Server,
};
use aquifer_pool::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};

mod problems;

/// The NFS server, running or not.
#[derive(Debug)]
pub(super) struct NfsFrontend {
    config: Config,
    locks: LockSettings,
    state: tokio::sync::Mutex<State>,
    /// Why no server runs, if one should.
    failed: Mutex<Option<String>>,
    /// From the first start of the server on; it outlives servers.
    keeper: OnceLock<Arc<LockKeeper>>,
    /// The running server for observers, and when it began.
    observed: Mutex<Option<(Observer, Instant)>>,
    /// The server's NFS layer; its table gets the addresses of hosts.
    nfs: Arc<Mutex<Option<Arc<Nfs>>>>,
    /// The hosts that exports name, once there are pools.
    names: OnceLock<Names>,
    names_config: NamesConfig,
}

/// The settings of the lock manager.
#[derive(Debug)]
pub(super) struct LockSettings {
    /// The directory of the list of clients; nobody else uses it once pools are in service.
    pub dir: PathBuf,
    /// How long clients may reclaim their locks after a restart.
    pub grace: Duration,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    /// Stopped servers, yet to be dropped.
    stopped: Vec<Server>,
}

#[derive(Debug)]
struct Running {
    server: Server,
    volumes: Vec<Arc<Volume>>,
    roots: Roots,
}

/// The root directories of datasets, by name. Every NFS call asks for one, and the datasets
/// themselves would build all names to find it. [`Frontend::serve`] keeps this up to date, since it
/// follows every act that could change it.
type Roots = Arc<RwLock<HashMap<String, Root>>>;

impl NfsFrontend {
    pub fn new(config: Config, locks: LockSettings, names_config: NamesConfig) -> Self {
        NfsFrontend {
            config,
            locks,
            state: Default::default(),
            failed: Default::default(),
            keeper: OnceLock::new(),
            observed: Default::default(),
            nfs: Default::default(),
            names: OnceLock::new(),
            names_config,
        }
    }

    /// The hosts that exports name. Needs a runtime.
    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let nfs = Arc::clone(&self.nfs);
            Names::start(self.names_config.clone(), move |addresses| {
                if let Some(nfs) = &*nfs.lock() {
                    nfs.exports().set_addresses(addresses);
                }
            })
        })
    }

    /// Gives a server the addresses that are known now, and all later changes.
    fn serve_names(&self, nfs: &Arc<Nfs>, hosts: &BTreeSet<String>) {
        *self.nfs.lock() = Some(Arc::clone(nfs));
        self.names().follow(hosts);
    }

    async fn serve_pools(&self, offer: Offer) -> Vec<String> {
        let mut state = self.state.lock().await;
        let mut notes = Vec::new();
        let exports = offer.pools.iter().flat_map(|pool| &pool.exports);
        let hosts = exports.flat_map(|export| export.access.hosts()).map(str::to_owned).collect();
        if let Some(running) = &state.running {
            self.know(&hosts).await;
            // Before the table: addresses of new names are known from its first moment.
            self.serve_names(running.server.nfs(), &hosts);
        }
        match &mut state.running {
            // Clients whose pools come back are asked to wait, not refused.
            _ if offer.pools.is_empty() && offer.awaited.is_empty() => {
                *self.failed.lock() = None;
                self.stop(&mut state).await;
            }
            Some(running) => notes.extend(running.change(&offer, self.config.drain).await.err()),
            None => match self.start(&offer, &hosts).await {
                Ok((running, invalid)) => {
                    *self.failed.lock() = None;
                    notes.extend(invalid);
                    state.running = Some(running);
                }
                Err(why) => *self.failed.lock() = Some(why),
            },
        }
        let of_each = |note: String| {
            let exporting = offer.pools.iter().filter(|pool| !pool.exports.is_empty());
            let pools = exporting.map(|pool| format!("pool {:?}: {note}", pool.name));
            pools.collect::<Vec<_>>()
        };
        notes.into_iter().flat_map(of_each).collect()
    }

    /// Starts a server. Returns beside it why exports are not served.
    async fn start(
        &self,
        offer: &Offer,
        hosts: &BTreeSet<String>,
    ) -> Result<(Running, Option<String>), String> {
        let (volumes, found) = volumes(&offer.pools, &[]);
        let roots: Roots = Arc::new(RwLock::new(found));
        let known = Arc::clone(&roots);
        let table = Exports::new(Vec::new(), move |name| known.read().get(name).cloned());
        let table = table.map_err(|error| error.to_string())?;
        let invalid = table.replace_or_withdraw(exports(offer)).err();
        table.expect(offer.awaited.clone());
        let keeper = self.keeper();
        let nfs = Arc::new(Nfs::with_locks(table, keeper.locks().clone()));
        self.know(hosts).await;
        self.serve_names(&nfs, hosts);
        let server = Server::start_with(self.config.clone(), nfs, Some(keeper.clone())).await;
        let server = server.map_err(|error| {
            // It holds the pools' files, and nobody else would drop them.
            *self.nfs.lock() = None;
            error.to_string()
        })?;
        *self.observed.lock() = Some((server.observer(), Instant::now()));
        let invalid = invalid.map(|error| format!("exports are not served: {error}"));
        Ok((Running { server, volumes, roots }, invalid))
    }

    /// Named clients are admitted at once, if DNS answers.
    async fn know(&self, hosts: &BTreeSet<String>) {
        let is_known = |name: &String| {
            let known = self.names.get().map(Names::known).unwrap_or_default();
            known.iter().any(|host| host.name == *name)
        };
        if !hosts.iter().all(is_known) {
            self.names().look_up(hosts, LOOKUP_PATIENCE).await;
        }
    }

    fn keeper(&self) -> &Arc<LockKeeper> {
        let LockSettings { dir, grace } = &self.locks;
        self.keeper.get_or_init(|| LockKeeper::open(dir, *grace))
    }

    fn observer(&self) -> Option<Observer> {
        self.observed.lock().as_ref().map(|(observer, _)| observer.clone())
    }

    async fn stop(&self, state: &mut State) {
        if let Some(running) = state.running.take() {
            *self.observed.lock() = None;
            *self.nfs.lock() = None;
            let stopped = running.server.stop().await;
            if stopped.stuck > 0 {
                tracing::error!(
                    requests_of = stopped.stuck,
                    "connections have requests that do not end: a pool does not answer"
                );
            }
            state.stopped.push(running.server);
        }
    }
}

impl Frontend for NfsFrontend {
    fn serve(&self, offer: Offer) -> BoxFuture<'_, Vec<String>> {
        Box::pin(self.serve_pools(offer))
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
        self.observer().as_ref().map(listening).unwrap_or_default()
    }

    fn is_listening(&self) -> bool {
        self.observer().is_some_and(|observer| observer.closed().is_empty())
    }

    fn problems(&self) -> Vec<Problem> {
        let mut all = Vec::new();
        if let Some(why) = &*self.failed.lock() {
            all.push(problems::not_started(why));
        }
        if let Some(observer) = self.observer() {
            all.extend(problems::of_server(&observer));
        }
        let unkept = self.keeper.get().and_then(|keeper| keeper.problem());
        all.extend(unkept.map(|why| problems::locks_not_kept(&why)));
        all
    }

    fn wants_another_offer(&self) -> bool {
        self.failed.lock().is_some()
    }

    fn begin(&self) {
        self.keeper().begin();
    }

    fn locks(&self) -> (Vec<LockView>, bool) {
        let locks = self.keeper.get().map(|keeper| keeper.locks());
        locks.map(|locks| (locks.list(), locks.in_grace())).unwrap_or_default()
    }

    fn clear_locks(&self, address: IpAddr, client: Option<&str>) -> usize {
        let name = client.map(str::as_bytes);
        self.keeper.get().map_or(0, |keeper| keeper.locks().clear(address, name))
    }

    fn end_locks(&self, is_gone: &dyn Fn(Guid) -> bool) -> usize {
        self.keeper.get().map_or(0, |keeper| keeper.locks().end_in(is_gone))
    }

    fn counts(&self) -> Option<NfsCounts> {
        let (observer, since) = self.observed.lock().clone()?;
        let load = load(&observer);
        Some(NfsCounts { uptime: since.elapsed(), traffic: observer.nfs().traffic().look(), load })
    }

    fn look_up(&self, hosts: BTreeSet<String>) -> BoxFuture<'_, Vec<HostInfo>> {
        Box::pin(async move {
            let known = self.names().look_up(&hosts, LOOKUP_PATIENCE).await;
            known.into_iter().map(host_info).collect()
        })
    }

    fn hosts(&self) -> Vec<HostInfo> {
        let known = self.names.get().map(Names::known).unwrap_or_default();
        known.into_iter().map(host_info).collect()
    }

    fn explain(&self, path: &str, client: IpAddr) -> Option<Explanation> {
        self.nfs.lock().as_ref().map(|nfs| nfs.exports().explain(path, client))
    }
}

fn load(observer: &Observer) -> NfsLoad {
    let (load, counters) = (observer.load(), observer.nfs().counters());
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    NfsLoad {
        connections: number(load.connections),
        in_lobby: number(load.in_lobby),
        accepted: load.accepted,
        turned_away: load.turned_away,
        accept_failures: load.accept_failures,
        requests: load.requests,
        requests_waited: load.requests_waited,
        received_bytes: load.received_bytes,
        sent_bytes: load.sent_bytes,
        closed_as_slow: load.closed_as_slow,
        protocol_errors: load.protocol_errors,
        panics: load.panics,
        request_bytes: number(load.request_bytes),
        reply_bytes: number(load.reply_bytes),
        memory_waits: load.memory_waits,
        memory_bound: load.is_bound,
        mount_calls: counters.mount(),
        portmap_calls: counters.portmap(),
        lock_calls: counters.locks(),
        refused_calls: counters.refused(),
    }
}

fn host_info(KnownHost { name, addresses, problem }: KnownHost) -> HostInfo {
    HostInfo { name, addresses, problem }
}

impl Running {
    /// Serves the offer in place of the earlier one. Waits for requests to pools that are no longer
    /// offered, at most for `patience`.
    async fn change(&mut self, offer: &Offer, patience: Duration) -> Result<(), String> {
        let (volumes, roots) = volumes(&offer.pools, &self.volumes);
        let table = self.server.nfs().exports();
        // Before pools leave, so that no client hears that files are gone which will come back.
        table.expect_also(offer.awaited.clone());
        // Before the table: an export without a root would be refused for a moment.
        self.roots.write().extend(roots.clone());
        let replaced = table.replace_or_withdraw(exports(offer));
        *self.roots.write() = roots;
        // Not before: a client of a pool that has come would hear that its files are gone.
        table.expect(offer.awaited.clone());
        let before = std::mem::replace(&mut self.volumes, volumes);
        let stays =
            |gone: &Arc<Volume>| self.volumes.iter().any(|volume| Arc::ptr_eq(gone, volume));
        let gone: Vec<_> = before.into_iter().filter(|volume| !stays(volume)).collect();
        if !left(&gone, Instant::now() + patience).await {
            tracing::error!("requests to a pool that goes out of service do not end");
        }
        replaced.map_err(|error| format!("exports that have changed are withdrawn: {error}"))
    }
}

fn listening(observer: &Observer) -> Vec<String> {
    let addresses = observer.addresses().into_iter().map(|address| format!("nfs {address}"));
    let portmap = match observer.portmap() {
        PortmapState::Own(addresses) => {
            addresses.iter().map(|address| format!("portmap {address}")).collect()
        }
        PortmapState::Registered(address) => vec![format!("registered with {address}")],
        PortmapState::Off | PortmapState::Unavailable(_) => Vec::new(),
    };
    addresses.chain(portmap).collect()
}

/// The exports of all pools, up to the limit. Logs those beyond it, which are not served.
fn exports(offer: &Offer) -> Vec<Export> {
    let mut exports: Vec<Export> =
        offer.pools.iter().flat_map(|pool| pool.exports.iter().cloned()).collect();
    if exports.len() > EXPORTS_MAX {
        tracing::error!(
            class = "exports.too_many",
            exports = exports.len(),
            most = EXPORTS_MAX,
            "the last exports are not served"
        );
        exports.truncate(EXPORTS_MAX);
    }
    exports
}

/// The pools' volumes, reusing those in `present`, and the root directories of all datasets.
fn volumes(
    pools: &[ServedPool],
    present: &[Arc<Volume>],
) -> (Vec<Arc<Volume>>, HashMap<String, Root>) {
    let (mut volumes, mut roots) = (Vec::new(), HashMap::new());
    for pool in pools {
        let known = present.iter().find(|volume| volume.is_of(&pool.files));
        let volume = known.map_or_else(|| Volume::new(Arc::clone(&pool.files)), Arc::clone);
        roots.extend(roots_of(&pool.name, &volume));
        volumes.push(volume);
    }
    (volumes, roots)
}

/// The root directories of a pool's datasets: one pass, where `Files::root` looks at all datasets
/// for each.
fn roots_of(pool: &str, volume: &Arc<Volume>) -> Vec<(String, Root)> {
    let datasets = volume.datasets();
    let Some(root) = Files::root(volume, pool) else { return Vec::new() };
    let each = datasets.all().into_iter().map(|dataset| {
        let name = datasets.full_name(&dataset);
        (name, volume.root(FileHandle { fs_guid: dataset.fs_guid, ..root }))
    });
    each.collect()
}

/// Whether all requests have left these volumes before `deadline`.
async fn left(volumes: &[Arc<Volume>], deadline: Instant) -> bool {
    while volumes.iter().any(|volume| Arc::strong_count(volume) > 1) {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL).await;
    }
    true
}

/// How long a change of the exports waits for DNS.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(2);

/// Between two checks whether requests have ended.
const POLL: Duration = Duration::from_millis(5);
