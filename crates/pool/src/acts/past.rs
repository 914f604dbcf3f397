//! A disk that comes back may have been in use meanwhile, apart from this pool. What it
//! acknowledged there is nowhere else: nothing of it is dropped unless an administrator says so.

use aquifer_vdev::label_io::DiskLabels;

use crate::error::{ActError, State};
use crate::pool::Pool;

impl Pool {
    /// Refuses a disk with a past of its own: its newest uberblock is newer than any that it was
    /// given here, and it names a disk outdated that holds everything here, or does not know one.
    pub(super) async fn check_past(&self, path: &str, labels: &DiskLabels) -> Result<(), ActError> {
        let since = self.outdated_since(labels.label.leaf_guid).await;
        // One that came as a new disk is named since 0.
        let since = since.filter(|since| *since > 0);
        let Some((newest, since)) = labels.uberblocks.first().zip(since) else { return Ok(()) };
        let tree = self.tree();
        let is_strange = tree.data().flat_map(|vdev| vdev.online()).any(|leaf| {
            newest.names(leaf.guid) || labels.label.config.class_of(leaf.guid).is_none()
        });
        if newest.sequence <= since || !is_strange {
            return Ok(());
        }
        let parted = labels.uberblocks.iter().find(|uberblock| uberblock.sequence <= since);
        Err(ActError::OwnPast {
            path: path.to_string(),
            own: State::of(newest),
            parted: parted.map(State::of),
            here: self.newest_state().await,
        })
    }
}
