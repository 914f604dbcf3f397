//! Which files had bad copies that a scrub rewrote.

use aquifer_ondisk::inode::Time;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_pool::{Repaired, Span};

use crate::core::Files;

/// Files that are listed by name. A disk that lost everything may concern millions.
const FILES_MAX: usize = 64;
/// Ranges that are listed of a file.
const RANGES_MAX: usize = 16;

/// A file of which a scrub rewrote bad copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairedFile {
    /// Full name of its dataset, or of the snapshot that shows this content.
    pub dataset: String,
    /// Its path there, or `#` and its number if no path was found.
    pub file: String,
    /// Bytes of bad copies.
    pub bytes: u64,
    /// Ranges of bytes: the first byte, and the one after the last.
    pub ranges: Vec<(u64, u64)>,
    /// More ranges were repaired than are listed.
    pub more: bool,
}

/// Files that a scrub has repaired since it began, or since the pool was imported.
#[derive(Debug, Clone, Default)]
pub struct RepairedFiles {
    /// The first ones by position.
    pub files: Vec<RepairedFile>,
    /// How many files there are beside these.
    pub beside: u64,
    /// When the scrub began.
    begun: Option<Time>,
    /// The file that was noted last.
    last: Option<WalkPosition>,
}

impl RepairedFiles {
    /// Adds to the file that was noted last, if this is the same. A scrub passes file by file.
    fn is_more_of_the_last(&mut self, begun: Time, repaired: &Repaired) -> bool {
        if self.begun != Some(begun) {
            *self = Self { begun: Some(begun), ..Self::default() };
        }
        let same = self.last == Some(file_of(&repaired.span));
        if let Some(file) = self.files.last_mut().filter(|_| same && self.beside == 0) {
            file.add(repaired);
        }
        same
    }

    fn add(&mut self, file: RepairedFile, repaired: &Repaired) {
        self.last = Some(file_of(&repaired.span));
        self.files.push(file);
    }
}

impl RepairedFile {
    fn add(&mut self, repaired: &Repaired) {
        let (from, to) = (repaired.span.from.within, repaired.span.to.within);
        let (from, to) = (from.saturating_mul(4096), to.saturating_mul(4096));
        self.bytes += repaired.bytes;
        let full = self.ranges.len() == RANGES_MAX;
        match self.ranges.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ if full => self.more = true,
            _ => self.ranges.push((from, to)),
        }
    }
}

/// The begin of the file in which a span lies.
fn file_of(span: &Span) -> WalkPosition {
    WalkPosition { within: 0, ..span.from }
}

impl Files {
    /// Returns the files that the newest scrub has repaired, as far as this import knows.
    pub fn repaired_files(&self) -> RepairedFiles {
        let newest = self.datasets.scrubbed().map(|record| record.begun);
        let scrubbing = self.scrubbing.lock();
        let repaired = Some(&scrubbing.repaired).filter(|repaired| repaired.begun == newest);
        repaired.cloned().unwrap_or_default()
    }

    pub(super) async fn note_repaired(&self, begun: Time, repaired: &Repaired) {
        {
            let known = &mut self.scrubbing.lock().repaired;
            if known.is_more_of_the_last(begun, repaired) {
                return;
            }
            if known.files.len() == FILES_MAX {
                known.last = Some(file_of(&repaired.span));
                known.beside += 1;
                return;
            }
        }
        let Some((head, object)) = self.object_of(&repaired.span) else { return };
        let name = self.datasets.full_name(&head);
        // A snapshot shows the object under the same number, and mostly the same name.
        let file = self.likely_path(&name, object).await;
        let dataset = self.snapshot_of(&repaired.span).unwrap_or(name);
        let mut file = RepairedFile { dataset, file, bytes: 0, ranges: Vec::new(), more: false };
        file.add(repaired);
        tracing::warn!(
            class = "file.repaired", pool = self.pool.name(), dataset = %file.dataset,
            file = %file.file,
            bytes = ?file.ranges,
            "scrub rewrites bad copies of a file; `aquifer pool status -v` has all of them"
        );
        self.scrubbing.lock().repaired.add(file, repaired);
    }
}
