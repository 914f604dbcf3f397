//! Property `sharenfs`: what of a dataset is exported, to whom, and how.
//!
//! The words are those of `zfs set sharenfs` and exports(5), as far as the export table knows what
//! they mean. A word that it does not know is refused: ignored, it could open what was meant to be
//! closed, or let a server lie that was meant to be honest.
//!
//! Invariant: what [`parse`] accepts, the export table accepts.

use aquifer_nfs::{Clients, Export, Network, Squash};

#[cfg(test)]
mod tests;

/// What `sharenfs=value` makes of a dataset; `None` for `off`.
///
/// # Errors
/// What is wrong with the value, and what it could be.
pub fn parse(dataset: &str, value: &str) -> Result<Option<Export>, String> {
    if value == "off" {
        return Ok(None);
    }
    let mut export = Export::new(path_of(dataset), dataset);
    let mut access = None;
    for word in value.split(',').map(str::trim) {
        let (name, argument) = match word.split_once('=') {
            Some((name, argument)) => (name, Some(argument)),
            None => (word, None),
        };
        match (name, argument) {
            ("rw" | "ro", _) => {
                if access.replace(name).is_some() {
                    return Err(format!(
                        "{value:?} says rw or ro twice; an export is one of them, for one list of \
                         clients"
                    ));
                }
                export.read_only = name == "ro";
                if let Some(clients) = argument {
                    export.clients = Clients::Only(networks(clients)?);
                }
            }
            ("on", None) if value == "on" => {}
            ("root_squash", None) => export.squash = Squash::Root,
            ("no_root_squash", None) => export.squash = Squash::None,
            ("all_squash", None) => export.squash = Squash::All,
            ("anonuid", Some(id)) => export.anon_uid = number(name, id)?,
            ("anongid", Some(id)) => export.anon_gid = number(name, id)?,
            ("secure", None) => export.secure_ports = true,
            ("insecure", None) => export.secure_ports = false,
            // What is so in any case may be said.
            ("sync" | "no_subtree_check", None) | ("sec", Some("sys")) => {}
            _ => return Err(unknown(word)),
        }
    }
    Ok(Some(export))
}

/// The path under which clients mount a dataset.
pub fn path_of(dataset: &str) -> String {
    format!("/{dataset}")
}

fn unknown(word: &str) -> String {
    let why = match word {
        "async" => "is not offered: it loses acknowledged writes in a power cut",
        "on" | "off" => "stands alone",
        "" => "is empty",
        _ => {
            "is not known; there are on, off, rw, ro, rw=NETWORKS, ro=NETWORKS, root_squash, \
             no_root_squash, all_squash, anonuid=N, anongid=N, secure, insecure"
        }
    };
    format!("option {word:?} {why}")
}

fn number(name: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{name}={text}: is no number from 0 to 4294967295"))
}

/// Networks between colons, each with an `@` before it or not; IPv6 in brackets, since it has
/// colons of its own: `@10.1.0.0/16:[fd00::]/8`.
fn networks(text: &str) -> Result<Vec<Network>, String> {
    let mut networks = Vec::new();
    let mut rest = text;
    loop {
        let (one, after) = first_of(rest)?;
        let bare = one.strip_prefix('@').unwrap_or(one);
        let plain: String = bare.chars().filter(|c| !"[]".contains(*c)).collect();
        let network = plain.parse().map_err(|error| {
            format!(
                "{error}; clients are addresses or networks between colons, IPv6 in brackets: \
                 10.1.0.0/16:[fd00::]/8"
            )
        });
        networks.push(network?);
        match after {
            Some(after) => rest = after,
            None => break,
        }
    }
    if networks.len() > aquifer_nfs::limits::CLIENTS_MAX {
        let limit = aquifer_nfs::limits::CLIENTS_MAX;
        return Err(format!("more than {limit} clients; name networks instead of addresses"));
    }
    Ok(networks)
}

/// Cuts off what stands before the first colon outside brackets.
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
