//! The administrator's side of the daemon: pools by name, one act at a time on each.
//!
//! # Invariants
//! - Acts change something. Those on one pool run one after the other ([`turns`]), each to its end.
//!   The caller runs them in tasks of their own, so that a caller who hangs up leaves none half
//!   done. Questions are answered at any time.
//! - A pool whose disks do not answer holds up no other: not its acts, not what is done from time
//!   to time ([`rounds`]), not the end of the daemon ([`stop`]).
//! - The list in the state directory names a pool before the act that brings it into service is
//!   answered. It names the pool until the act that takes it out is done. A daemon that was killed
//!   imports the pools on the list when it comes back.
//! - The property `sharenfs` of each dataset, at the time when an act is answered, decides what
//!   clients can mount.

mod add;
mod alarms;
mod alerts;
mod astray;
pub mod audit;
mod autoreplace;
mod beside;
mod bookmarks;
mod by_itself;
mod connect;
mod counting;
mod counts;
mod datasets;
mod diff;
mod disks;
mod drill;
mod each_second;
mod errors;
mod followers;
mod forced;
pub(crate) mod free_space;
mod freeing;
pub mod guard;
pub mod history;
mod import;
#[cfg(debug_assertions)]
mod inject;
mod kept_events;
mod layout;
mod load;
mod locks;
mod memory;
mod not_done;
mod offer;
mod overwritten;
mod pools;
mod promote;
mod properties;
mod receive;
mod replicate;
mod revive;
mod rollback;
mod rounds;
mod scope;
mod scrub;
mod second;
mod send;
mod serving;
mod shares;
mod snapshots;
mod startup;
mod stop;
mod subjects;
mod tend;
mod turns;
mod vdevs;
mod whole;
mod widening;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_alerts::Alerts;
use aquifer_api::{
    ApiError, DaemonInfo, DroppedLog, Health, HostInfo, NfsInfo, PoolStatus, PoolSummary, Problem,
};
use aquifer_audit::Audit;
use aquifer_files::{Files, HostLimits};
use aquifer_nfs::lock::LockView;
use aquifer_nfs::{Explanation, Export};
use aquifer_ondisk::Guid;
use aquifer_ondisk::uberblock::{HOST_NAME_BYTES_MAX, Host};
use aquifer_pool::{BoxFuture, Memory};
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};

use crate::cache::{Cache, CacheError, CachedPool, Kept};
use crate::events::EventRing;
use crate::inventory::Inventory;
use crate::parts::Parts;
use crate::status::{self, Beside};
pub use counts::NfsCounts;
pub(crate) use counts::sum;
use not_done::NotDone;
pub use receive::{Bringer, PartLeave};
pub use replicate::{Peer, Peers, Puller, check_peers, check_puller, is_of_replication};
use revive::Awaited;
pub use rounds::Round;
pub use scope::{Named, Scope};
pub use second::{Ask, Put, Reply, Verdict};
use serving::Serving;
use tend::{PART_HOST, PART_LIST, not_kept};
pub use widening::MayLetIn;

/// The clients' side of the pools: NFS in the daemon, nothing where no service is wanted.
pub trait Frontend: Send + Sync + fmt::Debug {
    /// Serves exactly this offer from now on. When it returns, no request to any other pool is in
    /// progress; the engine's work on the frontend's runtimes continues. Returns what could not be
    /// done.
    fn serve(&self, offer: Offer) -> BoxFuture<'_, Vec<String>>;

    /// Pools that are not served any more are out of service now: releases their files, and ends
    /// everything that still runs for them.
    fn release(&self) -> BoxFuture<'_, ()>;

    /// The addresses that it listens on.
    fn listening(&self) -> Vec<String>;

    /// Whether clients can connect at each address.
    fn is_listening(&self) -> bool {
        true
    }

    /// Lists the parts of it that are off at the moment; they are tried again by themselves.
    fn problems(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// Whether it could not start at all, and should be offered the pools again.
    fn wants_another_offer(&self) -> bool {
        false
    }

    /// The pools of the list are in service, or given up: clients may claim what they had before a
    /// restart.
    fn begin(&self) {}

    /// Locks of files, and whether the grace period still runs.
    fn locks(&self) -> (Vec<LockView>, bool);

    /// Ends all locks of an address, or of one of the names there. Returns their number.
    fn clear_locks(&self, address: IpAddr, client: Option<&str>) -> usize;

    /// Ends all locks in file systems that are gone. Returns their number.
    fn end_locks(&self, is_gone: &dyn Fn(Guid) -> bool) -> usize;

    /// Counts of the clients' requests, if it serves.
    fn counts(&self) -> Option<NfsCounts>;

    /// Looks up hosts that exports are about to name, known ones too, and waits for the answers, no
    /// longer than people do.
    fn look_up(&self, hosts: BTreeSet<String>) -> BoxFuture<'_, Vec<HostInfo>>;

    /// The known state of the hosts that exports name.
    fn hosts(&self) -> Vec<HostInfo>;

    /// Explains what the rules in force give a client at a path; `None`, if nothing is served.
    fn explain(&self, path: &str, client: IpAddr) -> Option<Explanation>;
}

/// The pools and exports to serve.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The pools in service.
    pub pools: Vec<ServedPool>,
    /// The list has more pools, which are being imported, or cannot be imported at the moment:
    /// their clients should wait, not give up.
    pub awaited: BTreeSet<String>,
}

/// A pool as clients see it.
#[derive(Debug, Clone)]
pub struct ServedPool {
    /// Name.
    pub name: String,
    /// Its files.
    pub files: Arc<Files>,
    /// Its exports, by path.
    pub exports: Vec<Export>,
}

/// The daemon's configuration.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The directory with the list of pools.
    pub state_dir: PathBuf,
    /// The memory of the process, which all pools and NFS share.
    pub memory: Arc<Memory>,
    /// Longest wait at the start for disks that are missing.
    pub wait_for_disks: Duration,
    /// The program that knows the health of disks; empty, if none is to be asked.
    pub smartctl: PathBuf,
    /// Limits of hosts that a `snapcontrol` names.
    pub host_limits: HostLimits,
    /// Settings of alerts: of what people hear, and how.
    pub alerts: aquifer_alerts::Settings,
    /// Other Aquifers, which have copies.
    pub peers: Peers,
    /// The commit that the program was built from, if that is known.
    pub commit: Option<String>,
    /// Parts of the daemon that may be off.
    pub parts: Arc<Parts>,
    /// Where audit lines go.
    pub audit: Arc<Audit>,
}

/// The administrator's side of a daemon.
#[derive(Debug)]
pub struct Control {
    config: ControlConfig,
    cache: Cache,
    /// The identity of this machine as a user of its pools.
    host: Host,
    frontend: Arc<dyn Frontend>,
    /// Of acts.
    turns: turns::Turns,
    is_stopping: AtomicBool,
    rounds: rounds::Rounds,
    /// New disks that could not replace one that is gone.
    refused: autoreplace::Refused,
    /// Held while clients are offered what is in service. Whether that is over.
    offering: tokio::sync::Mutex<bool>,
    pools: RwLock<BTreeMap<String, Listed>>,
    /// Losses of pools, imported here or exported, that are not cleared yet, by guid.
    dropped_logs: Mutex<BTreeMap<String, DroppedLog>>,
    starting: AtomicBool,
    /// Problems of the frontend, and invalid exports, as of the last refresh.
    export_notes: Mutex<Vec<String>>,
    /// The exports as of the last refresh.
    exported: Mutex<Vec<Export>>,
    /// Of acts with their two looks at the state: see [`history`].
    looks: turns::Turns,
    /// Which refusals were noted lately, and which acts that failed.
    forbidden: Mutex<NotDone>,
    failed: Mutex<NotDone>,
    events: Arc<EventRing>,
    followers: followers::Followers,
    names: tokio::sync::Mutex<counts::Names>,
    /// Turns of callers that have counted how much snapshots take.
    counting: counting::Counting,
    /// Pools without their disks.
    awaited: Awaited,
    inventory: Inventory,
    receiving: receive::Sessions,
    replication: replicate::Replication,
    alerts: Arc<Alerts>,
    /// Clients wait for memory, as of the last look.
    memory_short: Mutex<Option<Problem>>,
    alarms: alarms::Alarms,
    overwritten: overwritten::Overwritten,
    /// Acts that wait for a second person.
    waiting: second::Waiting,
    /// From when on the seconds of alarms count.
    began: Instant,
}

/// A pool on the list.
#[derive(Debug, Clone)]
struct Listed {
    cached: CachedPool,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// It is being imported: the daemon has just started, or its disks are back.
    Importing,
    /// The import failed, for this reason.
    Unavail(String),
    Serving(Arc<Serving>),
}

impl Control {
    /// Opens the state directory. [`Control::start`] then imports its pools. The subscriber that
    /// logs events also notes them in `events`.
    ///
    /// # Errors
    /// The reason why the directory cannot be used.
    pub fn open(
        config: ControlConfig,
        frontend: Arc<dyn Frontend>,
        events: Arc<EventRing>,
    ) -> Result<Arc<Control>, CacheError> {
        let cache = Cache::open(&config.state_dir)?;
        let (id, id_problem) = cache.host_id();
        let host = Host { id, name: host_name() };
        let (Kept { pools, dropped_logs }, list_problem) = cache.load();
        for (part, problem) in [(PART_HOST, id_problem), (PART_LIST, list_problem)] {
            config.parts.note(part, problem.map(|why| not_kept(&why)));
        }
        let listed = pools.into_iter().map(|cached| {
            let state = State::Importing;
            (cached.name.clone(), Listed { cached, state })
        });
        let inventory = Inventory::open(&config.state_dir, &config.smartctl);
        events.is_witnessed_by(audit::of_hosts(Arc::clone(&config.audit)));
        let alarms = alarms::Alarms::new(&config.alerts);
        let overwritten = overwritten::Overwritten::new(&config.alerts);
        let alerts = Alerts::open(config.alerts.clone(), &config.state_dir, &host.name);
        let alerts =
            alerts.map_err(|source| CacheError::Io { path: config.state_dir.clone(), source })?;
        Ok(Arc::new(Control {
            pools: RwLock::new(listed.collect()),
            dropped_logs: Mutex::new(dropped_logs),
            receiving: receive::Sessions::new(&config.memory),
            config,
            cache,
            host,
            frontend,
            turns: Default::default(),
            is_stopping: AtomicBool::new(false),
            rounds: Default::default(),
            refused: Default::default(),
            offering: Default::default(),
            starting: AtomicBool::new(true),
            export_notes: Mutex::default(),
            exported: Mutex::default(),
            looks: Default::default(),
            forbidden: Mutex::new(NotDone::new(not_done::REFUSALS)),
            failed: Mutex::new(NotDone::new(not_done::FAILURES)),
            events,
            followers: Default::default(),
            names: Default::default(),
            counting: Default::default(),
            awaited: Awaited::default(),
            inventory,
            replication: Default::default(),
            alerts: Arc::new(alerts),
            memory_short: Mutex::default(),
            alarms,
            overwritten,
            waiting: Default::default(),
            began: Instant::now(),
        }))
    }

    /// The name of this machine.
    pub fn host_name(&self) -> &str {
        &self.host.name
    }

    /// The daemon's own data.
    pub fn info(&self) -> DaemonInfo {
        DaemonInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: self.config.commit.clone(),
            pid: std::process::id(),
            state_dir: self.cache.dir().to_path_buf(),
            memory_bytes: self.config.memory.cap_bytes(),
            starting: self.starting.load(Ordering::Relaxed),
            nfs: NfsInfo {
                listening: self.frontend.listening(),
                notes: self.export_notes.lock().iter().cloned().chain(self.unmounted()).collect(),
            },
            problems: self.server_problems(),
        }
    }

    /// Whether clients can connect, if they should, and the pools of the start are in service or
    /// given up.
    pub fn is_ready(&self) -> bool {
        let is_wanted = !self.pools.read().is_empty();
        !self.starting.load(Ordering::Relaxed) && (!is_wanted || self.frontend.is_listening())
    }

    /// All pools on the list.
    pub fn pools(&self) -> Vec<PoolSummary> {
        self.pools.read().values().map(Listed::summary).collect()
    }

    /// Everything about one pool.
    ///
    /// # Errors
    /// If it is not on the list.
    pub async fn pool_status(&self, name: &str) -> Result<PoolStatus, ApiError> {
        let listed = self.listed(name)?;
        let dropped_log = self.dropped_logs.lock().get(&listed.cached.guid).cloned();
        let State::Serving(serving) = &listed.state else {
            return Ok(status::absent_status(listed.summary(), dropped_log));
        };
        // During an act, the next look does it.
        if let Some(_turn) = self.turns.of(name).try_take("pool status")
            && serving.silent().is_none()
        {
            self.release_left(serving).await;
        }
        let damaged = datasets::damaged(serving).await;
        let disks = self.disks_of(serving).await;
        let exports = serving.exports();
        let mut notes: Vec<String> = shares::told(exports.iter()).into_iter().collect();
        let own = format!("pool {name:?}");
        let of_frontend = self.export_notes.lock();
        notes.extend(of_frontend.iter().filter(|note| note.contains(&own)).cloned());
        drop(of_frontend);
        if !exports.is_empty() {
            notes.extend(self.unmounted());
        }
        let import_notes = serving.import_notes().to_vec();
        let sync_disabled = datasets::sync_disabled(serving);
        // Only as long as it is without them: somebody may have imported it meanwhile.
        if serving.service().pool.may_come_back()
            && let Some(waits) = self.waits_for(&listed.cached.guid)
        {
            notes.push(format!("waits for disks: {waits}"));
        }
        let scrub = scrub::shown(&serving.service().files);
        let drill = serving.drill.shown();
        let replications = self.standing(serving);
        let beside = Beside {
            import_notes,
            notes,
            damaged,
            sync_disabled,
            dropped_log,
            freeing_bytes: serving.freeing_bytes(),
            scrub,
            drill,
            disks,
            replications,
        };
        let status = status::status(&serving.service().pool.status(), beside);
        let more = self.beside(serving, &status);
        Ok(status::with_more(status, more))
    }

    fn listed(&self, name: &str) -> Result<Listed, ApiError> {
        let found = self.pools.read().get(name).cloned();
        found.ok_or_else(|| {
            ApiError::not_found(format!(
                "there is no pool {name:?}; `aquifer pool list` shows those that are imported, \
                 `aquifer pool import` those that could be"
            ))
        })
    }

    /// A pool in service.
    fn serving(&self, name: &str) -> Result<Arc<Serving>, ApiError> {
        match self.listed(name)?.state {
            State::Serving(serving) => Ok(serving),
            State::Importing => Err(still_importing(name)),
            State::Unavail(why) => {
                Err(ApiError::conflict(format!("pool {name:?} is not in service: {why}")))
            }
        }
    }

    fn put(&self, cached: CachedPool, state: State) {
        let paths = cached.disks.iter().map(|path| path.display().to_string());
        self.events.know_disks(&cached.name, paths);
        let listed = Listed { cached, state }.kept_anew();
        self.pools.write().insert(listed.cached.name.clone(), listed);
        self.inventory.wake();
    }

    /// The data that a restart needs.
    fn kept(&self) -> Kept {
        let pools = self.pools.read().values().map(|listed| listed.cached.clone()).collect();
        Kept { pools, dropped_logs: self.dropped_logs.lock().clone() }
    }

    /// Writes the list. An error goes into the answer: the list on disk is then out of date.
    fn store(&self) -> Result<(), ApiError> {
        self.cache.store(|| self.kept()).map_err(|error| {
            ApiError::failed(format!(
                "{error}: the list of pools could not be written, the next start goes by the old \
                 one"
            ))
        })
    }

    /// All pools in service.
    fn all_serving(&self) -> Vec<Arc<Serving>> {
        self.pools.read().values().filter_map(|listed| listed.serving().cloned()).collect()
    }

    /// Whether the threads of all pools in service run a task within `patience`.
    pub async fn engines_answer(&self, patience: Duration) -> bool {
        let serving = self.all_serving();
        let answers = serving.iter().map(|serving| serving.run(async {}));
        tokio::time::timeout(patience, join_all(answers)).await.is_ok()
    }
}

impl Listed {
    fn summary(&self) -> PoolSummary {
        let CachedPool { name, guid, .. } = &self.cached;
        match &self.state {
            State::Importing => status::absent(name, guid, Health::Importing, None),
            State::Unavail(why) => status::absent(name, guid, Health::Unavail, Some(why)),
            State::Serving(serving) => {
                let service = serving.service();
                let damaged_files = service.datasets.damaged_objects() as u64;
                let freeing_bytes = serving.freeing_bytes();
                let summary = status::summary(&service.pool.status());
                PoolSummary { damaged_files, freeing_bytes, ..summary }
            }
        }
    }

    fn serving(&self) -> Option<&Arc<Serving>> {
        match &self.state {
            State::Serving(serving) => Some(serving),
            _ => None,
        }
    }
}

/// The name of this machine.
fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let mut bytes = 0;
    name.chars()
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= HOST_NAME_BYTES_MAX
        })
        .collect()
}

fn still_importing(name: &str) -> ApiError {
    ApiError::conflict(format!("pool {name:?} is still being imported; try again in a moment"))
}
