//! Messages to hosts, and the order in which hosts are served.
//!
//! Invariants:
//! - One caller serves a host at a time: a host that does not answer keeps only itself waiting.
//! - Grants go first, those of other hosts too. A client asks again for a lost result, while
//!   everybody waits for a lock that is granted.
//! - Results are bounded, for a host and for all. One too many is dropped; to a client that is a
//!   lost datagram.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use super::grants::Grant;
use crate::limits::{HOST_GRANTS_LOOK, HOST_MESSAGES_MAX, MESSAGES_MAX};
use crate::proto::nlm::{Limited, Lock4, Nlm4Res, Nlm4Stats, Procedure, TestArgs4};

/// A message to a client's lock manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callout {
    /// The address of ours to call from: clients believe no other.
    pub via: Option<IpAddr>,
    /// The procedure of NLM version 4.
    pub procedure: u32,
    /// Its arguments.
    pub args: Vec<u8>,
    /// The grant that it announces; pass its answer to [`Locks::granted`](super::Locks::granted).
    /// Without a grant, the message is sent once and no answer is waited for.
    pub grant: Option<u64>,
}

/// The result of announcing a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantAnswer {
    /// The client has its lock.
    Accepted,
    /// The client does not want it, or cannot be reached: the next in the queue gets it.
    Given,
    /// The client asks to be told later.
    Later,
}

impl GrantAnswer {
    /// Reads the results of GRANTED. A result that makes no sense does not accept the grant.
    pub fn of(results: &[u8]) -> GrantAnswer {
        match Nlm4Res::decode(&mut Decoder::new(results)) {
            Ok(Nlm4Res { stat: Nlm4Stats::Granted, .. }) => GrantAnswer::Accepted,
            Ok(Nlm4Res { stat: Nlm4Stats::DeniedGracePeriod, .. }) => GrantAnswer::Later,
            _ => GrantAnswer::Given,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Callouts {
    hosts: HashMap<IpAddr, Host>,
    /// Hosts that may be next, those with grants before those with results.
    with_grants: VecDeque<IpAddr>,
    with_results: VecDeque<IpAddr>,
    /// The number of results for all hosts.
    results: usize,
}

#[derive(Debug, Default)]
struct Host {
    grants: VecDeque<u64>,
    results: VecDeque<Callout>,
    is_attended: bool,
}

/// The next message.
#[derive(Debug)]
pub(super) enum Next {
    Grant(u64),
    Result(Callout),
}

impl Callouts {
    /// Queues a grant for `host`. `holds` returns whether a grant is still on its way.
    pub fn add_grant(&mut self, host: IpAddr, grant: u64, holds: impl Fn(u64) -> bool) {
        let entry = self.hosts.entry(host).or_default();
        entry.grants.push_back(grant);
        if entry.grants.len() > HOST_GRANTS_LOOK {
            entry.grants.retain(|grant| holds(*grant));
        }
        if !entry.is_attended {
            self.with_grants.push_back(host);
        }
    }

    /// Queues a grant again, before others.
    pub fn add_again(&mut self, host: IpAddr, grant: u64) {
        self.hosts.entry(host).or_default().grants.push_front(grant);
    }

    pub fn add_result(&mut self, host: IpAddr, result: Callout) {
        if self.results >= MESSAGES_MAX {
            return;
        }
        let entry = self.hosts.entry(host).or_default();
        if entry.results.len() >= HOST_MESSAGES_MAX {
            return;
        }
        entry.results.push_back(result);
        self.results += 1;
        if !entry.is_attended {
            self.with_results.push_back(host);
        }
    }

    /// Whether a host waits that no caller serves.
    pub fn is_waited_for(&self) -> bool {
        !self.with_grants.is_empty() || !self.with_results.is_empty()
    }

    /// The next host to serve. The caller serves it until [`Callouts::next_for`] returns nothing.
    pub fn next_host(&mut self) -> Option<IpAddr> {
        while let Some(address) =
            self.with_grants.pop_front().or_else(|| self.with_results.pop_front())
        {
            if let Some(host) = self.hosts.get_mut(&address).filter(|host| !host.is_attended) {
                host.is_attended = true;
                return Some(address);
            }
        }
        None
    }

    /// The next message to a host that is being served. If there is none, serving it ends.
    pub fn next_for(&mut self, address: IpAddr) -> Option<Next> {
        let host = self.hosts.get_mut(&address)?;
        if let Some(grant) = host.grants.pop_front() {
            return Some(Next::Grant(grant));
        }
        if let Some(result) = host.results.pop_front() {
            self.results -= 1;
            return Some(Next::Result(result));
        }
        self.hosts.remove(&address);
        None
    }

    /// Drops all messages to a host that cannot be reached. Returns its grants.
    pub fn give_up(&mut self, address: IpAddr) -> Vec<u64> {
        let Some(host) = self.hosts.get_mut(&address) else { return Vec::new() };
        self.results -= host.results.len();
        host.results.clear();
        host.grants.drain(..).collect()
    }
}

/// The call that announces a grant.
pub(super) fn granted_call(id: u64, grant: &Grant) -> Callout {
    let Grant { file, waiter } = grant;
    let owner = &waiter.owner;
    let handle = file.encode();
    let alock = Lock4 {
        caller_name: Limited(&owner.client.name),
        fh: Limited(&handle),
        oh: Limited(&owner.oh),
        svid: owner.svid,
        l_offset: waiter.range.first,
        l_len: waiter.range.length(),
    };
    let cookie = id.to_be_bytes();
    let mut args = EncodeBuf::new();
    args.put(&TestArgs4 { cookie: Limited(&cookie), exclusive: waiter.exclusive, alock });
    Callout {
        via: waiter.via,
        procedure: Procedure::Granted.wire(),
        args: args.to_vec(),
        grant: Some(id),
    }
}
