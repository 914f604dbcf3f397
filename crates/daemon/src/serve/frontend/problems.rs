//! Problems of NFS, in words for people.

use std::net::SocketAddr;

use aquifer_api::{Problem, Severity, codes};
use aquifer_nfsd::{Observer, PortmapState};

/// No server could be started.
pub(super) fn not_started(why: &str) -> Problem {
    let status = format!("Not served over NFS: {why}. No client can mount.");
    let action = "It is tried again by itself. `journalctl -u aquifer` says more.";
    Problem::new(codes::NFS_NOT_SERVED, Severity::Error, status, Some(action.into()))
}

/// Returns the problems of a running server.
pub(super) fn of_server(server: &Observer) -> Vec<Problem> {
    let mut all = Vec::new();
    let closed = server.closed();
    if !closed.is_empty() {
        all.push(not_listening(&closed, server.addresses().is_empty()));
    }
    if let PortmapState::Unavailable(why) = server.portmap() {
        let status = format!("Clients that ask a portmapper do not find NFS: {why}.");
        let action = "It is tried again by itself. `ss -tulnp 'sport = :111'` shows what has the \
                      portmapper's port. If no client asks it, set `enabled = false` in \
                      [portmap] of /etc/aquifer/aquifer.toml.";
        let action = Some(action.into());
        all.push(Problem::new(codes::PORTMAP_OFF, Severity::Error, status, action));
    }
    if let Some(why) = server.tls_problem() {
        let status = format!("The files of NFS over TLS cannot be used: {why}.");
        let action = "Mend them: they are read again within seconds. Until then new connections \
                      get the certificate from before; without one, exports with xprtsec= are \
                      shut.";
        let action = Some(action.into());
        all.push(Problem::new(codes::NFS_TLS_OFF, Severity::Error, status, action));
    }
    all
}

fn not_listening(closed: &[(SocketAddr, String)], is_all: bool) -> Problem {
    let each = closed.iter().map(|(address, why)| format!("{address} ({why})"));
    let addresses = each.collect::<Vec<_>>().join(", ");
    let who = if is_all { "No client" } else { "No client that uses it" };
    let status =
        format!("Not served over NFS: cannot listen on {addresses}. {who} can mount anything.");
    let port = closed.first().map_or(2049, |(address, _)| address.port());
    let action = format!(
        "It is tried again by itself. `ss -tlnp 'sport = :{port}'` shows what has the port, `ip \
         addr` whether the address is there. [nfs] listen in /etc/aquifer/aquifer.toml names \
         others."
    );
    Problem::new(codes::NFS_NOT_SERVED, Severity::Error, status, Some(action))
}

/// The list of lock clients cannot be written.
pub(super) fn locks_not_kept(why: &str) -> Problem {
    let status = format!("The list of clients that have locks cannot be written: {why}.");
    let action = "Clients that are not on it get no locks, so virtual machines may not start. Make \
                  room in the state directory, or mend the file: it is tried again by itself.";
    Problem::new(codes::LOCKS_NOT_KEPT, Severity::Error, status, Some(action.into()))
}
