//! Inventory of the disks of pools, and of how they feel: asked in the background, told at once.
//!
//! Invariants:
//! - No request and no act waits for a disk here. The system is asked in a thread of its own, and
//!   waited for a moment only; `smartctl` is asked by the daemon's own loop.
//! - A disk that is gone is still known, over restarts, too: it is the one that somebody must find.

mod describe;
mod smart;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_api::{DiskInfo, SmartInfo};
use aquifer_blockio::FileDisk;
use aquifer_blockio::durable::Replaced;
use aquifer_ondisk::Guid;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use describe::System;
use smart::{Smart, SmartError};

/// A disk of a pool in service.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub guid: Guid,
    pub path: String,
    /// The pool's guid.
    pub pool: String,
    /// The open disk, if it is not missing. It is not kept open for this.
    pub file: Weak<FileDisk>,
}

/// Inventory of what is known of disks.
#[derive(Debug)]
pub(crate) struct Inventory {
    system: System,
    smart: Option<Smart>,
    file: Arc<Replaced>,
    known: Arc<Mutex<BTreeMap<Guid, Known>>>,
    /// Held by the thread that asks the system.
    looking: Arc<Mutex<()>>,
    /// Disks are there that are not known.
    wanted: Notify,
}

/// One disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    /// The pool's guid.
    pool: String,
    info: DiskInfo,
    /// When `smartctl` was last asked.
    #[serde(skip)]
    asked: Option<Instant>,
}

impl Inventory {
    /// Loads what is known from the last life of the daemon. `smartctl` is not asked if its name is
    /// empty.
    pub fn open(state_dir: &Path, smartctl: &Path) -> Inventory {
        let path = state_dir.join(FILE_NAME);
        let file = Arc::new(Replaced::at(path.clone(), 0o600));
        file.adopt();
        let known = load(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "what disks were is not known");
            store(&file, &BTreeMap::new());
            BTreeMap::new()
        });
        Inventory {
            system: System::default(),
            smart: (!smartctl.as_os_str().is_empty()).then(|| Smart::new(smartctl.into())),
            known: Arc::new(Mutex::new(known)),
            file,
            looking: Arc::default(),
            wanted: Notify::new(),
        }
    }

    /// Writes the file again if it is spoilt, or could not be written.
    pub fn look_after_file(&self) {
        self.file.look_again();
    }

    /// Why the file cannot be written.
    pub fn problem(&self) -> Option<String> {
        self.file.problem()
    }

    /// Of each disk of a pool, what is known.
    pub fn of_pool(&self, pool: &str) -> BTreeMap<Guid, DiskInfo> {
        let known = self.known.lock();
        let own = known.iter().filter(|(_, known)| known.pool == pool);
        own.map(|(guid, known)| (*guid, known.info.clone())).collect()
    }

    /// The disk with this persistent name or serial number.
    pub fn named(&self, pool: &str, name: &str) -> Option<Guid> {
        let known = self.of_pool(pool);
        let is_it = |info: &DiskInfo| {
            let by_id = info.by_id.as_deref();
            let is_by_id = |by_id: &str| by_id == name || by_id.rsplit('/').next() == Some(name);
            by_id.is_some_and(is_by_id) || info.serial.as_deref() == Some(name)
        };
        known.iter().find(|(_, info)| is_it(info)).map(|(guid, _)| *guid)
    }

    /// The one whole disk at a port; see [`System::only_disk_at`]. `None` too, if the system does
    /// not answer soon.
    pub async fn only_disk_at(&self, port: String) -> Option<String> {
        let system = self.system.clone();
        let look = tokio::task::spawn_blocking(move || system.only_disk_at(&port));
        timeout(IDENTIFY_PATIENCE, look).await.ok()?.ok()?
    }

    /// Some disk may be new: the loop looks soon.
    pub fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Waits until it is time for the next look.
    pub async fn next_look(&self) {
        // In time, or earlier by a notice.
        let _ = timeout(LOOK_EVERY, self.wanted.notified()).await;
    }

    /// Asks the system about these disks, and waits for a moment. What it says later is known
    /// later. Disks of these pools that are not named are forgotten, with pools that are not
    /// `listed`.
    pub async fn identify(&self, disks: Vec<Asked>, listed: BTreeSet<String>) {
        let (system, known) = (self.system.clone(), self.known.clone());
        let (looking, file) = (self.looking.clone(), self.file.clone());
        let is_new = disks.iter().any(|disk| !self.known.lock().contains_key(&disk.guid));
        let look = tokio::task::spawn_blocking(move || {
            // The system may not answer: others do not wait behind it.
            let Some(_looking) = looking.try_lock() else { return };
            let found: Vec<_> = disks.iter().map(|disk| describe_one(&system, disk)).collect();
            let changed = note(&mut known.lock(), &disks, found, &listed);
            if changed {
                store(&file, &known.lock().clone());
            }
        });
        let _ = timeout(IDENTIFY_PATIENCE, look).await;
        if is_new {
            self.wake();
        }
    }

    /// Asks `smartctl` about the disks whose health is unknown or old.
    pub async fn ask_health(&self, disks: &[Asked]) {
        let Some(smart) = &self.smart else { return };
        let due: Vec<(&Asked, String)> =
            disks.iter().filter_map(|disk| Some((disk, self.due(disk.guid)?))).collect();
        for some in due.chunks(ASKED_AT_ONCE) {
            let answers = join_all(some.iter().map(|(_, device)| smart.ask(device))).await;
            let mut changed = false;
            for ((disk, _), answer) in some.iter().zip(answers) {
                changed |= self.note_health(disk, answer);
            }
            if changed {
                let (file, known) = (self.file.clone(), self.known.lock().clone());
                let _ = tokio::task::spawn_blocking(move || store(&file, &known)).await;
            }
        }
    }

    /// The device to ask about, if it is time.
    fn due(&self, disk: Guid) -> Option<String> {
        let known = self.known.lock();
        let known = known.get(&disk).filter(|known| !known.info.gone)?;
        let is_fresh = known.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY);
        if is_fresh { None } else { known.info.device.clone() }
    }

    /// Takes an answer. Returns whether the verdict has changed.
    fn note_health(&self, disk: &Asked, answer: Result<SmartInfo, SmartError>) -> bool {
        let mut known = self.known.lock();
        let Some(known) = known.get_mut(&disk.guid) else { return false };
        known.asked = Some(Instant::now());
        let has_failed = |smart: &Option<SmartInfo>| smart.as_ref().is_some_and(|it| !it.passed);
        let failed = has_failed(&known.info.smart);
        let was_known = known.info.smart.is_some();
        match answer {
            Ok(smart) => {
                known.info.smart = Some(smart);
                known.info.smart_note = None;
            }
            // What it said before still holds as far as anybody knows.
            Err(why) => known.info.smart_note = Some(why.to_string()),
        }
        let serial = known.info.serial.clone().unwrap_or_default();
        let (path, model) = (&disk.path, known.info.model.clone().unwrap_or_default());
        let fails = has_failed(&known.info.smart);
        match (failed, fails) {
            (false, true) => tracing::error!(
                class = "disk.smart_failing", leaf = %path, model, serial,
                "disk expects to fail, by its own SMART health"
            ),
            (true, false) => tracing::info!(
                class = "disk.smart_passed", leaf = %path, model, serial,
                "disk no longer expects to fail"
            ),
            _ => {}
        }
        failed != fails || was_known != known.info.smart.is_some()
    }
}

fn describe_one(system: &System, disk: &Asked) -> Option<DiskInfo> {
    let numbers = disk.file.upgrade()?.numbers().ok()?;
    system.describe(&disk.path, numbers)
}

/// Takes what was found. Returns whether something changed that must be kept.
fn note(
    known: &mut BTreeMap<Guid, Known>,
    disks: &[Asked],
    found: Vec<Option<DiskInfo>>,
    listed: &BTreeSet<String>,
) -> bool {
    let mut changed = false;
    let mut own: HashMap<&str, BTreeSet<Guid>> = HashMap::new();
    for (disk, found) in disks.iter().zip(found) {
        own.entry(&disk.pool).or_default().insert(disk.guid);
        let before = known.get(&disk.guid);
        let info = match (found, before) {
            (Some(found), before) => {
                let smart = before.map(|known| known.info.clone()).unwrap_or_default();
                let DiskInfo { smart, smart_note, .. } = smart;
                DiskInfo { smart, smart_note, ..found }
            }
            (None, Some(before)) => DiskInfo { gone: true, ..before.info.clone() },
            (None, None) => continue,
        };
        if before.is_some_and(|before| before.info == info && before.pool == disk.pool) {
            continue;
        }
        changed = true;
        // Another disk in its place, or the same one back, is asked anew.
        let asked = before.filter(|before| before.info.device == info.device && !before.info.gone);
        let asked = asked.and_then(|before| before.asked);
        known.insert(disk.guid, Known { pool: disk.pool.clone(), info, asked });
    }
    let before = known.len();
    known.retain(|guid, known| match own.get(known.pool.as_str()) {
        Some(own) => own.contains(guid),
        None => listed.contains(&known.pool),
    });
    changed || known.len() < before
}

/// The file's content; nothing, if there is none.
fn load(path: &Path) -> std::io::Result<BTreeMap<Guid, Known>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        read => read?,
    };
    let kept: BTreeMap<String, Known> = serde_json::from_slice(&bytes)?;
    let guid = |text: &str| aquifer_api::guid_of(text).map(Guid);
    Ok(kept.into_iter().filter_map(|(text, known)| Some((guid(&text)?, known))).collect())
}

fn store(file: &Replaced, known: &BTreeMap<Guid, Known>) {
    let kept: BTreeMap<String, &Known> =
        known.iter().map(|(guid, known)| (aquifer_api::guid_text(guid.0), known)).collect();
    let stored = serde_json::to_vec_pretty(&kept).map_err(std::io::Error::from);
    if let Err(error) = stored.and_then(|bytes| file.store(bytes)) {
        tracing::debug!(%error, "what disks are is not kept");
    }
}

const FILE_NAME: &str = "disks.json";
/// Time between two looks at all disks.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long a health counts as fresh.
const ASK_EVERY: Duration = Duration::from_secs(600);
/// Longest wait for the system in a request.
const IDENTIFY_PATIENCE: Duration = Duration::from_secs(1);
/// Programs that run at a time.
const ASKED_AT_ONCE: usize = 4;

#[cfg(test)]
mod tests;
