//! Pools made by hand, good and damaged in every way that an inspection knows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod clean;
mod datasets;
mod directories;
mod extents;
mod flips;
mod labels;
mod log;
mod memory;
mod pool;
mod real;
mod records;
mod snapshots;
mod space;
mod speed;
mod tree;
mod trees;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use aquifer_blockio::Disk;
use aquifer_inspect::{Finding, Kind, Options, Report, Severity, inspect};

use pool::{HandPool, Shape};
use tree::{Content, write_all};

/// Runs a future whose I/O is always ready.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn deep() -> Options {
    Options { rewind: 2, deep: true, data: true, ..Options::default() }
}

fn look(disks: Vec<Arc<dyn Disk>>) -> Report {
    block_on(inspect(disks, &Options::default()))
}

fn look_deep(disks: Vec<Arc<dyn Disk>>) -> Report {
    block_on(inspect(disks, &deep()))
}

/// A pool of this shape with three txgs of content. `change` makes the content wrong before the
/// newest one is written.
fn changed(
    shape: Shape,
    change: impl FnOnce(&mut HandPool, &mut Content, &mut Content),
) -> HandPool {
    let mut pool = HandPool::new(shape);
    pool.commit();
    pool.commit();
    let mut sample = Content::sample(&mut pool);
    let mut below = Content::empty(1, "vms");
    change(&mut pool, &mut sample, &mut below);
    write_all(&mut pool, &mut sample, &mut below);
    pool.commit();
    pool
}

/// The report on a pool that is whole except for its content.
fn content(change: impl FnOnce(&mut HandPool, &mut Content, &mut Content)) -> Report {
    look(changed(Shape::Single, change).arcs())
}

fn good(shape: Shape) -> HandPool {
    changed(shape, |_, _, _| {})
}

/// All kinds found that are worse than an info.
fn kinds(report: &Report) -> Vec<Kind> {
    let kinds = report.counts.keys().copied();
    kinds.filter(|kind| kind.severity() > Severity::Info).collect()
}

/// The one finding of a kind, which must be the only kind worse than an info.
fn only(report: &Report, kind: Kind) -> &Finding {
    assert_eq!(kinds(report), [kind], "{report}");
    assert_eq!(report.count(kind), 1, "{report}");
    report.findings.iter().find(|finding| finding.kind == kind).unwrap()
}
