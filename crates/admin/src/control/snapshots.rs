//! Acts and questions on snapshots.

pub(super) mod files;
pub(super) mod holds;
mod pages;
pub(super) mod schedules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_api::{
    ApiError, DestroySnapshots, RenameSnapshot, SnapshotInfo, SnapshotQuery, SnapshotsDestroyed,
    SnapshotsDone, TakeSnapshots, guid_text,
};
use aquifer_dataset::{Dataset, DatasetError, FileSnapshot, Snapshot, These};
use aquifer_files::subject::{OneSnapshot, SnapshotNames, Subject};
use aquifer_ondisk::Txg;
use aquifer_pool::{PoolError, Turns};

use super::datasets::act_on;
use super::history::Facts;
use super::serving::Serving;
use super::subjects::{self, Snapshots};
use super::{Control, Scope, errors};
use pages::{Cursor, Page};

/// Snapshots of a dataset, in the order in which they were taken.
#[derive(Debug, Clone)]
pub(super) struct SnapshotsOf {
    /// Full name of the dataset.
    pub name: String,
    pub dataset: Arc<Dataset>,
    snapshots: Vec<Arc<Snapshot>>,
    /// Those of its files.
    files: Vec<Arc<FileSnapshot>>,
}

impl Control {
    /// Takes snapshots, all in one txg. When this returns they are on disk.
    ///
    /// # Errors
    /// Names of several pools, bad names, datasets that do not exist, snapshots that do: then none
    /// is taken.
    pub async fn take_snapshots(&self, request: TakeSnapshots) -> Result<SnapshotsDone, ApiError> {
        let TakeSnapshots { names, recursive } = request;
        let (_act, serving) = self.act_of_all(&names, "snapshot").await?;
        let (names, notes) =
            match subjects::snapshots(&serving.service().datasets, &names, recursive)? {
                Snapshots::OfFiles(all) => (files::take(&serving, all).await?, Vec::new()),
                Snapshots::OfDatasets(all) => {
                    let all = subjects::each_one(all)?;
                    let notes = if recursive { left_out(&serving, &all) } else { Vec::new() };
                    let names: Vec<String> = all.into_iter().map(|of| of.full).collect();
                    let datasets = serving.service().datasets.clone();
                    let take = async move { datasets.snapshot(&names, recursive).await };
                    (act_on(&serving, take).await?, notes)
                }
            };
        tracing::info!(
            class = "snapshot.taken",
            pool = serving.name(),
            snapshots = names.join(" "),
            "snapshots taken"
        );
        Ok(SnapshotsDone { names, notes })
    }

    /// Destroys snapshots of a dataset, or of it and all below it, all in one txg. When this
    /// returns they are gone, on disk. The background frees what they alone showed.
    ///
    /// # Errors
    /// The name was not confirmed, names something that does not exist, or makes no sense. Then
    /// nothing is destroyed.
    pub async fn destroy_snapshots(
        &self,
        request: DestroySnapshots,
    ) -> Result<SnapshotsDestroyed, ApiError> {
        let DestroySnapshots { name, confirm, recursive, clones, dry_run, upto_txg } = request;
        if confirm != name && !dry_run {
            return Err(ApiError::refused(format!(
                "destroying {name:?} loses what only these snapshots show; it must be confirmed by \
                 its name"
            )));
        }
        let is_seen = |txg: Txg| upto_txg.is_none_or(|upto| txg.0 <= upto);
        let (_act, serving) = self.act_of_one(&name, "destroy").await?;
        let mut doomed = Vec::new();
        match subjects::snapshots(
            &serving.service().datasets,
            std::slice::from_ref(&name),
            recursive,
        )? {
            Snapshots::OfFiles(all) => {
                for of in &all {
                    doomed.extend(files::find(&serving, of, is_seen).await?);
                }
            }
            Snapshots::OfDatasets(all) => {
                for of in &all {
                    let mut listed = list_of(&serving, of.dataset(), recursive);
                    for of in &mut listed {
                        of.snapshots.retain(|snapshot| is_seen(snapshot.txg));
                    }
                    doomed.extend(choose(listed, of)?);
                }
            }
        }
        let snapshots = infos(&serving, doomed.clone(), true).await?;
        let free_bytes = unique_bytes(&serving, doomed.clone()).await?;
        if !dry_run {
            let clones = destroy(&serving, doomed, clones).await?;
            if !clones.is_empty() {
                let datasets = clones.join(" ");
                tracing::info!(class = "dataset.destroyed", datasets, "clones destroyed");
            }
            // Locks in what was destroyed end with that.
            self.refresh_exports().await;
            let names: Vec<&str> = snapshots.iter().map(|info| info.name.as_str()).collect();
            tracing::info!(
                class = "snapshot.destroyed",
                pool = serving.name(),
                snapshots = names.join(" "),
                "snapshots destroyed"
            );
        }
        Ok(SnapshotsDestroyed { snapshots, free_bytes })
    }

    /// Gives a snapshot another name, and those of its name in datasets below; or snapshots of
    /// files: all in one txg.
    ///
    /// # Errors
    /// There is no such snapshot, or one of the new name; or that is no name. Then none has it.
    pub async fn rename_snapshot(
        &self,
        request: RenameSnapshot,
    ) -> Result<SnapshotsDone, ApiError> {
        let RenameSnapshot { name, new, recursive } = request;
        let (_act, serving) = self.act_of_one(&name, "rename").await?;
        let names = match subjects::snapshots(
            &serving.service().datasets,
            std::slice::from_ref(&name),
            recursive,
        )? {
            Snapshots::OfFiles(all) => files::rename(&serving, &all, new).await?,
            Snapshots::OfDatasets(all) => {
                let datasets = serving.service().datasets.clone();
                let found = find_all(&serving, all, recursive)?;
                let names = found.iter().map(|of| format!("{}@{new}", of.name)).collect();
                let all = members(&found);
                let rename = async move { datasets.rename_snapshots(&all, &new).await };
                act_on(&serving, rename).await?;
                names
            }
        };
        tracing::info!(
            class = "snapshot.renamed", snapshot = %name, new = names.join(" "), "snapshot renamed"
        );
        Ok(SnapshotsDone { names, notes: Vec::new() })
    }

    /// Snapshots: one, those of a dataset, also those of datasets below it, or all of all pools.
    ///
    /// # Errors
    /// There is no dataset or snapshot with that name.
    pub async fn snapshots(
        &self,
        query: &SnapshotQuery,
        who: &str,
        scope: &Scope,
    ) -> Result<Vec<SnapshotInfo>, ApiError> {
        let SnapshotQuery { name, recursive, used, .. } = query;
        self.check_question(scope, name.as_deref(), *recursive)?;
        // Before a page is cut: else one that is empty would look like the last one.
        let is_seen = |of: &SnapshotsOf| scope.covers(&of.name);
        let mut page = Page::of(query)?;
        // What each takes alone is counted in all trees of what snapshots show: for one question
        // of each caller at a time, and in turns with clients.
        let turn = used.then(|| self.counting.turn(who));
        let _counts = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let Some(name) = name else {
            let mut found = Vec::new();
            for serving in self.all_serving() {
                let mut listed = list(&serving, serving.name(), true)?;
                listed.retain(is_seen);
                found.push((serving.clone(), page.cut(listed)));
            }
            page.check()?;
            let mut all = Vec::new();
            for (serving, listed) in found {
                all.extend(infos(&serving, listed, *used).await?);
            }
            return Ok(all);
        };
        let serving = self.pool_of_one(name)?;
        let mut found = named(&serving, name, *recursive).await?;
        found.retain(is_seen);
        let found = page.cut(found);
        page.check()?;
        infos(&serving, found, *used).await
    }

    /// The newest txg on disk of the pool that a name begins with.
    pub fn newest_txg(&self, name: &str) -> Option<u64> {
        let serving = self.pool_of_one(name).ok()?;
        Some(serving.service().pool.committed_txg().0)
    }

    /// The snapshots of a pool, as they are now.
    pub fn state_of_snapshots(&self, pool: &str) -> SnapshotState {
        let serving = self.pool_of_one(pool);
        let all = serving.and_then(|serving| list(&serving, serving.name(), true));
        SnapshotState(all.unwrap_or_default())
    }
}

/// The snapshots of a pool at one moment.
#[derive(Debug, Clone)]
pub struct SnapshotState(Vec<SnapshotsOf>);

impl SnapshotState {
    /// Returns the differences from a later moment, then and now: txgs of snapshots by their full
    /// names. A snapshot that nothing changed of is not looked into, so a look costs some
    /// nanoseconds each.
    pub(super) fn differing(&self, after: &SnapshotState) -> (Facts, Facts) {
        (self.unlike(after), after.unlike(self))
    }

    fn unlike(&self, other: &SnapshotState) -> Facts {
        let others: BTreeMap<&str, &SnapshotsOf> =
            other.0.iter().map(|of| (of.name.as_str(), of)).collect();
        let mut facts = Facts::new();
        for of in &self.0 {
            let there = others.get(of.name.as_str());
            let snapshots = there.map_or(&[][..], |there| &there.snapshots);
            for snapshot in behind_alike(&of.snapshots, snapshots) {
                let same = snapshots.binary_search_by_key(&snapshot.txg, |other| other.txg);
                let same = same.ok().and_then(|at| snapshots.get(at));
                if !same.is_some_and(|other| Arc::ptr_eq(other, snapshot)) {
                    facts.insert(of.full(snapshot), format!("txg {}", snapshot.txg));
                }
            }
            let files = there.map_or(&[][..], |there| &there.files);
            for file in behind_alike(&of.files, files) {
                let same = files.binary_search_by_key(&file.id, |other| other.id);
                let same = same.ok().and_then(|at| files.get(at));
                if same.is_none_or(|other| other.record.name != file.record.name) {
                    facts.insert(of.full_of_file(file), format!("txg {}", file.txg()));
                }
            }
        }
        facts
    }
}

/// Returns the part of a list behind all that another one begins with too.
fn behind_alike<'a, T>(list: &'a [Arc<T>], other: &[Arc<T>]) -> &'a [Arc<T>] {
    let alike = list.iter().zip(other).take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
    list.get(alike..).unwrap_or_default()
}

impl SnapshotsOf {
    fn full(&self, snapshot: &Snapshot) -> String {
        format!("{}@{}", self.name, snapshot.record.name)
    }

    fn full_of_file(&self, FileSnapshot { record, .. }: &FileSnapshot) -> String {
        format!("{}:{}@{}", self.name, record.path, record.name)
    }

    fn txgs(&self) -> BTreeSet<Txg> {
        self.snapshots.iter().map(|snapshot| snapshot.txg).collect()
    }

    /// All of them, of both kinds.
    fn these(&self) -> These {
        let mut these = These::from(self.txgs());
        for file in &self.files {
            these.files.entry(file.object()).or_default().insert(file.txg());
        }
        these
    }
}

/// Notes on a snapshot of all below these: copies take no part.
fn left_out(serving: &Serving, all: &[OneSnapshot]) -> Vec<String> {
    let datasets = &serving.service().datasets;
    let copies: Vec<String> =
        all.iter().flat_map(|of| datasets.copies_below(&of.dataset)).collect();
    match copies.len() {
        0 => Vec::new(),
        count => vec![format!(
            "{} left out, which stand{} by: copies have the snapshots that they receive",
            if count <= 5 { copies.join(", ") } else { format!("{count} datasets") },
            if count == 1 { "s" } else { "" }
        )],
    }
}

fn members(found: &[SnapshotsOf]) -> Vec<(Arc<Dataset>, Txg)> {
    let of = |of: &SnapshotsOf| {
        let dataset = of.dataset.clone();
        of.txgs().into_iter().map(move |txg| (dataset.clone(), txg))
    };
    found.iter().flat_map(of).collect()
}

/// Destroys these, all in one txg. Returns the names of the clones that went with them.
async fn destroy(
    serving: &Serving,
    doomed: Vec<SnapshotsOf>,
    clones: bool,
) -> Result<Vec<String>, ApiError> {
    let datasets = serving.service().datasets.clone();
    if doomed.iter().any(|of| !of.files.is_empty()) {
        let ids = |of: &SnapshotsOf| of.files.iter().map(|file| file.id).collect();
        let acts: Vec<_> = doomed.iter().map(|of| (of.dataset.clone(), ids(of))).collect();
        act_on(serving, async move { datasets.destroy_file_snapshots(&acts).await }).await?;
        return Ok(Vec::new());
    }
    let acts: Vec<_> = doomed.iter().map(|of| (of.dataset.clone(), of.txgs())).collect();
    act_on(serving, async move { datasets.destroy_snapshots(&acts, clones).await }).await
}

/// The snapshots of a dataset that a text names, or also of those below it; or the one, or those of
/// files, that it names.
async fn named(
    serving: &Serving,
    text: &str,
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    match subjects::subject(&serving.service().datasets, text)? {
        Subject::FileSnapshots(of) => files::find(serving, &of, |_| true).await,
        Subject::Dataset(dataset) => Ok(list_of(serving, &dataset, recursive)),
        other => {
            let one = other.one_snapshot(text).map_err(subjects::api_error)?;
            find(serving, &one, recursive)
        }
    }
}

/// A snapshot, also those of its name in datasets below, if there are any.
fn find(
    serving: &Serving,
    one: &OneSnapshot,
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let mut found = list_of(serving, &one.dataset, recursive);
    for of in &mut found {
        of.snapshots.retain(|snapshot| snapshot.record.name == one.name);
        of.files.clear();
    }
    found.retain(|of| !of.snapshots.is_empty());
    match found.is_empty() {
        true => Err(errors::api_error(DatasetError::NotFound(one.full.clone()))),
        false => Ok(found),
    }
}

/// As [`find`], each of these.
fn find_all(
    serving: &Serving,
    all: Vec<SnapshotNames>,
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let mut found = Vec::new();
    for one in subjects::each_one(all)? {
        found.extend(find(serving, &one, recursive)?);
    }
    Ok(found)
}

/// The snapshots of a dataset, also of all below it, in the order of the datasets' names.
pub(super) fn list(
    serving: &Serving,
    name: &str,
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let dataset = serving.service().datasets.by_name(name);
    let dataset = dataset.ok_or_else(|| errors::api_error(DatasetError::NotFound(name.into())))?;
    Ok(list_of(serving, &dataset, recursive))
}

/// As [`list`], of a dataset that is known.
pub(super) fn list_of(
    serving: &Serving,
    dataset: &Arc<Dataset>,
    recursive: bool,
) -> Vec<SnapshotsOf> {
    let service = serving.service();
    let datasets = &service.datasets;
    let all = if recursive { datasets.below(dataset) } else { vec![dataset.clone()] };
    let committed = service.pool.committed_txg();
    let of = |dataset: Arc<Dataset>| SnapshotsOf {
        name: datasets.full_name(&dataset),
        snapshots: dataset.snapshots(committed),
        files: dataset.file_snapshots(committed),
        dataset,
    };
    let mut all: Vec<SnapshotsOf> = all.into_iter().map(of).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Leaves those that are meant.
fn choose(all: Vec<SnapshotsOf>, of: &SnapshotNames) -> Result<Vec<SnapshotsOf>, ApiError> {
    let choice = of.choice().map_err(subjects::api_error)?;
    let (mut chosen, mut met) = (Vec::new(), Vec::new());
    let name = of.text();
    for of in all {
        let names = of.snapshots.iter().map(|snapshot| snapshot.record.name.as_str());
        let here = choice.of(&names.collect::<Vec<_>>()).map_err(subjects::api_error)?;
        let snapshots = here.places.iter().filter_map(|at| of.snapshots.get(*at).cloned());
        let snapshots: Vec<Arc<Snapshot>> = snapshots.collect();
        if !snapshots.is_empty() {
            chosen.push(SnapshotsOf { snapshots, files: Vec::new(), ..of });
        }
        met.extend(here.met);
    }
    match choice.unmet(&met) {
        Some(part) => Err(ApiError::not_found(format!(
            "snapshots {name:?}: nothing matches {part:?}; `aquifer list -t snapshot` shows those \
             that there are, and nothing was destroyed"
        ))),
        None => Ok(chosen),
    }
}

/// Snapshots, each with what it takes alone if that is to be counted.
async fn infos(
    serving: &Serving,
    of: Vec<SnapshotsOf>,
    counts: bool,
) -> Result<Vec<SnapshotInfo>, ApiError> {
    let datasets = serving.service().datasets.clone();
    let work = async move {
        let mut infos = Vec::new();
        let mut turns = Turns::new(datasets.pool());
        let counts_saved = datasets.counts_saved();
        for of in of {
            for snapshot in &of.snapshots {
                turns.step(datasets.pool()).await;
                let used_bytes = match counts {
                    true => {
                        let alone = These::from(BTreeSet::from([snapshot.txg]));
                        readable(datasets.unique_bytes(&of.dataset, &alone).await)?
                    }
                    false => None,
                };
                let record = &snapshot.record;
                infos.push(SnapshotInfo {
                    name: of.full(snapshot),
                    dataset: of.name.clone(),
                    created_ns: record.created.since_1970_ns(),
                    txg: snapshot.txg.0,
                    guid: guid_text(record.guid.0),
                    used_bytes,
                    refer_bytes: record.refer_bytes,
                    logical_refer_bytes: counts_saved.then_some(record.refer().logical_bytes()),
                    holds: datasets.holds(&of.dataset, snapshot.txg).len() as u64,
                    schedule: datasets
                        .schedule_of(&of.dataset, snapshot.txg)
                        .map(|cadence| cadence.name().into()),
                    path: None,
                    size_bytes: None,
                    cursor: Cursor::of(&of.name, snapshot.txg).to_string(),
                });
            }
            for file in &of.files {
                turns.step(datasets.pool()).await;
                let used_bytes = match counts {
                    true => {
                        let alone = BTreeSet::from([file.id]);
                        readable(datasets.unique_bytes_of_files(&of.dataset, &alone).await)?
                    }
                    false => None,
                };
                let info = files::info(&of, file, (used_bytes, counts_saved));
                let holds = datasets.holds(&of.dataset, file.id).len() as u64;
                infos.push(SnapshotInfo { holds, ..info });
            }
        }
        Ok(infos)
    };
    on_pool(serving, work).await
}

/// Bytes that become free with all of these.
async fn unique_bytes(serving: &Serving, of: Vec<SnapshotsOf>) -> Result<Option<u64>, ApiError> {
    let datasets = serving.service().datasets.clone();
    let work = async move {
        let mut sum = Some(0u64);
        for of in of {
            let bytes = readable(datasets.unique_bytes(&of.dataset, &of.these()).await)?;
            sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        Ok(sum)
    };
    on_pool(serving, work).await
}

/// Nothing, if it cannot be read.
fn readable(bytes: Result<u64, PoolError>) -> Result<Option<u64>, PoolError> {
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.cannot_be_read() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Answers a question on the pool's own thread.
async fn on_pool<T: Send + 'static>(
    serving: &Serving,
    work: impl Future<Output = Result<T, PoolError>> + Send + 'static,
) -> Result<T, ApiError> {
    let done = serving.run(work).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(|error| ApiError::failed(error.to_string()))
}
