//! Answers that repeat every few seconds: `iostat 1`, `nfsiostat 5 12`.
//!
//! As in `zpool iostat`, the first answer covers all the time since the start, each further one the
//! time since the last. The daemon's clock counts, not ours.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::Output;
use crate::failure::Failure;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// The time between two answers; `None`: only the first answer.
    pub interval: Option<Duration>,
    /// The number of answers; `None`: for ever.
    pub count: Option<u64>,
}

/// `[interval [count]]`, as typed.
///
/// # Errors
/// Words that are no interval or number.
pub(crate) fn times(words: &[String]) -> Result<Times, String> {
    let interval = |text: &String| {
        let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
        match Duration::try_from_secs_f64(seconds) {
            Ok(interval) if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) => Ok(interval),
            _ => Err(format!("{text:?} is no interval: from 0.1 to 86400 seconds")),
        }
    };
    let count = |text: &String| match text.parse::<u64>() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("{text:?} is no number of reports")),
    };
    match words {
        [] => Ok(Times { interval: None, count: Some(1) }),
        [every] => Ok(Times { interval: Some(interval(every)?), count: None }),
        [every, times] => {
            Ok(Times { interval: Some(interval(every)?), count: Some(count(times)?) })
        }
        [_, _, more, ..] => Err(format!("{more:?} is too much: there are an interval and a count")),
    }
}

/// Asks, and shows the changes since the last answer, as often as wanted. The reader of stdout may
/// go away: that is a normal end.
pub(super) async fn repeat<T: Serialize>(
    output: Output,
    times: Times,
    mut ask: impl AsyncFnMut() -> Result<T, Failure>,
    show: impl Fn(&T, Option<&T>) -> String,
) -> Result<(), Failure> {
    let mut last: Option<T> = None;
    let mut left = times.count;
    loop {
        let asked = tokio::time::Instant::now();
        let now = ask().await?;
        let text = match (output.json, times.interval) {
            (false, _) => show(&now, last.as_ref()),
            (true, None) => serde_json::to_string_pretty(&now).map_err(Failure::failed)? + "\n",
            // One line each, so that a program can separate answers.
            (true, Some(_)) => serde_json::to_string(&now).map_err(Failure::failed)? + "\n",
        };
        if !print_some(&text)? {
            return Ok(());
        }
        last = Some(now);
        left = left.map(|left| left - 1);
        match times.interval.filter(|_| left != Some(0)) {
            Some(interval) => tokio::time::sleep_until(asked + interval).await,
            None => return Ok(()),
        }
    }
}

/// Writes to stdout at once. Returns whether anybody still reads it.
pub(super) fn print_some(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("cannot write the answer: {error}"))),
    }
}

const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
