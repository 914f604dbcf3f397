//! The daemon's figures, compared with others' measurements: the clients that sent the calls, the
//! kernel's own counters of a disk and of the process.

pub mod client;
mod disks;
mod events;
mod memory;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Daemon, Place};
use client::{Client, Spent};

/// A pool with a dataset that all may use.
fn served(place: &Place, disks: &[&str]) -> Daemon {
    let daemon = place.serve();
    let create = ["pool", "create", "-o", "compression=off", "tank"];
    place.must(&[&create[..], disks].concat());
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    daemon
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Calls, bytes and the time of one kind, as the API reports them.
fn told(count: &Value) -> (u64, u64, u64) {
    let latency = &count["latency"];
    (number(&latency["count"]), number(&count["bytes"]), number(&latency["total_ns"]))
}

/// The server counted what the client sent, and took no longer than the client waited.
#[track_caller]
fn agrees(count: &Value, spent: &Spent) {
    let (calls, bytes, ns) = told(count);
    assert_eq!((calls, bytes), (spent.calls(), spent.bytes));
    assert!(ns <= spent.total_ns(), "{ns} ns told, {} waited", spent.total_ns());
    assert!(ns > 0);
    // No bucket lies above the slowest call, and their counts are all calls.
    let buckets = count["latency"]["buckets"].as_array().unwrap();
    let (mut sum, mut slowest) = (0, 0);
    for bucket in buckets {
        sum += number(&bucket[1]);
        slowest = slowest.max(number(&bucket[0]));
    }
    assert_eq!(sum, calls);
    assert!(slowest <= spent.slowest_ns(), "{slowest} ns told, {} waited", spent.slowest_ns());
}

fn find<'a>(list: &'a Value, key: &str, wanted: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|one| one[key] == wanted);
    found.unwrap_or_else(|| panic!("no {key} {wanted} in {list}"))
}

#[test]
fn clients_disks_and_procedures_are_told_as_the_clients_saw_them() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.image("b"));
    let _daemon = served(&place, &["mirror", &a, &b]);
    let mut noisy = Client::new(&place, "127.0.0.1");
    let mut quiet = Client::new(&place, "127.0.0.2");
    let root = noisy.mount("/tank/vms");
    let dir = noisy.mkdir(&root, "vm 7");
    let busy = noisy.create(&dir, "noisy.raw");
    let calm = quiet.create(&root, "quiet.raw");
    for page in 0..300 {
        noisy.write(&busy, page % 40 * 4096, &[7; 4096], true);
    }
    for page in 0..100 {
        assert_eq!(noisy.read(&busy, page % 40 * 4096, 4096), Ok(4096));
    }
    for piece in 0..20 {
        quiet.write(&calm, piece * 512, &[9; 512], false);
    }
    quiet.commit(&calm);
    // Short, at the end of the file; an error on a file; a handle of no file.
    assert_eq!(quiet.read(&calm, 10_000, 4096), Ok(240));
    assert_eq!(quiet.read(&[1; 24], 0, 4096), Err(70), "NFS3ERR_STALE");
    // Another client reads the same file.
    assert_eq!(quiet.read(&busy, 0, 100), Ok(100));

    // The server counts a reply just after the client has it.
    let got = noisy.got_bytes + quiet.got_bytes;
    place.wait_for(|| number(&place.json(&["nfsstat"])["load"]["sent_bytes"]) >= got);
    let stat = place.json(&["nfsstat"]);
    procedures_are_told(&stat, &noisy, &quiet);
    clients_and_disks_are_told(&stat, &noisy, &quiet);
    stable_writes_are_told(&place, noisy.spent("write"));
    people_are_told_the_same(&place);
    prometheus_says_the_same(&place, &noisy, &quiet);
}

fn procedures_are_told(stat: &Value, noisy: &Client, quiet: &Client) {
    for (name, spent) in [
        ("write", noisy.spent("write").and(quiet.spent("write"))),
        ("read", noisy.spent("read").and(quiet.spent("read"))),
        ("commit", quiet.spent("commit").clone()),
        ("create", noisy.spent("create").and(quiet.spent("create"))),
        ("mkdir", noisy.spent("mkdir").clone()),
    ] {
        let procedure = find(&stat["procedures"], "name", name);
        let latency = &procedure["latency"];
        assert_eq!(number(&latency["count"]), spent.calls(), "{name}");
        assert_eq!(number(&procedure["errors"]), spent.errors, "{name}");
        assert!(number(&latency["total_ns"]) <= spent.total_ns(), "{name}");
    }
    assert_eq!(number(&find(&stat["procedures"], "name", "remove")["latency"]["count"]), 0);
    assert_eq!(number(&stat["load"]["connections"]), 2);
    assert_eq!(number(&stat["load"]["mount_calls"]), 1);
    let sent = noisy.sent_bytes + quiet.sent_bytes;
    assert_eq!(number(&stat["load"]["received_bytes"]), sent);
    assert_eq!(number(&stat["load"]["sent_bytes"]), noisy.got_bytes + quiet.got_bytes);
}

fn clients_and_disks_are_told(stat: &Value, noisy: &Client, quiet: &Client) {
    for (address, client) in [("127.0.0.1", noisy), ("127.0.0.2", quiet)] {
        let told = find(&stat["clients"], "client", address);
        agrees(&told["reads"], client.spent("read"));
        agrees(&told["writes"], client.spent("write"));
        assert_eq!(number(&told["errors"]), client.spent("read").errors);
    }
    let disk = find(&stat["disks"], "file", "/vm 7/noisy.raw");
    assert_eq!(disk["dataset"], "tank/vms");
    assert_eq!((&disk["shared"], told(&disk["reads"]).0), (&true.into(), 101));
    agrees(&disk["writes"], noisy.spent("write"));
    let disk = find(&stat["disks"], "file", "/quiet.raw");
    assert_eq!((&disk["client"], &disk["shared"]), (&"127.0.0.2".into(), &false.into()));
    assert_eq!((told(&disk["reads"]).0, told(&disk["reads"]).1), (1, 240));
    agrees(&disk["writes"], quiet.spent("write"));
    assert_eq!((number(&disk["others"]), number(&disk["errors"])), (1, 0));
    assert_eq!(stat["disks"].as_array().unwrap().len(), 2, "{}", stat["disks"]);
}

/// Stable writes are counted once each, with or without a txg on its way.
fn stable_writes_are_told(place: &Place, spent: &Spent) {
    let io = place.json(&["iostat", "tank"]);
    let [apart, in_sync] = [&io[0]["stable_writes"], &io[0]["stable_writes_in_sync"]];
    assert_eq!(number(&apart["count"]) + number(&in_sync["count"]), spent.calls());
    let ns = number(&apart["total_ns"]) + number(&in_sync["total_ns"]);
    assert!(ns > 0 && ns <= spent.total_ns());
    let shown = place.must(&["iostat", "-l", "tank"]);
    assert!(shown.contains("tank: stable writes") && shown.contains("p99.9"), "{shown}");
}

/// The busiest client comes first.
fn people_are_told_the_same(place: &Place) {
    let table = place.must(&["nfsiostat"]);
    let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text}: {table}"));
    assert!(at("127.0.0.1 ") < at("127.0.0.2 ") && at("noisy.raw") < at("quiet.raw"), "{table}");
    let line = place.must(&["nfsiostat", "-dHp", "-n", "1"]);
    let cells: Vec<&str> = line.trim_end().split('\t').collect();
    assert_eq!(cells[..2], ["/vm 7/noisy.raw", "tank/vms"], "{line}");
    assert!(["127.0.0.1+", "127.0.0.2+"].contains(&cells[2]), "used by both: {line}");
    // 100 reads of 4 KiB and one of 100 bytes.
    assert_eq!((cells[5], cells[10]), ("3.9", "4.0"), "KB in each operation: {line}");
    let line = place.must(&["nfsstat", "-Hp"]);
    let commit = line.lines().find(|line| line.starts_with("commit\t")).unwrap();
    assert_eq!(commit.split('\t').nth(1), Some("1"), "{line}");
    assert!(
        place.must(&["nfsstat"]).contains("connections: 2 open, 0 of them in the lobby; 2 since"),
        "{line}"
    );
}

fn prometheus_says_the_same(place: &Place, noisy: &Client, quiet: &Client) {
    let (head, page) = place.get("/metrics");
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let value = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {page}")).to_string()
    };
    let writes = noisy.spent("write").calls() + quiet.spent("write").calls();
    let series = "aquifer_nfs_procedure_seconds_count{procedure=\"write\"}";
    assert_eq!(value(series), writes.to_string());
    let series = "aquifer_nfs_procedure_seconds_bucket{procedure=\"write\",le=\"+Inf\"}";
    assert_eq!(value(series), writes.to_string());
    let of = "dataset=\"tank/vms\",file=\"/vm 7/noisy.raw\",op=\"write\"";
    let bytes = noisy.spent("write").bytes.to_string();
    assert_eq!(value(&format!("aquifer_nfs_vmdisk_bytes_total{{{of}}}")), bytes);
    let of = "client=\"127.0.0.2\",op=\"write\"";
    assert_eq!(value(&format!("aquifer_nfs_client_operations_total{{{of}}}")), "20");
    assert_eq!(value("aquifer_pool_health{pool=\"tank\",state=\"online\"}"), "1");
    // The manual's names exist; a name that ends in `_` is the prefix of several.
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let words = manual.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut named = words.filter(|word| word.starts_with("aquifer_")).peekable();
    assert!(named.peek().is_some());
    named.for_each(|name| assert!(page.contains(name), "{name} is no metric: {page}"));
}

/// Two answers, and the calls of a client in between.
#[test]
fn an_interval_shows_what_came_in_it() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = served(&place, &[&a]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    client.write(&file, 0, &[1; 4096], true);
    let words = ["nfsiostat", "--json", "0.5", "3"];
    let mut reports = place.start(&words);
    let mut lines = BufReader::new(reports.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    let reads = |report: &Value| told(&find(&report["disks"], "file", "/disk.raw")["reads"]).0;
    let first = next();
    assert_eq!(reads(&first), 0, "the first is of all the time before");
    for _ in 0..150 {
        client.read(&file, 0, 4096).unwrap();
    }
    let (second, third) = (next(), next());
    assert!(reads(&second) <= reads(&third) && reads(&third) == 150, "{second} {third}");
    let apart = number(&third["uptime_ns"]) - number(&first["uptime_ns"]);
    let apart = Duration::from_nanos(apart);
    assert!((Duration::from_millis(900)..Duration::from_secs(20)).contains(&apart), "{apart:?}");
    assert!(reports.wait().unwrap().success());
    // Without calls since the last answer, there are no rows.
    let shown = place.must(&["nfsiostat", "-dH", "0.1", "2"]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
}

#[test]
fn whoever_has_seen_enough_goes_without_a_word() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = served(&place, &[&a]);
    for words in [["iostat", "0.1"], ["nfsstat", "0.1"], ["nfsiostat", "0.1"], ["events", "-f"]] {
        let mut child = place.start(&words);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{words:?}");
        // The pipe is closed: the next line is the last.
        place.must(&["set", "quota=1G", "tank/vms"]);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");

        let mut child = place.start(&words);
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
        assert!(!output.status.success(), "as a shell wants it, to end the loop around it");
    }
    for (words, part) in [
        (&["iostat", "tank", "1", "2", "3"][..], "3"),
        (&["iostat", "0"], "no interval"),
        (&["nfsstat", "tank"], "no number of seconds"),
        (&["nfsiostat", "1", "0"], "no number of reports"),
    ] {
        let said = place.ask(words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        assert!(said.err.contains(part), "{said:?}");
    }
    place.refuses(
        &["iostat", "nowhere"],
        "there is no pool \"nowhere\"; `aquifer pool list` shows those that are imported, \
         `aquifer pool import` those that could be",
    );
}

impl Place {
    /// Starts a command and does not wait.
    fn start(&self, words: &[&str]) -> std::process::Child {
        let asked = self.command(words);
        // Tests in a shell's background ignore SIGINT, and so would their children.
        let mut command = std::process::Command::new("env");
        command.arg("--default-signal=INT").arg(asked.get_program()).args(asked.get_args());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}
