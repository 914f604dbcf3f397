//! Offer to clients: the pools in service, with their exports.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use aquifer_api::{Problem, codes};
use aquifer_nfs::Export;
use aquifer_nfs::lock::LockView;
use aquifer_ondisk::ObjectId;

use super::serving::Serving;
use super::{Control, Offer, ServedPool, receive};

impl Control {
    /// Updates the exports that clients see, to what the pools in service say now: of two acts that
    /// end at the same time the later one offers what both did. Not once the daemon stops.
    pub(super) async fn refresh_exports(&self) -> Vec<String> {
        let is_over = self.offering.lock().await;
        if *is_over {
            return Vec::new();
        }
        let (serving, awaited): (Vec<Arc<Serving>>, BTreeSet<String>) = {
            let pools = self.pools.read();
            let serving = pools.values().filter_map(|listed| listed.serving().cloned());
            let awaited = pools.iter().filter(|(_, listed)| listed.serving().is_none());
            (serving.collect(), awaited.map(|(name, _)| name.clone()).collect())
        };
        receive::keep_handles_apart(&serving);
        for serving in &serving {
            let frontend = Arc::clone(&self.frontend);
            let count = move |guid, object: Option<ObjectId>| {
                let is_there = |lock: &LockView| {
                    lock.file.fs_guid == guid && object.is_none_or(|of| lock.file.object == of)
                };
                frontend.locks().0.iter().filter(|lock| is_there(lock)).count()
            };
            serving.service().datasets.count_locks_by(Arc::new(count));
        }
        let served = serving.iter().map(|serving| ServedPool {
            name: serving.name().into(),
            files: serving.service().files.clone(),
            exports: serving.exports(),
        });
        let pools: Vec<ServedPool> = served.collect();
        let exports = pools.iter().flat_map(|pool| pool.exports.clone()).collect();
        let exporting: Vec<String> = {
            let exporting = pools.iter().filter(|pool| !pool.exports.is_empty());
            exporting.map(|pool| pool.name.clone()).collect()
        };
        let more_to_come = !awaited.is_empty();
        let mut notes = self.frontend.serve(Offer { pools, awaited }).await;
        for note in &notes {
            tracing::warn!("{note}");
        }
        // Only after they are served: a reader of the event relies on it.
        self.tell_changes(exports);
        self.export_notes.lock().clone_from(&notes);
        let of_all = self.unmounted();
        let of_each = exporting
            .iter()
            .flat_map(|pool| of_all.iter().map(move |why| format!("pool {pool:?}: {why}")));
        notes.extend(of_each);
        notes.extend(self.end_locks_of_gone(&serving, more_to_come));
        notes
    }

    /// Why clients cannot mount at the moment, whatever the exports say.
    pub(super) fn unmounted(&self) -> Vec<String> {
        let is_of_mounts = |problem: &Problem| {
            [codes::NFS_NOT_SERVED, codes::PORTMAP_OFF].iter().any(|code| code.word == problem.code)
        };
        let problems = self.frontend.problems().into_iter().filter(is_of_mounts);
        problems.map(|problem| problem.status).collect()
    }
}

impl Control {
    /// Notes the changes of the exports, if there are any.
    fn tell_changes(&self, now: Vec<Export>) {
        let before = std::mem::replace(&mut *self.exported.lock(), now.clone());
        let (old, new) = (by_path(&before), by_path(&now));
        let paths = |some: &[Export], is_told: &dyn Fn(&Export) -> bool| {
            let told = some.iter().filter(|export| is_told(export));
            told.map(|export| export.path.as_str()).collect::<Vec<_>>().join(" ")
        };
        let set = paths(&now, &|export| old.get(export.path.as_str()) != Some(&export));
        let removed = paths(&before, &|export| !new.contains_key(export.path.as_str()));
        if !(set.is_empty() && removed.is_empty()) {
            tracing::info!(class = "exports.changed", set, removed, "exports changed");
        }
    }
}

fn by_path(exports: &[Export]) -> HashMap<&str, &Export> {
    exports.iter().map(|export| (export.path.as_str(), export)).collect()
}
