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
use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::Portmap;
use crate::connection::Phase;
use crate::limits::{DATAGRAM_BYTES_MAX, RPCBIND_CHECK};
use crate::listen;
use crate::worker::Worker;

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
    programs: Vec<Service>,
    state: Arc<Mutex<PortmapState>>,
    /// Our own portmapper's datagrams, until they are served.
    datagrams: Mutex<Vec<std::net::UdpSocket>>,
    other: Option<SocketAddr>,
}

impl PortmapService {
    /// Opens our own portmapper, or registers with another one. The programs listen on TCP at
    /// `addresses`, and some of them, if `udp` is set, at the same ones of UDP. The returned
    /// sockets, if there are any, must be served as all others.
    pub(crate) async fn open(
        config: &Portmap,
        addresses: &[SocketAddr],
        udp: bool,
        nfs: &Nfs,
    ) -> (Self, Vec<StdListener>) {
        let programs = at_each(addresses, |at| programs(at.port(), udp));
        nfs.set_portmap(programs.clone());
        let mut this = PortmapService {
            programs,
            state: Arc::new(Mutex::new(PortmapState::Off)),
            datagrams: Mutex::default(),
            other: None,
        };
        let Portmap::At(wanted) = config else { return (this, Vec::new()) };
        match own(wanted) {
            Ok(Own { listeners, datagrams, addresses }) => {
                let table = at_each(&addresses, |at| portmappers(at.port(), at.is_ipv4()));
                nfs.set_portmap(table.into_iter().chain(this.programs.clone()).collect());
                *this.state.lock() = PortmapState::Own(addresses);
                *this.datagrams.lock() = datagrams;
                (this, listeners)
            }
            Err(error) => {
                let other = loopback(wanted);
                this.other = Some(other);
                this.register(other, &error).await;
                (this, Vec::new())
            }
        }
    }

    pub(crate) fn state(&self) -> PortmapState {
        self.state.lock().clone()
    }

    /// Starts the service's tasks for the time that the server runs.
    pub(crate) async fn run(&self, home: &Worker, nfs: &Arc<Nfs>, phase: &watch::Receiver<Phase>) {
        let sockets = std::mem::take(&mut *self.datagrams.lock());
        for socket in sockets {
            let nfs = Arc::clone(nfs);
            home.serve(phase, || answer_datagrams(socket, nfs)).await;
        }
        if let Some(other) = self.other {
            let (programs, state) = (self.programs.clone(), Arc::clone(&self.state));
            home.serve(phase, move || look_after(other, programs, state)).await;
        }
    }

    /// Withdraws our programs from another portmapper.
    pub(crate) async fn withdraw(&self) {
        let PortmapState::Registered(other) = self.state() else { return };
        *self.state.lock() = PortmapState::Off;
        if let Err(error) = rpcbind::withdraw(other, &self.programs).await {
            tracing::warn!(%other, error, "cannot withdraw from the portmapper");
        }
    }

    async fn register(&self, other: SocketAddr, why_not_own: &io::Error) {
        match rpcbind::register(other, &self.programs).await {
            Ok(()) => *self.state.lock() = PortmapState::Registered(other),
            Err(error) => {
                let why = format!(
                    "no portmapper of our own: {why_not_own}; registering with the one at \
                     {other}: {error}"
                );
                tracing::warn!(
                    why,
                    "clients that ask the portmapper will not find us: qemu's nfs:// and libnfs \
                     fail to connect, showmount and rpcinfo (XCP-ng's storage driver) list \
                     nothing; kernel mounts work with the options port= and mountport="
                );
                *self.state.lock() = PortmapState::Unavailable(why);
            }
        }
    }
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

async fn answer_datagrams(socket: std::net::UdpSocket, nfs: Arc<Nfs>) {
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

/// Registers again when the other portmapper has lost our programs, or has started at last.
async fn look_after(other: SocketAddr, programs: Vec<Service>, state: Arc<Mutex<PortmapState>>) {
    loop {
        sleep(RPCBIND_CHECK).await;
        match rpcbind::register(other, &programs).await {
            Ok(()) => {
                let mut state = state.lock();
                if *state != PortmapState::Registered(other) {
                    tracing::info!(%other, "registered with the portmapper");
                    *state = PortmapState::Registered(other);
                }
            }
            Err(error) => tracing::debug!(%other, error, "not registered with the portmapper"),
        }
    }
}

const MOUNT_VERSION_OLD: u32 = 1;
