//! `aquifer pool history`: the history of acts on a pool.

use std::collections::BTreeMap;

use aquifer_api::client::Client;
use aquifer_api::time;
use aquifer_api::{
    HISTORY_ITSELF, HistoryChange, HistoryEntry, HistoryOutcome, HistoryQuery, On, PoolsQuery,
};

use super::Output;
use crate::failure::Failure;
use crate::table::Table;

/// The wanted columns and entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    /// User, machine, and changes.
    pub long: bool,
    /// Also acts that were not carried out.
    pub all: bool,
    /// Also what the pool did by itself.
    pub internal: bool,
}

pub(super) async fn history(
    client: &Client,
    output: Output,
    show: Show,
    name: Option<String>,
) -> Result<(), Failure> {
    let names = match name {
        Some(name) => vec![name],
        None => client.ask(&PoolsQuery).await?.into_iter().map(|pool| pool.name).collect(),
    };
    let mut pools = BTreeMap::new();
    for name in names {
        let mut entries = client.ask(&On::new(&name, HistoryQuery)).await?;
        entries.retain(|entry| show.all || may_be_done(entry));
        entries.retain(|entry| show.internal || entry.who != HISTORY_ITSELF);
        pools.insert(name, entries);
    }
    output.answer(&pools, |pools| match output.script {
        true => columns(pools, output),
        false => pools.iter().map(|(name, entries)| text(name, entries, show)).collect(),
    })
}

/// Whether it may have been carried out, as far as is known.
fn may_be_done(entry: &HistoryEntry) -> bool {
    !matches!(entry.outcome, HistoryOutcome::Failed | HistoryOutcome::Forbidden)
}

fn text(pool: &str, entries: &[HistoryEntry], show: Show) -> String {
    let lines = entries.iter().map(|entry| line(entry, show));
    format!("History for '{pool}':\n") + &lines.collect::<String>() + "\n"
}

fn line(entry: &HistoryEntry, show: Show) -> String {
    let HistoryEntry { began_ns, who, host, act, outcome, result, changes, cut, .. } = entry;
    let by_whom = if who == HISTORY_ITSELF { "[by itself]" } else { "aquifer" };
    let mut line = format!("{} {by_whom} {act}", time::text(*began_ns));
    if show.long {
        line += &match who == HISTORY_ITSELF {
            true => format!(" [on {host}]"),
            false => format!(" [{who} on {host}]"),
        };
    }
    let because = if result.is_empty() { String::new() } else { format!(": {result}") };
    line += &match outcome {
        HistoryOutcome::Done => String::new(),
        HistoryOutcome::Failed => format!(" (not done{because})"),
        HistoryOutcome::Forbidden => format!(" (refused{because})"),
        HistoryOutcome::Running => " (under way)".into(),
        HistoryOutcome::Unknown => " (the daemon ended first; it may have been done)".into(),
    };
    line.push('\n');
    if show.long {
        line.extend(changes.iter().map(|change| format!("    {}\n", changed(change))));
        if *cut {
            line += "    (too long: not all is kept)\n";
        }
    }
    line
}

fn changed(HistoryChange { what, before, after }: &HistoryChange) -> String {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    format!("{what}: {} -> {}", or_none(before), or_none(after))
}

fn columns(pools: &BTreeMap<String, Vec<HistoryEntry>>, output: Output) -> String {
    let mut table = Table::new(&["POOL", "TIME", "WHO", "HOST", "OUTCOME", "ACT", "CHANGES"]);
    for (pool, entries) in pools {
        for entry in entries {
            let outcome = match entry.outcome {
                HistoryOutcome::Done => "done",
                HistoryOutcome::Failed => "failed",
                HistoryOutcome::Forbidden => "forbidden",
                HistoryOutcome::Running => "running",
                HistoryOutcome::Unknown => "unknown",
            };
            let changes: Vec<String> = entry.changes.iter().map(changed).collect();
            table.row(vec![
                pool.clone(),
                time::text(entry.began_ns),
                entry.who.clone(),
                entry.host.clone(),
                outcome.into(),
                entry.act.clone(),
                changes.join("; "),
            ]);
        }
    }
    output.table(&table)
}
