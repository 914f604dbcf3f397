//! A bundle: a snapshot of a dataset, and those of its name of all datasets below; perhaps with all
//! since an older one.
//!
//! The daemon keeps nothing between two parts, as for one stream. Each part finds the datasets
//! again; the cursor carries a mark of the head, so that the streams are those that it lists.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aquifer_api::{ApiError, SendQuery, SentPart};
use aquifer_dataset::{Dataset, Datasets, FullName, Snapshot};
use aquifer_files::subject::{OneSnapshot, Subject};
use aquifer_files::{Bundle, BundleHead, BundleMember, SendError};
use aquifer_ondisk::{Guid, Txg};

use super::super::serving::Serving;
use super::super::{Control, Scope, subjects};
use super::api_error;

/// Where the next part begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    /// Of the head.
    mark: u64,
    /// The stream.
    at: usize,
    /// Where it goes on; empty: it begins.
    within: String,
}

impl Control {
    /// Some bytes of a bundle: its head, or a part of one of its streams.
    pub(super) async fn send_tree_part(&self, query: SendQuery) -> Result<SentPart, ApiError> {
        let SendQuery { snapshot, token, from, size_only, after, between, recursive: _ } = query;
        if token.is_some() {
            return Err(ApiError::invalid("the rest of a stream is of one dataset, not of a tree"));
        }
        if between && from.is_none() {
            return Err(ApiError::invalid("say since which snapshot all between are sent"));
        }
        let serving = self.pool_of_one(&snapshot)?;
        let subject = subjects::subject(&serving.service().datasets, &snapshot)?;
        if let Subject::FileSnapshots(_) = subject {
            return Err(ApiError::invalid(format!(
                "{snapshot:?} is a snapshot of a file: -R is for datasets"
            )));
        }
        let one = subject.one_snapshot(&snapshot).map_err(subjects::api_error)?;
        let (tree, from) = bundle(&serving, &one, from.as_deref(), between)?;
        let mut head = tree.encode().map_err(|error| ApiError::conflict(error.to_string()))?;
        // It ends with a checksum.
        let mark = head.last_chunk::<8>().map_or(0, |last| u64::from_le_bytes(*last));
        let Some(after) = after else {
            let stream_bytes = head.len() as u64;
            if size_only {
                head.clear();
            }
            let next = Cursor { mark, at: 0, within: String::new() }.to_string();
            return Ok(SentPart { bytes: head, stream_bytes, next: Some(next) });
        };
        let bad = || api_error(SendError::BadCursor(after.clone()));
        let cursor: Cursor = after.parse().map_err(|()| bad())?;
        if cursor.mark != mark {
            return Err(ApiError::conflict(format!(
                "datasets below {:?}, or their snapshots, changed while they were sent: begin \
                 again",
                tree.bundle.dataset
            )));
        }
        let Bundle { dataset, members, .. } = &tree.bundle;
        let member = members.get(cursor.at).ok_or_else(bad)?;
        let dataset = Bundle::name_below(dataset, member);
        let from = match tree.bundle.is_behind(cursor.at) {
            true => Some(format!("@{}", tree.snapshot(cursor.at.saturating_sub(1)))),
            false => from.map(|from| from.short()),
        };
        let query = SendQuery {
            snapshot: format!("{dataset}@{}", tree.snapshot(cursor.at)),
            from: member.from.and(from),
            size_only,
            after: Some(cursor.within).filter(|within| !within.is_empty()),
            ..SendQuery::default()
        };
        let part = self.send_one_part(query, &Scope::default()).await?;
        let next = match part.next {
            Some(within) => Some(Cursor { mark, at: cursor.at, within }),
            None => {
                let at = cursor.at + 1;
                (at < members.len()).then(|| Cursor { mark, at, within: String::new() })
            }
        };
        Ok(SentPart { next: next.map(|next| next.to_string()), ..part })
    }
}

/// The snapshot, or the bookmark, since which changes are sent, by its name in each dataset.
struct Since {
    is_bookmark: bool,
    name: String,
}

impl Since {
    /// With its mark.
    fn short(&self) -> String {
        format!("{}{}", if self.is_bookmark { '#' } else { '@' }, self.name)
    }
}

/// Lists what a bundle has, and finds the older snapshot.
fn bundle(
    serving: &Serving,
    one: &OneSnapshot,
    from: Option<&str>,
    between: bool,
) -> Result<(BundleHead, Option<Since>), ApiError> {
    let datasets = &serving.service().datasets;
    let committed = serving.service().pool.committed_txg();
    let dataset_error = |error| api_error(SendError::from(error));
    let (first, snapshot) = datasets.snapshot_by_name(&one.full).map_err(dataset_error)?;
    let (dataset, snapshot) = (datasets.full_name(&first), snapshot.record.name.clone());
    let from = match from {
        Some(from) => Some(since(datasets, &dataset, from)?),
        None => None,
    };
    let mut rows = Vec::new();
    for of in datasets.below(&first) {
        let name = datasets.full_name(&of);
        let Some(to) = named(&of, &snapshot, committed) else { continue };
        let old = from.as_ref().and_then(|from| older(&of, from, committed));
        if let Some(old) = old.as_ref().filter(|old| old.txg >= to.txg) {
            let from = format!("{name}@{}", old.record.name);
            let snapshot = format!("{name}@{snapshot}");
            return Err(api_error(SendError::NotOlder { from, snapshot }));
        }
        let below = name.strip_prefix(&dataset).unwrap_or_default().to_string();
        // One that has no older one goes with all that it has.
        let since = old.as_ref().map(|old| old.txg);
        let is_between = |txg| between && since.is_none_or(|since| txg > since) && txg < to.txg;
        let listed = of.snapshots(committed).into_iter();
        let row = listed.filter(|of| is_between(of.txg)).chain([to.clone()]).collect();
        rows.push(Row { below, old: old.map(|old| old.record.guid), row });
    }
    // One above comes before those below it.
    rows.sort_by(|a, b| a.below.cmp(&b.below));
    Ok((head(dataset, snapshot, rows), from))
}

/// The older snapshot, or bookmark, of the dataset on top.
fn since(datasets: &Datasets, dataset: &str, from: &str) -> Result<Since, ApiError> {
    let full = FullName::completed(dataset, from);
    let (found, since) = match FullName::of(&full) {
        FullName::Snapshot(of, name) if of == dataset => {
            (datasets.snapshot_by_name(&full), Since { is_bookmark: false, name: name.into() })
        }
        FullName::Bookmark(of, name) if of == dataset => {
            (datasets.bookmark_by_name(&full), Since { is_bookmark: true, name: name.into() })
        }
        _ => return Err(ApiError::invalid(format!("{from:?}: say -i @NAME, or -i #NAME"))),
    };
    found.map_err(|error| api_error(SendError::from(error)))?;
    Ok(since)
}

/// Snapshots that are sent of a dataset.
struct Row {
    below: String,
    /// Of the snapshot since which the first one has what changed.
    old: Option<Guid>,
    /// From the oldest on.
    row: Vec<Arc<Snapshot>>,
}

fn head(dataset: String, snapshot: String, rows: Vec<Row>) -> BundleHead {
    let bundle = Bundle { dataset, snapshot, members: Vec::new() };
    let mut head = BundleHead { bundle, between: BTreeMap::new() };
    for Row { below, old: mut from, row } in rows {
        let last = row.len().saturating_sub(1);
        for (at, of) in row.into_iter().enumerate() {
            if at < last {
                head.between.insert(head.bundle.members.len(), of.record.name.clone());
            }
            let to = of.record.guid;
            head.bundle.members.push(BundleMember { below: below.clone(), to, from });
            from = Some(to);
        }
    }
    head
}

fn named(dataset: &Dataset, name: &str, committed: Txg) -> Option<Arc<Snapshot>> {
    dataset.snapshots(committed).into_iter().find(|of| of.record.name == name)
}

fn older(dataset: &Dataset, from: &Since, committed: Txg) -> Option<Arc<Snapshot>> {
    match from.is_bookmark {
        false => named(dataset, &from.name, committed),
        true => dataset.bookmarks(committed).into_iter().find(|of| of.record.name == from.name),
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { mark, at, within } = self;
        write!(f, "b-{mark:x}-{at:x}-{within}")
    }
}

impl FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Cursor, ()> {
        let mut parts = text.splitn(4, '-');
        let mut next = || parts.next().ok_or(());
        if next()? != "b" {
            return Err(());
        }
        let mark = u64::from_str_radix(next()?, 16).map_err(drop)?;
        let at = usize::from_str_radix(next()?, 16).map_err(drop)?;
        Ok(Cursor { mark, at, within: next()?.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_others_are_none() {
        for within in ["", "1-2-n-3.4"] {
            let cursor = Cursor { mark: 0xabc, at: 17, within: within.into() };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for bad in ["", "b", "b-1", "b-1-2", "c-1-2-", "b-x-2-", "b-1--", "b--1-"] {
            assert_eq!(bad.parse::<Cursor>(), Err(()), "{bad}");
        }
    }
}
