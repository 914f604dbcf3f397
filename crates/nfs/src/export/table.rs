//! The exports, and the maps that find them by guid, by path and by client.
//!
//! Invariants:
//! - A guid, path or address that a caller can make up is looked up in a map: no search over all
//!   exports, and no lock that keeps others out. A new address is judged once by each kind of
//!   rules.
//! - The table's memory of clients is bounded, and cleared with each change of the rules.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use aquifer_files::Guid;
use parking_lot::Mutex;

use super::{Export, Refused, Rights, RootOf, components, path_of};
use crate::access::{Addresses, Rules, Verdict};
use crate::limits::{EXPORT_LIST_BYTES_MAX, STANDINGS_MAX};
use crate::security::Security;
use crate::server::Origin;
use crate::volume::Volume;

/// The exports of the datasets with each guid, in their order.
type Guids = HashMap<u64, Vec<usize>>;

/// The file systems that the exports give to clients.
#[derive(Debug, Default)]
pub(super) struct Known {
    by_guid: Guids,
    /// The volumes of their datasets, which know the guids of snapshots. The table keeps none of
    /// them in use.
    volumes: Vec<Weak<Volume>>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    exports: Vec<Export>,
    /// The rules of the export at the same index.
    rules: Vec<Rules>,
    /// The first export of each kind: many exports inherit the same rules.
    kinds: Vec<usize>,
    /// The addresses of the hosts that the exports name.
    pub addresses: Addresses,
    known: Known,
    by_path: HashMap<Vec<u8>, usize>,
    /// Components of the longest path.
    depth: usize,
    /// An upper bound of the bytes of EXPORT's reply.
    pub list_bytes_max: usize,
    standings: Mutex<HashMap<(IpAddr, Security), Standing>>,
}

/// The standing of a client's address and its security, over all exports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// An export admits it, if it comes from such a port and with such protection as the export
    /// requires.
    pub is_admitted: bool,
    /// An export admits it, or may do so later.
    pub may_come: bool,
    /// And its calls have the protection that this export requires.
    pub calls: bool,
    /// And this export accepts calls from any port.
    pub calls_from_any_port: bool,
}

/// The result of looking up a handle.
pub(super) enum Found {
    /// No export has this guid.
    Nothing,
    Refused(Refused),
    Admitted(Arc<Volume>, Rights),
}

impl Table {
    pub fn new(exports: Vec<Export>, known: Known, addresses: Addresses) -> Self {
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
        Table { exports, rules, kinds, addresses, known, by_path, depth, list_bytes_max, standings }
    }

    /// The number of kinds of rules.
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
        let guid = self.head_of(guid);
        let candidates = self.known.by_guid.get(&guid).into_iter().flatten();
        let exports =
            candidates.filter_map(|index| self.exports.get(*index).zip(self.rules.get(*index)));
        // Checked for all exports of a dataset: the lookup may not hold any more.
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

    /// The guid of the dataset whose snapshot has this guid, if it is a snapshot's: who may use a
    /// dataset may look into its snapshots.
    fn head_of(&self, guid: u64) -> u64 {
        if self.known.by_guid.contains_key(&guid) {
            return guid;
        }
        let mut volumes = self.known.volumes.iter().filter_map(Weak::upgrade);
        let head = volumes.find_map(|volume| volume.head_of(Guid(guid)));
        head.map_or(guid, |head| head.0)
    }

    /// The export whose path is the nearest above a path, and the components beyond it.
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

/// Looks up the guid and the volume of each export.
pub(super) fn known(exports: &[Export], root_of: &RootOf) -> Known {
    let Known { by_guid: mut guids, mut volumes } = Known::default();
    for (index, export) in exports.iter().enumerate() {
        if let Some(root) = root_of(&export.dataset) {
            guids.entry(root.handle.fs_guid.0).or_default().push(index);
            let volume = Arc::downgrade(&root.volume);
            if !volumes.iter().any(|known| Weak::ptr_eq(known, &volume)) {
                volumes.push(volume);
            }
        }
    }
    Known { by_guid: guids, volumes }
}

/// The first of all exports that admit the same clients in the same way.
fn kinds(exports: &[Export]) -> Vec<usize> {
    let mut seen = HashSet::new();
    let kind = |export: &Export| (export.access.clone(), export.xprtsec, export.secure_ports);
    let each = exports.iter().enumerate();
    each.filter(|(_, export)| seen.insert(kind(export))).map(|(index, _)| index).collect()
}

fn rules(exports: &[Export], addresses: &Addresses) -> Vec<Rules> {
    exports.iter().map(|export| Rules::new(&export.access, addresses)).collect()
}

/// An upper bound of the bytes that an export takes in EXPORT's reply.
pub(crate) fn listed_bytes_max(export: &Export) -> usize {
    16 + export.path.len() + export.access.groups_bytes_max()
}
