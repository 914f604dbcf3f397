//! `.aquifer/FILE/control`: a line that is written to it acts on the file ([`line`]). Reading it
//! shows how to use it, and what came of the last lines.
//!
//! Invariants:
//! - A line that has been answered is on disk, with all that it asked for, and its call is known
//!   from then on: when it is sent again, it does nothing. So a WRITE is never UNSTABLE here, and
//!   COMMIT has nothing to do.
//! - Answers have no attributes: what a client wrote is not what it reads, and nothing else tells
//!   it that its pages are out of date.

mod line;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use aquifer_blockio::{PageMut, SECTOR_BYTES};
use aquifer_dataset::history::HistoryChange;
use aquifer_dataset::{Called, Dataset, FileVersion, Gives, directory_inode};
use aquifer_object::Object;
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::shown_name::{line_shown, shown};
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::BoxFuture;

use super::{Act, change, host_of, quoted};
use crate::core::{Files, Target};
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::made::{Made, Promised};
use crate::types::{Around, Credentials, FileHandle, ReadData};

pub use line::BadLine;
use line::{Order, parse};

/// Its name in the directory of a file's versions. A snapshot of that name is not shown there.
pub(crate) const CONTROL: &[u8] = b"control";

const USAGE: &str = "\
# Write one line: \"rollback NAME\", or \"clone NAME PATH\" with the path of the new file from the
# root directory of this file system on. What came of the last lines:
";

/// Files of which outcomes are kept, outcomes of each, and bytes of one.
const FILES_MAX: usize = 256;
const OUTCOMES_MAX: usize = 4;
const OUTCOME_BYTES_MAX: usize = 600;
/// Bytes of a bad line that are shown.
const LINE_SHOWN_BYTES: usize = 100;

/// Whether a handle is that of such a file.
pub(crate) fn is_control(file: FileHandle) -> bool {
    matches!(Unstored::of(file.object), Some(Unstored::Control(_)))
}

/// Outcomes of the lines that were written, by the file. They are in memory only; the history of
/// the pool has them too.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<(Guid, ObjectId), Outcome>);

#[derive(Debug, Default, Clone)]
struct Outcome {
    lines: VecDeque<String>,
    /// Of the last one.
    at: Time,
    count: u64,
}

impl Outcomes {
    fn note(&mut self, file: (Guid, ObjectId), line: String, now: Time) {
        if self.0.len() >= FILES_MAX && !self.0.contains_key(&file) {
            let oldest = self.0.iter().min_by_key(|(_, outcome)| outcome.at);
            if let Some(oldest) = oldest.map(|(file, _)| *file) {
                self.0.remove(&oldest);
            }
        }
        let outcome = self.0.entry(file).or_default();
        if outcome.lines.len() >= OUTCOMES_MAX {
            outcome.lines.pop_front();
        }
        outcome.lines.push_back(line);
        // Each shows as a change, however soon it comes.
        outcome.at = now.max(Time::from_ns(outcome.at.since_1970_ns().saturating_add(1)));
        outcome.count += 1;
    }
}

/// A line about a file.
#[derive(Debug)]
struct OnControl {
    file: ObjectId,
    generation: u64,
    /// Of the file, as its snapshots bear it.
    path: String,
    order: Order,
    /// Locks that clients hold on the file.
    locks: usize,
}

impl OnControl {
    fn name(&self) -> &str {
        match &self.order {
            Order::Rollback(name) | Order::Clone(name, _) => name,
        }
    }

    fn full(&self, dataset: &str) -> String {
        format!("{dataset}:{}@{}", self.path, self.name())
    }

    /// The version that the line names.
    fn version(&self, files: &Files, called: &Called) -> Result<FileVersion, FileNameError> {
        let dataset = called.dataset();
        let own = files.own(dataset, self.file, self.generation);
        if let Some(known) = own.into_iter().find(|of| of.record.name == self.name()) {
            return Ok(FileVersion::Own(known.id));
        }
        let whole = dataset.snapshots(files.pool.committed_txg());
        match whole.iter().find(|of| of.record.name == self.name()) {
            Some(of) => {
                let (object, path) = (self.file, self.path.clone());
                Ok(FileVersion::Whole { snapshot: of.txg, object, path })
            }
            None => {
                let full = self.full(&files.datasets.full_name(dataset));
                Err(FileNameError::NoSnapshot(full))
            }
        }
    }

    async fn act(&self, files: &Files, called: &Called) -> Result<(), FileNameError> {
        let dataset = called.dataset();
        let version = self.version(files, called)?;
        let full = || self.full(&files.datasets.full_name(dataset));
        if dataset.properties().readonly {
            return Err(FileNameError::ReadOnly(full()));
        }
        match &self.order {
            Order::Rollback(_) if self.locks > 0 => {
                Err(FileNameError::Locked { name: full(), locks: self.locks })
            }
            Order::Rollback(_) => Ok(files.datasets.rollback_file_for(called, version).await?),
            Order::Clone(_, path) => files.clone_file_for(called, version, path).await,
        }
    }
}

impl Act for OnControl {
    type Done = ();

    fn words(&self, dataset: &str) -> String {
        let snapshot = quoted(self.full(dataset));
        match &self.order {
            Order::Rollback(_) => format!("rollback {snapshot}"),
            Order::Clone(_, to) => {
                format!("clone {snapshot} {}", quoted(format!("{dataset}:{}", shown_path(to))))
            }
        }
    }

    fn carry_out<'a>(
        &'a self,
        files: &'a Files,
        called: &'a Called,
    ) -> BoxFuture<'a, Result<(), FileNameError>> {
        Box::pin(self.act(files, called))
    }

    fn changes(&self, dataset: &str, (): &()) -> Vec<HistoryChange> {
        match &self.order {
            Order::Rollback(_) => Vec::new(),
            Order::Clone(_, to) => {
                vec![change(format!("{dataset}:{}", shown_path(to)), "", "a clone")]
            }
        }
    }

    fn takes(&self) -> bool {
        false
    }

    fn tell(&self, pool: &str, dataset: &str, host: IpAddr) {
        let (snapshot, who) = (self.full(dataset), format!("host {host}"));
        match &self.order {
            Order::Rollback(_) => tracing::warn!(
                class = "file.rolled_back",
                pool,
                snapshot,
                files = 1,
                who,
                "files rolled back to a snapshot"
            ),
            Order::Clone(_, to) => {
                let file = format!("{dataset}:{}", shown_path(to));
                tracing::info!(
                    class = "file.cloned",
                    pool,
                    snapshot,
                    file,
                    clones = 1,
                    who,
                    "file cloned"
                );
            }
        }
    }

    fn ended(&self, files: &Files, called: &Called, host: IpAddr, why: Option<&FileNameError>) {
        let words = match &self.order {
            Order::Rollback(name) => format!("rollback {name}"),
            Order::Clone(name, to) => format!("clone {name} {}", shown_path(to)),
        };
        let why = why.map(ToString::to_string);
        files.note_outcome(called.dataset(), self.file, (host, &words, why.as_deref()));
    }
}

impl Files {
    /// Notes for readers of `control` what came of a line.
    fn note_outcome(
        &self,
        dataset: &Dataset,
        file: ObjectId,
        (host, words, why): (IpAddr, &str, Option<&str>),
    ) {
        let came = why.map_or_else(|| "done".into(), |why| format!("refused: {why}"));
        // One line, which no client sends back as one that asks for something.
        let mut line = format!("# {host}: {}", line_shown(format!("{words}: {came}").as_bytes()));
        let end = (0..=OUTCOME_BYTES_MAX).rev().find(|end| line.is_char_boundary(*end));
        line.truncate(end.unwrap_or(0));
        line.push('\n');
        self.outcomes.lock().note((dataset.fs_guid, file), line, self.now());
    }

    /// `control` of a file.
    pub(crate) fn control_of(&self, versions: &Target, file: ObjectId) -> Result<Target, FsError> {
        let dataset = &versions.dataset;
        let id = Unstored::Control(file).id().ok_or(FsError::NotFound)?;
        let above = versions.inode();
        let outcome = self.outcomes.lock().of(dataset, file);
        let inode = Inode {
            kind: FileKind::Regular,
            mode: if dataset.properties().has_snapcontrol { 0o644 } else { 0o444 },
            nlink: 1,
            generation: above.generation,
            size: outcome.text().len() as u64,
            crtime: above.crtime,
            change: above.change.saturating_add(outcome.count),
            parent: above.object,
            ..directory_inode(id, above.mtime.max(outcome.at), 0)
        };
        Ok(Target::new(dataset, Object::new(dataset.id, inode)))
    }

    /// READ of `control`.
    pub(crate) fn read_control(&self, target: &Target, (offset, count): (u64, u32)) -> ReadData {
        let attributes = target.attributes();
        let outcome = match Unstored::of(target.object.id) {
            Some(Unstored::Control(file)) => self.outcomes.lock().of(&target.dataset, file),
            _ => Outcome::default(),
        };
        let text = outcome.text().into_bytes();
        let size = text.len() as u64;
        let end = offset.saturating_add(count.into()).min(size);
        if offset >= end {
            return ReadData { pages: Vec::new(), skip: 0, count: 0, eof: end >= size, attributes };
        }
        let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let pages = text.chunks(SECTOR_BYTES).skip(at(offset / SECTOR_BYTES as u64));
        ReadData {
            pages: pages.map(|page| Some(PageMut::with_prefix(page).freeze())).collect(),
            skip: at(offset % SECTOR_BYTES as u64),
            count: at(end - offset),
            eof: end >= size,
            attributes,
        }
    }

    /// WRITE to `control`: does what the line asks for. `locks` is how many clients hold on the
    /// file.
    pub async fn write_control(
        &self,
        cred: &Credentials,
        control: FileHandle,
        data: &[u8],
        locks: usize,
    ) -> Made<()> {
        let result = self.order(cred, control, data, locks).await;
        Made { result, around: Around::default(), promised: Promised::default() }
    }

    async fn order(
        &self,
        cred: &Credentials,
        control: FileHandle,
        data: &[u8],
        locks: usize,
    ) -> Result<(), FsError> {
        let target = self.target(control).await?;
        let (dataset, generation) = (&target.dataset, target.inode().generation);
        let Some(Unstored::Control(file)) = Unstored::of(target.object.id) else {
            return Err(FsError::Invalid);
        };
        let host = host_of(cred)?;
        let order = match parse(data) {
            Ok(order) => order,
            Err(why) => return Err(self.refuse_line(dataset, file, (host, data, why))),
        };
        let own = self.own(dataset, file, generation);
        let path = own.last().map_or_else(|| format!("#{file}"), |of| of.record.path.clone());
        let act = OnControl { file, generation, path, order, locks };
        self.control(cred, (dataset, Gives::Nothing), (host, act)).await
    }

    fn refuse_line(
        &self,
        dataset: &Dataset,
        file: ObjectId,
        (host, data, why): (IpAddr, &[u8], BadLine),
    ) -> FsError {
        let begin = line_shown(data.get(..data.len().min(LINE_SHOWN_BYTES)).unwrap_or_default());
        let why_text = why.to_string();
        tracing::warn!(
            class = "snapshot.refused",
            pool = self.pool.name(),
            dataset = self.datasets.full_name(dataset),
            file = %file,
            who = format!("host {host}"),
            line = begin,
            error = why_text,
            "a line to control is refused"
        );
        self.note_outcome(dataset, file, (host, &begin, Some(&why_text)));
        match why {
            BadLine::TooLong => FsError::TooLarge,
            _ => FsError::Invalid,
        }
    }
}

impl Outcomes {
    fn of(&self, dataset: &Dataset, file: ObjectId) -> Outcome {
        self.0.get(&(dataset.fs_guid, file)).cloned().unwrap_or_default()
    }
}

impl Outcome {
    /// Returns the text that a reader sees.
    fn text(&self) -> String {
        let lines = self.lines.iter().map(String::as_str);
        std::iter::once(USAGE).chain(lines).collect()
    }
}

fn shown_path(parts: &[Vec<u8>]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| shown(part)).collect();
    parts.join("/")
}
