//! Work done once a second: somebody listens whether the disks of pools answer
//! ([`aquifer_pool::Pool::listen`]), counts what the background still frees, closes snapshots into
//! which nobody looks, looks at image files, and lets the pools' caches share memory by need
//! ([`aquifer_pool::Memory::balance`]).

use std::time::Duration;

use tokio::time::sleep;

use super::{Control, State};

impl Control {
    /// Listens to the disks of pools in service and balances caches, as long as the daemon runs.
    pub async fn each_second(&self) {
        loop {
            sleep(SECOND).await;
            let pools = self.pools.read().clone();
            for listed in pools.into_values() {
                if let State::Serving(serving) = &listed.state {
                    serving.service().pool.listen();
                    serving.service().datasets.close_idle_views();
                    serving.count_freeing();
                    serving.look_at_files();
                }
            }
            self.config.memory.balance();
        }
    }
}

/// As the pool expects.
const SECOND: Duration = Duration::from_secs(1);
