//! The page against a strict reader of the text format (prometheus.io/docs/instrumenting/
//! exposition_formats), which refuses what `promtool check metrics` does.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use aquifer_api::codes;
use aquifer_api::{
    ActiveAlert, CacheClass, CacheStat, ClientStat, CopyInfo, DiskStat, NfsInfo, OutletInfo,
    OutletKind, PoolMemory, Problem, ProcedureStat, ReplicationInfo, ReplicationState, Severity,
};
use aquifer_ondisk::config::{Redundancy, VdevClass};
use aquifer_ondisk::{Guid, Txg};

use super::*;

type Labels = BTreeMap<String, String>;
type Sample = (String, Labels, f64);

/// All families: their type, and samples in order.
fn read(page: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    let mut families: BTreeMap<String, (String, Vec<_>)> = BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    let mut series = HashSet::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name, ":") && help.ends_with('.'), "{line}");
            helped = name.into();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "HELP stands before TYPE: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            let twice = families.insert(name.into(), (kind.into(), Vec::new()));
            assert!(twice.is_none(), "a family in two pieces: {line}");
            current = name.into();
        } else {
            let (name, labels, value) = sample(line);
            let (kind, samples) = families.get_mut(&current).expect("TYPE stands before samples");
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line}"));
            let suffixes: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
            samples.push((name, labels, value));
        }
    }
    families
}

fn is_name(name: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || more.contains(c);
    name.chars().all(fits) && name.starts_with(|c: char| !c.is_ascii_digit())
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, ":"), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"").unwrap();
            assert!(is_name(label, ""), "{line}");
            let mut value = String::new();
            let mut chars = quoted.char_indices();
            rest = loop {
                match chars.next().unwrap() {
                    (at, '"') => break &quoted[at + 1..],
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        same @ ('\\' | '"') => same,
                        other => panic!("\\{other}: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            rest = rest.strip_prefix(',').unwrap_or(rest);
            assert!(labels.insert(label.into(), value).is_none(), "{line}");
        }
        rest = &rest[1..];
    }
    (name.into(), labels, rest.strip_prefix(' ').unwrap().parse().unwrap())
}

fn histogram(times: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    times.iter().for_each(|ns| histogram.record(*ns));
    histogram
}

const TIMES: [u64; 6] = [500, 1024, 40_000, 41_000, 3_000_000_000, 60_000_000_000];

fn example_memory() -> MemoryStat {
    let class = |hits| CacheClass { hits, ghost_hits: 4, evictions: 5, ..CacheClass::default() };
    let cache = CacheStat {
        size_bytes: 700,
        target_bytes: 800,
        misses: 3,
        nodes: class(10),
        data: class(20),
        ..CacheStat::default()
    };
    let of_tank = PoolMemory {
        name: "tank".into(),
        uptime_ns: 1,
        dirty_bytes: 100,
        bitmap_bytes: 50,
        waits: 6,
        bound: false,
        cache,
    };
    MemoryStat {
        cap_bytes: 1000,
        nfs_bytes: 8,
        object_bytes: 3,
        caches_bytes: 800,
        pools: vec![of_tank],
    }
}

fn example_leaf() -> pool::LeafStatus {
    pool::LeafStatus {
        offline: false,
        own_past: false,
        stands: aquifer_ondisk::config::Stands::ForItself,
        guid: Guid(1),
        path: "/dev/a".into(),
        state: LeafState::Online,
        read_errors: 0,
        write_errors: 1,
        checksum_errors: 2,
        repaired: 3,
        last_error: None,
        trouble: Default::default(),
        io: IoCounts::default(),
        free_space: Default::default(),
    }
}

fn example() -> String {
    let counted = Count { bytes: 24_576, latency: (&histogram(&TIMES)).into() };
    let flow = Flow { reads: counted, ..Flow::default() };
    let disk = |file: &str| DiskStat {
        fs_guid: "7".into(),
        object: 5,
        dataset: "tank/vms".into(),
        file: file.into(),
        client: "10.0.0.1".into(),
        shared: false,
        flow: flow.clone(),
    };
    let read =
        ProcedureStat { name: "read".into(), errors: 2, latency: (&histogram(&TIMES)).into() };
    let nfs = NfsStat {
        uptime_ns: 1,
        procedures: vec![read],
        clients: vec![ClientStat { client: "fd00::1".into(), flow: flow.clone() }],
        disks: vec![disk("/a \"b\"\\\n\u{e9}{},="), disk("#6")],
        other_disks: flow,
        ..NfsStat::default()
    };
    let (leaf, io) = (example_leaf(), IoCounts::default());
    let stats = pool::CacheDiskStats { hits: 5, blocks: 2, ..Default::default() };
    let cache = pool::CacheStatus { leaf: leaf.clone(), usable: true, stats };
    let status = pool::PoolStatus {
        spares: Vec::new(),
        caches: vec![cache],
        name: "tank".into(),
        guid: Guid(1),
        txg: Txg(9),
        suspended: None,
        silent: false,
        read_only: false,
        space: aquifer_space::SpaceUse { total: 1000, taken: 300, held: 20 },
        closed_metaslabs: 0,
        vdevs: vec![pool::VdevStatus {
            class: VdevClass::Data,
            redundancy: Redundancy::Single,
            sectors: 1000,
            leaves: vec![leaf],
            io,
        }],
        uptime: Duration::from_secs(1),
        syncs: histogram(&[5]),
        stable_writes: histogram(&[7, 8]),
        stable_writes_in_sync: histogram(&[9_000_000]),
        resilver: None,
    };
    let daemon = DaemonInfo {
        version: "1.2.3".into(),
        commit: Some("0123456789ab".into()),
        pid: 1,
        state_dir: "/".into(),
        memory_bytes: 1,
        starting: false,
        nfs: NfsInfo::default(),
        problems: Vec::new(),
    };
    let summary = aquifer_admin::status::summary(&status);
    let (memory, alerts) = (example_memory(), example_alerts());
    page(&daemon, &[summary], &[status], &BTreeMap::new(), &nfs, &memory, &alerts)
}

fn example_replication() -> ReplicationInfo {
    let copy = CopyInfo {
        dataset: "tank/vms/a".into(),
        copy: "pool/vms/a".into(),
        snapshot: Some("tank/vms/a@x".into()),
        taken_ns: Some(1),
        behind_s: Some(42),
        state: ReplicationState::Failed,
        error: None,
    };
    let (dataset, there) = ("tank/vms/b".to_string(), "pool/vms/b".to_string());
    let (snapshot, taken_ns, behind_s) = (None, None, None);
    let state = ReplicationState::Done;
    let none =
        CopyInfo { dataset, copy: there, snapshot, taken_ns, behind_s, state, ..copy.clone() };
    ReplicationInfo {
        id: None,
        dataset: "tank/vms".into(),
        target: "backup:pool/vms".into(),
        every_s: None,
        state: ReplicationState::Failed,
        begun_ns: None,
        ended_ns: None,
        sending: None,
        sent_bytes: 0,
        total_bytes: None,
        error: None,
        // Another replication may name it, too.
        copies: vec![copy.clone(), none, copy],
        left: Vec::new(),
    }
}

fn example_alerts() -> AlertsInfo {
    let problem = Problem::new(codes::POOL_FULL, Severity::Warning, "The pool is 81 % full.", None);
    let outlet = OutletInfo {
        name: "mail-1".into(),
        kind: OutletKind::Mail,
        sent: 4,
        failed: 2,
        waiting: 0,
        dropped: 0,
        last_sent_ns: None,
        last_error: None,
    };
    let alert = ActiveAlert { pool: Some("tank".into()), problem, since_ns: 1 };
    AlertsInfo { active: vec![alert], outlets: vec![outlet] }
}

#[test]
fn a_strict_reader_reads_the_page_and_finds_what_was_counted() {
    let families = read(&(example() + &copies(&[example_replication()])));
    for (name, (kind, _)) in &families {
        assert!(name.starts_with("aquifer_"), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
    }
    let (_, samples) = &families["aquifer_nfs_vmdisk_operations_total"];
    let odd = samples.iter().find(|(_, labels, _)| labels["file"].starts_with("/a"));
    let (_, labels, value) = odd.unwrap();
    assert_eq!(labels["file"], "/a \"b\"\\\n\u{e9}{},=");
    assert_eq!(*value, 6.0);
    let (_, others) = &families["aquifer_nfs_vmdisk_others_bytes_total"];
    assert_eq!(others[0].2, 24_576.0);
    let (_, seconds) = &families["aquifer_nfs_client_seconds_total"];
    let total: u64 = TIMES.iter().sum();
    assert_eq!(seconds[0].2, total as f64 / 1e9);
    let value = |family: &str, class: Option<&str>| {
        let (_, samples) = &families[family];
        let is_it = |found: Option<&String>| found.map(String::as_str) == class;
        samples.iter().find(|(_, labels, _)| is_it(labels.get("class"))).unwrap().2
    };
    assert_eq!(value("aquifer_memory_limit_bytes", None), 1000.0);
    assert_eq!(value("aquifer_pool_dirty_bytes", None), 100.0);
    assert_eq!(value("aquifer_cache_target_bytes", None), 800.0);
    assert_eq!(value("aquifer_cache_misses_total", None), 3.0);
    assert_eq!(value("aquifer_cache_disk_hits_total", None), 5.0);
    assert_eq!(value("aquifer_cache_disk_held_bytes", None), 8192.0);
    assert_eq!(value("aquifer_cache_hits_total", Some("data")), 20.0);
    assert_eq!(value("aquifer_cache_evictions_total", Some("nodes")), 5.0);
    let (_, active) = &families["aquifer_alert_active"];
    let of = ["pool", "code", "severity"].map(|label| active[0].1[label].as_str());
    assert_eq!((of, active[0].2), (["tank", "pool-full", "warning"], 1.0));
    assert_eq!(families["aquifer_alert_sent_total"].1[0].2, 4.0);
    let (_, behind) = &families["aquifer_replication_behind_seconds"];
    // One of which nothing is known has no age.
    assert_eq!((behind.len(), behind[0].2), (1, 42.0));
    assert_eq!(behind[0].1["target"], "backup:pool/vms/a");
    let (_, failed) = &families["aquifer_replication_failed"];
    let each = failed.iter().map(|of| (of.1["dataset"].as_str(), of.2)).collect::<Vec<_>>();
    assert_eq!(each, [("tank/vms/a", 1.0), ("tank/vms/b", 0.0)]);
    let (_, repaired) = &families["aquifer_disk_repaired_total"];
    assert_eq!((repaired[0].1["disk"].as_str(), repaired[0].2), ("/dev/a", 3.0));
}

/// Buckets rise to the count, and each has what is not above its bound.
#[test]
fn histograms_are_cumulative_and_true() {
    let families = read(&example());
    for (name, (kind, samples)) in &families {
        if kind != "histogram" {
            continue;
        }
        let mut last = (f64::NEG_INFINITY, 0.0);
        for (sample, labels, value) in samples {
            if let Some(bound) = labels.get("le") {
                let bound: f64 = bound.parse().unwrap();
                assert!(bound > last.0 && *value >= last.1, "{name} {labels:?}");
                last = (bound, *value);
            } else if sample.ends_with("_count") {
                assert_eq!(last, (f64::INFINITY, *value), "{name}");
                last = (f64::NEG_INFINITY, 0.0);
            }
        }
    }
    for (_, labels, value) in &families["aquifer_nfs_procedure_seconds"].1 {
        let Some(bound) = labels.get("le") else { continue };
        let bound_ns = bound.parse::<f64>().unwrap() * 1e9;
        // A time at a bound lies above it here, and below it to Prometheus: a nanosecond.
        let below = TIMES.iter().filter(|ns| (**ns as f64) < bound_ns).count();
        assert_eq!(*value, below as f64, "{bound}");
    }
}
