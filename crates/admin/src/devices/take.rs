//! Taking disks for a new pool: checks every reason to refuse one before anything is written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_api::{ApiError, time};
use aquifer_blockio::{BackingKind, FileDisk, OpenError, OpenOptions, create_image};
use aquifer_meter::size::human;
use aquifer_ondisk::Guid;
use aquifer_ondisk::held::held_until;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::import::scan;

use super::answers::{opened_in_time, while_they_answer};
use super::{DISK_BYTES_MIN, Identity, OpenDisk, SECTOR, large_enough, loop_device_of};

/// Requested disks, in order.
#[derive(Debug)]
pub(crate) struct TakeRequest {
    /// As given.
    pub disks: Vec<String>,
    /// Accept disks that hold something.
    pub force: bool,
    /// Image files that do not exist get this many bytes.
    pub create_bytes: Option<u64>,
    /// Make nothing.
    pub dry_run: bool,
    /// Disks of imported pools, with the pool's name.
    pub in_use: Vec<(Identity, String)>,
    /// The pool that gets them.
    pub pool: String,
    /// Its guid, if it is there.
    pub own: Option<Guid>,
    /// Until when holds stand on disks of other pools, as somebody at this machine typed it: these
    /// may be lost.
    pub held_until_s: Option<u64>,
}

/// Accepted disks, opened exclusively, in the order of the request.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub disks: Vec<Taker>,
    /// Image files made for this request; removed when dropped, unless they are kept.
    made: Vec<PathBuf>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Taker {
    pub path: PathBuf,
    pub bytes: u64,
    /// `None` if it is an image file that would have been made.
    pub disk: Option<Arc<FileDisk>>,
}

impl Taker {
    /// The disk, if it exists.
    pub fn opened(&self) -> Option<OpenDisk> {
        let file = self.disk.clone()?;
        Some(OpenDisk { path: self.path.display().to_string(), file })
    }
}

impl Taken {
    /// Keeps all image files that were made.
    pub fn keep(&mut self) {
        self.made.clear();
    }

    /// Keeps those of the image files that have these paths.
    pub fn keep_made(&mut self, paths: &[String]) {
        self.made.retain(|made| !paths.iter().any(|path| made.as_path() == Path::new(path)));
    }

    /// The disks that exist: all of them, except in a dry run.
    pub fn opened(&self) -> Vec<OpenDisk> {
        self.disks.iter().filter_map(Taker::opened).collect()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for path in self.made.drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "an unused image file stays");
            }
        }
    }
}

/// Opens the disks and checks that they may be used. Checks for labels of other pools too.
pub(crate) async fn take(request: TakeRequest) -> Result<Taken, ApiError> {
    let (force, held) = (request.force, (request.own, request.held_until_s));
    let taken = opened_in_time(move || open_all(&request)).await??;
    let (disks, looked_at) = (taken.opened(), taken.opened());
    let look = async move {
        for disk in looked_at {
            match force {
                true => refuse_held(disk.named(), held).await?,
                false => refuse_member(disk.named()).await?,
            }
        }
        Ok(())
    };
    match while_they_answer(&disks, look).await {
        Ok(looked) => looked.map(|()| taken),
        Err(silent) => Err(silent.error("it is not taken, and nothing was written to it")),
    }
}

fn open_all(request: &TakeRequest) -> Result<Taken, ApiError> {
    let mut taken = Taken::default();
    let mut seen: Vec<(Identity, PathBuf)> = Vec::new();
    for name in &request.disks {
        let path = resolve(name)?;
        if let Some(twice) = seen.iter().find(|(_, other)| *other == path) {
            return Err(ApiError::invalid(format!("{}: is given twice", twice.1.display())));
        }
        let taker = match Identity::of(&path) {
            Ok(identity) => {
                let same = seen.iter().find(|(other, _)| *other == identity);
                if let Some((_, other)) = same {
                    let other = other.display();
                    let what = "is the same disk as";
                    let path = path.display();
                    return Err(ApiError::invalid(format!(
                        "{path}: {what} {other}; give each disk once"
                    )));
                }
                seen.push((identity, path.clone()));
                open_one(request, path, identity)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let taker = make_one(request, &path, &mut taken.made)?;
                if let Ok(identity) = Identity::of(&path) {
                    seen.push((identity, path));
                }
                taker
            }
            Err(error) => return Err(ApiError::failed(format!("{}: {error}", path.display()))),
        };
        taken.disks.push(taker);
    }
    Ok(taken)
}

/// The path of a disk: an absolute one, or a device by its name.
pub(crate) fn resolve(name: &str) -> Result<PathBuf, ApiError> {
    if name.starts_with('/') {
        return Ok(PathBuf::from(name));
    }
    if name.contains('/') || name.is_empty() {
        return Err(ApiError::invalid(format!(
            "{name}: is a relative path; give image files by absolute path, devices by path or \
             name"
        )));
    }
    let mut found = ["/dev/disk/by-id", "/dev"].into_iter().map(|dir| Path::new(dir).join(name));
    found.find(|path| path.exists()).ok_or_else(|| {
        ApiError::not_found(format!(
            "{name}: no such device in /dev/disk/by-id or /dev; give image files by absolute path"
        ))
    })
}

fn open_one(request: &TakeRequest, path: PathBuf, identity: Identity) -> Result<Taker, ApiError> {
    let shown = path.display().to_string();
    let used = request.in_use.iter().find(|(other, _)| *other == identity);
    if used.is_some_and(|(_, pool)| *pool == request.pool) {
        let pool = &request.pool;
        return Err(ApiError::conflict(format!(
            "{shown}: is a disk of pool {pool:?} already; use another disk"
        )));
    }
    if let Some((_, pool)) = used {
        return Err(ApiError::conflict(format!(
            "{shown}: is in use by pool {pool:?}, which is imported; destroy that pool first, or \
             use another disk"
        )));
    }
    let disk = FileDisk::open(&path, OpenOptions::exclusive()).map_err(open_error)?;
    // The opened disk must be the one that was compared with the disks in use.
    if Identity::of_opened(&disk).ok() != Some(identity) {
        return Err(open_error(OpenError::Exchanged { path }));
    }
    if let Some(device) = attached(&disk, identity) {
        return Err(ApiError::conflict(format!(
            "{shown}: is attached to {device}; use that device, or detach it with `losetup -d \
             {device}`",
            device = device.display()
        )));
    }
    let sectors = aquifer_blockio::Disk::sectors(&disk);
    check_size(&shown, sectors * SECTOR)?;
    let foreign = disk.foreign_content();
    let foreign = foreign.map_err(|error| ApiError::failed(format!("{shown}: {error}")))?;
    if let (Some(first), false) = (foreign.first(), request.force) {
        return Err(ApiError::refused(format!(
            "{shown}: holds something already: {first}; -f takes it nevertheless, and what it \
             holds is lost"
        )));
    }
    Ok(Taker { path, bytes: sectors * SECTOR, disk: Some(Arc::new(disk)) })
}

/// Opens a disk of a pool again. `held` is the earlier open file, if there was one.
pub(crate) async fn open_again(
    path: String,
    held: Option<Arc<FileDisk>>,
) -> Result<OpenDisk, ApiError> {
    let opened = opened_in_time(move || {
        let file = match held {
            Some(held) => held.open_again(Path::new(&path)),
            None => FileDisk::open(Path::new(&path), OpenOptions::exclusive()),
        };
        file.map(|file| OpenDisk { path, file: Arc::new(file) })
    });
    opened.await?.map_err(open_error)
}

fn attached(disk: &FileDisk, identity: Identity) -> Option<PathBuf> {
    match disk.kind() {
        BackingKind::Image => loop_device_of(identity),
        BackingKind::Block => None,
    }
}

/// Makes the image file of a disk that does not exist.
fn make_one(
    request: &TakeRequest,
    path: &Path,
    made: &mut Vec<PathBuf>,
) -> Result<Taker, ApiError> {
    let shown = path.display().to_string();
    let Some(bytes) = request.create_bytes.filter(|_| !path.starts_with("/dev")) else {
        return Err(ApiError::not_found(format!(
            "{shown}: does not exist; check the name, or let --create-size=10G make an image file"
        )));
    };
    let sectors = bytes / SECTOR;
    check_size(&shown, sectors * SECTOR)?;
    let mut taker = Taker { path: path.into(), bytes: sectors * SECTOR, disk: None };
    if !request.dry_run {
        create_image(path, sectors).map_err(open_error)?;
        made.push(path.into());
        let disk = FileDisk::open(path, OpenOptions::exclusive()).map_err(open_error)?;
        taker.disk = Some(Arc::new(disk));
    }
    Ok(taker)
}

fn check_size(path: &str, bytes: u64) -> Result<(), ApiError> {
    if large_enough(bytes / SECTOR) {
        return Ok(());
    }
    let (has, needs) = (human(bytes), human(DISK_BYTES_MIN));
    Err(ApiError::invalid(format!(
        "{path}: is too small: {has}, a pool needs disks of {needs} or more"
    )))
}

/// Refuses a disk that carries the labels of a pool.
async fn refuse_member(disk: NamedDisk) -> Result<(), ApiError> {
    let path = disk.path.clone();
    let (pools, refused) = scan(vec![disk]).await;
    if let Some((_, error)) = refused.first() {
        return Err(ApiError::refused(format!(
            "{path}: {error}; -f takes it nevertheless, and what it holds is lost"
        )));
    }
    let Some(leaf) = pools.values().flatten().next() else { return Ok(()) };
    let pool = &leaf.labels.label.config.name;
    Err(ApiError::refused(format!(
        "{path}: belongs to pool {pool:?}; import that with `aquifer pool import {pool}`, or take \
         the disk with -f, and what the pool has on it is lost"
    )))
}

/// Refuses a disk of a pool in which holds with an end stand, also with force: they stand against
/// every right. What one at this machine can do with the disks nobody keeps from them, so they may
/// type the time.
async fn refuse_held(
    disk: NamedDisk,
    (own, typed): (Option<Guid>, Option<u64>),
) -> Result<(), ApiError> {
    let path = disk.path.clone();
    let (pools, _) = scan(vec![disk]).await;
    let is_other = |guid: &Guid| Some(*guid) != own;
    let leaves = pools.iter().filter(|(guid, _)| is_other(guid)).flat_map(|(_, leaves)| leaves);
    let configs = leaves.map(|leaf| &leaf.labels.label.config);
    let held = configs.filter_map(|config| Some((held_until(&config.features_write)?, config)));
    let Some((until_s, config)) = held.max_by_key(|(until_s, _)| *until_s) else { return Ok(()) };
    if until_s <= time::now_s() || typed == Some(until_s) {
        return Ok(());
    }
    let (pool, until) = (&config.name, time::text_s(until_s));
    Err(ApiError::refused(format!(
        "{path}: belongs to pool {pool:?}, in which snapshots are held until {until}: -f does not \
         take it. On the server itself, without --api-url, `--held-until {until}` with -f destroys \
         them all the same"
    )))
}

pub(super) fn open_error(error: OpenError) -> ApiError {
    let message = error.to_string();
    match error {
        OpenError::NotFound { .. } => ApiError::not_found(message),
        OpenError::InUse { .. } | OpenError::Exists { .. } | OpenError::Exchanged { .. } => {
            ApiError::conflict(message)
        }
        OpenError::NotPermitted { .. } | OpenError::Gone { .. } | OpenError::Io { .. } => {
            ApiError::failed(message)
        }
        _ => ApiError::invalid(message),
    }
}
