//! Every code of a finding, and how much it matters. `docs/doctor.md` explains each; problems of
//! pools have their own, which `docs/alerts.md` explains.

use crate::report::Level;

/// Permanent name of a finding, and its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its word.
    pub word: &'static str,
    /// How much it matters.
    pub level: Level,
}

macro_rules! codes {
    ($($level:ident { $($name:ident = $word:literal,)* })*) => {
        $($(
            pub(crate) const $name: Code = Code { word: $word, level: Level::$level };
        )*)*
        /// All of them.
        pub const ALL: &[Code] = &[$($($name,)*)*];
    };
}

codes! {
    Error {
        DAEMON_UNREACHABLE = "daemon-unreachable",
        NO_POOL = "no-pool",
        NFS_NOT_SERVED = "nfs-not-served",
        NOTHING_EXPORTED = "nothing-exported",
        EXPORT_BROKEN = "export-broken",
        EXPORT_REFUSES_HOST = "export-refuses-host",
        HOST_UNKNOWN = "host-unknown",
        DATASET_FULL = "dataset-full",
        NFS_PORT = "nfs-port",
        NFS_FOREIGN = "nfs-foreign",
        PORTMAP_WRONG = "portmap-wrong",
        MTU_PATH = "mtu-path",
        REPLAY_FAILED = "replay-failed",
    }
    Warning {
        NFS_LOOPBACK = "nfs-loopback",
        PORTMAP_OFF = "portmap-off",
        PORTMAP_SILENT = "portmap-silent",
        EXPORT_READ_ONLY = "export-read-only",
        EXPORT_SQUASHES_ROOT = "export-squashes-root",
        SHARE_HOST_UNKNOWN = "share-host-unknown",
        NAMES_DIFFER = "names-differ",
        CLOCK_SKEW = "clock-skew",
        CLOCK_UNSYNCHRONISED = "clock-unsynchronised",
        SYNC_DISABLED = "sync-disabled",
        PROBE_LEFT = "probe-left",
    }
    Note {
        PORTMAP_RPCBIND = "portmap-rpcbind",
        EXPORT_OPEN = "export-open",
        NOT_ADMITTED_HERE = "not-admitted-here",
        NOT_ROOT = "not-root",
        NEEDS_TLS = "needs-tls",
        NOT_REPLAYED = "not-replayed",
        LOCK_GRACE = "lock-grace",
        QEMU_SYNC = "qemu-sync",
        NAME_REVERSE = "name-reverse",
        SERVER_NAME = "server-name",
        CLOCK_UNKNOWN = "clock-unknown",
        MTU_UNKNOWN = "mtu-unknown",
        STANDBY = "standby",
        STARTING = "starting",
        INTERRUPTED = "interrupted",
    }
    Ok {
        EXPORT_READY = "export-ready",
        EXPORT_ADMITS_HOST = "export-admits-host",
        NFS_PORT_OPEN = "nfs-port-open",
        PORTMAP_RIGHT = "portmap-right",
        CLOCK_RIGHT = "clock-right",
        MTU_RIGHT = "mtu-right",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_explains_each_code_with_its_level() {
        let page = include_str!("../../../docs/doctor.md");
        for Code { word, level } in ALL {
            let row = format!("\n| `{word}` | {} |", level.word());
            assert!(page.contains(&row), "docs/doctor.md has no row {row:?}");
        }
        let (_, codes) = page.split_once("\n## Codes\n").unwrap();
        let rows = codes.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, ALL.len(), "docs/doctor.md has a row of no code");
    }
}
