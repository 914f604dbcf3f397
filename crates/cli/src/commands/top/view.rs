//! View of `aquifer top`, as lines of text: pure.

use std::cmp::Reverse;

use aquifer_api::NfsStat;
use aquifer_api::shown::shown;
use aquifer_meter::{Histogram, size};
use clap::ValueEnum;
use serde::Serialize;

use crate::commands::Output;
use crate::commands::since::{FlowPart, Span, time};
use crate::table::Table;

/// By what disks are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Reads and writes a second
    Ops,
    /// Bytes a second
    Bytes,
    /// Mean time of an operation
    Latency,
}

/// One VM disk in the last second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    /// Full name of its dataset.
    pub dataset: String,
    /// Its path there.
    pub file: String,
    pub reads_per_s: u64,
    pub writes_per_s: u64,
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    pub mean_ns: u64,
    pub p99_ns: u64,
}

/// State of the view: what is known, and how it is shown.
#[derive(Debug)]
pub(super) struct View {
    sort: Sort,
    dataset: String,
    /// The filter, while it is typed.
    typing: Option<String>,
    now: Option<NfsStat>,
    then: Option<NfsStat>,
    problem: Option<String>,
}

impl View {
    pub fn new(sort: Sort, dataset: String) -> View {
        View { sort, dataset, typing: None, now: None, then: None, problem: None }
    }

    /// A new answer of the daemon's.
    pub fn take(&mut self, stat: NfsStat) {
        self.then = self.now.replace(stat);
        self.problem = None;
    }

    /// The daemon has not answered.
    pub fn problem(&mut self, why: String) {
        self.problem = Some(why);
    }

    /// A key; whether it goes on.
    pub fn press(&mut self, key: u8) -> bool {
        if let Some(typing) = &mut self.typing {
            match key {
                b'\r' | b'\n' => self.dataset = self.typing.take().unwrap_or_default(),
                ESCAPE | CTRL_C => self.typing = None,
                DELETE | BACKSPACE => drop(typing.pop()),
                b' '..=b'~' if typing.len() < FILTER_BYTES => typing.push(char::from(key)),
                _ => {}
            }
            return true;
        }
        match key {
            b'q' | b'Q' | CTRL_C => return false,
            b'o' => self.sort = Sort::Ops,
            b'b' => self.sort = Sort::Bytes,
            b'l' => self.sort = Sort::Latency,
            b'd' => self.typing = Some(String::new()),
            #[cfg(debug_assertions)]
            PANIC => panic!("a panic was asked for, by a test of the terminal"),
            _ => {}
        }
        true
    }

    /// Disks that were used in the last second, the busiest first.
    pub fn rows(&self) -> Vec<Row> {
        let (Some(now), Some(then)) = (&self.now, &self.then) else { return Vec::new() };
        let span = Span::new(now.uptime_ns, Some(then.uptime_ns));
        let named = |dataset: &str| dataset.contains(&self.dataset);
        let each = now.disks.iter().filter(|disk| named(&disk.dataset)).map(|disk| {
            let same = |old: &&aquifer_api::DiskStat| {
                old.object == disk.object && old.fs_guid == disk.fs_guid
            };
            let old = then.disks.iter().find(same).filter(|_| span.goes_on);
            let flow = FlowPart::of(&disk.flow, old.map(|old| &old.flow));
            let mut both = Histogram::default();
            both.add(&flow.reads.latency);
            both.add(&flow.writes.latency);
            Row {
                dataset: disk.dataset.clone(),
                file: disk.file.clone(),
                reads_per_s: span.rate(flow.reads.count()),
                writes_per_s: span.rate(flow.writes.count()),
                read_bytes_per_s: span.rate(flow.reads.bytes),
                write_bytes_per_s: span.rate(flow.writes.bytes),
                mean_ns: both.mean_ns(),
                p99_ns: both.quantile_ns(990),
            }
        });
        let mut rows: Vec<Row> = each.filter(|row| row.ops() > 0).collect();
        rows.sort_by_key(|row| {
            Reverse(match self.sort {
                Sort::Ops => row.ops(),
                Sort::Bytes => row.bytes(),
                Sort::Latency => row.mean_ns,
            })
        });
        rows
    }

    /// For a reader that is no terminal.
    pub fn table(&self, output: Output) -> String {
        let names = ["DISK", ">OPS/S", ">R/S", ">W/S", ">R B/S", ">W B/S", ">MEAN", ">P99"];
        let mut table = Table::new(&names);
        for row in self.rows() {
            let name = row.name();
            let bytes = [row.read_bytes_per_s, row.write_bytes_per_s].map(|it| output.size(it));
            let times = [row.mean_ns, row.p99_ns].map(|ns| time(output, ns));
            let counts = [row.ops(), row.reads_per_s, row.writes_per_s].map(|it| it.to_string());
            let numbers = counts.into_iter().chain(bytes).chain(times);
            table.row(std::iter::once(name).chain(numbers).collect());
        }
        output.table(&table)
    }

    /// At most `rows` lines of at most `columns` characters.
    pub fn lines(&self, columns: usize, rows: usize) -> Vec<String> {
        let disks = self.rows();
        let sum = |of: fn(&Row) -> u64| disks.iter().map(of).fold(0, u64::saturating_add);
        let title = format!(
            "aquifer top: {} disks, {} ops/s, {}/s",
            disks.len(),
            sum(Row::ops),
            size::human(sum(Row::bytes))
        );
        let filter = match self.dataset.as_str() {
            "" => String::new(),
            text => format!(", datasets with {text:?}"),
        };
        let mut lines = vec![format!("{title}{filter}"), self.state()];
        let name_columns = columns.saturating_sub(NUMBERS).max(8);
        lines.push(line("DISK", name_columns, &HEADER.map(String::from)));
        for row in &disks {
            lines.push(line(&shown(&row.name()), name_columns, &row.numbers()));
        }
        if disks.is_empty() && self.then.is_some() {
            lines.push("no disk was read or written in the last second".into());
        }
        lines.truncate(rows.saturating_sub(1));
        let keys = match &self.typing {
            Some(typing) => format!("datasets with: {typing}_   (Enter: show, Esc: as before)"),
            None => "o ops  b bytes  l latency: sort   d datasets: filter   q quit".to_string(),
        };
        lines.resize(rows.saturating_sub(1), String::new());
        lines.push(keys);
        lines.iter().map(|line| line.chars().take(columns).collect()).collect()
    }

    fn state(&self) -> String {
        let by = match self.sort {
            Sort::Ops => "operations",
            Sort::Bytes => "bytes",
            Sort::Latency => "mean time",
        };
        match (&self.problem, &self.then) {
            (Some(why), _) => format!("no answer: {}", shown(why)),
            (None, None) => "the first second is counted ...".into(),
            (None, Some(_)) => format!("by {by}"),
        }
    }
}

impl Row {
    /// As other commands take it.
    fn name(&self) -> String {
        format!("{}:{}", self.dataset, self.file.trim_start_matches('/'))
    }

    fn ops(&self) -> u64 {
        self.reads_per_s.saturating_add(self.writes_per_s)
    }

    fn bytes(&self) -> u64 {
        self.read_bytes_per_s.saturating_add(self.write_bytes_per_s)
    }

    fn numbers(&self) -> [String; 7] {
        let people = Output { json: false, script: false, exact: false, colour: false };
        let count = |count: u64| match count {
            0..100_000 => count.to_string(),
            _ => format!("{}K", count / 1000),
        };
        [
            count(self.ops()),
            count(self.reads_per_s),
            count(self.writes_per_s),
            size::human(self.read_bytes_per_s),
            size::human(self.write_bytes_per_s),
            time(people, self.mean_ns),
            time(people, self.p99_ns),
        ]
    }
}

/// A line: a name, of which the end counts, and numbers.
fn line(name: &str, name_columns: usize, numbers: &[String; 7]) -> String {
    let length = name.chars().count();
    let mut text = match length.checked_sub(name_columns) {
        None | Some(0) => format!("{name:<name_columns$}"),
        Some(more) => format!("~{}", name.chars().skip(more + 1).collect::<String>()),
    };
    for number in numbers {
        text.push_str(&format!(" {number:>WIDTH$}"));
    }
    text
}

const HEADER: [&str; 7] = ["OPS/S", "R/S", "W/S", "R B/S", "W B/S", "MEAN", "P99"];
/// Columns of a number.
const WIDTH: usize = 6;
/// Columns of all numbers, with a space before each.
const NUMBERS: usize = HEADER.len() * (WIDTH + 1);
const FILTER_BYTES: usize = 64;
const CTRL_C: u8 = 3;
const BACKSPACE: u8 = 8;
const ESCAPE: u8 = 27;
const DELETE: u8 = 127;
/// Ctrl-P.
#[cfg(debug_assertions)]
const PANIC: u8 = 16;

#[cfg(test)]
mod tests;
