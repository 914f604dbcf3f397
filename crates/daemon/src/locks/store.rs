//! The list of clients that are to be told of a restart, kept in a file.
//!
//! Invariants:
//! - The file is replaced whole: written beside, flushed, renamed, the directory flushed. It is
//!   written at each start, for the state number, and when a client joins the list.
//! - Who was on the list at the start stays on it until it was told.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aquifer_nfs::lock::{Client, Monitored, Outside};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// State number of the status monitor: odd, and another after each start.
    state: i32,
    clients: Vec<Kept>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    address: IpAddr,
    name: String,
    /// Our address as it knows it.
    via: Option<IpAddr>,
}

/// What is known at the start.
#[derive(Debug)]
pub(super) struct Known {
    /// The state number of this run.
    pub state: i32,
    /// Who had locks.
    pub clients: Vec<Monitored>,
    /// There was a list, and nobody can read it.
    pub is_damaged: bool,
}

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    state: i32,
    /// Those on the list who were not told of the restart yet.
    before: Mutex<Vec<Monitored>>,
    wake: Notify,
}

impl Store {
    /// Reads the file in `dir`, and writes it for this run.
    pub fn open(dir: &Path) -> io::Result<(Store, Known)> {
        let path = dir.join(FILE_NAME);
        let (content, is_damaged) = match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Content>(&bytes) {
                Ok(content) => (content, false),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "no list of lock clients: \
                        those who had locks are not told of the restart");
                    (Content::default(), true)
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Content::default(), false),
            Err(error) => return Err(error),
        };
        let state = match is_damaged {
            // What it was is not known; the time is another one in any case.
            true => after(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(1, |since| i32::try_from(since.as_secs() & 0x3fff_ffff).unwrap_or(1)),
            ),
            false => after(content.state),
        };
        let clients: Vec<Monitored> = content.clients.into_iter().map(monitored).collect();
        let before = Mutex::new(clients.clone());
        let store = Store { path, state, before, wake: Notify::new() };
        write(&store.path, state, &clients)?;
        Ok((store, Known { state, clients, is_damaged }))
    }

    /// There may be something to be said to clients. One call of [`Outside::wake`] is remembered.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// A client of before needs not be on the list any more: it goes when that is written next.
    pub async fn told(&self, monitored: &Monitored) {
        self.before.lock().await.retain(|other| other != monitored);
    }
}

impl Outside for Store {
    fn wake(&self) {
        self.wake.notify_one();
    }

    fn keep<'a>(
        &'a self,
        list: &'a (dyn Fn() -> Vec<Monitored> + Send + Sync),
    ) -> BoxFuture<'a, io::Result<()>> {
        async move {
            let before = self.before.lock().await;
            let mut clients = list();
            clients.extend(before.iter().cloned());
            clients.sort_unstable();
            clients.dedup();
            let (path, state) = (self.path.clone(), self.state);
            // The lock is held over this: lists are written in the order in which they were made.
            let written = tokio::task::spawn_blocking(move || write(&path, state, &clients)).await;
            drop(before);
            written.map_err(io::Error::other)?
        }
        .boxed()
    }
}

fn monitored(kept: Kept) -> Monitored {
    let Kept { address, name, via } = kept;
    Monitored { client: Client { address, name: name.into_bytes().into() }, via }
}

/// The next odd number.
fn after(state: i32) -> i32 {
    if (0..i32::MAX - 2).contains(&state) { (state + 1) | 1 } else { 1 }
}

fn write(path: &Path, state: i32, clients: &[Monitored]) -> io::Result<()> {
    let kept = |monitored: &Monitored| Kept {
        address: monitored.client.address,
        name: String::from_utf8_lossy(&monitored.client.name).into_owned(),
        via: monitored.via,
    };
    let content = Content { state, clients: clients.iter().map(kept).collect() };
    let mut bytes = serde_json::to_vec_pretty(&content)?;
    bytes.push(b'\n');
    let beside = path.with_extension("new");
    let mut options = File::options();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

const FILE_NAME: &str = "lock-clients.json";

#[cfg(test)]
mod tests {
    use super::*;

    /// Who had locks before a restart stays on the list until told of it, over further restarts,
    /// whatever others do meanwhile.
    #[tokio::test]
    async fn who_was_not_told_stays_on_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let host = |last: u8| {
            let address = IpAddr::from([10, 0, 0, last]);
            let name = format!("host{last}").into_bytes().into();
            Monitored { client: Client { address, name }, via: None }
        };
        let known = || Store::open(dir.path()).unwrap().1.clients;
        let (store, _) = Store::open(dir.path()).unwrap();
        store.keep(&|| vec![host(1), host(2)]).await.unwrap();
        assert_eq!(known(), [host(1), host(2)]);
        // Nobody has a lock any more but a third one; the first has heard of it.
        let (store, _) = Store::open(dir.path()).unwrap();
        store.told(&host(1)).await;
        store.keep(&|| vec![host(3)]).await.unwrap();
        assert_eq!(known(), [host(2), host(3)]);
    }
}
