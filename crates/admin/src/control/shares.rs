//! Exports, their clients, and the reasons why a client is admitted or refused.
//!
//! Invariant: the reasons come from the export table that judges requests, not from the properties
//! that it was made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use aquifer_api::{ApiError, HostInfo, ShareAccess, ShareAnswer, ShareInfo, ShareQuery, ShareWhy};
use aquifer_dataset::Property;
use aquifer_nfs::limits::EXPORTS_MAX;
use aquifer_nfs::{
    Access, Client, Entry, Explained, Explanation, Export, Squash, Verdict, Xprtsec,
};

use super::Control;
use super::serving::Serving;
use crate::sharenfs;

impl Control {
    /// All exports of all pools in service, and datasets whose property is invalid.
    pub fn shares(&self) -> Vec<ShareInfo> {
        let known = self.frontend.hosts();
        let mut shares = Vec::new();
        for serving in self.all_serving() {
            for share in serving.shares() {
                let Share { dataset, source, export, .. } = share;
                let path = sharenfs::path_of(&dataset);
                let (options, hosts, problem, risks) = Default::default();
                let none = ShareInfo { path, dataset, options, source, hosts, problem, risks };
                shares.push(match export {
                    Ok(None) => continue,
                    Ok(Some(export)) => ShareInfo {
                        options: sharenfs::words(&export),
                        hosts: named(&export.access, &known),
                        risks: sharenfs::risks(&export).into_iter().map(str::to_owned).collect(),
                        ..none
                    },
                    Err(problem) => ShareInfo { problem: Some(problem), ..none },
                });
            }
        }
        shares.sort_by(|a, b| a.path.cmp(&b.path));
        shares
    }

    /// A host's rights at a path, and the rule behind them.
    ///
    /// # Errors
    /// The host has no address.
    pub async fn share_why(&self, query: ShareQuery) -> Result<ShareWhy, ApiError> {
        let ShareQuery { host, path } = query;
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let addresses = self.addresses_of(&host).await?;
        let answer = |address: IpAddr| self.why(&path, address.to_canonical());
        let answers = addresses.into_iter().map(answer).collect();
        Ok(ShareWhy { host, path, answers })
    }

    async fn addresses_of(&self, host: &str) -> Result<Vec<IpAddr>, ApiError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse() {
            return Ok(vec![address]);
        }
        let name = sharenfs::host(host).map_err(ApiError::invalid)?;
        let found = self.frontend.look_up(BTreeSet::from([name.clone()])).await;
        let found = found.into_iter().find(|known| known.name == name);
        match found {
            Some(known) if !known.addresses.is_empty() => Ok(known.addresses),
            known => {
                let why = known.and_then(|known| known.problem);
                let why = why.unwrap_or_else(|| "nothing looks up names here".into());
                Err(ApiError::not_found(format!("{name}: {why}; say its address")))
            }
        }
    }

    fn why(&self, path: &str, address: IpAddr) -> ShareAnswer {
        let shares: Vec<Share> =
            self.all_serving().iter().flat_map(|serving| serving.shares()).collect();
        let nothing = |why: String| ShareAnswer {
            address,
            access: ShareAccess::Refused,
            export: None,
            dataset: None,
            sharenfs: None,
            source: None,
            rule: None,
            why: vec![why],
        };
        let explained = match self.frontend.explain(path, address) {
            None => return nothing("nothing is served over NFS: `aquifer pool status`".into()),
            Some(Explanation::NotExported) => return nothing(not_exported(path, &shares)),
            Some(Explanation::Exported(explained)) => *explained,
        };
        let share = shares.iter().find(|share| share.dataset == explained.export.dataset);
        ShareAnswer {
            address,
            access: access(explained.verdict),
            why: reasons(&explained, share),
            rule: explained.rule,
            export: Some(explained.export.path),
            dataset: Some(explained.export.dataset),
            sharenfs: share.map(|share| share.value.clone()),
            source: share.map(|share| share.source.clone()),
        }
    }

    /// Checks that this many more datasets can be exported.
    ///
    /// # Errors
    /// They cannot: the act must not begin then.
    pub(super) fn check_room(&self, more: usize) -> Result<(), ApiError> {
        room(self.exported.lock().len(), more)
    }

    /// The risks of the exports of a dataset and of those below it.
    pub(super) fn risks_of(&self, dataset: &str) -> Vec<String> {
        let exported = self.exported.lock();
        told(exported.iter().filter(|export| is_in(&export.dataset, dataset)))
    }

    /// Looks up the hosts that values of `sharenfs` and `snapcontrol` among these name, before the
    /// values are in force. Returns those without an address.
    pub(super) async fn look_up_hosts<'v>(
        &self,
        dataset: &str,
        values: impl Iterator<Item = (&'v String, &'v String)>,
    ) -> Vec<String> {
        let export = |(property, value): (&String, &String)| match Property::from_name(property) {
            Ok(Property::Sharenfs) => sharenfs::parse(dataset, value).ok()?,
            Ok(Property::Snapcontrol) => {
                let control = sharenfs::snapcontrol(value).ok()?;
                let access = Access { control, ..Access::default() };
                Some(Export { access, ..Export::new(sharenfs::path_of(dataset), dataset) })
            }
            _ => None,
        };
        let exports: Vec<Export> = values.filter_map(export).collect();
        let hosts = exports.iter().flat_map(|export| export.access.hosts());
        let hosts: BTreeSet<String> = hosts.map(str::to_owned).collect();
        if hosts.is_empty() {
            return Vec::new();
        }
        let known = self.frontend.look_up(hosts).await;
        unknown_hosts(&exports, &known)
    }
}

/// The number of further exports once this dataset is made, with a value of its own or without.
pub(super) fn made_exported(serving: &Serving, dataset: &str, value: Option<&String>) -> usize {
    let parent = dataset.rsplit_once('/').map_or("", |(parent, _)| parent);
    let is_exported = match value {
        Some(value) => value != OFF,
        None => serving.exports().iter().any(|export| export.dataset == parent),
    };
    usize::from(is_exported)
}

/// The highest number of further exports once a dataset has this value, or the inherited one.
pub(super) fn set_exported(serving: &Serving, dataset: &str, value: Option<&String>) -> usize {
    if value.is_some_and(|value| value == OFF) {
        return 0;
    }
    let new = serving.shares().into_iter().filter(|share| is_in(&share.dataset, dataset));
    new.filter(|share| matches!(share.export, Ok(None))).count()
}

/// Whether a dataset is this one, or one below it; the same of paths.
pub(super) fn is_in(dataset: &str, top: &str) -> bool {
    let below = dataset.strip_prefix(top);
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

const OFF: &str = "off";

fn room(exported: usize, more: usize) -> Result<(), ApiError> {
    if more == 0 || exported + more <= EXPORTS_MAX {
        return Ok(());
    }
    Err(ApiError::refused(format!(
        "{exported} datasets are exported, and no more than {EXPORTS_MAX} can be: export fewer, \
         with a directory for each virtual machine in one"
    )))
}

/// Exports that admit more than their owner may expect: each risk once, with some datasets.
pub(super) fn told<'e>(exports: impl Iterator<Item = &'e Export>) -> Vec<String> {
    let mut by_risk: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for export in exports {
        for risk in sharenfs::risks(export) {
            by_risk.entry(risk).or_default().push(&export.dataset);
        }
    }
    let each = by_risk.into_iter().map(|(risk, datasets)| {
        let names = datasets.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let more = match datasets.len() {
            0..=3 => String::new(),
            all => format!(" and {} more", all - 3),
        };
        format!("{names}{more}: {risk}")
    });
    each.collect()
}

/// A dataset's property, and the export that it defines.
pub(super) struct Share {
    dataset: String,
    value: String,
    source: String,
    export: Result<Option<Export>, String>,
    /// Why nobody may take snapshots, although `snapcontrol` is set.
    no_control: Option<String>,
    readonly: bool,
}

impl Serving {
    /// The export that `sharenfs` defines for each dataset, or the error in the value.
    fn shares(&self) -> Vec<Share> {
        let datasets = &self.service().datasets;
        // Of two datasets with the same file handles one is in service.
        let serve = datasets.all().into_iter().filter(|of| !of.is_standby());
        let each = serve.map(|of| {
            let dataset = datasets.full_name(&of);
            let (value, source) = datasets.value(&of, Property::Sharenfs);
            let (readonly, _) = datasets.value(&of, Property::Readonly);
            let control = sharenfs::snapcontrol(&datasets.value(&of, Property::Snapcontrol).0);
            let no_control = control.as_ref().err().cloned();
            let mut export = sharenfs::parse(&dataset, &value);
            if let (Ok(Some(export)), Ok(control)) = (&mut export, control) {
                export.access.control = control;
            }
            Share { export, no_control, readonly: readonly == "on", dataset, value, source }
        });
        each.collect()
    }

    /// The pool's exports, by path.
    pub(super) fn exports(&self) -> Vec<Export> {
        let shares = self.shares().into_iter();
        let mut exports: Vec<Export> = shares.filter_map(|share| share.export.ok()?).collect();
        exports.sort_by(|a, b| a.path.cmp(&b.path));
        exports
    }

    /// The datasets that are not exported, or whose snapshots nobody takes over NFS, because their
    /// property is invalid.
    pub(super) fn export_problems(&self) -> Vec<String> {
        let problems = self.shares().into_iter().flat_map(|share| {
            let name = share.dataset;
            let control = share
                .no_control
                .map(|why| format!("no host may take snapshots of {name}: snapcontrol: {why}"));
            let export = share.export.err();
            export
                .map(|why| format!("{name} is not exported: sharenfs: {why}"))
                .into_iter()
                .chain(control)
        });
        problems.collect()
    }
}

/// The hosts named by exports that have no address, or only an old one, and the reasons.
pub(super) fn unknown_hosts(exports: &[Export], known: &[HostInfo]) -> Vec<String> {
    let names: BTreeSet<&str> = exports.iter().flat_map(|export| export.access.hosts()).collect();
    let known = known.iter().filter(|host| names.contains(host.name.as_str()));
    let problems = known.filter_map(|host| Some((host, host.problem.as_ref()?)));
    let each = problems.map(|(host, problem)| {
        let meanwhile = match host.addresses.is_empty() {
            true => "; it is not let in until it has one (/etc/hosts goes before DNS)",
            false => "",
        };
        let of_export = exports.iter().flat_map(|export| export.access.of_export());
        let is_host = |entry: &Entry| entry.client == Client::Host(host.name.clone());
        let property = match of_export.into_iter().any(is_host) {
            true => Property::Sharenfs,
            false => Property::Snapcontrol,
        };
        format!("host {} in {}: {problem}{meanwhile}", host.name, property.name())
    });
    each.collect()
}

fn named(access: &Access, known: &[HostInfo]) -> Vec<HostInfo> {
    let names: BTreeSet<&str> = access.hosts().collect();
    known.iter().filter(|host| names.contains(host.name.as_str())).cloned().collect()
}

fn access(verdict: Verdict) -> ShareAccess {
    match verdict {
        Verdict::ReadWrite => ShareAccess::ReadWrite,
        Verdict::ReadOnly => ShareAccess::ReadOnly,
        Verdict::Refused => ShareAccess::Refused,
        Verdict::Waiting => ShareAccess::Waits,
    }
}

/// The reason why nothing is exported at a path: the property of the dataset that the path would be
/// of.
fn not_exported(path: &str, shares: &[Share]) -> String {
    let covers = |share: &&Share| is_in(path, &sharenfs::path_of(&share.dataset));
    match shares.iter().filter(covers).max_by_key(|share| share.dataset.len()) {
        None => format!("there is no dataset at {path}"),
        Some(Share { dataset, value, source, export: Ok(_), .. }) => {
            format!("{dataset} is not exported: sharenfs={value} ({source})")
        }
        Some(Share { dataset, export: Err(why), .. }) => {
            format!("{dataset} is not exported: sharenfs: {why}")
        }
    }
}

fn reasons(explained: &Explained, share: Option<&Share>) -> Vec<String> {
    let Explained { export, verdict, rule, root_rule, control_rule } = explained;
    let mut why = vec![match (verdict, rule) {
        (Verdict::Waiting, _) => {
            "a host in its rules was not looked up with success yet; until then this client has to \
             wait"
                .into()
        }
        (Verdict::Refused, Some(rule)) => format!("{rule} refuses it"),
        (Verdict::Refused, None) => "no rule lets it in".into(),
        (_, Some(rule)) => format!("{rule} lets it in"),
        (_, None) => "a rule lets it in".into(),
    }];
    if !verdict.admits() {
        let proof = |entry: &&Entry| matches!(entry.client, Client::Certificate(_));
        let proven = export.access.entries().filter(proof).map(ToString::to_string);
        let proven: Vec<_> = proven.collect();
        why.extend(
            (!proven.is_empty())
                .then(|| format!("its certificate may let it in, over TLS: {}", proven.join(", "))),
        );
        return why;
    }
    why.extend(match export.xprtsec {
        Xprtsec::None => None,
        Xprtsec::Tls => Some("over TLS only: xprtsec=tls".into()),
        Xprtsec::Mtls => Some("over TLS and with a certificate only: xprtsec=mtls".into()),
    });
    why.extend(export.secure_ports.then(|| "from ports below 1024 only: secure".into()));
    let anonymous = match export.refuse_anonymous {
        true => "is refused (anon=-1)".into(),
        false => format!("becomes {}:{}", export.anon_uid, export.anon_gid),
    };
    why.push(match (export.squash, root_rule) {
        (Squash::None, _) => "its superuser is superuser here".into(),
        (Squash::Root, Some(rule)) => format!("its superuser is superuser here: {rule}"),
        (Squash::Root, None) => format!("its superuser {anonymous}: root_squash"),
        (Squash::All, _) => format!("each of its users {anonymous}: all_squash"),
    });
    why.extend(
        control_rule
            .as_ref()
            .map(|rule| format!("its superuser takes and destroys snapshots: {rule}")),
    );
    why.extend(export.nosuid.then(|| "it cannot set the bits setuid and setgid: nosuid".into()));
    let readonly = share.is_some_and(|share| share.readonly) && *verdict == Verdict::ReadWrite;
    why.extend(readonly.then(|| "changes are refused all the same: readonly=on".into()));
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_that_would_export_too_many_is_refused() {
        assert!(room(EXPORTS_MAX - 1, 1).is_ok() && room(EXPORTS_MAX, 0).is_ok());
        let refused = room(EXPORTS_MAX, 1).unwrap_err().to_string();
        assert!(refused.contains("65536 datasets are exported"), "{refused}");
        assert!(room(1, EXPORTS_MAX).is_err());
    }
}
