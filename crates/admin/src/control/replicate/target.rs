//! Where a copy is, or the dataset that is fetched, and the names of what replication leaves.

use std::fmt;

use aquifer_api::peer_of;
use aquifer_dataset::FullName;
use aquifer_meter::time;

/// A copy: a dataset of a peer, or of this daemon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Target {
    /// The name of the peer; `None`: it is here.
    pub peer: Option<String>,
    /// Full name of the dataset.
    pub dataset: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => write!(f, "{peer}:{}", self.dataset),
            None => f.write_str(&self.dataset),
        }
    }
}

impl Target {
    /// Parses `[PEER:]DATASET`. A colon behind the first slash is part of a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Target, String> {
        let mut dataset = text;
        let peer = peer_of(text);
        if let Some(peer) = peer {
            check_peer(peer)?;
            dataset = text.get(peer.len() + 1..).unwrap_or_default();
        }
        if FullName::of(dataset).snapshot().is_some() {
            return Err(format!("{text:?}: a copy is a dataset: leave out the '@'"));
        }
        if !dataset.contains('/') || dataset.ends_with('/') || dataset.starts_with('/') {
            return Err(format!(
                "{text:?}: a copy is a dataset below a pool's: say PEER:POOL/NAME, or POOL/NAME"
            ));
        }
        Ok(Target { peer: peer.map(str::to_string), dataset: dataset.into() })
    }

    /// The copy of a dataset that lies below the one whose copy this is.
    pub fn of(&self, dataset: &str, member: &str) -> Target {
        let below = member.strip_prefix(dataset).unwrap_or_default();
        Target { peer: self.peer.clone(), dataset: format!("{}{below}", self.dataset) }
    }

    /// Returns the beginning, behind the `@`, of the names of snapshots that are taken for it.
    fn prefix(&self) -> String {
        format!("replicate-{}-", self.peer.as_deref().unwrap_or("local"))
    }

    /// The name of a snapshot that is taken for it now.
    pub fn snapshot_name(&self, now_ns: u64) -> String {
        format!("{}{}", self.prefix(), time::text(now_ns))
    }

    /// Whether a snapshot of this name was taken for it, or for another copy at the same peer.
    pub fn is_own(&self, name: &str) -> bool {
        name.strip_prefix(&self.prefix()).is_some_and(is_time)
    }

    /// Returns the tag of the hold on the newest snapshot that the copy has.
    pub fn tag(&self) -> String {
        let tag = format!("{TAG_OF_COPY}{self}");
        if tag.len() <= TAG_BYTES_MAX {
            return tag;
        }
        // FNV-1a: two long names that begin alike have two tags.
        let hash = tag.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let start: String = tag.chars().take(TAG_BYTES_MAX - 17).collect();
        format!("{start} {hash:016x}")
    }
}

/// Whether a snapshot of this name was taken for a copy, whichever.
pub fn is_of_replication(name: &str) -> bool {
    let at = name
        .strip_prefix("replicate-")
        .and_then(|rest| rest.split_at_checked(rest.len().checked_sub(TIME_FORM.len())?));
    let is_peer = |peer: &str| peer.strip_suffix('-').is_some_and(|of| check_peer(of).is_ok());
    at.is_some_and(|(peer, at)| is_peer(peer) && is_time(at))
}

fn is_time(text: &str) -> bool {
    let fits = |(of, c): (char, char)| if of == '0' { c.is_ascii_digit() } else { of == c };
    text.len() == TIME_FORM.len() && TIME_FORM.chars().zip(text.chars()).all(fits)
}

/// How the tags of holds for copies begin.
pub const TAG_OF_COPY: &str = "replicated to ";

/// How the time in a name is written.
const TIME_FORM: &str = "0000-00-00T00:00:00.000Z";

/// Whether a peer may have this name.
///
/// # Errors
/// Why not.
pub(in super::super) fn check_peer(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.len() <= PEER_BYTES_MAX && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name of a peer: it has 1 to {PEER_BYTES_MAX} letters, digits, '-', \
             '_' and '.'"
        )),
    }
}

const PEER_BYTES_MAX: usize = 32;
/// As holds have them.
const TAG_BYTES_MAX: usize = aquifer_ondisk::keeping::HOLD_TAG_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_dataset_of_a_peer_or_of_this_daemon() {
        let parse = |text: &str| Target::parse(text).map(|of| (of.peer, of.dataset));
        assert_eq!(parse("b:pool/vms"), Ok((Some("b".into()), "pool/vms".into())));
        assert_eq!(parse("pool/vms"), Ok((None, "pool/vms".into())));
        // A colon behind a slash is part of a name.
        assert_eq!(parse("pool/a:b"), Ok((None, "pool/a:b".into())));
        assert_eq!(parse("b:pool/a:b"), Ok((Some("b".into()), "pool/a:b".into())));
        for bad in ["", "pool", "b:pool", "b:", ":pool/vms", "b c:pool/vms", "p/", "/p", "b:p/a@s"]
        {
            assert!(Target::parse(bad).is_err(), "{bad:?}");
        }
        let target = Target::parse("b:pool/copy").unwrap();
        assert_eq!(target.of("tank/vms", "tank/vms/a/b").to_string(), "b:pool/copy/a/b");
        assert_eq!(target.of("tank/vms", "tank/vms"), target);
    }

    #[test]
    fn own_snapshots_are_known_by_their_whole_name() {
        let target = Target::parse("b:pool/vms").unwrap();
        let name = target.snapshot_name(1_795_726_800_007_000_000);
        assert_eq!(name, "replicate-b-2026-11-26T21:00:00.007Z");
        assert!(target.is_own(&name) && is_of_replication(&name));
        let time = "2026-11-26T21:00:00.007Z";
        let hostile = [",%,", "@", "*", "?", "[a]", "/", "a/../b", "\0", "\n", "", "%", "\\"];
        for peer in hostile.map(|text| format!("b{text}b")).into_iter().chain(["-".into()]) {
            let is_plain = check_peer(&peer).is_ok();
            assert_eq!(is_of_replication(&format!("replicate-{peer}-{time}")), is_plain, "{peer}");
        }
        assert!(!is_of_replication(&format!("replicate-{time},%,replicate-b-{time}")));
        assert!(!is_of_replication(&format!("replicate--{time}")));
        let others =
            ["replicate-b-", "replicate-b-before", "replicate-b-2026-11-26T21:00:00.007Zx"];
        for other in others {
            assert!(!target.is_own(other) && !is_of_replication(other), "{other}");
        }
        assert!(!Target::parse("pool/vms").unwrap().is_own(&name));
        assert!(!Target::parse("bb:pool/vms").unwrap().is_own(&name));
    }

    #[test]
    fn tags_fit_and_differ() {
        let tag = |text: &str| Target::parse(text).unwrap().tag();
        assert_eq!(tag("b:pool/vms"), "replicated to b:pool/vms");
        let long = "x".repeat(100);
        let (a, b) = (tag(&format!("b:pool/{long}a")), tag(&format!("b:pool/{long}b")));
        assert!(a != b && a.len() == TAG_BYTES_MAX && b.len() == TAG_BYTES_MAX, "{a} {b}");
    }
}
