//! `aquifer hold`, `release`, `holds`.

use aquifer_api::client::Client;
use aquifer_api::{HoldInfo, HoldQuery, HoldSnapshots, ReleaseSnapshots, SnapshotQuery};

use super::Output;
use crate::failure::Failure;
use crate::table::Table;

pub(super) async fn hold(
    client: &Client,
    output: Output,
    recursive: bool,
    until_s: Option<u64>,
    tag: String,
    names: Vec<String>,
) -> Result<(), Failure> {
    let request = HoldSnapshots { tag, names, recursive, until_s };
    let done = client.ask(&request).await?;
    output.answer(&done, |_| String::new())
}

pub(super) async fn release(
    client: &Client,
    output: Output,
    recursive: bool,
    tag: String,
    names: Vec<String>,
) -> Result<(), Failure> {
    let done = client.ask(&ReleaseSnapshots { tag, names, recursive }).await?;
    output.answer(&done, |_| String::new())
}

pub(super) async fn holds(
    client: &Client,
    output: Output,
    recursive: bool,
    names: Vec<String>,
) -> Result<(), Failure> {
    let mut infos = Vec::new();
    if names.is_empty() {
        infos = client.ask(&HoldQuery::default()).await?;
    }
    for name in names {
        let query = SnapshotQuery { name: Some(name), recursive, ..Default::default() };
        infos.extend(client.ask(&HoldQuery(query)).await?);
    }
    output.answer(&infos, |infos| text(infos, output))
}

fn text(infos: &[HoldInfo], output: Output) -> String {
    if infos.is_empty() && !output.script {
        return "no holds (aquifer hold TAG DATASET@NAME places one)\n".into();
    }
    let mut table = Table::new(&["NAME", "TAG", "TIMESTAMP", "UNTIL"]);
    for HoldInfo { snapshot, tag, placed_ns, ends_s } in infos {
        let until = ends_s.map_or_else(
            || "released".into(),
            |ends_s| output.minute(ends_s.saturating_mul(1_000_000_000)),
        );
        table.row(vec![snapshot.clone(), tag.clone(), output.minute(*placed_ns), until]);
    }
    output.table(&table)
}
