//! Older snapshots of a copy, which its sender needs no more.
//!
//! Invariants:
//! - Each goes by its exact name, which is compared, not parsed: a [`SnapshotName`] is looked up in
//!   the list of that copy, and what is found goes by its txg.
//! - One that may only receive takes away what replications took, of the copy that this stream went
//!   into and that it fed before, and nothing that is as new as what it brought.
//! - In a pool with `two_persons`, an administrator's token takes away nothing: it feeds each copy.
//! - What was destroyed stands in the history by name.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_api::{ApiError, SnapshotName};
use aquifer_dataset::history::HistoryChange;
use aquifer_dataset::{Dataset, FullName, Snapshot};
use aquifer_files::Received;

use super::super::Control;
use super::super::datasets::act_on;
use super::super::history::Concerned;
use super::super::replicate::is_of_replication;
use super::super::serving::Serving;
use super::streams::Session;

/// A copy, and what goes of it.
struct Doomed {
    /// Its full name.
    name: String,
    dataset: Arc<Dataset>,
    snapshots: Vec<Arc<Snapshot>>,
}

impl Control {
    /// Destroys these snapshots of what was received. Those that are held, or have a clone, stay.
    pub(super) async fn prune_received(
        &self,
        session: &Session,
        (received, fed_before): (&[Received], bool),
        names: &[SnapshotName],
    ) {
        let Some(into) = session.name().filter(|_| !names.is_empty()) else { return };
        let is_into = |of: &&Received| FullName::of(&of.snapshot).dataset() == into;
        let came = received.iter().rfind(is_into).filter(|of| !of.was_there);
        let bringer = &session.bringer;
        let may_not = match bringer.is_admin() {
            true => self.waits_for_second(bringer, into),
            false => !fed_before,
        };
        if came.is_none() || may_not {
            tracing::warn!(
                class = "receive.not_pruned", dataset = %into, by = bringer.principal(),
                "older snapshots of a copy stay: the one that wants them destroyed did not feed it"
            );
            return;
        }
        let Ok((_act, serving)) = self.act_of(into, "receive (prune)").await else { return };
        let doomed = find_doomed(&serving, into, names, bringer.is_admin());
        let Ok(doomed) = doomed else { return };
        let Doomed { name, dataset, snapshots } = doomed;
        if snapshots.is_empty() {
            return;
        }
        let full = |of: &Snapshot| format!("{name}@{}", of.record.name);
        let each: Vec<String> = snapshots.iter().map(|of| full(of)).collect();
        let act = format!("receive (prunes) {}", each.join(" "));
        let concerned = Concerned::Pool(serving.name().into());
        let noting = self.note_begin(&concerned, bringer.who().to_string(), act);
        let (mut changes, mut kept) = (Vec::new(), None);
        for snapshot in snapshots {
            match destroy_one(&serving, &dataset, &snapshot).await {
                Ok(()) => changes.push(HistoryChange {
                    what: full(&snapshot),
                    before: format!("txg {}", snapshot.txg),
                    after: String::new(),
                }),
                Err(error) => {
                    tracing::debug!(dataset = %name, %error, "an older snapshot of a copy stays");
                    kept = Some(error);
                }
            }
        }
        let gone: Vec<&str> = changes.iter().map(|change| change.what.as_str()).collect();
        if !gone.is_empty() {
            tracing::info!(
                class = "snapshot.destroyed",
                pool = serving.name(),
                snapshots = gone.join(" "),
                by = bringer.principal(),
                "snapshots destroyed"
            );
        }
        let result = kept.as_ref().filter(|_| changes.is_empty());
        self.note_end(noting, result.map_or(Ok(()), Err), changes);
    }
}

/// The snapshots of these names that may go. The caller has the pool's turn.
fn find_doomed(
    serving: &Serving,
    into: &str,
    names: &[SnapshotName],
    is_admin: bool,
) -> Result<Doomed, ApiError> {
    let service = serving.service();
    let gone = || ApiError::not_found(format!("{into:?} is gone"));
    let dataset = service.datasets.by_name(into).ok_or_else(gone)?;
    if !dataset.is_standby() {
        return Err(ApiError::conflict(format!("{into:?} is in service")));
    }
    let mut snapshots = dataset.snapshots(service.pool.committed_txg());
    // What was brought just now, or came later.
    snapshots.pop();
    snapshots.retain(|of| {
        let name = of.record.name.as_str();
        names.iter().any(|wanted| wanted.as_str() == name) && (is_admin || is_of_replication(name))
    });
    // A copy that retains holds each of them for days: that is no failure of this act.
    snapshots.retain(|of| service.datasets.check_not_held(&dataset, [of.txg]).is_ok());
    Ok(Doomed { name: service.datasets.full_name(&dataset), dataset, snapshots })
}

async fn destroy_one(
    serving: &Serving,
    dataset: &Arc<Dataset>,
    snapshot: &Snapshot,
) -> Result<(), ApiError> {
    let datasets = serving.service().datasets.clone();
    let acts = [(dataset.clone(), BTreeSet::from([snapshot.txg]))];
    act_on(serving, async move { datasets.destroy_snapshots(&acts, false).await }).await.map(drop)
}
