//! Reading the chain at import: finds its end, and whether it should have continued.

use std::sync::Arc;

use aquifer_arc::{Memory, Share};
use aquifer_blockio::buf::bytes_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Page, World};
use aquifer_ondisk::Guid;
use aquifer_ondisk::codec::{SECTOR_BYTES, checksum64};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::log_batch::{BATCH_SECTORS_MAX, BatchHeader};
use aquifer_ondisk::pool_root::LogRoot;
use aquifer_ondisk::types::{SEGMENT_SECTORS, Txg};
use aquifer_ondisk::uberblock::LogEnd;
use aquifer_vdev::{Leaf, ReadError, Vdev};
use futures_util::future::join_all;

use crate::error::ImportError;
use crate::flow::limits::LOG_BATCHES_IN_FLIGHT_MAX;
use crate::intent_log::ahead::Ahead;
use crate::intent_log::{Position, Ring};
use crate::patience::{Patience, patiently};
use crate::sums::are_pages;

/// A batch that was found.
#[derive(Debug)]
pub(crate) struct FoundBatch {
    pub position: Position,
    pub header: BatchHeader,
    /// Sectors of the header. The payload follows.
    pub header_sectors: usize,
    /// The payload, for the replay. Empty, if it is to be read again: a log may be larger than the
    /// memory cap, and a side with a bad copy is mended by that read.
    pub payload: Vec<Page>,
    /// Checksum of the previous batch.
    pub previous: u128,
}

impl FoundBatch {
    /// Sectors of header and payload.
    pub fn sectors(&self) -> usize {
        self.header_sectors + self.header.payload_pages()
    }

    /// Checksums of the payload pages.
    pub fn sums(&self) -> impl Iterator<Item = u64> + '_ {
        self.header.records.iter().flat_map(|record| record.page_sums.iter().copied())
    }
}

/// The chain from the root's head to its end.
#[derive(Debug)]
pub(crate) struct Chain {
    pub batches: Vec<FoundBatch>,
    /// The place of the next batch.
    pub next: Position,
    pub next_sequence: u64,
    pub previous: u128,
    /// Highest sequence that some header or uberblock proves durable.
    pub mark: u64,
    /// The reason for the chain's end.
    pub end: String,
    /// It may have continued: the administrator ordered the end here.
    pub discarded: bool,
    /// Txgs named in the log.
    pub max_txg: Txg,
    /// Memory of the payloads that the batches keep.
    pub kept: Kept,
}

/// Payloads that are kept from the reading of the chain to its replay.
#[derive(Debug)]
pub(crate) struct Kept {
    share: Share,
    bytes: u64,
    bytes_max: u64,
}

impl Kept {
    /// Of this memory at most an eighth: the caches of a pool that is imported are empty.
    pub fn new(memory: &Arc<Memory>) -> Kept {
        Kept { share: memory.share(), bytes: 0, bytes_max: memory.cap_bytes() / 8 }
    }

    /// Charges for more pages, or says that there is no room.
    fn takes(&mut self, pages: usize) -> bool {
        let bytes = self.bytes + pages as u64 * SECTOR_BYTES as u64;
        let fits = bytes <= self.bytes_max;
        if fits {
            self.share.grow_to(bytes);
            self.bytes = bytes;
        }
        fits
    }
}

/// The rules for batches that belong to the chain.
#[derive(Debug)]
pub(crate) struct ChainRules {
    pub pool_guid: Guid,
    pub chain: u64,
    /// The end that the last import fixed, and that import's session.
    pub fixed: LogEnd,
    pub session: u64,
    /// The mark of the newest uberblock.
    pub mark: u64,
    /// Records of txgs up to this one are in the root.
    pub floor: Txg,
    /// The administrator ordered to end the log where it is damaged.
    pub discard: bool,
}

pub(crate) struct Reader<'a> {
    pub world: &'a dyn World,
    pub vdevs: &'a [Arc<Vdev>],
    pub ring: &'a Ring,
    pub rules: ChainRules,
    /// The memory of which payloads are kept.
    pub memory: &'a Arc<Memory>,
    pub ahead: Ahead,
}

enum Miss {
    /// No batch of this chain verifies at this place.
    Ends(String),
    /// The place cannot be read on one side or more.
    Unreadable(Unread),
}

/// Sectors that could not be read.
#[derive(Default)]
struct Unread {
    /// The last error of the disk.
    reason: String,
    /// The sides.
    sides: Vec<Arc<Leaf>>,
    /// The largest number of sectors that one of them did not return.
    sectors: usize,
    /// A readable side without a batch of this chain there.
    other: Option<Arc<Leaf>>,
}

impl Unread {
    fn note(&mut self, leaf: &Arc<Leaf>, count: usize, error: &impl ToString) {
        self.reason = error.to_string();
        self.sides.push(leaf.clone());
        self.sectors = self.sectors.max(count);
    }
}

impl Reader<'_> {
    /// Reads the chain from the root's head on.
    pub async fn read(&self, root: &LogRoot) -> Result<Chain, ImportError> {
        let head = self.ring.position(root.head_place).ok_or_else(|| {
            ImportError::Replay(format!("log head {:?} is in no log segment", root.head_place))
        })?;
        let mut chain = Chain {
            batches: Vec::new(),
            next: head,
            next_sequence: root.head_sequence,
            previous: root.previous_checksum,
            mark: self.rules.mark,
            end: String::new(),
            discarded: false,
            max_txg: Txg(0),
            kept: Kept::new(self.memory),
        };
        self.ahead.forget();
        // For the batch that is searched: its filled sectors. A filled header may be an old one
        // that claims that more follows.
        let mut filled = (0, 0);
        loop {
            let position = if chain.batches.is_empty() {
                chain.next
            } else {
                self.ring.place_for_next(chain.next)
            };
            let read = self.read_patiently(position, chain.next_sequence, chain.previous).await;
            let miss = match read {
                Ok((mut batch, sum)) => {
                    if !chain.kept.takes(batch.payload.len()) {
                        batch.payload = Vec::new();
                    }
                    chain.mark = chain.mark.max(batch.header.mark);
                    let txgs = batch.header.records.iter().map(|record| record.txg);
                    chain.max_txg = txgs.fold(chain.max_txg, Txg::max);
                    let sectors = batch.sectors() as u64;
                    chain.next = Position { offset: position.offset + sectors, ..position };
                    chain.next_sequence += 1;
                    chain.previous = sum;
                    chain.batches.push(batch);
                    continue;
                }
                Err(miss) => miss,
            };
            let sequence = chain.next_sequence;
            let proof = self.proof_of(position, sequence, &mut chain).await;
            let proven = proof || sequence <= self.fixed_end();
            match miss {
                Miss::Unreadable(unread)
                    if !proven
                        && filled < (sequence, unread.sectors)
                        && self.fill(position, &unread).await =>
                {
                    filled = (sequence, unread.sectors);
                    continue;
                }
                Miss::Unreadable(unread) if !self.rules.discard => {
                    return Err(ImportError::LogUnreadable { sequence, reason: unread.reason });
                }
                Miss::Ends(reason) if proven && !self.rules.discard => {
                    return Err(ImportError::LogDamaged { sequence, reason });
                }
                Miss::Ends(reason) => (chain.end, chain.discarded) = (reason, proven),
                Miss::Unreadable(unread) => (chain.end, chain.discarded) = (unread.reason, true),
            }
            break;
        }
        self.cut_unwritten_early_data(&mut chain).await?;
        chain.mark = chain.mark.min(chain.next_sequence - 1);
        Ok(chain)
    }

    fn fixed_end(&self) -> u64 {
        if self.rules.fixed.chain == self.rules.chain { self.rules.fixed.sequence } else { 0 }
    }

    async fn read_patiently(
        &self,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<(FoundBatch, u128), Miss> {
        let may_pass = |miss: &Miss| matches!(miss, Miss::Unreadable(_));
        let read = || self.read_batch(position, sequence, previous);
        patiently(self.world, Patience::Long, may_pass, read).await
    }

    /// Fills unreadable places with the content of another side, so that a single bad sector does
    /// not block the pool. Acknowledged batches are on every side in use. If the other side has no
    /// batch there and nothing proves that there was one, these sides have none that matters.
    async fn fill(&self, position: Position, unread: &Unread) -> bool {
        let Some(other) = &unread.other else { return false };
        let (sector, count) = (self.ring.place(position).sector(), unread.sectors);
        let Ok(pages) = other.read(sector, count).await else { return false };
        for leaf in &unread.sides {
            tracing::warn!(
                leaf = %leaf.path, sector, count, from = %other.path,
                "cannot be read at the end of the intent log: filled from the other side"
            );
            self.ahead.forget();
            // A side that cannot be written fails, and is not used again.
            if leaf.write(sector, pages.clone()).await.is_ok() {
                let _ = leaf.flush().await;
            }
        }
        true
    }

    async fn read_batch(
        &self,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<(FoundBatch, u128), Miss> {
        let place = self.ring.place(position);
        let ends = |reason: String| Miss::Ends(reason);
        let vdev = self.vdevs.get(usize::from(place.vdev()));
        let vdev = vdev.ok_or_else(|| ends("its vdev does not exist".into()))?;
        // The size is unknown before the header is read: try each side's header.
        let mut unread = Unread::default();
        let mut reason = "no batch there".to_string();
        for leaf in vdev.online() {
            let first = match self.ahead.read(leaf, place.sector(), 1).await {
                Ok(pages) => pages,
                Err(error) => {
                    unread.note(leaf, 1, &error);
                    continue;
                }
            };
            let first = first.first().map_or(&[][..], |page| page.as_slice());
            let fits = |count: usize| position.offset + count as u64 <= SEGMENT_SECTORS;
            let (header_sectors, count) = match BatchHeader::peek_sectors(first) {
                Ok((header, payload)) if fits(header + payload) => (header, header + payload),
                _ => {
                    unread.other = Some(leaf.clone());
                    continue;
                }
            };
            let sectors = match self.ahead.read(leaf, place.sector(), count).await {
                Ok(sectors) => sectors,
                Err(error) => {
                    unread.note(leaf, count, &error);
                    continue;
                }
            };
            match self.judge(&sectors, header_sectors, position, sequence, previous) {
                Ok((header, sum)) => {
                    let is_bad_elsewhere = unread.other.is_some() || !unread.sides.is_empty();
                    let payload = match is_bad_elsewhere {
                        true => Vec::new(),
                        false => sectors.into_iter().skip(header_sectors).collect(),
                    };
                    let batch = FoundBatch { position, header, header_sectors, payload, previous };
                    return Ok((batch, sum));
                }
                Err(why) => {
                    unread.other = Some(leaf.clone());
                    reason = why;
                }
            }
        }
        Err(match unread.sides.is_empty() {
            true => Miss::Ends(reason),
            false => Miss::Unreadable(unread),
        })
    }

    /// Whether these sectors are the batch with which the chain continues.
    fn judge(
        &self,
        sectors: &[Page],
        header_sectors: usize,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<(BatchHeader, u128), String> {
        let (head, payload) = sectors.split_at_checked(header_sectors).ok_or("cut short")?;
        let (header, sum) = BatchHeader::decode(&bytes_of(head)).map_err(|e| e.to_string())?;
        let own = header.pool_guid == self.rules.pool_guid
            && header.place == self.ring.place(position)
            && header.chain == self.rules.chain;
        if !own {
            return Err("a batch of another log".into());
        }
        if header.sequence != sequence {
            return Err(format!("batch {} in the place of {sequence}", header.sequence));
        }
        if header.previous != previous && !left_out(Rule::PreviousChecksum) {
            return Err("a batch that does not follow the one before it".into());
        }
        let stale = sequence > self.fixed_end() && header.session != self.rules.session;
        if stale && !left_out(Rule::FixLogEnd) {
            return Err("a batch that an earlier import cut off, or of another past".into());
        }
        let sums = header.records.iter().flat_map(|record| &record.page_sums);
        if !are_pages(payload, sums) {
            return Err("payload does not match its checksums".into());
        }
        Ok((header, sum))
    }

    /// Whether a header after the gap proves that the missing batch was durable.
    async fn proof_of(&self, gap: Position, sequence: u64, chain: &mut Chain) -> bool {
        if chain.mark >= sequence {
            return true;
        }
        let search = (LOG_BATCHES_IN_FLIGHT_MAX * BATCH_SECTORS_MAX + 512) as u64;
        let mut left = search;
        let mut at = gap;
        while left > 0 {
            let count = left.min(SEGMENT_SECTORS - at.offset);
            let place = self.ring.place(at);
            let Some(vdev) = self.vdevs.get(usize::from(place.vdev())) else {
                break;
            };
            for leaf in vdev.online() {
                let want = usize::try_from(count).unwrap_or(0);
                let pages = self.read_ahead(leaf, place.sector(), want).await;
                for page in &pages {
                    if let Some(header) = self.later_header(page, &pages)
                        && header.sequence > sequence
                        && header.mark >= sequence
                    {
                        chain.mark = chain.mark.max(header.mark);
                        return true;
                    }
                }
            }
            left -= count;
            at = Position { segment: at.segment + 1, offset: 0 };
            at = self.ring.place_for_next(at);
            if self.ring.place(at).is_null() {
                at = Position::START;
            }
        }
        false
    }

    /// Sectors that may hold later batches; none if they cannot be read. Beyond the end of the
    /// chain a disk may have sectors that it never returns.
    async fn read_ahead(&self, leaf: &Arc<Leaf>, sector: u64, count: usize) -> Vec<Page> {
        let read = || leaf.read(sector, count);
        patiently(self.world, Patience::Short, |_| true, read).await.unwrap_or_default()
    }

    fn later_header(&self, first: &Page, pages: &[Page]) -> Option<BatchHeader> {
        let (header_sectors, _) = BatchHeader::peek_sectors(first.as_slice()).ok()?;
        let at = pages.iter().position(|page| page.same(first))?;
        let head = pages.get(at..at + header_sectors)?;
        let (header, _) = BatchHeader::decode(&bytes_of(head)).ok()?;
        let own = header.pool_guid == self.rules.pool_guid
            && header.chain == self.rules.chain
            && header.session == self.rules.session;
        own.then_some(header)
    }

    /// Early data past the mark may not have reached its place: the chain then ends before that
    /// batch.
    async fn cut_unwritten_early_data(&self, chain: &mut Chain) -> Result<(), ImportError> {
        if left_out(Rule::VerifyEarlyTail) {
            return Ok(());
        }
        for at in 0..chain.batches.len() {
            let Some(batch) = chain.batches.get(at) else {
                break;
            };
            if batch.header.sequence <= chain.mark {
                continue;
            }
            let records = batch.header.records.iter().filter(|r| r.txg > self.rules.floor);
            let extents: Vec<&Extent> = records.flat_map(|record| &record.extents).collect();
            let whole = join_all(extents.iter().map(|extent| self.is_whole(extent))).await;
            let sequence = batch.header.sequence;
            for result in whole {
                match result {
                    Ok(()) => {}
                    Err(ReadError::Unreadable { error, .. }) if !self.rules.discard => {
                        let reason = format!("its data: {error}");
                        return Err(ImportError::LogUnreadable { sequence, reason });
                    }
                    Err(error) => {
                        chain.discarded |= matches!(error, ReadError::Unreadable { .. });
                        self.cut(chain, at, error.to_string());
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    fn cut(&self, chain: &mut Chain, at: usize, reason: String) {
        let Some(batch) = chain.batches.get(at) else {
            return;
        };
        chain.next = batch.position;
        chain.next_sequence = batch.header.sequence;
        chain.previous = batch.previous;
        chain.end = reason;
        chain.batches.truncate(at);
    }

    async fn is_whole(&self, extent: &Extent) -> Result<(), ReadError> {
        let may_pass = |error: &ReadError| matches!(error, ReadError::Unreadable { .. });
        patiently(self.world, Patience::Long, may_pass, || self.judge_extent(extent)).await
    }

    async fn judge_extent(&self, extent: &Extent) -> Result<(), ReadError> {
        let count = usize::try_from(extent.stored_sectors()).unwrap_or(0);
        let (vdev, sector) = (extent.place.vdev(), extent.place.sector());
        let corrupt = ReadError::Corrupt { vdev, sector, count };
        let vdev = self.vdevs.get(usize::from(vdev)).ok_or(corrupt)?;
        // Read without repair: levelling comes later, for all copies.
        let (mut unreadable, mut other) = (None, false);
        for leaf in vdev.online() {
            match leaf.read(sector, count).await {
                Ok(pages) if extent_matches(extent, &pages) => return Ok(()),
                Ok(_) => other = true,
                Err(error) => unreadable = Some(error),
            }
        }
        let vdev = vdev.index;
        Err(match unreadable {
            // Acknowledged data is on every side in use.
            Some(error) if !other => ReadError::Unreadable { vdev, sector, count, error },
            _ => ReadError::Corrupt { vdev, sector, count },
        })
    }
}

/// Whether the sectors at an extent's place match its checksums.
pub(crate) fn extent_matches(extent: &Extent, pages: &[Page]) -> bool {
    match &extent.stored {
        Stored::Plain(sums) => are_pages(pages, sums),
        Stored::Compressed { checksum, .. } => checksum64(&bytes_of(pages)) == *checksum,
    }
}
