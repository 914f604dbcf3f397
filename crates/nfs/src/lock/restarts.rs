//! Notices of restarts from hosts, and the known states of hosts to compare them with.
//!
//! Others can send a notice (SM_NOTIFY) in a host's name: a guest behind the host's NAT, or a
//! process without privileges that forges datagrams. So a notice is verified before locks end.
//!
//! Invariants:
//! - A host's notice ends only locks of clients with its address and name, and only those from
//!   before the restart: a client sends its state with each LOCK.
//! - Each restart ends locks once.
//! - One host is verified once at a time, whatever domain its name is given. Otherwise a sender
//!   that makes up domains would have us ask the host's status monitor all the time.
//! - Notices that arrive while a host is verified are verified afterwards. The host's own status
//!   monitor decides, so of many notices the last one is enough.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::Client;
use crate::limits::{REBOOTS_MAX, RESTARTS_MAX};

/// A host's notice that it has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    /// The host, as its status monitor names it.
    pub host: Client,
    /// Its present state.
    pub state: i32,
    /// Our address, as the host knows it.
    pub via: Option<IpAddr>,
    /// It came over TCP from a port that only the superuser of its sender gets. If the host's
    /// status monitor cannot be asked, such a notice is believed.
    pub is_from_root: bool,
}

impl Restart {
    /// Whether the notice may concern locks of this client. `before` is the client's last known
    /// state.
    pub(super) fn concerns(&self, client: &Client, before: Option<i32>) -> bool {
        client.address == self.host.address
            && before != Some(self.state)
            && (same_host(&client.name, &self.host.name) || self.names_address())
    }

    /// Some monitors name themselves by their address.
    fn names_address(&self) -> bool {
        names_address(&self.host)
    }
}

/// How far a host's notice of a restart is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// The host's status monitor reports this state.
    Confirmed(i32),
    /// The monitor cannot be asked, and the notice came from the host's superuser.
    OnItsWord,
    /// Not at all: the monitor cannot be asked.
    None,
}

#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Notices that wait to be verified.
    waiting: VecDeque<Restart>,
    /// Notices that wait or are being verified, by host ([`plain`]), each with the latest one
    /// since.
    open: HashMap<Client, (Restart, Option<Restart>)>,
    /// The last believed state of each host, oldest first.
    believed: VecDeque<(Client, i32)>,
}

impl Restarts {
    /// Adds a host's notice.
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

    /// Notes that a host has restarted and has this state now.
    pub fn believe(&mut self, host: &Client, state: i32) {
        self.believed.retain(|(known, _)| known != host);
        self.believed.push_back((host.clone(), state));
        if self.believed.len() > REBOOTS_MAX {
            self.believed.pop_front();
        }
    }

    /// A host's verification has ended: the latest notice since is next.
    pub fn closed(&mut self, host: &Client) {
        if let Some((_, Some(since))) = self.open.remove(&plain(host)) {
            self.add(since);
        }
    }

    /// All verifications were given up: all notices wait again.
    pub fn begin_anew(&mut self) {
        self.waiting = self.open.values().map(|(restart, _)| restart.clone()).collect();
    }
}

fn names_address(host: &Client) -> bool {
    let named = str::from_utf8(&host.name).ok().and_then(|name| name.parse::<IpAddr>().ok());
    named.is_some_and(|named| named.to_canonical() == host.address)
}

/// A host under one name that stands for all of its names.
fn plain(host: &Client) -> Client {
    let name = match names_address(host) {
        true => host.address.to_string().into_bytes(),
        false => host.name.split(|byte| *byte == b'.').next().unwrap_or_default().to_vec(),
    };
    Client { address: host.address, name: name.to_ascii_lowercase().into() }
}

/// Whether two names are of one host: one of them may include its domain, and case does not matter.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let label = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
    let qualified = |name: &[u8]| name.contains(&b'.');
    match (label(a), label(b)) {
        _ if a.eq_ignore_ascii_case(b) => true,
        (Some(x), Some(y)) => (!qualified(a) || !qualified(b)) && x.eq_ignore_ascii_case(&y),
        _ => false,
    }
}
