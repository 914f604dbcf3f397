//! Pages of a file, as the records that carry them.

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::Object;
use aquifer_object::extent_tree::ChangedPages;
use aquifer_stream::{DATA_PAGES_MAX, Encoder, HOLE_PAGES_MAX, Record};
use futures_util::stream::{FuturesOrdered, TryStreamExt};

use super::{Making, PAGE_BYTES, SendError};
use crate::types::zero_page;

/// Pages that are read at once: as many as make a page of the stream.
const READ_PAGES_MAX: u64 = PAGE_BYTES as u64 / 4096;
/// Runs that they make up.
const READS_MAX: usize = 128;

impl Making<'_> {
    /// Puts a record of each run. Their content is read at once: the runs of a disk image are small
    /// and lie anywhere.
    pub(super) async fn put_runs(
        &mut self,
        file: &Object,
        runs: Vec<ChangedPages>,
    ) -> Result<(), SendError> {
        self.step().await?;
        let pool = &*self.files.pool;
        let is_read = |run: &&ChangedPages| run.is_data && !self.size_only;
        let reads = runs.iter().filter(is_read);
        // The first of them is encoded while the others are read.
        let reads = reads.map(|run| file.read_pages(pool, run.from_page, run.to_page));
        let mut reads: FuturesOrdered<_> = reads.collect();
        for run in &runs {
            let (object, page, pages) = (file.id, run.from_page, run.to_page - run.from_page);
            if !run.is_data {
                self.encoder.put(&Record::Hole { object, page, pages });
            } else if self.size_only {
                self.unread_bytes += Encoder::data_bytes(pages);
            } else {
                let content = joined(reads.try_next().await?.unwrap_or_default());
                self.encoder.put(&Record::Data { object, page, content });
            }
        }
        Ok(())
    }
}

/// Pages as runs of one kind, whatever extents they are in, none larger than a record.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Those that are whole.
    whole: Vec<ChangedPages>,
    pages: u64,
    /// The next pages may belong to it.
    pub open: Option<ChangedPages>,
}

impl Runs {
    pub fn add(&mut self, pages: ChangedPages, end_page: u64) {
        let pages = ChangedPages { to_page: pages.to_page.min(end_page), ..pages };
        // A birth says nothing of a hole.
        let births_only = left_out(Rule::IncrementsComparePointers) && !pages.is_data;
        if pages.from_page >= pages.to_page || births_only {
            return;
        }
        match &mut self.open {
            Some(run) if run.to_page == pages.from_page && run.is_data == pages.is_data => {
                run.to_page = pages.to_page;
            }
            _ => {
                self.close();
                self.open = Some(pages);
            }
        }
        let most = if pages.is_data { DATA_PAGES_MAX } else { HOLE_PAGES_MAX };
        while let Some(run) = self.open.filter(|run| run.to_page - run.from_page >= most) {
            let cut = run.from_page + most;
            self.put(ChangedPages { to_page: cut, ..run });
            let rest = ChangedPages { from_page: cut, ..run };
            self.open = Some(rest).filter(|rest| rest.from_page < rest.to_page);
        }
    }

    /// No more pages belong to the last one.
    pub fn close(&mut self) {
        if let Some(run) = self.open.take() {
            self.put(run);
        }
    }

    fn put(&mut self, run: ChangedPages) {
        self.pages += if run.is_data { run.to_page - run.from_page } else { 0 };
        self.whole.push(run);
    }

    /// Those that are whole.
    pub fn take(&mut self) -> Vec<ChangedPages> {
        self.pages = 0;
        std::mem::take(&mut self.whole)
    }

    /// Whether it is time to read them.
    pub fn are_many(&self) -> bool {
        self.pages >= READ_PAGES_MAX || self.whole.len() >= READS_MAX
    }
}

/// The content of pages, of which those that are none are zeros.
fn joined(pages: Vec<Option<Page>>) -> Vec<u8> {
    let mut content = Vec::with_capacity(pages.len() * 4096);
    for page in pages {
        content.extend_from_slice(page.unwrap_or_else(zero_page).as_slice());
    }
    content
}
