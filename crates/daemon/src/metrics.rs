//! The page that Prometheus reads: its text format, version 0.0.4.
//!
//! Invariants:
//! - Names say their units; every family has its HELP and TYPE before its samples, once.
//! - The number of series is bounded: by the disks of pools, and by the tables of
//!   `aquifer_nfs::traffic`, 256 clients and 2048 files. Who leaves a table goes on in
//!   `..._others_...`, and begins anew if he comes back, as a counter may.

use std::collections::BTreeMap;
use std::fmt::Write;

use aquifer_api::{
    AlertsInfo, Count, DaemonInfo, DiskInfo, Flow, Health, MemoryStat, NfsLoad, NfsStat,
    PoolSummary, VdevClass, guid_text,
};
use aquifer_meter::{BUCKETS, Histogram, floor_ns};
use aquifer_vdev::{IoCount, IoCounts, LeafState};

use aquifer_pool as pool;

use aquifer_admin::status::{name_of, shown};

mod alerts;
mod memory;
mod replication;
#[cfg(test)]
mod tests;

pub(crate) use replication::copies;

/// Content-Type of the page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All there is to tell. `disks` are by their guids.
pub(crate) fn page(
    daemon: &DaemonInfo,
    pools: &[PoolSummary],
    in_service: &[pool::PoolStatus],
    disks: &BTreeMap<String, DiskInfo>,
    nfs: &NfsStat,
    memory: &MemoryStat,
    alerts: &AlertsInfo,
) -> String {
    let mut page = Page::default();
    page.family("aquifer_build_info", "gauge", "What runs: always 1.");
    // Without a commit the label is empty, which means to Prometheus that there is none.
    let commit = daemon.commit.as_deref().unwrap_or_default();
    page.sample("aquifer_build_info", &[("version", &daemon.version), ("commit", commit)], 1);
    of_pools(&mut page, pools, in_service);
    of_disks(&mut page, in_service);
    of_hardware(&mut page, in_service, disks);
    of_cache_disks(&mut page, in_service);
    memory::of_memory(&mut page, memory);
    alerts::of_alerts(&mut page, alerts);
    of_nfs(&mut page, nfs);
    page.text
}

fn of_pools(page: &mut Page, pools: &[PoolSummary], in_service: &[pool::PoolStatus]) {
    let name = "aquifer_pool_health";
    page.family(name, "gauge", "1 for the state that a pool is in, 0 for the others.");
    for one in pools {
        for (health, word) in HEALTHS {
            let labels = [("pool", one.name.as_str()), ("state", word)];
            page.sample(name, &labels, u64::from(one.health == health));
        }
    }
    let sizes: [Family<PoolSummary>; 4] = [
        ("aquifer_pool_size_bytes", "Logical space.", |one| one.size_bytes),
        ("aquifer_pool_allocated_bytes", "Space in use.", |one| one.allocated_bytes),
        ("aquifer_pool_free_bytes", "Space to be had.", |one| one.free_bytes),
        ("aquifer_pool_freeing_bytes", "Space in use that is being freed.", |one| {
            one.freeing_bytes
        }),
    ];
    for (name, help, value) in sizes {
        page.family(name, "gauge", help);
        for one in pools {
            page.sample(name, &[("pool", &one.name)], value(one));
        }
    }
    let name = "aquifer_pool_txgs_total";
    page.family(name, "counter", "Number of the newest transaction group on disk.");
    for one in in_service {
        page.sample(name, &[("pool", &one.name)], one.txg.0);
    }
    let name = "aquifer_pool_damaged_files";
    page.family(name, "gauge", "Files that cannot be read in part, or lost changes.");
    for one in pools {
        page.sample(name, &[("pool", &one.name)], one.damaged_files);
    }
    let name = "aquifer_pool_txg_sync_seconds";
    page.family(name, "histogram", "How long transaction groups took to come to disk.");
    for one in in_service {
        page.histogram(name, &[("pool", &one.name)], &one.syncs);
    }
    let name = "aquifer_pool_stable_write_seconds";
    let help = "How long stable writes took, apart for those during which a txg went to disk.";
    page.family(name, "histogram", help);
    for one in in_service {
        let kinds = [("no", &one.stable_writes), ("yes", &one.stable_writes_in_sync)];
        for (in_sync, times) in kinds {
            page.histogram(name, &[("pool", &one.name), ("in_sync", in_sync)], times);
        }
    }
}

fn of_disks(page: &mut Page, pools: &[pool::PoolStatus]) {
    let name = "aquifer_disk_online";
    page.family(name, "gauge", "Whether a disk is in use.");
    each_leaf(pools, |labels, leaf| {
        page.sample(name, labels, u64::from(leaf.state == LeafState::Online));
    });
    let troubles: [Family<pool::LeafStatus>; 2] = [
        ("aquifer_disk_degraded", "Whether a disk in use had too many bad copies.", |leaf| {
            u64::from(leaf.trouble.is_degraded)
        }),
        ("aquifer_disk_slow", "Whether a disk is much slower than its kind.", |leaf| {
            u64::from(leaf.trouble.slow.is_some())
        }),
    ];
    for (name, help, value) in troubles {
        page.family(name, "gauge", help);
        each_leaf(pools, |labels, leaf| page.sample(name, labels, value(leaf)));
    }
    let counts: [Family<pool::LeafStatus>; 7] = [
        ("aquifer_disk_read_errors_total", "Reads that failed.", |leaf| leaf.read_errors),
        ("aquifer_disk_write_errors_total", "Writes and flushes that failed.", |leaf| {
            leaf.write_errors
        }),
        ("aquifer_disk_checksum_errors_total", "Reads of other bytes than were written.", |leaf| {
            leaf.checksum_errors
        }),
        ("aquifer_disk_repaired_total", "Bad copies rewritten from a good one.", |leaf| {
            leaf.repaired
        }),
        ("aquifer_disk_discarded_bytes_total", "Bytes of free space discarded.", |leaf| {
            leaf.free_space.discarded_bytes
        }),
        ("aquifer_disk_discards_total", "Discards carried out.", |leaf| leaf.free_space.discards),
        ("aquifer_disk_discard_errors_total", "Discards that failed.", |leaf| {
            leaf.free_space.discard_errors
        }),
    ];
    for (name, help, value) in counts {
        page.family(name, "counter", help);
        each_leaf(pools, |labels, leaf| page.sample(name, labels, value(leaf)));
    }
    let name = "aquifer_disk_io_bytes_total";
    page.family(name, "counter", "Bytes that disks read and wrote.");
    each_leaf(pools, |labels, leaf| {
        // Flushes, the last, move nothing.
        for (op, count) in operations(&leaf.io).into_iter().take(3) {
            page.sample(name, &[labels, &[("op", op)]].concat(), count.bytes);
        }
    });
    let name = "aquifer_disk_io_seconds";
    page.family(name, "histogram", "How long operations of disks took.");
    each_leaf(pools, |labels, leaf| {
        for (op, count) in operations(&leaf.io) {
            page.histogram(name, &[labels, &[("op", op)]].concat(), &count.latency);
        }
    });
}

/// Writes the identity of disks, and how they feel.
fn of_hardware(page: &mut Page, pools: &[pool::PoolStatus], disks: &BTreeMap<String, DiskInfo>) {
    let name = "aquifer_disk_info";
    page.family(name, "gauge", "What a disk is: always 1.");
    each_disk(pools, |labels, guid| {
        let Some(disk) = disks.get(guid) else { return };
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
        let (model, serial, by_id) = (text(&disk.model), text(&disk.serial), text(&disk.by_id));
        let what = [("model", model.as_str()), ("serial", &serial), ("by_id", &by_id)];
        page.sample(name, &[labels, &what].concat(), 1);
    });
    let name = "aquifer_disk_smart_failing";
    page.family(name, "gauge", "Whether a disk expects to fail, by SMART.");
    each_disk(pools, |labels, guid| {
        let smart = disks.get(guid).and_then(|disk| disk.smart.as_ref());
        smart.iter().for_each(|smart| page.sample(name, labels, u64::from(!smart.passed)));
    });
    let name = "aquifer_disk_temperature_celsius";
    page.family(name, "gauge", "Temperature of a disk, by SMART.");
    each_disk(pools, |labels, guid| {
        let smart = disks.get(guid).and_then(|disk| disk.smart.as_ref());
        let degrees = smart.and_then(|smart| u64::try_from(smart.temperature_c?).ok());
        degrees.iter().for_each(|degrees| page.sample(name, labels, *degrees));
    });
}

/// Name, kind, help and value.
type CacheDiskFamily = (&'static str, &'static str, &'static str, fn(&pool::CacheDiskStats) -> u64);

/// Writes how much cache disks hold, and how often they had what was asked for.
fn of_cache_disks(page: &mut Page, pools: &[pool::PoolStatus]) {
    let families: [CacheDiskFamily; 6] = [
        ("aquifer_cache_disk_held_bytes", "gauge", "Blocks on a cache disk.", |stats| {
            stats.blocks * 4096
        }),
        ("aquifer_cache_disk_capacity_bytes", "gauge", "What it can hold.", |stats| {
            stats.capacity_bytes
        }),
        ("aquifer_cache_disk_index_bytes", "gauge", "Memory of its index.", |stats| {
            stats.index_bytes
        }),
        ("aquifer_cache_disk_hits_total", "counter", "Reads that it answered.", |stats| stats.hits),
        (
            "aquifer_cache_disk_misses_total",
            "counter",
            "Reads that it could not answer.",
            |stats| stats.misses,
        ),
        ("aquifer_cache_disk_bad_total", "counter", "Reads that did not verify.", |stats| {
            stats.bad
        }),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for (pool, cache) in
            pools.iter().flat_map(|pool| pool.caches.iter().map(move |of| (pool, of)))
        {
            let labels = [("pool", pool.name.as_str()), ("disk", cache.leaf.path.as_str())];
            page.sample(name, &labels, value(&cache.stats));
        }
    }
}

fn operations(io: &IoCounts) -> [(&'static str, &IoCount); 4] {
    let IoCounts { reads, writes, durable_writes, flushes } = io;
    [("read", reads), ("write", writes), ("durable_write", durable_writes), ("flush", flushes)]
}

fn each_leaf(pools: &[pool::PoolStatus], mut each: impl FnMut(&[Label<'_>], &pool::LeafStatus)) {
    for pool in pools {
        for (index, class, vdev) in shown(pool) {
            let vdev_name = name_of(index, vdev);
            let class = match class {
                VdevClass::Data => "data",
                VdevClass::Log => "log",
            };
            for leaf in &vdev.leaves {
                let path = leaf.path.as_str();
                let pool = ("pool", pool.name.as_str());
                each(&[pool, ("vdev", &vdev_name), ("class", class), ("disk", path)], leaf);
            }
        }
    }
}

/// The leaves of vdevs, spares that wait, and cache disks.
fn each_disk(pools: &[pool::PoolStatus], mut each: impl FnMut(&[Label<'_>], &str)) {
    each_leaf(pools, |labels, leaf| each(labels, &guid_text(leaf.guid.0)));
    for pool in pools {
        for spare in pool.waiting_spares() {
            let of = [("pool", pool.name.as_str()), ("vdev", ""), ("class", "spare")];
            each(&[&of[..], &[("disk", spare.path.as_str())]].concat(), &guid_text(spare.guid.0));
        }
        for leaf in pool.caches.iter().map(|cache| &cache.leaf) {
            let of = [("pool", pool.name.as_str()), ("vdev", ""), ("class", "cache")];
            each(&[&of[..], &[("disk", leaf.path.as_str())]].concat(), &guid_text(leaf.guid.0));
        }
    }
}

fn of_nfs(page: &mut Page, nfs: &NfsStat) {
    let name = "aquifer_nfs_procedure_errors_total";
    page.family(name, "counter", "Calls answered with an error status.");
    for one in &nfs.procedures {
        page.sample(name, &[("procedure", &one.name)], one.errors);
    }
    let name = "aquifer_nfs_procedure_seconds";
    page.family(name, "histogram", "From a call read to its reply ready.");
    for one in &nfs.procedures {
        page.histogram(name, &[("procedure", &one.name)], &one.latency.histogram());
    }
    of_load(page, &nfs.load);
    let clients: Vec<_> =
        nfs.clients.iter().map(|one| (vec![("client", one.client.as_str())], &one.flow)).collect();
    flows(page, "aquifer_nfs_client", "of a client", &clients, &nfs.other_clients);
    let disks: Vec<_> = nfs
        .disks
        .iter()
        .map(|one| {
            (vec![("dataset", one.dataset.as_str()), ("file", one.file.as_str())], &one.flow)
        })
        .collect();
    flows(page, "aquifer_nfs_vmdisk", "of a file", &disks, &nfs.other_disks);
}

fn of_load(page: &mut Page, load: &NfsLoad) {
    let gauges = [
        ("aquifer_nfs_connections", "Open connections.", load.connections),
        (
            "aquifer_nfs_lobby_connections",
            "Open connections that no export takes calls of as they come.",
            load.in_lobby,
        ),
        ("aquifer_nfs_request_bytes", "Memory of requests.", load.request_bytes),
        ("aquifer_nfs_reply_bytes", "Memory of replies.", load.reply_bytes),
    ];
    let counters = [
        ("aquifer_nfs_connections_total", "Accepted connections.", load.accepted),
        ("aquifer_nfs_turned_away_total", "Connections too many.", load.turned_away),
        (
            "aquifer_nfs_accept_failures_total",
            "Times that no connection could be accepted: the process has no file to give.",
            load.accept_failures,
        ),
        (
            "aquifer_nfs_closed_as_slow_total",
            "Connections that held others up.",
            load.closed_as_slow,
        ),
        (
            "aquifer_nfs_protocol_errors_total",
            "Connections that sent no RPC.",
            load.protocol_errors,
        ),
        ("aquifer_nfs_requests_total", "Requests of all programs.", load.requests),
        ("aquifer_nfs_requests_waited_total", "Not answered at once.", load.requests_waited),
        (
            "aquifer_nfs_memory_waits_total",
            "Times that a connection waited for memory.",
            load.memory_waits,
        ),
        ("aquifer_nfs_received_bytes_total", "Bytes received.", load.received_bytes),
        ("aquifer_nfs_sent_bytes_total", "Bytes sent.", load.sent_bytes),
        ("aquifer_nfs_panics_total", "Requests that met a bug.", load.panics),
        ("aquifer_nfs_mount_calls_total", "Calls of MOUNT.", load.mount_calls),
        ("aquifer_nfs_portmap_calls_total", "Calls of the portmapper.", load.portmap_calls),
        ("aquifer_nfs_lock_calls_total", "Calls of NLM and NSM.", load.lock_calls),
        ("aquifer_nfs_refused_calls_total", "Calls that RPC refused.", load.refused_calls),
    ];
    for (kind, of_kind) in [("gauge", &gauges[..]), ("counter", &counters[..])] {
        for (name, help, value) in of_kind {
            page.family(name, kind, help);
            page.sample(name, &[], *value);
        }
    }
}

/// Operations, bytes and seconds of each, and of those that made room.
fn flows(
    page: &mut Page,
    prefix: &str,
    of_what: &str,
    each: &[(Vec<Label<'_>>, &Flow)],
    others: &Flow,
) {
    type Value = fn(&Count) -> Number;
    let families: [(&str, &str, Value); 3] = [
        ("operations_total", "Calls", |count| Number::Whole(count.latency.count)),
        ("bytes_total", "Bytes", |count| Number::Whole(count.bytes)),
        ("seconds_total", "Time taken by calls", |count| Number::Ns(count.latency.total_ns)),
    ];
    for (name, help, value) in families {
        let family = format!("{prefix}_{name}");
        page.family(&family, "counter", &format!("{help} {of_what}."));
        for (labels, flow) in each {
            for (op, count) in [("read", &flow.reads), ("write", &flow.writes)] {
                page.sample(&family, &[labels, &[("op", op)][..]].concat(), value(count));
            }
        }
        let family = format!("{prefix}_others_{name}");
        let help = format!("{help} {of_what} that is in no series of its own any more.");
        page.family(&family, "counter", &help);
        for (op, count) in [("read", &others.reads), ("write", &others.writes)] {
            page.sample(&family, &[("op", op)], value(count));
        }
    }
}

/// Name, help, and the value that something has in it.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

type Label<'a> = (&'a str, &'a str);

#[derive(Default)]
struct Page {
    text: String,
}

/// A value of a sample.
enum Number {
    Whole(u64),
    /// Nanoseconds, told as seconds.
    Ns(u64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Number::Whole(value)
    }
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Into<Number>) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        match value.into() {
            Number::Whole(value) => self.line(format_args!("{name}{labels} {value}")),
            Number::Ns(ns) => self.line(format_args!("{name}{labels} {}", seconds(ns))),
        }
    }

    /// Buckets at the powers of two: a quarter of those that are counted, which is enough for a
    /// quantile over many machines.
    fn histogram(&mut self, name: &str, labels: &[Label<'_>], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        for place in (1..BUCKETS).step_by(4) {
            let bound = floor_ns(place);
            let below = histogram.buckets().filter(|(from, _)| *from < bound);
            let count: u64 = below.map(|(_, count)| count).sum();
            self.sample(&bucket, &[labels, &[("le", &seconds(bound))]].concat(), count);
        }
        let count = histogram.count();
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, Number::Ns(histogram.total_ns()));
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A String takes everything.
        let _ = writeln!(self.text, "{line}");
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const HEALTHS: [(Health, &str); 5] = [
    (Health::Online, "online"),
    (Health::Degraded, "degraded"),
    (Health::Suspended, "suspended"),
    (Health::Importing, "importing"),
    (Health::Unavail, "unavail"),
];
