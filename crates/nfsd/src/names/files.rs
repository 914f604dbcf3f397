//! The system's files: hosts(5) and resolv.conf(5).
//!
//! Invariant: invalid lines are skipped, as the system's own resolver does. A missing file counts
//! as empty.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::servers::Servers;
use crate::limits::{DNS_PORT, DNS_SEARCH_MAX, DNS_SERVERS_MAX};

/// The addresses of each name in a table of hosts, by name in lower case.
pub(super) fn hosts(path: &Path) -> HashMap<String, Vec<IpAddr>> {
    let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in lines(path) {
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            hosts.entry(name).or_default().push(address);
        }
    }
    hosts
}

/// The servers and the domains of a resolver's configuration; without a server, the one on this
/// machine.
pub(super) fn resolv_conf(path: &Path) -> Servers {
    let mut servers = Servers::default();
    for line in lines(path) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
                servers.addresses.extend(address.map(|address| SocketAddr::new(address, DNS_PORT)));
            }
            // The last one of either kind counts.
            Some("search" | "domain") => {
                let domain = |word: &str| word.trim_matches('.').to_ascii_lowercase();
                servers.search = words.map(domain).take(DNS_SEARCH_MAX).collect();
            }
            _ => {}
        }
    }
    servers.addresses.truncate(DNS_SERVERS_MAX);
    if servers.addresses.is_empty() {
        servers.addresses.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
    }
    servers
}

/// The lines without comments.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let bare = |line: &str| line.split(['#', ';']).next().unwrap_or_default().to_owned();
    text.lines().map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_host_has_the_addresses_of_all_its_lines() {
        let file = file(
            "127.0.0.1 localhost\n# 10.0.0.9 hv1\n10.0.0.1\tHV1.example. hv1 # first\n\
             fd00::1 hv1\nnonsense hv1\n10.0.0.2\n",
        );
        let hosts = hosts(file.path());
        let of = |name: &str| hosts.get(name).map(|all| all.iter().map(ToString::to_string));
        assert_eq!(of("hv1").unwrap().collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);
        assert_eq!(of("hv1.example").unwrap().collect::<Vec<_>>(), ["10.0.0.1"]);
        assert_eq!(hosts.len(), 3);
        assert!(super::hosts(Path::new("/nowhere/hosts")).is_empty());
    }

    #[test]
    fn servers_and_domains_are_the_systems() {
        let file = file(
            "domain old.example\n; nameserver 10.9.9.9\nnameserver 10.0.0.1\n\
             nameserver fd00::53 # v6\nnameserver nonsense\nsearch a.example B.example.\n\
             nameserver 10.0.0.2\nnameserver 10.0.0.3\noptions ndots:2\n",
        );
        let servers = resolv_conf(file.path());
        assert_eq!(servers.search, ["a.example", "b.example"]);
        let addresses: Vec<_> = servers.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:53", "[fd00::53]:53", "10.0.0.2:53"]);
        let none = resolv_conf(Path::new("/nowhere/resolv.conf"));
        assert_eq!(none.addresses, [SocketAddr::from(([127, 0, 0, 1], 53))]);
    }
}
