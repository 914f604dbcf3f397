//! Checks of what hypervisors will meet, done before they meet it: their clients' steps are
//! replayed from this machine against a server, and what is around them is looked at.
//!
//! # Invariants
//! - Nothing that users have is changed. What replays write lies in a new directory with a hidden
//!   name, which is removed whatever happens ([`scratch`]); where an export may only be read,
//!   nothing is written.
//! - Each finding has a code that stays ([`codes`]), a level, and the command that mends it.
//! - Every wait has a limit, and a server that is down, silent or empty is a finding, no failure.
//! - Of the server there is known what it says itself, and what it answers on the wire.
//!
//! [`server`] and [`state`] ask the daemon, [`rules`] which hosts are let in; [`ports`], [`here`]
//! and [`names`] look at what lies between; [`replay`] does what clients do, by calls of
//! [`session`].

pub mod bench;
pub mod codes;
mod here;
mod names;
mod ports;
mod replay;
mod report;
mod rules;
mod scratch;
mod server;
mod session;
mod state;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aquifer_api::client::Client;

use here::Way;
use replay::Ground;
pub use report::{Finding, Level, Replay, Report, Step};
use server::Server;

/// Request for a look at a server.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// A hypervisor, by name or address: what the exports answer to it, and the way to it.
    pub host: Option<String>,
    /// Clients are replayed at this dataset alone.
    pub dataset: Option<String>,
}

/// Looks at a server. Once `stop` is set it ends soon, and cleans up before.
pub async fn examine(client: &Client, asked: &Asked, stop: Arc<AtomicBool>) -> Report {
    let mut report = Report::default();
    let addresses = server::addresses(client).await;
    let daemon = state::daemon(client, &mut report).await;
    let server = Server::of(client, addresses.clone(), daemon.as_ref());
    report.server.clone_from(&server.name);
    let looked = server.clone();
    let (open, mut report) = on_thread(report, move |report| ports::check(&looked, report)).await;
    let Some(daemon) = daemon else { return finish(report, &stop) };
    let mut state = state::ask(client, &daemon, &mut report).await;
    if let Some(name) = &asked.dataset {
        state.shares.retain(|share| share.dataset == *name);
        if state.shares.is_empty() {
            let what = format!("{name} is no dataset that is exported");
            report.add(Finding::new(codes::NOTHING_EXPORTED, what).mend("aquifer share"));
        }
    }
    if let Some(host) = &asked.host {
        rules::of_host(client, host, &state, &mut report).await;
    }
    let mut report = around(&server, addresses, asked, report).await;
    let grounds = rules::grounds(client, &server, &open, &state, &mut report).await;
    let ended = Arc::clone(&stop);
    let ((), report) = on_thread(report, move |report| replay_all(&grounds, &ended, report)).await;
    finish(report, &stop)
}

fn replay_all(grounds: &[Ground], stop: &AtomicBool, report: &mut Report) {
    grounds.iter().for_each(|ground| replay::replay(ground, stop, report));
}

/// Names, clock and the way.
async fn around(
    server: &Server,
    addresses: Vec<IpAddr>,
    asked: &Asked,
    mut report: Report,
) -> Report {
    if server.is_local {
        names::check_own(&addresses, &mut report).await;
    }
    clock(&mut report).await;
    let far = match (&asked.host, server.is_local) {
        (Some(host), true) => names::look_up(host).await.unwrap_or_default(),
        (_, false) => server.nfs.iter().map(SocketAddr::ip).collect(),
        (None, true) => Vec::new(),
    };
    let Some(other) = far.first().copied() else { return report };
    let (found, mut report) = on_thread(report, move |_| here::way_to(other)).await;
    report.add(match found {
        Ok(Way::Whole(mtu)) => {
            let what = format!("datagrams of {mtu} bytes come through to {other} in one piece");
            Finding::new(codes::MTU_RIGHT, what)
        }
        Ok(Way::Short(mtu)) => {
            let what = format!(
                "short datagrams come through to {other}, and those of {mtu} bytes, the MTU here, \
                 do not: large reads and writes will hang"
            );
            let mend = "ip link set dev INTERFACE mtu 1500   # or the same MTU on all hosts and \
                        switches between";
            Finding::new(codes::MTU_PATH, what).mend(mend)
        }
        Ok(Way::Unknown(mtu)) => {
            let what = format!(
                "{other} does not answer datagrams, so nobody knows whether those of {mtu} bytes \
                 come through"
            );
            let mend = format!("ping -M do -s {} -c 3 {other}", mtu.saturating_sub(28));
            Finding::new(codes::MTU_UNKNOWN, what).mend(mend)
        }
        Err(error) => {
            let what = format!("there is no way to {other}: {error}");
            Finding::new(codes::MTU_UNKNOWN, what).mend(format!("ip route get {other}"))
        }
    });
    report
}

/// Whether something keeps this machine's clock.
async fn clock(report: &mut Report) {
    let words = ["show", "--property=NTPSynchronized", "--value"].map(String::from);
    let said = names::said("timedatectl", &words).await.unwrap_or_default();
    match said.trim() {
        "yes" => report.add(Finding::new(codes::CLOCK_RIGHT, "NTP keeps this machine's clock")),
        "no" => {
            let what = "NTP does not keep this machine's clock: it drifts away from hypervisors'";
            let mend = "timedatectl set-ntp true";
            report.add(Finding::new(codes::CLOCK_UNSYNCHRONISED, what).mend(mend));
        }
        _ => {
            let what = "nothing here says whether NTP keeps this machine's clock";
            report.add(Finding::new(codes::CLOCK_UNKNOWN, what).mend("timedatectl status"));
        }
    }
}

/// Does what blocks on a thread of its own.
async fn on_thread<T: Send + 'static>(
    mut report: Report,
    act: impl FnOnce(&mut Report) -> T + Send + 'static,
) -> (T, Report) {
    let both = move || {
        let done = act(&mut report);
        (done, report)
    };
    match tokio::task::spawn_blocking(both).await {
        Ok(both) => both,
        // A panic is a bug of ours, and stays one.
        Err(ended) => std::panic::resume_unwind(ended.into_panic()),
    }
}

fn finish(mut report: Report, stop: &AtomicBool) -> Report {
    if session::is_stopped(stop) {
        let what = "it was interrupted: what stands here is not all";
        report.add(Finding::new(codes::INTERRUPTED, what).mend("aquifer doctor"));
    }
    // The worst first; else in the order in which they were found.
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    report
}
