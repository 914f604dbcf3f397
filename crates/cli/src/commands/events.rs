//! `aquifer events` and `aquifer pool events`: past events, as far as the daemon remembers them, or
//! the pool.

use aquifer_api::client::Client;
use aquifer_api::time;
use aquifer_api::{Event, EventQuery, KeptEventsQuery, On};

use super::Output;
use super::repeat::print_some;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn events(client: &Client, output: Output, follow: bool) -> Result<(), Failure> {
    let kept = client.ask(&EventQuery::default()).await?;
    let mut last = kept.last().map_or(0, |event| event.sequence);
    if !follow {
        return output.answer(&kept, |kept| text(kept, output, true));
    }
    if !print_some(&lines(&kept, output, true)?)? {
        return Ok(());
    }
    loop {
        let query = EventQuery { after: last, wait_ms: WAIT_MS };
        // A daemon that stops ends this: no more events will come.
        let new = client.ask(&query).await?;
        last = new.last().map_or(last, |event| event.sequence);
        if !print_some(&lines(&new, output, false)?)? {
            return Ok(());
        }
    }
}

/// Prints the events that a pool has kept.
pub(super) async fn kept(client: &Client, output: Output, pool: &str) -> Result<(), Failure> {
    let kept = client.ask(&On::new(pool, KeptEventsQuery)).await?;
    output.answer(&kept, |kept| text(kept, output, true))
}

/// One event to a line, for programs.
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
        let class = match with_header {
            true => event.class.clone(),
            // Lines come one by one, and their columns should line up.
            false => format!("{:<CLASS_WIDTH$}", event.class),
        };
        let what = if output.script { what } else { vec![what.join(" ")] };
        table.row([vec![time::text(event.wall_ns), class], what].concat());
    }
    let text = output.table(&table);
    match with_header || output.script {
        true => text,
        false => text.lines().skip(1).map(|line| format!("{line}\n")).collect(),
    }
}

/// The longest usual class.
const CLASS_WIDTH: usize = 19;
/// How long one request waits for an event.
const WAIT_MS: u64 = 30_000;
