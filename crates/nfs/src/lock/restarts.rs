//! Hosts that say that they have restarted, and what is known of hosts to compare it with.
//!
//! Others can say it (SM_NOTIFY) in a host's name: a guest behind the host's NAT, a process without
//! privileges, who forges datagrams. So it is looked into before locks end.
//!
//! Invariants:
//! - What a host says ends locks only of clients of its address and name, and only those that it
//!   took before: a client says its state with each LOCK.
//! - Each restart ends locks once.
//! - One host is looked into once at a time, whatever domain its name is given. Else whoever makes
//!   up domains would have its status monitor asked by us all the time.
//! - What is said of a host while it is looked into is looked into afterwards. It is the host's own
//!   status monitor that decides, so of many words the last one will do.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::Client;
use crate::limits::{REBOOTS_MAX, RESTARTS_MAX};

/// A host says that it has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    /// The host, as its status monitor names it.
    pub host: Client,
    /// The state that it has now.
    pub state: i32,
    /// Our address, as the host knows it.
    pub via: Option<IpAddr>,
    /// It came over TCP from a port that only the superuser of its sender gets. If the host's
    /// status monitor cannot be asked, this is believed.
    pub is_from_root: bool,
}

impl Restart {
    /// Whether locks of this client may be meant. `before` is the state that the client last said.
    pub(super) fn concerns(&self, client: &Client, before: Option<i32>) -> bool {
        client.address == self.host.address
            && before != Some(self.state)
            && (same_host(&client.name, &self.host.name) || self.names_address())
    }

    /// Some monitors call themselves by their address.
    fn names_address(&self) -> bool {
        names_address(&self.host)
    }
}

/// What a host's word that it has restarted is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// The host's status monitor says that it has this state.
    Confirmed(i32),
    /// The monitor cannot be asked, and the word came from the host's superuser.
    OnItsWord,
    /// Nothing: the monitor cannot be asked.
    None,
}

#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// To be looked into.
    waiting: VecDeque<Restart>,
    /// What waits or is being looked into, by host ([`plain`]), and what was said of it since.
    open: HashMap<Client, (Restart, Option<Restart>)>,
    /// The last state of each host that was believed, oldest first.
    believed: VecDeque<(Client, i32)>,
}

impl Restarts {
    /// A host says it.
    pub fn add(&mut self, restart: Restart) {
        let Restart { host, state, .. } = &restart;
        if self.believed.iter().any(|known| (&known.0, known.1) == (host, *state)) {
            return;
        }
        let plain = plain(host);
        if let Some((_, since)) = self.open.get_mut(&plain) {
            *since = Some(restart);
        } else if self.open.len() < RESTARTS_MAX {
            self.open.insert(plain, (restart.clone(), None));
            self.waiting.push_back(restart);
        }
    }

    pub fn next(&mut self) -> Option<Restart> {
        self.waiting.pop_front()
    }

    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A host has restarted and has this state now.
    pub fn believe(&mut self, host: &Client, state: i32) {
        self.believed.retain(|(known, _)| known != host);
        self.believed.push_back((host.clone(), state));
        if self.believed.len() > REBOOTS_MAX {
            self.believed.pop_front();
        }
    }

    /// A host is not looked into any more: now it is the turn of what was said of it since.
    pub fn closed(&mut self, host: &Client) {
        if let Some((_, Some(since))) = self.open.remove(&plain(host)) {
            self.add(since);
        }
    }

    /// Nobody looks into anything any more: all of it waits again.
    pub fn begin_anew(&mut self) {
        self.waiting = self.open.values().map(|(restart, _)| restart.clone()).collect();
    }
}

fn names_address(host: &Client) -> bool {
    let named = str::from_utf8(&host.name).ok().and_then(|name| name.parse::<IpAddr>().ok());
    named.is_some_and(|named| named.to_canonical() == host.address)
}

/// A host under the one name that all of its names have in common.
fn plain(host: &Client) -> Client {
    let name = match names_address(host) {
        true => host.address.to_string().into_bytes(),
        false => host.name.split(|byte| *byte == b'.').next().unwrap_or_default().to_vec(),
    };
    Client { address: host.address, name: name.to_ascii_lowercase().into() }
}

/// Whether two names are of one host: one of them may have its domain, and case does not matter.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let label = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
    let qualified = |name: &[u8]| name.contains(&b'.');
    match (label(a), label(b)) {
        _ if a.eq_ignore_ascii_case(b) => true,
        (Some(x), Some(y)) => (!qualified(a) || !qualified(b)) && x.eq_ignore_ascii_case(&y),
        _ => false,
    }
}
