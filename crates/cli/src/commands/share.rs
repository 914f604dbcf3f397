//! `aquifer share`: exports, their clients, and why a client is admitted or refused.

use aquifer_api::client::Client;
use aquifer_api::{ShareAccess, ShareAnswer, ShareInfo, ShareQuery, ShareWhy, SharesQuery};

use super::Output;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn list(client: &Client, output: Output) -> Result<(), Failure> {
    let shares = client.ask(&SharesQuery).await?;
    output.answer(&shares, |shares| list_text(shares, output))
}

pub(super) async fn why(
    client: &Client,
    output: Output,
    host: String,
    path: String,
) -> Result<(), Failure> {
    let answer = client.ask(&ShareQuery { host, path }).await?;
    output.answer(&answer, why_text)
}

/// Exports that admit more clients than their owner may expect. Fails if there are any, for
/// scripts.
pub(super) async fn audit(client: &Client, output: Output) -> Result<(), Failure> {
    let mut shares = client.ask(&SharesQuery).await?;
    shares.retain(|share| !share.risks.is_empty());
    output.answer(&shares, |shares| {
        let mut table = Table::new(&["PATH", "RISK"]);
        for share in shares {
            for risk in &share.risks {
                table.row(vec![share.path.clone(), risk.clone()]);
            }
        }
        if shares.is_empty() { String::new() } else { output.table(&table) }
    })?;
    match shares.len() {
        0 => Ok(()),
        open => Err(Failure::failed(format!("exports that let in more than named hosts: {open}"))),
    }
}

fn list_text(shares: &[ShareInfo], output: Output) -> String {
    if shares.is_empty() && !output.script {
        return "nothing is exported: aquifer set sharenfs=rw=HOST:@NETWORK DATASET\n".into();
    }
    // People have the long cell last, which goes on below itself.
    let names =
        if output.script { ["PATH", "OPTIONS", "SOURCE"] } else { ["PATH", "SOURCE", "OPTIONS"] };
    let mut table = Table::new(&names);
    for share in shares {
        let options = match &share.problem {
            Some(problem) => format!("not exported: {problem}"),
            None => share.options.clone(),
        };
        let (path, source) = (share.path.clone(), share.source.clone());
        let cells = if output.script { [path, options, source] } else { [path, source, options] };
        table.row(cells.to_vec());
    }
    let mut text = output.table(&table);
    if output.script {
        return text;
    }
    let mut hosts: Vec<String> = Vec::new();
    for host in shares.iter().flat_map(|share| &share.hosts) {
        let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
        let problem = host.problem.as_ref().map(|problem| format!("({problem})"));
        let words = addresses.into_iter().chain(problem).collect::<Vec<_>>().join(" ");
        let line = format!("{}: {words}\n", host.name);
        if !hosts.contains(&line) {
            hosts.push(line);
        }
    }
    if !hosts.is_empty() {
        text.push_str("\nhosts:\n");
        text.extend(hosts.iter().map(|line| format!("  {line}")));
    }
    text
}

fn why_text(answer: &ShareWhy) -> String {
    answer.answers.iter().map(|one| answer_text(&answer.path, one)).collect()
}

fn answer_text(path: &str, answer: &ShareAnswer) -> String {
    let client = answer.address;
    let mut text = match answer.access {
        ShareAccess::ReadWrite => format!("{client} may read and write {path}\n"),
        ShareAccess::ReadOnly => format!("{client} may read {path}\n"),
        ShareAccess::Refused => format!("{client} is refused at {path}\n"),
        ShareAccess::Waits => format!("{client} has to wait at {path}\n"),
    };
    for why in &answer.why {
        text.push_str(&format!("  {why}\n"));
    }
    if let (Some(dataset), Some(value), Some(source)) =
        (&answer.dataset, &answer.sharenfs, &answer.source)
    {
        text.push_str(&format!("  {dataset}: sharenfs={value} ({source})\n"));
    }
    text
}
