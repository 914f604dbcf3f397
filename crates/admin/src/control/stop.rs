//! End of the daemon: acts end, clients leave, and every pool is exported.
//!
//! # Invariants
//! - It waits for no disk that does not answer. A pool whose disks are silent is *given up*: it is
//!   left as by a crash, and nothing acknowledged is lost, since the next start replays its log.
//!   The others are exported.
//! - It says what it waits for, and which pools were given up.
//! - Nothing that has happened is lost by it: histories and people hear of it. See `followers`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::serving::{Serving, close};
use super::{Control, Offer};

impl Control {
    /// Ends all service: acts and clients first, then every pool is exported. The list stays, so
    /// the next start brings the pools back. Returns those that were given up.
    pub async fn stop(&self) -> Vec<String> {
        self.events.end();
        self.is_stopping.store(true, Ordering::Release);
        let given_up = self.end_acts().await;
        {
            let mut is_over = self.offering.lock().await;
            *is_over = true;
            self.frontend.serve(Offer::default()).await;
        }
        self.tell_pools_the_rest();
        let pools = std::mem::take(&mut *self.pools.write());
        let serving = pools.into_values().filter_map(|listed| listed.serving().cloned());
        let ends = serving.map(|serving| self.end_pool(serving, &given_up));
        let (exported, left): (Vec<_>, Vec<_>) =
            join_all(ends).await.into_iter().partition(Result::is_ok);
        // Those that were given up are left by now: nothing waits for them any more.
        self.release_frontend().await;
        join_all(exported.into_iter().flatten().map(let_go)).await;
        self.tell_people_the_rest().await;
        left.into_iter().filter_map(Result::err).collect()
    }

    /// Lets acts come to their end. Returns the pools on which that waits for silent disks.
    async fn end_acts(&self) -> BTreeSet<String> {
        let mut pools: BTreeSet<String> = self.turns.pools().into_iter().collect();
        pools.extend(self.names_in_service());
        let ends = join_all(pools.into_iter().map(|pool| self.end_acts_on(pool)));
        let listening = async {
            loop {
                sleep(LISTEN_EVERY).await;
                self.all_serving().iter().for_each(|serving| serving.service().pool.listen());
            }
        };
        tokio::select! {
            biased;
            given_up = ends => given_up.into_iter().flatten().collect(),
            () = listening => BTreeSet::new(),
        }
    }

    /// Waits for the acts on a pool. Returns it, if they do not end.
    async fn end_acts_on(&self, pool: String) -> Option<String> {
        let turn = self.turns.of(&pool);
        let telling = async {
            for _ in 0..ACT_LOOKS {
                sleep(ACT_TOLD_EVERY).await;
                let act = turn.act().unwrap_or_default();
                tracing::info!(%pool, act, "the end of the daemon waits for an act");
            }
        };
        tokio::select! {
            biased;
            _last = turn.take("stop") => return None,
            _ = self.unanswered(&pool) => {}
            () = telling => {}
        }
        let act = turn.act().unwrap_or_default();
        tracing::error!(%pool, act, "an act does not end: its pool is given up");
        Some(pool)
    }

    /// Exports a pool that is off the list and has no clients.
    ///
    /// # Errors
    /// Its name, if it was given up.
    async fn end_pool(
        &self,
        serving: Arc<Serving>,
        given_up: &BTreeSet<String>,
    ) -> Result<Arc<Serving>, String> {
        let pool = serving.name().to_string();
        if !given_up.contains(&pool)
            && let Ok(exported) = serving.unless_silent(serving.export()).await
        {
            match exported {
                None => tracing::info!(%pool, "pool exported"),
                Some(error) => tracing::error!(%pool, %error, "pool not exported cleanly"),
            }
            return Ok(serving);
        }
        let disks = serving.service().pool.silent_disks().join(", ");
        self.note_remnant(serving.leave());
        tracing::error!(
            class = "pool.left",
            %pool,
            disks,
            "a pool is given up without an export, since its disks do not answer: the next start \
             replays its log"
        );
        Err(pool)
    }

    /// Lets the frontend release pools that are out of service, as long as that takes a sane time.
    pub(super) async fn release_frontend(&self) {
        if timeout(RELEASE_PATIENCE, self.frontend.release()).await.is_err() {
            tracing::error!("a stopped server does not end: it waits for a disk");
        }
    }
}

/// Closes the disks of an exported pool.
async fn let_go(serving: Arc<Serving>) {
    let pool = serving.name().to_string();
    match timeout(LET_GO_PATIENCE, serving.let_go()).await {
        Ok(disks) => close(disks).await,
        Err(_) => tracing::warn!(%pool, "an exported pool is still in use"),
    }
}

/// As the pool expects.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
/// How often it is told which act the end waits for.
const ACT_TOLD_EVERY: Duration = Duration::from_secs(10);
/// After so many times it waits no longer: a service manager kills the daemon after two minutes,
/// and no pool would be exported.
const ACT_LOOKS: u32 = 6;
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);
const LET_GO_PATIENCE: Duration = Duration::from_secs(10);
