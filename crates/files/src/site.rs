//! Sites: addresses whose calls count together where hosts have limits.

use std::net::{IpAddr, Ipv6Addr};

/// The *site* of an address: the addresses that one machine may have. Of IPv6 that is a network of
/// 64 bits. Limits count sites.
pub fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        canonical => canonical,
    }
}
