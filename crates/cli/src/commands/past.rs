//! `aquifer iostat --history`: the load of the past, as the pools keep it.

use std::collections::BTreeMap;

use aquifer_api::client::Client;
use aquifer_api::{
    LoadQuery, LoadSeries, LoadSpan, LoadSum, LoadedDisk, LoadedDisksQuery, On, PoolsQuery, time,
};

use super::Output;
use super::since::{rate_text, time as took};
use crate::args::PastArgs;
use crate::failure::Failure;
use crate::table::Table;

/// The part of the past that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Past {
    span: LoadSpan,
    from_s: u64,
    to_s: u64,
}

pub(super) async fn iostat(
    client: &Client,
    output: Output,
    args: &PastArgs,
    latency: bool,
    words: &[String],
) -> Result<(), Failure> {
    let pools = match words {
        [] => client.ask(&PoolsQuery).await?.into_iter().map(|pool| pool.name).collect(),
        [pool] => vec![pool.clone()],
        _ => return Err(Failure::usage("the past has no interval: give a pool at most")),
    };
    let past = Past::of(args, time::now_s()).map_err(Failure::usage)?;
    let Past { span, from_s, to_s } = past;
    let of = args.clients.then(|| "clients".to_string());
    let step_s = Some(past.step_s());
    let query = LoadQuery { span, of, from_s: Some(from_s), to_s: Some(to_s), step_s };
    if args.disks {
        let mut all = BTreeMap::new();
        for pool in pools {
            let disks = client.ask(&On::new(&pool, LoadedDisksQuery(query.clone()))).await?;
            all.insert(pool, disks);
        }
        return output.answer(&all, |all| disks(all, to_s - from_s, output));
    }
    let mut all = BTreeMap::new();
    for pool in pools {
        let series = client.ask(&On::new(&pool, query.clone())).await?;
        all.insert(pool, series);
    }
    output.answer(&all, |all| steps(all, latency, output))
}

impl Past {
    fn of(args: &PastArgs, now_s: u64) -> Result<Past, String> {
        let span = args.history.as_deref().unwrap_or("1d");
        let month = LoadSpan::Month.seconds();
        let seconds = time::parse_span(span).filter(|seconds| (10..=month).contains(seconds));
        let seconds = seconds.ok_or_else(|| {
            format!("--history={span}: a time of 10s to 31d, such as 20m, 12h or 7d")
        })?;
        let until = args.until.as_deref().map(|text| {
            time::parse_moment(text, now_s).ok_or_else(|| {
                format!("--until {text}: a time in UTC, such as 03:20 or 2027-01-31T03:20")
            })
        });
        let to_s = until.transpose()?.unwrap_or(now_s).min(now_s);
        let from_s = to_s.saturating_sub(seconds);
        // What is older than a day is there in steps of ten minutes alone.
        let is_of_day = from_s + LoadSpan::Day.seconds() >= now_s;
        let span = if is_of_day { LoadSpan::Day } else { LoadSpan::Month };
        Ok(Past { span, from_s, to_s })
    }

    /// Steps, so that they fit on a screen.
    fn step_s(self) -> u64 {
        let fits = |step: &&u64| (self.to_s - self.from_s).div_ceil(**step) <= LINES_MAX;
        let step = STEPS_S.iter().find(fits).copied().unwrap_or(LONGEST_STEP_S);
        step.max(self.span.grain_s())
    }
}

/// All can be divided by the finest of the spans in which they are used.
const STEPS_S: [u64; 10] = [10, 30, 60, 300, 600, 1200, 1800, 3600, 7200, 21_600];
const LONGEST_STEP_S: u64 = 86_400;
/// Lines of a pool at most.
const LINES_MAX: u64 = 48;

fn steps(pools: &BTreeMap<String, LoadSeries>, latency: bool, output: Output) -> String {
    let mut text = String::new();
    let names = ["TIME", ">ALLOC", ">READS/S", ">WRITES/S", ">READ B/S", ">WRITE B/S"];
    let times = [">READ MEAN", ">READ P99", ">WRITE MEAN", ">WRITE P99"];
    for (pool, series) in pools {
        let mut columns = names.to_vec();
        if output.script {
            columns.insert(0, "POOL");
        } else if pools.len() > 1 {
            text.push_str(&format!("{pool}\n"));
        }
        if latency {
            columns.extend(times);
        }
        let mut table = Table::new(&columns);
        for (at, at_s) in series.at_s.iter().enumerate() {
            let of = |column: &[u64]| column.get(at).copied().unwrap_or(0);
            let [reads, writes] = [&series.reads, &series.writes].map(|part| LoadSum {
                operations: of(&part.operations),
                bytes: of(&part.bytes),
                mean_ns: of(&part.mean_ns),
                p99_ns: of(&part.p99_ns),
            });
            let mut cells: Vec<String> = output.script.then(|| pool.clone()).into_iter().collect();
            let used = series.used_bytes.get(at);
            cells.extend([when(output, *at_s), used.map_or("-".into(), |used| output.size(*used))]);
            cells.extend(rates(reads, writes, series.step_s, output));
            if latency {
                cells.extend([reads, writes].into_iter().flat_map(|sum| took_of(sum, output)));
            }
            table.row(cells);
        }
        match series.at_s.is_empty() && !output.script {
            true => text.push_str("nothing is known of that time\n"),
            false => text.push_str(&output.table(&table)),
        }
    }
    text
}

fn disks(pools: &BTreeMap<String, Vec<LoadedDisk>>, seconds: u64, output: Output) -> String {
    let mut table = Table::new(&[
        "FILE",
        "DATASET",
        ">READS/S",
        ">WRITES/S",
        ">READ B/S",
        ">WRITE B/S",
        ">R MEAN",
        ">R P99",
        ">W MEAN",
        ">W P99",
    ]);
    for disk in pools.values().flatten() {
        let mut cells = vec![disk.file.clone(), disk.dataset.clone()];
        cells.extend(rates(disk.reads, disk.writes, seconds, output));
        cells.extend([disk.reads, disk.writes].into_iter().flat_map(|sum| took_of(sum, output)));
        table.row(cells);
    }
    output.table(&table)
}

fn rates(reads: LoadSum, writes: LoadSum, seconds: u64, output: Output) -> [String; 4] {
    let of = |count: u64| rate_text(output, count, seconds);
    let bytes = |bytes: u64| output.size(bytes / seconds.max(1));
    [of(reads.operations), of(writes.operations), bytes(reads.bytes), bytes(writes.bytes)]
}

/// Mean and 99th percentile.
fn took_of(sum: LoadSum, output: Output) -> [String; 2] {
    let of = |ns| if sum.operations == 0 { "-".into() } else { took(output, ns) };
    [of(sum.mean_ns), of(sum.p99_ns)]
}

/// A time to the second, for scripts as programs read it.
fn when(output: Output, at_s: u64) -> String {
    let text = time::text_s(at_s);
    match output.script {
        true => text,
        false => text.replace('T', " ").trim_end_matches('Z').to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(history: &str, until: Option<&str>) -> Result<Past, String> {
        let args = PastArgs {
            history: Some(history.into()),
            until: until.map(str::to_string),
            clients: false,
            disks: false,
        };
        Past::of(&args, 10 * 86_400)
    }

    #[test]
    fn the_span_decides_how_fine_and_lines_fit_a_screen() {
        let day = past("1d", None).unwrap();
        assert_eq!((day.span, day.from_s, day.to_s), (LoadSpan::Day, 9 * 86_400, 10 * 86_400));
        assert_eq!(day.step_s(), 1800);
        assert_eq!(past("5m", None).unwrap().step_s(), 10);
        let month = past("31d", None).unwrap();
        assert_eq!((month.span, month.from_s, month.step_s()), (LoadSpan::Month, 0, 21_600));
        let night = past("20m", Some("03:20")).unwrap();
        assert_eq!((night.span, night.to_s), (LoadSpan::Day, 9 * 86_400 + 12_000));
        let old = past("20m", Some("1970-01-05T03:20")).unwrap();
        assert_eq!((old.span, old.step_s()), (LoadSpan::Month, 600));
        for (span, until) in [("1y", None), ("5s", None), ("32d", None), ("1h", Some("noon"))] {
            past(span, until).unwrap_err();
        }
    }
}
