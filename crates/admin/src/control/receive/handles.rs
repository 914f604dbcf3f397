//! Copies have the file handles of their sources: of all pools one dataset serves them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aquifer_api::ApiError;

use super::super::serving::Serving;
use super::super::{Control, errors};

impl Control {
    /// Fails if a dataset of another pool that is in service has the file handles of this one.
    pub(in super::super) fn check_service(
        &self,
        serving: &Serving,
        name: &str,
    ) -> Result<(), ApiError> {
        let Some(dataset) = serving.service().datasets.by_name(name) else { return Ok(()) };
        for other in self.all_serving().into_iter().filter(|of| of.name() != serving.name()) {
            let datasets = &other.service().datasets;
            if let Some(other) = datasets.by_guid(dataset.fs_guid) {
                let (name, other) = (name.into(), datasets.full_name(&other));
                let error = aquifer_dataset::DatasetError::SameHandles { name, other };
                return Err(errors::api_error(error));
            }
        }
        Ok(())
    }
}

/// Pools come into service: of their datasets, those step back whose file handles another pool
/// serves already.
pub(in super::super) fn keep_handles_apart(serving: &[Arc<Serving>]) {
    let is_offered = |of: &&Arc<Serving>| of.is_offered.load(Ordering::SeqCst);
    let mut served: Vec<&Arc<Serving>> = serving.iter().filter(is_offered).collect();
    for new in serving.iter().filter(|of| !is_offered(of)) {
        let back = new.service().datasets.step_back(|guid| {
            served.iter().find_map(|of| {
                let datasets = &of.service().datasets;
                datasets.by_guid(guid).map(|other| datasets.full_name(&other))
            })
        });
        for (dataset, other) in back {
            tracing::warn!(
                class = "dataset.standby",
                %dataset,
                %other,
                "a dataset is not in service: another one has its file handles. Set standby=on on \
                 one of them, and standby=off on the other"
            );
        }
        new.is_offered.store(true, Ordering::SeqCst);
        served.push(new);
    }
}
