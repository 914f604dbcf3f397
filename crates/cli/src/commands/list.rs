//! `aquifer list`: datasets, snapshots and bookmarks.

use aquifer_api::client::Client;
use aquifer_api::{
    BookmarkInfo, BookmarkQuery, DatasetInfo, DatasetQuery, SnapshotInfo, SnapshotQuery,
};
use serde::Serialize;

use super::Output;
use super::columns::{Line, Wanted, sort};
use crate::args::{ListArgs, ListKind};
use crate::failure::Failure;
use crate::table::Table;

/// Datasets, and their snapshots and bookmarks.
#[derive(Debug, Default, Serialize)]
struct All {
    datasets: Vec<DatasetInfo>,
    snapshots: Vec<SnapshotInfo>,
    bookmarks: Vec<BookmarkInfo>,
}

pub(super) async fn list(client: &Client, output: Output, args: ListArgs) -> Result<(), Failure> {
    let ListArgs { recursive, depth, kind, dataset: name, .. } = &args;
    let is_snapshot = name.as_ref().is_some_and(|name| name.contains('@'));
    let is_bookmark = !is_snapshot && name.as_ref().is_some_and(|name| name.contains('#'));
    let kind = kind.unwrap_or(match (is_snapshot, is_bookmark) {
        (true, _) => ListKind::Snapshot,
        (_, true) => ListKind::Bookmark,
        _ => ListKind::Filesystem,
    });
    if kind == ListKind::Receiving {
        return super::receives::list(client, output, name.clone(), *recursive).await;
    }
    if is_snapshot && kind != ListKind::Snapshot {
        return Err(Failure::usage("a name with an '@' is a snapshot's: -t snapshot"));
    }
    if is_bookmark && kind != ListKind::Bookmark {
        return Err(Failure::usage("a name with a '#' is a bookmark's: -t bookmark"));
    }
    let recursive = *recursive || depth.is_some();
    let mut all = All::default();
    if matches!(kind, ListKind::Filesystem | ListKind::All) {
        let query = DatasetQuery { name: name.clone(), recursive };
        all.datasets = client.ask(&query).await?;
    }
    let query = SnapshotQuery { name: name.clone(), recursive, used: true, ..Default::default() };
    if matches!(kind, ListKind::Snapshot | ListKind::All) {
        all.snapshots = client.snapshots(&query).await?;
    }
    if matches!(kind, ListKind::Bookmark | ListKind::All) {
        let query = SnapshotQuery { used: false, ..query };
        all.bookmarks = client.ask(&BookmarkQuery(query)).await?;
    }
    if let Some(depth) = *depth {
        all.cut(name.as_deref(), depth);
    }
    let text = |all: &All| text(all, kind, &args, output);
    // What is wrong with columns is said before anything is printed.
    let told = text(&all)?;
    match kind {
        ListKind::Filesystem => output.answer(&all.datasets, |_| told),
        ListKind::Snapshot => output.answer(&all.snapshots, |_| told),
        ListKind::Bookmark => output.answer(&all.bookmarks, |_| told),
        _ => output.answer(&all, |_| told),
    }
}

impl All {
    /// Leaves out what lies deeper below a dataset, or below the pools.
    fn cut(&mut self, below: Option<&str>, depth: usize) {
        let level = |name: &str| name.matches('/').count();
        let deepest = below.map_or(0, level) + depth;
        self.datasets.retain(|info| level(&info.name) <= deepest);
        self.snapshots.retain(|info| level(&info.dataset) <= deepest);
        self.bookmarks.retain(|info| level(&info.dataset) <= deepest);
    }

    /// Each dataset, and behind it its snapshots and bookmarks; or one kind alone.
    fn lines(&self) -> Vec<Line<'_>> {
        if self.datasets.is_empty() {
            let bookmarks = self.bookmarks.iter().map(Line::Bookmark);
            return self.snapshots.iter().map(Line::Snapshot).chain(bookmarks).collect();
        }
        let mut lines = Vec::new();
        for info in &self.datasets {
            lines.push(Line::Dataset(info));
            let own = self.snapshots.iter().filter(|snapshot| snapshot.dataset == info.name);
            lines.extend(own.map(Line::Snapshot));
            let own = self.bookmarks.iter().filter(|bookmark| bookmark.dataset == info.name);
            lines.extend(own.map(Line::Bookmark));
        }
        lines
    }
}

fn text(all: &All, kind: ListKind, args: &ListArgs, output: Output) -> Result<String, Failure> {
    let mut lines = all.lines();
    if lines.is_empty() && !output.script {
        return Ok(match kind {
            ListKind::Snapshot => "no snapshots (aquifer snapshot DATASET@NAME takes one)\n".into(),
            ListKind::Bookmark => {
                "no bookmarks (aquifer bookmark DATASET@NAME '#BOOKMARK')\n".into()
            }
            _ => "no datasets: there is no pool in service (aquifer pool status)\n".into(),
        });
    }
    let usual: &[&str] = match kind {
        // Only where there are clones.
        ListKind::Filesystem if all.datasets.iter().any(|info| info.origin.is_some()) => {
            &["name", "used", "available", "referenced", "mountpoint", "origin"]
        }
        ListKind::Filesystem => &["name", "used", "available", "referenced", "mountpoint"],
        ListKind::Snapshot => &["name", "used", "available", "referenced", "creation"],
        ListKind::Bookmark => &["name", "referenced", "creation"],
        _ => &["name", "used", "available", "referenced", "creation", "mountpoint"],
    };
    let names: Vec<&str> = match args.columns.is_empty() {
        true => usual.to_vec(),
        false => args.columns.iter().map(String::as_str).collect(),
    };
    let columns = names.into_iter().map(|name| Wanted::of(name, &lines));
    let columns: Vec<Wanted<'_>> = columns.collect::<Result<_, _>>()?;
    sort(&mut lines, &args.sort.0)?;
    let mut table = Table::new(&columns.iter().map(|column| column.header()).collect::<Vec<_>>());
    let mut warnings = String::new();
    for line in lines {
        let cells = columns.iter().map(|column| column.cell(line, output)).collect();
        match unsafe_reason(line) {
            Some(reason) => {
                warnings.push_str(&format!("sync=disabled: {}: {reason}\n", line.name()));
                table.red_row(cells);
            }
            None => table.row(cells),
        }
    }
    let warnings = if output.script { String::new() } else { output.red(&warnings) };
    Ok(output.table(&table) + &warnings)
}

/// Why a dataset reports as durable what is not.
fn unsafe_reason<'a>(line: Line<'a>) -> Option<&'a str> {
    let Line::Dataset(info) = line else { return None };
    let sync = info.properties.iter().find(|property| property.name == "sync");
    sync.and_then(|sync| sync.value.strip_prefix("disabled:"))
}
