//! Setting properties, and the values in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{FEATURE_RECEIVE, FEATURE_REFRESERVATION, FEATURE_USER_PROPERTIES};
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_pool::PoolError;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::entrance::Shut;
use crate::error::DatasetError;
use crate::limits::NewLimits;
use crate::property::{LocalValues, Properties, Property, SyncMode};
use crate::property_name::{PropertyName, check_values, items_of, value_items};
use crate::two_persons::TwoPersons;

impl Datasets {
    /// Names the features in the label that these properties need.
    pub(crate) async fn admit_names<'a>(
        &self,
        names: impl Iterator<Item = &'a PropertyName>,
    ) -> Result<(), DatasetError> {
        let names: Vec<_> = names.collect();
        if names.iter().any(|name| **name == Property::Refreservation.into()) {
            self.use_feature(FEATURE_REFRESERVATION).await?;
        }
        match names.into_iter().any(PropertyName::is_users) {
            true => self.use_feature(FEATURE_USER_PROPERTIES).await,
            false => Ok(()),
        }
    }

    /// The properties of users that are in force for a dataset: name, value, and where it comes
    /// from.
    pub fn user_values(&self, dataset: &Dataset) -> Vec<(String, String, String)> {
        let mut all: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut take = |of: &Dataset, source: &str| {
            for (name, value) in of.local.lock().iter().filter(|(name, _)| name.is_users()) {
                let value = || (value.clone(), source.to_string());
                all.entry(name.name().to_string()).or_insert_with(value);
            }
        };
        take(dataset, "local");
        for above in self.above(dataset) {
            take(&above, &format!("inherited from {}", self.full_name(&above)));
        }
        all.into_iter().map(|(name, (value, source))| (name, value, source)).collect()
    }

    /// The pool's own value of `two_persons`. One that cannot be read, as of a later release, is
    /// the strictest.
    pub fn two_persons(&self) -> TwoPersons {
        let Some(own) = self.by_name(self.pool.name()) else { return TwoPersons::On };
        let (value, _) = self.value(&own, Property::TwoPersons);
        TwoPersons::parse(&value).unwrap_or(TwoPersons::On)
    }

    /// Sets a property; it is on disk when this returns. `None` restores the inherited value.
    ///
    /// # Errors
    /// As [`Datasets::set_all`].
    pub async fn set(
        &self,
        name: &str,
        property: &str,
        value: Option<&str>,
    ) -> Result<(), DatasetError> {
        self.set_all(name, &[(property.into(), value.map(String::from))]).await
    }

    /// Sets properties of a dataset, all in one txg; they are on disk when this returns. `None`
    /// restores the inherited value.
    ///
    /// # Errors
    /// Unknown datasets and properties, bad values, limits without room. Then all are as they were.
    pub async fn set_all(
        &self,
        name: &str,
        changes: &[(String, Option<String>)],
    ) -> Result<(), DatasetError> {
        let changes = parse(changes)?;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let is_pools_own = dataset.record.lock().parent.0 == 0;
        let of_pool = |name: &PropertyName| match name {
            PropertyName::Native(property) => Some(*property).filter(|of| of.is_of_pool()),
            PropertyName::User(_) => None,
        };
        if let Some(property) = changes.keys().find_map(of_pool).filter(|_| !is_pools_own) {
            return Err(self.belongs_to_pool(property));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let _act = self.acts.lock().await;
        if dataset.is_destroyed() {
            return Err(DatasetError::NotFound(name.into()));
        }
        self.admit_changes(&dataset, &changes).await?;
        let items = changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
        let items = items_of(&items.collect()).saturating_add(changes.len() as u64);
        let limits = NewLimits::of(&dataset, &changes);
        if let Some(limits) = &limits {
            self.make_room_for(limits).await?;
            let _one = self.promises.lock();
            self.check_limits(limits)?;
        }
        let (unlogged, logged) = self.split_by_sync(&dataset, &changes);
        let left: Vec<Arc<Dataset>> =
            logged.iter().filter(|of| of.unlogged.is_on()).cloned().collect();
        let _shut = self.log_again(&logged).await?;
        let begun = {
            let hold = self.hold_act_with(items).await?;
            let _one = self.promises.lock();
            if let Some(limits) = &limits {
                // What stays unlogged by its property goes on so.
                let checked = self.check_limits(limits);
                checked.inspect_err(|_| left.iter().for_each(|of| of.unlogged.begin(&hold)))?;
            }
            if let Some(limits) = limits.as_ref().filter(|limits| limits.reserves())
                && !left_out(Rule::ReleasedOnDiskFirst)
            {
                limits.keep_present();
            }
            let begin = |of: &&Arc<Dataset>| !of.unlogged.is_on();
            let begun = unlogged.iter().filter(begin).map(|of| of.unlogged.begin(&hold)).count();
            self.note_values(&dataset, hold.txg(), &changes);
            self.refresh_properties();
            begun
        };
        self.act_on_disk().await?;
        if let Some(limits) = limits.filter(NewLimits::reserves) {
            limits.keep_new();
            self.refresh_properties();
        }
        if begun > 0 {
            // The txg after this one is the first without records.
            self.pool.sync().await?;
        }
        Ok(())
    }

    /// Fails if a change of these properties is out of place now. Names their features in the
    /// label. The caller holds the lock of acts.
    async fn admit_changes(
        &self,
        dataset: &Dataset,
        changes: &Changes,
    ) -> Result<(), DatasetError> {
        let mut after = dataset.local.lock().clone();
        apply(&mut after, changes);
        check_values(&after)?;
        let [retains, bounds] =
            [Property::Retain, Property::HoldMax].map(|of| changes.contains_key(&of.into()));
        if retains || bounds {
            self.check_retain(Some(dataset), &after, retains)?;
        }
        if let Some(standby) = changes.get(&Property::Standby.into()) {
            if standby.as_deref() != Some("on") {
                self.check_no_increment(dataset)?;
                self.check_service(dataset)?;
            }
            self.use_feature(FEATURE_RECEIVE).await?;
        }
        let set = changes.iter().filter(|(_, value)| value.is_some());
        self.admit_names(set.map(|(name, _)| name)).await
    }

    /// Of the datasets that a changed `sync` reaches: those that will be unlogged, and those that
    /// will be logged.
    fn split_by_sync(
        &self,
        dataset: &Dataset,
        changes: &Changes,
    ) -> (Vec<Arc<Dataset>>, Vec<Arc<Dataset>>) {
        let Some(value) = changes.get(&Property::Sync.into()) else { return Default::default() };
        self.living().into_iter().partition(|of| {
            let change = Some((dataset.id, value.as_deref()));
            SyncMode::of(&self.value_after(of, Property::Sync, change).0) == SyncMode::Disabled
        })
    }

    pub(crate) fn belongs_to_pool(&self, property: Property) -> DatasetError {
        let why = format!("belongs to the pool: set it on {}", self.pool.name());
        DatasetError::BadProperty { property: property.name().into(), why }
    }

    /// Sets values in `txg`. Under a hold of it.
    fn note_values(&self, dataset: &Dataset, txg: Txg, changes: &Changes) {
        let mut state = self.state.lock();
        // What goes first: its number may be that of a name that comes.
        let (come, go): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, value)| value.is_some());
        for (name, value) in go.into_iter().chain(come) {
            state.queue.write(txg, value_items(dataset.id, name, value.as_ref()));
        }
        let standby = changes.get(&Property::Standby.into());
        if standby.is_some_and(|standby| standby.as_deref() != Some("on")) {
            dataset.steps_back.store(false, Ordering::SeqCst);
        }
        apply(&mut dataset.local.lock(), changes);
    }

    /// Makes all changes of these datasets logged from now on. None begins until the returned
    /// guards are dropped.
    pub(crate) async fn log_again(
        &self,
        datasets: &[Arc<Dataset>],
    ) -> Result<Vec<Shut>, PoolError> {
        let mut left: Vec<&Arc<Dataset>> =
            datasets.iter().filter(|of| of.unlogged.is_on()).collect();
        let shut = left.iter().map(|of| of.entrance.shut_for_a_while()).collect();
        while !left.is_empty() {
            if !left_out(Rule::UnloggedOnDiskFirst) {
                self.pool.sync().await?;
            }
            left.retain(|of| !of.unlogged.end(self.pool.committed_txg()));
        }
        Ok(shut)
    }

    /// A property's value in force, and where it comes from.
    pub fn value(&self, dataset: &Dataset, property: Property) -> (String, String) {
        self.value_after(dataset, property, None)
    }

    /// Returns a property's value in force, and where it comes from, as if one dataset's own value
    /// were that of `change`.
    fn value_after(
        &self,
        dataset: &Dataset,
        property: Property,
        change: Option<(DatasetId, Option<&str>)>,
    ) -> (String, String) {
        let own = |of: &Dataset| match change {
            Some((changed, value)) if changed == of.id => value.map(str::to_string),
            _ => of.local.lock().get(&property.into()).cloned(),
        };
        if let Some(value) = own(dataset) {
            return (value, "local".into());
        }
        let above = if property.is_inherited() { self.above(dataset) } else { Vec::new() };
        for above in above {
            if let Some(value) = own(&above) {
                return (value, format!("inherited from {}", self.full_name(&above)));
            }
        }
        (property.default_value().into(), "default".into())
    }

    pub(crate) fn refresh_properties(&self) {
        for dataset in self.living() {
            let properties = Properties::from_values(|property| self.value(&dataset, property).0);
            *dataset.properties.write() = Arc::new(properties);
            let is_standby = self.value(&dataset, Property::Standby).0 == "on";
            let is_standby = is_standby || dataset.steps_back.load(Ordering::SeqCst);
            dataset.standby.store(is_standby, Ordering::SeqCst);
            // A sync that begins from now on keeps, or drops, its sums.
            if dataset.refreserved_bytes() > 0 || dataset.has_sums_on_disk() {
                self.awake.wake(dataset.id, self.pool.open_txg());
            }
        }
        let limits = |of: &Arc<Dataset>| {
            let reserves = of.reserved_bytes() > 0 || of.refreserved_bytes() > 0;
            reserves || of.properties().quota_bytes.is_some()
        };
        self.limited.store(self.keeping().iter().any(limits), Ordering::SeqCst);
        let own = self.by_name(self.pool.name());
        let is_on = own.is_some_and(|own| self.value(&own, Property::Autotrim).0 == "on");
        self.pool.set_autotrim(is_on);
    }
}

/// Changes of a dataset's own values. `None` restores the inherited one.
pub(crate) type Changes = BTreeMap<PropertyName, Option<String>>;

fn apply(values: &mut LocalValues, changes: &Changes) {
    for (name, value) in changes {
        match value {
            Some(value) => values.insert(name.clone(), value.clone()),
            None => values.remove(name),
        };
    }
}

fn parse(changes: &[(String, Option<String>)]) -> Result<Changes, DatasetError> {
    let mut parsed = Changes::new();
    for (name, value) in changes {
        let property = PropertyName::parse(name)?;
        let value = value.as_deref().map(|value| property.parse_value(value)).transpose()?;
        if parsed.insert(property, value).is_some() {
            let why = "is given twice".into();
            return Err(DatasetError::BadProperty { property: name.clone(), why });
        }
    }
    Ok(parsed)
}

/// The bytes of a value that is a limit.
pub(crate) fn bytes_of(value: Option<&String>) -> u64 {
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}
