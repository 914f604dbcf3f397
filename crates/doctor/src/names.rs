//! Names and addresses, as this machine and the server find them.

use std::net::{IpAddr, ToSocketAddrs};
use std::process::Stdio;
use std::time::Duration;

use crate::codes;
use crate::report::{Finding, Report};

/// The addresses of a name, as this machine finds them; `None`: in no time.
pub(crate) async fn look_up(name: &str) -> Option<Vec<IpAddr>> {
    let owned = name.to_string();
    let asked = tokio::task::spawn_blocking(move || {
        let found = (owned.as_str(), 0).to_socket_addrs().into_iter().flatten();
        let mut all = Vec::new();
        for address in found.map(|at| at.ip()) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    });
    tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()
}

/// Compares what this machine and the server know of a hypervisor's name.
pub(crate) async fn check_host(host: &str, by_server: &[IpAddr], report: &mut Report) {
    let is_address = host.parse::<IpAddr>().is_ok();
    if !is_address {
        let here = look_up(host).await.unwrap_or_default();
        let differs = |a: &[IpAddr], b: &[IpAddr]| a.iter().any(|it| !b.contains(it));
        if differs(by_server, &here) || differs(&here, by_server) {
            let what = format!(
                "{host} is {} for the server, and {} here: by a name, exports admit what the \
                 server finds",
                listed(by_server),
                listed(&here)
            );
            let mend = format!("getent ahosts {host}   # on both; then mend /etc/hosts or DNS");
            report.add(Finding::new(codes::NAMES_DIFFER, what).mend(mend));
        }
    }
    for address in by_server.iter().take(ADDRESSES_MAX) {
        let Some(names) = reverse(*address).await else { return };
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_ascii_lowercase();
        let is_it = names.iter().any(|name| short(name) == short(host));
        if names.is_empty() || !is_address && !is_it {
            let names = if names.is_empty() { "no name".into() } else { names.join(", ") };
            let what = format!(
                "{address} has {names} by reverse lookup: Aquifer never asks for that; other tools \
                 and logs do"
            );
            report.add(
                Finding::new(codes::NAME_REVERSE, what).mend(format!("getent hosts {address}")),
            );
        }
    }
}

/// Whether the name that `aquifer connect` tells hypervisors leads to this machine.
pub(crate) async fn check_own(own: &[IpAddr], report: &mut Report) {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let found = look_up(&name).await.unwrap_or_default();
    if !found.iter().any(|address| own.contains(address) && !address.is_loopback()) {
        let what = format!(
            "{name}, the name of this machine, is {} here: hypervisors need a name or address that \
             reaches it",
            listed(&found)
        );
        let mend = "aquifer connect --host ADDRESS --for HYPERVISOR DATASET";
        report.add(Finding::new(codes::SERVER_NAME, what).mend(mend));
    }
}

fn listed(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "nothing".into(),
        all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The names of an address; `None` if nothing here can be asked.
async fn reverse(address: IpAddr) -> Option<Vec<String>> {
    let output = said("getent", &["hosts".into(), address.to_string()]).await?;
    let mut words = output.split_whitespace();
    words.next();
    Some(words.map(str::to_string).collect())
}

/// Returns what a program of this machine prints, if it is there and ends in time.
pub(crate) async fn said(program: &'static str, words: &[String]) -> Option<String> {
    let words = words.to_vec();
    let ran = tokio::task::spawn_blocking(move || {
        // `timeout` ends it: nothing here waits for a resolver that hangs.
        let mut command = std::process::Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(program).args(words);
        command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()
    });
    let output = ran.await.ok()??;
    // 124 to 127: it took too long, or there is no such program.
    let ended = output.status.code().is_some_and(|code| code < 124);
    ended.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

const PATIENCE: Duration = Duration::from_secs(5);
const ADDRESSES_MAX: usize = 4;
