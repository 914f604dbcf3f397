//! Answers of the daemon about itself, its pools and its datasets.

use std::future::Future;
use std::time::Duration;

use aquifer_api::client::{Answer, Client, ClientError};
use aquifer_api::{
    DaemonInfo, DaemonQuery, DatasetInfo, DatasetQuery, Health, LocksInfo, LocksQuery, On,
    PoolQuery, PoolStatus, PoolsQuery, ShareInfo, SharesQuery,
};

use crate::codes;
use crate::report::{Finding, Report};

/// Answers of the daemon that were asked for.
#[derive(Debug)]
pub(crate) struct State {
    pub pools: Vec<PoolStatus>,
    pub datasets: Vec<DatasetInfo>,
    pub shares: Vec<ShareInfo>,
    pub locks: LocksInfo,
}

/// The daemon's own data; `None`, with a finding, if there is no answer.
pub(crate) async fn daemon(client: &Client, report: &mut Report) -> Option<DaemonInfo> {
    match patient(client.ask(&DaemonQuery)).await {
        Ok(daemon) => Some(daemon),
        Err(why) => {
            let mend = match client.is_local() {
                true => "systemctl start aquifer   # then: journalctl -u aquifer -n 50",
                false => "systemctl status aquifer   # there; [api] listen says where it is asked",
            };
            report.add(Finding::new(codes::DAEMON_UNREACHABLE, why).mend(mend));
            None
        }
    }
}

/// Asks for all, and says what is wrong with it. What the daemon does not answer is empty.
pub(crate) async fn ask(client: &Client, daemon: &DaemonInfo, report: &mut Report) -> State {
    let mut silent = Vec::new();
    let list = take(patient(client.ask(&PoolsQuery)).await, &mut silent);
    let mut pools = Vec::new();
    for pool in list {
        pools.extend(take(
            patient(client.ask(&On::new(&pool.name, PoolQuery))).await.map(Some),
            &mut silent,
        ));
    }
    let all = DatasetQuery { name: None, recursive: true };
    let datasets = take(patient(client.ask(&all)).await, &mut silent);
    let shares = take(patient(client.ask(&SharesQuery)).await, &mut silent);
    let locks = take(patient(client.ask(&LocksQuery)).await, &mut silent);
    for why in silent {
        let mend = "aquifer pool status   # and: aquifer events";
        report.add(Finding::new(codes::DAEMON_UNREACHABLE, why).mend(mend));
    }
    let state = State { pools, datasets, shares, locks };
    of_daemon(daemon, &state, report);
    state.pools.iter().for_each(|pool| of_pool(pool, report));
    of_datasets(&state, report);
    state
}

fn of_daemon(daemon: &DaemonInfo, state: &State, report: &mut Report) {
    if daemon.starting {
        let what = "the daemon is still importing pools: what is missing may come yet";
        report.add(Finding::new(codes::STARTING, what).mend("aquifer pool list"));
    }
    for problem in &daemon.problems {
        report.add(Finding::of(problem, problem.status.clone()));
    }
    for note in daemon.nfs.notes.iter().filter(|_| daemon.problems.is_empty()) {
        let mend = "aquifer pool status   # and: aquifer share";
        report.add(Finding::new(codes::NFS_NOT_SERVED, note.clone()).mend(mend));
    }
    if state.pools.is_empty() && !daemon.starting {
        let what = "there is no pool, so NFS does not listen";
        let mend = "aquifer pool import   # lists those on disks; a new one: aquifer pool create \
                    tank mirror DISK DISK";
        report.add(Finding::new(codes::NO_POOL, what).mend(mend));
    } else if state.shares.is_empty() && !state.pools.is_empty() {
        let what = "nothing is exported: no client can mount anything";
        let pool = state.pools.first().map_or("tank", |pool| pool.summary.name.as_str());
        let mend = format!("aquifer create -o sharenfs=rw=HOST:@NETWORK {pool}/vms");
        report.add(Finding::new(codes::NOTHING_EXPORTED, what).mend(mend));
    }
}

fn of_pool(pool: &PoolStatus, report: &mut Report) {
    for problem in &pool.problems {
        report.add(Finding::of(problem, format!("{}: {}", pool.summary.name, problem.status)));
    }
}

fn of_datasets(state: &State, report: &mut Report) {
    for share in &state.shares {
        if let Some(problem) = &share.problem {
            let what = format!("{} is not exported: {problem}", share.path);
            let mend = format!("aquifer set sharenfs=rw=HOST:@NETWORK {}", share.dataset);
            report.add(Finding::new(codes::EXPORT_BROKEN, what).mend(mend));
        }
        for host in &share.hosts {
            if let Some(problem) = &host.problem {
                let what = format!("sharenfs names {}, which has no address: {problem}", host.name);
                let mend = format!("echo 'ADDRESS {}' >> /etc/hosts   # of the server", host.name);
                report.add(Finding::new(codes::SHARE_HOST_UNKNOWN, what).mend(mend));
            }
        }
        for risk in &share.risks {
            let what = format!("{}: {risk}", share.path);
            report.add(Finding::new(codes::EXPORT_OPEN, what).mend("aquifer share --audit"));
        }
    }
    for dataset in state.datasets.iter().filter(|dataset| dataset.nfs_path.is_some()) {
        let name = &dataset.name;
        if dataset.standby {
            let what = format!("{name} is on standby: clients do not reach it");
            report.add(Finding::new(codes::STANDBY, what).mend("aquifer replicate"));
        } else if dataset.available_bytes == 0 && state.is_in_service(name) {
            let what = format!("{name} has no room left: clients cannot write");
            let mend = format!("aquifer list -r -o name,used,available,quota {name}");
            report.add(Finding::new(codes::DATASET_FULL, what).mend(mend));
        }
        if let Some(reason) = property(dataset, "sync").strip_prefix("disabled") {
            let reason = reason.trim_start_matches(':');
            let what = format!(
                "{name} has sync=disabled ({reason}): a power cut takes back what guests believe \
                 to be on disk"
            );
            let mend = format!("aquifer set sync=standard {name}");
            report.add(Finding::new(codes::SYNC_DISABLED, what).mend(mend));
        }
    }
}

impl State {
    /// Whether the pool of a dataset takes changes.
    pub fn is_in_service(&self, dataset: &str) -> bool {
        let name = dataset.split('/').next().unwrap_or(dataset);
        let pool = self.pools.iter().find(|pool| pool.summary.name == name);
        let silent = |pool: &&PoolStatus| pool.problems.iter().any(|it| it.code == "pool-silent");
        pool.filter(|pool| !silent(pool))
            .is_some_and(|pool| matches!(pool.summary.health, Health::Online | Health::Degraded))
    }

    pub fn dataset(&self, name: &str) -> Option<&DatasetInfo> {
        self.datasets.iter().find(|dataset| dataset.name == name)
    }
}

/// A property's value, empty if it has none.
pub(crate) fn property<'d>(dataset: &'d DatasetInfo, name: &str) -> &'d str {
    let found = dataset.properties.iter().find(|property| property.name == name);
    found.map(|property| property.value.as_str()).unwrap_or_default()
}

fn take<T: Default>(answer: Result<T, String>, silent: &mut Vec<String>) -> T {
    answer.unwrap_or_else(|why| {
        silent.push(why);
        T::default()
    })
}

/// An answer, in time.
pub(crate) async fn patient<T>(asked: impl Future<Output = Answer<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error: ClientError| error.to_string()),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            Err(format!("the daemon has not answered for {seconds} s: a pool may not answer it"))
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
