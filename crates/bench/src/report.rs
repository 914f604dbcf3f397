//! The figures as a table: medians over the rounds, their spread, and ratios to the baseline.

use std::fmt::Write;

use crate::depth1::{Depth1, RAW, WHAT};
use crate::measure::Latency;
use crate::measure::Sample;
use crate::restart::Restart;
use crate::run::{OfWorkload, Results};

/// The whole report, for people.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    let [before, after] = &results.load_average;
    let mib = results.file_bytes >> 20;
    let connections = results.connections.map(|count| format!("{count} connection(s), "));
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "file of {mib} MiB, {}load average {before} before and {after} after\n\
         medians; [least most] of ops/s; us in each quantile; cpu: the server's time per \
         operation; cores busy: server, generator, all others; x: ops/s to those of {}",
        connections.unwrap_or_default(),
        results.baselines.join(" and ")
    );
    for (name, probes) in &results.probes {
        for probe in probes {
            let _ = writeln!(out, "{name}: {probe}");
        }
    }
    for workload in &results.workloads {
        let _ = write!(out, "\n{}", of_workload(workload, &results.baselines));
    }
    out.push_str(&of_depth1(&results.depth1));
    out.push_str(&of_restart(&results.restart));
    if !results.idle.is_empty() {
        let _ = writeln!(
            out,
            "\nidle: memory of idle connections, and what a client that comes then waits"
        );
        for (name, idle) in &results.idle {
            let Some(idle) = idle else { continue };
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let _ = writeln!(
                out,
                "  {name:<16} {} connections: {:.1} KiB each ({:.1} -> {:.1} MiB); {:.1} ms",
                idle.connections,
                idle.kib_each(),
                mib(idle.before_bytes),
                mib(idle.with_bytes),
                idle.newcomer_ms
            );
        }
    }
    for (name, why) in &results.left_out {
        let _ = writeln!(out, "\nleft out {name}: {why}");
    }
    for (name, why) in &results.failures {
        let _ = writeln!(out, "\nFAILED {name}: {why}");
    }
    out
}

fn of_workload(workload: &OfWorkload, baselines: &[String]) -> String {
    let mut out = format!("{}: {}\n", workload.name, workload.what);
    let _ = writeln!(
        out,
        "  {:<23} {:>8} {:>17} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}  {:<14} {:>6}",
        "target",
        "ops/s",
        "[least most]",
        "MB/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "gap ms",
        "cpu us",
        "cores",
        "x"
    );
    let of_baseline = |baseline: &String| {
        let named =
            |(name, samples): &&(String, Vec<Sample>)| name == baseline && !samples.is_empty();
        let found = workload.targets.iter().find(named);
        found.map(|(_, samples)| median(samples, |sample| sample.ops_per_s))
    };
    let baselines: Vec<Option<f64>> = baselines.iter().map(of_baseline).collect();
    for (name, samples) in workload.targets.iter().filter(|(_, samples)| !samples.is_empty()) {
        out.push_str(&of_target(name, samples, &baselines));
    }
    out
}

/// A target under one workload, and its ratios to the baselines in operations a second.
fn of_target(name: &str, samples: &[Sample], baselines: &[Option<f64>]) -> String {
    let mut out = String::new();
    let of = |figure: fn(&Sample) -> f64| median(samples, figure);
    let ops = of(|sample| sample.ops_per_s);
    let (least, most) = spread(samples, |sample| sample.ops_per_s);
    let cores = format!(
        "{:.2} {:.2} {:.2}",
        of(|sample| sample.server_cores.unwrap_or(0.0)),
        of(|sample| sample.own_cores),
        of(|sample| sample.other_cores)
    );
    let ratios = baselines.iter().map(|baseline| {
        let ratio = baseline.map_or("-".into(), |baseline| format!("{:.2}", ops / baseline));
        format!("{ratio:>6} ")
    });
    let ratios: String = ratios.collect();
    let _ = writeln!(
        out,
        "  {name:<23} {ops:>8.0} {:>17} {:>7.1} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>7.0} \
         {:>7.1}  {cores:<14} {}",
        format!("[{least:.0} {most:.0}]"),
        of(|sample| sample.mb_per_s),
        of(|sample| sample.latency.p50_us),
        of(|sample| sample.latency.p99_us),
        of(|sample| sample.latency.p999_us),
        of(|sample| sample.latency.max_us),
        of(|sample| sample.gap_ms as f64),
        of(|sample| sample.server_us_per_op.unwrap_or(0.0)),
        ratios.trim_end(),
    );
    for sample in samples.iter().filter(|sample| !sample.rates.is_empty()) {
        out.push_str(&of_minutes(sample));
    }
    if samples.iter().any(|sample| sample.commit.is_some()) {
        let commit = |figure: fn(&crate::measure::Latency) -> f64| {
            let of = |sample: &Sample| sample.commit.as_ref().map_or(0.0, figure);
            median(samples, of)
        };
        let _ = writeln!(
            out,
            "  {:<23} p50 {:.0} us, max {:.0} us",
            "    its COMMITs",
            commit(|latency| latency.p50_us),
            commit(|latency| latency.max_us)
        );
    }
    out
}

/// The rates over time.
fn of_minutes(sample: &Sample) -> String {
    let rates: Vec<String> = sample.rates.iter().map(|rate| format!("{rate:.0}")).collect();
    let ratio = sample.latency.p999_us / sample.latency.p50_us.max(f64::MIN_POSITIVE);
    format!(
        "    p99.9/p50 {ratio:.1}; longest time without an answer {} ms; ops/s in each 10 s:\n    \
         {}\n",
        sample.gap_ms,
        rates.join(" ")
    )
}

/// Latencies beside those of the disk alone.
fn of_depth1(all: &[Depth1]) -> String {
    let mut out = String::new();
    let Some(raw) = all.iter().find(|of| of.name == RAW) else { return out };
    let _ = writeln!(
        out,
        "\n{}: {WHAT}\n  us; x: p10 and p50 to those of the disk by itself, where it ran likewise",
        crate::workload::DEPTH1
    );
    for (place, of_place) in [("one core", Depth1::pinned as OfPlace), ("any core", Depth1::free)] {
        let _ = writeln!(
            out,
            "  {place:<23} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}",
            "p10", "p50", "p99", "p99.9", "x p10", "x p50"
        );
        for of in all {
            let at = |figure: fn(&Latency) -> f64, of: &Depth1| {
                middle(of_place(of).iter().map(figure).collect())
            };
            let (p10, p50) = (at(|it| it.p10_us, of), at(|it| it.p50_us, of));
            let _ = writeln!(
                out,
                "  {:<23} {p10:>8.0} {p50:>8.0} {:>8.0} {:>8.0} {:>7.2} {:>7.2}",
                of.name,
                at(|it| it.p99_us, of),
                at(|it| it.p999_us, of),
                p10 / at(|it| it.p10_us, raw),
                p50 / at(|it| it.p50_us, raw),
            );
        }
    }
    out
}

/// How long clients waited after kills.
fn of_restart(all: &[Restart]) -> String {
    let mut out = String::new();
    if all.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n{}: {}", crate::workload::RESTART, crate::restart::WHAT);
    for of in all {
        let least = of.answered_ms.iter().copied().fold(f64::INFINITY, f64::min);
        let most = of.answered_ms.iter().copied().fold(0.0, f64::max);
        let batches: Vec<String> = of.batches.iter().map(u64::to_string).collect();
        let _ = writeln!(
            out,
            "  {:<23} {:>8.0} ms [{least:.0} {most:.0}]; batches {}",
            of.name,
            middle(of.answered_ms.clone()),
            batches.join(" ")
        );
    }
    out
}

type OfPlace = fn(&Depth1) -> &[Latency];

/// The median; of an even number, the mean of the middle two.
fn median(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    middle(samples.iter().map(figure).collect())
}

fn middle(mut figures: Vec<f64>) -> f64 {
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
            ("peer".to_owned(), samples(&[40.0, 40.0, 50.0])),
            ("null".to_owned(), Vec::new()),
        ];
        let workload = OfWorkload { name: "w".into(), what: "what".into(), targets };
        let text = of_workload(&workload, &["null".into(), "peer".into()]);
        let row = text.lines().find(|line| line.contains("aquifer")).unwrap();
        assert!(row.contains("[10 30]") && row.ends_with("     -   0.50"), "{text}");
        assert!(!text.contains("null"), "{text}");
    }

    #[test]
    fn minutes_and_one_outstanding() {
        let latency = Latency { p50_us: 100.0, p999_us: 1500.0, ..Latency::default() };
        let rates = vec![50.0, 70.0];
        let sample = Sample { latency, gap_ms: 700, rates, ..Sample::default() };
        let text = of_minutes(&sample);
        assert!(text.contains("p99.9/p50 15.0; ") && text.contains(" 700 ms;"), "{text}");
        assert!(text.ends_with("\n    50 70\n"), "{text}");

        let of = |name: &str, pinned: [f64; 3], free: f64| {
            let latency = |p50_us| Latency { p10_us: 50.0, p50_us, ..Latency::default() };
            let pinned = pinned.map(latency).to_vec();
            Depth1 { name: name.into(), pinned, free: vec![latency(free)] }
        };
        let text = of_depth1(&[of(RAW, [90.0, 110.0, 100.0], 80.0), of("a", [130.0; 3], 200.0)]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  a ")).collect();
        let [pinned, free] = rows[..] else { panic!("{text}") };
        assert!(pinned.ends_with("   1.00    1.30") && free.ends_with("   1.00    2.50"), "{text}");
        assert_eq!(of_depth1(&[]), "");
    }
}
