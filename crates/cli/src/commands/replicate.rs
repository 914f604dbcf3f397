//! `aquifer replicate`: a copy on another Aquifer is brought up to date. The daemon does it; this
//! shows how far it is.

use std::io::{IsTerminal, stderr};

use aquifer_api::client::Client;
use aquifer_api::{
    CopyInfo, ReplicateRequest, ReplicationInfo, ReplicationQuery, ReplicationState,
    StopReplication, time,
};
use aquifer_meter::size;

use super::progress::{LOOK_EVERY, Progress, Unit, Work, span};
use super::{Output, tell};
use crate::failure::Failure;
use crate::table::Table;

/// The arguments of `replicate`.
#[derive(Debug, clap::Args)]
pub struct ReplicateArgs {
    /// Also all datasets below, as of one moment. Those that are not here any more stay there.
    #[arg(short = 'r', long, visible_short_alias = 'R')]
    recursive: bool,
    /// Roll the copy back to the newest snapshot that both have: what was changed there since, and
    /// later snapshots there, are lost.
    #[arg(short = 'F')]
    force: bool,
    /// Say what was sent, and on the way how far it is, also without a terminal.
    #[arg(short = 'v')]
    verbose: bool,
    /// Send this snapshot, as @NAME, instead of one that is taken now.
    #[arg(long, value_name = "@NAME")]
    snapshot: Option<String>,
    /// Send the snapshots between as well, and of a new copy all older ones. They stay there.
    #[arg(long)]
    all: bool,
    /// So many snapshots of this replication stay at the copy.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    keep: u64,
    /// Bytes a second at most, such as 20M.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    /// Fetch: the dataset is at a peer, as PEER:DATASET, and its copy is a dataset here. The peer
    /// needs no token of this server; this one has a token of the role send there.
    #[arg(long, requires = "target")]
    pull: bool,
    /// End what is under way. The copy stays as it was.
    #[arg(long, requires = "target")]
    stop: bool,
    /// Full name, such as tank/vms. Without it, show how all copies stand.
    #[arg(requires = "target")]
    dataset: Option<String>,
    /// Its copy: a dataset there, behind the name of a peer of the configuration and a colon; or a
    /// dataset of another pool here.
    #[arg(value_name = "[PEER:]DATASET")]
    target: Option<String>,
}

pub(super) async fn replicate(
    client: &Client,
    output: Output,
    args: ReplicateArgs,
) -> Result<(), Failure> {
    let (Some(dataset), Some(target)) = (args.dataset, args.target) else {
        let all = client.ask(&ReplicationQuery::default()).await?;
        return output.answer(&all, |all| text(all, output));
    };
    if args.stop {
        let request = StopReplication { dataset, target, pull: args.pull };
        let done = client.ask(&request).await?;
        return output.answer(&done, |_| String::new());
    }
    let snapshot = args.snapshot.map(|name| match name.rsplit_once('@') {
        Some((_, name)) => name.to_string(),
        None => name,
    });
    let ReplicateArgs { recursive, force, verbose, all, keep, rate: rate_bytes, pull, .. } = args;
    let request = ReplicateRequest {
        dataset,
        target,
        recursive,
        snapshot,
        all,
        keep: Some(keep),
        rate_bytes,
        force,
        pull,
    };
    let id = client.ask(&request).await?.id;
    let ended = wait(client, output, id, verbose).await?;
    if verbose || stderr().is_terminal() {
        tell(output, &left(&ended));
    }
    if let Some(error) = &ended.error {
        return Err(Failure::failed(error));
    }
    output.answer(&ended, |ended| if verbose { said(ended, output) } else { String::new() })
}

/// Waits for the end of a run.
async fn wait(
    client: &Client,
    output: Output,
    id: u64,
    verbose: bool,
) -> Result<ReplicationInfo, Failure> {
    let mut progress = (verbose || stderr().is_terminal()).then(|| Progress::new(output));
    let (query, mut is_told) = (ReplicationQuery { id: Some(id) }, false);
    loop {
        let Some(now) = client.ask(&query).await?.pop() else {
            return Err(Failure::failed("the daemon does not know this replication any more"));
        };
        match now.state {
            ReplicationState::Done | ReplicationState::Failed => return Ok(now),
            ReplicationState::Waiting if !is_told => {
                is_told = true;
                if verbose {
                    tell(output, &["it begins when others have ended".to_string()]);
                }
            }
            ReplicationState::Running if now.sending.is_some() => {
                progress.iter_mut().for_each(|progress| progress.show(&work(&now)));
            }
            _ => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn work(of: &ReplicationInfo) -> Work {
    let took_ns = of.begun_ns.map_or(0, |begun| time::now_ns().saturating_sub(begun));
    Work {
        what: format!("{} to {}", of.sending.as_deref().unwrap_or(&of.dataset), of.target),
        done: of.sent_bytes,
        total: of.total_bytes,
        unit: Unit::Bytes,
        took_ms: took_ns / 1_000_000,
        note: String::new(),
    }
}

fn said(of: &ReplicationInfo, output: Output) -> String {
    let took_ns = of.begun_ns.zip(of.ended_ns).map_or(0, |(from, to)| to.saturating_sub(from));
    let took = std::time::Duration::from_nanos(took_ns).as_secs_f64();
    let sent = output.size(of.sent_bytes);
    let has: Vec<(String, &str)> = of
        .copies
        .iter()
        .filter_map(|copy| Some((of.named_there(&copy.copy), copy.snapshot.as_deref()?)))
        .collect();
    match &has[..] {
        [(copy, snapshot)] => format!("{copy} has {snapshot}: {sent} in {took:.1} s\n"),
        has => {
            let lines = has.iter().map(|(copy, snapshot)| format!("{copy} has {snapshot}\n"));
            format!("{}{}: {sent} in {took:.1} s\n", lines.collect::<String>(), of.target)
        }
    }
}

/// Copies that stay though no dataset goes to them.
fn left(of: &ReplicationInfo) -> Vec<String> {
    let line = |copy: &String| match of.source() {
        None => format!(
            "{} stays there, but no dataset here goes to it any more: `aquifer destroy -r {copy}` \
             there removes it",
            of.named_there(copy)
        ),
        Some(peer) => format!(
            "{copy} stays, but {peer} has no dataset for it any more: `aquifer destroy -r {copy}` \
             removes it"
        ),
    };
    of.left.iter().map(line).collect()
}

fn text(all: &[ReplicationInfo], output: Output) -> String {
    if all.is_empty() && !output.script {
        return "no copies (aquifer replicate DATASET [PEER:]DATASET makes one, or brings it up to \
                date)\n"
            .into();
    }
    let mut table = Table::new(&["NAME", "COPY", "STATE", "EVERY", ">BEHIND", "SNAPSHOT"]);
    let mut errors = String::new();
    for of in all {
        let every = of.every_s.map_or_else(|| "-".into(), |every_s| seconds(every_s, output));
        for copy in &of.copies {
            table.row(row(of, copy, every.clone(), output));
        }
        let said = left(of).into_iter().map(|left| format!("note: {left}"));
        for said in of.error.iter().cloned().chain(said).filter(|_| !output.script) {
            errors.push_str(&format!("\n{said}\n"));
        }
    }
    output.table(&table) + &aquifer_api::shown::lines_shown(&errors)
}

fn row(of: &ReplicationInfo, copy: &CopyInfo, every: String, output: Output) -> Vec<String> {
    let state = match (copy.state, of.total_bytes) {
        (ReplicationState::Running, Some(total)) => {
            format!("running {}", super::pool::percent(of.sent_bytes.min(total), total))
        }
        (ReplicationState::Running, None) => "running".into(),
        (ReplicationState::Waiting, _) => "waiting".into(),
        (ReplicationState::Done, _) => "done".into(),
        (ReplicationState::Failed, _) => "failed".into(),
    };
    let target = of.named_there(&copy.copy);
    let behind = copy.behind_s.map_or_else(|| "-".into(), |behind_s| seconds(behind_s, output));
    let snapshot = copy.snapshot.as_ref().and_then(|full| full.rsplit_once('@'));
    let snapshot = snapshot.map_or_else(|| "-".into(), |(_, name)| format!("@{name}"));
    vec![of.named(copy), target, state, every, behind, snapshot]
}

/// A time for people, or exactly.
fn seconds(seconds: u64, output: Output) -> String {
    if output.exact { seconds.to_string() } else { span(seconds) }
}

/// How far copies are behind, for the status of a pool.
pub(super) fn lines(all: &[ReplicationInfo]) -> Vec<String> {
    let line = |of: &ReplicationInfo| {
        let oldest = of.copies.iter().map(|copy| copy.behind_s).min_by_key(|behind| {
            // One that is not there is behind all others.
            std::cmp::Reverse(behind.unwrap_or(u64::MAX))
        });
        let behind = match oldest.flatten() {
            Some(behind_s) => format!("{} behind", span(behind_s)),
            None => "not there yet".into(),
        };
        let every =
            of.every_s.map_or(String::new(), |every_s| format!(", every {}", span(every_s)));
        format!("{} to {}: {behind}{every}", of.dataset, of.target)
    };
    all.iter().map(line).collect()
}

fn rate(text: &str) -> Result<u64, String> {
    size::parse(text.trim_end_matches("/s"))
        .ok_or_else(|| format!("{text:?} is no rate: say 20M, or 1.5G, of bytes a second"))
}
