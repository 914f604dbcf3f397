//! The content of the list, and how clients get on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

fn host(last: u8) -> Monitored {
    let address = IpAddr::from([10, 0, 0, last]);
    let name = format!("host{last}").into_bytes().into();
    Monitored { client: Client { address, name }, via: None }
}

/// A list that is always the same, and how often it was written.
struct Fixed(Vec<Monitored>, AtomicUsize);

impl Fixed {
    fn of(hosts: &[u8]) -> Fixed {
        Fixed(hosts.iter().map(|last| host(*last)).collect(), AtomicUsize::new(0))
    }
}

impl DurableList for Fixed {
    fn list(&self) -> Option<Vec<Monitored>> {
        Some(self.0.clone())
    }

    fn written(&self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

async fn keep(store: &Store, hosts: &[u8]) -> io::Result<()> {
    let list = Fixed::of(hosts);
    let newcomer = &list.0.last().unwrap().client;
    let kept = store.keep(newcomer, &list).await;
    assert_eq!(list.1.load(Ordering::Relaxed), usize::from(kept.is_ok()));
    kept
}

/// Clients that had locks before a restart stay on the list until notified of it, over further
/// restarts, whatever others do meanwhile.
#[tokio::test]
async fn who_was_not_told_stays_on_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let known = || Store::open(dir.path()).1.clients;
    let (store, _) = Store::open(dir.path());
    keep(&store, &[1, 2]).await.unwrap();
    assert_eq!(known(), [host(1), host(2)]);
    // Only a third client has a lock now; the first one was notified.
    let (store, _) = Store::open(dir.path());
    store.told(&[host(1)]).await;
    keep(&store, &[3]).await.unwrap();
    assert_eq!(known(), [host(2), host(3)]);
}

/// The list remembers over restarts which clients ever answered: they are notified first.
#[tokio::test]
async fn who_was_reached_is_remembered_with_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path());
    store.reached(host(1).client.address);
    store.reached(host(9).client.address);
    keep(&store, &[1, 2]).await.unwrap();
    let (store, _) = Store::open(dir.path());
    let was_reached = |last| store.was_reached(host(last).client.address);
    assert_eq!([was_reached(1), was_reached(2), was_reached(9)], [true, false, false]);
    // A list of an earlier version does not contain it.
    let path = dir.path().join(FILE_NAME);
    let text = fs::read_to_string(&path).unwrap().replace("\"reached\": true", "\"x\": 1");
    fs::write(&path, text.replace("\"reached\": false", "\"x\": 2")).unwrap();
    let (store, known) = Store::open(dir.path());
    assert_eq!((known.clients.len(), known.is_damaged), (2, false));
    assert!(!store.was_reached(host(1).client.address));
}

/// An address that makes up names waits; others do not.
#[tokio::test]
async fn an_address_joins_with_so_many_names_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path());
    for _ in 0..LOCK_NAMES_AT_ONCE {
        keep(&store, &[1]).await.unwrap();
    }
    assert!(keep(&store, &[1]).await.is_err());
    keep(&store, &[2]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    keep(&store, &[1]).await.unwrap();
    keep(&store, &[1]).await.unwrap();
    assert!(keep(&store, &[1]).await.is_err());
}

/// A directory stands where the list is to be: nothing is granted that could not be remembered, and
/// when it is gone, the list is there.
#[tokio::test]
async fn a_list_that_cannot_be_written_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    fs::create_dir(&path).unwrap();
    let (store, known) = Store::open(dir.path());
    assert!(known.is_damaged && known.clients.is_empty());
    assert!(store.problem().unwrap().contains(FILE_NAME));
    keep(&store, &[1]).await.unwrap_err();
    store.look_again().await;
    assert!(store.problem().is_some());
    fs::remove_dir(&path).unwrap();
    store.look_again().await;
    assert_eq!(store.problem(), None);
    keep(&store, &[1]).await.unwrap();
    // Somebody takes it away, or spoils it.
    for spoil in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "?")] {
        spoil(&path).unwrap();
        store.look_again().await;
        let clients = Store::open(dir.path()).1.clients;
        assert_eq!(clients, [host(1)]);
    }
}
