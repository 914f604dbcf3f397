//! `aquifer pool status`: the state of pools, and what to do, as `zpool status` shows it.

use aquifer_api::client::Client;
use aquifer_api::{
    CacheDiskInfo, DaemonQuery, DrillState, LeafStatus, On, PoolQuery, PoolStatus, PoolsQuery,
    Problem, ResilverInfo, ScanState, SyncDisabled, VdevClass, VdevKind, VdevStatus,
};

use super::Output;
use super::pool::{data_first, word};
use crate::failure::Failure;
use crate::table::Table;

pub(super) mod files;
mod hardware;
#[cfg(test)]
mod tests;

/// Parts of the status to show beside those that are always shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Show {
    /// Identities, sizes, what each disk is.
    pub verbose: bool,
    /// When each disk was last trimmed, however long ago.
    pub trim: bool,
    /// When each disk was last initialized.
    pub initialize: bool,
    /// Only pools with a problem; it is a failure if there is one.
    pub problems: bool,
}

pub(super) async fn status(
    client: &Client,
    output: Output,
    show: Show,
    name: Option<String>,
) -> Result<(), Failure> {
    if show.problems {
        return problems(client, output, show, name).await;
    }
    if let Some(name) = name {
        let pool = client.ask(&On::new(&name, PoolQuery)).await?;
        return output.answer(&pool, |pool| text(pool, show, output));
    }
    let server = server(&client.ask(&DaemonQuery).await?.problems);
    output.answer(&all(client).await?, |pools| match pools.is_empty() {
        true => server + "no pools\n",
        false => server + &texts(pools, show, output),
    })
}

/// Shows the problems of the server beside those of its pools; empty, if there are none.
fn server(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let mut text = labelled("server", "something is wrong beside the pools");
    for problem in problems {
        text.push_str(&labelled("status", &problem.status));
        problem.action.iter().for_each(|action| text.push_str(&labelled("action", action)));
    }
    sections(problems).iter().for_each(|see| text.push_str(&labelled("see", see)));
    text.push('\n');
    text
}

/// Shows what is wrong with the server, and only pools with a problem, and fails if there is one.
async fn problems(
    client: &Client,
    output: Output,
    show: Show,
    name: Option<String>,
) -> Result<(), Failure> {
    let mut pools = match &name {
        Some(name) => vec![client.ask(&On::new(name, PoolQuery)).await?],
        None => all(client).await?,
    };
    let healthy = match &name {
        Some(name) => format!("pool '{name}' is healthy\n"),
        None if pools.is_empty() => "no pools\n".into(),
        None => "all pools are healthy\n".into(),
    };
    pools.retain(|pool| pool.status.is_some());
    let of_server = client.ask(&DaemonQuery).await?.problems;
    let server = server(&of_server);
    output.answer(&pools, |pools| match (pools.is_empty(), of_server.is_empty()) {
        (true, true) => healthy,
        (true, false) => server.clone(),
        (false, _) => server.clone() + &texts(pools, show, output),
    })?;
    if pools.is_empty() && of_server.is_empty() { Ok(()) } else { Err(Failure::Unhealthy) }
}

async fn all(client: &Client) -> Result<Vec<PoolStatus>, Failure> {
    let mut pools = Vec::new();
    for pool in client.ask(&PoolsQuery).await? {
        pools.push(client.ask(&On::new(&pool.name, PoolQuery)).await?);
    }
    Ok(pools)
}

fn texts(pools: &[PoolStatus], show: Show, output: Output) -> String {
    pools.iter().map(|pool| text(pool, show, output)).collect::<Vec<_>>().join("\n")
}

/// The text for people.
fn text(pool: &PoolStatus, show: Show, output: Output) -> String {
    let verbose = show.verbose;
    let summary = &pool.summary;
    let mut text = labelled("pool", &summary.name);
    let mut line = |label, what: &str| text.push_str(&labelled(label, what));
    if verbose {
        line("id", &summary.guid);
    }
    line("state", &word(summary.health));
    for (label, what) in [("status", &pool.status), ("action", &pool.action)] {
        what.iter().for_each(|what| line(label, what));
    }
    sections(&pool.problems).iter().for_each(|see| line("see", see));
    if !pool.sync_disabled.is_empty() {
        let warning = labelled("unsafe", &sync_disabled(&pool.sync_disabled));
        text.push_str(&output.red(&warning));
    }
    let mut line = |label, what: &str| text.push_str(&labelled(label, what));
    pool.dropped_log.iter().for_each(|dropped| line("lost", &dropped.to_string()));
    pool.import_notes.iter().for_each(|note| line("import", note));
    pool.notes.iter().for_each(|note| line("note", note));
    for leaf in pool.vdevs.iter().flat_map(|vdev| &vdev.leaves) {
        let error = leaf.last_error.iter();
        error.for_each(|error| line("disk", &format!("{}: {error}", leaf.path)));
    }
    if verbose && pool.txg > 0 {
        line("txg", &pool.txg.to_string());
        line("space", &space(pool, output));
        pool.caches.iter().for_each(|cache| line("cache", &cached(cache, output)));
    }
    pool.scan.iter().for_each(|scan| line("scan", &scanned(scan, output)));
    if let Some(scrub) = &pool.scrub {
        let repaired = if verbose { files::repaired(scrub, output) } else { Vec::new() };
        let lines = std::iter::once(super::scrub::line(scrub, output)).chain(repaired);
        line("scan", &lines.collect::<Vec<_>>().join("\n"));
    }
    super::replicate::lines(&pool.replications).iter().for_each(|copy| line("copy", copy));
    let drill = pool.drill.iter().filter(|drill| drill.state == DrillState::Running);
    drill.for_each(|drill| line("drill", &format!("goes on with {}", drill.disk)));
    if !pool.vdevs.is_empty() {
        line("config", "");
        text.push('\n');
        text.push_str(&config(pool, show, output));
        if verbose {
            text.push('\n');
            text.push_str(&labelled("disks", ""));
            text.push('\n');
            text.push_str(&hardware::text(pool, output));
        }
        text.push_str(&format!("\nerrors: {}\n", folded(&files::damaged(&pool.damaged))));
    }
    text.lines().map(|line| format!("{}\n", line.trim_end_matches(' '))).collect()
}

/// Where the documentation says what to do, each section once, the worst problem's first.
fn sections(problems: &[Problem]) -> Option<String> {
    let mut sections: Vec<&str> = Vec::new();
    for see in problems.iter().filter_map(|problem| problem.see.as_deref()) {
        if !sections.contains(&see) {
            sections.push(see);
        }
    }
    (!sections.is_empty()).then(|| sections.join("\n"))
}

pub(super) fn labelled(label: &str, what: &str) -> String {
    format!("{label:>6}: {}\n", folded(what))
}

/// Shows what a cache disk holds, and what it is good for.
fn cached(cache: &CacheDiskInfo, output: Output) -> String {
    let CacheDiskInfo { path, held_bytes, capacity_bytes, index_bytes, hits, misses, .. } = cache;
    let asked = hits + misses;
    let found = match (hits * 100).checked_div(asked) {
        Some(percent) => format!("{percent} % of {asked} reads found"),
        None => "not asked yet".into(),
    };
    let [held, capacity, index] =
        [held_bytes, capacity_bytes, index_bytes].map(|bytes| output.size(*bytes));
    format!("{path} holds {held} of {capacity}, {found}; its index takes {index} of memory")
}

fn scanned(scan: &ResilverInfo, output: Output) -> String {
    let ResilverInfo { disk, state, copied_bytes, unread_blocks, took_ms, .. } = scan;
    let (copied, seconds) = (output.size(*copied_bytes), took_ms / 1000);
    let mut text = match state {
        ScanState::Running => format!("resilver of {disk} goes on: {copied} in {seconds} s"),
        ScanState::Done => format!("resilvered {copied} on {disk} in {seconds} s"),
        ScanState::Failed => format!(
            "resilver of {disk} failed after {copied} and {seconds} s; it is tried again by itself"
        ),
    };
    if *unread_blocks > 0 {
        text.push_str(&format!(
            "; {unread_blocks} blocks could not be read from any other disk, and are missing on it"
        ));
    }
    text
}

fn space(pool: &PoolStatus, output: Output) -> String {
    let summary = &pool.summary;
    let mut text = format!(
        "{} of {} in use, of that {} freed and held back",
        output.size(summary.allocated_bytes),
        output.size(summary.size_bytes),
        output.size(pool.held_bytes)
    );
    if summary.freeing_bytes > 0 {
        text.push_str(&format!("; {} being freed", output.size(summary.freeing_bytes)));
    }
    if pool.closed_metaslabs > 0 {
        text.push_str(&format!("; {} metaslabs closed", pool.closed_metaslabs));
    }
    text
}

/// The tree of vdevs and disks. Behind its numbers a row says how many bad copies were repaired,
/// and whether the disk is slow.
fn config(pool: &PoolStatus, show: Show, output: Output) -> String {
    let verbose = show.verbose;
    let columns: &[&'static str] = match verbose {
        true => &["\tNAME", "STATE", ">READ", ">WRITE", ">CKSUM", ">SIZE", "ID", ""],
        false => &["\tNAME", "STATE", ">READ", ">WRITE", ">CKSUM", ""],
    };
    let mut table = Table::new(columns);
    let mut row = |name: String, state: String, leaves: &[&LeafStatus], more: [String; 2], show| {
        let mut cells = vec![name, state];
        cells.extend(counts(leaves));
        cells.extend(more.into_iter().filter(|_| verbose));
        cells.push(remarks(leaves, show));
        table.row(cells);
    };
    let all: Vec<&LeafStatus> = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves).collect();
    let summary = &pool.summary;
    let more = [output.size(summary.size_bytes), summary.guid.clone()];
    row(format!("\t{}", summary.name), word(summary.health), &all, more, show);
    for (head, vdev) in data_first(&pool.vdevs, |vdev| vdev.class) {
        let VdevStatus { kind, name, class, health, leaves, size_bytes } = vdev;
        // Nothing is done with the free space of the log.
        let show =
            if *class == VdevClass::Log { Show { verbose, ..Show::default() } } else { show };
        if head {
            row("\tlogs".into(), String::new(), &[], [String::new(), String::new()], show);
        }
        let own: Vec<&LeafStatus> = leaves.iter().collect();
        let size = output.size(*size_bytes);
        if *kind == VdevKind::Mirror {
            row(format!("\t  {name}"), word(*health), &own, [size.clone(), "-".into()], show);
        }
        for leaf in leaves {
            let (indent, size) = match kind {
                VdevKind::Mirror => ("\t    ", "-"),
                VdevKind::Single => ("\t  ", size.as_str()),
            };
            let more = [size.into(), leaf.guid.clone()];
            row(format!("{indent}{}", leaf.path), word(leaf.state), &[leaf], more, show);
        }
    }
    if !pool.spares.is_empty() {
        row("\tspares".into(), String::new(), &[], [String::new(), String::new()], show);
    }
    for spare in &pool.spares {
        let more = [String::new(), spare.guid.clone()];
        let name = format!("\t  {}", spare.path);
        row(name, word(spare.state), &[], more, show);
    }
    if !pool.caches.is_empty() {
        row("\tcache".into(), String::new(), &[], [String::new(), String::new()], show);
    }
    for cache in &pool.caches {
        let more = [output.size(cache.capacity_bytes), cache.guid.clone()];
        row(format!("\t  {}", cache.path), word(cache.state), &[], more, show);
    }
    table.text(false)
}

/// The numbers of a row; none for that of a heading.
fn counts(leaves: &[&LeafStatus]) -> [String; 3] {
    let sum = |count: fn(&LeafStatus) -> u64| match leaves {
        [] => String::new(),
        leaves => leaves.iter().map(|leaf| count(leaf)).sum::<u64>().to_string(),
    };
    [sum(|leaf| leaf.read_errors), sum(|leaf| leaf.write_errors), sum(|leaf| leaf.checksum_errors)]
}

/// Behind the numbers: what was repaired, whether a single disk is slow, and for which other disk
/// it is there.
fn remarks(leaves: &[&LeafStatus], show: Show) -> String {
    let repaired = match leaves.iter().map(|leaf| leaf.repaired).sum::<u64>() {
        0 => None,
        repaired => Some(format!("{repaired} repaired")),
    };
    let slow = matches!(leaves, [leaf] if leaf.slow.is_some()).then(|| "slow".to_string());
    let stands = match leaves {
        [LeafStatus { spare_for: Some(whom), .. }] => Some(format!("spare for {whom}")),
        [LeafStatus { replaces: Some(whom), .. }] => Some(format!("replaces {whom}")),
        _ => None,
    };
    let free_space = match leaves {
        [leaf] => super::free_space::remarks(leaf, show),
        _ => Vec::new(),
    };
    let remarks = repaired.into_iter().chain(slow).chain(stands).chain(free_space);
    let remarks: Vec<String> = remarks.collect();
    if remarks.is_empty() { String::new() } else { format!("({})", remarks.join(", ")) }
}

/// Datasets that promise no durability.
fn sync_disabled(datasets: &[SyncDisabled]) -> String {
    let head = "sync=disabled: what these datasets acknowledged in the last seconds is lost in a \
                power cut or crash:";
    let each =
        datasets.iter().map(|SyncDisabled { dataset, reason }| format!("{dataset}: {reason}"));
    std::iter::once(head.to_string()).chain(each).collect::<Vec<_>>().join("\n")
}

/// Breaks long lines between words, and indents them as `zpool` does. A command in backticks stays
/// on one line, to be copied.
fn folded(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in words(paragraph) {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > TEXT_WIDTH {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n        ")
}

/// The words of a text. One begins with a backtick, and has the other in it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut is_command = false;
    text.split(move |char| {
        is_command ^= char == '`';
        char == ' ' && !is_command
    })
}

/// Columns of text behind a label.
const TEXT_WIDTH: usize = 72;
