//! rpcbind, versions 3 and 4 of the portmapper (RFC 1833 section 2): addresses instead of ports,
//! and so IPv6.
//!
//! Addresses are texts ("universal addresses", RFC 5665 section 5.2.3): an IP address and the two
//! bytes of a port, `10.0.0.1.8.1` for port 2049; transports are names (netids): tcp, udp, tcp6,
//! udp6.
//!
//! Invariants:
//! - As in version 2, no call changes the table, and the server makes no calls on a stranger's
//!   behalf: CALLIT, BCAST and INDIRECT are not offered.
//! - If a program listens on all addresses, the answer has the address that the caller used: the
//!   caller names it, and only the caller reads it.

use std::net::{IpAddr, SocketAddr};

use super::{Framing, IPPROTO_TCP, IPPROTO_UDP, PROGRAM, Service};
use crate::auth::{Credential, OpaqueAuth};
use crate::limits::RPCB_STRING_BYTES_MAX;
use crate::message::{Accepted, Call};
use crate::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use crate::xdr_table;

/// The lower of the two versions.
pub const VERSION_3: u32 = 3;
/// The higher.
pub const VERSION_4: u32 = 4;

xdr_table! {
    /// The procedures of RPCBVERS 3 and, from GETVERSADDR on, 4 that have an answer here.
    enum Procedure {
        /// RPCBPROC_NULL.
        Null = 0,
        /// RPCBPROC_SET: announces an address.
        Set = 1,
        /// RPCBPROC_UNSET: withdraws addresses.
        Unset = 2,
        /// RPCBPROC_GETADDR: the address of a program, "" if it is not registered.
        Getaddr = 3,
        /// RPCBPROC_DUMP: all addresses.
        Dump = 4,
        /// RPCBPROC_GETVERSADDR: the address of just this version of a program.
        Getversaddr = 9,
        /// RPCBPROC_GETADDRLIST: the addresses of a version of a program on all transports.
        Getaddrlist = 11,
    }
}

/// `struct rpcb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rpcb {
    /// Program number.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// The transport: `tcp6`.
    pub netid: String,
    /// Its address: `::.8.1`.
    pub addr: String,
    /// Its owner; the portmapper sets it, and ignores the caller's claim.
    pub owner: String,
}

impl Rpcb {
    /// The announcement of a service.
    pub fn of(service: &Service) -> Self {
        Rpcb {
            prog: service.prog,
            vers: service.vers,
            netid: service.netid().into(),
            addr: universal(service.at),
            owner: String::new(),
        }
    }

    /// Whether this is the same program at the same place.
    pub fn is_at_place_of(&self, other: &Rpcb) -> bool {
        let version = (self.prog, self.vers) == (other.prog, other.vers);
        version && self.netid == other.netid && self.addr == other.addr
    }
}

impl Encode for Rpcb {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(self.prog);
        to.u32(self.vers);
        for text in [&self.netid, &self.addr, &self.owner] {
            to.opaque(text.as_bytes());
        }
    }
}

impl Decode<'_> for Rpcb {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (prog, vers) = (from.u32()?, from.u32()?);
        let mut text = || {
            let bytes = from.string(RPCB_STRING_BYTES_MAX)?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        Ok(Rpcb { prog, vers, netid: text()?, addr: text()?, owner: text()? })
    }
}

/// A call that announces, withdraws or lists, by version 4, without a record mark.
pub fn encode_call(procedure: Procedure, what: Option<&Rpcb>, xid: u32, to: &mut EncodeBuf) {
    let (credential, verifier) = (Credential::None, OpaqueAuth::NONE);
    let (program, version, procedure) = (PROGRAM, VERSION_4, procedure.wire());
    to.put(&Call { xid, program, version, procedure, credential, verifier });
    if let Some(what) = what {
        to.put(what);
    }
}

/// The universal address of a socket.
pub fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// The socket of a universal address.
pub fn of_universal(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (ip, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

/// Carries out a call of version 3 or 4.
pub(super) fn results(
    table: &[Service],
    peer: IpAddr,
    framing: Framing,
    call: &Call<'_>,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Accepted> {
    let procedure = Procedure::from_wire(call.procedure).ok_or(Accepted::ProcUnavail)?;
    let mut asked = || Rpcb::decode(from).map_err(|_| Accepted::GarbageArgs);
    match procedure {
        Procedure::Dump | Procedure::Getaddrlist if framing == Framing::Datagram => {
            return Err(Accepted::ProcUnavail);
        }
        Procedure::Null => {}
        Procedure::Set | Procedure::Unset => {
            asked()?;
            to.bool(false);
        }
        Procedure::Getaddr => {
            let asked = asked()?;
            let netid = netid_of(&asked, peer, framing);
            let offers = || table.iter().filter(|it| it.prog == asked.prog && it.netid() == netid);
            // As in version 2: the place of another version, and the program itself lists its
            // versions.
            let found = offers().find(|it| it.vers == asked.vers).or_else(|| offers().next());
            put_address(found, &asked, to);
        }
        Procedure::Dump => to.list(table.iter().map(listed)),
        _ if call.version < VERSION_4 => return Err(Accepted::ProcUnavail),
        Procedure::Getversaddr => {
            let asked = asked()?;
            let netid = netid_of(&asked, peer, framing);
            let exact = |it: &&Service| (it.prog, it.vers) == (asked.prog, asked.vers);
            let found = table.iter().filter(exact).find(|it| it.netid() == netid);
            put_address(found, &asked, to);
        }
        Procedure::Getaddrlist => {
            let asked = asked()?;
            let exact = |it: &&Service| (it.prog, it.vers) == (asked.prog, asked.vers);
            to.list(table.iter().filter(exact).map(|service| Place { service, asked: &asked }));
        }
    }
    Ok(())
}

fn listed(service: &Service) -> Rpcb {
    Rpcb { owner: OWNER.into(), ..Rpcb::of(service) }
}

/// The transport of the question: the named one, else the caller's.
fn netid_of(asked: &Rpcb, peer: IpAddr, framing: Framing) -> &'static str {
    let named = NETIDS.into_iter().find(|netid| *netid == asked.netid);
    named.unwrap_or(match (framing, peer.to_canonical()) {
        (Framing::Record, IpAddr::V4(_)) => "tcp",
        (Framing::Record, IpAddr::V6(_)) => "tcp6",
        (Framing::Datagram, IpAddr::V4(_)) => "udp",
        (Framing::Datagram, IpAddr::V6(_)) => "udp6",
    })
}

fn put_address(found: Option<&Service>, asked: &Rpcb, to: &mut EncodeBuf) {
    let address = found.map(|service| universal(as_asked(service, asked))).unwrap_or_default();
    to.opaque(address.as_bytes());
}

/// The address of a service for a caller that names the address it used.
fn as_asked(service: &Service, asked: &Rpcb) -> SocketAddr {
    let hint = of_universal(&asked.addr).map(|hint| hint.ip());
    match hint {
        Some(ip) if service.at.ip().is_unspecified() && ip.is_ipv4() == service.at.is_ipv4() => {
            SocketAddr::new(ip, service.at.port())
        }
        _ => service.at,
    }
}

/// `struct rpcb_entry`.
struct Place<'a> {
    service: &'a Service,
    asked: &'a Rpcb,
}

impl Encode for Place<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        let Place { service, asked } = self;
        let (protocol, semantics) = match service.prot {
            IPPROTO_TCP => ("tcp", NC_TPI_COTS_ORD),
            _ => ("udp", NC_TPI_CLTS),
        };
        let family = if service.at.is_ipv4() { "inet" } else { "inet6" };
        to.opaque(universal(as_asked(service, asked)).as_bytes());
        to.opaque(service.netid().as_bytes());
        to.u32(semantics);
        to.opaque(family.as_bytes());
        to.opaque(protocol.as_bytes());
    }
}

impl Service {
    /// The name of its transport (RFC 5665 section 5.1).
    pub fn netid(&self) -> &'static str {
        match (self.prot, self.at.is_ipv4()) {
            (IPPROTO_UDP, true) => "udp",
            (IPPROTO_UDP, false) => "udp6",
            (_, true) => "tcp",
            (_, false) => "tcp6",
        }
    }
}

const NETIDS: [&str; 4] = ["tcp", "udp", "tcp6", "udp6"];
const OWNER: &str = "superuser";

/// RFC 1833 section 2.1: connectionless, and connections that end in order.
const NC_TPI_CLTS: u32 = 1;
const NC_TPI_COTS_ORD: u32 = 3;
