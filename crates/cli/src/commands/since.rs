//! Rates: the difference between two answers, and its text.

use std::time::Duration;

use aquifer_api::{Count, Flow};
use aquifer_meter::Histogram;

use super::Output;

/// The time that an answer covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    ns: u64,
    /// Whether the earlier answer counts: it does not if the counters restarted since.
    pub goes_on: bool,
}

/// One kind of operations in a span.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub bytes: u64,
    pub latency: Histogram,
}

/// Transfers in a span.
#[derive(Debug, Clone, Default)]
pub(super) struct FlowPart {
    pub reads: Part,
    pub writes: Part,
    pub others: u64,
    pub others_ns: u64,
    pub errors: u64,
}

impl Span {
    /// From an answer made at `then` to one at `now`.
    pub fn new(now_ns: u64, then_ns: Option<u64>) -> Span {
        match then_ns.filter(|then| *then < now_ns) {
            Some(then) => Span { ns: now_ns - then, goes_on: true },
            None => Span { ns: now_ns, goes_on: false },
        }
    }

    /// A count in the span, for each second.
    pub fn rate(self, count: u64) -> u64 {
        let rate = u128::from(count) * 1_000_000_000 / u128::from(self.ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// As [`Span::rate`], with one decimal for small values.
    pub fn rate_text(self, output: Output, count: u64) -> String {
        text_of(output, self.rate(count), || self.rate(count.saturating_mul(10)))
    }
}

/// A count in so many seconds, for each second: with one decimal for small values.
pub(super) fn rate_text(output: Output, count: u64, seconds: u64) -> String {
    let seconds = seconds.max(1);
    text_of(output, count / seconds, || count.saturating_mul(10) / seconds)
}

fn text_of(output: Output, rate: u64, tenths: impl FnOnce() -> u64) -> String {
    match (output.exact, rate) {
        (false, rate @ 1000..) => thousands(rate),
        (false, 0..10) => {
            let tenths = tenths();
            format!("{}.{}", tenths / 10, tenths % 10)
        }
        (_, rate) => rate.to_string(),
    }
}

impl Part {
    pub fn of(now: &Count, then: Option<&Count>) -> Part {
        let latency = now.latency.histogram();
        match then {
            Some(then) if now.bytes >= then.bytes => Part {
                bytes: now.bytes - then.bytes,
                latency: latency.since(&then.latency.histogram()),
            },
            _ => Part { bytes: now.bytes, latency },
        }
    }

    pub fn count(&self) -> u64 {
        self.latency.count()
    }

    /// Mean and 99th percentile.
    pub fn times(&self, output: Output) -> [String; 2] {
        let of = |ns| if self.count() == 0 { "-".into() } else { time(output, ns) };
        [of(self.latency.mean_ns()), of(self.latency.quantile_ns(990))]
    }
}

impl FlowPart {
    pub fn of(now: &Flow, then: Option<&Flow>) -> FlowPart {
        let count = |now: u64, then: Option<u64>| now.checked_sub(then.unwrap_or(0)).unwrap_or(now);
        FlowPart {
            reads: Part::of(&now.reads, then.map(|then| &then.reads)),
            writes: Part::of(&now.writes, then.map(|then| &then.writes)),
            others: count(now.others, then.map(|then| then.others)),
            others_ns: count(now.others_ns, then.map(|then| then.others_ns)),
            errors: count(now.errors, then.map(|then| then.errors)),
        }
    }

    /// How busy it kept the server: the sum of the times that its calls were under way.
    pub fn busy_ns(&self) -> u64 {
        let streams = self.reads.latency.total_ns().saturating_add(self.writes.latency.total_ns());
        streams.saturating_add(self.others_ns)
    }

    pub fn calls(&self) -> u64 {
        self.reads.count() + self.writes.count() + self.others
    }
}

/// A time for people, with three significant digits; with `exact`, in nanoseconds.
pub(super) fn time(output: Output, ns: u64) -> String {
    if output.exact {
        return ns.to_string();
    }
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let whole = ns / unit;
    let hundredths = ns % unit * 100 / unit;
    match whole {
        0..10 => format!("{whole}.{hundredths:02}{name}"),
        10..100 => format!("{whole}.{}{name}", hundredths / 10),
        _ => format!("{whole}{name}"),
    }
}

/// How long ago something began.
pub(super) fn age(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A count with K, M, G for powers of 1000.
fn thousands(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000_000 => (1_000, "K"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let whole = count / unit;
    let hundredths = count % unit * 100 / unit;
    match whole {
        0..10 => format!("{whole}.{hundredths:02}{name}"),
        10..100 => format!("{whole}.{}{name}", hundredths / 10),
        _ => format!("{whole}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEOPLE: Output = Output { json: false, script: false, exact: false, colour: false };
    const EXACT: Output = Output { json: false, script: true, exact: true, colour: false };

    #[test]
    fn times_and_rates_have_three_digits_that_count() {
        for (ns, text) in [
            (999, "999ns"),
            (1_000, "1.00us"),
            (45_678, "45.6us"),
            (1_234_567, "1.23ms"),
            (999_999_999, "999ms"),
            (17_200_000_000, "17.2s"),
        ] {
            assert_eq!(time(PEOPLE, ns), text);
            assert_eq!(time(EXACT, ns), ns.to_string());
        }
        let span = Span::new(3_000_000_000, Some(1_000_000_000));
        let rate = |count| span.rate_text(PEOPLE, count);
        assert_eq!(
            [rate(0), rate(1), rate(2469), rate(1_000_000)],
            ["0.0", "0.5", "1.23K", "500K"]
        );
        assert_eq!(span.rate_text(EXACT, 2469), "1234");
    }

    #[test]
    fn counting_that_began_anew_counts_from_its_beginning() {
        assert!(!Span::new(5, Some(10)).goes_on);
        let count = |bytes, times: &[u64]| {
            let mut histogram = Histogram::default();
            times.iter().for_each(|ns| histogram.record(*ns));
            Count { bytes, latency: (&histogram).into() }
        };
        let (then, now) = (count(100, &[2000, 3000]), count(150, &[2000, 3000, 9000]));
        let part = Part::of(&now, Some(&then));
        assert_eq!((part.bytes, part.count(), part.latency.total_ns()), (50, 1, 9000));
        let part = Part::of(&then, Some(&now));
        assert_eq!((part.bytes, part.count(), part.latency.total_ns()), (100, 2, 5000));
    }
}
