//! `aquifer pool scrub`, and the line of the status about it.

use aquifer_api::client::Client;
use aquifer_api::{ScrubAct, ScrubInfo, ScrubRequest, ScrubState, time};

use super::Output;
use super::pool::percent;
use super::progress::{LOOK_EVERY, Progress, Unit, Work, span};
use crate::failure::Failure;

/// What the options ask for.
pub(super) fn act(pause: bool, stop: bool) -> ScrubAct {
    match (pause, stop) {
        (true, _) => ScrubAct::Pause,
        (_, true) => ScrubAct::Stop,
        _ => ScrubAct::Start,
    }
}

/// Begins, resumes, pauses or stops a scrub; and waits for its end.
pub(super) async fn scrub(
    client: &Client,
    output: Output,
    name: &str,
    act: ScrubAct,
    wait: bool,
) -> Result<(), Failure> {
    let done = client.scrub_pool(name, &ScrubRequest { act }).await?;
    if !wait {
        return output.answer(&done, |_| String::new());
    }
    let ended = {
        let mut progress = Progress::new(output);
        loop {
            match client.pool(name).await?.scrub {
                Some(scrub) if scrub.state == ScrubState::Running => {
                    progress.show(&work(name, &scrub, output));
                }
                ended => break ended,
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let Some(ended) = ended else {
        return Err(Failure::failed(format!("{name}: has no scrub any more")));
    };
    output.answer(&ended, |ended| format!("{}\n", line(ended, output)))?;
    match (ended.state, ended.unreadable_blocks) {
        (ScrubState::Finished, 0) => Ok(()),
        (ScrubState::Finished, _) => Err(Failure::failed(format!(
            "some content could not be read from any disk; see `aquifer pool status {name}`"
        ))),
        _ => Err(Failure::failed("the scrub ended before it had examined everything")),
    }
}

/// How far a scrub is.
pub(super) fn work(name: &str, scrub: &ScrubInfo, output: Output) -> Work {
    Work {
        what: format!("scrub of {name}"),
        done: scrub.examined_bytes,
        total: Some(scrub.total_bytes),
        unit: Unit::Bytes,
        took_ms: scrub.active_ms,
        note: format!(
            "{} repaired, {} errors",
            output.size(scrub.repaired_bytes),
            scrub.unreadable_blocks
        ),
    }
}

/// A scrub in one line.
pub(super) fn line(scrub: &ScrubInfo, output: Output) -> String {
    let repaired = output.size(scrub.repaired_bytes);
    let errors = scrub.unreadable_blocks;
    let took = span(scrub.active_ms / 1000);
    match scrub.state {
        ScrubState::Running => format!(
            "scrub in progress since {}, {}",
            time::text(scrub.begun_ns),
            progress(scrub, output)
        ),
        ScrubState::Paused => {
            format!("scrub paused, begun {}, {}", time::text(scrub.begun_ns), share(scrub, output))
        }
        ScrubState::Finished => format!(
            "scrub repaired {repaired} in {took} with {errors} errors on {}",
            time::text(scrub.ended_ns.unwrap_or(0))
        ),
        ScrubState::Stopped => {
            format!("scrub stopped on {}", time::text(scrub.ended_ns.unwrap_or(0)))
        }
    }
}

fn share(scrub: &ScrubInfo, output: Output) -> String {
    let ScrubInfo { examined_bytes, total_bytes, .. } = *scrub;
    format!(
        "{} of {} examined ({}), {} repaired, {} errors",
        output.size(examined_bytes),
        output.size(total_bytes),
        percent(examined_bytes.min(total_bytes.max(1)), total_bytes),
        output.size(scrub.repaired_bytes),
        scrub.unreadable_blocks
    )
}

/// With its rate, and the time that is left at this rate.
fn progress(scrub: &ScrubInfo, output: Output) -> String {
    let ScrubInfo { examined_bytes, total_bytes, active_ms, .. } = *scrub;
    let share = share(scrub, output);
    if active_ms == 0 || examined_bytes == 0 {
        return share;
    }
    let rate = u128::from(examined_bytes) * 1000 / u128::from(active_ms);
    let left = u128::from(total_bytes.saturating_sub(examined_bytes)) / rate.max(1);
    let rate = output.size(u64::try_from(rate).unwrap_or(u64::MAX));
    format!("{share}, {rate}/s, {} left", span(u64::try_from(left).unwrap_or(u64::MAX)))
}
