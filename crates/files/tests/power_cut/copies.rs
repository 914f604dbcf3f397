//! Common parts of worlds of copies: snapshots of one dataset are sent, one after the other, while
//! a client changes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_files::{ReceiveError, Receiver, Service};
use aquifer_sim::Rng;

use crate::received::{SOURCE, change, changes, content, is_full};

/// Content of the source's snapshots, by their numbers. Those that were sent are not destroyed.
#[derive(Debug, Default)]
pub struct Sent {
    has: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

impl Sent {
    /// The number of the next one.
    pub fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn put(&mut self, number: u64, has: Vec<u8>) {
        self.has.insert(number, has);
    }

    pub fn get(&self, number: u64) -> Option<Vec<u8>> {
        self.has.get(&number).cloned()
    }
}

/// The full name of a snapshot.
pub fn full(name: &str, number: u64) -> String {
    format!("{name}@s{number}")
}

/// The number in a name, full or not; none is that large.
pub fn number(name: &str) -> u64 {
    let last = name.rsplit_once('@').map_or(name, |(_, last)| last);
    last.trim_start_matches('s').parse().unwrap_or(u64::MAX)
}

/// Takes a snapshot of the source. Returns what it has; `None`: there is no room.
pub async fn taken(service: &Service, number: u64) -> Result<Option<Vec<u8>>, String> {
    let name = full(SOURCE, number);
    match service.datasets.snapshot(std::slice::from_ref(&name), false).await {
        Err(error) if is_full(&error.to_string()) => return Ok(None),
        taken => drop(taken.map_err(|error| format!("take {name}: {error}"))?),
    }
    Ok(Some(content(&changes(service, &name, None).await?)))
}

/// Gives a stream to a receiver, while a client changes the source.
pub async fn give(
    (service, world): (&Service, &Arc<dyn World>),
    rng: &mut Rng,
    receiver: &mut Receiver,
    bytes: &[u8],
) -> Result<Result<(), ReceiveError>, String> {
    let mut left = bytes;
    while !left.is_empty() {
        let (piece, rest) = left.split_at((1 + rng.index(60_000)).min(left.len()));
        left = rest;
        if let Err(error) = receiver.push(piece.to_vec()).await {
            return Ok(Err(error));
        }
        match rng.below(5) {
            0 => drop(service.pool.sync().await),
            1 => world.sleep(Duration::from_micros(rng.below(3000))).await,
            2 => change(service, rng).await?,
            _ => {}
        }
    }
    Ok(receiver.finish().await.map(drop))
}

/// The number of a copy's newest snapshot; `None`: there is no copy.
pub fn newest(service: &Service, name: &str) -> Option<u64> {
    let copy = service.datasets.by_name(name)?;
    let listed = copy.snapshots(service.pool.committed_txg());
    Some(listed.last().map_or(u64::MAX, |of| number(&of.record.name)))
}

/// A snapshot of a copy has what was sent.
pub async fn has_what_was_sent(
    service: &Service,
    snapshot: &str,
    sent: Option<&[u8]>,
) -> Result<(), String> {
    let has = content(&changes(service, snapshot, None).await?);
    match sent == Some(&has) {
        true => Ok(()),
        false => Err(format!("{snapshot} is not what was sent")),
    }
}

/// The head of a copy is its snapshot.
pub async fn head_is(service: &Service, name: &str, snapshot: &str) -> Result<(), String> {
    let differs = service.files.changed_names((snapshot, name), None, 10).await;
    let differs = differs.map_err(|error| format!("{name}: {error}"))?.names;
    match differs.is_empty() {
        true => Ok(()),
        false => Err(format!("the head of {name} is not its snapshot: {differs:?}")),
    }
}
