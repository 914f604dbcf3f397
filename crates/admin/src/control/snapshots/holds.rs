//! Holds on snapshots.

use std::sync::Arc;

use aquifer_api::{
    ApiError, HoldInfo, HoldSnapshots, ReleaseSnapshots, SnapshotQuery, SnapshotsDone, time,
};
use aquifer_dataset::{Dataset, Holdable, Property};

use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::super::subjects::{self, Snapshots};
use super::super::{Control, Scope};
use super::{SnapshotsOf, files, find_all, list, named};

/// The property `retain` of a dataset was set. Returns what somebody should know.
pub(in super::super) fn note_on_retain(serving: &Serving, name: &str) -> Option<String> {
    let datasets = &serving.service().datasets;
    let (value, _) = datasets.value(&*datasets.by_name(name)?, Property::Retain);
    (value != "off").then(|| {
        format!(
            "each snapshot that {name} takes or receives from now on is held for {value}: nobody \
             destroys it before, and its space comes back no earlier"
        )
    })
}

impl Control {
    /// Places a hold on snapshots, all in one txg. When this returns it is on disk.
    ///
    /// # Errors
    /// A snapshot does not exist, or cannot take the hold: then none has it.
    pub async fn hold_snapshots(&self, request: HoldSnapshots) -> Result<SnapshotsDone, ApiError> {
        let HoldSnapshots { tag, names, recursive, until_s } = request;
        let (_act, serving) = self.act_of_all(&names, "hold").await?;
        let found = all_named(&serving, &names, recursive).await?;
        let (names, on): (Vec<_>, Vec<_>) = each(&found).unzip();
        let (datasets, called) = (serving.service().datasets.clone(), tag.clone());
        act_on(&serving, async move { datasets.hold(&called, &on, until_s).await }).await?;
        tracing::info!(
            class = "snapshot.held",
            pool = serving.name(),
            snapshots = names.join(" "),
            tag,
            until = until_s.map(time::text_s),
            "snapshots are held"
        );
        Ok(SnapshotsDone { names, notes: Vec::new() })
    }

    /// Releases a hold on those of these snapshots that have it, all in one txg. When this returns
    /// that is on disk.
    ///
    /// # Errors
    /// A snapshot does not exist, none has the hold, or its end has not come: then none is
    /// released.
    pub async fn release_snapshots(
        &self,
        request: ReleaseSnapshots,
    ) -> Result<SnapshotsDone, ApiError> {
        let ReleaseSnapshots { tag, names, recursive } = request;
        let (_act, serving) = self.act_of_all(&names, "release").await?;
        let datasets = serving.service().datasets.clone();
        let mut found = all_named(&serving, &names, recursive).await?;
        if recursive {
            for of in &mut found {
                let has_it = |txg| datasets.holds(&of.dataset, txg).iter().any(|on| on.tag == tag);
                of.snapshots.retain(|snapshot| has_it(snapshot.txg));
            }
            if found.iter().all(|of| of.snapshots.is_empty()) {
                return Err(ApiError::not_found(format!(
                    "no snapshot of these names is held by {tag:?}; `aquifer holds -r` shows holds"
                )));
            }
        }
        let (names, on): (Vec<_>, Vec<_>) = each(&found).unzip();
        let called = tag.clone();
        act_on(&serving, async move { datasets.release(&called, &on).await }).await?;
        tracing::info!(
            class = "snapshot.released",
            pool = serving.name(),
            snapshots = names.join(" "),
            tag,
            "snapshots are released"
        );
        Ok(SnapshotsDone { names, notes: Vec::new() })
    }

    /// The holds on snapshots: on one, on those of files that a pattern means, on those of a
    /// dataset and its files, or on all.
    ///
    /// # Errors
    /// There is no dataset or snapshot with that name.
    pub async fn holds(
        &self,
        query: &SnapshotQuery,
        scope: &Scope,
    ) -> Result<Vec<HoldInfo>, ApiError> {
        let SnapshotQuery { name, recursive, .. } = query;
        self.check_question(scope, name.as_deref(), *recursive)?;
        let is_seen = |of: &SnapshotsOf| scope.covers(&of.name);
        let Some(name) = name else {
            let mut all = Vec::new();
            for serving in self.all_serving() {
                let mut listed = list(&serving, serving.name(), true)?;
                listed.retain(is_seen);
                all.extend(infos(&serving, &listed));
            }
            return Ok(all);
        };
        let serving = self.pool_of_one(name)?;
        let mut found = named(&serving, name, *recursive).await?;
        found.retain(is_seen);
        Ok(infos(&serving, &found))
    }
}

/// Takes away the holds of a pool that have ended.
pub(in super::super) async fn tend_holds(serving: &Serving) {
    let datasets = serving.service().datasets.clone();
    if let Err(error) = act_on(serving, async move { datasets.tend_holds().await }).await {
        tracing::warn!(pool = serving.name(), %error, "ended holds are not taken away");
    }
}

/// All snapshots of these names, each once.
async fn all_named(
    serving: &Serving,
    names: &[String],
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let mut found = Vec::new();
    match subjects::snapshots(&serving.service().datasets, names, recursive)? {
        Snapshots::OfDatasets(of) => found = find_all(serving, of, recursive)?,
        Snapshots::OfFiles(of) => {
            for of in &of {
                found.extend(files::find(serving, of, |_| true).await?);
            }
        }
    }
    let mut all: Vec<SnapshotsOf> = Vec::new();
    for found in found {
        match all.iter_mut().find(|of| of.name == found.name) {
            None => all.push(found),
            Some(of) => {
                of.snapshots.extend(found.snapshots);
                of.files.extend(found.files);
            }
        }
    }
    for of in &mut all {
        of.snapshots.sort_by_key(|snapshot| snapshot.txg);
        of.snapshots.dedup_by_key(|snapshot| snapshot.txg);
        of.files.sort_by_key(|file| file.id);
        of.files.dedup_by_key(|file| file.id);
    }
    Ok(all)
}

/// Snapshots of datasets, then of their files: each one's full name, its dataset, and which it is.
fn each(found: &[SnapshotsOf]) -> impl Iterator<Item = (String, (Arc<Dataset>, Holdable))> {
    found.iter().flat_map(|of| {
        let snapshots = of.snapshots.iter().map(|one| (of.full(one), one.txg.into()));
        let files = of.files.iter().map(|one| (of.full_of_file(one), one.id.into()));
        snapshots.chain(files).map(|(name, on)| (name, (of.dataset.clone(), on)))
    })
}

fn infos(serving: &Serving, found: &[SnapshotsOf]) -> Vec<HoldInfo> {
    let datasets = &serving.service().datasets;
    let mut infos = Vec::new();
    for (name, (dataset, on)) in each(found) {
        infos.extend(datasets.holds(&dataset, on).into_iter().map(|hold| HoldInfo {
            snapshot: name.clone(),
            tag: hold.tag,
            placed_ns: hold.placed.since_1970_ns(),
            ends_s: hold.ends_s,
        }));
    }
    infos
}
