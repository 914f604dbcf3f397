//! Which nodes have a second place.
//!
//! Where leaves of a vdev do not mirror each other, a bad sector must not take more than a leaf of
//! one tree with it: inner nodes and pool-wide trees lie in two segments.
//!
//! Where there are several data vdevs, the loss of one must not take more than the files that had
//! content there. So what leads to all files lies on two vdevs: pool-wide trees, object tables and
//! directories from root to leaves, the inner nodes of files, and the leaf of a file that needs no
//! other. Leaves of larger files have one place. They are as many as the pages of a random load,
//! and each stands for content that is lost, or mostly lies on that vdev, too.

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::config::PoolConfig;

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copies {
    is_bare: bool,
    is_spread: bool,
}

impl Copies {
    /// Those of a txg.
    pub fn of(config: &PoolConfig, txg: Txg) -> Copies {
        let is_spread = config.is_spread(txg) && !left_out(Rule::RootsOnTwoVdevs);
        Copies { is_bare: config.record_copies(txg) > 1, is_spread }
    }

    /// Whether some vdev has no redundancy: there a second place is as needed as the first.
    pub fn is_bare(self) -> bool {
        self.is_bare
    }

    /// Whether such a node has two places.
    pub fn are_two(self, kind: BlockKind, level: u8, is_root: bool) -> bool {
        let is_inner = level > 0;
        match kind {
            BlockKind::Extents => {
                is_inner && (self.is_bare || self.is_spread) || is_root && self.is_spread
            }
            BlockKind::Objects | BlockKind::Directory => is_inner && self.is_bare || self.is_spread,
            BlockKind::Namespace
            | BlockKind::Dead
            | BlockKind::Refcounts
            | BlockKind::Replies
            | BlockKind::Segments => self.is_bare || self.is_spread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(copies: Copies) -> Vec<(BlockKind, u8, bool)> {
        let kinds = [BlockKind::Extents, BlockKind::Objects, BlockKind::Namespace];
        let nodes = [(0, false), (0, true), (1, false)];
        let all = kinds.into_iter().flat_map(|kind| nodes.map(|(level, root)| (kind, level, root)));
        all.filter(|(kind, level, root)| copies.are_two(*kind, *level, *root)).collect()
    }

    #[test]
    fn what_leads_to_all_files_has_two_places() {
        use BlockKind::{Extents, Namespace, Objects};
        assert_eq!(twice(Copies { is_bare: false, is_spread: false }), []);
        let wide = [(Namespace, 0, false), (Namespace, 0, true), (Namespace, 1, false)];
        let mut bare = vec![(Extents, 1, false), (Objects, 1, false)];
        bare.extend(wide);
        assert_eq!(twice(Copies { is_bare: true, is_spread: false }), bare);
        let mut spread = vec![(Extents, 0, true), (Extents, 1, false)];
        spread.extend([(Objects, 0, false), (Objects, 0, true), (Objects, 1, false)]);
        spread.extend(wide);
        assert_eq!(twice(Copies { is_bare: false, is_spread: true }), spread);
        assert_eq!(twice(Copies { is_bare: true, is_spread: true }), spread);
    }
}
