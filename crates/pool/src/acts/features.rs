//! Features of the format that a pool begins to use.

use aquifer_ondisk::config::{FEATURE_LOGICAL_SPACE, FEATURE_TAILS_BY_FILE, FEATURES, PoolConfig};
use aquifer_ondisk::held::{ROUND_S, held_feature, held_until, held_until_of};

use crate::error::ActError;
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
    pub async fn use_feature(&self, feature: &str) -> Result<(), ActError> {
        assert!(FEATURES.contains(&feature), "a feature that no import would accept");
        let change = |config: &mut PoolConfig| config.features_write.push(feature.into());
        self.change_config(|config| config.writes_with(feature), change).await
    }

    /// Changes the config in the labels, unless it is so already. It is on disk when this returns.
    async fn change_config(
        &self,
        is_so: impl Fn(&PoolConfig) -> bool,
        change: impl FnOnce(&mut PoolConfig),
    ) -> Result<(), ActError> {
        if is_so(&self.tree().config) {
            return Ok(());
        }
        let _act = self.acts.turn.lock().await;
        let _sync = self.sync_turn.lock().await;
        self.txgs.check()?;
        let mut tree = VdevTree::clone(&self.tree());
        if is_so(&tree.config) {
            return Ok(());
        }
        change(&mut tree.config);
        self.change_tree(tree, &[]).await
    }

    /// Gives the pool another name, in its labels. It is on disk when this returns; the next import
    /// finds the pool under that name, and until then this one goes on under the old one.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn rename(&self, name: &str) -> Result<(), ActError> {
        self.change_config(|_| false, |config| config.name = name.into()).await
    }

    /// Notes in the labels that holds stand until this time, in seconds since 1970, if they do not
    /// say so. It is on disk when this returns.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn note_held_until(&self, until_s: u64) -> Result<(), ActError> {
        let says = |config: &PoolConfig| held_until(&config.features_write) >= Some(until_s);
        let say = |config: &mut PoolConfig| {
            let until_s = until_s.saturating_add(ROUND_S - 1) / ROUND_S * ROUND_S;
            config.features_write.retain(|feature| held_until_of(feature).is_none());
            config.features_write.push(held_feature(until_s));
        };
        self.change_config(says, say).await
    }
}
