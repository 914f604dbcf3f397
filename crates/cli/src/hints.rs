//! Hints for people who know `zpool` and `zfs`, and type a word for which Aquifer has another one,
//! or none.

/// Suggests what to type instead of words that are no command; `None`: nothing comes to mind.
/// `words` are those of the command line, without options.
#[must_use]
pub fn hint(words: &[&str]) -> Option<&'static str> {
    let (first, second) = (words.first().copied(), words.get(1).copied());
    let (of_pool, word) = match (first, second) {
        (Some("pool" | "zpool"), Some(word)) => (true, word),
        (Some("zpool"), None) => return Some("`aquifer pool` has the commands of zpool"),
        (Some("zfs"), None) => return Some("`aquifer` itself has the commands of zfs"),
        (Some("zfs"), Some(word)) => (false, word),
        (Some(word), _) => (false, word),
        (None, _) => return None,
    };
    let hints = if of_pool { &POOL[..] } else { &DATASET[..] };
    let found = hints.iter().find(|(known, _)| known.contains(&word)).map(|(_, hint)| *hint);
    found.or(match first {
        Some("zpool") => Some("zpool's commands are those of `aquifer pool`"),
        Some("zfs") => Some("zfs's commands are those of `aquifer`, without another word"),
        _ => None,
    })
}

/// Words of `zpool`.
const POOL: [(&[&str], &str); 12] = [
    (&["iostat"], "`aquifer iostat [-vlwr] [POOL]` shows what disks do"),
    (
        &["labelclear"],
        "`aquifer pool create -f` takes a disk with an old label; `aquifer pool destroy` \
      and `detach` erase labels",
    ),
    (
        &["get", "set"],
        "properties of a pool are those of its first dataset: `aquifer get all POOL`, \
      `aquifer set PROPERTY=VALUE POOL`",
    ),
    (&["upgrade", "features"], "a pool needs no upgrade: it names a feature before its first use"),
    (
        &["checkpoint"],
        "`aquifer pool import --rewind=2` goes back by txgs; `aquifer snapshot -r \
      POOL@NAME` keeps all of now",
    ),
    (
        &["split"],
        "`aquifer pool detach` takes a side of a mirror away; `aquifer send` copies datasets \
      to another pool",
    ),
    (&["sync"], "all that was answered is on disk; nothing has to be synced"),
    (
        &["reguid", "reopen"],
        "not needed: disks are found by their labels, and come back by themselves",
    ),
    (
        &["resilver"],
        "a disk that comes back is resilvered by itself; `aquifer pool wait POOL` waits for \
      that",
    ),
    (&["top"], "`aquifer top` shows VM disks by load, `aquifer iostat -v 1` which disk is busy"),
    (
        &["snapshot", "rollback", "send", "receive", "recv"],
        "that is done with datasets: without the \
      word pool",
    ),
    (&["events"], "`aquifer pool events POOL`, or `aquifer events -f` for all of the daemon"),
];

/// Words of `zfs`, and some that begin with neither.
const DATASET: [(&[&str], &str); 15] = [
    (
        &["mount", "unmount", "umount"],
        "nothing is mounted here: clients mount the NFS path that \
      `aquifer list` shows",
    ),
    (&["unshare"], "`aquifer set sharenfs=off DATASET` ends an export"),
    (&["snap"], "`aquifer snapshot DATASET@NAME`"),
    (&["recv"], "`aquifer receive DATASET`"),
    (&["upgrade"], "a dataset needs no upgrade"),
    (
        &["allow", "unallow"],
        "rights are those of tokens: `aquifer token create --role operator NAME`",
    ),
    (
        &["userspace", "groupspace", "projectspace"],
        "space is not counted by user; `aquifer list -r` \
      counts it by dataset",
    ),
    (
        &["load-key", "unload-key", "change-key", "key"],
        "pools are not encrypted by this version; \
      encrypt the disks with LUKS",
    ),
    (&["status"], "`aquifer pool status`"),
    (
        &[
            "import",
            "export",
            "scrub",
            "add",
            "attach",
            "detach",
            "replace",
            "offline",
            "online",
            "trim",
            "initialize",
            "wait",
            "history",
            "remove",
        ],
        "that is done with pools: `aquifer pool ...`",
    ),
    (&["arc_summary", "arc"], "`aquifer arcstat -v`"),
    (&["showmount", "exportfs", "exports", "export-list"], "`aquifer share`"),
    (&["nfstop"], "`aquifer top`, and `aquifer nfsiostat -c 1` by client"),
    (&["help"], "`aquifer --help`, and `aquifer COMMAND --help`"),
    (&["alert"], "`aquifer alerts`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingers_of_zfs_are_shown_the_way() {
        for (words, way) in [
            (&["pool", "iostat"][..], "aquifer iostat"),
            (&["zpool", "status"], "aquifer pool"),
            (&["zpool"], "aquifer pool"),
            (&["zfs", "list"], "without another word"),
            (&["zfs", "mount"], "nothing is mounted"),
            (&["mount"], "nothing is mounted"),
            (&["status"], "aquifer pool status"),
            (&["pool", "get"], "aquifer get all POOL"),
        ] {
            assert!(hint(words).is_some_and(|hint| hint.contains(way)), "{words:?}");
        }
        assert_eq!(hint(&["frobnicate"]), None);
        assert_eq!(hint(&[]), None);
    }
}
