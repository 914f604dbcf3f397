//! One measurement: a workload on a target for some seconds, and its cost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Result;
use crate::load::{Life, Mix, Plan, Tally};
use crate::system::Usage;
use crate::target::Target;

/// The measurements of one window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds of the window.
    pub seconds: f64,
    /// GETATTRs, READs and WRITEs answered in it.
    pub ops: u64,
    /// GETATTRs, READs and WRITEs answered per second.
    pub ops_per_s: f64,
    /// Payload in 10^6 bytes per second.
    pub mb_per_s: f64,
    /// Time of a call.
    pub latency: Latency,
    /// Time of a COMMIT, if there were any.
    pub commit: Option<Latency>,
    /// Processor time of the server's process per operation, in microseconds.
    pub server_us_per_op: Option<f64>,
    /// Processors that the server's process kept busy.
    pub server_cores: Option<f64>,
    /// Processors that the generator kept busy.
    pub own_cores: f64,
    /// Processors that all others kept busy: the kernel's threads and disks, and other programs.
    pub other_cores: f64,
    /// Processors that the server's threads kept busy, by name.
    pub threads: Vec<(String, f64)>,
    /// Longest time without any operation answered, in whole milliseconds.
    pub gap_ms: u64,
    /// Operations per second in each 10 seconds of the window, if it has two or more of them.
    pub rates: Vec<f64>,
}

/// Quantiles in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// Number of calls.
    pub count: u64,
    /// A tenth were faster than this.
    pub p10_us: f64,
    /// Half were faster than this.
    pub p50_us: f64,
    /// 99 of 100 were faster than this.
    pub p99_us: f64,
    /// 999 of 1000 were faster than this.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// The quantiles of a histogram.
    #[must_use]
    pub fn of(nanoseconds: &Histogram<u64>) -> Self {
        let at = |quantile| micros(nanoseconds.value_at_quantile(quantile));
        Latency {
            count: nanoseconds.len(),
            p10_us: at(0.1),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(nanoseconds.max()),
        }
    }
}

/// Measures, with slow disks slow if the target has some. Afterwards, with the disks fast again, it
/// reads and compares all written data. It then waits for the server to come to rest, for some
/// seconds at most.
///
/// # Errors
/// [`crate::Error::Mismatch`] if the server is wrong; its errors.
pub fn sample(
    target: &mut Target,
    plan: &Plan,
    connections: usize,
    length: Duration,
) -> Result<Sample> {
    target.throttle(true)?;
    let from = Instant::now() + target.warm_up();
    let until = from + length;
    let mut usages = Vec::new();
    let tally = target.pass(plan, connections, Life::Window { from, until }, &mut |pid| {
        for moment in [from, until] {
            std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            usages.push(Usage::now(pid)?);
        }
        Ok(())
    })?;
    target.throttle(false)?;
    let writes = matches!(plan.mix, Mix::Data { read_percent } if read_percent < 100);
    if writes {
        target.compare()?;
    }
    rest(target)?;
    let has_process = target.pid()?.is_some();
    Ok(match usages.as_slice() {
        [before, after] => summary(plan, length, &tally, (before, after), has_process),
        _ => Sample::default(),
    })
}

fn summary(
    plan: &Plan,
    length: Duration,
    tally: &Tally,
    (before, after): (&Usage, &Usage),
    has_process: bool,
) -> Sample {
    let mut all = tally.getattrs.clone();
    all += &tally.reads;
    all += &tally.writes;
    let seconds = length.as_secs_f64();
    let payload = (tally.reads.len() + tally.writes.len()) * u64::from(plan.bytes);
    let server = after.process.saturating_sub(before.process);
    let own = after.own.saturating_sub(before.own);
    let others = after.machine.saturating_sub(before.machine).saturating_sub(server + own);
    let cores = |time: Duration| time.as_secs_f64() / seconds;
    let per_op = server.as_secs_f64() * 1e6 / (all.len().max(1) as f64);
    let threads = after.threads_since(before).into_iter();
    Sample {
        seconds,
        ops: all.len(),
        ops_per_s: all.len() as f64 / seconds,
        mb_per_s: payload as f64 / 1e6 / seconds,
        latency: Latency::of(&all),
        commit: (!tally.commits.is_empty()).then(|| Latency::of(&tally.commits)),
        server_us_per_op: has_process.then_some(per_op),
        server_cores: has_process.then(|| cores(server)),
        own_cores: cores(own),
        other_cores: cores(others),
        threads: threads.map(|(name, time)| (name, cores(time))).collect(),
        gap_ms: longest_gap(&tally.timeline),
        rates: rates(&tally.timeline),
    }
}

/// Longest run of milliseconds without an operation.
fn longest_gap(timeline: &[u32]) -> u64 {
    let gaps = timeline.split(|ops| *ops > 0).map(<[u32]>::len);
    gaps.max().unwrap_or(0) as u64
}

/// The rate in each whole part of 10 s, if there are two or more.
fn rates(timeline: &[u32]) -> Vec<f64> {
    let parts = timeline.chunks_exact(RATE_MS);
    let sums = parts.map(|part| part.iter().map(|ops| f64::from(*ops)).sum::<f64>());
    let rates: Vec<f64> = sums.map(|ops| ops * 1e3 / RATE_MS as f64).collect();
    if rates.len() < 2 { Vec::new() } else { rates }
}

/// Waits until the server does almost nothing, so that its remaining work does not burden the next
/// target.
pub(crate) fn rest(target: &Target) -> Result<()> {
    let Some(pid) = target.pid()? else { return Ok(()) };
    let begun = Instant::now();
    while begun.elapsed() < REST_MAX {
        let before = Usage::now(Some(pid))?.process;
        std::thread::sleep(REST_LOOK);
        if Usage::now(Some(pid))?.process.saturating_sub(before) < REST_LOOK / 10 {
            break;
        }
    }
    Ok(())
}

fn micros(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

const RATE_MS: usize = 10_000;
const REST_LOOK: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_rates() {
        assert_eq!(longest_gap(&[0, 0, 1, 0, 5, 0, 0, 0]), 3);
        assert_eq!((longest_gap(&[2, 1]), longest_gap(&[])), (0, 0));
        let mut timeline = vec![1; 2 * RATE_MS + 1];
        timeline.iter_mut().skip(RATE_MS).for_each(|ops| *ops = 3);
        assert_eq!(rates(&timeline), [1000.0, 3000.0]);
        assert!(rates(&timeline[2..]).is_empty());
    }
}
