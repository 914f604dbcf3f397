//! `aquifer list`: datasets and snapshots.

use aquifer_api::client::Client;
use aquifer_api::time;
use aquifer_api::{DatasetInfo, DatasetQuery, SnapshotInfo, SnapshotQuery};
use serde::Serialize;

use super::Output;
use crate::args::ListKind;
use crate::failure::Failure;
use crate::table::Table;

/// Datasets and their snapshots.
#[derive(Debug, Serialize)]
struct All {
    datasets: Vec<DatasetInfo>,
    snapshots: Vec<SnapshotInfo>,
}

pub(super) async fn list(
    client: &Client,
    output: Output,
    recursive: bool,
    kind: Option<ListKind>,
    name: Option<String>,
) -> Result<(), Failure> {
    let is_snapshot = name.as_ref().is_some_and(|name| name.contains('@'));
    let kind = kind.unwrap_or(match is_snapshot {
        true => ListKind::Snapshot,
        false => ListKind::Filesystem,
    });
    if is_snapshot && kind != ListKind::Snapshot {
        return Err(Failure::usage("a name with an '@' is a snapshot's: -t snapshot"));
    }
    let of_datasets = DatasetQuery { name: name.clone(), recursive };
    let of_snapshots = SnapshotQuery { name, recursive };
    match kind {
        ListKind::Filesystem => {
            let infos = client.datasets(&of_datasets).await?;
            output.answer(&infos, |infos| datasets_text(infos, output))
        }
        ListKind::Snapshot => {
            let infos = client.snapshots(&of_snapshots).await?;
            output.answer(&infos, |infos| snapshots_text(infos, output))
        }
        ListKind::All => {
            let datasets = client.datasets(&of_datasets).await?;
            let snapshots = client.snapshots(&of_snapshots).await?;
            output.answer(&All { datasets, snapshots }, |all| all_text(all, output))
        }
    }
}

fn datasets_text(infos: &[DatasetInfo], output: Output) -> String {
    if infos.is_empty() && !output.script {
        return no_datasets();
    }
    let columns = ["NAME", ">USED", ">AVAIL", ">REFER", "NFS PATH", "ORIGIN"];
    // Only where there are clones.
    let count = 5 + usize::from(infos.iter().any(|info| info.origin.is_some()));
    let mut table = Table::new(columns.get(..count).unwrap_or(&columns));
    let mut warnings = String::new();
    for info in infos {
        let origin = info.origin.clone().unwrap_or_else(|| "-".into());
        let mut cells = [dataset_cells(info, output), vec![nfs_path(info), origin]].concat();
        cells.truncate(count);
        dataset_row(&mut table, &mut warnings, info, cells);
    }
    output.table(&table) + &shown(&warnings, output)
}

fn snapshots_text(infos: &[SnapshotInfo], output: Output) -> String {
    if infos.is_empty() && !output.script {
        return "no snapshots (aquifer snapshot DATASET@NAME takes one)\n".into();
    }
    let mut table = Table::new(&["NAME", ">USED", ">AVAIL", ">REFER", "CREATED"]);
    for info in infos {
        table.row(snapshot_cells(info, output));
    }
    output.table(&table)
}

/// Each dataset, and behind it its snapshots.
fn all_text(All { datasets, snapshots }: &All, output: Output) -> String {
    if datasets.is_empty() && !output.script {
        return no_datasets();
    }
    let columns = ["NAME", ">USED", ">AVAIL", ">REFER", "CREATED", "NFS PATH"];
    let mut table = Table::new(&columns);
    let mut warnings = String::new();
    for info in datasets {
        let more = vec!["-".into(), nfs_path(info)];
        let cells = [dataset_cells(info, output), more].concat();
        dataset_row(&mut table, &mut warnings, info, cells);
        for snapshot in snapshots.iter().filter(|snapshot| snapshot.dataset == info.name) {
            table.row([snapshot_cells(snapshot, output), vec!["-".into()]].concat());
        }
    }
    output.table(&table) + &shown(&warnings, output)
}

fn no_datasets() -> String {
    "no datasets: there is no pool in service (aquifer pool status)\n".into()
}

fn dataset_cells(info: &DatasetInfo, output: Output) -> Vec<String> {
    let sizes = [info.used_bytes, info.available_bytes, info.refer_bytes];
    let sizes = sizes.map(|bytes| output.size(bytes));
    std::iter::once(info.name.clone()).chain(sizes).collect()
}

fn nfs_path(info: &DatasetInfo) -> String {
    let none = if info.standby { "standby" } else { "-" };
    info.nfs_path.clone().unwrap_or_else(|| none.into())
}

fn snapshot_cells(info: &SnapshotInfo, output: Output) -> Vec<String> {
    vec![
        info.name.clone(),
        info.used_bytes.map_or_else(|| "?".into(), |bytes| output.size(bytes)),
        "-".into(),
        output.size(info.refer_bytes),
        time::text(info.created_ns),
    ]
}

fn dataset_row(table: &mut Table, warnings: &mut String, info: &DatasetInfo, cells: Vec<String>) {
    let sync = info.properties.iter().find(|property| property.name == "sync");
    match sync.and_then(|sync| sync.value.strip_prefix("disabled:")) {
        Some(reason) => {
            warnings.push_str(&format!("sync=disabled: {}: {reason}\n", info.name));
            table.red_row(cells);
        }
        None => table.row(cells),
    }
}

fn shown(warnings: &str, output: Output) -> String {
    if output.script { String::new() } else { output.red(warnings) }
}
