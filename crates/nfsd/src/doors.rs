//! The addresses that clients come to: those of NFS, their datagrams, and how a portmapper leads
//! there.
//!
//! An address may be taken at the start, or not be there yet. Then the others serve, and this one
//! is tried again every [`DOORS_RETRY`]. So is the portmapper.
//!
//! Invariant: a door that opened stays open until the server stops.

use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket};
use std::sync::Arc;

use aquifer_nfs::Nfs;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::Config;
use crate::connection::{Common, Phase};
use crate::datagrams;
use crate::limits::DOORS_RETRY;
use crate::listen::{self, Workers};
use crate::portmap_service::{self, PortmapService, PortmapState};

/// All doors of a server.
#[derive(Debug)]
pub(crate) struct Doors {
    doors: Mutex<Vec<Door>>,
    portmap: PortmapService,
}

/// One address of NFS.
#[derive(Debug)]
struct Door {
    wanted: SocketAddr,
    /// Where it listens; or why it does not.
    local: Result<SocketAddr, String>,
    /// Locks are served by datagrams, too.
    has_datagrams: bool,
}

/// Sockets that opened, and are not served yet.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    listeners: Vec<StdListener>,
    datagrams: Vec<UdpSocket>,
    portmapper: portmap_service::Sockets,
}

impl Doors {
    pub(crate) fn new(config: &Config) -> Doors {
        let closed = |wanted: &SocketAddr| {
            let local = Err("not tried yet".to_string());
            Door { wanted: *wanted, local, has_datagrams: false }
        };
        let doors = Mutex::new(config.listen.iter().map(closed).collect());
        Doors { doors, portmap: PortmapService::new(&config.portmap) }
    }

    /// Opens what is not open and can be, and tells portmappers.
    pub(crate) async fn open(&self, nfs: &Nfs) -> Opened {
        let mut opened = Opened::default();
        for door in &mut *self.doors.lock() {
            door.open(&mut opened);
        }
        let (addresses, has_datagrams) = {
            let doors = self.doors.lock();
            let open = || doors.iter().filter(|door| door.local.is_ok());
            (addresses_of(&doors), open().all(|door| door.has_datagrams))
        };
        // A portmapper that leads nowhere would make clients give up.
        if !addresses.is_empty() {
            opened.portmapper = self.portmap.tend(&addresses, has_datagrams, nfs).await;
        }
        opened
    }

    /// Serves what opened, and opens what could not be opened, until the server stops.
    pub(crate) async fn serve(
        self: Arc<Self>,
        opened: Opened,
        places: Workers,
        common: Arc<Common>,
        ended: Arc<Notify>,
        follows: watch::Receiver<Phase>,
    ) {
        let mut serving = JoinSet::new();
        let mut next = opened;
        loop {
            let Opened { listeners, datagrams, portmapper } = next;
            // The portmapper's TCP ports are served like any other: `nfs` answers that program too.
            for listener in listeners.into_iter().chain(portmapper.listeners) {
                let (places, common) = (places.clone(), Arc::clone(&common));
                let (ended, follows) = (Arc::clone(&ended), follows.clone());
                serving.spawn(listen::accept(listener, places, common, ended, follows));
            }
            for socket in datagrams {
                serving.spawn(datagrams::answer(socket, Arc::clone(&common.nfs)));
            }
            for socket in portmapper.datagrams {
                let nfs = Arc::clone(&common.nfs);
                serving.spawn(portmap_service::answer_datagrams(socket, nfs));
            }
            sleep(DOORS_RETRY).await;
            next = self.open(&common.nfs).await;
        }
    }

    /// Where NFS listens, in the configuration's order.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        addresses_of(&self.doors.lock())
    }

    /// The addresses where it does not listen, and why.
    pub(crate) fn closed(&self) -> Vec<(SocketAddr, String)> {
        let doors = self.doors.lock();
        let closed = |door: &Door| Some((door.wanted, door.local.as_ref().err()?.clone()));
        doors.iter().filter_map(closed).collect()
    }

    pub(crate) fn portmap(&self) -> PortmapState {
        self.portmap.state()
    }

    /// Withdraws our programs from another portmapper.
    pub(crate) async fn withdraw(&self) {
        self.portmap.withdraw().await;
    }
}

fn addresses_of(doors: &[Door]) -> Vec<SocketAddr> {
    doors.iter().filter_map(|door| door.local.as_ref().ok().copied()).collect()
}

impl Door {
    fn open(&mut self, opened: &mut Opened) {
        let address = self.wanted;
        if let Err(before) = &self.local {
            let listener = listen::tcp(address);
            match listener.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((local, listener)) => {
                    tracing::info!(class = "nfs.listens", address = %local, "NFS listens");
                    self.local = Ok(local);
                    opened.listeners.push(listener);
                }
                Err(error) => {
                    let why = error.to_string();
                    if why != *before {
                        tracing::error!(
                            class = "nfs.not_served", %address, %error,
                            "NFS cannot listen; it is tried again"
                        );
                    }
                    self.local = Err(why);
                }
            }
        }
        // Without datagrams, clients lock over TCP.
        if let (Ok(local), false) = (&self.local, self.has_datagrams) {
            match listen::udp(*local) {
                Ok(socket) => {
                    self.has_datagrams = true;
                    opened.datagrams.push(socket);
                }
                Err(error) => tracing::debug!(%address, %error, "locks are served over TCP only"),
            }
        }
    }
}
