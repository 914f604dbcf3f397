//! Networks of clients: an address, and the number of its bits that count.
//!
//! Invariant: an IPv4 client is the same client over an IPv4 socket and mapped into IPv6. A network
//! is written in one form only: the bits that do not count are zero.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, or one address, as `10.1.0.0/16`, `10.1.2.3`, `fd00::/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The reason why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The part before `/` is no address. Names of hosts are not looked up.
    #[error("`{0}` is no IPv4 or IPv6 address")]
    Address(String),
    /// The part behind `/` is no number of bits for such an address.
    #[error("`{0}` is no prefix length from 0 to {1}")]
    Prefix(String, u8),
}

impl Network {
    /// The network of `prefix` bits around `address`; `None` if the address has fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Network> {
        if prefix > address_bits(address) {
            return None;
        }
        let (address, prefix) = match (address.to_canonical(), prefix.checked_sub(96)) {
            (IpAddr::V4(v4), Some(prefix)) if address.is_ipv6() => (IpAddr::V4(v4), prefix),
            _ => (address, prefix),
        };
        let address = match address {
            IpAddr::V4(v4) => {
                let kept = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & kept))
            }
            IpAddr::V6(v6) => {
                let kept = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & kept))
            }
        };
        Some(Network { address, prefix })
    }

    /// Whether `client` is in this network.
    pub fn contains(&self, client: IpAddr) -> bool {
        self.bits().contain(Bits::of(client))
    }

    /// Whether all addresses of another network are in this one.
    pub fn covers(&self, other: &Network) -> bool {
        self.prefix <= other.prefix
            && self.address.is_ipv4() == other.address.is_ipv4()
            && self.contains(other.address)
    }

    /// The number of address bits that count: 32 for one IPv4 address, 128 for one of IPv6.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// In a form for fast comparison.
    pub(crate) fn bits(&self) -> NetworkBits {
        let mask = match self.address {
            IpAddr::V4(_) => {
                u32::MAX.checked_shl(32 - u32::from(self.prefix)).map_or(0, u128::from)
            }
            IpAddr::V6(_) => u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0),
        };
        NetworkBits { network: Bits::of(self.address), mask }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Network { address, prefix: address_bits(address) }
    }
}

/// An address as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    v4: bool,
    bits: u128,
}

impl Bits {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Bits { v4: true, bits: v4.to_bits().into() },
            IpAddr::V6(v6) => Bits { v4: false, bits: v6.to_bits() },
        }
    }

    pub fn is_v4(self) -> bool {
        self.v4
    }
}

/// A network as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkBits {
    network: Bits,
    mask: u128,
}

impl NetworkBits {
    pub fn contain(&self, client: Bits) -> bool {
        client.v4 == self.network.v4 && client.bits & self.mask == self.network.bits
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address_text, prefix_text) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let bad_address = |_| NetworkError::Address(address_text.to_owned());
        let address: IpAddr = address_text.parse().map_err(bad_address)?;
        let bits = address_bits(address);
        let prefix = match prefix_text {
            Some(prefix) => prefix.parse().ok(),
            None => Some(bits),
        };
        let network = prefix.and_then(|prefix| Network::new(address, prefix));
        let prefix = || prefix_text.unwrap_or_default().to_owned();
        network.ok_or_else(|| NetworkError::Prefix(prefix(), bits))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < address_bits(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[track_caller]
    fn holds(text: &str, inside: &[&str], outside: &[&str]) {
        for address in inside {
            assert!(network(text).contains(address.parse().unwrap()), "{address} in {text}");
        }
        for address in outside {
            assert!(!network(text).contains(address.parse().unwrap()), "{address} not in {text}");
        }
    }

    #[test]
    fn an_address_is_in_a_network_by_its_leading_bits() {
        holds("10.1.0.0/16", &["10.1.0.0", "10.1.255.255"], &["10.2.0.0", "10.0.255.255"]);
        holds("10.1.2.3", &["10.1.2.3"], &["10.1.2.2", "::a01:203"]);
        holds("10.1.2.128/25", &["10.1.2.200"], &["10.1.2.127"]);
        holds("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::1", "fd00::1"]);
        holds("fd00::/8", &["fd12::1"], &["fe80::1", "10.0.0.1"]);
        holds("::/0", &["::", "fe80::1"], &["10.0.0.1"]);
        holds("fd00::1/128", &["fd00::1"], &["fd00::2"]);
    }

    /// A dual-stack socket shows IPv4 clients as `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2).
    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        holds("10.1.0.0/16", &["::ffff:10.1.2.3"], &["::ffff:10.2.2.3"]);
        holds("::ffff:10.1.2.3", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.1.2.4"]);
        holds("::ffff:10.1.0.0/112", &["10.1.2.3", "::ffff:10.1.2.3"], &["10.2.0.0"]);
    }

    #[test]
    fn text_is_read_and_written_in_one_form() {
        for (text, form) in [
            ("10.1.2.3/16", "10.1.0.0/16"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00::1/8", "fd00::/8"),
        ] {
            assert_eq!(network(text).to_string(), form);
            assert_eq!(network(form), network(text));
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "/8", "ten.one", "10.1.2", "10.1.2.3/", "10.1.2.3/33", "10.1.2.3/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let error = "fd00::/129".parse::<Network>().unwrap_err();
        assert_eq!(error, NetworkError::Prefix("129".into(), 128));
    }
}
