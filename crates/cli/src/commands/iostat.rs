//! `aquifer iostat`: the operations of disks, as `zpool iostat` shows them.

use aquifer_api::client::Client;
use aquifer_api::{DiskIo, IoQuery, Latency, PoolIo, VdevClass, VdevIo, VdevKind};
use aquifer_meter::{BUCKETS, Histogram, floor_ns};

use super::Output;
use super::pool::data_first;
use super::repeat::{Times, repeat, times};
use super::since::{Part, Span, time};
use crate::failure::Failure;
use crate::table::Table;

/// The wanted output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    /// Vdevs and disks too.
    pub verbose: bool,
    /// Times.
    pub latency: bool,
    /// Histograms instead.
    pub histograms: bool,
}

pub(super) async fn iostat(
    client: &Client,
    output: Output,
    show: Show,
    words: &[String],
) -> Result<(), Failure> {
    let (pool, times) = pool_and_times(words).map_err(Failure::usage)?;
    let query = IoQuery { pool };
    let ask = async || Ok(client.ask(&query).await?);
    repeat(output, times, ask, |now, then| match show.histograms {
        true => histograms(now, then, show, output),
        false => rates(now, then, show, output),
    })
    .await
}

/// `[pool] [interval [count]]`: a pool's name begins with a letter.
pub(crate) fn pool_and_times(words: &[String]) -> Result<(Option<String>, Times), String> {
    match words.split_first() {
        Some((pool, rest)) if !pool.starts_with(|first: char| first.is_ascii_digit()) => {
            Ok((Some(pool.clone()), times(rest)?))
        }
        _ => Ok((None, times(words)?)),
    }
}

/// A row: a pool, a vdev or a disk, and its operations in the span.
struct Row {
    name: String,
    /// Used and available bytes, for pools.
    space: Option<(u64, u64)>,
    span: Span,
    reads: Part,
    writes: Part,
    durable: Part,
    flushes: Part,
}

fn rows(now: &[PoolIo], then: Option<&Vec<PoolIo>>, verbose: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for pool in now {
        let (span, before) = span_of(pool, then);
        let mut row = |name, space, io: &DiskIo, old: Option<&DiskIo>| {
            rows.push(Row {
                name,
                space,
                span,
                reads: Part::of(&io.reads, old.map(|old| &old.reads)),
                writes: Part::of(&io.writes, old.map(|old| &old.writes)),
                durable: Part::of(&io.durable_writes, old.map(|old| &old.durable_writes)),
                flushes: Part::of(&io.flushes, old.map(|old| &old.flushes)),
            });
        };
        let space = Some((pool.allocated_bytes, pool.free_bytes));
        row(pool.name.clone(), space, &pool.io, before.map(|old| &old.io));
        let vdevs = if verbose { pool.vdevs.as_slice() } else { &[] };
        for (_, vdev) in data_first(vdevs, |vdev| vdev.class) {
            let mut old = before.into_iter().flat_map(|old| &old.vdevs);
            let old = old.find(|old| old.name == vdev.name && old.class == vdev.class);
            let indent = match vdev.kind {
                VdevKind::Mirror => {
                    row(
                        format!("  {}{}", of(vdev), vdev.name),
                        None,
                        &vdev.io,
                        old.map(|old| &old.io),
                    );
                    "    "
                }
                VdevKind::Single => "  ",
            };
            for leaf in &vdev.leaves {
                let same = |old: &&_| {
                    let aquifer_api::LeafIo { guid, .. } = old;
                    *guid == leaf.guid
                };
                let old = old.and_then(|old| old.leaves.iter().find(same));
                let of = if vdev.kind == VdevKind::Single { of(vdev) } else { "" };
                row(format!("{indent}{of}{}", leaf.path), None, &leaf.io, old.map(|old| &old.io));
            }
        }
    }
    rows
}

/// The span of a pool's counts, and the earlier counts, if they count.
fn span_of<'a>(pool: &PoolIo, then: Option<&'a Vec<PoolIo>>) -> (Span, Option<&'a PoolIo>) {
    let before = then.and_then(|pools| pools.iter().find(|old| old.name == pool.name));
    let span = Span::new(pool.uptime_ns, before.map(|old| old.uptime_ns));
    (span, before.filter(|_| span.goes_on))
}

/// The prefix of a vdev's name.
fn of(vdev: &VdevIo) -> &'static str {
    match vdev.class {
        VdevClass::Data => "",
        VdevClass::Log => "log ",
    }
}

fn rates(now: &[PoolIo], then: Option<&Vec<PoolIo>>, show: Show, output: Output) -> String {
    let rows = rows(now, then, show.verbose);
    if !show.latency {
        return table(&rows, &[&RATES], output);
    }
    if output.script {
        return table(&rows, &[&RATES, &TIMES], output);
    }
    // Side by side they are wider than a screen.
    let mut text = table(&rows, &[&RATES], output) + "\n" + &table(&rows, &[&TIMES], output);
    now.iter().for_each(|pool| text.push_str(&stable_writes(pool, then, output)));
    text
}

/// Columns behind the name, and what stands in them.
type Columns = (&'static [&'static str], fn(&Row, Output) -> Vec<String>);

const RATES: Columns = (
    &[">ALLOC", ">FREE", ">READS/S", ">WRITES/S", ">READ B/S", ">WRITE B/S"],
    |Row { space, span, reads, writes, durable, .. }, output| {
        let space = space.map_or(["-".into(), "-".into()], |(allocated, free)| {
            [output.size(allocated), output.size(free)]
        });
        let writes_of_both = (writes.count() + durable.count(), writes.bytes + durable.bytes);
        let both = [(reads.count(), reads.bytes), writes_of_both];
        let mut cells = space.to_vec();
        cells.extend(both.map(|(count, _)| span.rate_text(output, count)));
        cells.extend(both.map(|(_, bytes)| output.size(span.rate(bytes))));
        cells
    },
);

const TIMES: Columns = (
    &[">READ", ">P99", ">WRITE", ">P99", ">LOGGED", ">P99", ">FLUSH", ">P99"],
    |Row { reads, writes, durable, flushes, .. }, output| {
        [reads, writes, durable, flushes].into_iter().flat_map(|part| part.times(output)).collect()
    },
);

fn table(rows: &[Row], columns: &[&Columns], output: Output) -> String {
    let names = columns.iter().flat_map(|(names, _)| names.iter().copied());
    let mut table = Table::new(&std::iter::once("POOL").chain(names).collect::<Vec<_>>());
    for row in rows {
        let name = if output.script { row.name.trim_start() } else { &row.name };
        let cells = columns.iter().flat_map(|(_, cells)| cells(row, output));
        table.row(std::iter::once(name.to_string()).chain(cells).collect());
    }
    output.table(&table)
}

/// The cost of a txg's sync for stable writes that wait.
fn stable_writes(pool: &PoolIo, then: Option<&Vec<PoolIo>>, output: Output) -> String {
    let (_, before) = span_of(pool, then);
    let told = |what: &str, now: &Latency, old: Option<&Latency>| {
        let times = now.histogram();
        let times = old.map_or_else(|| times.clone(), |old| times.since(&old.histogram()));
        let at = |thousandths| time(output, times.quantile_ns(thousandths));
        (times.count() > 0)
            .then(|| format!("{what}: {}, p50 {}, p99.9 {}", times.count(), at(500), at(999)))
    };
    let during = "while a txg goes to disk";
    let apart = told("else", &pool.stable_writes, before.map(|old| &old.stable_writes));
    let old = before.map(|old| &old.stable_writes_in_sync);
    let during = told(during, &pool.stable_writes_in_sync, old);
    let told: Vec<String> = during.into_iter().chain(apart).collect();
    if told.is_empty() {
        return String::new();
    }
    format!("{}: stable writes\n  {}\n", pool.name, told.join("\n  "))
}

/// How many operations took how long: a line for each upper limit of time.
fn histograms(now: &[PoolIo], then: Option<&Vec<PoolIo>>, show: Show, output: Output) -> String {
    let mut text = String::new();
    for row in rows(now, then, show.verbose) {
        if !output.script {
            text.push_str(&format!("{}\n", row.name.trim_start()));
        }
        let parts = [&row.reads, &row.writes, &row.durable, &row.flushes];
        let kinds = parts.map(|part| &part.latency);
        let mut table = match output.script {
            true => Table::new(&["POOL", ">BELOW", ">READ", ">WRITE", ">LOGGED", ">FLUSH"]),
            false => Table::new(&[">BELOW", ">READ", ">WRITE", ">LOGGED", ">FLUSH"]),
        };
        // Powers of two, from the first non-empty bucket to the last.
        let used: Vec<usize> = (0..=OCTAVES)
            .filter(|octave| kinds.iter().any(|kind| within(kind, *octave) > 0))
            .collect();
        let range = used.first().zip(used.last()).map(|(first, last)| *first..=*last);
        for octave in range.into_iter().flatten() {
            let below = match octave {
                OCTAVES => "more".to_string(),
                _ => time(output, floor_ns(1 + 4 * octave)),
            };
            let counts = kinds.iter().map(|kind| within(kind, octave).to_string());
            let name = Some(row.name.trim_start().to_string()).filter(|_| output.script);
            table.row(name.into_iter().chain([below]).chain(counts).collect());
        }
        text.push_str(&output.table(&table));
        if !output.script {
            text.push('\n');
        }
    }
    text
}

/// How many took up to the power of two with number `octave`; 0 is all that were faster.
fn within(histogram: &Histogram, octave: usize) -> u64 {
    let from = octave.checked_sub(1).map_or(0, |before| floor_ns(1 + 4 * before));
    let below = if octave < OCTAVES { floor_ns(1 + 4 * octave) } else { u64::MAX };
    let inside = histogram.buckets().filter(|(ns, _)| (from..below).contains(ns));
    inside.map(|(_, count)| count).sum()
}

/// Powers of two that the buckets cover, and one for all above.
const OCTAVES: usize = (BUCKETS - 2) / 4 + 1;
