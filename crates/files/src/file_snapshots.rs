//! Snapshots of files by their names ([`crate::subject`]). A pattern of paths says of which files
//! some are taken, and finds those that bear such a path, or whose file has it now. `*` means
//! nothing with a slash in it. A name that a listing shows ([`aquifer_ondisk::shown_name`]) is no
//! pattern, whatever is in it.

mod schedules;

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_dataset::{
    Dataset, DatasetError, FILE_CLONES_MAX, FileSnapshot, FileVersion, Look, LookError,
    NewFileSnapshot, ROOT_DIRECTORY,
};
use aquifer_object::btree::Scan;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::file_snapshot::FileSnapshotRecord;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::shown_name::{meant, shown};
use aquifer_ondisk::tree_node::Directory;
use aquifer_pool::{Pool, PoolError};

use crate::core::Files;
use crate::diff::paths::{inode_of, object_of};
use crate::error::FsError;
use crate::subject::{FileSnapshotNames, PathPattern, SubjectError};
use crate::types::Credentials;

pub use schedules::Scheduled;

/// Files that one command takes snapshots of at most.
pub const FILES_AT_ONCE_MAX: usize = 10_000;
/// Entries of directories that a pattern looks at, at most.
const ENTRIES_MAX: usize = 1_000_000;

/// A name of files or of their snapshots cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileNameError {
    /// The datasets refuse.
    #[error("{0}")]
    Dataset(#[from] DatasetError),
    /// The text names something else, or nothing.
    #[error("{0}")]
    Subject(#[from] SubjectError),
    /// There is no such file.
    #[error("there is no file {0:?}")]
    NotThere(String),
    /// Only regular files have snapshots of their own.
    #[error("{0:?} is no regular file: only these have snapshots of their own")]
    NotRegular(String),
    /// A pattern means no file.
    #[error("no regular file matches {0:?}; nothing was taken")]
    NoMatch(String),
    /// A pattern means too many files.
    #[error(
        "{0:?} means more than {max} files: a command takes at most so many; nothing was taken. \
         Snapshot the dataset instead, or fewer files at a time",
        max = FILES_AT_ONCE_MAX
    )]
    TooMany(String),
    /// A pattern looks at too many names.
    #[error("{0:?} looks at more than {max} names; nothing was taken", max = ENTRIES_MAX)]
    TooLong(String),
    /// A host takes no more snapshots of a dataset.
    #[error(
        "{dataset} has {are} snapshots, with those of its files: with {most} of them, hosts take \
         no more (snapcontrol.snapshots of the configuration)"
    )]
    Enough {
        /// Full name of the dataset.
        dataset: String,
        /// Snapshots that it has.
        are: usize,
        /// With so many, hosts take no more.
        most: u32,
    },
    /// A schedule cannot be followed.
    #[error("filesnapshots of {dataset}: {why}")]
    Schedule {
        /// Full name of the dataset.
        dataset: String,
        /// Why.
        why: String,
    },
    /// There is no such snapshot.
    #[error("there is no snapshot {0:?} of a file")]
    NoSnapshot(String),
    /// The file of a snapshot has this path now; the snapshot is listed under another.
    #[error("there is no snapshot {text:?}: the file had another path then, and it is {listed:?}")]
    Listed {
        /// As it was given.
        text: String,
        /// The full name under which it is listed.
        listed: String,
    },
    /// Another file has the path that the file of a snapshot had.
    #[error(
        "{name:?} is another file now. The snapshot's file is {now:?} by now, and snapshots of it \
         can be named by that path, too; nothing was changed"
    )]
    AnotherFile {
        /// The path, in full.
        name: String,
        /// The other path, in full.
        now: String,
    },
    /// A path cannot be looked up.
    #[error("{path:?}: {error}")]
    Path {
        /// In the dataset.
        path: String,
        /// Why.
        error: FsError,
    },
    /// The dataset's files stay as they are.
    #[error("{0:?}: its dataset has readonly=on; nothing was changed")]
    ReadOnly(String),
    /// Clients would find other content under their locks.
    #[error(
        "{name:?}: clients hold {locks} locks on the file, and would find other content under \
         them: `aquifer locks` shows whose they are. Stop them, or use `aquifer rollback -f`"
    )]
    Locked {
        /// The snapshot, in full.
        name: String,
        /// How many.
        locks: usize,
    },
    /// One snapshot of one file is wanted.
    #[error("{0:?} names several snapshots: give one at a time")]
    ManySnapshots(String),
    /// More clones than one command makes.
    #[error("{0} clones at once: a command makes at most {max}", max = FILE_CLONES_MAX)]
    TooManyClones(usize),
    /// A name that is to be in one dataset is in another.
    #[error("{0:?} is in another dataset: a command acts on the files of one")]
    OtherDataset(String),
    /// There is no such directory.
    #[error("{0:?} is in a directory that does not exist: make it first")]
    NoDirectory(String),
    /// A name is given twice.
    #[error("{0:?} is given twice")]
    Twice(String),
    /// A file cannot be cloned, or not under this name. None was made.
    #[error("{name:?}: {error}; no clone was made")]
    Clone {
        /// As it was given.
        name: String,
        /// Why.
        error: FsError,
    },
    /// A clone got no name.
    #[error("{name:?}: {error}; {made} of {of} clones were made")]
    NotNamed {
        /// As it was given.
        name: String,
        /// Why.
        error: FsError,
        /// How many were made before it.
        made: usize,
        /// How many were wanted.
        of: usize,
    },
    /// A removed file cannot come back, or not under this name.
    #[error("{name:?} was removed, and did not come back: {error}")]
    Return {
        /// As it was given.
        name: String,
        /// Why.
        error: FsError,
    },
    /// A removed file comes back by its path.
    #[error("{0:?} names several snapshots or files: a removed file comes back by its own path")]
    ManyReturn(String),
    /// Something else has its name.
    #[error(
        "{0:?} was removed, and something else has its name by now: rename that, or clone the \
         snapshot to another name"
    )]
    NameTaken(String),
    /// Nothing of a removed file is destroyed when it comes back.
    #[error(
        "{0:?} was removed, and would come back with all its snapshots: leave out -r, which \
         destroys later ones"
    )]
    ReturnKeepsLater(String),
    /// The dataset was destroyed meanwhile, or looking took too long.
    #[error("{0}")]
    Look(#[from] LookError),
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl FileNameError {
    /// A file cannot be cloned, or not under this name.
    pub(crate) fn clone(name: &str, error: FsError) -> FileNameError {
        FileNameError::Clone { name: name.into(), error }
    }
}

/// Snapshots of files of a dataset.
pub type OfFiles = (Arc<Dataset>, Vec<Arc<FileSnapshot>>);

/// Versions of files of a dataset.
pub type OfVersions = (Arc<Dataset>, Vec<(ObjectId, FileVersion)>);

/// A directory, or a file, that a pattern has come to.
struct Found {
    inode: Inode,
    /// As it is shown.
    path: String,
}

impl Files {
    /// Takes snapshots of files, all in one txg. They are on disk when this returns. Returns their
    /// full names.
    ///
    /// # Errors
    /// Files that do not exist or are not regular, patterns that mean nothing
    /// or too much, and as [`aquifer_dataset::Datasets::snapshot_files`].
    pub async fn snapshot_files(
        &self,
        names: &[FileSnapshotNames],
    ) -> Result<Vec<String>, FileNameError> {
        // What was acknowledged before is in the roots on disk.
        self.pool.sync().await?;
        let mut wanted = Vec::new();
        for of in names {
            let (dataset, text) = (&of.dataset, of.text());
            let version = self.datasets.version(&self.datasets.full_name(dataset))?;
            let mut look = version.look(&self.pool)?;
            let mut entries = ENTRIES_MAX;
            let found = self.matching(text, &mut look, &of.path, &mut entries).await?;
            for Found { inode, path } in found {
                let (dataset, name) = (dataset.clone(), of.names.clone());
                let (object, generation) = (inode.object, inode.generation);
                wanted.push(NewFileSnapshot { dataset, object, generation, path, name });
            }
            if wanted.len() > FILES_AT_ONCE_MAX {
                return Err(FileNameError::TooMany(text.into()));
            }
        }
        Ok(self.datasets.snapshot_files(wanted).await?)
    }

    /// The regular files that a path, or a pattern of paths, means. Looks at so many `entries` of
    /// directories at most, and counts them down.
    async fn matching(
        &self,
        text: &str,
        look: &mut Look<'_>,
        path: &PathPattern,
        entries: &mut usize,
    ) -> Result<Vec<Found>, FileNameError> {
        let objects = look.objects();
        let parts = path.parts();
        if path.plain().is_some() {
            let meant = meant(path.text());
            let found = object_of(&self.pool, objects, &meant).await?;
            let inode = found.ok_or_else(|| FileNameError::NotThere(text.into()))?;
            return match inode.kind {
                // A letter may be given in octal that is not shown so.
                FileKind::Regular => Ok(vec![Found { inode, path: shown(&meant) }]),
                _ => Err(FileNameError::NotRegular(text.into())),
            };
        }
        let top = inode_of(&self.pool, objects, ROOT_DIRECTORY).await?;
        let mut found: Vec<Found> =
            top.into_iter().map(|inode| Found { inode, path: String::new() }).collect();
        for (part, at) in parts.iter().zip(1..) {
            let wanted = if at == parts.len() { FileKind::Regular } else { FileKind::Directory };
            let mut below = Vec::new();
            for directory in found {
                let mut scan =
                    Scan::<Directory, Pool>::new(&self.pool, directory.inode.root, 0, None)?;
                while let Some(entry) = scan.next().await? {
                    let left = entries.checked_sub(1);
                    *entries = left.ok_or_else(|| FileNameError::TooLong(text.into()))?;
                    if entries.is_multiple_of(64) {
                        self.pool.turn_of_others().await;
                        look.renew()?;
                    }
                    if entry.kind != wanted || !part.is_of(&entry.name) {
                        continue;
                    }
                    let inode = inode_of(&self.pool, objects, entry.object).await?;
                    let inode = inode.filter(|inode| inode.generation == entry.generation);
                    let slash = if directory.path.is_empty() { "" } else { "/" };
                    let path = format!("{}{slash}{}", directory.path, shown(&entry.name));
                    below.extend(inode.map(|inode| Found { inode, path }));
                    if below.len() > FILES_AT_ONCE_MAX {
                        return Err(FileNameError::TooMany(text.into()));
                    }
                }
            }
            found = below;
        }
        // A directory's order is nobody's.
        found.sort_by(|one, other| one.path.cmp(&other.path));
        match found.is_empty() {
            true => Err(FileNameError::NoMatch(text.into())),
            false => Ok(found),
        }
    }

    /// The snapshots that these names mean: those of files that bear the path, or else of the file
    /// that has it now.
    ///
    /// # Errors
    /// A name means none.
    pub async fn file_snapshots(&self, of: &FileSnapshotNames) -> Result<OfFiles, FileNameError> {
        let FileSnapshotNames { dataset, path, .. } = of;
        let all = dataset.file_snapshots(self.pool.committed_txg());
        let borne: Vec<&Arc<FileSnapshot>> =
            all.iter().filter(|one| path.is_of(&one.record.path)).collect();
        let mut chosen = BTreeMap::new();
        for name in of.each_name() {
            let is_meant = |one: &&&Arc<FileSnapshot>| name.is_of(one.record.name.as_bytes());
            let mut found: Vec<_> =
                borne.iter().filter(is_meant).map(|one| Arc::clone(one)).collect();
            if found.is_empty() && path.plain().is_some() {
                // It had another path then.
                let now = self.now_at(dataset, path.text()).await?;
                let of_it = |one: &&Arc<FileSnapshot>| {
                    now.is_some_and(|(now, _)| now == one.object()) && is_meant(&one)
                };
                found = all.iter().filter(of_it).cloned().collect();
            }
            if found.is_empty() {
                return Err(FileNameError::NoSnapshot(of.text().into()));
            }
            chosen.extend(found.into_iter().map(|one| (one.id, one)));
        }
        Ok((dataset.clone(), chosen.into_values().collect()))
    }

    /// Those that bear a path and names as they are listed: what means one snapshot now means no
    /// other one later, when that is gone.
    ///
    /// # Errors
    /// As [`Files::file_snapshots`]; or they bear another path.
    pub async fn listed_file_snapshots(
        &self,
        of: &FileSnapshotNames,
    ) -> Result<OfFiles, FileNameError> {
        let (dataset, found) = self.file_snapshots(of).await?;
        if let Some(plain) = of.path.plain()
            && let Some(other) = found.iter().find(|one| meant(&one.record.path) != plain)
        {
            let FileSnapshotRecord { path, name, .. } = &other.record;
            let listed = self.datasets.file_snapshot_name(&dataset, path, name);
            return Err(FileNameError::Listed { text: of.text().into(), listed });
        }
        Ok((dataset, found))
    }

    /// Finds the object that has a path of the dataset now, as clients see it, and its generation.
    pub(crate) async fn now_at(
        &self,
        dataset: &Arc<Dataset>,
        path: &str,
    ) -> Result<Option<(ObjectId, u64)>, FileNameError> {
        let failed = |error| FileNameError::Path { path: path.into(), error };
        let parts: Vec<Vec<u8>> = path.split('/').map(meant).collect();
        let Some((name, above)) = parts.split_last() else { return Ok(None) };
        let directory = self.directory_at(dataset, above).await.map_err(failed)?;
        let Some(directory) = directory else { return Ok(None) };
        let found = self.find(&Credentials::root(), &directory, name).await.map_err(failed)?;
        Ok(found.entry.map(|entry| (entry.object, entry.generation)))
    }

    /// The versions of files that these names mean: snapshots of them, or else what the snapshot of
    /// their dataset with that name shows of them, under this path then or now.
    ///
    /// # Errors
    /// A name means none.
    pub async fn file_versions(&self, of: &FileSnapshotNames) -> Result<OfVersions, FileNameError> {
        let own = |of: Arc<FileSnapshot>| (of.object(), FileVersion::Own(of.id));
        match self.file_snapshots(of).await {
            Err(FileNameError::NoSnapshot(_)) => self.whole_versions(of).await,
            found => found.map(|(dataset, all)| (dataset, all.into_iter().map(own).collect())),
        }
    }

    async fn whole_versions(&self, of: &FileSnapshotNames) -> Result<OfVersions, FileNameError> {
        let FileSnapshotNames { dataset, path, names: name, .. } = of;
        let text = of.text();
        let all = dataset.snapshots(self.pool.committed_txg());
        let whole = all.into_iter().find(|one| one.record.name == *name);
        let whole = whole.ok_or_else(|| FileNameError::NoSnapshot(text.into()))?;
        let full = self.datasets.full_name(dataset);
        let version = self.datasets.version(&format!("{full}@{name}"))?;
        let mut look = version.look(&self.pool)?;
        let mut entries = ENTRIES_MAX;
        let found = match self.matching(text, &mut look, path, &mut entries).await {
            Err(FileNameError::NotThere(_)) => {
                // It had another path then.
                let path = path.text();
                let now = self.now_at(dataset, path).await?;
                let (now, generation) = now.ok_or_else(|| FileNameError::NotThere(text.into()))?;
                let then = inode_of(&self.pool, look.objects(), now).await?;
                let then = then.filter(|then| then.generation == generation);
                let inode = then.ok_or_else(|| FileNameError::NotThere(text.into()))?;
                vec![Found { inode, path: path.into() }]
            }
            found => found?,
        };
        let version = |Found { inode, path }: Found| {
            let (snapshot, object) = (whole.txg, inode.object);
            (object, FileVersion::Whole { snapshot, object, path })
        };
        Ok((dataset.clone(), found.into_iter().map(version).collect()))
    }
}
