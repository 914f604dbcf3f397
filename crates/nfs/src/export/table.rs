//! The exports and what finds them: by guid, by path, by client.
//!
//! Invariants:
//! - What any caller can make up (a guid, a path, an address) is looked up in a map: no search over
//!   all exports, no lock that keeps others out. An address that was not seen yet is judged once
//!   by each kind of rules.
//! - What is remembered of clients is bounded, and forgotten with each change of the rules.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Export, Refused, Rights, RootOf, components, path_of};
use crate::access::{Addresses, Rules, Verdict};
use crate::limits::{EXPORT_LIST_BYTES_MAX, STANDINGS_MAX};
use crate::security::Security;
use crate::server::Origin;
use crate::volume::Volume;

/// The exports of the datasets with each guid, in their order.
type Guids = HashMap<u64, Vec<usize>>;

#[derive(Debug, Default)]
pub(super) struct Table {
    exports: Vec<Export>,
    /// Those of the export at the same place.
    rules: Vec<Rules>,
    /// One export of each kind: of most, many have the same rules, which they inherit.
    kinds: Vec<usize>,
    /// Of the hosts that the exports name.
    pub addresses: Addresses,
    by_guid: Guids,
    by_path: HashMap<Vec<u8>, usize>,
    /// Components of the longest path.
    depth: usize,
    /// At least what EXPORT's reply takes.
    pub list_bytes_max: usize,
    standings: Mutex<HashMap<(IpAddr, Security), Standing>>,
}

/// What a client's address is worth, and what it has proven, over all exports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// An export admits it, if it comes as it must: from such a port, over TLS.
    pub is_admitted: bool,
    /// An export admits it, or may yet.
    pub may_come: bool,
    /// And its calls travel as they must.
    pub calls: bool,
    /// And from any port.
    pub calls_from_any_port: bool,
}

/// What came of a handle.
pub(super) enum Found {
    /// There is nothing of this guid.
    Nothing,
    Refused(Refused),
    Admitted(Arc<Volume>, Rights),
}

impl Table {
    pub fn new(exports: Vec<Export>, by_guid: Guids, addresses: Addresses) -> Self {
        let rules = rules(&exports, &addresses);
        let kinds = kinds(&exports);
        let depths = exports.iter().map(|export| components(export.path.as_bytes()).count());
        let depth = depths.max().unwrap_or(0);
        let paths = exports.iter().map(|export| export.path.clone().into_bytes());
        let by_path = paths.zip(0..).collect();
        let listed: usize = exports.iter().map(listed_bytes_max).sum();
        let list_bytes_max = listed.min(EXPORT_LIST_BYTES_MAX);
        if listed > list_bytes_max {
            tracing::warn!(
                bytes = listed,
                most = list_bytes_max,
                "clients that ask for a list of exports see the first ones only; all can be mounted"
            );
        }
        let standings = Mutex::default();
        Table {
            exports,
            rules,
            kinds,
            addresses,
            by_guid,
            by_path,
            depth,
            list_bytes_max,
            standings,
        }
    }

    /// How many kinds of rules there are.
    #[cfg(test)]
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.rules = rules(&self.exports, &addresses);
        self.addresses = addresses;
        self.standings.get_mut().clear();
    }

    /// The exports that admit a client of this address; all, if none is given.
    pub fn list_for(&self, client: Option<IpAddr>) -> Vec<Export> {
        let is_known = |client| self.standing(client, &Security::Clear).is_admitted;
        if client.is_some_and(|client| !is_known(client)) {
            return Vec::new();
        }
        let admits = |rules: &Rules| client.is_none_or(|at| rules.judge(at, &[]).verdict.admits());
        let told = self.exports.iter().zip(&self.rules).filter(|(_, rules)| admits(rules));
        told.map(|(export, _)| export.clone()).collect()
    }

    pub fn standing(&self, client: IpAddr, security: &Security) -> Standing {
        let client = (client.to_canonical(), security.clone());
        if let Some(known) = self.standings.lock().get(&client) {
            return *known;
        }
        let mut standing = Standing::default();
        let kinds = self.kinds.iter();
        for (export, rules) in
            kinds.filter_map(|index| self.exports.get(*index).zip(self.rules.get(*index)))
        {
            let verdict = rules.judge(client.0, security.names()).verdict;
            let (may_come, travels) = (verdict != Verdict::Refused, export.takes(security));
            standing.is_admitted |= verdict.admits();
            standing.may_come |= may_come;
            standing.calls |= may_come && travels;
            standing.calls_from_any_port |= may_come && travels && !export.secure_ports;
        }
        let mut standings = self.standings.lock();
        if standings.len() >= STANDINGS_MAX {
            standings.clear();
        }
        standings.insert(client, standing);
        standing
    }

    pub fn admit(&self, root_of: &RootOf, guid: u64, origin: &Origin) -> Found {
        let candidates = self.by_guid.get(&guid).into_iter().flatten();
        let exports =
            candidates.filter_map(|index| self.exports.get(*index).zip(self.rules.get(*index)));
        // Of all exports of a dataset: what was looked up may not hold any more.
        let mut exports = exports
            .filter_map(|(export, rules)| {
                let root = root_of(&export.dataset)?;
                (root.handle.fs_guid.0 == guid).then_some((export, rules, root))
            })
            .peekable();
        if exports.peek().is_none() {
            return Found::Nothing;
        }
        let mut refused =
            Refused { path: String::new(), waiting: false, port: true, is_protected: true };
        for (export, rules, root) in exports {
            let Origin { peer, security, .. } = origin;
            let judgement = rules.judge(peer.ip(), security.names());
            let (named, port) = (judgement.verdict.admits(), export.admits_port(peer.port()));
            let is_protected = export.takes(security);
            if named && port && is_protected {
                return Found::Admitted(root.volume, Rights::new(export, &judgement));
            }
            refused.path.clone_from(&export.path);
            refused.waiting |= judgement.verdict == Verdict::Waiting;
            refused.port &= port || !named;
            refused.is_protected &= is_protected || !named;
        }
        Found::Refused(refused)
    }

    /// The export under whose path a path lies, the nearest one, and the components beyond it.
    pub fn covering<'a, 'p>(
        &self,
        path: &'a [&'p [u8]],
    ) -> Option<(&Export, &Rules, &'a [&'p [u8]])> {
        (0..=self.depth.min(path.len())).rev().find_map(|depth| {
            let (own, beyond) = path.split_at_checked(depth)?;
            let index = *self.by_path.get(&path_of(own.iter().copied()))?;
            Some((self.exports.get(index)?, self.rules.get(index)?, beyond))
        })
    }
}

/// Looks up which exports have which guid.
pub(super) fn guids(exports: &[Export], root_of: &RootOf) -> Guids {
    let mut guids = Guids::new();
    for (index, export) in exports.iter().enumerate() {
        if let Some(root) = root_of(&export.dataset) {
            guids.entry(root.handle.fs_guid.0).or_default().push(index);
        }
    }
    guids
}

/// The first of all exports that let in the same clients in the same way.
fn kinds(exports: &[Export]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let kind = |export: &Export| (export.access.clone(), export.xprtsec, export.secure_ports);
    let each = exports.iter().enumerate();
    each.filter(|(_, export)| seen.insert(kind(export))).map(|(index, _)| index).collect()
}

fn rules(exports: &[Export], addresses: &Addresses) -> Vec<Rules> {
    exports.iter().map(|export| Rules::new(&export.access, addresses)).collect()
}

/// At least what an export takes in EXPORT's reply, in bytes.
pub(crate) fn listed_bytes_max(export: &Export) -> usize {
    16 + export.path.len() + export.access.groups_bytes_max()
}
