//! The server: where it should be heard, by its own words.

use std::net::{IpAddr, SocketAddr};

use aquifer_api::DaemonInfo;
use aquifer_api::client::Client;

use crate::here;

/// Where the server should be heard.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// For people.
    pub name: String,
    /// Whether it is this machine.
    pub is_local: bool,
    /// Whether its daemon has answered: what listens there should be Aquifer's.
    pub is_aquifer: bool,
    /// Addresses of NFS; empty if it does not listen.
    pub nfs: Vec<SocketAddr>,
    /// Its portmapper.
    pub portmap: Portmap,
}

/// Service that tells where NFS is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portmap {
    /// Nobody.
    None,
    /// Aquifer.
    Own(SocketAddr),
    /// An rpcbind, with which it has registered.
    Rpcbind(SocketAddr),
}

impl Portmap {
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Portmap::None => None,
            Portmap::Own(at) | Portmap::Rpcbind(at) => Some(at),
        }
    }
}

impl Server {
    /// By what its daemon says, if it says anything.
    pub fn of(client: &Client, addresses: Vec<IpAddr>, daemon: Option<&DaemonInfo>) -> Server {
        let is_local = client.is_local();
        let name = match client.host() {
            Some(host) => host.to_string(),
            None => "this machine".to_string(),
        };
        let Some(daemon) = daemon else {
            let nfs = at_port(&addresses, aquifer_nfs::proto::v3::PORT);
            let portmap = Portmap::None;
            return Server { name, is_local, is_aquifer: false, nfs, portmap };
        };
        let lines = &daemon.nfs.listening;
        let mut nfs = Vec::new();
        for at in lines.iter().filter_map(|line| line.strip_prefix("nfs ")?.parse().ok()) {
            nfs.extend(reached(at, &addresses));
        }
        nfs.truncate(ADDRESSES_MAX);
        let first = |prefix: &str| {
            let at = lines.iter().find_map(|line| line.strip_prefix(prefix)?.parse().ok())?;
            reached(at, &addresses).first().copied()
        };
        let portmap = match (first("portmap "), first("registered with ")) {
            (Some(at), _) => Portmap::Own(at),
            // It is rpcbind of the server's own machine, whatever it calls that.
            (None, Some(at)) => Portmap::Rpcbind(match addresses.first() {
                Some(address) if !is_local => SocketAddr::new(*address, at.port()),
                _ => at,
            }),
            (None, None) => Portmap::None,
        };
        Server { name, is_local, is_aquifer: true, nfs, portmap }
    }
}

/// The addresses at which a socket is reached that listens at `at`.
fn reached(at: SocketAddr, addresses: &[IpAddr]) -> Vec<SocketAddr> {
    match at.ip() {
        IpAddr::V4(all) if all.is_unspecified() => {
            let four: Vec<IpAddr> = addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
            at_port(&four, at.port())
        }
        // Those of IPv4, too.
        IpAddr::V6(all) if all.is_unspecified() => at_port(addresses, at.port()),
        _ => vec![at],
    }
}

fn at_port(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().take(ADDRESSES_MAX).map(|address| SocketAddr::new(*address, port)).collect()
}

/// The addresses of the server's machine, as they are known here.
pub(crate) async fn addresses(client: &Client) -> Vec<IpAddr> {
    match client.host() {
        None => here::addresses(),
        Some(host) => crate::names::look_up(host).await.unwrap_or_default(),
    }
}

/// Machines with more are looked at in part.
const ADDRESSES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_all_addresses_is_reached_at_each() {
        let addresses: Vec<IpAddr> =
            ["10.1.0.5", "fd00::5", "127.0.0.1"].map(|it| it.parse().unwrap()).to_vec();
        let at = |text: &str| {
            let all = reached(text.parse().unwrap(), &addresses);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(at("[::]:2049"), ["10.1.0.5:2049", "[fd00::5]:2049", "127.0.0.1:2049"]);
        assert_eq!(at("0.0.0.0:2049"), ["10.1.0.5:2049", "127.0.0.1:2049"]);
        assert_eq!(at("10.9.9.9:2050"), ["10.9.9.9:2050"]);
    }
}
