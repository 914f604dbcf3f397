//! The side that has the dataset, here: its snapshots, and the holds by which it knows what copies
//! have.
//!
//! Invariants:
//! - The newest snapshot that a copy has is held here, under the copy's tag ([`Target::tag`]). So
//!   nobody destroys by mistake what the next increment begins with, and after a restart it is
//!   known without asking how far the copy is behind.
//! - The new one is held before the old one is released.
//! - No pool is kept in service: a dataset is found by its name each time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aquifer_api::{ApiError, guid_text, time};
use aquifer_dataset::{Dataset, DatasetError, Datasets, Snapshot, Standing, is_mark};
use aquifer_ondisk::Txg;

use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::super::{Control, errors};
use super::plan::Known;
use super::target::{Target, is_of_replication};

/// A snapshot of this side.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub known: Known,
    pub txg: Txg,
    pub taken_ns: u64,
    pub refer_bytes: u64,
    /// Holds on it.
    pub tags: Vec<String>,
}

/// A dataset with its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Full name.
    pub dataset: String,
    pub target: Target,
}

/// The snapshots of a dataset, as they were taken.
pub(super) fn snapshots(control: &Control, dataset: &str) -> Result<Vec<Own>, ApiError> {
    let serving = control.pool_of(dataset)?;
    let (found, datasets) = (find(&serving, dataset)?, &serving.service().datasets);
    Ok(listed(&serving, datasets, &found))
}

/// Snapshots of a dataset, and bookmarks of those that are gone: what a copy may have too.
pub(super) fn known(control: &Control, dataset: &str) -> Result<Vec<Known>, ApiError> {
    let serving = control.pool_of(dataset)?;
    let (found, datasets) = (find(&serving, dataset)?, &serving.service().datasets);
    let snapshots = listed(&serving, datasets, &found).into_iter();
    let mut known: BTreeMap<_, Known> = snapshots.map(|own| (own.txg, own.known)).collect();
    for of in found.bookmarks(serving.service().pool.committed_txg()) {
        known.entry(of.txg).or_insert_with(|| Known {
            name: of.record.name.clone(),
            is_bookmark: true,
            guid: guid_text(of.record.guid.0),
            is_passing: false,
        });
    }
    Ok(known.into_values().collect())
}

fn listed(serving: &Serving, datasets: &Datasets, dataset: &Arc<Dataset>) -> Vec<Own> {
    let listed = dataset.snapshots(serving.service().pool.committed_txg());
    let own = |of: &Arc<Snapshot>| {
        let holds = datasets.holds(dataset, of.txg);
        Own {
            known: Known {
                name: of.record.name.clone(),
                is_bookmark: false,
                guid: guid_text(of.record.guid.0),
                is_passing: is_of_replication(&of.record.name),
            },
            txg: of.txg,
            taken_ns: taken_ns(of, &holds),
            refer_bytes: of.record.refer_bytes,
            tags: holds.into_iter().map(|hold| hold.tag).collect(),
        }
    };
    listed.iter().map(own).collect()
}

/// When a snapshot was taken. One that was received was so before it came, whatever the clock says
/// of the server that took it.
fn taken_ns(of: &Snapshot, holds: &[Standing]) -> u64 {
    let mark = holds.iter().find(|hold| is_mark(&hold.tag));
    let came = mark.map_or(u64::MAX, |mark| mark.placed.since_1970_ns());
    of.record.created.since_1970_ns().min(came)
}

/// The newest snapshots that the copies of datasets of one pool are known to have.
pub(super) fn newest(control: &Control, members: &[Member]) -> Vec<Option<Own>> {
    let serving = members.first().and_then(|first| control.pool_of(&first.dataset).ok());
    let Some(serving) = serving else { return vec![None; members.len()] };
    let datasets = &serving.service().datasets;
    // Each name is looked up by walking through all: with many, once for all.
    let all: HashMap<String, Arc<Dataset>> =
        datasets.all().into_iter().map(|of| (datasets.full_name(&of), of)).collect();
    let newest = |member: &Member| {
        let (dataset, tag) = (all.get(&member.dataset)?, member.target.tag());
        let mut listed = listed(&serving, datasets, dataset).into_iter().rev();
        listed.find(|own| own.tags.contains(&tag))
    };
    members.iter().map(newest).collect()
}

/// The newest snapshots that came to copies which are here.
pub(super) fn newest_of_copies(control: &Control, members: &[Member]) -> Vec<Option<Own>> {
    let newest = |of: &Member| {
        let serving = control.pool_of(&of.target.dataset).ok()?;
        newest_of_copy(&serving, &find(&serving, &of.target.dataset).ok()?)
    };
    members.iter().map(newest).collect()
}

/// The newest snapshot that came to a copy: the marked one. Without a mark it is the newest of all.
fn newest_of_copy(serving: &Serving, copy: &Arc<Dataset>) -> Option<Own> {
    let mut all = listed(serving, &serving.service().datasets, copy);
    let is_marked = |own: &Own| own.tags.iter().any(|tag| is_mark(tag));
    match all.iter().rposition(is_marked) {
        Some(at) => Some(all.swap_remove(at)),
        None => all.pop(),
    }
}

/// When what a copy has was taken.
pub(in super::super) fn taken_of_copy_ns(serving: &Serving, copy: &Arc<Dataset>) -> Option<u64> {
    Some(newest_of_copy(serving, copy)?.taken_ns)
}

/// Whether a dataset is a copy that stands by itself.
pub(super) fn stands_by(control: &Control, dataset: &str) -> Result<bool, ApiError> {
    let serving = control.pool_of(dataset)?;
    Ok(find(&serving, dataset)?.is_standby())
}

/// A dataset and, if that is wanted, all below it, those above first.
pub(super) fn members(
    control: &Control,
    dataset: &str,
    target: &Target,
    recursive: bool,
) -> Result<Vec<Member>, ApiError> {
    let serving = control.pool_of(dataset)?;
    let (found, datasets) = (find(&serving, dataset)?, &serving.service().datasets);
    let all = if recursive { datasets.below(&found) } else { vec![found] };
    let mut names: Vec<String> = all.iter().map(|of| datasets.full_name(of)).collect();
    names.sort();
    let member = |name: String| Member { target: target.of(dataset, &name), dataset: name };
    Ok(names.into_iter().map(member).collect())
}

/// Takes snapshots of one name of these datasets, all in one txg. Returns those that are gone: they
/// do not hold up the others.
pub(super) async fn take(
    control: &Control,
    members: &[Member],
    name: &str,
) -> Result<Vec<Member>, ApiError> {
    let Some(first) = members.first() else { return Ok(Vec::new()) };
    let (_act, serving) = control.act_of(&first.dataset, "replicate (snapshot)").await?;
    let datasets = serving.service().datasets.clone();
    let all = names(&datasets);
    let (here, gone): (Vec<_>, Vec<_>) =
        members.iter().cloned().partition(|of| all.contains(&of.dataset));
    let names: Vec<String> = here.iter().map(|of| format!("{}@{name}", of.dataset)).collect();
    act_on(&serving, async move { datasets.snapshot(&names, false).await }).await?;
    Ok(gone)
}

/// Of these copies below the one of a dataset, those that have no dataset here of their name.
pub(super) fn left(
    control: &Control,
    dataset: &str,
    target: &Target,
    copies: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    let all = names(&control.pool_of(dataset)?.service().datasets);
    let is_left = |copy: &String| {
        let below = copy.strip_prefix(&target.dataset).filter(|below| below.starts_with('/'));
        below.is_some_and(|below| !all.contains(&format!("{dataset}{below}")))
    };
    Ok(copies.into_iter().filter(is_left).collect())
}

fn names(datasets: &Datasets) -> BTreeSet<String> {
    datasets.all().iter().map(|of| datasets.full_name(of)).collect()
}

/// The copy has this snapshot on disk: it is held instead of the one that the copy had before.
pub(super) async fn settle(control: &Control, member: &Member, guid: &str) -> Result<(), ApiError> {
    let (_act, serving) = control.act_of(&member.dataset, "replicate (hold)").await?;
    let dataset = find(&serving, &member.dataset)?;
    let (datasets, tag) = (serving.service().datasets.clone(), member.target.tag());
    let all = listed(&serving, &datasets, &dataset);
    let has_tag = |own: &&Own| own.tags.contains(&tag);
    let Some(new) = all.iter().find(|own| own.known.guid == guid) else { return Ok(()) };
    let mut old: BTreeSet<Txg> = all.iter().filter(has_tag).map(|own| own.txg).collect();
    let is_held = old.remove(&new.txg);
    let new = new.txg;
    let act = async move {
        if !is_held {
            datasets.hold(&tag, &[(dataset.clone(), new)], None).await?;
        }
        let old: Vec<(Arc<Dataset>, Txg)> =
            old.into_iter().map(|txg| (dataset.clone(), txg)).collect();
        match old.is_empty() {
            true => Ok(()),
            false => datasets.release(&tag, &old).await,
        }
    };
    act_on(&serving, act).await
}

/// Destroys what earlier runs took for this copy and nobody needs: it has no hold, and none of
/// these guids.
pub(super) async fn prune(control: &Control, member: &Member, needed: &[String]) {
    let Ok(all) = snapshots(control, &member.dataset) else { return };
    let is_over = |own: &&Own| {
        let Known { name, guid, .. } = &own.known;
        member.target.is_own(name) && own.tags.is_empty() && !needed.contains(guid)
    };
    for own in all.iter().filter(is_over) {
        if let Err(error) = destroy(control, &member.dataset, own.txg).await {
            // A clone begins with it, mostly.
            let (dataset, snapshot) = (&member.dataset, &own.known.name);
            tracing::debug!(%dataset, %snapshot, %error, "a snapshot of a replication stays");
        }
    }
}

async fn destroy(control: &Control, dataset: &str, txg: Txg) -> Result<(), ApiError> {
    let (_act, serving) = control.act_of(dataset, "replicate (prune)").await?;
    let (datasets, found) = (serving.service().datasets.clone(), find(&serving, dataset)?);
    let acts = [(found, BTreeSet::from([txg]))];
    act_on(&serving, async move { datasets.destroy_snapshots(&acts, false).await }).await.map(drop)
}

fn find(serving: &Serving, dataset: &str) -> Result<Arc<Dataset>, ApiError> {
    let found = serving.service().datasets.by_name(dataset);
    found.ok_or_else(|| errors::api_error(DatasetError::NotFound(dataset.into())))
}

/// Seconds from then until now.
pub(super) fn seconds_since(then_ns: u64) -> u64 {
    time::now_ns().saturating_sub(then_ns) / 1_000_000_000
}
