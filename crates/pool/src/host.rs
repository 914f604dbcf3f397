//! One pool, one machine: rules that keep two hosts from writing to the same disks.
//!
//! Each uberblock names the host that wrote it, and the time. A pool in use writes one every few
//! seconds, even while it is idle.
//!
//! - An import refuses a pool that another host used in the last minute and did not export.
//! - Before it writes an uberblock, a pool looks now and then at the ring of one leaf. An uberblock
//!   that it did not write comes from another host, which was ordered to take the pool. The pool is
//!   then suspended and writes no more uberblocks.
//!
//! Limits: writes of the losing host between two looks stay. If clocks differ by more than a
//! minute, the import does not notice the other host; the look does not depend on clocks.

use std::sync::Weak;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_vdev::label_io;

use crate::commit::Current;
use crate::error::{ImportError, PoolError};
use crate::import::ImportOptions;
use crate::limits::{HOST_LOOK_MS, HOST_SAYS_MS, HOST_SILENT_MS};
use crate::pool::Pool;

/// Whether this host may import the pool whose newest uberblock this is.
pub(crate) fn check_host(
    newest: &Uberblock,
    options: &ImportOptions,
    wall_ns: u64,
) -> Result<(), ImportError> {
    let Some(other) = newest.host.as_ref().filter(|_| !newest.clean && !options.take_over) else {
        return Ok(());
    };
    if options.host.as_ref().is_some_and(|own| own.id == other.id) {
        return Ok(());
    }
    // If an uberblock seems to come from the future, the clocks differ, and nothing else is
    // certain.
    let silent = Duration::from_nanos(wall_ns.saturating_sub(newest.wall_ns));
    if silent >= Duration::from_millis(HOST_SILENT_MS) {
        return Ok(());
    }
    let (host, id) = (other.name.clone(), other.id);
    Err(ImportError::InUse { host, id, silent_s: silent.as_secs() })
}

/// How long a leaf is waited for while there may be another one to look at.
const LEAF_LOOK_MS: u64 = 100;

impl Pool {
    /// The name of the machine on which the pool is in service; empty if it was not said.
    pub fn host_name(&self) -> &str {
        self.committer.host.as_ref().map_or("", |host| host.name.as_str())
    }

    /// Now and then checks whether another host has written an uberblock. The caller is about to
    /// write one.
    pub(crate) async fn look_for_others(&self, current: &mut Current) -> Result<(), PoolError> {
        if let Some(error) = &current.taken_over {
            return Err(error.clone());
        }
        let now = self.world.now();
        let pause = Duration::from_millis(HOST_LOOK_MS);
        let due = current.looked.is_none_or(|looked| now.saturating_sub(looked) >= pause);
        if self.committer.host.is_none() || !due || left_out(Rule::LookForOthers) {
            return Ok(());
        }
        let first = current.looked.replace(now).is_none();
        let Some(found) = self.newest_on_disk().await else {
            return Ok(());
        };
        let own = &current.uberblock;
        let ours = (&found.host, found.session) == (&self.committer.host, own.session);
        let foreign = match found.sequence.cmp(&own.sequence) {
            std::cmp::Ordering::Less => false,
            // The first uberblock of this session is not written yet.
            std::cmp::Ordering::Equal => !first && !ours,
            std::cmp::Ordering::Greater => first || !ours,
        };
        if !foreign {
            return Ok(());
        }
        let host = found.host.map_or_else(
            || "a host that does not say its name".to_string(),
            |host| format!("host {:?} (id {:016x})", host.name, host.id),
        );
        let error = PoolError::TakenOver(format!(
            "{host} has taken the pool over: it wrote uberblock {}, the newest of this host is \
             {}. Nothing more is written here",
            found.sequence, own.sequence
        ));
        current.taken_over = Some(error.clone());
        self.suspend(error.clone());
        Err(error)
    }

    /// The newest uberblock in the ring of the first leaf that can be read. The uberblock to be
    /// written may name a leaf that hangs, so others are asked before that one.
    async fn newest_on_disk(&self) -> Option<Uberblock> {
        let tree = self.tree();
        for longest_ms in [Some(LEAF_LOOK_MS), None] {
            for leaf in tree.data().flat_map(|vdev| vdev.online()) {
                let found = label_io::newest_uberblock(leaf, self.guid(), longest_ms).await;
                if let Ok(found) = found {
                    return found;
                }
            }
        }
        None
    }

    /// Regularly writes that this host uses the pool, and checks whether another one does.
    pub(crate) fn begin_saying_in_use(&self) {
        if self.committer.host.is_none() || left_out(Rule::SayInUse) {
            return;
        }
        let (pool, world) = (self.this.clone(), self.world.clone());
        let says = async move {
            loop {
                world.sleep(Duration::from_millis(HOST_LOOK_MS)).await;
                if !say_in_use(&pool).await {
                    return;
                }
            }
        };
        self.world.spawn("host", Box::pin(says));
    }
}

/// Returns whether the pool is still in service.
async fn say_in_use(pool: &Weak<Pool>) -> bool {
    let Some(pool) = pool.upgrade() else {
        return false;
    };
    pool.compare_paces();
    match pool.repeat_uberblock(Duration::from_millis(HOST_SAYS_MS)).await {
        Ok(()) => pool.txgs.failure().is_none(),
        Err(PoolError::Exported) => false,
        Err(error) => {
            pool.suspend(error);
            false
        }
    }
}
