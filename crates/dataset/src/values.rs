//! Setting properties, and the values in force.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::DatasetId;
use aquifer_ondisk::config::FEATURE_RECEIVE;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_pool::{PoolError, TxHold};
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::entrance::Shut;
use crate::error::DatasetError;
use crate::property::{Properties, Property, SyncMode};
use crate::quota::Wanted;

impl Datasets {
    /// Sets a property; it is on disk when this returns. `None` restores the inherited value.
    ///
    /// # Errors
    /// Unknown datasets and properties, bad values.
    pub async fn set(
        &self,
        name: &str,
        property: &str,
        value: Option<&str>,
    ) -> Result<(), DatasetError> {
        let property = Property::from_name(property)?;
        let value = value.map(|value| property.parse(value)).transpose()?;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        if property.is_of_pool() && dataset.record.lock().parent.0 != 0 {
            return Err(self.belongs_to_pool(property));
        }
        let reserves = (property == Property::Reservation)
            .then(|| Wanted::Of(dataset.id, bytes_of(value.as_ref())));
        let _act = self.acts.lock().await;
        if dataset.is_destroyed() {
            return Err(DatasetError::NotFound(name.into()));
        }
        if property == Property::Standby {
            self.use_feature(FEATURE_RECEIVE).await?;
            if value.as_deref() != Some("on") {
                self.check_no_increment(&dataset)?;
                self.check_service(&dataset)?;
                dataset.steps_back.store(false, Ordering::SeqCst);
            }
        }
        // Splits the datasets that the value reaches into those that will be unlogged and those
        // that will be logged.
        let (unlogged, logged): (Vec<_>, Vec<_>) = match property {
            Property::Sync => self.living().into_iter().partition(|of| {
                let change = Some((dataset.id, value.as_deref()));
                SyncMode::of(&self.value_after(of, property, change).0) == SyncMode::Disabled
            }),
            _ => Default::default(),
        };
        let _shut = self.log_again(&logged).await?;
        if let Some(wanted) = reserves {
            self.make_room(wanted).await?;
        }
        let begun = {
            let hold = self.hold_act().await?;
            let begin = |of: &&Arc<Dataset>| !of.unlogged.is_on();
            let begun = unlogged.iter().filter(begin).map(|of| of.unlogged.begin(&hold)).count();
            let _one = self.promises.lock();
            if let Some(wanted) = reserves {
                self.check_reservation(wanted)?;
                if !left_out(Rule::ReleasedOnDiskFirst) {
                    dataset.kept_bytes.store(dataset.reserved_bytes(), Ordering::SeqCst);
                }
            }
            self.note_value(&dataset, &hold, property, value);
            self.refresh_properties();
            begun
        };
        self.act_on_disk().await?;
        if reserves.is_some() {
            dataset.kept_bytes.store(0, Ordering::SeqCst);
            self.refresh_properties();
        }
        if begun > 0 {
            // The txg after this one is the first without records.
            self.pool.sync().await?;
        }
        Ok(())
    }

    /// Sets a value in the held txg.
    pub(crate) fn belongs_to_pool(&self, property: Property) -> DatasetError {
        let why = format!("belongs to the pool: set it on {}", self.pool.name());
        DatasetError::BadProperty { property: property.name().into(), why }
    }

    fn note_value(
        &self,
        dataset: &Dataset,
        hold: &TxHold,
        property: Property,
        value: Option<String>,
    ) {
        let mut state = self.state.lock();
        let items = state.items.entry(hold.txg()).or_default();
        let key = ItemKey::new(dataset.id, ItemClass::Property, property as u64);
        let item = value.clone().map(|value| Item { key, value: value.into_bytes() });
        items.insert(key, item);
        let mut local = dataset.local.lock();
        match value {
            Some(value) => local.insert(property, value),
            None => local.remove(&property),
        };
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

    /// The same, as if one dataset's own value were this.
    fn value_after(
        &self,
        dataset: &Dataset,
        property: Property,
        change: Option<(DatasetId, Option<&str>)>,
    ) -> (String, String) {
        let own = |of: &Dataset| match change {
            Some((changed, value)) if changed == of.id => value.map(str::to_string),
            _ => of.local.lock().get(&property).cloned(),
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
        }
        let limits =
            |of: &Arc<Dataset>| of.properties().quota_bytes.is_some() || of.reserved_bytes() > 0;
        self.limited.store(self.keeping().iter().any(limits), Ordering::SeqCst);
        let own = self.by_name(self.pool.name());
        let is_on = own.is_some_and(|own| self.value(&own, Property::Autotrim).0 == "on");
        self.pool.set_autotrim(is_on);
    }
}

/// The bytes of a value that is a limit.
pub(crate) fn bytes_of(value: Option<&String>) -> u64 {
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}
