//! Acts and questions on datasets.

use std::sync::Arc;

use aquifer_api::time::{self, text_s};
use aquifer_api::{
    ApiError, ClearDamage, CloneSnapshot, CreateDataset, DamagedFile, DatasetDone, DatasetInfo,
    DatasetQuery, DestroyDataset, PropertyValue, RenameDataset, SetProperties, SyncDisabled,
};
use aquifer_dataset::{DamageKind, DamageRecord, DatasetError, DatasetInfo as Info, Property};
use aquifer_files::Damaged;
use aquifer_files::subject::{FilePlace, FileSnapshotNames, pools};
use aquifer_meter::size;
use aquifer_ondisk::Space;

use super::serving::Serving;
use super::snapshots::schedules::{take_due, take_due_of_files};
use super::turns::name_of;
use super::widening::{At, MayLetIn, export_at};
use super::{Control, Scope, errors, properties, shares, snapshots, subjects};
use crate::sharenfs;

impl Control {
    /// Makes a dataset. When this returns it is on disk, and exported if its property says so.
    ///
    /// # Errors
    /// Invalid names and values, or a parent that does not exist.
    pub async fn create_dataset(&self, request: CreateDataset) -> Result<DatasetDone, ApiError> {
        let (_act, serving) = self.act_of(&request.name, "create").await?;
        properties::check_new(&request.name, &request.properties, &self.config.peers)?;
        let sharenfs = request.properties.get(Property::Sharenfs.name());
        self.check_room(shares::made_exported(&serving, &request.name, sharenfs))?;
        let values: Vec<(String, String)> = request.properties.into_iter().collect();
        let shares = values.iter().map(|(property, value)| (property, value));
        let mut notes = self.look_up_hosts(&request.name, shares).await;
        let (datasets, name) = (serving.service().datasets.clone(), request.name.clone());
        act_on(&serving, async move { datasets.create(&name, &values).await }).await?;
        tracing::info!(class = "dataset.created", dataset = %request.name, "dataset created");
        notes.extend(self.refresh_exports().await);
        notes.extend(self.risks_of(&request.name));
        Ok(DatasetDone { name: request.name, notes })
    }

    /// Makes a dataset that begins as a snapshot, or files that begin as one of a file. When this
    /// returns they are on disk, and a dataset is exported if its property says so.
    ///
    /// # Errors
    /// There is no such snapshot; or as [`Control::create_dataset`].
    /// The clone would be exported more widely than its origin, and the caller may not let hosts
    /// in.
    pub async fn clone_snapshot(
        &self,
        request: CloneSnapshot,
        may: MayLetIn,
    ) -> Result<DatasetDone, ApiError> {
        if let Some(serving) = self.pool_of_files(&request.snapshot) {
            let pool = name_of(serving);
            let (_act, serving) = self.act(&pool, "clone").await?;
            return self.clone_file(&serving, request, may).await;
        }
        let CloneSnapshot { snapshot, name, more, properties } = request;
        if let Some(more) = more.first() {
            return Err(ApiError::invalid(format!(
                "{more:?} is one name too many: a snapshot of a dataset has one clone at a time"
            )));
        }
        let (_act, serving) = self.act_of(&name, "clone").await?;
        if !pools(&snapshot).any(|pool| pool == serving.name()) {
            return Err(ApiError::invalid(format!(
                "{snapshot:?} and {name:?} are in two pools: a clone shares its data with the \
                 snapshot"
            )));
        }
        properties::check_new(&name, &properties, &self.config.peers)?;
        let sharenfs = properties.get(Property::Sharenfs.name());
        let snapcontrol = properties.get(Property::Snapcontrol.name());
        self.check_room(shares::made_exported(&serving, &name, sharenfs))?;
        let from = subjects::one_snapshot(&serving.service().datasets, &snapshot)?;
        let origin = serving.service().datasets.full_name(&from.dataset);
        let at = At { dataset: &name, sharenfs, snapcontrol, in_service: false };
        self.check_no_wider(&serving, (&origin, at), may)?;
        let values: Vec<(String, String)> = properties.into_iter().collect();
        let shares = values.iter().map(|(property, value)| (property, value));
        let mut notes = self.look_up_hosts(&name, shares).await;
        let datasets = serving.service().datasets.clone();
        let new = name.clone();
        let clone = async move { datasets.clone_snapshot(&from.full, &new, &values).await };
        act_on(&serving, clone).await?;
        tracing::info!(class = "dataset.cloned", %snapshot, dataset = %name, "snapshot cloned");
        notes.extend(self.refresh_exports().await);
        notes.extend(self.risks_of(&name));
        Ok(DatasetDone { name, notes })
    }

    /// Sets properties, or returns them to the inherited value: all in one txg, or none.
    ///
    /// # Errors
    /// Unknown datasets and properties, invalid values, limits without room.
    pub async fn set_properties(&self, request: SetProperties) -> Result<DatasetDone, ApiError> {
        let (_act, serving) = self.act_of(&request.name, "set").await?;
        for (property, value) in &request.properties {
            match value {
                Some(value) => {
                    properties::check(&request.name, property, value, &self.config.peers)?
                }
                None => drop(properties::known(property)?),
            }
        }
        check_fetched(&serving, &request)?;
        let sharenfs = request.properties.get(Property::Sharenfs.name());
        if let Some(value) = sharenfs {
            self.check_room(shares::set_exported(&serving, &request.name, value.as_ref()))?;
        }
        let is_shared = sharenfs.is_some();
        let is_set = |property: Property| request.properties.contains_key(property.name());
        let of_datasets = is_set(Property::Snapshots);
        let of_files = is_set(Property::Filesnapshots);
        let retains = is_set(Property::Retain);
        let guards = is_set(Property::TwoPersons);
        let set = request.properties.iter();
        let set = set.filter_map(|(property, value)| Some((property, value.as_ref()?)));
        let mut notes = self.look_up_hosts(&request.name, set).await;
        let standby = request.properties.get(Property::Standby.name());
        let comes = standby.is_some_and(|value| value.as_deref() != Some("on"));
        if comes {
            self.check_service(&serving, &request.name)?;
            check_shown(&serving, &request)?;
        }
        let changes: Vec<_> = request.properties.into_iter().collect();
        let (datasets, name) = (serving.service().datasets.clone(), request.name.clone());
        let wanted = changes.clone();
        act_on(&serving, async move { datasets.set_all(&name, &wanted).await }).await?;
        if guards {
            notes.extend(self.keep_two_persons(serving.name()));
        }
        if comes {
            notes.extend(unmark(&serving, &request.name).await.err().map(|error| {
                format!("its newest received snapshot stays held: {}", error.message)
            }));
        }
        for (property, value) in changes {
            tracing::info!(
                class = "dataset.set", dataset = %request.name, %property, ?value, "property set"
            );
        }
        notes.extend(self.refresh_exports().await);
        if is_shared {
            notes.extend(self.risks_of(&request.name));
        }
        if retains {
            notes.extend(snapshots::holds::note_on_retain(&serving, &request.name));
        }
        if of_datasets && let Err(error) = take_due(&serving).await {
            notes.push(format!("the first snapshots cannot be taken now: {error}"));
        }
        if of_files {
            notes.extend(take_due_of_files(&serving, &request.name).await);
        }
        Ok(DatasetDone { name: request.name, notes })
    }

    /// Fails if a pool's `hold_max` would rise. Over the network it only falls: it is there for the
    /// day on which somebody else has an administrator's token.
    ///
    /// # Errors
    /// It would rise.
    pub fn check_hold_max(&self, request: &SetProperties) -> Result<(), ApiError> {
        let Some(value) = request.properties.get(Property::HoldMax.name()) else { return Ok(()) };
        let serving = self.pool_of(&request.name)?;
        let Some(now_s) = serving.service().datasets.hold_max_s() else { return Ok(()) };
        let then_s = value.as_deref().and_then(time::parse_span);
        match then_s.is_some_and(|then_s| then_s <= now_s) {
            true => Ok(()),
            false => Err(ApiError::forbidden(
                "hold_max is raised on the server itself alone, by its socket: `aquifer set` \
                 there, without --api-url",
            )),
        }
    }

    /// Destroys a dataset. When this returns it is gone, on disk and for clients. The background
    /// frees its space.
    ///
    /// # Errors
    /// The name was not confirmed, or the dataset is unknown or the pool's own one. The same if
    /// there are datasets below it and the request is not recursive.
    pub async fn destroy_dataset(&self, request: DestroyDataset) -> Result<DatasetDone, ApiError> {
        let DestroyDataset { name, confirm, recursive, clones } = request;
        if confirm != name {
            return Err(ApiError::refused(format!(
                "destroying {name:?} loses everything in it; it must be confirmed by its name"
            )));
        }
        let (_act, serving) = self.act_of(&name, "destroy").await?;
        let (datasets, doomed) = (serving.service().datasets.clone(), [name.clone()]);
        let destroy = async move { datasets.destroy_all(&doomed, recursive, clones).await };
        act_on(&serving, destroy).await?;
        tracing::info!(
            class = "dataset.destroyed", dataset = %name, recursive, "dataset destroyed"
        );
        Ok(DatasetDone { name, notes: self.refresh_exports().await })
    }

    /// Gives a dataset another name, with all below it. When this returns it is on disk, and
    /// exported under the new name. Handles of clients stay valid.
    ///
    /// # Errors
    /// Bad names, one that exists, one below itself or in another pool; no room there by quotas.
    pub async fn rename_dataset(&self, request: RenameDataset) -> Result<DatasetDone, ApiError> {
        let RenameDataset { name, new } = request;
        let (_act, serving) = self.act_of(&name, "rename").await?;
        self.check_room(shares::set_exported(&serving, &name, None))?;
        let was = export_at(&serving, At::there(&name));
        let datasets = serving.service().datasets.clone();
        let (from, to) = (name.clone(), new.clone());
        act_on(&serving, async move { datasets.rename(&from, &to).await }).await?;
        tracing::info!(class = "dataset.renamed", dataset = %name, %new, "dataset renamed");
        let mut notes = self.refresh_exports().await;
        notes.extend(self.widening_note(was.as_ref(), &serving, &new));
        notes.extend(self.risks_of(&new));
        Ok(DatasetDone { name: new, notes })
    }

    /// Accepts a damaged file as it is on disk now: it can be read and written again, and the lost
    /// data stays lost.
    ///
    /// # Errors
    /// There is no such damaged file.
    pub async fn clear_damage(&self, request: ClearDamage) -> Result<DatasetDone, ApiError> {
        let ClearDamage { name, file } = request;
        let (_act, serving) = self.act_of(&name, "clear").await?;
        let damages = serving.service().files.damages().await;
        let is_it = |damaged: &&Damaged| damaged.dataset == name && label(damaged) == file;
        let object = damages.iter().find(is_it).map(|damaged| damaged.damage.object);
        let object = object.ok_or_else(|| {
            ApiError::not_found(format!(
                "no file {file:?} of {name:?} is known to be damaged; `aquifer pool status` shows \
                 those that are"
            ))
        })?;
        let (files, of) = (serving.service().files.clone(), name.clone());
        act_on(&serving, async move { files.clear_damage(&of, object).await }).await?;
        tracing::warn!(
            class = "file.cleared", dataset = %name, file, "damaged file taken as it is"
        );
        Ok(DatasetDone { name, notes: Vec::new() })
    }

    /// Datasets by name: one, one and those below it, or all of all pools.
    ///
    /// # Errors
    /// There is none with that name.
    pub fn datasets(
        &self,
        query: &DatasetQuery,
        scope: &Scope,
    ) -> Result<Vec<DatasetInfo>, ApiError> {
        self.check_question(scope, query.name.as_deref(), query.recursive)?;
        let is_seen = |info: &DatasetInfo| scope.covers(&info.name);
        let Some(name) = &query.name else {
            let all = self.all_serving().into_iter().flat_map(|serving| list(&serving));
            return Ok(all.filter(is_seen).collect());
        };
        let serving = self.pool_of(name)?;
        let below = format!("{name}/");
        let wanted = |info: &DatasetInfo| {
            info.name == *name || query.recursive && info.name.starts_with(&below)
        };
        let all = list(&serving).into_iter();
        let found: Vec<DatasetInfo> = all.filter(wanted).filter(is_seen).collect();
        match found.is_empty() {
            true if !scope.is_all() => Err(scope.nothing(name)),
            true => Err(errors::api_error(DatasetError::NotFound(name.clone()))),
            false => Ok(found),
        }
    }

    /// Makes files that begin as one of a snapshot.
    async fn clone_file(
        &self,
        serving: &Serving,
        request: CloneSnapshot,
        may: MayLetIn,
    ) -> Result<DatasetDone, ApiError> {
        let CloneSnapshot { snapshot, name, more, properties } = request;
        let datasets = &serving.service().datasets;
        let from = FileSnapshotNames::parse(datasets, &snapshot).map_err(subjects::api_error)?;
        if let Some(property) = properties.keys().next() {
            return Err(ApiError::invalid(format!(
                "{snapshot:?} is a snapshot of a file: a clone of it is a file, and has no \
                 property {property}"
            )));
        }
        let mut to = Vec::new();
        for name in std::iter::once(&name).chain(&more) {
            to.push(FilePlace::parse(datasets, name).map_err(subjects::api_error)?);
        }
        // Files of one command are in one dataset.
        if let Some(first) = to.first() {
            let [of, at] = [&from.dataset, &first.dataset].map(|of| datasets.full_name(of));
            self.check_no_wider(serving, (&of, At::there(&at)), may)?;
        }
        let clones = to.len();
        snapshots::files::clone(serving, from, to).await?;
        let pool = serving.name();
        tracing::info!(
            class = "file.cloned", pool, %snapshot, file = %name, clones, "file cloned"
        );
        Ok(DatasetDone { name, notes: Vec::new() })
    }

    /// The pool that a dataset's name begins with.
    pub(super) fn pool_of(&self, dataset: &str) -> Result<Arc<Serving>, ApiError> {
        let pool = dataset.split_once('/').map_or(dataset, |(pool, _)| pool);
        self.serving(pool)
    }
}

/// A copy that comes into service is exported as its properties say. Its administrator may not have
/// seen them: they say once more that this is what they want.
fn check_shown(serving: &Serving, request: &SetProperties) -> Result<(), ApiError> {
    let set = |property: Property| request.properties.get(property.name())?.as_ref();
    let at = At {
        dataset: &request.name,
        sharenfs: set(Property::Sharenfs),
        snapcontrol: set(Property::Snapcontrol),
        in_service: true,
    };
    let is_standby = serving.service().datasets.by_name(&request.name);
    let is_standby = is_standby.is_some_and(|of| of.is_standby());
    let is_known = request.exports || request.properties.contains_key(Property::Sharenfs.name());
    match export_at(serving, at).filter(|_| is_standby && !is_known) {
        None => Ok(()),
        Some(export) => Err(ApiError::refused(format!(
            "{:?} comes into service and is exported then, at {}: sharenfs={}. Confirm that \
             (`aquifer set -f`; in the API the field `exports`), or set sharenfs with it",
            request.name,
            export.path,
            sharenfs::words(&export)
        ))),
    }
}

/// Fails if a dataset would be fetched that is not there, or that clients use.
fn check_fetched(serving: &Serving, request: &SetProperties) -> Result<(), ApiError> {
    let value = |of: Property| request.properties.get(of.name()).and_then(Option::as_deref);
    let pull = value(Property::Pull).filter(|value| *value != Property::Pull.default_value());
    let Some(pull) = pull else { return Ok(()) };
    let from = pull.split_whitespace().next().unwrap_or_default();
    let name = &request.name;
    match serving.service().datasets.by_name(name) {
        Some(found) if found.is_standby() || value(Property::Standby) == Some("on") => Ok(()),
        Some(_) => Err(ApiError::conflict(format!(
            "property pull: {name:?} is in service, and nothing is fetched over what clients \
             write: set it on a copy, or standby=on with it"
        ))),
        None => Err(ApiError::not_found(format!(
            "there is no copy {name:?} yet: `aquifer replicate --pull {from} {name}` makes it; \
             set it then"
        ))),
    }
}

/// A dataset is no copy any more: nothing in it is marked as received last.
async fn unmark(serving: &Serving, name: &str) -> Result<(), ApiError> {
    let datasets = serving.service().datasets.clone();
    let Some(dataset) = datasets.by_name(name) else { return Ok(()) };
    act_on(serving, async move { datasets.unmark(&dataset).await }).await
}

/// Carries out an act on datasets, on the pool's own thread.
pub(super) async fn act_on<T: Send + 'static>(
    serving: &Serving,
    act: impl Future<Output = Result<T, DatasetError>> + Send + 'static,
) -> Result<T, ApiError> {
    let done = serving.run(act).await.map_err(|error| ApiError::failed(error.to_string()))?;
    done.map_err(errors::api_error)
}

/// The damage in a pool.
pub(super) async fn damaged(serving: &Serving) -> Vec<DamagedFile> {
    let damages = serving.service().files.damages().await;
    let each = damages.into_iter().map(|damaged| DamagedFile {
        file: label(&damaged),
        dataset: damaged.dataset,
        unreadable: damaged.damage.kind == DamageKind::Unreadable,
        more: damaged.damage.more,
        since_ns: damaged.damage.since.since_1970_ns(),
        txg: damaged.damage.txg.0,
        lost_bytes: match damaged.damage.kind {
            DamageKind::Unreadable => 0,
            DamageKind::Lost => pages(&damaged.damage).saturating_mul(4096),
        },
        ranges: damaged.damage.ranges.iter().map(|(from, to)| (from * 4096, to * 4096)).collect(),
        error: damaged.damage.error,
    });
    each.collect()
}

fn pages(damage: &DamageRecord) -> u64 {
    damage.ranges.iter().map(|(from, to)| to - from).sum()
}

/// Datasets of a pool with `sync=disabled`, and the reasons.
pub(super) fn sync_disabled(serving: &Serving) -> Vec<SyncDisabled> {
    let datasets = &serving.service().datasets;
    // Asked every few seconds: a whole listing would cost too much.
    let found = datasets.all().into_iter().filter_map(|dataset| {
        let (value, _) = datasets.value(&dataset, Property::Sync);
        let reason = value.strip_prefix("disabled:")?.to_string();
        Some(SyncDisabled { dataset: datasets.full_name(&dataset), reason })
    });
    let mut found: Vec<SyncDisabled> = found.collect();
    found.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    found
}

fn label(damaged: &Damaged) -> String {
    damaged.path.clone().unwrap_or_else(|| format!("#{}", damaged.damage.object))
}

fn list(serving: &Serving) -> Vec<DatasetInfo> {
    let freeing = || PropertyValue {
        name: "freeing".into(),
        value: serving.freeing_bytes().to_string(),
        source: "-".into(),
    };
    let mut listed: Vec<DatasetInfo> =
        serving.service().datasets.list().into_iter().map(of_dataset).collect();
    if let Some(own) = listed.iter_mut().find(|info| info.name == serving.name()) {
        // Behind the other sizes.
        own.properties.insert(SIZES, freeing());
    }
    listed
}

fn ratio(of: Space) -> String {
    size::ratio(size::ratio_hundredths(of.bytes, of.logical_bytes()))
}

/// Sizes that every dataset has.
const SIZES: usize = 8;

fn of_dataset(info: Info) -> DatasetInfo {
    let share = info.properties.iter().find(|(property, ..)| *property == Property::Sharenfs);
    let export = share.filter(|_| !info.is_standby);
    let export = export.and_then(|(_, value, _)| sharenfs::parse(&info.name, value).ok()?);
    let (used, refer) = (info.used, info.refer);
    // What is kept free is in no ratio.
    let used_bytes = used.bytes.saturating_add(info.refreserved_bytes);
    let counted = |value: String| if info.counts_saved { value } else { "-".into() };
    let fixed: [_; SIZES] = [
        ("used", used_bytes.to_string()),
        ("available", info.available_bytes.to_string()),
        ("referenced", refer.bytes.to_string()),
        ("usedbyrefreservation", info.own_refreserved_bytes.to_string()),
        ("logicalused", counted(used.logical_bytes().to_string())),
        ("logicalreferenced", counted(refer.logical_bytes().to_string())),
        ("compressratio", counted(ratio(used))),
        ("refcompressratio", counted(ratio(refer))),
    ];
    let fixed = fixed.into_iter().map(|(name, value)| PropertyValue {
        name: name.into(),
        value,
        source: "-".into(),
    });
    let counted = |bytes: u64| info.counts_saved.then_some(bytes);
    let settable = info.properties.into_iter().map(|(property, value, source)| PropertyValue {
        name: property.name().into(),
        value,
        source,
    });
    let users = info.user_properties.into_iter();
    let users = users.map(|(name, value, source)| PropertyValue { name, value, source });
    let next = info.next_snapshot;
    let next = next.map(|(at_s, cadence)| format!("{} {}", text_s(at_s), cadence.name()));
    let next = PropertyValue {
        name: "next_snapshot".into(),
        value: next.unwrap_or_else(|| "-".into()),
        source: "-".into(),
    };
    DatasetInfo {
        properties: fixed.chain(settable).chain([next]).chain(users).collect(),
        name: info.name,
        used_bytes,
        available_bytes: info.available_bytes,
        refer_bytes: refer.bytes,
        refreserved_bytes: info.own_refreserved_bytes,
        logical_used_bytes: counted(used.logical_bytes()),
        logical_refer_bytes: counted(refer.logical_bytes()),
        nfs_path: export.map(|export| export.path),
        origin: info.origin,
        standby: info.is_standby,
    }
}
