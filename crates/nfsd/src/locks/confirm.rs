//! Confirms a notice that a host has restarted.
//!
//! Linux's sm-notify sends the notice over UDP, whose sender anybody on the network can forge. A
//! guest behind a hypervisor's NAT also shares the hypervisor's address. So the server asks the
//! host's own status monitor for its state (SM_STAT, which the monitors of Linux and FreeBSD answer
//! with their own). It counts up with each start of the host.

use aquifer_nfs::lock::{Belief, Restart};
use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::time::{Instant, sleep};

use super::call::{CallError, Transport};
use super::{LockKeeper, NSM, answers};
use crate::limits::{CONFIRM_PATIENCE, CONFIRM_PAUSE, NOTIFY_PAUSE_MAX};

impl LockKeeper {
    /// Finds out whether a host has restarted; if so, ends its earlier locks.
    pub(super) async fn confirm(&self, restart: Restart) {
        let belief = self.belief(&restart).await;
        let address = restart.host.address;
        let judged = self.locks.restart_judged(&restart, belief);
        let due = self.told.is_due(address);
        let again = due.filter(|again| *again > 0);
        if let Some(freed) = judged {
            if due.is_some() {
                tracing::info!(
                    class = "locks.ended", client = %address, freed, again,
                    "has restarted: its locks of before end"
                );
            }
        } else {
            if due.is_some() {
                tracing::warn!(
                    class = "locks.kept", client = %address, again,
                    "said to have restarted, which its status monitor does not confirm: its locks \
                     stay. If it is true, `aquifer locks clear {address}` ends them"
                );
            }
            // A question costs the host something, and a notice costs its sender nothing.
            sleep(CONFIRM_PAUSE).await;
        }
        self.locks.restart_closed(&restart);
    }

    async fn belief(&self, restart: &Restart) -> Belief {
        let end = Instant::now() + CONFIRM_PATIENCE;
        let mut pause = CONFIRM_PAUSE;
        loop {
            let error = match self.state_of(restart).await {
                Ok(state) => return Belief::Confirmed(state),
                Err(error) => error,
            };
            tracing::debug!(client = %restart.host.address, %error, "its status monitor");
            if restart.is_from_root {
                return Belief::OnItsWord;
            }
            // Early in a start of the host its monitor may not run yet.
            if Instant::now() + pause >= end {
                return Belief::None;
            }
            sleep(pause).await;
            pause = NOTIFY_PAUSE_MAX.min(pause * 2);
        }
    }

    /// The state of the host's status monitor.
    async fn state_of(&self, restart: &Restart) -> Result<i32, CallError> {
        let mut args = EncodeBuf::new();
        // We do not want to know which host it could monitor, so we send a name that it finds
        // without DNS.
        args.put(&nlm::Limited::<{ nlm::NAME_BYTES_MAX }>(b"localhost"));
        let caller = self.caller(restart.host.address, restart.via, &self.notices);
        let procedure = nsm::Procedure::Stat.wire();
        let order = [Transport::Udp, Transport::Tcp];
        let results = caller.call(NSM, order, procedure, &args.to_vec()).await?;
        answers::state(&results)
            .ok_or_else(|| CallError::Refused("it does not tell its state".into()))
    }
}
