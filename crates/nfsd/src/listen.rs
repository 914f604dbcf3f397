//! Sockets to which clients connect.
//!
//! Invariant: the task that accepts never waits for another. A connection too many is closed, and a
//! runtime that does not take its jobs gets none.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aquifer_nfs::{Origin, Security, Why};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::connection::{Common, Phase};
use crate::limits::{ENDING_MAX, KEEPALIVE, LISTEN_BACKLOG};
use crate::stats::add;
use crate::worker::{Handover, fewest};

/// A TCP socket that listens at `address`. The IPv6 "any" address serves IPv4 too, and is the IPv4
/// one on a machine without IPv6.
///
/// # Errors
/// Errors of the system.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<StdListener> {
    match tcp_at(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && no_ipv6(&error) => {
            tcp_at(SocketAddr::from(([0, 0, 0, 0], address.port())))
        }
        other => other,
    }
}

fn tcp_at(address: SocketAddr) -> io::Result<StdListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(address), SocketType::STREAM, flags, None)?;
    // A restarted server must not wait for the end of its old connections.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
    }
    bind(&socket, &address)?;
    listen(&socket, LISTEN_BACKLOG)?;
    Ok(StdListener::from(socket))
}

fn no_ipv6(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    let no_address = rustix::io::Errno::ADDRNOTAVAIL.raw_os_error();
    error.raw_os_error().is_some_and(|errno| errno == no_family || errno == no_address)
}

/// A UDP socket at `address`. The IPv6 "any" address serves IPv4 too.
///
/// # Errors
/// Errors of the system.
pub(crate) fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family(address), SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
    }
    bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

fn family(address: SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// The workers for connections.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    /// Those that serve clients.
    pub clients: Vec<Handover>,
    /// The one for connections whose calls no export takes, as far as is known yet.
    pub lobby: Handover,
}

/// Accepts connections and spreads them over the workers, until the server stops.
pub(crate) async fn accept(
    listener: StdListener,
    workers: Workers,
    common: Arc<Common>,
    ended: Arc<Notify>,
    mut phase: watch::Receiver<Phase>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot accept connections");
            return;
        }
    };
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase != Phase::Serve) => {}
        () = accept_all(&listener, &workers, &common, &ended) => {}
    }
}

async fn accept_all(
    listener: &TcpListener,
    workers: &Workers,
    common: &Arc<Common>,
    ended: &Arc<Notify>,
) {
    let mut short = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if std::mem::take(&mut short) {
                    tracing::info!("connections are accepted again");
                }
                take(stream, peer, workers, common, ended).await;
            }
            Err(error) => {
                // Mostly out of file descriptors or memory. Existing connections go on meanwhile,
                // and waiting ones are accepted when there is room. Logged once: it may last.
                if !std::mem::replace(&mut short, true) {
                    let connections = common.stats.connections.load(Ordering::Relaxed);
                    tracing::warn!(
                        class = "client.turned_away", %error, connections,
                        "cannot accept connections; they wait"
                    );
                }
                add(&common.stats.accept_failures, 1);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn take(
    stream: TcpStream,
    peer: SocketAddr,
    workers: &Workers,
    common: &Arc<Common>,
    ended: &Arc<Notify>,
) {
    let (stats, most) = (&common.stats, common.limits.connections_max);
    let address = peer.ip().to_canonical();
    let origin = Origin { peer, local: None, is_datagram: false, security: Security::Clear };
    // Whom no export can serve as it comes, by port or protection, is a stranger until one can.
    let is_served = common.nfs.exports().may_call(&origin);
    // Evicted connections take a moment to end.
    let has_room = stats.connections.load(Ordering::Relaxed) < most + ENDING_MAX;
    let seat = if has_room { common.peers.take(address, !is_served, most) } else { None };
    let Some(seat) = seat else {
        common.nfs.tell(address, Why::TooMany);
        add(&stats.turned_away, 1);
        return;
    };
    add(&stats.accepted, 1);
    let prepared = prepare(&stream).and_then(|()| stream.into_std());
    let worker = match is_served {
        true => fewest(&workers.clients),
        false => Some(&workers.lobby),
    };
    match (prepared, worker) {
        (Ok(stream), Some(worker)) => {
            tracing::debug!(class = "client.connected", client = %peer, "connected");
            worker.give((stream, peer), seat, common, ended).await;
        }
        (Err(error), _) => {
            common.peers.leave(&seat);
            tracing::debug!(client = %peer, %error, "connection lost");
        }
        (Ok(_), None) => {}
    }
}

/// Replies leave at once, and a client that vanishes is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    let (idle, interval, probes) = KEEPALIVE;
    let socket = stream.as_fd();
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, probes)?;
    Ok(())
}

const PAUSE: Duration = Duration::from_millis(50);
