//! What is damaged, by name.

use std::collections::{HashMap, HashSet, VecDeque};

use aquifer_dataset::{DamagedObject, DatasetError, ROOT_DIRECTORY};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::BoxFuture;

use crate::core::Files;

/// Directory entries that a search for a path looks at, unless somebody wants it sooner.
pub const SEARCH_ENTRIES_MAX: usize = 1_000_000;
/// Entries read at a time.
const SEARCH_ENTRIES: usize = 1_000;

/// A damaged object, for people.
#[derive(Debug, Clone)]
pub struct Damaged {
    /// Full name of its dataset.
    pub dataset: String,
    /// Where it stands in the dataset, if it could be found: `/a/b`.
    pub path: Option<String>,
    /// What was lost.
    pub damage: DamagedObject,
}

impl Files {
    /// What was found damaged since the import. Searches directories for the paths: not for every
    /// scrape of a metric.
    pub async fn damages(&self) -> Vec<Damaged> {
        let mut named = Vec::new();
        for damage in self.datasets.damages() {
            // What a destroyed dataset cannot free any more has a name no longer.
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

    /// Takes a damaged object as it is on disk now: see
    /// [`Datasets::clear_damage`](aquifer_dataset::Datasets::clear_damage). Of what was written
    /// UNSTABLE to it some may be lost, so no COMMIT may succeed for it: clients send it again.
    ///
    /// # Errors
    /// A dataset or object that does not exist; what the pool gives.
    pub async fn clear_damage(&self, name: &str, object: ObjectId) -> Result<(), DatasetError> {
        self.change_verifier();
        self.datasets.clear_damage(name, object).await
    }

    /// A path of an object: a search through the directories, as far as they can be read, and up to
    /// a million entries.
    pub async fn path_of(&self, dataset: &str, object: ObjectId) -> Option<String> {
        self.paths_of(dataset, HashSet::from([object]), SEARCH_ENTRIES_MAX).await.remove(&object)
    }

    /// A path of each of these objects that one search as that of [`Files::path_of`] finds, among
    /// the first `entries_max` entries.
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
                let Ok(target) = self.object(&dataset, directory).await else { continue };
                let mut from = 0;
                loop {
                    if objects.is_empty() || seen >= entries_max {
                        return found;
                    }
                    let read =
                        target.object.read_entries(&self.pool, from, u64::MAX, SEARCH_ENTRIES);
                    let Ok(entries) = read.await else { break };
                    let whole = entries.len() < SEARCH_ENTRIES;
                    seen += entries.len();
                    for entry in entries {
                        let path = || format!("{path}/{}", String::from_utf8_lossy(&entry.name));
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
