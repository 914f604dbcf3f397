//! Snapshots that are taken and pruned by schedule.

use aquifer_ondisk::inode::Time;

use super::super::Control;
use super::super::datasets::act_on;
use super::super::serving::Serving;

impl Control {
    /// Takes and prunes the snapshots of the pools in service that are due, by the property
    /// `snapshots` of their datasets.
    pub async fn snapshots_due(&self) {
        let Ok(_act) = self.act().await else { return };
        for serving in self.all_serving() {
            // The pool told of a failure, once.
            let _ = take_due(&serving).await;
        }
    }
}

/// Takes and prunes what is due in a pool.
pub(in super::super) async fn take_due(serving: &Serving) -> Result<(), aquifer_api::ApiError> {
    let datasets = serving.service().datasets.clone();
    let due = async move {
        let now = Time::from_ns(datasets.pool().world().wall_ns());
        datasets.snapshots_if_due(now).await
    };
    act_on(serving, due).await
}
