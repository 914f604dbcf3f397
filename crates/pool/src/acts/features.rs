//! Features of the format that a pool begins to use.

use aquifer_ondisk::config::{FEATURE_LOGICAL_SPACE, FEATURE_TAILS_BY_FILE, FEATURES};

use crate::error::ImportError;
use crate::pool::Pool;
use crate::tree::VdevTree;

impl Pool {
    /// Whether files and datasets of this pool count what compression saves. A pool counts it from
    /// its beginning, or never: what was written before would be missing.
    pub fn counts_saved(&self) -> bool {
        self.has_feature(FEATURE_LOGICAL_SPACE)
    }

    /// Whether dead trees of this pool say of which file each block was.
    pub fn knows_tails_by_file(&self) -> bool {
        self.has_feature(FEATURE_TAILS_BY_FILE)
    }

    fn has_feature(&self, feature: &str) -> bool {
        self.tree().config.writes_with(feature)
    }

    /// Names a feature in the labels before its first use, so that software that does not know it
    /// leaves the pool alone. It is on disk when this returns.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn use_feature(&self, feature: &str) -> Result<(), ImportError> {
        assert!(FEATURES.contains(&feature), "a feature that no import would accept");
        if self.has_feature(feature) {
            return Ok(());
        }
        let _act = self.acts.turn.lock().await;
        let _sync = self.sync_turn.lock().await;
        self.txgs.check()?;
        if self.has_feature(feature) {
            return Ok(());
        }
        let mut tree = VdevTree::clone(&self.tree());
        tree.config.features_write.push(feature.into());
        self.change_tree(tree, &[]).await
    }
}
