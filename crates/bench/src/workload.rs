//! The workloads, by name.

use aquifer_nfs::proto::v3::StableHow;

use crate::load::{Mix, Order, Plan};

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description for people.
    pub what: &'static str,
    /// The plan of each connection.
    pub plan: Plan,
    /// The number of connections, if the workload fixes it.
    pub connections: Option<usize>,
}

/// Memory of idle connections: no [`Plan`], so not among [`all`].
pub const IDLE: &str = "idle";

/// All timed workloads, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Workload> {
    let of = |name, what, plan| Workload { name, what, plan, connections: None };
    vec![
        of("getattr", "GETATTR, 64 outstanding", Plan { mix: Mix::Getattr, ..random(100, 4, 64) }),
        of("read-4k-rand", "4 KiB random reads, 64 outstanding", random(100, 4, 64)),
        of("write-4k-stable-1", "4 KiB random stable writes, 1 outstanding", random(0, 4, 1)),
        of("write-4k-stable-32", "4 KiB random stable writes, 32 outstanding", random(0, 4, 32)),
        Workload {
            connections: Some(4),
            ..of(
                "write-4k-stable-4x8",
                "4 KiB random stable writes, 4 connections, 8 outstanding on each",
                random(0, 4, 8),
            )
        },
        Workload {
            connections: Some(32),
            ..of(
                "write-4k-stable-32x1",
                "4 KiB random stable writes, 32 connections, 1 outstanding on each",
                random(0, 4, 1),
            )
        },
        of("write-8k-stable-8", "8 KiB random stable writes, 8 outstanding", random(0, 8, 8)),
        of(
            "write-4k-commit",
            "4 KiB random unstable writes, 32 outstanding, a COMMIT after every 256",
            unstable(random(0, 4, 32), 256),
        ),
        of("read-64k-seq", "64 KiB sequential reads, 16 outstanding", sequential(100, 64, 16)),
        of("read-1m-seq", "1 MiB sequential reads, 4 outstanding", sequential(100, 1024, 4)),
        of(
            "write-64k-seq",
            "64 KiB sequential unstable writes, 16 outstanding, a COMMIT after every 64 MiB",
            unstable(sequential(0, 64, 16), 1024),
        ),
        of(
            "write-1m-seq",
            "1 MiB sequential unstable writes, 4 outstanding, a COMMIT after every 64 MiB",
            unstable(sequential(0, 1024, 4), 64),
        ),
        of("mixed-70-30", "4 KiB random, 70 % reads, 30 % stable writes, 32 outstanding", {
            random(70, 4, 32)
        }),
    ]
}

/// Stable writes on slow disks, named after the programs whose users complain about them: the SQL
/// Server load generator, Iometer, and dd on ESXi, which makes every write stable.
#[must_use]
pub fn slow() -> Vec<Workload> {
    let of = |name, what, connections, plan| {
        let connections = Some(connections);
        Workload { name, what, plan, connections }
    };
    vec![
        of(SQLIO, "8 KiB random stable writes, 2 connections, 4 outstanding on each", 2, {
            random(0, 8, 4)
        }),
        of("iometer-4k", "4 KiB random, half reads, half stable writes, 128 outstanding", 1, {
            random(50, 4, 128)
        }),
        of("esx-dd", "128 KiB sequential stable writes, 1 outstanding", 1, sequential(0, 128, 1)),
        of("write-4k-stable-32", "4 KiB random stable writes, 32 outstanding", 1, {
            random(0, 4, 32)
        }),
    ]
}

/// The one of [`slow`] that can also run for minutes.
pub const SQLIO: &str = "sqlio-8k";

/// 4 KiB random stable writes, 32 outstanding.
#[must_use]
pub fn stable_4k_32() -> Plan {
    random(0, 4, 32)
}

/// 4 KiB random reads, 32 outstanding.
#[must_use]
pub fn reads_4k_32() -> Plan {
    random(100, 4, 32)
}

/// One write outstanding, compared with the disk alone: not on slow disks, so not among [`slow`].
pub const DEPTH1: &str = "depth1";

/// [`SQLIO`] for minutes, if requested.
pub const SUSTAINED: &str = "sustained";

/// 4 KiB random stable writes, one outstanding.
#[must_use]
pub fn depth1() -> Plan {
    random(0, 4, 1)
}

/// How long clients wait after a kill: not among [`slow`], since it is no load.
pub const RESTART: &str = "restart";

/// 4 KiB random reads, one outstanding.
#[must_use]
pub fn reads_4k_1() -> Plan {
    random(100, 4, 1)
}

/// Ages a file: overwrites each block of 8 KiB once, in random order.
#[must_use]
pub fn age() -> Plan {
    unstable(Plan { order: Order::Shuffled, ..random(0, 8, 64) }, 4096)
}

/// Ages a file as guests do: writes over any block of 4 KiB, so that some stay where they were.
#[must_use]
pub fn wear() -> Plan {
    unstable(random(0, 4, 64), 4096)
}

/// Fills a file before anything else.
#[must_use]
pub fn fill() -> Plan {
    unstable(sequential(0, 1024, 4), u64::MAX)
}

/// Reads a whole file, to compare it.
#[must_use]
pub fn sweep() -> Plan {
    sequential(100, 1024, 4)
}

/// Reads a whole sparse file, page by page, to compare it.
#[must_use]
pub fn look() -> Plan {
    sequential(100, 4, 64)
}

fn random(read_percent: u8, kib: u32, depth: usize) -> Plan {
    Plan {
        mix: Mix::Data { read_percent },
        bytes: kib * 1024,
        order: Order::Random,
        stable: StableHow::FileSync,
        depth,
        commit_after: None,
    }
}

fn sequential(read_percent: u8, kib: u32, depth: usize) -> Plan {
    Plan { order: Order::Sequential, ..random(read_percent, kib, depth) }
}

fn unstable(plan: Plan, commit_after: u64) -> Plan {
    Plan { stable: StableHow::Unstable, commit_after: Some(commit_after), ..plan }
}
