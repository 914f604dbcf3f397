//! Property `sharenfs`: whether a dataset is exported, to which clients, and how.
//!
//! The words are those of share_nfs(1M) of Solaris, exports(5) of Linux and exports(5) of FreeBSD,
//! as far as the export table has their meaning. [`parse`] reads them; [`words`] writes all options
//! of an export. An unknown word is refused. If it were ignored, it could open an export that was
//! meant to be closed, or make a server break a promise. Words that contradict each other are
//! refused too: the author would not get what the words seem to say.
//!
//! Invariants:
//! - The export table accepts every value that [`parse`] accepts, and the [`words`] of the result
//!   mean the same.

mod clients;
mod options;
mod wider;

use aquifer_nfs::limits::CLIENTS_MAX;
use aquifer_nfs::{Client, Entry, Export, Squash, Whom, Xprtsec};

pub(crate) use clients::host;
use options::Options;
pub use wider::wider;

#[cfg(test)]
mod tests;

/// The export that `sharenfs=value` defines for a dataset; `None` for `off`.
///
/// # Errors
/// The error in the value, and possible values.
pub fn parse(dataset: &str, value: &str) -> Result<Option<Export>, String> {
    match value.trim() {
        "off" => Ok(None),
        "on" => Options::default().export(dataset).map(Some),
        options => Options::read(options)?.export(dataset).map(Some),
    }
}

/// The clients that `snapcontrol=value` names; none for `off`.
///
/// # Errors
/// The error in the value.
pub fn snapcontrol(value: &str) -> Result<Vec<Entry>, String> {
    match value.trim() {
        "off" => Ok(Vec::new()),
        value => {
            let entries = clients::list(value)?;
            match entries.len() {
                0..=CLIENTS_MAX => Ok(entries),
                count => Err(format!("{count} clients are more than {CLIENTS_MAX}")),
            }
        }
    }
}

/// Risks of an export that its owner may not think of. A datastore's network is shared: by guests
/// behind a hypervisor's NAT, and by users without privileges on it.
pub fn risks(export: &Export) -> Vec<&'static str> {
    let is_wide = |entry: &Entry| match &entry.client {
        Client::Network(network) => !entry.except && network.prefix() == 0,
        Client::Host(_) | Client::Certificate(_) => false,
    };
    let whom = &export.access.read_write;
    let is_open = *whom == Whom::Everybody || whom.entries().iter().any(is_wide);
    // A client with a certificate is identified by more than its address.
    let is_proven = export.xprtsec == Xprtsec::Mtls;
    let writes_as_root = *whom != Whom::Nobody && export.squash == Squash::None && !is_proven;
    let open = is_open && writes_as_root;
    let insecure = writes_as_root && !export.secure_ports;
    let each = [
        (
            open,
            "everybody who reaches this server reads and writes all files as root: name the \
                hosts (rw=HOST:@NETWORK)",
        ),
        (
            insecure,
            "insecure: any user and any guest of a machine that is let in reads and writes \
                    all files as root (leave it out, but for QEMU's own driver without \
                    privileges)",
        ),
    ];
    each.into_iter().filter(|(is_so, _)| *is_so).map(|(_, risk)| risk).collect()
}

/// The path under which clients mount a dataset.
pub fn path_of(dataset: &str) -> String {
    format!("/{dataset}")
}

/// All options of an export, defaults included, in a form for [`parse`].
pub fn words(export: &Export) -> String {
    let Export { access, squash, anon_uid, anon_gid, .. } = export;
    let mut words = Vec::new();
    let mut whom = |name: &str, whom: &Whom| match whom {
        Whom::Nobody => {}
        Whom::Everybody => words.push(name.to_owned()),
        Whom::Listed(entries) => words.push(format!("{name}={}", list(entries))),
    };
    whom("rw", &access.read_write);
    whom("ro", &access.read_only);
    for (name, entries) in [("none", &access.none), ("root", &access.root)] {
        if !entries.is_empty() {
            words.push(format!("{name}={}", list(entries)));
        }
    }
    let squash = match squash {
        Squash::None => "no_root_squash",
        Squash::Root => "root_squash",
        Squash::All => "all_squash",
    };
    words.push(squash.into());
    if export.refuse_anonymous {
        words.push("anon=-1".into());
    } else {
        words.push(format!("anonuid={anon_uid},anongid={anon_gid}"));
    }
    words.extend(export.nosuid.then(|| "nosuid".into()));
    words.push(if export.secure_ports { "secure" } else { "insecure" }.into());
    words.extend(match export.xprtsec {
        Xprtsec::None => None,
        Xprtsec::Tls => Some("xprtsec=tls:mtls".into()),
        Xprtsec::Mtls => Some("xprtsec=mtls".into()),
    });
    words.join(",")
}

/// The entries in the form of a list: IPv6 in brackets.
fn list(entries: &[Entry]) -> String {
    let each = entries.iter().map(|entry| {
        let text = entry.client.to_string();
        if let Client::Certificate(_) = entry.client {
            return text;
        }
        let minus = if entry.except { "-" } else { "" };
        match text.split_once('/') {
            Some((address, bits)) if address.contains(':') => format!("{minus}[{address}]/{bits}"),
            None if text.contains(':') => format!("{minus}[{text}]"),
            _ => format!("{minus}{text}"),
        }
    });
    each.collect::<Vec<_>>().join(":")
}
