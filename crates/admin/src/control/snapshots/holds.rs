//! Holds on snapshots.

use aquifer_api::{
    ApiError, HoldInfo, HoldSnapshots, ReleaseSnapshots, SnapshotQuery, SnapshotsDone, time,
};

use super::super::Control;
use super::super::datasets::act_on;
use super::super::serving::Serving;
use super::{SnapshotsOf, files, find, list, members};

impl Control {
    /// Places a hold on snapshots, all in one txg. When this returns it is on disk.
    ///
    /// # Errors
    /// A snapshot does not exist, or cannot take the hold: then none has it.
    pub async fn hold_snapshots(&self, request: HoldSnapshots) -> Result<SnapshotsDone, ApiError> {
        let _act = self.act().await?;
        let HoldSnapshots { tag, names, recursive, until_s } = request;
        let serving = self.pool_of_all(&names)?;
        names.iter().try_for_each(|name| files::refuse(&serving, name, "be held"))?;
        let found = named(&serving, &names, recursive)?;
        let (names, on) = (all_names(&found), members(&found));
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
        Ok(SnapshotsDone { names })
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
        let _act = self.act().await?;
        let ReleaseSnapshots { tag, names, recursive } = request;
        let serving = self.pool_of_all(&names)?;
        names.iter().try_for_each(|name| files::refuse(&serving, name, "be held"))?;
        let datasets = serving.service().datasets.clone();
        let mut found = named(&serving, &names, recursive)?;
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
        let (names, on) = (all_names(&found), members(&found));
        let called = tag.clone();
        act_on(&serving, async move { datasets.release(&called, &on).await }).await?;
        tracing::info!(
            class = "snapshot.released",
            pool = serving.name(),
            snapshots = names.join(" "),
            tag,
            "snapshots are released"
        );
        Ok(SnapshotsDone { names })
    }

    /// The holds on snapshots: on one, on those of a dataset, or on all.
    ///
    /// # Errors
    /// There is no dataset or snapshot with that name.
    pub fn holds(&self, query: &SnapshotQuery) -> Result<Vec<HoldInfo>, ApiError> {
        let SnapshotQuery { name, recursive } = query;
        let Some(name) = name else {
            let mut all = Vec::new();
            for serving in self.all_serving() {
                all.extend(infos(&serving, &list(&serving, serving.name(), true)?));
            }
            return Ok(all);
        };
        let serving = self.serving(super::pool_name(name))?;
        let found = match name.contains('@') {
            true => find(&serving, name, *recursive)?,
            false => list(&serving, name, *recursive)?,
        };
        Ok(infos(&serving, &found))
    }

    /// Takes away the holds that have ended, in all pools.
    pub async fn tend_holds(&self) {
        let Ok(_act) = self.act().await else { return };
        for serving in self.all_serving() {
            let datasets = serving.service().datasets.clone();
            if let Err(error) = act_on(&serving, async move { datasets.tend_holds().await }).await {
                tracing::warn!(pool = serving.name(), %error, "ended holds are not taken away");
            }
        }
    }
}

/// All snapshots of these names, each once.
fn named(
    serving: &Serving,
    names: &[String],
    recursive: bool,
) -> Result<Vec<SnapshotsOf>, ApiError> {
    let mut all: Vec<SnapshotsOf> = Vec::new();
    for name in names {
        for found in find(serving, name, recursive)? {
            match all.iter_mut().find(|of| of.name == found.name) {
                None => all.push(found),
                Some(of) => {
                    let new = found.snapshots.into_iter();
                    let known = of.txgs();
                    of.snapshots.extend(new.filter(|snapshot| !known.contains(&snapshot.txg)));
                }
            }
        }
    }
    Ok(all)
}

fn all_names(found: &[SnapshotsOf]) -> Vec<String> {
    let of = |of: &SnapshotsOf| {
        of.snapshots.iter().map(|snapshot| of.full(snapshot)).collect::<Vec<_>>()
    };
    found.iter().flat_map(of).collect()
}

fn infos(serving: &Serving, found: &[SnapshotsOf]) -> Vec<HoldInfo> {
    let datasets = &serving.service().datasets;
    let mut infos = Vec::new();
    for of in found {
        for snapshot in &of.snapshots {
            let holds = datasets.holds(&of.dataset, snapshot.txg).into_iter();
            infos.extend(holds.map(|hold| HoldInfo {
                snapshot: of.full(snapshot),
                tag: hold.tag,
                placed_ns: hold.placed.since_1970_ns(),
                ends_s: hold.ends_s,
            }));
        }
    }
    infos
}
