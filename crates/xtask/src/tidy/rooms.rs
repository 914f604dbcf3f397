//! The direction of dependencies: one line of crates, and the crates beside and outside of it.
//!
//! A crate uses only crates to its right or below. Crates stop cycles, which modules do not. This
//! table also stops short cuts that cargo would allow.

use super::crates::{Package, Purpose};
use super::report::Report;

/// One crate's place.
struct Room {
    name: &'static str,
    /// The crates that it may use. Unused ones may be listed: the table is the plan, not the state.
    uses: &'static [&'static str],
    why: &'static str,
}

/// In the order of the line; the crates outside come last.
const ROOMS: [Room; 35] = [
    Room {
        name: "aquifer",
        uses: &["cli", "daemon", "doctor", "admin", "api", "audit", "blockio", "inspect"],
        why: "the one binary: command line or daemon; here the second opinion is asked",
    },
    Room {
        name: "cli",
        uses: &["api", "meter"],
        why: "commands that ask a daemon by its API, and know nothing else of it",
    },
    Room {
        name: "daemon",
        uses: &[
            "admin", "alerts", "api", "audit", "nfsd", "nfs", "rpc", "files", "dataset", "object",
            "pool", "vdev", "blockio", "meter",
        ],
        why: "puts the rooms together and serves them; the control plane's sockets",
    },
    Room {
        name: "nfsd",
        uses: &["nfs", "rpc", "files", "dataset", "object", "pool", "vdev", "blockio"],
        why: "sockets around the protocols: bytes come and go here, what they mean is below",
    },
    Room {
        name: "admin",
        uses: &[
            "alerts", "api", "audit", "nfs", "files", "dataset", "object", "pool", "vdev",
            "blockio", "meter", "ondisk",
        ],
        why: "one typed API over all rooms; no wire of NFS; of the format only its names",
    },
    Room {
        name: "alerts",
        uses: &["api", "blockio"],
        why: "tells people what is wrong; who looks what that is needs no SMTP",
    },
    Room {
        name: "audit",
        uses: &["meter"],
        why: "lines of who did what, chained; pure but for its file and its syslog",
    },
    Room {
        name: "api",
        uses: &["meter"],
        why: "what is asked and answered, and a client; who asks needs nothing of the engine",
    },
    Room {
        name: "nfs",
        uses: &["rpc", "files", "dataset", "object", "pool", "vdev", "blockio", "meter"],
        why: "bytes in, reply out: types of the wire end here, types of the disk never come here",
    },
    Room {
        name: "rpc",
        uses: &["blockio"],
        why: "pure; of blockio only the pages that a payload is received in",
    },
    Room {
        name: "files",
        uses: &[
            "dataset", "object", "pool", "vdev", "blockio", "meter", "ondisk", "stream", "sync",
        ],
        why: "POSIX terms; the highest room that knows types of the disk",
    },
    Room {
        name: "stream",
        uses: &["ondisk"],
        why: "the bytes of send, pure: a stream is read without a pool",
    },
    Room {
        name: "dataset",
        uses: &["object", "pool", "vdev", "blockio", "meter", "ondisk", "sync"],
        why: "history and names of datasets",
    },
    Room {
        name: "object",
        uses: &["pool", "vdev", "blockio", "ondisk", "sync"],
        why: "copy-on-write trees; the pool asks it for roots through a trait",
    },
    Room {
        name: "pool",
        uses: &["l2arc", "vdev", "blockio", "meter", "ondisk", "space", "arc", "sync"],
        why: "one consistent state per txg; knows trees only as opaque roots",
    },
    Room {
        name: "l2arc",
        uses: &["vdev", "blockio", "ondisk", "arc", "sync"],
        why: "a read cache on a disk, which nobody believes",
    },
    Room { name: "vdev", uses: &["blockio", "meter", "ondisk", "sync"], why: "where copies live" },
    Room {
        name: "blockio",
        uses: &["sync"],
        why: "the world: disks, clock, randomness; knows nothing of pools",
    },
    Room { name: "space", uses: &["ondisk"], why: "free space, pure: no I/O, no tasks" },
    Room { name: "arc", uses: &["sync"], why: "a cache policy, pure: whatever it caches" },
    Room {
        name: "meter",
        uses: &[],
        why: "counting, and sizes in words; pure: whatever it counts",
    },
    Room {
        name: "sync",
        uses: &[],
        why: "what threads share: locks, atomics, notices; in service those of others, as they are",
    },
    Room {
        name: "ondisk",
        uses: &[],
        why: "the format stands alone: an inspector reads it without the engine",
    },
    Room {
        name: "sim",
        uses: &["blockio"],
        why: "outside: another world behind blockio's traits; knows nothing of what runs in it",
    },
    Room {
        name: "checker",
        uses: &["files", "dataset", "pool", "blockio", "ondisk", "sim", "inspect"],
        why: "outside: says whether what clients saw can be, with the machines on which they see \
              it; of files it has the words",
    },
    Room {
        name: "threads",
        uses: &["files", "pool", "blockio", "sync", "sim", "checker", "inspect"],
        why: "outside: another world, in which threads are switched as a seed has it",
    },
    Room {
        name: "inspect",
        uses: &["ondisk", "blockio", "vdev"],
        why: "outside: a second opinion is worth something only without the engine's code",
    },
    Room {
        name: "doctor",
        uses: &["client", "api", "nfs", "rpc", "meter"],
        why: "outside: sees the server as hypervisors do, and asks it as administrators do",
    },
    Room {
        name: "client",
        uses: &["nfs", "rpc"],
        why: "outside: calls a server; of ours it has only the words of the wire",
    },
    Room {
        name: "rig",
        uses: &["client"],
        why: "outside: what runs a server; calls to it are the client's",
    },
    Room {
        name: "conformance",
        uses: &["rig"],
        why: "outside: sees the server as clients do, through its sockets",
    },
    Room {
        name: "demo",
        uses: &["conformance", "rig"],
        why: "outside: shows to people what conformance drives for tests",
    },
    Room {
        name: "bench",
        uses: &["rig", "client", "nfs", "rpc"],
        why: "outside: loads servers as clients do; of ours it has only the words of the wire",
    },
    Room {
        name: "fuzz",
        uses: &[
            "daemon", "nfsd", "admin", "api", "nfs", "rpc", "files", "pool", "blockio", "ondisk",
            "sim", "stream", "inspect",
        ],
        why: "outside: gives hostile bytes to whatever takes bytes from strangers",
    },
    Room { name: "xtask", uses: &[], why: "outside: looks at the sources" },
];

/// Crates on the line may use these only in tests. (The binary is the end of the line: it may use
/// the inspector and the doctor.)
const OUTSIDE: [&str; 12] = [
    "sim",
    "checker",
    "threads",
    "inspect",
    "doctor",
    "client",
    "rig",
    "conformance",
    "demo",
    "bench",
    "fuzz",
    "xtask",
];

fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Whether `upper` may use `lower`, directly or through others.
fn is_above(upper: &str, lower: &str) -> bool {
    let uses = room(upper).map_or(&[][..], |room| room.uses);
    uses.iter().any(|used| *used == lower || is_above(used, lower))
}

/// Compares the manifests with the table.
pub fn check(packages: &[Package], report: &mut Report) {
    for package in packages {
        let (manifest, name) = (package.manifest(), package.room());
        let Some(room) = room(name) else {
            report.error(
                &manifest,
                0,
                "a crate without a place: give it a row in xtask's rooms.rs",
            );
            continue;
        };
        let of_workspace = |name: &str| packages.iter().find(|other| other.name == name);
        for (dependency, purpose) in &package.dependencies {
            let Some(used) = of_workspace(dependency).map(Package::room) else { continue };
            let wrong = match purpose {
                Purpose::Normal => !room.uses.contains(&used),
                // Tests may use any crate further down the line, and those outside.
                Purpose::Dev => is_above(used, name) && !OUTSIDE.contains(&used),
            };
            if wrong {
                let tests = if *purpose == Purpose::Dev { " in tests" } else { "" };
                let why = room.why;
                report.error(
                    &manifest,
                    0,
                    format!("{name} may not use {used}{tests}: {name} is {why}"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_no_cycle_and_names_only_its_own() {
        let names: BTreeSet<&str> = ROOMS.iter().map(|room| room.name).collect();
        assert_eq!(names.len(), ROOMS.len());
        // No crate uses one above it: so `is_above` ends, for all.
        let mut settled: BTreeSet<&str> = BTreeSet::new();
        while settled.len() < names.len() {
            let next = ROOMS.iter().find(|room| {
                !settled.contains(room.name) && room.uses.iter().all(|used| settled.contains(used))
            });
            let next =
                next.unwrap_or_else(|| panic!("a cycle, or an unknown name, beyond {settled:?}"));
            settled.insert(next.name);
        }
        assert!(names.is_superset(&OUTSIDE.into()));
    }

    #[test]
    fn the_line_is_that_of_the_design() {
        let line = ["nfsd", "nfs", "files", "dataset", "object", "pool", "vdev", "blockio"];
        for (at, upper) in line.iter().enumerate() {
            for (below, lower) in line.iter().enumerate() {
                let may = room(upper).unwrap().uses.contains(lower);
                assert_eq!(may, at < below, "{upper} -> {lower}");
            }
            for outside in OUTSIDE {
                assert!(!room(upper).unwrap().uses.contains(&outside), "{upper} -> {outside}");
            }
            let knows_disk = room(upper).unwrap().uses.contains(&"ondisk");
            assert_eq!(knows_disk, (2..=6).contains(&at), "{upper} -> ondisk");
        }
        // Who has the memory is in `arc`.
        for (pure, by) in [("space", &["pool"][..]), ("arc", &["pool", "l2arc"])] {
            let users = ROOMS.iter().filter(|room| room.uses.contains(&pure));
            assert_eq!(users.map(|room| room.name).collect::<Vec<_>>(), by);
        }
    }

    fn package(name: &str, dependencies: &[(&str, Purpose)]) -> Package {
        Package {
            name: format!("aquifer-{name}"),
            directory: format!("crates/{name}"),
            dependencies: dependencies
                .iter()
                .map(|(name, purpose)| (format!("aquifer-{name}"), *purpose))
                .collect(),
        }
    }

    fn found(packages: &[Package]) -> Vec<String> {
        let mut report = Report::default();
        check(packages, &mut report);
        report.lines()
    }

    #[test]
    fn dependencies_against_the_line_are_found() {
        use Purpose::{Dev, Normal};
        let packages = [
            package("pool", &[("vdev", Normal), ("files", Dev), ("object", Normal), ("sim", Dev)]),
            package("vdev", &[("sim", Normal), ("space", Normal), ("inspect", Dev)]),
            package("nfs", &[("ondisk", Normal), ("ondisk", Dev), ("files", Normal)]),
            package("inspect", &[("pool", Normal), ("ondisk", Normal), ("pool", Dev)]),
            package("files", &[]),
            package("object", &[]),
            package("ondisk", &[]),
            package("sim", &[]),
            package("space", &[]),
            package("utils", &[]),
        ];
        let found = found(&packages);
        let expected = [
            "crates/inspect/Cargo.toml: inspect may not use pool:",
            "crates/nfs/Cargo.toml: nfs may not use ondisk:",
            "crates/pool/Cargo.toml: pool may not use files in tests:",
            "crates/pool/Cargo.toml: pool may not use object:",
            "crates/utils/Cargo.toml: a crate without a place",
            "crates/vdev/Cargo.toml: vdev may not use sim:",
            "crates/vdev/Cargo.toml: vdev may not use space:",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
