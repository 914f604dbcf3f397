//! Damaged objects and their names.

use std::collections::{HashMap, HashSet, VecDeque};

use aquifer_dataset::{DamageRecord, Dataset, DatasetError, ROOT_DIRECTORY};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::FileKind;
use aquifer_ondisk::shown_name::shown;
use aquifer_pool::{BoxFuture, PoolError};
use futures_util::future::join_all;

use crate::core::{Files, Target};
use crate::error::FsError;

/// Most directory entries that a search for a path reads, unless the caller needs a faster answer.
pub const SEARCH_ENTRIES_MAX: usize = 1_000_000;
/// Most directory entries that a search for the path in an event reads.
const EVENT_ENTRIES_MAX: usize = 10_000;
/// Entries read at a time.
const SEARCH_ENTRIES: usize = 1_000;

/// Ranges of a file in an event.
const RANGES_TOLD_MAX: usize = 16;

/// The subject of a line in the log: a class, and an object of a dataset or of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct About {
    pub class: &'static str,
    pub key: (u64, u64),
    pub object: u64,
}

/// A damaged object, in a form for people.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Full name of its dataset.
    pub dataset: String,
    /// Its path in the dataset, if the search found one: `/a/b`.
    pub path: Option<String>,
    /// The lost or unreadable part.
    pub damage: DamageRecord,
}

impl Files {
    /// All damage. Searches directories for the paths, so do not call it for every scrape of a
    /// metric.
    pub async fn damages(&self) -> Vec<Damaged> {
        let mut named = Vec::new();
        for damage in self.datasets.damages() {
            // A destroyed dataset that the pool cannot free any more has no name.
            let dataset = self.datasets.by_id(damage.dataset);
            let Some(dataset) = dataset.filter(|dataset| !dataset.is_destroyed()) else {
                named.push(Damaged { dataset: String::new(), path: None, damage });
                continue;
            };
            let name = self.datasets.full_name(&dataset);
            let path = self.path_of(&name, damage.object).await;
            named.push(Damaged { dataset: name, path, damage });
        }
        named
    }

    /// Notes that these pages could not be read. Rare, and large: boxed, so that it is no part of
    /// every read's future.
    pub(crate) fn unreadable_pages<'a>(
        &'a self,
        target: &'a Target,
        (from, to): (u64, u64),
        error: PoolError,
    ) -> BoxFuture<'a, FsError> {
        Box::pin(async move {
            if error.cannot_be_read() {
                match target.shown {
                    Some(_) => self.tell_unreadable(&target.dataset, target.object.id, &error),
                    None => self.note_pages(target, from, to, &error).await,
                }
            }
            error.into()
        })
    }

    /// Notes that an object's attributes, or a directory's entries, could not be read.
    pub(crate) fn unreadable_object<'a>(
        &'a self,
        dataset: &'a Dataset,
        id: ObjectId,
        error: PoolError,
    ) -> BoxFuture<'a, FsError> {
        Box::pin(async move {
            if error.cannot_be_read() && !self.datasets.knows_unreadable(dataset, id, &[]) {
                self.note_unreadable((dataset, id), Vec::new(), &error).await;
            }
            error.into()
        })
    }

    /// Finds which of these pages cannot be read.
    async fn note_pages(&self, target: &Target, from: u64, to: u64, error: &PoolError) {
        let Target { dataset, object, .. } = target;
        if self.datasets.knows_unreadable(dataset, object.id, &[(from, to)]) {
            return;
        }
        let tries = (from..to).map(|page| async move {
            let read = object.read_pages(&self.pool, page, page + 1).await;
            read.is_err_and(|error| error.cannot_be_read()).then_some((page, page + 1))
        });
        let ranges: Vec<_> = join_all(tries).await.into_iter().flatten().collect();
        if !ranges.is_empty() && !self.datasets.knows_unreadable(dataset, object.id, &ranges) {
            self.note_unreadable((dataset, object.id), ranges, error).await;
        }
    }

    pub(crate) async fn note_unreadable(
        &self,
        (dataset, id): (&Dataset, ObjectId),
        pages: Vec<(u64, u64)>,
        error: &PoolError,
    ) {
        if dataset.snapshot().is_some() {
            return self.tell_unreadable(dataset, id, error);
        }
        if !self.datasets.note_unreadable(dataset, id, pages.clone(), error) {
            return;
        }
        let about = About { class: "file.unreadable", key: (dataset.id.0, 0), object: id.0 };
        let Some(left_out) = self.tells(about) else { return };
        let name = self.datasets.full_name(dataset);
        let path = self.likely_path(&name, id).await;
        let some = pages.iter().take(RANGES_TOLD_MAX);
        let bytes: Vec<_> = some.map(|(from, to)| (from * 4096, to * 4096)).collect();
        tracing::error!(
            class = "file.unreadable", pool = self.pool.name(), dataset = %name, file = %path,
            ?bytes, more = pages.len() > bytes.len(), %error, left_out,
            "content cannot be read: clients get I/O errors there"
        );
    }

    /// Whether the log is to be told of something that each page may have: once a minute for each
    /// file. If so, returns how often it was left out since.
    pub(crate) fn tells(&self, about: About) -> Option<u64> {
        self.told.lock().tells(about, self.pool.world().now())
    }

    fn tell_unreadable(&self, dataset: &Dataset, id: ObjectId, error: &PoolError) {
        let snapshot = dataset.snapshot().map_or(0, |txg| txg.0);
        let key = (dataset.id.0, snapshot);
        let about = About { class: "snapshot.unreadable", key, object: id.0 };
        let Some(left_out) = self.tells(about) else { return };
        let name = self.datasets.full_name(dataset);
        tracing::error!(
            class = "snapshot.unreadable", pool = self.pool.name(), dataset = %name,
            object = %id, %error, left_out,
            "content of a snapshot cannot be read: clients get I/O errors there"
        );
    }

    /// Accepts a damaged object as it is on disk now: see
    /// [`Datasets::clear_damage`](aquifer_dataset::Datasets::clear_damage). Some of its UNSTABLE
    /// writes may be lost, so no COMMIT may succeed for it: clients send them again.
    ///
    /// # Errors
    /// The dataset or object does not exist, or the pool fails.
    pub async fn clear_damage(&self, name: &str, object: ObjectId) -> Result<(), DatasetError> {
        self.change_verifier();
        self.datasets.clear_damage(name, object).await
    }

    /// A path of an object. Searches the readable directories, up to a million entries.
    pub async fn path_of(&self, dataset: &str, object: ObjectId) -> Option<String> {
        self.paths_of(dataset, HashSet::from([object]), SEARCH_ENTRIES_MAX).await.remove(&object)
    }

    /// A path of an object for a message, or `#` and its number if none was found soon.
    pub(crate) async fn likely_path(&self, dataset: &str, object: ObjectId) -> String {
        let mut paths = self.paths_of(dataset, HashSet::from([object]), EVENT_ENTRIES_MAX).await;
        paths.remove(&object).unwrap_or_else(|| format!("#{object}"))
    }

    /// A path of each of these objects. One search like that of [`Files::path_of`] finds them,
    /// among the first `entries_max` entries.
    pub fn paths_of<'a>(
        &'a self,
        dataset: &'a str,
        mut objects: HashSet<ObjectId>,
        entries_max: usize,
    ) -> BoxFuture<'a, HashMap<ObjectId, String>> {
        Box::pin(async move {
            let mut found = HashMap::new();
            let Some(dataset) = self.datasets.by_name(dataset) else { return found };
            if objects.remove(&ROOT_DIRECTORY) {
                found.insert(ROOT_DIRECTORY, "/".into());
            }
            let mut waiting = VecDeque::from([(ROOT_DIRECTORY, String::new())]);
            let mut seen = 0;
            while let Some((directory, path)) = waiting.pop_front() {
                // Notes no damage here: the search may run because of damage that was just noted.
                let Ok(Some(object)) = dataset.object(&self.pool, directory).await else {
                    continue;
                };
                let mut from = 0;
                loop {
                    if objects.is_empty() || seen >= entries_max {
                        return found;
                    }
                    let read = object.read_entries(&self.pool, from, u64::MAX, SEARCH_ENTRIES);
                    let Ok(entries) = read.await else { break };
                    let whole = entries.len() < SEARCH_ENTRIES;
                    seen += entries.len();
                    for entry in entries {
                        let path = || format!("{path}/{}", shown(&entry.name));
                        if objects.remove(&entry.object) {
                            found.insert(entry.object, path());
                        }
                        if entry.kind == FileKind::Directory {
                            waiting.push_back((entry.object, path()));
                        }
                        from = entry.key.saturating_add(1);
                    }
                    if whole {
                        break;
                    }
                }
            }
            found
        })
    }
}
