//! The figures, the limits, and the table for people.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Results;

/// The factor by which the 99th percentile of the host's calls may grow.
pub const P99_RATIO_MAX: f64 = 2.0;
/// Most lines that the log may grow by within a minute.
pub const LOG_LINES_MAX: u64 = 100;
/// Longest time of an answer of the API, in milliseconds.
pub const API_MS_MAX: f64 = 100.0;

/// Longest time of an act of the administrator's, in milliseconds.
pub const ACT_MS_MAX: f64 = 1000.0;

/// Longest time of a new connection of the host and its first call, in milliseconds.
pub const MOUNT_MS_MAX: f64 = 1000.0;

/// Percentiles of a set of times.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// The number of times.
    pub count: u64,
    /// The 50th percentile, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest time.
    pub max_us: f64,
}

impl Percentiles {
    pub(super) fn of(times: &Histogram<u64>) -> Self {
        let at = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
        let max_us = times.max() as f64 / 1e3;
        Percentiles { count: times.len(), p50_us: at(0.5), p99_us: at(0.99), max_us }
    }
}

/// The figures of a phase.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The attack, or `calm`.
    pub name: String,
    /// A description for people.
    pub what: String,
    /// The attack is the control: no limit applies.
    pub is_control: bool,
    /// Connections, calls and datagrams of the attackers per second.
    pub sent_per_s: f64,
    /// Those of them that were admitted or answered, whatever the answer.
    pub answered_per_s: f64,
    /// Calls of the host that were answered per second.
    pub calls_per_s: f64,
    /// Repeated calls of the host: its connection was closed, or a call refused.
    pub calls_again: u64,
    /// The host's READs.
    pub reads: Percentiles,
    /// The host's WRITEs.
    pub writes: Percentiles,
    /// The smallest number of the host's locks that held, at any look.
    pub locks_held: usize,
    /// New locks that the host asked for.
    pub new_locks: u64,
    /// Those of them that were refused.
    pub new_locks_refused: u64,
    /// Most resident memory of the daemon.
    pub resident_bytes: u64,
    /// Most connections to NFS.
    pub connections_most: u64,
    /// Lines of the daemon's log in the minute with most.
    pub log_lines_in_worst_minute: u64,
    /// Answers of the API over its Unix socket.
    pub api_local: Percentiles,
    /// Answers of the API over TCP, from connect to close, TLS included.
    pub api_remote: Percentiles,
    /// Requests to the API without a good answer.
    pub api_failed: u64,
    /// Acts of the administrator's over the Unix socket.
    pub acts: Percentiles,
    /// Those of them that came to nothing.
    pub acts_failed: u64,
    /// New connections of the host's, with the answer to a call.
    pub mounts: Percentiles,
    /// Those of them that came to nothing.
    pub mounts_failed: u64,
    /// Things that the administrator had made and that were gone in the end: snapshots, lines of
    /// the history.
    pub missing: Vec<String>,
    /// Processors that the daemon kept busy.
    pub server_cores: f64,
    /// Processors that this program kept busy: attackers, host and watchers.
    pub own_cores: f64,
}

impl Figures {
    /// The 99th percentiles of reads and writes.
    pub(super) fn p99_us(&self) -> (f64, f64) {
        (self.reads.p99_us, self.writes.p99_us)
    }

    /// The ratios of the 99th percentiles of reads and writes to those of `calm`.
    #[must_use]
    pub fn ratios(&self, calm: &Figures) -> (f64, f64) {
        let ratio = |with: f64, without: f64| with / without.max(0.001);
        let ((reads, writes), without) = (self.p99_us(), calm.p99_us());
        (ratio(reads, without.0), ratio(writes, without.1))
    }

    /// The slowest answer of the API, in milliseconds.
    #[must_use]
    pub fn api_slowest_ms(&self) -> f64 {
        self.api_local.max_us.max(self.api_remote.max_us) / 1e3
    }
}

/// A limit that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The attack that broke it.
    pub attack: String,
    /// The limit, and by how much it was broken.
    pub what: String,
}

/// Compares the figures with the limits.
#[must_use]
pub fn judge(results: &Results) -> Vec<Broken> {
    let mut broken = Vec::new();
    for with in results.attacks.iter().filter(|with| !with.is_control) {
        let mut is_broken = |what: String| {
            broken.push(Broken { attack: with.name.clone(), what });
        };
        let (reads, writes) = with.ratios(&results.calm);
        for (calls, ratio) in [("reads", reads), ("writes", writes)] {
            if ratio > P99_RATIO_MAX {
                let most = P99_RATIO_MAX;
                is_broken(format!("p99 of {calls} is {ratio:.2} x that of calm, above {most}"));
            }
        }
        if with.locks_held < results.locks {
            is_broken(format!("{} of {} locks held", with.locks_held, results.locks));
        }
        if with.new_locks_refused > 0 {
            let (refused, asked) = (with.new_locks_refused, with.new_locks);
            is_broken(format!("{refused} of {asked} new locks were refused to the host"));
        }
        if with.resident_bytes > results.promised_bytes {
            let (took, promised) = (mib(with.resident_bytes), mib(results.promised_bytes));
            is_broken(format!("the daemon took {took} MiB, above {promised}"));
        }
        if with.log_lines_in_worst_minute > LOG_LINES_MAX {
            let lines = with.log_lines_in_worst_minute;
            is_broken(format!("{lines} lines of the log in a minute, above {LOG_LINES_MAX}"));
        }
        if with.api_slowest_ms() > API_MS_MAX {
            let took = with.api_slowest_ms();
            is_broken(format!("an answer of the API took {took:.0} ms, above {API_MS_MAX}"));
        }
        if with.api_failed > 0 {
            is_broken(format!("{} requests to the API came to nothing", with.api_failed));
        }
        let act_ms = with.acts.max_us / 1e3;
        if act_ms > ACT_MS_MAX {
            is_broken(format!("an act took {act_ms:.0} ms, above {ACT_MS_MAX}"));
        }
        if with.acts_failed > 0 {
            is_broken(format!("{} acts came to nothing", with.acts_failed));
        }
        let mount_ms = with.mounts.max_us / 1e3;
        if mount_ms > MOUNT_MS_MAX {
            is_broken(format!("a new connection took {mount_ms:.0} ms, above {MOUNT_MS_MAX}"));
        }
        if with.mounts_failed > 0 {
            let (failed, all) = (with.mounts_failed, with.mounts.count);
            is_broken(format!("{failed} of {all} new connections of the host came to nothing"));
        }
        if !with.missing.is_empty() {
            is_broken(format!("gone: {}", with.missing.join(", ")));
        }
    }
    broken
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// The whole report, for people.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    let [before, after] = &results.load_average;
    let spread = |of: fn(&(f64, f64)) -> f64| {
        let all = results.calms_p99_us.iter().map(of);
        let least = all.clone().fold(f64::INFINITY, f64::min);
        format!("{least:.0}..{:.0}", all.fold(0.0, f64::max))
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{:.0} s each; load average {before} before and {after} after\n\
         sent, answered: by attackers and to them, per second; p99 of the host's calls in us, x: \
         to calm ({} reads and {} writes in its parts);\nlocks: held of {}, new ones refused; \
         MiB: resident, at most {}; lines: of the log in the worst minute; api: p99 and slowest \
         in ms,\nby socket and by TCP; act, mount: slowest in ms; cores busy: daemon, \
         generator\n\n{HEAD}",
        results.seconds,
        spread(|calm| calm.0),
        spread(|calm| calm.1),
        results.locks,
        mib(results.promised_bytes),
    );
    for figures in std::iter::once(&results.calm).chain(&results.attacks) {
        let (reads, writes) = figures.ratios(&results.calm);
        let (local, remote) = (figures.api_local, figures.api_remote);
        let _ = writeln!(
            out,
            "{:<10} {:>7.0} {:>8.0} {:>6.0} {:>5.2} {:>7.0} {:>5.2} {:>5} {:>3} {:>5} {:>5} {:>5} \
             {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>5.2} {:>5.2}",
            figures.name,
            figures.sent_per_s,
            figures.answered_per_s,
            figures.reads.p99_us,
            reads,
            figures.writes.p99_us,
            writes,
            figures.locks_held,
            figures.new_locks_refused,
            mib(figures.resident_bytes),
            figures.connections_most,
            figures.log_lines_in_worst_minute,
            local.p99_us / 1e3,
            local.max_us / 1e3,
            remote.p99_us / 1e3,
            remote.max_us / 1e3,
            figures.acts.max_us / 1e3,
            figures.mounts.max_us / 1e3,
            figures.server_cores,
            figures.own_cores,
        );
    }
    for Broken { attack, what } in &results.broken {
        let _ = writeln!(out, "\nBROKEN {attack}: {what}");
    }
    if results.broken.is_empty() {
        let _ = writeln!(out, "\nall limits hold");
    }
    out
}

const HEAD: &str = "attack        sent answered  reads     x  writes     x locks new   MiB conns \
                    lines  api local    api remote       act  mount daemon  own";

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(name: &str) -> Figures {
        let times = |p99_us| Percentiles { p99_us, ..Percentiles::default() };
        let (reads, writes) = (times(200.0), times(1000.0));
        Figures { name: name.into(), reads, writes, locks_held: 8, ..Figures::default() }
    }

    fn broken_by(change: impl Fn(&mut Figures)) -> Vec<String> {
        let mut with = figures("with");
        change(&mut with);
        let results = Results {
            seconds: 300.0,
            locks: 8,
            promised_bytes: 400 << 20,
            load_average: ["0.1".into(), "0.2".into()],
            calm: figures("calm"),
            calms_p99_us: vec![(190.0, 900.0), (210.0, 1100.0)],
            attacks: vec![with],
            broken: Vec::new(),
        };
        let broken = judge(&results);
        let shown = text(&Results { broken: broken.clone(), ..results });
        assert!(shown.contains("190..210 reads and 900..1100 writes"), "{shown}");
        assert_eq!(shown.contains("all limits hold"), broken.is_empty(), "{shown}");
        assert!(broken.iter().all(|broken| shown.contains(&broken.what)), "{shown}");
        broken.into_iter().map(|broken| broken.what).collect()
    }

    #[test]
    fn each_limit_holds_up_to_its_end_and_no_further() {
        assert!(broken_by(|_| {}).is_empty());
        let holds = broken_by(|with| {
            with.reads.p99_us = 400.0;
            with.writes.p99_us = 2000.0;
            with.resident_bytes = 400 << 20;
            with.log_lines_in_worst_minute = 100;
            with.api_local.max_us = 100_000.0;
        });
        assert!(holds.is_empty(), "{holds:?}");
        let one = |change: &dyn Fn(&mut Figures), said: &str| {
            let broken = broken_by(change);
            assert!(broken.len() == 1 && broken[0].starts_with(said), "{broken:?}");
        };
        one(&|with| with.reads.p99_us = 402.0, "p99 of reads is 2.01 x");
        one(&|with| with.writes.p99_us = 2100.0, "p99 of writes is 2.10 x");
        one(&|with| with.locks_held = 7, "7 of 8 locks held");
        one(&|with| with.new_locks_refused = 1, "1 of 0 new locks were refused");
        one(&|with| with.resident_bytes = 401 << 20, "the daemon took 401 MiB, above 400");
        one(&|with| with.log_lines_in_worst_minute = 101, "101 lines of the log");
        one(&|with| with.api_remote.max_us = 101_000.0, "an answer of the API took 101 ms");
        one(&|with| with.api_failed = 2, "2 requests to the API");
        one(&|with| with.acts.max_us = 1_001_000.0, "an act took 1001 ms");
        one(&|with| with.acts_failed = 3, "3 acts");
        one(&|with| with.mounts.max_us = 1_001_000.0, "a new connection took 1001 ms");
        one(&|with| with.mounts_failed = 4, "4 of 0 new connections of the host");
        one(&|with| with.missing = vec!["snapshot a@b".into()], "gone: snapshot a@b");
    }

    #[test]
    fn the_counterproof_breaks_no_limit() {
        let broken = broken_by(|with| {
            with.is_control = true;
            with.reads.p99_us = 10_000.0;
        });
        assert!(broken.is_empty(), "{broken:?}");
    }
}
