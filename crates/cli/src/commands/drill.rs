//! `aquifer pool drill`: a disk is taken away as if it had failed, and given back, while clients
//! are measured. The daemon does it; this looks on, shows it, and ends it early on `^C`.

use std::io::IsTerminal;
use std::pin::pin;

use aquifer_api::client::Client;
use aquifer_api::{
    Count, DrillInfo, DrillPhase, DrillRequest, DrillState, DrillStep, On, PoolQuery,
};
use aquifer_meter::Histogram;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::Output;
use super::pool::ask;
use super::progress::{LOOK_EVERY, Progress, Unit, Work};
use super::since::{Span, time};
use crate::args::DrillArgs;
use crate::failure::Failure;
use crate::table::Table;

/// Begins a drill, looks on until it has ended, and prints what it measured.
pub(super) async fn drill(
    client: &Client,
    output: Output,
    DrillArgs { yes, seconds, stop: _, name, disk }: DrillArgs,
) -> Result<(), Failure> {
    let Some(disk) = disk else {
        let done = client.ask(&On::new(&name, DrillRequest::Stop)).await?;
        return output.answer(&done, |_| String::new());
    };
    if !yes {
        confirm(&name, &disk, seconds)?;
    }
    // Before it begins: from then on a signal must not just end this.
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    client.ask(&On::new(&name, DrillRequest::Start { disk, seconds })).await?;
    let ended = {
        let mut watched = pin!(watch(client, output, &name));
        tokio::select! {
            ended = &mut watched => ended?,
            _ = interrupted.recv() => stop(client, &name, watched).await?,
            _ = terminated.recv() => stop(client, &name, watched).await?,
        }
    };
    output.answer(&ended, |ended| text(ended, output))?;
    match (ended.state, ended.unread_blocks) {
        (DrillState::Done, 0) => Ok(()),
        (DrillState::Done, blocks) => Err(Failure::failed(format!(
            "{blocks} blocks could not be read from any other disk, and are missing on {}; see \
             `aquifer pool status {name}`",
            ended.disk
        ))),
        _ => Err(Failure::failed(format!(
            "the drill did not come to its end: {}. The disk comes back by itself; `aquifer pool \
             wait {name}` returns when it holds everything",
            ended.reason.as_deref().unwrap_or("the daemon gives no reason")
        ))),
    }
}

fn confirm(name: &str, disk: &str, seconds: u64) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        let why = "a drill takes a copy of the data away for a while; without a terminal it needs \
                   --yes";
        return Err(Failure::usage(why));
    }
    let question = format!(
        "Pool {name:?} will do without {disk} for {seconds} seconds, and then resilver it. While \
         it is away, the other disks of its mirror must not fail. Type yes to begin: "
    );
    match ask(&question)?.as_str() {
        "yes" | "y" => Ok(()),
        typed => Err(Failure::failed(format!("the drill was not begun: {typed:?} is not yes"))),
    }
}

/// Looks on until the drill has ended.
async fn watch(client: &Client, output: Output, name: &str) -> Result<DrillInfo, Failure> {
    let mut progress = Progress::new(output);
    loop {
        let Some(drill) = client.ask(&On::new(name, PoolQuery)).await?.drill else {
            return Err(Failure::failed(format!(
                "pool {name:?} left service during the drill; the disk comes back with the pool"
            )));
        };
        if drill.state != DrillState::Running {
            return Ok(drill);
        }
        if let Some(phase) = drill.phases.last() {
            progress.show(&work(&drill, phase, output));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Ends the drill early. A second signal ends this command at once, and the drill goes on to its
/// end.
async fn stop(
    client: &Client,
    name: &str,
    watched: impl Future<Output = Result<DrillInfo, Failure>>,
) -> Result<DrillInfo, Failure> {
    // A drill that has just ended by itself is shown as it ended.
    let _ = client.ask(&On::new(name, DrillRequest::Stop)).await;
    watched.await
}

fn work(drill: &DrillInfo, phase: &DrillPhase, output: Output) -> Work {
    let (what, done, total, unit) = match phase.phase {
        DrillStep::Whole => {
            ("all disks are in use", phase.took_ms / 1000, Some(drill.seconds), Unit::Seconds)
        }
        DrillStep::Away => {
            ("the disk is away", phase.took_ms / 1000, Some(drill.seconds), Unit::Seconds)
        }
        DrillStep::Resilver => {
            ("the disk is resilvered", drill.resilvered_bytes, None, Unit::Bytes)
        }
    };
    let cells = rates(phase, output);
    let [ops, reads, writes] = cells;
    Work {
        what: format!("drill of {}: {what}", drill.disk),
        done,
        total,
        unit,
        took_ms: phase.took_ms,
        note: format!("clients {ops} ops/s, reads {reads}/s, writes {writes}/s"),
    }
}

/// Operations, bytes read and bytes written a second.
fn rates(phase: &DrillPhase, output: Output) -> [String; 3] {
    let span = Span::new(phase.took_ms.saturating_mul(1_000_000), Some(0));
    let clients = &phase.clients;
    let ops = clients.reads.latency.count + clients.writes.latency.count + clients.others;
    let bytes = |count: &Count| output.size(span.rate(count.bytes));
    [span.rate_text(output, ops), bytes(&clients.reads), bytes(&clients.writes)]
}

/// Shows what a drill measured: a line for each phase, and one about the resilver.
fn text(drill: &DrillInfo, output: Output) -> String {
    let mut table = Table::new(&[
        "PHASE",
        ">TIME",
        ">OPS/S",
        ">READ B/S",
        ">WRITE B/S",
        ">READ P50",
        ">P99",
        ">MAX",
        ">WRITE P50",
        ">P99",
        ">MAX",
        ">ERRORS",
    ]);
    for phase in &drill.phases {
        let name = match phase.phase {
            DrillStep::Whole => "whole",
            DrillStep::Away => "degraded",
            DrillStep::Resilver => "resilver",
        };
        let mut row = vec![name.to_string(), time(output, phase.took_ms.saturating_mul(1_000_000))];
        row.extend(rates(phase, output));
        row.extend(times(&phase.clients.reads, output));
        row.extend(times(&phase.clients.writes, output));
        row.push(phase.clients.errors.to_string());
        table.row(row);
    }
    let text = output.table(&table);
    match drill.back_ms {
        _ if output.script => text,
        None => text,
        Some(ms) => format!(
            "{text}\n{} was back {} after its return: {} resilvered\n",
            drill.disk,
            time(output, ms.saturating_mul(1_000_000)),
            output.size(drill.resilvered_bytes)
        ),
    }
}

/// Median, 99th percentile and longest time.
fn times(count: &Count, output: Output) -> [String; 3] {
    let histogram: Histogram = count.latency.histogram();
    [500, 990, 1000].map(|thousandths| match histogram.count() {
        0 => "-".into(),
        _ => time(output, histogram.quantile_ns(thousandths)),
    })
}

#[cfg(test)]
mod tests {
    use aquifer_api::Flow;

    use super::*;

    const PEOPLE: Output = Output { json: false, script: false, exact: false, colour: false };

    fn drill() -> DrillInfo {
        let count = |times: &[u64], bytes| {
            let mut histogram = Histogram::default();
            times.iter().for_each(|ns| histogram.record(*ns));
            Count { bytes, latency: (&histogram).into() }
        };
        let clients = Flow {
            reads: count(&[1_000_000; 20], 80 << 20),
            writes: count(&[], 0),
            others: 20,
            others_ns: 1,
            errors: 3,
        };
        let phase = |phase| DrillPhase { phase, took_ms: 10_000, clients: clients.clone() };
        DrillInfo {
            disk: "/dev/sdb".into(),
            state: DrillState::Done,
            reason: None,
            seconds: 10,
            phases: [DrillStep::Whole, DrillStep::Away, DrillStep::Resilver].map(phase).into(),
            resilvered_bytes: 3 << 20,
            unread_blocks: 0,
            back_ms: Some(2500),
        }
    }

    #[test]
    fn a_line_for_each_phase_and_one_for_the_return() {
        let shown = text(&drill(), PEOPLE);
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let whole = &lines[1];
        assert_eq!(whole[..5], ["whole", "10.0s", "4.0", "8M", "0B"]);
        assert!(whole[5].ends_with("us") || whole[5].ends_with("ms"), "{shown}");
        assert_eq!(whole[8..], ["-", "-", "-", "3"]);
        assert_eq!((lines[2][0], lines[3][0]), ("degraded", "resilver"));
        assert!(shown.ends_with("\n/dev/sdb was back 2.50s after its return: 3M resilvered\n"));
        // A script gets the table alone.
        let script = Output { script: true, ..PEOPLE };
        assert_eq!(text(&drill(), script).lines().count(), 3);
    }

    #[test]
    fn what_is_shown_meanwhile() {
        let mut drill = drill();
        let shown = |drill: &DrillInfo| {
            let work = work(drill, drill.phases.last().unwrap(), PEOPLE);
            format!("{}: {}", work.what, work.text(PEOPLE))
        };
        let resilver = shown(&drill);
        assert!(resilver.starts_with("drill of /dev/sdb: the disk is resilvered: 3M, "));
        drill.phases.truncate(2);
        drill.phases[1].took_ms = 4200;
        let away = shown(&drill);
        assert!(away.starts_with("drill of /dev/sdb: the disk is away: 4 s of 10 s (40%), "));
        assert!(away.ends_with("clients 9.5 ops/s, reads 19.0M/s, writes 0B/s"), "{away}");
    }
}
