//! Calls over UDP, of the programs that are served so: locks, and notices of restarts.
//!
//! Invariants:
//! - Only datagrams from this machine and from clients of an export are answered: sources can be
//!   forged.
//! - At most [`DATAGRAMS_MAX`] are under way. More wait in the socket, or are lost there and sent
//!   again.

use std::net::SocketAddr;
use std::sync::Arc;

use aquifer_nfs::{Nfs, Origin};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::limits::{CALL_DATAGRAM_BYTES_MAX, DATAGRAMS_MAX};

/// Answers datagrams of `socket`, as long as it is polled.
pub(crate) async fn answer(socket: std::net::UdpSocket, nfs: Arc<Nfs>) {
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::error!(%error, "no calls over UDP are served");
            return;
        }
    };
    let local = socket.local_addr().ok().map(|local| local.ip());
    let local = local.filter(|local| !local.is_unspecified());
    let mut answering = JoinSet::new();
    let mut datagram = vec![0; CALL_DATAGRAM_BYTES_MAX];
    loop {
        while answering.len() >= DATAGRAMS_MAX {
            answering.join_next().await;
        }
        while answering.try_join_next().is_some() {}
        let (bytes, peer) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            Err(error) => {
                // This also reports that an earlier answer reached nobody.
                tracing::debug!(%error, "datagram");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let call = datagram.get(..bytes).unwrap_or_default();
        let known = peer.ip().to_canonical().is_loopback() || nfs.exports().knows(peer.ip());
        if !known || !nfs.serves_datagram(call) {
            continue;
        }
        let (socket, nfs, call) = (Arc::clone(&socket), Arc::clone(&nfs), call.to_vec());
        answering.spawn(async move { answer_one(&socket, &nfs, peer, local, &call).await });
    }
}

async fn answer_one(
    socket: &UdpSocket,
    nfs: &Nfs,
    peer: SocketAddr,
    local: Option<std::net::IpAddr>,
    call: &[u8],
) {
    let mut reply = EncodeBuf::new();
    let answered =
        nfs.answer(Origin { local, is_datagram: true, ..peer.into() }, call, &mut reply).await;
    // Without the record mark in front.
    if answered.is_ok()
        && let Some(bytes) = reply.contiguous().and_then(|bytes| bytes.get(MARK_BYTES..))
    {
        // A client resends a call whose answer was lost.
        let _ = socket.try_send_to(bytes, peer);
    }
}

const MARK_BYTES: usize = 4;
