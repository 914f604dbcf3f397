//! Clients in `sharenfs`: addresses, networks and host names, separated by colons.

use std::net::{IpAddr, Ipv4Addr};

use aquifer_nfs::{Client, Entry, Network};

/// A list of clients separated by colons: `-10.1.2.3:@10.1.0.0/16:[fd00::]/8:hv1.example`. IPv6 is
/// in brackets, since it has colons of its own; a minus sign excludes clients from the list.
///
/// # Errors
/// The error in an entry.
pub(super) fn list(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut rest = text;
    loop {
        let (one, after) = first_of(rest)?;
        let (except, one) = match one.strip_prefix('-') {
            Some(one) => (true, one),
            None => (false, one),
        };
        let (client, after) = match after {
            // A certificate's name follows a colon of its own.
            Some(behind) if one == CERTIFICATE => {
                let (name, after) = first_of(behind)?;
                let client = Client::Certificate(host(name)?);
                if except {
                    return Err(shuts_nobody_out(&client));
                }
                (client, after)
            }
            _ => (client(one)?, after),
        };
        entries.push(Entry { client, except });
        match after {
            Some(after) => rest = after,
            None => break,
        }
    }
    if entries.iter().all(|entry| entry.except) {
        return Err(format!(
            "{text:?} takes clients out and puts none in; to shut some out of an export for all \
             others, say rw,none={}",
            text.replace(":-", ":").trim_start_matches('-')
        ));
    }
    Ok(entries)
}

/// The reason why a certificate is allowed only where it admits a client.
pub(super) fn shuts_nobody_out(client: &Client) -> String {
    format!("{client} shuts nobody out: a client that shows no certificate is not named by it")
}

const CERTIFICATE: &str = "cert";

/// One client of a list.
///
/// # Errors
/// The error in it.
pub(super) fn client(text: &str) -> Result<Client, String> {
    if text.is_empty() {
        return Err("a list of clients has an empty entry; IPv6 stands in brackets".into());
    }
    if let Some(network) = text.strip_prefix('@') {
        return self::network(network).map(Client::Network);
    }
    let no_letter = !text.contains(|c: char| c.is_ascii_alphabetic());
    if no_letter && !text.starts_with('-') || text.contains(['[', '/']) {
        return plain(text)?.parse().map(Client::Network).map_err(|error| {
            format!(
                "{error}; clients are addresses, networks and names of hosts between colons, IPv6 \
                 in brackets: 10.1.0.0/16:[fd00::]/8:hv1.example"
            )
        });
    }
    host(text).map(Client::Host)
}

/// A network after `@`: with a number of bits, or with as many bytes of IPv4 as are written
/// (share_nfs(1M): "assumes a byte-aligned netmask").
fn network(text: &str) -> Result<Network, String> {
    let plain = plain(text)?;
    let (address, bits) = match plain.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (plain.as_str(), None),
    };
    let bytes: Vec<&str> = address.split('.').collect();
    let is_short = bytes.len() < 4 && bytes.iter().all(|byte| byte.parse::<u8>().is_ok());
    let full = match is_short {
        true => [bytes.clone(), vec!["0"; 4 - bytes.len()]].concat().join("."),
        false => address.to_owned(),
    };
    let bits = match bits {
        Some(bits) => bits.to_owned(),
        None if is_short => (8 * bytes.len()).to_string(),
        None if full.ends_with(".0") || full.ends_with("::") => {
            return Err(format!(
                "@{text}: say how many bits of it count: @{text}/24; @10.1 is 10.1.0.0/16"
            ));
        }
        None => return full.parse().map_err(|error| not_a_network(text, &error)),
    };
    format!("{full}/{bits}").parse().map_err(|error| not_a_network(text, &error))
}

fn not_a_network(text: &str, error: &aquifer_nfs::NetworkError) -> String {
    format!(
        "@{text}: {error}; behind @ stands a network, such as @10.1.0.0/16 or @10.1; netgroups and \
         names of networks are not known here"
    )
}

/// FreeBSD's `-network` and `-mask`.
///
/// # Errors
/// The error in them.
pub(super) fn masked(address: &str, mask: Option<&str>) -> Result<Client, String> {
    let Some(mask) = mask else { return network(address).map(Client::Network) };
    let bits = match mask.parse::<IpAddr>() {
        Ok(IpAddr::V4(mask)) => prefix_of(mask),
        _ => None,
    };
    let bits = bits.ok_or_else(|| format!("-mask={mask}: is no mask such as 255.255.0.0"))?;
    if address.contains('/') {
        return Err(format!("-network={address} says its mask, and so does -mask={mask}"));
    }
    network(&format!("{address}/{bits}")).map(Client::Network)
}

/// The number of leading bits of a mask, if it has no others.
fn prefix_of(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits().leading_ones();
    (mask.to_bits().count_ones() == bits).then_some(bits)
}

/// The address or network without the brackets around IPv6.
fn plain(text: &str) -> Result<String, String> {
    let Some(inside) = text.strip_prefix('[') else { return Ok(text.to_owned()) };
    let (address, behind) =
        inside.split_once(']').ok_or_else(|| format!("{text:?}: a bracket is not closed"))?;
    Ok(format!("{address}{behind}"))
}

/// The normal form of a host name: in lower case, without a dot at the end (RFC 1123 section 2.1,
/// RFC 1035 section 2.3.4; `_` is used, too).
///
/// # Errors
/// The error in it.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} is no name of a host: {why}"));
    if text.starts_with('.') || text.contains('*') || text.contains('?') {
        return wrong(
            "patterns and domains would have to trust the name that a client's network gives its \
             address; name hosts, or networks such as @10.1.0.0/16",
        );
    }
    if text.contains('(') {
        return wrong("options for single hosts are said by rw=, ro= and root=");
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label_is_right = |label: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label_is_right) {
        return wrong("it has letters, digits, - and _ between dots");
    }
    if name.rsplit('.').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit())) {
        return wrong("it ends like an address");
    }
    Ok(name)
}

/// Splits at the first colon outside brackets.
fn first_of(text: &str) -> Result<(&str, Option<&str>), String> {
    let behind_brackets = match (text.find('['), text.find(':')) {
        (Some(open), Some(colon)) if open < colon => {
            text.find(']').ok_or_else(|| format!("{text:?}: a bracket is not closed"))?
        }
        _ => 0,
    };
    let colon = text.get(behind_brackets..).and_then(|tail| tail.find(':'));
    Ok(match colon.and_then(|at| text.split_at_checked(behind_brackets + at)) {
        Some((one, after)) => (one, after.strip_prefix(':')),
        None => (text, None),
    })
}
