//! Figures as a table: medians over the rounds, the spread beside them, ratios to the baseline.

use std::fmt::Write;

use crate::measure::Sample;
use crate::run::{OfWorkload, Results};
use crate::target::BASELINE;

/// Everything, for people.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    let [before, after] = &results.load_average;
    let mib = results.file_bytes >> 20;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "file of {mib} MiB, {} connection(s), load average {before} before and {after} after\n\
         medians; [least most] of ops/s; us in each quantile; cpu: the server's time per \
         operation; cores busy: server, generator, all others; x: ops/s to {BASELINE}'s",
        results.connections
    );
    for workload in &results.workloads {
        let _ = write!(out, "\n{}", of_workload(workload));
    }
    if !results.idle.is_empty() {
        let _ = writeln!(out, "\nidle-1000: memory of idle connections");
        for (name, idle) in &results.idle {
            let Some(idle) = idle else { continue };
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let _ = writeln!(
                out,
                "  {name:<16} {:.1} KiB each ({:.1} -> {:.1} MiB)",
                idle.kib_each(),
                mib(idle.before_bytes),
                mib(idle.with_bytes)
            );
        }
    }
    for (name, why) in &results.failures {
        let _ = writeln!(out, "\nFAILED {name}: {why}");
    }
    out
}

fn of_workload(workload: &OfWorkload) -> String {
    let mut out = format!("{}: {}\n", workload.name, workload.what);
    let _ = writeln!(
        out,
        "  {:<16} {:>8} {:>17} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7}  {:<14} {:>6}",
        "target",
        "ops/s",
        "[least most]",
        "MB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "cpu us",
        "cores",
        "x"
    );
    let baseline = workload
        .targets
        .iter()
        .find(|(name, samples)| name == BASELINE && !samples.is_empty())
        .map(|(_, samples)| median(samples, |sample| sample.ops_per_s));
    for (name, samples) in workload.targets.iter().filter(|(_, samples)| !samples.is_empty()) {
        let of = |figure: fn(&Sample) -> f64| median(samples, figure);
        let ops = of(|sample| sample.ops_per_s);
        let (least, most) = spread(samples, |sample| sample.ops_per_s);
        let cores = format!(
            "{:.2} {:.2} {:.2}",
            of(|sample| sample.server_cores.unwrap_or(0.0)),
            of(|sample| sample.own_cores),
            of(|sample| sample.other_cores)
        );
        let ratio = baseline.map_or("-".into(), |baseline| format!("{:.2}", ops / baseline));
        let _ = writeln!(
            out,
            "  {name:<16} {ops:>8.0} {:>17} {:>7.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>7.1}  \
             {cores:<14} {ratio:>6}",
            format!("[{least:.0} {most:.0}]"),
            of(|sample| sample.mb_per_s),
            of(|sample| sample.latency.p50_us),
            of(|sample| sample.latency.p99_us),
            of(|sample| sample.latency.p999_us),
            of(|sample| sample.latency.max_us),
            of(|sample| sample.server_us_per_op.unwrap_or(0.0)),
        );
        if samples.iter().any(|sample| sample.commit.is_some()) {
            let commit = |figure: fn(&crate::measure::Latency) -> f64| {
                let of = |sample: &Sample| sample.commit.as_ref().map_or(0.0, figure);
                median(samples, of)
            };
            let _ = writeln!(
                out,
                "  {:<16} p50 {:.0} us, max {:.0} us",
                "    its COMMITs",
                commit(|latency| latency.p50_us),
                commit(|latency| latency.max_us)
            );
        }
    }
    out
}

/// The middle one; of an even number, the mean of the two.
fn median(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    let mut figures: Vec<f64> = samples.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(0.0);
    f64::midpoint(at(figures.len() / 2), at(figures.len().saturating_sub(1) / 2))
}

fn spread(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> (f64, f64) {
    let figures = || samples.iter().map(&figure);
    (figures().fold(f64::INFINITY, f64::min), figures().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(ops: &[f64]) -> Vec<Sample> {
        ops.iter().map(|ops| Sample { ops_per_s: *ops, ..Sample::default() }).collect()
    }

    #[test]
    fn medians_spread_and_ratio() {
        let of = |ops: &[f64]| median(&samples(ops), |sample| sample.ops_per_s);
        assert_eq!((of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        let targets = vec![
            ("aquifer".to_owned(), samples(&[30.0, 10.0, 20.0])),
            (BASELINE.to_owned(), samples(&[40.0, 40.0, 50.0])),
            ("null".to_owned(), Vec::new()),
        ];
        let text = of_workload(&OfWorkload { name: "w".into(), what: "what".into(), targets });
        let row = text.lines().find(|line| line.contains("aquifer")).unwrap();
        assert!(row.contains("[10 30]") && row.trim_end().ends_with("0.50"), "{text}");
        assert!(!text.contains("null"), "{text}");
    }
}
