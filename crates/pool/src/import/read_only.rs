//! A pool that is read and never written, with vdevs missing: for people who rescue their files.
//!
//! Nothing on its disks changes: no label, no uberblock, no bad copy. So the log is not replayed,
//! and what only it holds is not shown. An import without the order finds all as it was.

use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_ondisk::Txg;
use aquifer_ondisk::uberblock::Uberblock;

use super::{ImportOptions, ImportReport, build, root};
use crate::error::{ImportError, PoolError};
use crate::intent_log::read::{Chain, Kept};
use crate::intent_log::{Position, Ring};
use crate::pool::Pool;
use crate::tree::VdevTree;

/// The pool as of the root that was found.
pub(super) fn pool(
    world: Arc<dyn World>,
    tree: VdevTree,
    uberblock: &Uberblock,
    roots: root::FoundRoots,
    options: &ImportOptions,
    report: &mut ImportReport,
) -> Result<Arc<Pool>, ImportError> {
    let log = root::restarted(&roots.newest.root, 0);
    let chain = Chain {
        batches: Vec::new(),
        next: Position::START,
        next_sequence: log.head_sequence,
        previous: 0,
        mark: 0,
        end: String::new(),
        discarded: false,
        max_txg: Txg(0),
        kept: Kept::new(&options.memory),
    };
    let txg = uberblock.txg;
    report.notes.push("imported read-only, to rescue files: nothing on its disks changes".into());
    if !uberblock.clean {
        report.notes.push(format!(
            "the intent log is not replayed: the newest changes, acknowledged after txg {txg}, do \
             not show"
        ));
    }
    let parts = build(world, tree, uberblock, roots, &Ring::new(&log.segments), &chain, options)?;
    let pool = Pool::assemble(parts);
    pool.refuse_changes();
    Ok(pool)
}

impl Pool {
    /// Whether the pool is imported read-only: every change is refused, and what can be read is
    /// read. It stays so until it is exported.
    pub fn is_read_only(&self) -> bool {
        matches!(self.txgs.failure(), Some(PoolError::ReadOnly))
    }

    fn refuse_changes(&self) {
        self.txgs.fail(PoolError::ReadOnly);
        self.log.fail(PoolError::ReadOnly);
    }
}
