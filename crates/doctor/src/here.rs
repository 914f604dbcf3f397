//! This machine: its addresses, and the way from it to another.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

/// The addresses of this machine by which others could reach it, and those of loopback last.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let four = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let six = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = of_trie(&four).into_iter().map(IpAddr::V4).collect();
    all.extend(of_inet6(&six).into_iter().map(IpAddr::V6));
    all.sort_by_key(IpAddr::is_loopback);
    all
}

/// The local addresses in `/proc/net/fib_trie`, where a leaf's kind stands below its address.
fn of_trie(text: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut last) = (Vec::new(), None);
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(last.filter(|address| !found.contains(address)));
        }
    }
    found
}

/// The addresses in `/proc/net/if_inet6` that need no interface's name beside them.
fn of_inet6(text: &str) -> Vec<Ipv6Addr> {
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    let addresses = words.filter_map(|word| u128::from_str_radix(word, 16).ok());
    addresses.map(Ipv6Addr::from).filter(|it| !it.is_unicast_link_local()).collect()
}

/// The address from which this machine calls another.
pub(crate) fn source_to(other: IpAddr) -> io::Result<IpAddr> {
    Ok(connected(other)?.local_addr()?.ip())
}

/// A socket whose datagrams go to another machine, where nobody should listen. No datagram is sent
/// yet.
fn connected(other: IpAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(SocketAddr::new(other, UNUSED_PORT))?;
    Ok(socket)
}

/// Knowledge about the way to another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Datagrams as long as the way should carry, in bytes, come through in one piece.
    Whole(u32),
    /// Short ones do, and those do not.
    Short(u32),
    /// Nothing came back, so nothing is known.
    Unknown(u32),
}

/// Tries which datagrams come through to another machine in one piece. It answers those to a port
/// where nobody listens by a message that says so.
pub(crate) fn way_to(other: IpAddr) -> io::Result<Way> {
    let socket = connected(other)?;
    socket.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let (mtu, headers) = match other {
        IpAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
            (sockopt::ip_mtu(&socket)?, 28)
        }
        IpAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
            (sockopt::ipv6_mtu(&socket)?, 48)
        }
    };
    let length = usize::try_from(mtu.saturating_sub(headers)).unwrap_or(0);
    Ok(match (answers(&socket, 1), answers(&socket, length)) {
        (_, true) => Way::Whole(mtu),
        (true, false) => Way::Short(mtu),
        (false, false) => Way::Unknown(mtu),
    })
}

/// Whether a datagram of this length is answered: by a refusal.
fn answers(socket: &UdpSocket, length: usize) -> bool {
    (0..TRIES).any(|_| {
        let sent = socket.send(&vec![0; length]);
        let heard = sent.and_then(|_| socket.recv(&mut [0; 16]));
        // A program that listens there after all has got it, too.
        heard.map_or_else(|error| error.kind() == io::ErrorKind::ConnectionRefused, |_| true)
    })
}

/// A port of no service (the last of those that may be given to one).
const UNUSED_PORT: u16 = 49_150;
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
/// A datagram may be lost on a good way.
const TRIES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_kernel() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.5\n        /32 host LOCAL\n     \
                    |-- 10.1.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        \
                    /32 host LOCAL\nLocal:\n     |-- 10.1.0.5\n        /32 host LOCAL\n";
        let expected: [Ipv4Addr; 2] = ["10.1.0.5".parse().unwrap(), Ipv4Addr::LOCALHOST];
        assert_eq!(of_trie(trie), expected);
        let six = "00000000000000000000000000000001 01 80 10 80       lo\n\
                   fe800000000000000000000000000001 02 40 20 80     eth0\n\
                   fd000000000000000000000000000005 02 40 00 80     eth0\n";
        let expected: [Ipv6Addr; 2] = [Ipv6Addr::LOCALHOST, "fd00::5".parse().unwrap()];
        assert_eq!(of_inet6(six), expected);
        assert!(addresses().last().is_some_and(IpAddr::is_loopback));
    }

    #[test]
    fn the_way_to_this_machine_carries_what_it_should() {
        let way = way_to(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(matches!(way, Way::Whole(mtu) if mtu >= 1500), "{way:?}");
    }
}
