//! `aquifer events`: what happened, as long as the daemon's memory has it.

use aquifer_admin::api::{Event, EventQuery};
use aquifer_admin::client::Client;

use super::Output;
use super::repeat::print_some;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn events(client: &Client, output: Output, follow: bool) -> Result<(), Failure> {
    let kept = client.events(&EventQuery::default()).await?;
    let mut last = kept.last().map_or(0, |event| event.sequence);
    if !follow {
        return output.answer(&kept, |kept| text(kept, output, true));
    }
    if !print_some(&lines(&kept, output, true)?)? {
        return Ok(());
    }
    loop {
        let query = EventQuery { after: last, wait_ms: WAIT_MS };
        // A daemon that stops ends this: there is nothing to come.
        let new = client.events(&query).await?;
        last = new.last().map_or(last, |event| event.sequence);
        if !print_some(&lines(&new, output, false)?)? {
            return Ok(());
        }
    }
}

/// As they come: for programs, one to a line.
fn lines(events: &[Event], output: Output, with_header: bool) -> Result<String, Failure> {
    if !output.json {
        return Ok(text(events, output, with_header));
    }
    let each = events.iter().map(|event| serde_json::to_string(event).map(|line| line + "\n"));
    each.collect::<Result<String, _>>().map_err(Failure::failed)
}

fn text(events: &[Event], output: Output, with_header: bool) -> String {
    let mut table = Table::new(&["TIME", "CLASS", "WHAT"]);
    for event in events {
        let fields = event.fields.iter().map(|(name, value)| format!("{name}={value}"));
        let what: Vec<String> = std::iter::once(event.message.clone()).chain(fields).collect();
        // Names may hold anything; a line stays a line.
        let what = what.join(if output.script { "\t" } else { " " }).replace('\n', "\\n");
        let class = match with_header {
            true => event.class.clone(),
            // They come one by one, and are to stand below each other.
            false => format!("{:<CLASS_WIDTH$}", event.class),
        };
        table.row(vec![when(event.wall_ns), class, what]);
    }
    let text = output.table(&table);
    match with_header || output.script {
        true => text,
        false => text.lines().skip(1).map(|line| format!("{line}\n")).collect(),
    }
}

/// RFC 3339, UTC, with milliseconds.
fn when(wall_ns: u64) -> String {
    let (days, ns) = (wall_ns / DAY_NS, wall_ns % DAY_NS);
    let (year, month, day) = date(days);
    let (seconds, ms) = (ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The civil date of a day since 1970-01-01: years counted from March, so that the leap day is the
/// last (Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const DAY_NS: u64 = 86_400_000_000_000;
/// The longest class that there is mostly.
const CLASS_WIDTH: usize = 19;
/// How long one question waits for something to happen.
const WAIT_MS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// By `date -u -d @SECONDS`.
    #[test]
    fn times_are_civil() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
            (1_795_246_380, "2026-11-21T07:33:00.007Z"),
        ] {
            assert_eq!(when(seconds * 1_000_000_000 + 7_000_000), text);
        }
    }
}
