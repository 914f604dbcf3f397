//! Pages of a file, as the records that carry them.

use std::collections::VecDeque;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::Object;
use aquifer_object::extent_tree::ChangedPages;
use aquifer_pool::{Pool, PoolError, Reader};
use aquifer_stream::{DATA_PAGES_MAX, Encoder, HOLE_PAGES_MAX, Record};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, TryStreamExt};

use super::{Making, SendError};
use crate::types::zero_page;

/// Pages that are read while those before them are encoded.
const READ_PAGES_MAX: u64 = 1024;
/// Runs and pages that are handed over at once.
const RUNS_MAX: usize = 128;
const RUN_PAGES_MAX: u64 = 256;

/// Runs of a file whose content is being read. Many are read at once: the runs of a disk image are
/// small and lie anywhere.
pub(super) struct Reads<'a> {
    pool: &'a Pool,
    file: &'a Object,
    runs: VecDeque<ChangedPages>,
    /// One for each run of data.
    content: FuturesOrdered<BoxFuture<'a, Result<Vec<Option<Page>>, PoolError>>>,
}

impl<'a> Reads<'a> {
    pub fn new(pool: &'a Pool, file: &'a Object) -> Reads<'a> {
        Reads { pool, file, runs: VecDeque::new(), content: FuturesOrdered::new() }
    }
}

impl Making<'_> {
    /// Takes over runs. Returns when so few of them are read that more can follow.
    pub(super) async fn put_runs(
        &mut self,
        reads: &mut Reads<'_>,
        runs: Vec<ChangedPages>,
    ) -> Result<(), SendError> {
        self.step().await?;
        for run in runs {
            if run.is_data && !self.size_only {
                let run = (run.from_page, run.to_page);
                let content = reads.file.read_pages_for(Reader::Behind, reads.pool, run);
                reads.content.push_back(Box::pin(content));
                self.pages_to_come += run.1 - run.0;
            }
            reads.runs.push_back(run);
        }
        self.put_read(reads, READ_PAGES_MAX).await
    }

    /// Puts a record of each run that was taken over.
    pub(super) async fn put_rest(&mut self, reads: &mut Reads<'_>) -> Result<(), SendError> {
        self.put_read(reads, 0).await
    }

    /// Puts records until no more pages than these are to come.
    async fn put_read(&mut self, reads: &mut Reads<'_>, left: u64) -> Result<(), SendError> {
        let object = reads.file.id;
        while let Some(run) = reads.runs.front().copied() {
            let is_read = run.is_data && !self.size_only;
            let are_few = self.pages_to_come <= left && reads.content.len() <= RUNS_MAX;
            if is_read && left > 0 && are_few {
                break;
            }
            reads.runs.pop_front();
            let (page, pages) = (run.from_page, run.to_page - run.from_page);
            if !run.is_data {
                self.encoder.put(&Record::Hole { object, page, pages });
            } else if self.size_only {
                self.unread_bytes += Encoder::data_bytes(pages);
            } else {
                let content = reads.content.try_next().await?.unwrap_or_default();
                self.pages_to_come -= pages;
                let zeros = zero_page();
                let content = content.iter().map(|page| &**page.as_ref().unwrap_or(&zeros));
                self.encoder.put_data((object, page), content);
                self.step().await?;
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

    /// Whether it is time to hand them over.
    pub fn are_many(&self) -> bool {
        self.pages >= RUN_PAGES_MAX || self.whole.len() >= RUNS_MAX
    }
}
