//! The intent log: the chain from the root's head as an import reads it, and the data that it
//! names.
//!
//! The chain ends where header or payload verifies on no side. That is no error unless something
//! proves that the missing batch was durable: the end that the last import fixed, a mark in the
//! uberblock, or a mark in a batch, also in a later one past the gap.

mod claims;
mod read;

use aquifer_ondisk::pool_root::{LogRoot, PoolRoot};
use aquifer_ondisk::types::SEGMENT_SECTORS;

use crate::finding::{At, Kind};
use crate::log::read::{Batch, Miss, Position, Reader, Ring};
use crate::media::{Breadth, Fetched};
use crate::records::Records;
use crate::report::LogSummary;
use crate::scan::Scan;
use crate::used::Used;
use crate::vote::Vote;

/// Sectors past a gap in which a later batch may prove the missing one durable: batches in flight
/// (three of 1 MiB at most) and 2 MiB.
const PROOF_SECTORS: u64 = 3 * 256 + 512;

/// The chain as far as it goes.
struct Chain {
    batches: Vec<Batch>,
    next_sequence: u64,
    /// Header checksum of the last batch.
    previous: u128,
    /// Batches up to here are proven durable.
    mark: u64,
    end: String,
}

/// Inspects the log of the newest root.
pub(crate) async fn look(
    scan: &mut Scan<'_>,
    records: &Records,
    vote: &Vote,
    used: &Used,
) -> Option<LogSummary> {
    let uberblock = &vote.uberblock;
    let log = current(&records.root, uberblock.restart_chain);
    if log.chain == 0 && log.segments.is_empty() {
        return None;
    }
    let ring = Ring::new(&log.segments);
    let Some(head) = ring.position(log.head_place) else {
        scan.findings.add(Kind::SegmentsInvalid, At::place(log.head_place, 1), || {
            format!("the log's head {:?} is in none of its segments", log.head_place)
        });
        return None;
    };
    let reader = Reader {
        media: scan.media,
        ring: &ring,
        pool: vote.config.pool_guid,
        chain: log.chain,
        fixed: uberblock.log_end,
        session: uberblock.session,
        all_sides: scan.options.deep,
    };
    let mut chain = Chain {
        batches: Vec::new(),
        next_sequence: log.head_sequence,
        previous: log.previous_checksum,
        mark: uberblock.mark,
        end: String::new(),
    };
    read_chain(scan, &reader, &mut chain, head).await;
    cut_unwritten(scan, &mut chain, vote).await;
    chain.mark = chain.mark.min(chain.next_sequence.saturating_sub(1));
    say_uneven(scan, &chain, &ring);
    let floor = uberblock.floor;
    check_proven_data(scan, &chain, vote).await;
    let claims = claims::check(scan, &chain.batches, floor, records, used);
    let records = chain.batches.iter().flat_map(|batch| &batch.header.records);
    let pending = records.clone().filter(|record| record.txg > floor).count() as u64;
    if pending > 0 {
        let kind = if uberblock.clean { Kind::LogNotEmpty } else { Kind::LogPending };
        scan.findings.add(kind, At::nowhere(), || {
            let batches = chain.batches.len();
            let exported = if uberblock.clean { ", though the pool was exported" } else { "" };
            format!("{pending} records in {batches} batches are to be replayed{exported}")
        });
    }
    Some(LogSummary {
        chain: log.chain,
        head_sequence: log.head_sequence,
        batches: chain.batches.len() as u64,
        records: records.count() as u64,
        pending,
        mark: chain.mark,
        early: claims,
        end: chain.end,
    })
}

/// The log of a root, or the empty one at home if an uberblock restarts the log.
fn current(root: &PoolRoot, restart_chain: u64) -> LogRoot {
    if restart_chain == 0 {
        return root.log.clone();
    }
    let segments = root.log_home.clone();
    LogRoot {
        chain: restart_chain,
        head_sequence: 1,
        head_place: segments.first().map(|run| run.place).unwrap_or_default(),
        previous_checksum: 0,
        segments,
    }
}

async fn read_chain(
    scan: &mut Scan<'_>,
    reader: &Reader<'_>,
    chain: &mut Chain,
    mut position: Position,
) {
    let miss = loop {
        match reader.read_batch(position, chain.next_sequence, chain.previous).await {
            Ok(batch) => {
                check_batch(scan, reader, chain, &batch);
                chain.mark = chain.mark.max(batch.header.mark);
                let after = Position {
                    offset: batch.position.offset.saturating_add(batch.sectors()),
                    ..position
                };
                position = reader.ring.place_for_next(after);
                chain.next_sequence = chain.next_sequence.saturating_add(1);
                chain.previous = batch.sum;
                chain.batches.push(batch);
            }
            Err(miss) => break miss,
        }
    };
    let sequence = chain.next_sequence;
    if chain.mark < sequence
        && let Some(mark) = reader.proof_after(position, sequence, PROOF_SECTORS).await
    {
        chain.mark = chain.mark.max(mark);
    }
    let proven = chain.mark >= sequence || sequence <= reader.fixed_end();
    let at = || At::place(reader.ring.place(position), 1);
    match &miss {
        Miss::Unreadable(why) => scan
            .findings
            .add(Kind::LogDamaged, at(), || format!("log batch {sequence} cannot be read: {why}")),
        Miss::Nothing if proven => scan.findings.add(Kind::LogDamaged, at(), || {
            format!("log batch {sequence} is missing, and is known to have been durable")
        }),
        Miss::Refused(why) if proven => scan.findings.add(Kind::LogDamaged, at(), || {
            format!("log batch {sequence} is known to have been durable; found there: {why}")
        }),
        Miss::Refused(why) => scan
            .findings
            .add(Kind::LogEnds, at(), || format!("the log ends before batch {sequence}: {why}")),
        Miss::Nothing => {}
    }
    chain.end = match miss {
        Miss::Nothing => "no batch there".to_string(),
        Miss::Refused(why) | Miss::Unreadable(why) => why,
    };
}

/// Compares a batch of the chain with earlier ones, and with the uberblock.
fn check_batch(scan: &mut Scan<'_>, reader: &Reader<'_>, chain: &Chain, batch: &Batch) {
    let header = &batch.header;
    let sequence = header.sequence;
    let mut invalid = |why: String| {
        scan.findings.add(Kind::LogInvalid, At::place(header.place, batch.sectors()), || {
            format!("log batch {sequence}: {why}")
        });
    };
    let before = chain.batches.last().map(|batch| &batch.header);
    let (session, mark) = before.map_or((0, 0), |header| (header.session, header.mark));
    if header.session > reader.session || header.session < session {
        let (is, newest) = (header.session, reader.session);
        invalid(format!("is of session {is}, after one of {session}; the newest is {newest}"));
    }
    if header.mark >= sequence || header.mark < mark {
        invalid(format!("has mark {}, the batch before it {mark}", header.mark));
    }
    let fixed = reader.fixed;
    if (fixed.chain, fixed.sequence) == (reader.chain, sequence) && fixed.checksum != batch.sum {
        invalid("is not the batch that the last import found to be the last one".into());
    }
}

/// Early data past the mark may not have reached its place: the chain ends before it.
async fn cut_unwritten(scan: &mut Scan<'_>, chain: &mut Chain, vote: &Vote) {
    let floor = vote.uberblock.floor;
    let unproven = |batch: &&Batch| batch.header.sequence > chain.mark;
    let mut cut = None;
    'batches: for (at, batch) in chain.batches.iter().enumerate().filter(|(_, b)| unproven(b)) {
        for extent in claims::extents(batch, floor) {
            let fetched = claims::fetch(scan, extent, Breadth::Any).await;
            if fetched.good.is_none() {
                cut = Some((at, unreadable(&fetched)));
                break 'batches;
            }
        }
    }
    let Some((at, unreadable)) = cut else { return };
    let Some(batch) = chain.batches.get(at) else { return };
    let sequence = batch.header.sequence;
    let (kind, why) = match unreadable {
        true => (Kind::LogDamaged, "cannot be read"),
        false => (Kind::LogEnds, "had not reached its place"),
    };
    let run = At::place(batch.header.place, batch.sectors());
    scan.findings
        .add(kind, run, || format!("the log ends before batch {sequence}, whose early data {why}"));
    chain.end = format!("early data {why}");
    chain.next_sequence = sequence;
    chain.previous = batch.header.previous;
    chain.batches.truncate(at);
}

fn unreadable(fetched: &Fetched) -> bool {
    fetched.bad.iter().any(|bad| bad.error.is_some())
}

/// Early data up to the mark was acknowledged, so it must be there. Read with `data` or `deep`.
async fn check_proven_data(scan: &mut Scan<'_>, chain: &Chain, vote: &Vote) {
    if !scan.options.data && !scan.options.deep {
        return;
    }
    for batch in chain.batches.iter().filter(|batch| batch.header.sequence <= chain.mark) {
        let sequence = batch.header.sequence;
        for extent in claims::extents(batch, vote.uberblock.floor) {
            let fetched = claims::fetch(scan, extent, Breadth::All).await;
            let sectors = extent.stored_sectors();
            let at = At::place(extent.place, sectors);
            scan.judge(&fetched, Kind::LogDataLost, at, sectors, || {
                format!("early data of log batch {sequence}")
            });
        }
    }
}

/// Sides of a mirror that do not hold a batch (looked at with `deep`).
fn say_uneven(scan: &mut Scan<'_>, chain: &Chain, ring: &Ring) {
    for batch in &chain.batches {
        let sequence = batch.header.sequence;
        let place = ring.place(batch.position);
        for bad in &batch.bad {
            let at = At::place(place, batch.sectors()).on_disk(&bad.side);
            let kind = match bad.unreadable {
                _ if sequence > chain.mark => Kind::LogUneven,
                true => Kind::CopyUnreadable,
                false => Kind::CopyBad,
            };
            scan.findings.add(kind, at, || {
                let (side, why) = (&bad.side, &bad.why);
                format!("log batch {sequence} at {place:?} on {side}: {why}; another side is good")
            });
        }
    }
}

/// Batches do not leave their segment.
const fn room_in_segment(position: Position) -> u64 {
    SEGMENT_SECTORS.saturating_sub(position.offset)
}
