//! Tells hosts that had locks of our restart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::lock::Monitored;
use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::xdr::EncodeBuf;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{CallError, Transport};
use super::{LockKeeper, NSM};
use crate::limits::{NOTIFY_PATIENCE, NOTIFY_PAUSE_MAX};

impl LockKeeper {
    /// Tells clients that had locks of our restart: a task for each address, however many names it
    /// has. Addresses that a call has ever reached come first.
    pub(super) async fn notify_all(self: &Arc<Self>) {
        let mut hosts: BTreeMap<(bool, IpAddr), Vec<Monitored>> = BTreeMap::new();
        for monitored in self.untold.lock().iter() {
            let address = monitored.client.address;
            let was_never_reached = !self.store.was_reached(address);
            hosts.entry((was_never_reached, address)).or_default().push(monitored.clone());
        }
        let mut telling = JoinSet::new();
        for ((_, address), clients) in hosts {
            let this = Arc::clone(self);
            telling.spawn(async move { this.notify(address, clients).await });
        }
        while telling.join_next().await.is_some() {}
    }

    async fn notify(&self, address: IpAddr, clients: Vec<Monitored>) {
        let mut pause = Duration::from_secs(1);
        let end = self.begun() + NOTIFY_PATIENCE;
        let vias: BTreeSet<_> = clients.iter().map(|client| client.via).collect();
        loop {
            match self.notify_once(address, &vias).await {
                Ok(()) => {
                    self.store.reached(address);
                    tracing::info!(client = %address, "told of our restart");
                    break;
                }
                Err(error) if Instant::now() + pause >= end => {
                    tracing::warn!(client = %address, %error, "not told of our restart");
                    break;
                }
                Err(error) => tracing::debug!(client = %address, %error, "not told yet"),
            }
            sleep(pause).await;
            pause = NOTIFY_PAUSE_MAX.min(pause * 2);
        }
        self.untold.lock().retain(|untold| !clients.contains(untold));
        self.store.told(&clients).await;
        // A client that hears late still has its time.
        sleep_until((Instant::now() + self.grace).max(self.begun() + self.grace)).await;
        for monitored in &clients {
            self.locks.end_claims(&monitored.client);
        }
    }

    /// Uses both names by which the client may know this machine: its address and its name. Linux's
    /// monitors compare addresses behind names, others compare texts.
    async fn notify_once(
        &self,
        address: IpAddr,
        vias: &BTreeSet<Option<IpAddr>>,
    ) -> Result<(), CallError> {
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        for via in vias {
            let by_address = via.map(|via| via.to_string().into_bytes());
            for name in by_address.into_iter().chain([host.clone()]) {
                let mut args = EncodeBuf::new();
                let mon_name = nlm::Limited(name.as_slice());
                args.put(&nsm::StatChge { mon_name, state: self.locks.state() });
                let procedure = nsm::Procedure::Notify.wire();
                // UDP first, as monitors use it among each other.
                let order = [Transport::Udp, Transport::Tcp];
                let caller = self.caller(address, *via, &self.notices);
                caller.call(NSM, order, procedure, &args.to_vec()).await?;
            }
        }
        Ok(())
    }
}
