//! Acts on the disks of a pool in service: remove, attach, detach, replace, offline, online.
//!
//! The engine does them between two txgs, without delaying clients. This module keeps track of the
//! disks that the daemon holds exclusively, and of their paths for the next import.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_api::{
    ApiError, DiskRequest, OfflineDisk, OnlineDisk, PoolDone, ReplaceDisk, VdevClass, guid_text,
};
use aquifer_ondisk::Guid;
use aquifer_pool::create::NamedDisk;
use aquifer_pool::{ActError, LeafStatus, Pool};
use aquifer_vdev::LeafState;
use aquifer_vdev::label_io::LabelError;

use super::add::expand;
use super::serving::Serving;
use super::{Control, State};
use crate::cache::CachedPool;
use crate::devices::{Identity, OpenDisk, TakeRequest, open_again, resolve, take};
use crate::status::{name_of, shown};

/// A disk of a pool in service.
#[derive(Debug)]
pub(super) struct Member {
    /// Its vdev's name.
    vdev: String,
    pub class: VdevClass,
    pub guid: Guid,
    state: LeafState,
    pub path: String,
    /// Paths of the vdev's disks.
    all: Vec<String>,
    /// The name was the vdev's, not that of one disk of several.
    whole: bool,
}

impl Member {
    /// It, if it holds data.
    fn with_data(self) -> Result<Member, ApiError> {
        match self.class {
            VdevClass::Data => Ok(self),
            VdevClass::Log => Err(ApiError::invalid(format!(
                "{}: is a disk of the log; only disks that hold data are attached and detached",
                self.path
            ))),
        }
    }

    /// Its path, where another disk may be now.
    fn place_of_another(&self, pool: &str) -> Result<String, ApiError> {
        if self.check_not_in_use().is_ok() {
            return Ok(self.path.clone());
        }
        let path = &self.path;
        Err(ApiError::invalid(format!(
            "{path}: is in use, so no other disk is in its place; name the new disk, or type \
             `aquifer pool offline {pool} {path}`, put the new disk in its place, and try again"
        )))
    }

    /// A disk in use is not opened again: the engine would keep the old one.
    fn check_not_in_use(&self) -> Result<(), ApiError> {
        let how = match self.state {
            LeafState::Online => "is online",
            LeafState::Resilvering => "is being resilvered",
            LeafState::Failed | LeafState::Outdated | LeafState::Missing => return Ok(()),
        };
        Err(ApiError::invalid(format!("{}: {how} already", self.path)))
    }
}

impl Control {
    /// Removes a log vdev, a spare or a cache disk from a pool.
    ///
    /// # Errors
    /// There is none of this name; the engine's errors.
    pub async fn remove_disk(
        &self,
        name: &str,
        request: DiskRequest,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool remove").await?;
        if let Some(guid) = spare(&serving, &request.disk) {
            return self.remove_spare(&serving, guid).await;
        }
        if let Some(guid) = cache_disk(&serving, &request.disk) {
            return self.remove_cache(&serving, guid).await;
        }
        let member = self.member(&serving, &request.disk)?;
        if member.class == VdevClass::Data {
            return Err(ApiError::invalid(format!(
                "{}: holds data, which cannot be removed. `aquifer pool detach {name} DISK` takes \
                 a side off a mirror; else copy the datasets to another pool",
                request.disk
            )));
        }
        if !member.whole {
            let vdev = &member.vdev;
            return Err(ApiError::invalid(format!(
                "{}: is one side of {vdev}; `aquifer pool remove {name} {vdev}` removes all of it",
                member.path
            )));
        }
        let guid = member.guid;
        on_pool(&serving, async move |pool| pool.remove_log(&guid.to_string()).await).await?;
        let disks = serving.drop_left().await.join(", ");
        tracing::info!(class = "log.removed", pool = name, disks, "log device removed");
        Ok(PoolDone::new(name, self.list_anew(&serving).into_iter().collect()))
    }

    async fn remove_spare(&self, serving: &Arc<Serving>, guid: Guid) -> Result<PoolDone, ApiError> {
        on_pool(serving, async move |pool| pool.remove_spare(&guid.to_string()).await).await?;
        let (pool, disk) = (serving.name(), serving.drop_left().await.join(", "));
        tracing::info!(class = "spare.removed", pool, disk, "spare removed");
        Ok(PoolDone::new(pool, self.list_anew(serving).into_iter().collect()))
    }

    async fn remove_cache(&self, serving: &Arc<Serving>, guid: Guid) -> Result<PoolDone, ApiError> {
        let remove = async move |pool: Arc<Pool>| pool.remove_cache(&guid.to_string()).await;
        let removed = on_pool(serving, remove).await;
        let (pool, disk) = (serving.name(), serving.drop_left().await.join(", "));
        removed?;
        tracing::info!(class = "cache.removed", pool, disk, "cache disk removed");
        Ok(PoolDone::new(pool, self.list_anew(serving).into_iter().collect()))
    }

    /// Replaces a disk with another one. A new disk for data is resilvered in the background; an
    /// old one that holds everything leaves after that. A spare of the pool stands in instead.
    ///
    /// # Errors
    /// There is none of this name; any reason to refuse the new one.
    pub async fn replace_disk(
        &self,
        name: &str,
        request: ReplaceDisk,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool replace").await?;
        let member = self.one_disk(&serving, &request.disk)?;
        let new = match request.new.clone() {
            Some(new) => new,
            None => member.place_of_another(name)?,
        };
        if let Some(spare) = spare(&serving, &new) {
            return self.use_spare(&serving, member, spare).await;
        }
        let guid = member.guid.to_string();
        let act =
            async move |pool: Arc<Pool>, new, force| pool.replace_disk(&guid, new, force).await;
        let (new, has_left) = self.with_new_disk(&serving, (new, request), act).await?;
        let (old, path, mut notes) = (member.path, new.path.clone(), Vec::new());
        if has_left {
            serving.drop_disks(std::slice::from_ref(&old)).await;
        } else {
            notes.push(format!(
                "{path} gets all data now; {old} leaves the pool after that, see `aquifer pool \
                 status {name}`"
            ));
        }
        serving.take_disks(vec![new]);
        notes.extend(self.list_anew(&serving));
        let (class, message) = match member.class {
            VdevClass::Log => ("log.replaced", "log device replaced"),
            VdevClass::Data => ("disk.replacing", "disk is replaced"),
        };
        tracing::info!(class, pool = name, old, new = path, "{message}");
        Ok(PoolDone::new(name, notes))
    }

    /// Lets a spare stand in for a disk now.
    async fn use_spare(
        &self,
        serving: &Arc<Serving>,
        member: Member,
        spare: Guid,
    ) -> Result<PoolDone, ApiError> {
        if member.class == VdevClass::Log {
            let (path, name) = (&member.path, serving.name());
            return Err(ApiError::invalid(format!(
                "{path}: is a disk of the log, and spares stand only for disks that hold data; \
                 `aquifer pool remove {name}` the spare, and replace the disk by it"
            )));
        }
        let path = member.path;
        let act = async move |pool: Arc<Pool>| pool.use_spare(&path, spare).await;
        on_pool(serving, act).await?;
        Ok(PoolDone::new(serving.name(), self.list_anew(serving).into_iter().collect()))
    }

    /// Adds a disk as another side of the vdev of one. It is resilvered in the background.
    ///
    /// # Errors
    /// There is none of this name, or it is the log's; any reason to refuse the new one.
    pub async fn attach_disk(
        &self,
        name: &str,
        request: ReplaceDisk,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool attach").await?;
        let guid = self.member(&serving, &request.disk)?.with_data()?.guid.to_string();
        let new = request.new.clone();
        let new = new.ok_or_else(|| ApiError::invalid("no new disk is named: name it"))?;
        let act =
            async move |pool: Arc<Pool>, new, force| pool.attach_disk(&guid, new, force).await;
        let (new, ()) = self.with_new_disk(&serving, (new, request), act).await?;
        let disk = new.path.clone();
        serving.take_disks(vec![new]);
        tracing::info!(class = "disk.attached", pool = name, disk, "disk attached");
        Ok(PoolDone::new(name, self.list_anew(&serving).into_iter().collect()))
    }

    /// Takes a side off a mirror. Afterwards the disk belongs to no pool, or is a spare again.
    ///
    /// # Errors
    /// There is none of this name, or it is the log's, or the last one that holds everything.
    pub async fn detach_disk(
        &self,
        name: &str,
        request: DiskRequest,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool detach").await?;
        let member = self.one_disk(&serving, &request.disk)?.with_data()?;
        let guid = member.guid;
        on_pool(&serving, async move |pool| pool.detach_disk(&guid.to_string()).await).await?;
        serving.drop_left().await;
        let disk = member.path;
        tracing::info!(class = "disk.detached", pool = name, disk, "disk detached");
        Ok(PoolDone::new(name, self.list_anew(&serving).into_iter().collect()))
    }

    /// Takes the new disk of a request, and carries out an act of the engine with it. Returns the
    /// disk, which the pool uses from now on, and the act's result.
    async fn with_new_disk<F, T: Send + 'static>(
        &self,
        serving: &Serving,
        (new, request): (String, ReplaceDisk),
        act: impl FnOnce(Arc<Pool>, NamedDisk, bool) -> F + Send + 'static,
    ) -> Result<(OpenDisk, T), ApiError>
    where
        F: Future<Output = Result<T, ActError>> + Send + 'static,
    {
        let ReplaceDisk { disk: _, new: _, force, create_bytes, held_until_s } = request;
        let in_use = self.disks_in_use();
        let pool = serving.name().to_string();
        let wanted = TakeRequest {
            disks: vec![new],
            force,
            create_bytes,
            dry_run: false,
            in_use,
            pool,
            own: Some(serving.service().pool.guid()),
            held_until_s,
        };
        let mut taken = take(wanted).await?;
        let opened = taken.opened().pop();
        let opened = opened.ok_or_else(|| ApiError::failed("the new disk was not opened"))?;
        let new = opened.named();
        let done = on_pool(serving, move |pool| act(pool, new, force)).await?;
        taken.keep();
        Ok((opened, done))
    }

    /// Counts the errors of a disk, or of all disks of a vdev, from 0 again. Those that failed are
    /// tried again.
    ///
    /// # Errors
    /// There is none of this name.
    pub async fn clear_disk(&self, name: &str, request: DiskRequest) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool clear").await?;
        let member = self.member(&serving, &request.disk)?;
        let pool = &serving.service().pool;
        let leaves = pool.status().vdevs.into_iter().flat_map(|vdev| vdev.leaves);
        let of_vdev = member.vdev == request.disk;
        let is_meant = |leaf: &LeafStatus| match of_vdev {
            true => member.all.contains(&leaf.path),
            false => leaf.guid == member.guid,
        };
        let guids: Vec<Guid> = leaves.filter(is_meant).map(|leaf| leaf.guid).collect();
        let clear = async move |pool: Arc<Pool>| {
            guids.into_iter().for_each(|guid| pool.clear_errors(Some(guid)));
            Ok(())
        };
        on_pool(&serving, clear).await?;
        Ok(PoolDone::new(name, Vec::new()))
    }

    /// Takes a disk out of use, until it is brought online again; a `temporary` one until the next
    /// import at most.
    ///
    /// # Errors
    /// There is none of this name; the engine's errors.
    pub async fn offline_disk(
        &self,
        name: &str,
        request: OfflineDisk,
    ) -> Result<PoolDone, ApiError> {
        let temporary = request.temporary;
        let (_act, serving) = self.act(name, "pool offline").await?;
        let member = self.one_disk(&serving, &request.disk)?;
        let guid = member.guid;
        on_pool(&serving, async move |pool| pool.offline_disk(&guid.to_string(), temporary).await)
            .await?;
        let disk = member.path;
        let (class, message) = match member.class {
            VdevClass::Log => ("log.offline", "log device taken out of use"),
            VdevClass::Data => ("disk.offline", "disk taken out of use"),
        };
        tracing::info!(class, pool = name, disk, "{message}");
        Ok(PoolDone::new(name, Vec::new()))
    }

    /// Takes a disk into use again, after opening it again. A disk that holds data is resilvered
    /// first, in the background. With `expand` its vdev also uses disks that have become larger;
    /// the disk may be in use then.
    ///
    /// # Errors
    /// There is none of this name, it is in use, or another disk is there now.
    pub async fn online_disk(&self, name: &str, request: OnlineDisk) -> Result<PoolDone, ApiError> {
        let (_act, serving) = self.act(name, "pool online").await?;
        let member = self.one_disk(&serving, &request.disk)?;
        let (guid, force) = (member.guid, request.force);
        if request.expand && member.state == LeafState::Online {
            let note = expand(&serving, guid, &member.path).await?;
            return Ok(PoolDone::new(name, vec![note]));
        }
        member.check_not_in_use()?;
        let disk = member.path;
        let before = held(&serving, &disk).map(|disk| disk.file);
        let opened = open_again(disk.clone(), before).await?;
        let again = opened.named();
        let act =
            async move |pool: Arc<Pool>| pool.online_disk(&guid.to_string(), again, force).await;
        on_pool(&serving, act).await?;
        serving.drop_disks(std::slice::from_ref(&disk)).await;
        serving.take_disks(vec![opened]);
        let (class, message) = match member.class {
            VdevClass::Log => ("log.online", "log device in use again"),
            VdevClass::Data => ("disk.online", "disk is back"),
        };
        tracing::info!(class, pool = name, disk, "{message}");
        let later = format!("{disk}: grows with `pool online -e` once it is up to date");
        Ok(PoolDone::new(name, if request.expand { vec![later] } else { Vec::new() }))
    }

    /// As [`Control::member`], but the name must stand for one disk.
    pub(super) fn one_disk(&self, serving: &Serving, name: &str) -> Result<Member, ApiError> {
        let found = self.member(serving, name)?;
        if found.vdev == name && found.all.len() > 1 {
            let disks = found.all.join(", ");
            return Err(ApiError::invalid(format!(
                "{name}: is a mirror; name one of its disks: {disks}"
            )));
        }
        Ok(found)
    }

    /// Releases disks that left a pool by themselves. Only for who has its turn.
    pub(super) async fn release_left(&self, serving: &Arc<Serving>) {
        if serving.left().is_empty() {
            return;
        }
        if let Some(error) = self.list_anew(serving) {
            tracing::warn!(%error, "the list of pools is not up to date");
        }
        let (pool, disk) = (serving.name(), serving.drop_left().await.join(", "));
        tracing::info!(class = "disk.replaced", pool, disk, "a replaced disk has left");
    }

    /// Notes where the disks of a pool are now, and writes the list. The act is done even if the
    /// list cannot be written, so the error only becomes a note.
    pub(super) fn list_anew(&self, serving: &Arc<Serving>) -> Option<String> {
        self.note_disks(serving);
        self.store().err().map(|error| error.to_string())
    }

    /// Notes a pool in service, and where its disks are now.
    pub(super) fn note_disks(&self, serving: &Arc<Serving>) {
        let pool = &serving.service().pool;
        let status = pool.status();
        let cached = CachedPool {
            name: serving.name().into(),
            guid: guid_text(pool.guid().0),
            disks: status.paths().map(PathBuf::from).collect(),
            whole: None,
            two_persons: None,
        };
        self.put(cached, State::Serving(Arc::clone(serving)));
    }
}

/// Carries out an act on the pool's own thread.
pub(super) async fn on_pool<F, T: Send + 'static>(
    serving: &Serving,
    act: impl FnOnce(Arc<Pool>) -> F + Send + 'static,
) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ActError>> + Send + 'static,
{
    let pool = serving.service().pool.clone();
    let done = serving.run(act(pool)).await;
    done.map_err(|error| ApiError::failed(error.to_string()))?.map_err(|error| match error {
        ActError::BadConfig(_) => ApiError::invalid(error.to_string()),
        ActError::Label { error: LabelError::NoLabel | LabelError::Damaged(_), .. } => {
            ApiError::refused(format!("{error}; `pool replace` takes a new disk in its place"))
        }
        ActError::BadDisk { .. } | ActError::Label { .. } | ActError::OwnPast { .. } => {
            ApiError::refused(error.to_string())
        }
        error => ApiError::failed(error.to_string()),
    })
}

/// The open disk at this path, held exclusively.
fn held(serving: &Serving, path: &str) -> Option<OpenDisk> {
    serving.disks().into_iter().find(|disk| disk.path == path)
}

/// Finds a spare: by its path, another name of it, or its guid.
pub(super) fn spare(serving: &Serving, name: &str) -> Option<Guid> {
    let spares = serving.service().pool.status().spares;
    disk_named(name, spares.iter().map(|spare| (&spare.path, spare.guid)))
}

/// Finds a cache disk in the same way.
fn cache_disk(serving: &Serving, name: &str) -> Option<Guid> {
    let caches = serving.service().pool.status().caches;
    disk_named(name, caches.iter().map(|cache| (&cache.leaf.path, cache.leaf.guid)))
}

fn disk_named<'a>(name: &str, mut of: impl Iterator<Item = (&'a String, Guid)>) -> Option<Guid> {
    let same = same_disk(name);
    let found = of.find(|(path, guid)| same(path) || guid_text(guid.0) == name);
    found.map(|(_, guid)| guid)
}

/// Whether a path is another name of the disk of this name.
fn same_disk(name: &str) -> impl Fn(&str) -> bool {
    let identity = resolve(name).ok().and_then(|path| Identity::of(&path).ok());
    move |path: &str| {
        path == name || identity.is_some() && Identity::of(Path::new(path)).ok() == identity
    }
}

/// Finds a disk: by its path or another name of it, by its guid, or by the name of its vdev.
pub(super) fn member_named(serving: &Serving, name: &str) -> Result<Member, ApiError> {
    let status = serving.service().pool.status();
    let same = same_disk(name);
    for (index, class, vdev) in shown(&status) {
        let (of, count) = (name_of(index, vdev), vdev.leaves.len());
        let found =
            vdev.leaves.iter().find(|leaf| same(&leaf.path) || guid_text(leaf.guid.0) == name);
        let whole = of == name || count == 1;
        let Some(leaf) = found.or(vdev.leaves.first().filter(|_| of == name)) else { continue };
        return Ok(Member {
            vdev: of,
            class,
            guid: leaf.guid,
            state: leaf.state,
            path: leaf.path.clone(),
            all: vdev.leaves.iter().map(|leaf| leaf.path.clone()).collect(),
            whole,
        });
    }
    let pool = serving.name();
    if spare(serving, name).is_some() {
        return Err(ApiError::invalid(format!(
            "{name}: is a spare of pool {pool:?} that stands for no disk now; `aquifer pool remove \
             {pool} {name}` takes it out of the pool"
        )));
    }
    if cache_disk(serving, name).is_some() {
        return Err(ApiError::invalid(format!(
            "{name}: is a cache disk of pool {pool:?}, which holds nothing that is needed; \
             `aquifer pool remove {pool} {name}` takes it out of the pool"
        )));
    }
    Err(ApiError::not_found(format!(
        "{name}: is no disk of pool {pool:?}; `aquifer pool status {pool}` shows those that are"
    )))
}
