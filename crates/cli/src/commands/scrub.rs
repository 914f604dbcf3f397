//! `aquifer pool scrub`, and the line of the status about it.

use aquifer_api::client::Client;
use aquifer_api::{On, PoolQuery, ScrubAct, ScrubInfo, ScrubRequest, ScrubState, time};

use super::Output;
use super::progress::{LOOK_EVERY, Progress, Unit, Work, span};
use super::status::files::repaired;
use crate::failure::Failure;

/// Returns the act that the options ask for.
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
    let done = client.ask(&On::new(name, ScrubRequest { act })).await?;
    if !wait {
        return output.answer(&done, |_| String::new());
    }
    let ended = {
        let mut progress = Progress::new(output);
        loop {
            match client.ask(&On::new(name, PoolQuery)).await?.scrub {
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
    output.answer(&ended, |ended| {
        let lines = std::iter::once(line(ended, output)).chain(repaired(ended, output));
        lines.map(|line| format!("{line}\n")).collect()
    })?;
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
            work("", scrub, output).text(output)
        ),
        ScrubState::Paused => {
            let work = Work { took_ms: 0, ..work("", scrub, output) };
            format!("scrub paused, begun {}, {}", time::text(scrub.begun_ns), work.text(output))
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
