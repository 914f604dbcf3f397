//! The list of clients to notify of a restart, kept in a file.
//!
//! Invariants:
//! - The file is replaced whole: written beside, flushed, renamed, the directory flushed. It is
//!   written at each start, for the state number, and when a client joins the list. Clients that
//!   join while it is being written share the next write.
//! - A client on the list at the start stays on it until it was notified.
//! - A list that cannot be read or written keeps nobody from serving: it is tried again, and no new
//!   client gets a lock until it can be written.
//! - Clients that make up names wait: an address joins with some names at once, then with one a
//!   second.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aquifer_blockio::durable::{self, Stamp};
use aquifer_nfs::lock::{Client, DurableList, Monitored, Outside};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::limits::{LOCK_ADDRESSES_MAX, LOCK_NAMES_AT_ONCE};

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// State number of the status monitor: odd, and a new one after each start.
    state: i32,
    clients: Vec<Kept>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    address: IpAddr,
    name: String,
    /// Our address as the client knows it.
    via: Option<IpAddr>,
    /// A call of ours has reached it.
    #[serde(default)]
    reached: bool,
}

/// The list at the start.
#[derive(Debug)]
pub(super) struct Known {
    /// The state number of this run.
    pub state: i32,
    /// The clients that had locks.
    pub clients: Vec<Monitored>,
    /// There was a list, but it is unreadable.
    pub is_damaged: bool,
}

#[derive(Debug)]
pub(super) struct Store {
    /// Shared with the threads that write it.
    file: Arc<ListFile>,
    /// Clients on the list that were not notified of the restart yet.
    before: Mutex<Vec<Monitored>>,
    /// How many names addresses have joined with lately, and when.
    joined: parking_lot::Mutex<HashMap<IpAddr, (u32, Instant)>>,
    wake: Notify,
}

/// The file, and what it has beside the clients.
#[derive(Debug)]
struct ListFile {
    path: PathBuf,
    state: i32,
    /// Addresses on the list that a call of ours has reached.
    reached: parking_lot::Mutex<HashSet<IpAddr>>,
    on_disk: parking_lot::Mutex<OnDisk>,
}

/// The file as it was last written.
#[derive(Debug, Default)]
struct OnDisk {
    clients: Vec<Monitored>,
    stamp: Option<Stamp>,
    /// Why it is not there as it should be.
    problem: Option<String>,
}

impl Store {
    /// Reads the file in `dir`, and writes it for this run.
    pub fn open(dir: &Path) -> (Store, Known) {
        let path = dir.join(FILE_NAME);
        let read = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice::<Content>(&bytes)?));
        let (content, is_damaged) = match read {
            Ok(content) => (content, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Content::default(), false),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "no list of lock clients: \
                    those who had locks are not told of the restart");
                (Content::default(), true)
            }
        };
        let state = match is_damaged {
            // The old state is unknown; the clock gives another one in any case.
            true => after(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(1, |since| i32::try_from(since.as_secs() & 0x3fff_ffff).unwrap_or(1)),
            ),
            false => after(content.state),
        };
        let reached = content.clients.iter().filter(|kept| kept.reached);
        let reached: HashSet<IpAddr> = reached.map(|kept| kept.address).collect();
        let clients: Vec<Monitored> = content.clients.into_iter().map(monitored).collect();
        let reached = parking_lot::Mutex::new(reached);
        let file = Arc::new(ListFile { path, state, reached, on_disk: Default::default() });
        // What cannot be written is tried again.
        let _ = file.write(&clients);
        let before = Mutex::new(clients.clone());
        let store = Store { file, before, joined: Default::default(), wake: Notify::new() };
        (store, Known { state, clients, is_damaged })
    }

    /// Why the list cannot be written.
    pub fn problem(&self) -> Option<String> {
        self.file.on_disk.lock().problem.clone()
    }

    /// Writes the list again if it is not on disk as it was written.
    pub async fn look_again(&self) {
        // Nobody else writes meanwhile.
        let before = self.before.lock().await;
        let file = Arc::clone(&self.file);
        let _ = tokio::task::spawn_blocking(move || file.look_again()).await;
        drop(before);
    }

    /// There may be messages for clients. One call of [`Outside::wake`] is remembered.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Earlier clients may leave the list: they go with its next write.
    pub async fn told(&self, clients: &[Monitored]) {
        self.before.lock().await.retain(|other| !clients.contains(other));
    }

    /// A call of ours has reached this address.
    pub fn reached(&self, address: IpAddr) {
        let mut reached = self.file.reached.lock();
        if reached.len() < LOCK_ADDRESSES_MAX {
            reached.insert(address);
        }
    }

    /// Whether a call of ours has ever reached this address.
    pub fn was_reached(&self, address: IpAddr) -> bool {
        self.file.reached.lock().contains(&address)
    }

    /// Whether an address may join with another name now.
    fn may_join(&self, address: IpAddr) -> bool {
        let mut joined = self.joined.lock();
        let left = |(count, since): &(u32, Instant)| {
            let seconds = u32::try_from(since.elapsed().as_secs()).unwrap_or(u32::MAX);
            count.saturating_sub(seconds)
        };
        if joined.len() >= LOCK_ADDRESSES_MAX {
            joined.retain(|_, of| left(of) > 0);
        }
        let count = joined.get(&address).map_or(0, left);
        if count < LOCK_NAMES_AT_ONCE {
            joined.insert(address, (count + 1, Instant::now()));
        }
        count < LOCK_NAMES_AT_ONCE
    }
}

impl ListFile {
    fn look_again(&self) {
        let (is_there, clients) = {
            let now = self.on_disk.lock();
            let is_there = now.stamp.is_some() && now.stamp == Stamp::of(&self.path);
            (is_there && now.problem.is_none(), now.clients.clone())
        };
        if !is_there {
            let _ = self.write(&clients);
        }
    }

    /// Writes the list, and notes how that went.
    fn write(&self, clients: &[Monitored]) -> io::Result<()> {
        let reached = self.on_list(clients);
        let written = write(&self.path, self.state, clients, &reached);
        let mut on_disk = self.on_disk.lock();
        match &written {
            Ok(()) => {
                let (clients, stamp) = (clients.to_vec(), Stamp::of(&self.path));
                *on_disk = OnDisk { clients, stamp, problem: None };
            }
            Err(error) => {
                let why = format!("{}: {error}", self.path.display());
                if on_disk.problem.as_ref() != Some(&why) {
                    tracing::error!(class = "locks.not_kept", why, "no list of lock clients");
                }
                on_disk.problem = Some(why);
            }
        }
        written
    }

    /// Forgets all addresses that are not on the list, and returns the others.
    fn on_list(&self, clients: &[Monitored]) -> HashSet<IpAddr> {
        let listed: HashSet<IpAddr> = clients.iter().map(|one| one.client.address).collect();
        let mut reached = self.reached.lock();
        reached.retain(|address| listed.contains(address));
        reached.clone()
    }
}

impl Outside for Store {
    fn wake(&self) {
        self.wake.notify_one();
    }

    fn keep<'a>(
        &'a self,
        newcomer: &'a Client,
        list: &'a (dyn DurableList + 'a),
    ) -> BoxFuture<'a, io::Result<()>> {
        async move {
            if !self.may_join(newcomer.address) {
                let why = "its address has joined with many names of late";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
            let before = self.before.lock().await;
            let Some(mut clients) = list.list() else { return Ok(()) };
            clients.extend(before.iter().cloned());
            clients.sort_unstable();
            clients.dedup();
            let file = Arc::clone(&self.file);
            // The lock is held over the write, so that lists are written in the order in which they
            // were made.
            let written = tokio::task::spawn_blocking(move || file.write(&clients)).await;
            written.map_err(io::Error::other)??;
            list.written();
            drop(before);
            Ok(())
        }
        .boxed()
    }
}

fn monitored(kept: Kept) -> Monitored {
    let Kept { address, name, via, .. } = kept;
    Monitored { client: Client { address, name: name.into_bytes().into() }, via }
}

/// The next odd number.
fn after(state: i32) -> i32 {
    if (0..i32::MAX - 2).contains(&state) { (state + 1) | 1 } else { 1 }
}

fn write(
    path: &Path,
    state: i32,
    clients: &[Monitored],
    reached: &HashSet<IpAddr>,
) -> io::Result<()> {
    let kept = |monitored: &Monitored| Kept {
        address: monitored.client.address,
        name: String::from_utf8_lossy(&monitored.client.name).into_owned(),
        via: monitored.via,
        reached: reached.contains(&monitored.client.address),
    };
    let content = Content { state, clients: clients.iter().map(kept).collect() };
    let mut bytes = serde_json::to_vec_pretty(&content)?;
    bytes.push(b'\n');
    durable::replace(path, &bytes, 0o600)
}

const FILE_NAME: &str = "lock-clients.json";

#[cfg(test)]
mod tests;
