//! How clients that know no port find ours: QEMU's `nfs://`, libnfs, showmount, rpcinfo.
//!
//! Three ways, in this order: a portmapper of our own, if its ports are free; registration with the
//! one that has them (rpcbind), renewed if that restarts, and withdrawn at the end; else a log
//! entry about what will not work.
//!
//! Invariants:
//! - Only our programs are ever registered or withdrawn. Another lock manager or status monitor on
//!   this machine (the kernel's, for mounts of its own) keeps its place.
//! - Only datagrams from this machine and from clients of an export are answered: sources can be
//!   forged.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use aquifer_nfs::Nfs;
use aquifer_nfs::proto::{mount, nlm, nsm, v3};
use aquifer_rpc::portmap::{self, Framing, IPPROTO_TCP, IPPROTO_UDP, Mapping, Service, rpcb};
use aquifer_rpc::xdr::EncodeBuf;
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use crate::config::Portmap;
use crate::limits::{DATAGRAM_BYTES_MAX, RPCBIND_CHECK};
use crate::listen;

mod rpcbind;

/// How clients that ask a portmapper are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortmapState {
    /// Not at all, as configured.
    Off,
    /// By our own portmapper, at these addresses.
    Own(Vec<SocketAddr>),
    /// By another one, at this address, with which our programs are registered.
    Registered(SocketAddr),
    /// Not at all, for this reason.
    Unavailable(String),
}

/// The server's part of the service.
#[derive(Debug)]
pub(crate) struct PortmapService {
    config: Portmap,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: PortmapState,
    /// Programs that the portmapper was last told of.
    programs: Vec<Service>,
    /// When another portmapper was last asked.
    asked: Option<Instant>,
}

/// The sockets of a portmapper of our own, to be served as all others.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub listeners: Vec<StdListener>,
    pub datagrams: Vec<std::net::UdpSocket>,
}

impl PortmapService {
    pub(crate) fn new(config: &Portmap) -> Self {
        let inner = Inner { state: PortmapState::Off, programs: Vec::new(), asked: None };
        PortmapService { config: config.clone(), inner: Mutex::new(inner) }
    }

    /// Opens our own portmapper, or registers with another one: until one of the two works, and
    /// again when the addresses change or the other one may have restarted. The programs listen on
    /// TCP at `addresses`, and some of them, if `udp` is set, at the same ones of UDP.
    pub(crate) async fn tend(&self, addresses: &[SocketAddr], udp: bool, nfs: &Nfs) -> Sockets {
        let programs = at_each(addresses, |at| programs(at.port(), udp));
        let is_new =
            std::mem::replace(&mut self.inner.lock().programs, programs.clone()) != programs;
        let Portmap::At(wanted) = &self.config else {
            nfs.set_portmap(programs);
            return Sockets::default();
        };
        match self.state() {
            PortmapState::Own(own) => {
                if is_new {
                    nfs.set_portmap(with_portmapper(&own, programs));
                }
                return Sockets::default();
            }
            PortmapState::Registered(_) if !is_new && !self.is_due() => return Sockets::default(),
            _ => {}
        }
        match own(wanted) {
            Ok(Own { listeners, datagrams, addresses }) => {
                nfs.set_portmap(with_portmapper(&addresses, programs));
                self.inner.lock().state = PortmapState::Own(addresses);
                Sockets { listeners, datagrams }
            }
            Err(error) => {
                nfs.set_portmap(programs.clone());
                self.register(loopback(wanted), &programs, &error).await;
                Sockets::default()
            }
        }
    }

    pub(crate) fn state(&self) -> PortmapState {
        self.inner.lock().state.clone()
    }

    /// Whether another portmapper may have lost our programs meanwhile.
    fn is_due(&self) -> bool {
        self.inner.lock().asked.is_none_or(|asked| asked.elapsed() >= RPCBIND_CHECK)
    }

    /// Withdraws our programs from another portmapper.
    pub(crate) async fn withdraw(&self) {
        let PortmapState::Registered(other) = self.state() else { return };
        let programs = {
            let mut inner = self.inner.lock();
            inner.state = PortmapState::Off;
            inner.programs.clone()
        };
        if let Err(error) = rpcbind::withdraw(other, &programs).await {
            tracing::warn!(%other, error, "cannot withdraw from the portmapper");
        }
    }

    async fn register(&self, other: SocketAddr, programs: &[Service], why_not_own: &io::Error) {
        let registered = rpcbind::register(other, programs).await;
        let mut inner = self.inner.lock();
        inner.asked = Some(Instant::now());
        let is_told = matches!(inner.state, PortmapState::Unavailable(_));
        match registered {
            Ok(()) => {
                if inner.state != PortmapState::Registered(other) {
                    tracing::info!(%other, "registered with the portmapper");
                }
                inner.state = PortmapState::Registered(other);
            }
            Err(error) => {
                let why = format!(
                    "no portmapper of our own: {why_not_own}; registering with the one at \
                     {other}: {error}"
                );
                if !is_told {
                    tracing::warn!(
                        why,
                        "clients that ask the portmapper will not find us: qemu's nfs:// and \
                         libnfs fail to connect, showmount and rpcinfo (XCP-ng's storage driver) \
                         list nothing; kernel mounts work with the options port= and mountport="
                    );
                }
                inner.state = PortmapState::Unavailable(why);
            }
        }
    }
}

/// Returns the programs that a portmapper of our own at these addresses lists.
fn with_portmapper(own: &[SocketAddr], programs: Vec<Service>) -> Vec<Service> {
    let table = at_each(own, |at| portmappers(at.port(), at.is_ipv4()));
    table.into_iter().chain(programs).collect()
}

/// Our programs: all on one TCP port, and those for locks also on UDP.
fn programs(port: u16, udp: bool) -> Vec<Mapping> {
    let at = |prot, (prog, vers)| Mapping { prog, vers, prot, port: port.into() };
    let files = [
        (v3::PROGRAM, v3::VERSION),
        (mount::PROGRAM, MOUNT_VERSION_OLD),
        (mount::PROGRAM, mount::VERSION),
    ];
    let locks = [(nlm::PROGRAM, nlm::VERSION), (nsm::PROGRAM, nsm::VERSION)];
    let over_tcp = files.into_iter().chain(locks).map(|program| at(IPPROTO_TCP, program));
    let over_udp = locks.into_iter().filter(|_| udp).map(|program| at(IPPROTO_UDP, program));
    over_tcp.chain(over_udp).collect()
}

/// Services at each of `addresses`. A service on all addresses of IPv6 also listens on those of
/// IPv4. Of several addresses of a family, the first is announced for each port.
fn at_each(addresses: &[SocketAddr], of: impl Fn(SocketAddr) -> Vec<Mapping>) -> Vec<Service> {
    let mut services: Vec<Service> = Vec::new();
    for address in addresses {
        let also = (address.is_ipv6() && address.ip().is_unspecified())
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        for at in also.into_iter().chain([*address]) {
            for Mapping { prog, vers, prot, .. } in of(at) {
                let known = |it: &Service| {
                    (it.prog, it.vers, it.prot, it.at.is_ipv4()) == (prog, vers, prot, at.is_ipv4())
                };
                if !services.iter().any(known) {
                    services.push(Service { prog, vers, prot, at });
                }
            }
        }
    }
    services
}

/// The portmapper itself. Version 2 knows no IPv6.
fn portmappers(port: u16, v4: bool) -> Vec<Mapping> {
    let versions = [rpcb::VERSION_4, rpcb::VERSION_3, portmap::VERSION];
    let versions = versions.into_iter().filter(|version| v4 || *version != portmap::VERSION);
    let of = |vers| {
        [IPPROTO_TCP, IPPROTO_UDP].map(|prot| Mapping {
            prog: portmap::PROGRAM,
            vers,
            prot,
            port: port.into(),
        })
    };
    versions.flat_map(of).collect()
}

/// A portmapper's sockets.
struct Own {
    listeners: Vec<StdListener>,
    datagrams: Vec<std::net::UdpSocket>,
    addresses: Vec<SocketAddr>,
}

fn own(wanted: &[SocketAddr]) -> io::Result<Own> {
    let (listeners, datagrams, addresses) = Default::default();
    let mut own = Own { listeners, datagrams, addresses };
    for address in wanted {
        let listener = listen::tcp(*address)?;
        let local = listener.local_addr()?;
        own.datagrams.push(listen::udp(local)?);
        own.listeners.push(listener);
        own.addresses.push(local);
    }
    Ok(own)
}

/// The address of the portmapper that has one of `addresses`: it takes registrations from its own
/// machine only, and Linux's over IPv4.
fn loopback(addresses: &[SocketAddr]) -> SocketAddr {
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    match v4.or(addresses.first()).copied() {
        Some(address) if !address.ip().is_unspecified() => address,
        any => (Ipv4Addr::LOCALHOST, any.map_or(portmap::PORT, |any| any.port())).into(),
    }
}

pub(crate) async fn answer_datagrams(socket: std::net::UdpSocket, nfs: Arc<Nfs>) {
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "the portmapper serves no datagrams");
            return;
        }
    };
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    loop {
        let (bytes, from) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            Err(error) => {
                // This also reports that an earlier answer reached nobody.
                tracing::debug!(%error, "portmapper datagram");
                tokio::task::yield_now().await;
                continue;
            }
        };
        if !from.ip().to_canonical().is_loopback() && !nfs.exports().knows(from.ip()) {
            continue;
        }
        let call = datagram.get(..bytes).unwrap_or_default();
        let mut reply = EncodeBuf::new();
        if portmap::answer(&nfs.portmap(), from.ip(), call, Framing::Datagram, &mut reply).is_ok()
            && let Some(bytes) = reply.contiguous()
        {
            // A client resends a call whose answer was lost.
            let _ = socket.try_send_to(bytes, from);
        }
    }
}

const MOUNT_VERSION_OLD: u32 = 1;
