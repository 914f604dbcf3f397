//! `aquifer nfsstat` and `aquifer nfsiostat`: the calls of clients, and which client is busiest.

use std::cmp::Reverse;

use aquifer_api::client::Client;
use aquifer_api::{Flow, NfsQuery, NfsStat};

use super::Output;
use super::repeat::{Times, repeat, times};
use super::since::{FlowPart, Part, Span, age, time};
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn nfsstat(
    client: &Client,
    output: Output,
    words: &[String],
) -> Result<(), Failure> {
    let times = times(words).map_err(Failure::usage)?;
    let ask = async || Ok(client.ask(&NfsQuery).await?);
    repeat(output, times, ask, |now, then| procedures(now, then, output)).await
}

fn procedures(now: &NfsStat, then: Option<&NfsStat>, output: Output) -> String {
    let span = Span::new(now.uptime_ns, then.map(|then| then.uptime_ns));
    let then = then.filter(|_| span.goes_on);
    let mut table =
        Table::new(&["PROCEDURE", ">CALLS", ">CALLS/S", ">ERRORS", ">MEAN", ">P50", ">P99"]);
    for (index, procedure) in now.procedures.iter().enumerate() {
        let old = then.and_then(|then| then.procedures.get(index));
        let latency = procedure.latency.histogram();
        let latency = old.map_or(latency.clone(), |old| latency.since(&old.latency.histogram()));
        let errors = procedure.errors.saturating_sub(old.map_or(0, |old| old.errors));
        let calls = latency.count();
        if calls == 0 && !output.script {
            continue;
        }
        let times = [latency.mean_ns(), latency.quantile_ns(500), latency.quantile_ns(990)];
        let mut cells = vec![procedure.name.clone(), calls.to_string()];
        cells.extend([span.rate_text(output, calls), errors.to_string()]);
        cells.extend(times.map(|ns| if calls == 0 { "-".into() } else { time(output, ns) }));
        table.row(cells);
    }
    if output.script {
        return output.table(&table);
    }
    if now.uptime_ns == 0 {
        return "NFS is not served: no pool is in service\n".into();
    }
    let load = &now.load;
    format!(
        "{}connections: {} open, {} of them in the lobby; {} since NFS began to listen\n\
         {} ago, {} turned away\nbeside NFS: {} calls of MOUNT, {} of the portmapper, {} of locks, \
         {} refused by RPC\n\n",
        output.table(&table),
        load.connections,
        load.in_lobby,
        load.accepted,
        age(now.uptime_ns),
        load.turned_away,
        load.mount_calls,
        load.portmap_calls,
        load.lock_calls,
        load.refused_calls
    )
}

/// The wanted output of `nfsiostat`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    pub clients: bool,
    pub disks: bool,
    /// All numbers.
    pub long: bool,
    /// Lines of each at most.
    pub top: usize,
}

pub(super) async fn nfsiostat(
    client: &Client,
    output: Output,
    show: Show,
    times: Times,
) -> Result<(), Failure> {
    let ask = async || Ok(client.ask(&NfsQuery).await?);
    repeat(output, times, ask, |now, then| flows(now, then, show, output)).await
}

fn flows(now: &NfsStat, then: Option<&NfsStat>, show: Show, output: Output) -> String {
    let span = Span::new(now.uptime_ns, then.map(|then| then.uptime_ns));
    let then = then.filter(|_| span.goes_on);
    let mut text = String::new();
    if show.clients {
        let each = now.clients.iter().map(|one| {
            let old =
                then.and_then(|then| then.clients.iter().find(|old| old.client == one.client));
            let flow = FlowPart::of(&one.flow, old.map(|old| &old.flow));
            ([one.client.clone(), String::new(), String::new()], flow)
        });
        let others = others(&now.other_clients, then.map(|then| &then.other_clients));
        text.push_str(&table(&["CLIENT"], each.chain([others]).collect(), span, show, output));
    }
    if show.disks {
        let each = now.disks.iter().map(|one| {
            let same = |old: &&aquifer_api::DiskStat| {
                old.object == one.object && old.fs_guid == one.fs_guid
            };
            let old = then.and_then(|then| then.disks.iter().find(same));
            let client = format!("{}{}", one.client, if one.shared { "+" } else { "" });
            let flow = FlowPart::of(&one.flow, old.map(|old| &old.flow));
            ([one.file.clone(), one.dataset.clone(), client], flow)
        });
        let others = others(&now.other_disks, then.map(|then| &then.other_disks));
        let names = ["FILE", "DATASET", "CLIENT"];
        text.push_str(&table(&names, each.chain([others]).collect(), span, show, output));
    }
    text
}

type Named = ([String; 3], FlowPart);

fn others(now: &Flow, then: Option<&Flow>) -> Named {
    (["(others)".into(), "-".into(), "-".into()], FlowPart::of(now, then))
}

/// Busiest first: by the time that calls were under way, for which other calls wait.
fn table(
    names: &[&'static str],
    mut each: Vec<Named>,
    span: Span,
    show: Show,
    output: Output,
) -> String {
    each.retain(|(_, flow)| flow.calls() > 0);
    each.sort_by_key(|(_, flow)| (Reverse(flow.busy_ns()), Reverse(flow.calls())));
    let numbers = match (output.script, show.long) {
        // Scripts count columns.
        (true, _) => Numbers::All,
        (false, true) => Numbers::Below,
        (false, false) => Numbers::Few,
    };
    let together = names.join(", ");
    let mut columns = match numbers {
        Numbers::Below => vec![together.as_str()],
        _ => names.to_vec(),
    };
    columns.extend(numbers.columns());
    let mut table = Table::new(&columns);
    for (name, flow) in each.iter().take(show.top) {
        let cells = name.iter().take(names.len()).cloned();
        match numbers {
            Numbers::Few => table.row(cells.chain(few_numbers(flow, span, output)).collect()),
            Numbers::All => table.row(cells.chain(all_numbers(flow, span, output)).collect()),
            Numbers::Below => {
                for (name, numbers) in name.iter().zip(lines(flow, span, output)) {
                    table.row(std::iter::once(name.clone()).chain(numbers).collect());
                }
            }
        }
    }
    let mut text = output.table(&table);
    let more = each.len().saturating_sub(show.top);
    if !output.script {
        text.push_str(&match more {
            0 => "\n".to_string(),
            more => format!("and {more} that were less busy\n\n"),
        });
    }
    text
}

/// Which numbers stand where.
#[derive(Clone, Copy)]
enum Numbers {
    /// Numbers that a screen of 80 columns has room for beside names.
    Few,
    /// All in one line.
    All,
    /// All, in a line for reads, one for writes, and one for other calls.
    Below,
}

impl Numbers {
    fn columns(self) -> &'static [&'static str] {
        match self {
            Numbers::Few => &SHORT,
            Numbers::All => &LONG,
            Numbers::Below => &BELOW,
        }
    }
}

const BELOW: [&str; 7] = ["CALLS", ">/S", ">KB/S", ">KB/OP", ">MEAN", ">P99", ">ERRORS"];

const SHORT: [&str; 5] = [">R/S", ">R KB/S", ">W/S", ">W KB/S", ">P99"];

const LONG: [&str; 12] = [
    ">R/S", ">R KB/S", ">R KB/OP", ">R MEAN", ">R P99", ">W/S", ">W KB/S", ">W KB/OP", ">W MEAN",
    ">W P99", ">OTHER/S", ">ERRORS",
];

fn few_numbers(flow: &FlowPart, span: Span, output: Output) -> Vec<String> {
    let mut cells = Vec::new();
    for part in [&flow.reads, &flow.writes] {
        let kilobytes = kilobytes(span.rate(part.bytes), 1);
        cells.extend([span.rate_text(output, part.count()), kilobytes]);
    }
    let mut both = flow.reads.latency.clone();
    both.add(&flow.writes.latency);
    let slow = both.quantile_ns(990);
    cells.push(if both.count() == 0 { "-".into() } else { time(output, slow) });
    cells
}

fn all_numbers(flow: &FlowPart, span: Span, output: Output) -> Vec<String> {
    let mut cells = Vec::new();
    for part in [&flow.reads, &flow.writes] {
        cells.extend(stream(part, span, output));
    }
    cells.extend([span.rate_text(output, flow.others), flow.errors.to_string()]);
    cells
}

/// Reads, writes, and other calls with the errors of all.
fn lines(flow: &FlowPart, span: Span, output: Output) -> [Vec<String>; 3] {
    let of = |calls: &str, part| {
        let mut cells = vec![calls.to_string()];
        cells.extend(stream(part, span, output));
        cells.push(String::new());
        cells
    };
    let mut others = vec!["other".to_string(), span.rate_text(output, flow.others)];
    others.extend(std::iter::repeat_n(String::new(), 4));
    others.push(flow.errors.to_string());
    [of("read", &flow.reads), of("write", &flow.writes), others]
}

fn kilobytes(bytes: u64, of: u64) -> String {
    let tenths = u128::from(bytes) * 10 / 1024 / u128::from(of.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn stream(part: &Part, span: Span, output: Output) -> Vec<String> {
    let per_second = kilobytes(span.rate(part.bytes), 1);
    let mut cells = vec![span.rate_text(output, part.count()), per_second];
    cells.push(match part.count() {
        0 => "-".into(),
        count => kilobytes(part.bytes, count),
    });
    cells.extend(part.times(output));
    cells
}
