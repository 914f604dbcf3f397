//! Which hosts are let in, by the server's own answer: that of `aquifer share why`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aquifer_api::client::Client;
use aquifer_api::{ShareAccess, ShareAnswer, ShareInfo, ShareQuery};
use aquifer_client::wire::call::Source;

use crate::codes;
use crate::here;
use crate::names;
use crate::replay::Ground;
use crate::report::{Finding, Report};
use crate::server::Server;
use crate::state::{State, patient, property};

/// Reports what the exports answer to a hypervisor.
pub(crate) async fn of_host(client: &Client, host: &str, state: &State, report: &mut Report) {
    let mut addresses = Vec::new();
    for share in state.shares.iter().filter(|share| share.problem.is_none()) {
        let query = ShareQuery { host: host.into(), path: share.path.clone() };
        let answers = match patient(client.ask(&query)).await {
            Ok(why) => why.answers,
            Err(why) => {
                let mend = format!("echo 'ADDRESS {host}' >> /etc/hosts   # of the server");
                report.add(Finding::new(codes::HOST_UNKNOWN, why).mend(mend));
                return;
            }
        };
        for answer in answers {
            if !addresses.contains(&answer.address) {
                addresses.push(answer.address);
            }
            report.add(judged(share, &answer));
        }
    }
    names::check_host(host, &addresses, report).await;
}

fn judged(share: &ShareInfo, answer: &ShareAnswer) -> Finding {
    let (path, dataset, client) = (&share.path, &share.dataset, answer.address);
    let why = answer.why.first().cloned().unwrap_or_default();
    let admit = || admitting(answer.sharenfs.as_deref().unwrap_or_default(), client, dataset);
    match answer.access {
        ShareAccess::ReadWrite if squashes_root(&share.options) => {
            let what = format!(
                "{client} may write {path}, but its root is anonymous there ({}): ESXi and XCP-ng \
                 work as root",
                share.options
            );
            let mend = format!("aquifer set sharenfs=rw={},no_root_squash {dataset}", word(client));
            Finding::new(codes::EXPORT_SQUASHES_ROOT, what).mend(mend)
        }
        ShareAccess::ReadWrite => {
            let mend = format!("aquifer connect --for xcp-ng|esxi|proxmox|libvirt|qemu {dataset}");
            let what = format!("{client} may read and write {path}");
            Finding::new(codes::EXPORT_ADMITS_HOST, what).mend(mend)
        }
        ShareAccess::ReadOnly => {
            let what = format!("{client} may only read {path}: {why}");
            Finding::new(codes::EXPORT_READ_ONLY, what).mend(admit())
        }
        ShareAccess::Refused => {
            let what = format!("{client} is refused at {path}: {why}");
            Finding::new(codes::EXPORT_REFUSES_HOST, what).mend(admit())
        }
        ShareAccess::Waits => {
            let what = format!("{client} has to wait at {path}: {why}");
            let mend = "getent ahosts NAME   # on the server: DNS must answer, or /etc/hosts";
            Finding::new(codes::EXPORT_REFUSES_HOST, what).mend(mend)
        }
    }
}

/// The command that lets an address in, beside those that are.
fn admitting(sharenfs: &str, address: IpAddr, dataset: &str) -> String {
    let address = word(address);
    let mut options: Vec<String> =
        sharenfs.split(',').filter(|it| !it.is_empty() && *it != "off").map(String::from).collect();
    match options.iter_mut().find(|option| option.starts_with("rw=")) {
        Some(list) => *list = format!("{list}:{address}"),
        None => options.push(format!("rw={address}")),
    }
    format!("aquifer set 'sharenfs={}' {dataset}", options.join(","))
}

/// An address as `sharenfs` takes it.
fn word(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn options(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

fn squashes_root(text: &str) -> bool {
    let is_named = options(text).any(|option| option.starts_with("root="));
    options(text).any(|option| option == "all_squash" || option == "root_squash" && !is_named)
}

/// The exports at which clients can be replayed from here, and why they cannot at others.
pub(crate) async fn grounds(
    client: &Client,
    server: &Server,
    open: &[SocketAddr],
    state: &State,
    report: &mut Report,
) -> Vec<Ground> {
    let (mut grounds, mut elsewhere) = (Vec::new(), Vec::new());
    let served = |share: &&ShareInfo| {
        let stands_by = state.dataset(&share.dataset).is_some_and(|dataset| dataset.standby);
        share.problem.is_none() && !stands_by && !open.is_empty()
    };
    for share in state.shares.iter().filter(served) {
        if !state.is_in_service(&share.dataset) {
            let what = format!("{} is not replayed: its pool takes no changes now", share.path);
            report.add(Finding::new(codes::NOT_REPLAYED, what).mend("aquifer pool status"));
            continue;
        }
        if grounds.len() >= REPLAYED_MAX {
            let what = format!("{} and further exports are not replayed", share.path);
            report
                .add(Finding::new(codes::NOT_REPLAYED, what).mend("aquifer doctor --dataset NAME"));
            break;
        }
        let asks = options(&share.options).find_map(|option| option.strip_prefix("xprtsec="));
        if asks.is_some_and(|kinds| !kinds.split(':').any(|kind| kind == "none")) {
            let what = format!("{} asks for TLS: it is not replayed", share.path);
            let mend = format!("aquifer connect --for linux {}   # and mount it", share.dataset);
            report.add(Finding::new(codes::NEEDS_TLS, what).mend(mend));
            continue;
        }
        match ground(client, server, open, (state, share), report).await {
            Ok(ground) => grounds.extend(ground),
            Err(NotAdmitted) => elsewhere.push(share.path.as_str()),
        }
    }
    if !elsewhere.is_empty() {
        report.add(not_admitted(&elsewhere, server));
    }
    grounds
}

/// This machine is none of an export's clients.
#[derive(Debug)]
pub(crate) struct NotAdmitted;

/// That exports are not replayed, in one note: a server is rarely a client of its own, and that is
/// as it should be.
pub(crate) fn not_admitted(paths: &[&str], server: &Server) -> Finding {
    let (first, others) = (paths.first().copied().unwrap_or_default(), paths.len() - 1);
    let exports = match others {
        0 => first.to_string(),
        1 => format!("{first} and another export"),
        _ => format!("{first} and {others} other exports"),
    };
    let who = if server.is_local { "the server itself" } else { "this machine" };
    let what = format!("{exports}: not replayed from here, as {who} is none of the hosts let in");
    let mend = "aquifer --api https://SERVER:9443 --api-certificate FILE --api-token FILE doctor   \
                # on a hypervisor";
    Finding::new(codes::NOT_ADMITTED_HERE, what).mend(mend)
}

/// Where clients of an export can be replayed from here; `None`, and a finding, if only some can.
///
/// # Errors
/// It does not let this machine in.
pub(crate) async fn ground(
    client: &Client,
    server: &Server,
    open: &[SocketAddr],
    (state, share): (&State, &ShareInfo),
    report: &mut Report,
) -> Result<Option<Ground>, NotAdmitted> {
    let path = share.path.clone();
    let mut best: Option<(SocketAddr, IpAddr, bool)> = None;
    for at in open {
        // On the server itself each of its addresses calls itself.
        let from = if server.is_local { Ok(at.ip()) } else { here::source_to(at.ip()) };
        let Ok(from) = from else { continue };
        let query = ShareQuery { host: from.to_string(), path: path.clone() };
        let Ok(why) = patient(client.ask(&query)).await else { continue };
        let writes = match why.answers.first().map(|answer| answer.access) {
            Some(ShareAccess::ReadWrite) => true,
            Some(ShareAccess::ReadOnly) => false,
            _ => continue,
        };
        if best.is_none_or(|(_, _, best)| writes && !best) {
            best = Some((*at, from, writes));
        }
    }
    let Some((nfs, from, writes)) = best else { return Err(NotAdmitted) };
    let insecure = options(&share.options).any(|option| option == "insecure");
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !insecure {
        let what = format!("{path} is not replayed: it takes calls of superusers alone");
        report.add(Finding::new(codes::NOT_ROOT, what).mend("sudo aquifer doctor"));
        return Ok(None);
    }
    let dataset = share.dataset.clone();
    let sync = state.dataset(&dataset).map(|info| property(info, "sync")).unwrap_or_default();
    let any: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let from = if server.is_local || nfs.is_ipv6() { from } else { any };
    Ok(Some(Ground {
        nfs,
        portmap: server.portmap.address(),
        from: if is_root { Source::root(from) } else { Source::user(from) },
        from_high: Source::user(from),
        path,
        dataset,
        writes: writes && !squashes_root(&share.options),
        insecure,
        sync_always: sync == "always",
        grace: state.locks.grace,
    }))
}

/// Each takes a moment, and some hosts have thousands.
const REPLAYED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_added_to_those_that_are_let_in() {
        let four: IpAddr = "10.1.0.9".parse().unwrap();
        let six: IpAddr = "fd00::9".parse().unwrap();
        for (value, address, command) in [
            ("rw=hv1:@10.2.0.0/16,secure", four, "'sharenfs=rw=hv1:@10.2.0.0/16:10.1.0.9,secure'"),
            ("rw=hv1", six, "'sharenfs=rw=hv1:[fd00::9]'"),
            ("ro=hv1", four, "'sharenfs=ro=hv1,rw=10.1.0.9'"),
            ("off", four, "'sharenfs=rw=10.1.0.9'"),
        ] {
            assert_eq!(
                admitting(value, address, "tank/a"),
                format!("aquifer set {command} tank/a")
            );
        }
    }

    #[test]
    fn root_is_squashed_unless_it_is_named() {
        for (text, is_squashed) in [
            ("rw,root_squash", true),
            ("rw,all_squash,root=hv1", true),
            ("rw,root_squash,root=hv1", false),
            ("rw,no_root_squash", false),
        ] {
            assert_eq!(squashes_root(text), is_squashed, "{text}");
        }
    }
}
