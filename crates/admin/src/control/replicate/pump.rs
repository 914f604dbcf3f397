//! A stream goes from the side of the dataset to that of the copy, at a pace.
//!
//! Invariant: the side hears from us at least every [`ALIVE_EVERY`], also while nothing is to be
//! sent: it takes a silent client for one that is gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aquifer_api::{ApiError, ReceiveBegun, ReceiveRequest, SendQuery, SnapshotName};
use aquifer_files::Expected;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::rest::Start;
use super::side::Side;
use super::source::Source;

/// How far a run is, and whether somebody wants it to end.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    pub sent_bytes: AtomicU64,
    pub stop: AtomicBool,
}

impl Gauge {
    /// Fails if somebody wants it to end.
    pub fn check(&self) -> Result<(), ApiError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(ApiError::conflict(
                "it was stopped; what was sent waits there, and the next run goes on with it",
            )),
            false => Ok(()),
        }
    }
}

/// A stream that is to be sent.
#[derive(Debug)]
pub(super) struct Stream {
    /// The snapshots, by names of the side that has them.
    pub query: SendQuery,
    /// Where it begins; `None`: at its beginning.
    pub start: Option<Start>,
    /// Snapshots that it must bring.
    pub expected: Expected,
    pub into: ReceiveRequest,
    /// Snapshots that the copy does not need when it has this one.
    pub prune: Vec<SnapshotName>,
}

/// Sends one stream. When this returns well the copy has its snapshot on disk; else what came waits
/// there.
pub(super) async fn send(
    (source, side): (&Source, &Side),
    Stream { query, start, expected, into, prune }: Stream,
    (rate_bytes, gauge): (Option<u64>, &Gauge),
) -> Result<(), ApiError> {
    let begun = side.begin_receive(into, expected).await?;
    let (to, from) = mpsc::channel(PARTS_WAITING);
    let sent = tokio::join!(
        read(source, (query, start), to),
        write(side, &begun, from, (rate_bytes, gauge))
    );
    let id = begun.id;
    let sent = match sent {
        // Why the writer ended is why the reader did, if both failed.
        (_, Err(error)) | (Err(error), Ok(())) => Err(error),
        (Ok(()), Ok(())) => side.end_receive(id, prune).await.map(drop),
    };
    if sent.is_err() {
        side.give_up(id).await;
    }
    sent
}

/// Reads a stream to its end, or until nobody takes it.
async fn read(
    source: &Source,
    (mut query, start): (SendQuery, Option<Start>),
    to: mpsc::Sender<Vec<u8>>,
) -> Result<(), ApiError> {
    loop {
        let part = source.part(&query, start.as_ref()).await?;
        if to.send(part.bytes).await.is_err() {
            return Ok(());
        }
        query.after = part.next;
        if query.after.is_none() {
            return Ok(());
        }
    }
}

async fn write(
    side: &Side,
    begun: &ReceiveBegun,
    mut from: mpsc::Receiver<Vec<u8>>,
    (rate_bytes, gauge): (Option<u64>, &Gauge),
) -> Result<(), ApiError> {
    let id = begun.id;
    let mut pace = Pace::new(rate_bytes, begun.part_bytes_max(), Instant::now());
    loop {
        let mut bytes: Bytes = match timeout(ALIVE_EVERY, from.recv()).await {
            Err(_) => Bytes::new(),
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) => bytes.into(),
        };
        if bytes.is_empty() {
            side.receive_part(id, bytes).await?;
            continue;
        }
        while !bytes.is_empty() {
            gauge.check()?;
            let part = bytes.split_to(pace.part_bytes.min(bytes.len()));
            let part_bytes = part.len();
            sleep_until(pace.next(part_bytes, Instant::now())).await;
            side.receive_part(id, part).await?;
            gauge.sent_bytes.fetch_add(part_bytes as u64, Ordering::Relaxed);
        }
    }
}

/// When parts may go.
#[derive(Debug)]
struct Pace {
    rate_bytes: Option<u64>,
    part_bytes: usize,
    /// Time at which all parts that went before are paid for.
    free_at: Instant,
}

impl Pace {
    fn new(rate_bytes: Option<u64>, part_bytes_max: usize, now: Instant) -> Pace {
        // Four parts a second at least, so that the line is used evenly.
        let part = rate_bytes.map_or(u64::MAX, |rate| (rate / 4).max(PART_BYTES_MIN));
        let part_bytes = usize::try_from(part).unwrap_or(usize::MAX).min(part_bytes_max);
        Pace { rate_bytes, part_bytes, free_at: now }
    }

    /// When a part of this size may go. Time in which nothing went is not saved up.
    fn next(&mut self, bytes: usize, now: Instant) -> Instant {
        let at = self.free_at.max(now);
        let Some(rate) = self.rate_bytes else { return at };
        let takes_ns = u128::try_from(bytes).unwrap_or(u128::MAX) * 1_000_000_000;
        let takes_ns = takes_ns / u128::from(rate.max(1));
        self.free_at = at + Duration::from_nanos(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        at
    }
}

/// As `aquifer receive` has it; a side waits for a minute.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// Pages of a stream, of some megabytes each, between reader and writer.
const PARTS_WAITING: usize = 1;
const PART_BYTES_MIN: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it takes until the last of so many bytes may go.
    fn takes(rate: Option<u64>, bytes: usize) -> (Duration, usize) {
        let begun = Instant::now();
        let mut pace = Pace::new(rate, 1 << 20, begun);
        let (mut now, mut left, mut parts) = (begun, bytes, 0);
        while left > 0 {
            let part = left.min(pace.part_bytes);
            now = pace.next(part, now);
            left -= part;
            parts += 1;
        }
        (now - begun, parts)
    }

    #[test]
    fn bytes_go_at_the_rate_and_without_one_at_once() {
        assert_eq!(takes(None, 8 << 20), (Duration::ZERO, 8));
        // The first part goes at once.
        assert_eq!(takes(Some(1 << 20), 10 << 20).0, Duration::from_millis(9750));
        assert_eq!(takes(Some(64 << 10), 640 << 10).0, Duration::from_millis(9750));
        let (span, parts) = takes(Some(1 << 30), 100 << 20);
        assert!(span < Duration::from_millis(100) && parts == 100, "{span:?} {parts}");
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let begun = Instant::now();
        let mut pace = Pace::new(Some(1 << 20), 1 << 20, begun);
        assert_eq!(pace.next(1 << 20, begun), begun);
        let late = begun + Duration::from_secs(100);
        assert_eq!(pace.next(1 << 20, late), late);
        assert_eq!(pace.next(1 << 20, late), late + Duration::from_secs(1));
    }
}
