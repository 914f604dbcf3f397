//! Received parts of streams that may go on: `aquifer list -t receiving`, and `aquifer get
//! receive_resume_token`.

use aquifer_api::client::Client;
use aquifer_api::{PropertyValue, ReceiveInfo, ReceivesQuery, time};

use super::Output;
use super::dataset::Line;
use super::progress::span;
use crate::failure::Failure;
use crate::table::Table;

/// The name that people know from ZFS.
pub(super) const TOKEN: &str = "receive_resume_token";

pub(super) async fn list(
    client: &Client,
    output: Output,
    name: Option<String>,
    recursive: bool,
) -> Result<(), Failure> {
    let found = client.ask(&ReceivesQuery { name, recursive, coming: false }).await?;
    output.answer(&found, |found| text(found, output))
}

/// `aquifer receives`: what comes just now, and what waits for its rest.
pub(super) async fn all(
    client: &Client,
    output: Output,
    name: Option<String>,
) -> Result<(), Failure> {
    let found = client.ask(&ReceivesQuery { name, recursive: true, coming: true }).await?;
    output.answer(&found, |found| text_of_all(found, output))
}

fn text_of_all(found: &[ReceiveInfo], output: Output) -> String {
    if found.is_empty() && !output.script {
        return "no stream comes, and none waits for its rest\n".into();
    }
    let now_ns = time::now_ns();
    let mut table = Table::new(&["NAME", "OWNER", "AGE", "CAME", "LAST", "STATE"]);
    for info in found {
        let age = |begun_ns: u64| span(now_ns.saturating_sub(begun_ns) / 1_000_000_000);
        table.row(vec![
            info.dataset.clone(),
            info.owner.clone().unwrap_or_else(|| "-".into()),
            info.begun_ns.map_or_else(|| "-".into(), age),
            output.size(info.received_bytes),
            time::text_s(info.heard_ns / 1_000_000_000),
            if info.receiving { "comes" } else { "broke off" }.into(),
        ]);
    }
    output.table(&table)
}

fn text(found: &[ReceiveInfo], output: Output) -> String {
    if found.is_empty() && !output.script {
        return "no stream waits for its rest (aquifer receive -s keeps what came)\n".into();
    }
    let mut table = Table::new(&["NAME", "SENT", "CAME", "USED", "LAST", "STATE"]);
    for info in found {
        table.row(vec![
            info.dataset.clone(),
            info.sent.clone(),
            output.size(info.received_bytes),
            info.used_bytes.map_or_else(|| "-".into(), |bytes| output.size(bytes)),
            time::text_s(info.heard_ns / 1_000_000_000),
            if info.receiving { "comes" } else { "broke off" }.into(),
        ]);
    }
    output.table(&table)
}

/// The tokens of datasets, in the order in which they are named; `-` of those where nothing waits.
pub(super) async fn tokens(
    client: &Client,
    datasets: Vec<String>,
    recursive: bool,
) -> Result<Vec<Line>, Failure> {
    let line = |dataset: String, value: String| {
        let property = PropertyValue { name: TOKEN.into(), value, source: "-".into() };
        Line { dataset, property }
    };
    let of_all = |found: Vec<ReceiveInfo>| {
        found.into_iter().map(|info| line(info.dataset, info.receive_resume_token))
    };
    if datasets.is_empty() {
        return Ok(of_all(client.ask(&ReceivesQuery::default()).await?).collect());
    }
    let mut lines = Vec::new();
    for dataset in datasets {
        let name = Some(dataset.clone());
        let found = client.ask(&ReceivesQuery { name, recursive, coming: false }).await?;
        if found.is_empty() {
            lines.push(line(dataset, "-".into()));
        }
        lines.extend(of_all(found));
    }
    Ok(lines)
}
