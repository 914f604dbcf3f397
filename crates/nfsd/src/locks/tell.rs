//! Sends messages about locks to a host: grants, and results of asynchronous calls.

use std::net::IpAddr;

use aquifer_nfs::lock::{Callout, GrantAnswer};

use super::call::{CallError, Transport};
use super::{LockKeeper, NLM};
use crate::limits::GRANT_PAUSES;

impl LockKeeper {
    /// Sends a host its messages, until there are no more.
    pub(super) async fn tell(&self, host: IpAddr) {
        // Tries in a row that failed.
        let mut failures = 0;
        while let Some(callout) = self.locks.next_callout(host) {
            let Some(grant) = callout.grant else {
                if let Err(error) = self.say(host, &callout).await {
                    tracing::debug!(client = %host, %error, "a result was not delivered");
                }
                continue;
            };
            tokio::time::sleep(GRANT_PAUSES.get(failures).copied().unwrap_or_default()).await;
            if !self.locks.is_on_its_way(grant) {
                continue;
            }
            let said = self.say(host, &callout).await;
            let answer = said.as_deref().map_or(GrantAnswer::Later, GrantAnswer::of);
            if answer != GrantAnswer::Later {
                failures = 0;
                self.locks.granted(grant, answer);
                continue;
            }
            failures += 1;
            if let Err(error) = &said {
                tracing::debug!(client = %host, %error, "not told of its lock");
            }
            if failures < GRANT_PAUSES.len() {
                self.locks.granted(grant, GrantAnswer::Later);
                continue;
            }
            failures = 0;
            self.locks.granted(grant, GrantAnswer::Given);
            // A host that does not answer this call would not answer the next one.
            let more = match said {
                Err(CallError::Silent(_)) => self.locks.unreachable(host),
                _ => 0,
            };
            tracing::warn!(
                class = "locks.given_away", client = %host, locks = 1 + more,
                "not told that it has its lock: the next gets it"
            );
        }
    }

    async fn say(&self, host: IpAddr, callout: &Callout) -> Result<Vec<u8>, CallError> {
        let Callout { via, procedure, args, .. } = callout;
        let order = [Transport::Tcp, Transport::Udp];
        let said = self.caller(host, *via, &self.callouts).call(NLM, order, *procedure, args).await;
        if said.is_ok() {
            self.store.reached(host);
        }
        said
    }
}
