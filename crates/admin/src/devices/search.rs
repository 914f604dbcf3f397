//! Searching disks for pools, and opening the disks of one exclusively.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{ApiError, FoundPool, FoundVdev, LeafState, VdevClass, guid_text};
use aquifer_blockio::{FileDisk, OpenError, OpenOptions};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::PoolConfig;
use aquifer_ondisk::uberblock::Uberblock;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::{FoundLeaf, is_behind, scan};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::answers::{opened_in_time, while_they_answer};
use super::take::open_error;
use super::{Identity, OpenDisk, places};
use crate::status::{class_of, health_of, kind_of, pool_health, vdev_name};

/// Where to search.
#[derive(Debug)]
pub(crate) enum Sought {
    /// These disks, and all usual places.
    Usual(Vec<PathBuf>),
    /// These directories, devices and image files.
    Places(Vec<PathBuf>),
}

/// Pools that were found, on disks opened for inspection.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// By identity; each leaf once.
    pub pools: BTreeMap<Guid, Vec<FoundLeaf>>,
    /// Disks that cannot be used, with the reasons.
    pub refused: Vec<String>,
    /// Disks that do not answer.
    pub silent: Vec<PathBuf>,
    /// Pools with a leaf that was found on two different disks, and the message about it.
    twins: BTreeMap<Guid, String>,
}

/// Looks for pools.
pub(crate) async fn search(sought: Sought) -> Search {
    let named = matches!(sought, Sought::Places(_));
    let listed = tokio::task::spawn_blocking(move || listed(sought));
    let paths = listed.await.unwrap_or_default();
    let mut found = Search::default();
    for paths in paths.chunks(OPEN_MAX) {
        found.merge(look_at(paths.to_vec(), named).await);
    }
    found
}

fn listed(sought: Sought) -> Vec<PathBuf> {
    match sought {
        Sought::Usual(also) => places::usual(also),
        Sought::Places(list) => places::named(&list),
    }
}

/// Opens disks for inspection, and reads their labels.
async fn look_at(paths: Vec<PathBuf>, named: bool) -> Search {
    let mut found = Search::default();
    let opened = tokio::task::spawn_blocking(move || open_each(&paths, OpenOptions::inspect()));
    let mut disks = Vec::new();
    for result in opened.await.unwrap_or_default() {
        match result {
            Ok(disk) => disks.push(disk.named()),
            Err(error) if named => found.refused.push(error.to_string()),
            Err(error) => tracing::debug!(%error, "not looked at"),
        }
    }
    found.add(disks, named).await;
    found
}

/// Disks that were asked and have not answered in time. They are not asked again meanwhile.
#[derive(Debug, Default, Clone)]
pub(crate) struct Unanswered(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Unanswered {
    /// A disk as it was opened, and its labels; `None` if it does not answer in time.
    async fn look(&self, path: PathBuf, named: bool, patience: Duration) -> Option<Search> {
        if self.0.lock().contains(&path) {
            return None;
        }
        let mut look = tokio::spawn(look_at(vec![path.clone()], named));
        if let Ok(found) = timeout(patience, &mut look).await {
            return Some(found.unwrap_or_default());
        }
        self.0.lock().insert(path.clone());
        let silent = self.clone();
        tokio::spawn(async move {
            // What it found is too late.
            let _ = look.await;
            silent.0.lock().remove(&path);
        });
        None
    }
}

/// As [`search`], but passes over disks that do not answer, and names them.
pub(crate) async fn search_answering(sought: Sought, unanswered: &Unanswered) -> Search {
    let named = matches!(sought, Sought::Places(_));
    let listed = tokio::task::spawn_blocking(move || listed(sought));
    look_at_each(listed.await.unwrap_or_default(), named, (unanswered, ASKED_PATIENCE)).await
}

/// Searches as [`search_answering`], but for disks that keep the names by which they are found.
pub(crate) async fn search_patiently(sought: Sought, unanswered: &Unanswered) -> Search {
    let listed = tokio::task::spawn_blocking(move || match sought {
        Sought::Places(list) => list,
        usual => listed(usual),
    });
    look_at_each(listed.await.unwrap_or_default(), true, (unanswered, ANSWER_PATIENCE)).await
}

async fn look_at_each(
    paths: Vec<PathBuf>,
    named: bool,
    (unanswered, patience): (&Unanswered, Duration),
) -> Search {
    let mut found = Search::default();
    for paths in paths.chunks(OPEN_MAX) {
        let looks = paths.iter().map(|path| unanswered.look(path.clone(), named, patience));
        for (path, look) in paths.iter().zip(join_all(looks).await) {
            match look {
                Some(look) => found.merge(look),
                None => found.silent.push(path.clone()),
            }
        }
    }
    found
}

impl Search {
    fn merge(&mut self, other: Search) {
        let Search { pools, refused, silent, twins } = other;
        for (guid, leaves) in pools {
            leaves.into_iter().for_each(|leaf| self.add_leaf(guid, leaf));
        }
        self.refused.extend(refused);
        self.silent.extend(silent);
        self.twins.extend(twins);
    }

    /// Disks that were `named` keep these names.
    async fn add(&mut self, disks: Vec<NamedDisk>, named: bool) {
        let (pools, refused) = scan(disks).await;
        for (disk, error) in refused {
            self.refused.push(format!("{}: {error}", disk.path));
        }
        for (guid, leaves) in pools {
            for mut leaf in leaves {
                if !named {
                    keep_name(&mut leaf);
                }
                self.add_leaf(guid, leaf);
            }
        }
    }

    fn add_leaf(&mut self, guid: Guid, leaf: FoundLeaf) {
        let known = self.pools.entry(guid).or_default();
        let own = leaf.labels.label.leaf_guid;
        let Some(twin) = known.iter().find(|other| other.labels.label.leaf_guid == own) else {
            known.push(leaf);
            return;
        };
        let (a, b) = (&twin.disk.path, &leaf.disk.path);
        // A loop device and its file are one disk; a copy of a disk is a second one.
        let identity = |path: &str| Identity::of(Path::new(path)).ok();
        if identity(a).is_none() || identity(a) != identity(b) {
            self.twins.entry(guid).or_insert_with(|| {
                format!(
                    "{a} and {b} are copies of each other: only one can be in the pool; take the \
                     other away, or name the right disks with -d"
                )
            });
        }
    }

    /// The paths of these disks, for [`claim`].
    pub fn paths(leaves: &[FoundLeaf]) -> Vec<PathBuf> {
        leaves.iter().map(|leaf| PathBuf::from(&leaf.disk.path)).collect()
    }

    /// The pool of this name or guid.
    pub fn pool(&self, wanted: &str) -> Result<Guid, ApiError> {
        let name = |leaves: &[FoundLeaf]| {
            leaves.first().map(|leaf| leaf.labels.label.config.name.clone()).unwrap_or_default()
        };
        let by_guid = self.pools.keys().find(|guid| guid_text(guid.0) == wanted);
        let by_name: Vec<Guid> = self
            .pools
            .iter()
            .filter(|(_, leaves)| name(leaves) == wanted)
            .map(|(guid, _)| *guid)
            .collect();
        let guid = match (by_guid, by_name.as_slice()) {
            (Some(guid), _) => *guid,
            (None, [guid]) => *guid,
            (None, []) => {
                let mut why = String::new();
                for refused in &self.refused {
                    why.push_str("\n  ");
                    why.push_str(refused);
                }
                return Err(ApiError::not_found(format!(
                    "no pool {wanted:?} was found; `aquifer pool import` lists those that were, \
                     -d DIR looks elsewhere{why}"
                )));
            }
            (None, several) => {
                let guids: Vec<String> = several.iter().map(|guid| guid_text(guid.0)).collect();
                return Err(ApiError::conflict(format!(
                    "several pools are called {wanted:?}; import one by its guid: {}",
                    guids.join(", ")
                )));
            }
        };
        match self.twins.get(&guid) {
            Some(why) => Err(ApiError::conflict(why.clone())),
            None => Ok(guid),
        }
    }
}

/// A disk has many names. If the pool's labels have a persistent one that still leads to it, it
/// keeps that.
fn keep_name(leaf: &mut FoundLeaf) {
    let label = &leaf.labels.label;
    let own = label.config.leaves().find(|(_, other)| other.guid == label.leaf_guid);
    if let Some((_, own)) = own
        && is_lasting_name(Path::new(&own.path), Path::new(&leaf.disk.path), "/dev/disk")
    {
        leaf.disk.path = own.path.clone();
    }
}

/// Whether `name`, a link below `persistent`, leads to the disk at `found`. (Others could lay links
/// elsewhere.)
pub(super) fn is_lasting_name(name: &Path, found: &Path, persistent: &str) -> bool {
    let is_below =
        name.starts_with(persistent) && !name.components().any(|part| part == Component::ParentDir);
    is_below && Identity::of(name).is_ok_and(|named| Identity::of(found).ok() == Some(named))
}

/// The disks of the pool with this name or guid, found at `places` or, if there are none, at the
/// usual ones. For tools that read a pool without a daemon.
///
/// # Errors
/// The pool is not found, or is ambiguous.
pub async fn disks_of_pool(
    wanted: &str,
    places: Vec<PathBuf>,
) -> Result<(Guid, Vec<PathBuf>), ApiError> {
    let found = search(match places.is_empty() {
        true => Sought::Usual(Vec::new()),
        false => Sought::Places(places),
    });
    let found = found.await;
    let guid = found.pool(wanted)?;
    let leaves = found.pools.get(&guid).map(Vec::as_slice).unwrap_or_default();
    Ok((guid, Search::paths(leaves)))
}

/// The disks of a pool, held exclusively.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub leaves: Vec<FoundLeaf>,
    pub disks: Vec<OpenDisk>,
}

/// Opens the disks of a pool exclusively and reads their labels again: until now another process
/// could have written them.
pub(crate) async fn claim(guid: Guid, paths: Vec<PathBuf>) -> Result<Claimed, ApiError> {
    let opened = opened_in_time(move || open_each(&paths, OpenOptions::exclusive())).await?;
    let disks = opened.into_iter().collect::<Result<Vec<_>, _>>().map_err(open_error)?;
    let claimed = Claimed::of(guid, disks).await?;
    claimed.ok_or_else(|| ApiError::conflict("the disks were changed by somebody else meanwhile"))
}

impl Claimed {
    /// The disks that belong to a pool, if any does.
    ///
    /// # Errors
    /// They do not answer.
    pub async fn of(guid: Guid, mut disks: Vec<OpenDisk>) -> Result<Option<Claimed>, ApiError> {
        let named = disks.iter().map(OpenDisk::named).collect();
        let scanned = while_they_answer(&disks, scan(named)).await;
        let (mut pools, _) = scanned.map_err(|silent| {
            silent.error("the pool is not imported. Nothing was written; try again when they do")
        })?;
        let Some(leaves) = pools.remove(&guid) else { return Ok(None) };
        disks.retain(|disk| leaves.iter().any(|leaf| leaf.disk.path == disk.path));
        Ok(Some(Claimed { leaves, disks }))
    }
}

fn open_each(paths: &[PathBuf], options: OpenOptions) -> Vec<Result<OpenDisk, OpenError>> {
    let open = |path: &PathBuf| {
        let file = Arc::new(FileDisk::open(path, options)?);
        Ok(OpenDisk { path: path.display().to_string(), file })
    };
    paths.iter().map(open).collect()
}

/// The paths where all disks of the pool are, or were last seen.
pub(crate) fn all_paths(leaves: &[FoundLeaf]) -> Vec<PathBuf> {
    let configs = newest_config(leaves).into_iter();
    let spares = configs.flat_map(|config| config.spares.iter().chain(&config.caches));
    let spares = spares.map(|spare| {
        let found = leaves.iter().find(|found| found.labels.label.leaf_guid == spare.guid);
        found.map_or(&spare.path, |found| &found.disk.path).clone()
    });
    let states = leaf_states(leaves).into_iter().flatten().map(|(path, _)| path);
    states.chain(spares).map(PathBuf::from).collect()
}

/// Whether every disk of the pool is present, except those that an uberblock marks as outdated.
pub(crate) fn is_complete(leaves: &[FoundLeaf]) -> bool {
    let states = leaf_states(leaves);
    states.iter().flatten().all(|(_, state)| *state != LeafState::Missing)
}

/// A found pool in the API's form.
pub(crate) fn found_pool(guid: Guid, leaves: &[FoundLeaf]) -> FoundPool {
    let config = newest_config(leaves);
    let mut vdevs = Vec::new();
    for (index, leaves) in leaf_states(leaves).into_iter().enumerate() {
        let Some(of) = config.and_then(|config| config.vdevs.get(index)) else { continue };
        let Some(class) = class_of(of.class) else { continue };
        let kind = kind_of(of.leaves.len());
        let first = leaves.first().map(|(path, _)| path.as_str()).unwrap_or_default();
        vdevs.push(FoundVdev {
            name: vdev_name(index, kind, first),
            class,
            kind,
            health: health_of(leaves.iter().map(|(_, state)| *state == LeafState::Online)),
            leaves,
        });
    }
    FoundPool {
        name: config.map(|config| config.name.clone()).unwrap_or_default(),
        guid: guid_text(guid.0),
        health: pool_health(vdevs.iter().map(|vdev| (vdev.class, vdev.health))),
        clean: newest(leaves).is_some_and(|uberblock| uberblock.clean),
        vdevs,
    }
}

fn newest(leaves: &[FoundLeaf]) -> Option<&Uberblock> {
    let newest = leaves.iter().filter_map(|leaf| leaf.labels.uberblocks.first());
    newest.max_by_key(|uberblock| uberblock.sequence)
}

/// The configuration that an import would choose. A disk that an interrupted act only labelled has
/// no uberblock. It does not count if any other disk has one.
fn newest_config(leaves: &[FoundLeaf]) -> Option<&PoolConfig> {
    let rank = |leaf: &&FoundLeaf| {
        let config_sequence = leaf.labels.label.config.config_sequence;
        (!leaf.labels.uberblocks.is_empty(), config_sequence)
    };
    leaves.iter().max_by_key(rank).map(|leaf| &leaf.labels.label.config)
}

/// Whether each vdev that holds data has a disk, as an import would find them.
pub(crate) fn is_importable(leaves: &[FoundLeaf]) -> bool {
    let classes = newest_config(leaves).map(|config| config.vdevs.iter().map(|vdev| vdev.class));
    let mut vdevs = leaf_states(leaves).into_iter().zip(classes.into_iter().flatten());
    !leaves.is_empty()
        && vdevs.all(|(leaves, class)| {
            class_of(class) != Some(VdevClass::Data)
                || leaves.iter().any(|(_, state)| *state == LeafState::Online)
        })
}

/// Disks that are older copies of themselves.
pub(crate) fn older_copies(leaves: &[FoundLeaf]) -> Vec<PathBuf> {
    let Some((config, newest)) = newest_config(leaves).zip(newest(leaves)) else {
        return Vec::new();
    };
    let behind = leaves.iter().filter(|leaf| is_behind(leaf, newest, config));
    behind.map(|leaf| PathBuf::from(&leaf.disk.path)).collect()
}

/// Path and state of each leaf, vdev by vdev, as an import would find them.
fn leaf_states(leaves: &[FoundLeaf]) -> Vec<Vec<(String, LeafState)>> {
    let Some(config) = newest_config(leaves) else { return Vec::new() };
    let newest = newest(leaves);
    let state = |guid: Guid, last_path: &str| {
        let found = leaves.iter().find(|leaf| leaf.labels.label.leaf_guid == guid);
        let path = found.map_or(last_path, |leaf| &leaf.disk.path).to_string();
        let is_old = found.zip(newest).is_some_and(|(leaf, by)| is_behind(leaf, by, config));
        let state = if is_old || newest.is_some_and(|uberblock| uberblock.names(guid)) {
            LeafState::Outdated
        } else if found.is_none() {
            LeafState::Missing
        } else {
            LeafState::Online
        };
        (path, state)
    };
    let vdevs = config.vdevs.iter();
    vdevs
        .map(|vdev| vdev.leaves.iter().map(|leaf| state(leaf.guid, &leaf.path)).collect())
        .collect()
}

/// How long a disk may take to show its labels, if somebody asked for it: it may have to spin up.
const ASKED_PATIENCE: Duration = Duration::from_secs(20);
/// Time that a disk may take to show its labels, if it is looked for by itself, again and again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Most disks that a search has open at the same time.
const OPEN_MAX: usize = 64;
