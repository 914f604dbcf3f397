//! The benchmark works, and notices a server that returns other data than was written.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by ending")]

mod common;

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use aquifer_bench::load::Plan;
use aquifer_bench::null::{self, Behaviour, Fault};
use aquifer_bench::run::{self, Options};
use aquifer_bench::target::{Setup, Target};
use aquifer_bench::{Error, measure, report, snapshots, workload};

const FILE_BYTES: usize = 16 << 20;
/// The parts of the benchmark of snapshots that run here.
const PARTS: [&str; 7] = ["acts", "held", "many", "send-beside", "files", "template", "ranges"];

fn setup(bench: PathBuf) -> Setup {
    Setup {
        aquifer: common::aquifer(&bench),
        bench,
        file_bytes: FILE_BYTES,
        image_bytes: 512 << 20,
        sparse_disks: false,
        written_images: false,
        memory_bytes: None,
        connections: None,
        aged: false,
    }
}

/// The server that stores nothing, in this process, with this fault.
fn null_server(fault: Fault) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let behaviour = Behaviour { file_bytes: FILE_BYTES as u64, fault };
    std::thread::spawn(move || null::serve(&listener, behaviour));
    port
}

fn plan(name: &str) -> Plan {
    workload::all().into_iter().find(|workload| workload.name == name).unwrap().plan
}

/// Fills, compares, and runs a workload for a moment.
fn outcome(fault: Fault, workload: &str) -> Result<u64, Error> {
    let mut target = Target::at(null_server(fault), "/null", FILE_BYTES, false)?;
    let length = Duration::from_millis(200);
    measure::sample(&mut target, &plan(workload), 2, length).map(|sample| sample.ops)
}

#[test]
fn an_honest_server_passes_and_each_lie_is_found() {
    for workload in ["read-4k-rand", "mixed-70-30", "write-4k-commit", "read-1m-seq", "getattr"] {
        assert!(outcome(Fault::None, workload).unwrap() > 0, "{workload}");
    }
    for (fault, workload, said) in [
        (Fault::Bit, "read-4k-rand", "1 bytes differ"),
        (Fault::Misplaced, "mixed-70-30", "bytes differ"),
        (Fault::Verifier, "write-4k-commit", "verifier"),
        (Fault::Lost, "getattr", "generation 1 found"),
    ] {
        match outcome(fault, workload) {
            Err(Error::Mismatch(what)) => assert!(what.contains(said), "{fault:?}: {what}"),
            other => panic!("{fault:?} was not found: {other:?}"),
        }
    }
}

#[test]
fn a_server_that_stores_nothing_is_found_if_it_should_store() {
    let stored = Target::at(null_server(Fault::None), "/null", FILE_BYTES, true);
    assert!(matches!(stored, Err(Error::Mismatch(_))));
}

/// The real benchmark, for a short time: servers as processes in namespaces, turns, comparison,
/// report.
#[test]
fn two_workloads_on_aquifer_and_null() {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_aquifer-bench"));
    let options = Options {
        setup: setup(bench),
        targets: vec!["aquifer".into(), "null".into()],
        only: vec!["mixed-70-30".into(), "write-4k-commit".into(), workload::IDLE.into()],
        rounds: 2,
        length: Duration::from_millis(300),
        connections: 2,
        idle: 50,
    };
    let results = run::run(&options).unwrap();
    assert!(results.failures.is_empty(), "{:?}", results.failures);
    assert_eq!(results.workloads.len(), 2);
    for (name, samples) in results.workloads.iter().flat_map(|workload| &workload.targets) {
        assert_eq!(samples.len(), 2, "{name}");
        for sample in samples {
            assert!(sample.ops > 0 && sample.latency.max_us > 0.0, "{name}: {sample:?}");
            assert!(sample.server_us_per_op.is_some(), "{name}");
        }
    }
    let text = report::text(&results);
    assert!(text.contains("write-4k-commit") && text.contains("COMMITs"), "{text}");
    assert!(serde_json::to_string(&results).unwrap().contains("\"p999_us\""));
}

/// Parts of the benchmark of snapshots, small. Contents are compared in it, after rollbacks and an
/// import too; here, that they give figures and leave nothing.
#[test]
fn snapshots_are_measured() {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_aquifer-bench"));
    let options = snapshots::Options {
        setup: setup(bench),
        length: Duration::from_millis(300),
        many: 20,
        sparse: 4 << 20,
        aged: Some(30),
        rounds: 2,
        only: PARTS.map(String::from).to_vec(),
    };
    let figures = snapshots::run(&options).unwrap();
    let value = |what: &str| figures.iter().find(|figure| figure.what == what).unwrap().value;
    let held = value("bytes written for each byte, pages held");
    assert!((1.0..8.0).contains(&held), "two sides were given {held} bytes for each");
    assert!(value("rollback of it, 1,000 pages") > 0.0);
    assert!(value("32 stable 4 KiB writes, many snapshots") > 0.0);
    assert!(value("rollback, later snapshots stay, a sparse file of 1 TiB") > 0.0);
    assert!(value("the same in another dataset: each") < 32.0);
    assert!(value("ranges of 10,000 changed pages of a sparse file") > 0.0);
    let none = snapshots::Options { aged: None, only: vec!["nothing".into()], ..options };
    let refused = snapshots::run(&none).unwrap_err().to_string();
    assert!(refused.contains("no part \"nothing\""), "{refused}");
}
