//! `aquifer pool status`: the state of pools, and what to do.

use aquifer_api::client::Client;
use aquifer_api::shown::shown;
use aquifer_api::time;
use aquifer_api::{
    DamagedFile, Health, LeafStatus, PoolStatus, ResilverInfo, ScanState, SyncDisabled, VdevKind,
    VdevStatus,
};

use super::Output;
use super::pool::{data_first, word};
use crate::failure::Failure;
use crate::table::Table;

#[cfg(test)]
mod tests;

pub(super) async fn status(
    client: &Client,
    output: Output,
    verbose: bool,
    name: Option<String>,
) -> Result<(), Failure> {
    if let Some(name) = name {
        let pool = client.pool(&name).await?;
        return output.answer(&pool, |pool| text(pool, verbose, output));
    }
    let mut pools = Vec::new();
    for pool in client.pools().await? {
        pools.push(client.pool(&pool.name).await?);
    }
    output.answer(&pools, |pools| match pools.is_empty() {
        true => "no pools\n".into(),
        false => {
            let texts: Vec<String> = pools.iter().map(|pool| text(pool, verbose, output)).collect();
            texts.join("\n")
        }
    })
}

/// The text for people.
fn text(pool: &PoolStatus, verbose: bool, output: Output) -> String {
    let summary = &pool.summary;
    let mut text = format!("  pool: {}\n", summary.name);
    let mut line = |label: &str, what: &str| {
        text.push_str(&format!("{label:>6}: {}\n", folded(what)));
    };
    if verbose {
        line("id", &summary.guid);
    }
    line("state", &word(summary.health));
    if let Some(reason) = &summary.reason {
        line("status", reason);
    }
    if let Some(action) = &pool.action {
        line("action", action);
    }
    if !pool.sync_disabled.is_empty() {
        let warning = format!("{:>6}: {}\n", "unsafe", folded(&sync_disabled(&pool.sync_disabled)));
        text.push_str(&output.red(&warning));
    }
    let mut line = |label: &str, what: &str| {
        text.push_str(&format!("{label:>6}: {}\n", folded(what)));
    };
    if let Some(dropped) = &pool.dropped_log {
        let name = &summary.name;
        line(
            "lost",
            &format!(
                "{dropped}. Check the guests there as after a power cut, then `aquifer pool clear \
                 {name}`."
            ),
        );
    }
    if let Some(scan) = &pool.scan {
        line("scan", &scanned(scan, output));
    }
    if let Some(scrub) = &pool.scrub {
        line("scan", &super::scrub::line(scrub, output));
    }
    for note in &pool.import_notes {
        line("import", note);
    }
    for note in &pool.notes {
        line("note", note);
    }
    if verbose && pool.txg > 0 {
        line("txg", &pool.txg.to_string());
        line("space", &space(pool, output));
    }
    if !pool.vdevs.is_empty() {
        line("config", "");
        text.push('\n');
        text.push_str(&config(pool, verbose, output));
        text.push_str(&format!("\nerrors: {}\n", folded(&errors(pool))));
    }
    text.lines().map(|line| format!("{}\n", line.trim_end_matches(' '))).collect()
}

fn scanned(scan: &ResilverInfo, output: Output) -> String {
    let ResilverInfo { disk, state, copied_bytes, unread_blocks, took_ms } = scan;
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
    if pool.closed_metaslabs > 0 {
        text.push_str(&format!("; {} metaslabs closed", pool.closed_metaslabs));
    }
    text
}

/// The tree of vdevs and disks.
fn config(pool: &PoolStatus, verbose: bool, output: Output) -> String {
    let columns: &[&'static str] = match verbose {
        true => &["\tNAME", "STATE", ">READ", ">WRITE", ">CKSUM", ">REPAIRED", ">SIZE", "ID"],
        false => &["\tNAME", "STATE", ">READ", ">WRITE", ">CKSUM", ">REPAIRED"],
    };
    let mut table = Table::new(columns);
    type Leaves<'a> = Option<&'a [&'a LeafStatus]>;
    let mut row = |name: String, state: String, leaves: Leaves<'_>, more: [String; 2]| {
        let mut cells = vec![name, state];
        cells.extend(leaves.map_or_else(Default::default, counts));
        cells.extend(more.into_iter().filter(|_| verbose));
        table.row(cells);
    };
    let all: Vec<&LeafStatus> = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves).collect();
    let summary = &pool.summary;
    let more = [output.size(summary.size_bytes), summary.guid.clone()];
    row(format!("\t{}", summary.name), word(summary.health), Some(&all), more);
    for (head, vdev) in data_first(&pool.vdevs, |vdev| vdev.class) {
        let VdevStatus { kind, name, class: _, health, leaves, size_bytes } = vdev;
        if head {
            row("\tlogs".into(), String::new(), None, [String::new(), String::new()]);
        }
        let own: Vec<&LeafStatus> = leaves.iter().collect();
        let size = output.size(*size_bytes);
        if *kind == VdevKind::Mirror {
            row(format!("\t  {name}"), word(*health), Some(&own), [size.clone(), "-".into()]);
        }
        for leaf in leaves {
            let (indent, size) = match kind {
                VdevKind::Mirror => ("\t    ", "-"),
                VdevKind::Single => ("\t  ", size.as_str()),
            };
            let more = [size.into(), leaf.guid.clone()];
            row(format!("{indent}{}", leaf.path), word(leaf.state), Some(&[leaf]), more);
        }
    }
    table.text(false)
}

fn counts(leaves: &[&LeafStatus]) -> [String; 4] {
    let sum = |count: fn(&LeafStatus) -> u64| {
        leaves.iter().map(|leaf| count(leaf)).sum::<u64>().to_string()
    };
    [
        sum(|leaf| leaf.read_errors),
        sum(|leaf| leaf.write_errors),
        sum(|leaf| leaf.checksum_errors),
        sum(|leaf| leaf.repaired),
    ]
}

/// The last error of each disk that had one.
fn errors(pool: &PoolStatus) -> String {
    let leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let last: Vec<String> = leaves
        .filter_map(|leaf| Some(format!("{}: {}", leaf.path, leaf.last_error.as_ref()?)))
        .collect();
    if !pool.damaged.is_empty() {
        return damaged(&pool.damaged);
    }
    match (last.is_empty(), pool.summary.health) {
        (true, Health::Suspended) => "the pool is suspended".into(),
        (true, _) => "none since the import".into(),
        (false, _) => last.join("\n"),
    }
}

/// Datasets that promise no durability.
fn sync_disabled(datasets: &[SyncDisabled]) -> String {
    let head = "sync=disabled: what these datasets acknowledged in the last seconds is lost in a \
                power cut or crash:";
    let each =
        datasets.iter().map(|SyncDisabled { dataset, reason }| format!("{dataset}: {reason}"));
    std::iter::once(head.to_string()).chain(each).collect::<Vec<_>>().join("\n")
}

/// Permanent losses come before repaired damage.
fn damaged(files: &[DamagedFile]) -> String {
    let shown = files.iter().take(FILES_MAX).map(|damaged| {
        let DamagedFile { dataset, file, lost_bytes, error, .. } = damaged;
        let file = shown(file);
        let since = time::text(damaged.since_ns);
        let ranges = ranges(damaged);
        match damaged.unreadable {
            true => format!("{dataset} {file}: {ranges} cannot be read, since {since} ({error})"),
            false => format!(
                "{dataset} {file}: {lost_bytes} bytes of changes lost, {ranges}, since {since} \
                 ({error})"
            ),
        }
    });
    let more = files.len().saturating_sub(FILES_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let head = "files are damaged and give I/O errors; restore or remove them, or take one as it \
                is on disk with `aquifer clear DATASET FILE`:";
    std::iter::once(head.to_string()).chain(shown).chain(more).collect::<Vec<_>>().join("\n")
}

/// Bytes of a file, as `FROM-TO` with the last one.
fn ranges(damaged: &DamagedFile) -> String {
    let shown = damaged.ranges.iter().take(RANGES_MAX);
    let mut text: Vec<String> =
        shown.map(|(from, to)| format!("{from}-{}", to.saturating_sub(1))).collect();
    if damaged.more || damaged.ranges.len() > RANGES_MAX {
        text.push("and more".into());
    }
    match text.is_empty() {
        true => "its entries or attributes".into(),
        false => format!("bytes {}", text.join(", ")),
    }
}

/// Breaks long lines between words, and indents them as `zpool` does.
fn folded(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ') {
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

/// Damaged files in the output, at most.
const FILES_MAX: usize = 20;
/// Ranges of each in the output, at most.
const RANGES_MAX: usize = 4;

/// Columns of text behind a label.
const TEXT_WIDTH: usize = 72;
