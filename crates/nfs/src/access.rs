//! Rules of access: which clients an export admits, with which rights, and whose superuser stays
//! one.
//!
//! How a client is judged:
//! - A list is read from its front to the first entry that names the client. If that entry has a
//!   minus sign, the list does not name the client (share_nfs(1M) of Solaris).
//! - A client in `none` is refused. Otherwise the narrower of the two entries in `rw` and `ro`
//!   holds, and `ro` if they are equally wide. So one host in `rw=` and its network in `ro=`, or
//!   the other way round, mean what they seem to. "Everybody" is the widest entry of all.
//! - A client that no list names is refused.
//!
//! Invariants:
//! - A host name stands for the addresses that its last lookup gave; judging looks up nothing. The
//!   name that belongs to an address is never asked for: the owner of the address could claim any.
//! - Until a name was looked up, every client for which it could change the result has to wait. It
//!   is neither admitted nor refused for good. A name that shuts out or makes read-only is never
//!   taken to be nobody's.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use crate::network::{Bits, Network, NetworkBits};

#[cfg(test)]
mod tests;

/// The known addresses of hosts, by name.
pub type Addresses = HashMap<String, HostAddresses>;

/// The addresses of a host, by family: DNS is asked for each family, and may answer for one long
/// before the other. "Not looked up" is not the same as "no address".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// IPv4 addresses; `None` until looked up.
    pub v4: Option<Vec<IpAddr>>,
    /// IPv6 addresses; `None` until looked up.
    pub v6: Option<Vec<IpAddr>>,
}

impl HostAddresses {
    /// All known addresses.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.iter().chain(&self.v6).flatten().copied()
    }

    fn is_known(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4.is_some(),
            Family::V6 => self.v6.is_some(),
        }
    }
}

/// A host that has these addresses and no others.
impl From<Vec<IpAddr>> for HostAddresses {
    fn from(addresses: Vec<IpAddr>) -> Self {
        let (v4, v6) = addresses.into_iter().partition(|address| address.to_canonical().is_ipv4());
        HostAddresses { v4: Some(v4), v6: Some(v6) }
    }
}

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

/// One or more clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// By address.
    Network(Network),
    /// By name, in lower case and without a dot at the end.
    Host(String),
    /// By a name that its certificate is valid for, in lower case. Such an entry does not name a
    /// client without a certificate, so no rule may shut out this way.
    Certificate(String),
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The clients that it names.
    pub client: Client,
    /// The list does not name these clients (a minus sign).
    pub except: bool,
}

/// The clients that an option applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Whom {
    /// The option was not given.
    #[default]
    Nobody,
    /// The option was given without a list.
    Everybody,
    /// The option was given with a list.
    Listed(Vec<Entry>),
}

/// The clients that an export admits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Clients that may read and write.
    pub read_write: Whom,
    /// Clients that may read.
    pub read_only: Whom,
    /// Clients that are refused, whatever the other lists say.
    pub none: Vec<Entry>,
    /// Clients whose superuser stays one, where the superuser is squashed.
    pub root: Vec<Entry>,
    /// Clients whose superuser takes and destroys snapshots (property `snapcontrol`).
    pub control: Vec<Entry>,
}

impl Access {
    /// Admits everybody to read and write.
    pub fn read_write() -> Self {
        Access { read_write: Whom::Everybody, ..Access::default() }
    }

    /// Admits everybody to read.
    pub fn read_only() -> Self {
        Access { read_only: Whom::Everybody, ..Access::default() }
    }

    /// Admits the clients in these networks to read and write.
    pub fn read_write_for(networks: impl IntoIterator<Item = Network>) -> Self {
        let entry = |network| Entry { client: Client::Network(network), except: false };
        let listed = networks.into_iter().map(entry).collect();
        Access { read_write: Whom::Listed(listed), ..Access::default() }
    }

    /// The names of hosts in all lists, with repetitions.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.entries().filter_map(|entry| match &entry.client {
            Client::Host(name) => Some(name.as_str()),
            Client::Network(_) | Client::Certificate(_) => None,
        })
    }

    /// All entries of all lists.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.of_export().chain(&self.control)
    }

    /// The entries that decide on the export.
    pub fn of_export(&self) -> impl Iterator<Item = &Entry> {
        let lists = [self.read_write.entries(), self.read_only.entries(), &self.none, &self.root];
        lists.into_iter().flatten()
    }

    /// The groups that EXPORT shows: none, if everybody is admitted.
    pub(crate) fn groups(&self) -> Vec<String> {
        let refused = self.none.iter().map(|entry| format!("-{}", entry.client));
        let all = [&self.read_write, &self.read_only].contains(&&Whom::Everybody);
        if all {
            // An empty list means everybody, which is wrong if some are refused.
            let refused: Vec<String> = refused.collect();
            let others = (!refused.is_empty()).then(|| "*".to_owned());
            return refused.into_iter().chain(others).collect();
        }
        let lists = [self.read_write.entries(), self.read_only.entries()];
        let mut groups: Vec<String> = refused.collect();
        for group in lists.into_iter().flatten().map(ToString::to_string) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// An upper bound of the bytes that [`Access::groups`] takes in EXPORT's reply.
    pub(crate) fn groups_bytes_max(&self) -> usize {
        let bytes = |entry: &Entry| match &entry.client {
            Client::Network(_) => GROUP_BYTES_MAX,
            Client::Host(name) => GROUP_HEAD_BYTES + name.len(),
            Client::Certificate(name) => GROUP_HEAD_BYTES + CERTIFICATE.len() + name.len(),
        };
        GROUP_BYTES_MAX + self.entries().map(bytes).sum::<usize>()
    }
}

impl Whom {
    /// Its list, if it has one.
    pub fn entries(&self) -> &[Entry] {
        match self {
            Whom::Listed(entries) => entries,
            Whom::Nobody | Whom::Everybody => &[],
        }
    }
}

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
    /// Nothing.
    Refused,
    /// Nothing yet: names are still being looked up.
    Waiting,
}

impl Verdict {
    /// Whether the client is admitted.
    pub fn admits(self) -> bool {
        matches!(self, Verdict::ReadWrite | Verdict::ReadOnly)
    }
}

/// A judgement and the rules behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub verdict: Verdict,
    by: By,
    /// The entry of `root=` that names the client.
    root: Option<usize>,
    /// The entry of `snapcontrol=` that names it.
    control: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    None(usize),
    ReadWrite(Option<usize>),
    ReadOnly(Option<usize>),
    Nothing,
}

impl Judgement {
    /// Whether `root=` names the client.
    pub fn keeps_root(&self) -> bool {
        self.root.is_some()
    }

    /// Whether `snapcontrol=` names the client.
    pub fn controls(&self) -> bool {
        self.control.is_some()
    }

    /// The rule by which the client's superuser takes and destroys snapshots.
    pub fn control_rule(&self, access: &Access) -> Option<String> {
        let entry = self.control.and_then(|at| access.control.get(at));
        entry.map(|entry| format!("snapcontrol={entry}"))
    }

    /// The rule of `access` that decided, in the form in which an administrator writes it. `None`
    /// if the client was refused because no rule names it.
    pub fn rule(&self, access: &Access) -> Option<String> {
        let of = |name: &str, entries: &[Entry], at: usize| {
            entries.get(at).map(|entry| format!("{name}={entry}"))
        };
        match self.by {
            By::None(at) => of("none", &access.none, at),
            By::ReadWrite(None) => Some("rw".into()),
            By::ReadOnly(None) => Some("ro".into()),
            By::ReadWrite(Some(at)) => of("rw", access.read_write.entries(), at),
            By::ReadOnly(Some(at)) => of("ro", access.read_only.entries(), at),
            By::Nothing => None,
        }
    }

    /// The rule by which the client's superuser is not squashed.
    pub fn root_rule(&self, access: &Access) -> Option<String> {
        self.root.and_then(|at| access.root.get(at)).map(|entry| format!("root={entry}"))
    }
}

/// Rules in a form for fast judging: names are replaced by addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    read_write: List,
    read_only: List,
    none: List,
    root: List,
    control: List,
    /// For IPv4 clients, and for IPv6 clients.
    unknown: [Unknown; 2],
}

/// The effect that names without a lookup could have on clients of a family.
#[derive(Clone, Copy, Debug, Default)]
struct Unknown {
    /// There is such a name.
    any: bool,
    /// One of them shuts out.
    shuts_out: bool,
    /// One of them makes read-only.
    makes_read_only: bool,
    /// One of them is excepted from `root`.
    not_root: bool,
    /// One of them is excepted from `snapcontrol`.
    not_control: bool,
}

#[derive(Clone, Debug, Default)]
struct List {
    everybody: bool,
    lines: Vec<Line>,
}

/// A network or a certificate of a list.
#[derive(Clone, Debug)]
struct Line {
    whom: Named,
    /// How narrow it is. Only compared for one client, so within one family.
    narrowness: u16,
    except: bool,
    /// The entry that it comes from.
    entry: usize,
}

#[derive(Clone, Debug)]
enum Named {
    Network(NetworkBits),
    Certificate(String),
}

impl Rules {
    pub fn new(access: &Access, addresses: &Addresses) -> Self {
        let list = |everybody, entries: &[Entry]| List {
            everybody,
            lines: entries.iter().enumerate().flat_map(|entry| lines(entry, addresses)).collect(),
        };
        let whom = |whom: &Whom| list(*whom == Whom::Everybody, whom.entries());
        let (rw, ro) = (access.read_write.entries(), access.read_only.entries());
        let unknown = |family| {
            let any = |entries: &[Entry], except| {
                let is_it =
                    |entry: &Entry| entry.except == except && entry.is_unknown(addresses, family);
                entries.iter().any(is_it)
            };
            Unknown {
                any: access.of_export().any(|entry| entry.is_unknown(addresses, family)),
                shuts_out: any(&access.none, false) || any(rw, true) || any(ro, true),
                makes_read_only: any(ro, false),
                not_root: any(&access.root, true),
                not_control: any(&access.control, true),
            }
        };
        Rules {
            read_write: whom(&access.read_write),
            read_only: whom(&access.read_only),
            none: list(false, &access.none),
            root: list(false, &access.root),
            control: list(false, &access.control),
            unknown: [unknown(Family::V4), unknown(Family::V6)],
        }
    }

    /// Whether a certificate may admit a client.
    pub fn takes_certificates(&self) -> bool {
        let lines = self.read_write.lines.iter().chain(&self.read_only.lines);
        lines.into_iter().any(|line| matches!(line.whom, Named::Certificate(_)))
    }

    /// The rights of a client with this address and these proven names.
    pub fn judge(&self, client: IpAddr, names: &[String]) -> Judgement {
        let client = Asking { address: Bits::of(client), names };
        let [v4, v6] = self.unknown;
        let unknown = if client.address.is_v4() { v4 } else { v6 };
        let root = self.root.find(client).filter(|_| !unknown.not_root).map(|line| line.entry);
        let control = self.control.find(client).filter(|_| !unknown.not_control);
        let control = control.map(|line| line.entry);
        let judged = |verdict, by| Judgement { verdict, by, root, control };
        if let Some(line) = self.none.find(client) {
            return judged(Verdict::Refused, By::None(line.entry));
        }
        let wide = |list: &List| list.everybody.then_some((0, None));
        let narrow =
            |list: &List| list.find(client).map(|line| (line.narrowness, Some(line.entry)));
        let find = |list| narrow(list).or_else(|| wide(list));
        let (by, verdict) = match (find(&self.read_write), find(&self.read_only)) {
            (Some((rw, _)), Some((ro, entry))) if ro >= rw => {
                (By::ReadOnly(entry), Verdict::ReadOnly)
            }
            (Some((_, entry)), _) => (By::ReadWrite(entry), Verdict::ReadWrite),
            (None, Some((_, entry))) => (By::ReadOnly(entry), Verdict::ReadOnly),
            (None, None) if unknown.any => (By::Nothing, Verdict::Waiting),
            (None, None) => (By::Nothing, Verdict::Refused),
        };
        let waits = unknown.shuts_out && verdict.admits()
            || unknown.makes_read_only && verdict == Verdict::ReadWrite;
        if waits { judged(Verdict::Waiting, By::Nothing) } else { judged(verdict, by) }
    }
}

/// The client to judge.
#[derive(Clone, Copy)]
struct Asking<'a> {
    address: Bits,
    names: &'a [String],
}

impl Named {
    fn is(&self, client: Asking<'_>) -> bool {
        match self {
            Named::Network(network) => network.contain(client.address),
            Named::Certificate(name) => client.names.contains(name),
        }
    }
}

impl List {
    fn find(&self, client: Asking<'_>) -> Option<&Line> {
        let found = self.lines.iter().find(|line| line.whom.is(client))?;
        (!found.except).then_some(found)
    }
}

fn lines((entry, of): (usize, &Entry), addresses: &Addresses) -> Vec<Line> {
    let line = |network: Network| Line {
        whom: Named::Network(network.bits()),
        // 0 stands for everybody.
        narrowness: u16::from(network.prefix()) + 1,
        except: of.except,
        entry,
    };
    match &of.client {
        Client::Network(network) => vec![line(*network)],
        Client::Host(name) => {
            let known = addresses.get(name).into_iter().flat_map(HostAddresses::all);
            known.map(|address| line(Network::from(address))).collect()
        }
        Client::Certificate(name) => {
            // As narrow as a host.
            let whom = Named::Certificate(name.clone());
            vec![Line { whom, narrowness: u16::MAX, except: of.except, entry }]
        }
    }
}

impl Entry {
    /// Whether it is a host whose addresses of this family were never looked up.
    fn is_unknown(&self, addresses: &Addresses, family: Family) -> bool {
        let Client::Host(name) = &self.client else { return false };
        !addresses.get(name).is_some_and(|host| host.is_known(family))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Client::Network(network) => network.fmt(f),
            Client::Host(name) => f.write_str(name),
            Client::Certificate(name) => write!(f, "{CERTIFICATE}{name}"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.except { "-" } else { "" })?;
        self.client.fmt(f)
    }
}

/// The prefix of a certificate's name.
const CERTIFICATE: &str = "cert:";

/// A group on the wire without its text: link, length, minus sign, padding.
const GROUP_HEAD_BYTES: usize = 4 + 4 + 1 + 3;
/// The longest network in a group: an IPv6 address (39), `/`, bits.
const GROUP_BYTES_MAX: usize = GROUP_HEAD_BYTES + 44;
