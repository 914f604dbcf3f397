//! The other half of what an operation says of itself: its subject, the datasets that it names, the
//! role that it needs beyond its route's, and whether it waits for a second person. The first half,
//! its path and its words, stands beside its type in `aquifer_api`.

use aquifer_admin::control::Named;
use aquifer_admin::control::guard::Guard;
use aquifer_admin::control::history::Leaving;
use aquifer_api::{
    AddVdevs, AttachDisk, BindToken, ClearDamage, ClearDisk, ClearLocks, ClearPool, CloneSnapshot,
    CreateDataset, CreatePool, CreateToken, DatasetName, DestroyBookmarks, DestroyDataset,
    DestroySnapshots, DetachDisk, DrillRequest, FreeWorkRequest, GiveUpReceive, HoldSnapshots,
    ImportRequest, MakeBookmark, OfflineDisk, On, OnlineDisk, Operation, Promote, PrunePull,
    ReceiveRequest, ReleaseSnapshots, RemoveDisk, RenameDataset, RenameSnapshot, ReplaceDisk,
    ReplicateRequest, RevokeToken, Role, RollBack, RotateToken, ScrubRequest, SetProperties,
    SettlePull, StopReplication, TakePull, TakeSnapshots,
};

use super::acts::{About, Acting, Told, import_needs, properties_need};

/// An operation that this daemon carries out.
pub(super) trait Judged: Operation {
    /// The request as this caller can mean it.
    fn meant(self, _: &Acting) -> Self {
        self
    }

    /// Its description, before it is carried out.
    fn told(&self) -> Told;

    /// Adds to its description, by its caller and by the state of the daemon.
    fn judged(&self, told: Told, _: &Acting) -> Told {
        told
    }

    /// An operation on this subject, which needs no more than its route.
    fn on(&self, about: About) -> Told {
        Told::new(self.words(), about)
    }
}

/// Names that lie in datasets that exist.
fn within(texts: &[String]) -> Vec<Named> {
    texts.iter().cloned().map(Named::Within).collect()
}

fn dataset(name: &str) -> [Named; 1] {
    [Named::Dataset(name.into())]
}

/// All of a dataset.
fn all_of(name: &str) -> About {
    About::Dataset(name.into(), Vec::new())
}

/// Guard of an act that loses something of what these names mean.
fn of(names: &[String]) -> Guard {
    Guard::Of(names.to_vec())
}

fn of_one(name: &str) -> Guard {
    Guard::Of(vec![name.into()])
}

/// Guards an act that takes disks by force, even if they hold something: they may be those of any
/// pool.
fn by_force(force: bool, told: Told) -> Told {
    if force { told.guarded(Guard::All) } else { told }
}

/// A pool goes out of service.
pub(super) fn leaves<R>(request: &On<R>, leaving: &Leaving, is_forced: bool) -> Told
where
    On<R>: Operation,
{
    let about = About::Leaving(request.name.clone(), leaving.clone());
    let told = Told::new(request.words(), about).guarded(of_one(&request.name));
    Told { is_forced, ..told }
}

/// Snapshots of the pool of these.
fn snapshots(names: &[String]) -> About {
    names.first().map_or(About::Nothing, |name| About::snapshots(name))
}

/// Nothing is changed by a dry run.
fn unless(dry_run: bool, about: About) -> About {
    if dry_run { About::Nothing } else { about }
}

impl Judged for TakeSnapshots {
    fn told(&self) -> Told {
        self.on(snapshots(&self.names)).naming(within(&self.names))
    }
}

impl Judged for DestroySnapshots {
    /// Leaves out snapshots that are taken while it waits.
    fn meant(self, acting: &Acting) -> Self {
        let upto_txg = self.upto_txg.or(acting.control().newest_txg(&self.name));
        DestroySnapshots { upto_txg, ..self }
    }

    fn told(&self) -> Told {
        let about = unless(self.dry_run, About::snapshots(&self.name));
        self.on(about).guarded(of_one(&self.name))
    }
}

impl Judged for RollBack {
    fn told(&self) -> Told {
        self.on(About::snapshots(&self.name)).guarded(of_one(&self.name))
    }
}

impl Judged for RenameSnapshot {
    fn told(&self) -> Told {
        self.on(About::snapshots(&self.name)).naming([Named::Within(self.name.clone())])
    }
}

impl Judged for HoldSnapshots {
    fn told(&self) -> Told {
        let told = self.on(snapshots(&self.names)).naming(within(&self.names));
        match self.until_s {
            // Nobody takes it back.
            Some(_) => Told { needs: Role::Admin, ..told.guarded(of(&self.names)) },
            None => told,
        }
    }
}

impl Judged for ReleaseSnapshots {
    fn told(&self) -> Told {
        self.on(snapshots(&self.names)).guarded(of(&self.names))
    }
}

impl Judged for MakeBookmark {
    fn told(&self) -> Told {
        // A bookmark is of the dataset of its snapshot.
        let named = [Named::Within(self.snapshot.clone())];
        self.on(About::snapshots(&self.snapshot)).naming(named)
    }
}

impl Judged for DestroyBookmarks {
    fn told(&self) -> Told {
        self.on(snapshots(&self.names)).guarded(of(&self.names))
    }
}

impl Judged for CreateDataset {
    fn told(&self) -> Told {
        let CreateDataset { name, properties } = self;
        let needs = properties_need(properties.iter().map(|(name, value)| (name, Some(value))));
        let about = About::Dataset(name.clone(), properties.keys().cloned().collect());
        Told { needs, ..self.on(about).naming(dataset(name)) }
    }
}

impl Judged for CloneSnapshot {
    fn told(&self) -> Told {
        let CloneSnapshot { snapshot, name, more, properties } = self;
        let needs = properties_need(properties.iter().map(|(name, value)| (name, Some(value))));
        let about = About::Dataset(name.clone(), properties.keys().cloned().collect());
        let clones = std::iter::once(name).chain(more).cloned();
        let clones = clones.map(|name| Named::Clone { snapshot: snapshot.clone(), name });
        let named = std::iter::once(Named::Within(snapshot.clone())).chain(clones);
        Told { needs, ..self.on(about).naming(named) }
    }
}

impl Judged for SetProperties {
    fn told(&self) -> Told {
        let SetProperties { name, properties, .. } = self;
        let needs = properties_need(properties.iter().map(|(name, value)| (name, value.as_ref())));
        let about = About::Dataset(name.clone(), properties.keys().cloned().collect());
        let told = self.on(about).naming(dataset(name)).guarded(Guard::of_properties(self));
        Told { needs, ..told }
    }
}

impl Judged for DestroyDataset {
    fn told(&self) -> Told {
        self.on(all_of(&self.name)).guarded(of_one(&self.name))
    }
}

/// Elsewhere it inherits other schedules, and hosts that may destroy.
impl Judged for RenameDataset {
    fn told(&self) -> Told {
        let RenameDataset { name, new } = self;
        let told = self.on(all_of(name));
        let place = |name: &str| name.rsplit_once('/').map(|(place, _)| place.to_string());
        if place(name) == place(new) { told } else { told.guarded(of_one(name)) }
    }
}

/// Its schedule prunes the snapshots that it lists from now on.
impl Judged for Promote {
    fn told(&self) -> Told {
        self.on(all_of(&self.name)).guarded(of_one(&self.name))
    }
}

impl Judged for ClearDamage {
    fn told(&self) -> Told {
        self.on(all_of(&self.name))
    }
}

impl Judged for CreatePool {
    fn meant(self, acting: &Acting) -> Self {
        CreatePool { held_until_s: acting.typed_here(self.held_until_s), ..self }
    }

    fn told(&self) -> Told {
        let about = unless(self.dry_run, About::Coming(self.name.clone()));
        by_force(self.force, self.on(about))
    }
}

impl Judged for ImportRequest {
    fn told(&self) -> Told {
        let name = self.new_name.as_ref().unwrap_or(&self.pool);
        let needs = import_needs(self);
        let told = self.on(About::Coming(name.clone()));
        by_force(needs == Role::Admin, Told { needs, ..told })
    }
}

impl Judged for On<AddVdevs> {
    fn meant(mut self, acting: &Acting) -> Self {
        self.request.held_until_s = acting.typed_here(self.request.held_until_s);
        self
    }

    fn told(&self) -> Told {
        let about = unless(self.request.dry_run, About::Pool(self.name.clone()));
        by_force(self.request.force, self.on(about))
    }
}

/// By force it drops what only the disk has.
impl Judged for On<OnlineDisk> {
    fn told(&self) -> Told {
        let (told, force) = (self.on(About::Pool(self.name.clone())), self.request.force);
        let needs = if force { Role::Admin } else { told.needs };
        by_force(force, Told { needs, ..told })
    }
}

impl Judged for On<ReplaceDisk> {
    fn meant(mut self, acting: &Acting) -> Self {
        self.request.held_until_s = acting.typed_here(self.request.held_until_s);
        self
    }

    fn told(&self) -> Told {
        by_force(self.request.force, self.on(About::Pool(self.name.clone())))
    }
}

impl Judged for On<AttachDisk> {
    fn meant(mut self, acting: &Acting) -> Self {
        self.request.0.held_until_s = acting.typed_here(self.request.0.held_until_s);
        self
    }

    fn told(&self) -> Told {
        by_force(self.request.0.force, self.on(About::Pool(self.name.clone())))
    }
}

/// Operations on a pool that need no more than their route.
macro_rules! on_pools {
    ($($request:ident),*) => {$(
        impl Judged for On<$request> {
            fn told(&self) -> Told {
                self.on(About::Pool(self.name.clone()))
            }
        }
    )*};
}

on_pools!(ClearPool, ClearDisk, DetachDisk, OfflineDisk, RemoveDisk);
on_pools!(DrillRequest, FreeWorkRequest, ScrubRequest);

/// The faults are none of the pool's history: its disks are as they were.
#[cfg(debug_assertions)]
impl Judged for On<aquifer_api::InjectRequest> {
    fn told(&self) -> Told {
        self.on(About::Nothing)
    }
}

impl Judged for ReceiveRequest {
    fn told(&self) -> Told {
        let ReceiveRequest { name, dry_run, new_handles, force, sender, properties, .. } = self;
        // Of what is sent again and again, the end is noted.
        let is_nothing = *dry_run || sender.is_some() && !force;
        let told = self.on(unless(is_nothing, all_of(name))).naming(dataset(name));
        // Who may only receive takes nothing away, and brings no dataset into service.
        let is_admins = *force || *new_handles || !properties.is_empty();
        let needs = if is_admins { Role::Admin } else { told.needs };
        // A stream does not wait for a second person.
        let guard = if *force { Guard::Never(name.clone()) } else { Guard::Free };
        Told { needs, of: Some(name.clone()), guard, ..told }
    }
}

impl Judged for GiveUpReceive {
    fn told(&self) -> Told {
        self.on(all_of(&self.name)).naming(dataset(&self.name))
    }
}

/// Snapshots that another server fetches.
impl Judged for TakePull {
    fn told(&self) -> Told {
        let named = self.datasets.iter().map(|name| Named::Dataset(name.to_string()));
        let of = self.datasets.first().map(DatasetName::to_string);
        Told { of, ..self.on(About::Nothing).naming(named) }
    }

    fn judged(&self, told: Told, acting: &Acting) -> Told {
        let (control, named) = (acting.control(), told.named.as_deref().unwrap_or_default());
        let is_known = control.check_named(acting.scope(), named).is_ok();
        let is_noted = |puller| control.is_pull_noted(&puller, &self.datasets);
        match &told.of {
            Some(first) if is_known && acting.puller().is_ok_and(is_noted) => {
                Told { about: About::snapshots(first), ..told }
            }
            _ => told,
        }
    }
}

/// Of what is fetched again and again, the beginning is noted.
impl Judged for SettlePull {
    fn told(&self) -> Told {
        let name = self.dataset.to_string();
        Told { of: Some(name.clone()), ..self.on(About::Nothing).naming(dataset(&name)) }
    }
}

/// As of [`SettlePull`].
impl Judged for PrunePull {
    fn told(&self) -> Told {
        let name = self.dataset.to_string();
        Told { of: Some(name.clone()), ..self.on(About::Nothing).naming(dataset(&name)) }
    }
}

impl Judged for ReplicateRequest {
    fn told(&self) -> Told {
        // Snapshots change here: of the dataset, or of the copy.
        let here = if self.pull { &self.target } else { &self.dataset };
        // The target may be in a pool of this server.
        by_force(self.force, self.on(About::snapshots(here)))
    }
}

impl Judged for StopReplication {
    fn told(&self) -> Told {
        self.on(About::snapshots(if self.pull { &self.target } else { &self.dataset }))
    }
}

impl Judged for ClearLocks {
    fn told(&self) -> Told {
        self.on(About::Locks(self.address))
    }
}

impl Judged for CreateToken {
    fn told(&self) -> Told {
        let told = self.on(About::Token(self.name.clone()));
        // It could confirm, ask for so much that others cannot, or prune as the feeder of a copy.
        let is_harmless = matches!(self.role, Role::Metrics | Role::Read);
        if is_harmless { told } else { told.guarded(Guard::All) }
    }
}

/// Acts on a token. One who has an administrator's token does not get another one, or that of a
/// feeder, nor takes one from others, alone.
macro_rules! on_tokens {
    ($($request:ident),*) => {$(
        impl Judged for On<$request> {
            fn told(&self) -> Told {
                self.on(About::Token(self.name.clone()))
            }

            fn judged(&self, told: Told, acting: &Acting) -> Told {
                match acting.takes_two(&self.name) {
                    true => told.guarded(Guard::All),
                    false => told,
                }
            }
        }
    )*};
}

on_tokens!(BindToken, RevokeToken, RotateToken);
