//! The ranges at which two versions of a file differ.
//!
//! A program that has a copy of the old version makes the new one of it: it sets the copy's size to
//! the new one, writes what the file has in each range of data, and makes each range without data a
//! hole. Nothing else has changed. What lies beyond the new size goes with the size, and what a
//! larger size adds is zeros, as far as no range says otherwise.

use aquifer_dataset::{Look, Version};
use aquifer_object::extent_tree::{ChangedPages, compare_extents};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::shown_name::meant;

use super::paths::object_of;
use super::{Cursor, DiffError, Looks, mark_of};
use crate::core::Files;
use crate::file_snapshots::FileNameError;
use crate::one_file::OneFile;
use crate::subject::{FileSnapshotNames, ends};

/// Ranges of a page at most.
pub const RANGES_MAX: usize = 10_000;
/// Differences of the trees that are looked at for a page at most. Entries that were only cut or
/// joined give no ranges.
const DIFFERENCES_MAX: usize = 200_000;

/// Bytes of a file that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedRange {
    /// The first of them.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Whether they have content now; else they are a hole.
    pub is_data: bool,
}

/// A page of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangesPage {
    /// Bytes of the old version.
    pub old_bytes: u64,
    /// Bytes of the new one.
    pub new_bytes: u64,
    /// Whether both are one file, under whatever names.
    pub is_same_file: bool,
    /// Ranges, in order. The last one of a page and the first one of the next may be neighbours.
    pub ranges: Vec<ChangedRange>,
    /// Where the next page begins.
    pub next: Option<Cursor>,
}

/// A file of a version, by its path.
struct FileOf {
    version: Version,
    path: String,
    /// It is of a snapshot of the file, or of its dataset.
    one: Option<OneFile>,
    /// Why there is no such snapshot, if the text would be the name of one.
    missed: Option<FileNameError>,
}

impl Files {
    /// At most `limit` ranges at which two files differ. Each is given as `DATASET@SNAPSHOT:PATH`,
    /// or as `DATASET:PATH@SNAPSHOT`, which is a snapshot of the file before one of the dataset; or
    /// as `DATASET:PATH`, as it is now.
    ///
    /// # Errors
    /// Names that do not exist, or are no regular files; versions without a common past; a cursor
    /// of another answer; a snapshot that was destroyed meanwhile.
    pub async fn changed_ranges(
        &self,
        (old, new): (&str, &str),
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<RangesPage, DiffError> {
        let _turn = self.comparing.lock().await;
        let (old, new) = (self.file_of(old).await?, self.file_of(new).await?);
        self.check_related(&old.version, &new.version)?;
        if cursor.is_none() && (old.version.is_head() || new.version.is_head()) {
            self.bring_to_disk().await?;
        }
        let old_look = old.version.look(&self.pool)?;
        let new_look = new.version.look(&self.pool)?;
        let was = self.regular(&old, &old_look).await?;
        let is = self.regular(&new, &new_look).await?;
        let mark = mark_of(&[of_file(&old, &was), of_file(&new, &is)].concat());
        let from = Cursor::next_of(cursor, mark).ok_or_else(|| others(&old, &new))?;
        let mut looks = Looks::new(&self.pool, vec![old_look, new_look]);
        let end_page = is.size.div_ceil(4096);
        let limit = limit.clamp(1, RANGES_MAX);
        let mut compare = compare_extents(&*self.pool, was.root, is.root, from)?;
        let (mut changed, mut next) = (Vec::new(), None);
        for step in 0.. {
            looks.step().await?;
            if !compare.next(&mut changed).await? || compare.known_to() >= end_page {
                break;
            }
            if step >= DIFFERENCES_MAX || changed.len() > limit {
                next = Some(compare.known_to());
                break;
            }
        }
        if changed.len() > limit {
            // The last one that fits may go on.
            next = changed.get(limit).map(|range| range.from_page);
            changed.truncate(limit);
        }
        let next = next.filter(|page| *page < end_page);
        Ok(RangesPage {
            old_bytes: was.size,
            new_bytes: is.size,
            is_same_file: (was.object, was.generation) == (is.object, is.generation),
            ranges: changed.into_iter().filter_map(|pages| bytes_of(pages, is.size)).collect(),
            next: next.map(|next| Cursor { versions: mark, next }),
        })
    }

    pub(super) fn check_related(&self, old: &Version, new: &Version) -> Result<(), DiffError> {
        match self.datasets.are_related(old, new) {
            true => Ok(()),
            false => Err(DiffError::Strangers(old.name().into(), new.name().into())),
        }
    }

    /// The file that a text names. A name of a version may have colons, as a path may that was not
    /// copied from a listing: the longest part that is the name of one counts. A file whose name
    /// ends as that of a snapshot is found if there is no such snapshot.
    async fn file_of(&self, text: &str) -> Result<FileOf, DiffError> {
        let mut missed = None;
        if let Ok(of) = FileSnapshotNames::parse(&self.datasets, text) {
            match self.one_file(&of).await {
                Err(error @ (FileNameError::NoSnapshot(_) | FileNameError::NotThere(_))) => {
                    missed = Some(error);
                }
                one => {
                    let one = one?;
                    let (version, path) = (one.version.clone(), one.path.clone());
                    return Ok(FileOf { version, path, one: Some(one), missed: None });
                }
            }
        }
        for (name, path) in ends(text) {
            if let Ok(version) = self.datasets.version(name) {
                let path = path.trim_start_matches('/').into();
                return Ok(FileOf { version, path, one: None, missed });
            }
        }
        Err(DiffError::NoFile(text.into()))
    }

    async fn regular(&self, file: &FileOf, look: &Look<'_>) -> Result<Inode, DiffError> {
        let (path, version) = (file.path.clone(), file.version.name().to_string());
        let found = match &file.one {
            Some(one) => one.inode(self, look).await?,
            None => object_of(&self.pool, look.objects(), &meant(&file.path)).await?,
        };
        match found {
            None => match file.missed.clone() {
                Some(error) => Err(error.into()),
                None => Err(DiffError::NotThere { path, version }),
            },
            Some(inode) if inode.kind != FileKind::Regular => {
                Err(DiffError::NotRegular { path, version, kind: word(inode.kind) })
            }
            Some(inode) if inode.damaged => Err(DiffError::Damaged { path, version }),
            Some(inode) => Ok(inode),
        }
    }
}

/// Returns the identity of a file's content in a version: with another root the file has other
/// content.
fn of_file(file: &FileOf, inode: &Inode) -> [u64; 6] {
    let root = inode.root.map_or((0, 0), |root| (root.places[0].0, root.written.0));
    let guid = file.version.guid().0;
    [guid, inode.object.0, inode.generation, inode.size, root.0, root.1]
}

fn others(old: &FileOf, new: &FileOf) -> DiffError {
    DiffError::Others(old.version.name().into(), new.version.name().into())
}

fn bytes_of(pages: ChangedPages, size: u64) -> Option<ChangedRange> {
    let offset = pages.from_page.saturating_mul(4096);
    let end = pages.to_page.saturating_mul(4096).min(size);
    let length = end.checked_sub(offset).filter(|length| *length > 0)?;
    Some(ChangedRange { offset, length, is_data: pages.is_data })
}

fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "a file",
        FileKind::Directory => "a directory",
        FileKind::Symlink => "a symbolic link",
        FileKind::Block | FileKind::Character => "a device node",
        FileKind::Fifo => "a named pipe",
        FileKind::Socket => "a socket",
    }
}
