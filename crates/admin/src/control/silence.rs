//! Pools whose disks do not answer: somebody listens ([`aquifer_pool::Pool::listen`]).

use std::time::Duration;

use tokio::time::sleep;

use super::{Control, State};

impl Control {
    /// Listens whether the disks of pools in service answer, as long as the daemon runs.
    pub async fn listen_to_disks(&self) {
        loop {
            sleep(LISTEN_EVERY).await;
            let pools = self.pools.read().clone();
            for listed in pools.into_values() {
                if let State::Serving(serving) = &listed.state {
                    serving.service().pool.listen();
                }
            }
        }
    }
}

/// As the pool expects.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
