//! Which acts over the network wait for a second person, by the property `two_persons` of pools.
//!
//! Invariants:
//! - A pool that is on the list and not in service counts with the value that it had: a restart, or
//!   a disk that is away, lets nobody through.
//! - A name that means no pool on the list counts as all pools.
//! - What waits is carried out only if its names mean what they meant when it was asked for.

use std::collections::BTreeMap;

use aquifer_api::{ApiError, SetProperties};
pub use aquifer_dataset::TwoPersons;
use aquifer_dataset::{FullName, Property};
use aquifer_files::subject::{Subject, pools};

use super::serving::Serving;
use super::{Bringer, Control, Listed};
use crate::cache::CachedPool;

/// By which pools an act waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Guard {
    /// By none: it loses nothing.
    #[default]
    Free,
    /// By those that these names begin with: of pools, datasets, snapshots, bookmarks.
    Of(Vec<String>),
    /// By the strictest of all pools on the list.
    All,
    /// As `Of` a dataset that loses something; but it cannot wait, and is refused.
    Never(String),
    /// It sets properties of a dataset.
    Set {
        /// The dataset.
        name: String,
        /// They lose something, whatever they were before.
        loses: bool,
        /// The new value of `two_persons`: one that is less strict loses something.
        two_persons: Option<TwoPersons>,
    },
}

impl Guard {
    /// That of an act that sets properties: `snapcontrol` lets hosts destroy snapshots, schedules
    /// prune, and `retain` places holds that nobody takes back, or places them no more.
    pub fn of_properties(request: &SetProperties) -> Guard {
        let SetProperties { name, properties, .. } = request;
        let loses = properties.iter().any(|(name, value)| match name.as_str() {
            "snapcontrol" => value.as_deref() != Some("off"),
            "snapshots" | "filesnapshots" | "retain" => true,
            _ => false,
        });
        let default = Property::TwoPersons.default_value();
        let two_persons = properties.get(Property::TwoPersons.name());
        let two_persons = two_persons
            // A value that is none is refused later.
            .and_then(|value| TwoPersons::parse(value.as_deref().unwrap_or(default)).ok());
        match (loses, two_persons) {
            (false, None) => Guard::Free,
            _ => Guard::Set { name: name.clone(), loses, two_persons },
        }
    }

    /// The names of which it must stay certain what they mean.
    fn names(&self) -> Vec<&String> {
        match self {
            Guard::Of(names) => names.iter().collect(),
            Guard::Set { name, .. } | Guard::Never(name) => vec![name],
            Guard::Free | Guard::All => Vec::new(),
        }
    }
}

/// Meaning of names at one moment: pools by guid, datasets by id, snapshots by txg.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meant(BTreeMap<String, (String, Option<u64>, Option<u64>)>);

impl Control {
    /// How an act waits.
    pub fn two_persons(&self, guard: &Guard) -> TwoPersons {
        match guard {
            Guard::Free => TwoPersons::Off,
            Guard::Of(names) => {
                names.iter().map(|name| self.two_persons_of(name)).max().unwrap_or_default()
            }
            Guard::All => self.strictest(),
            Guard::Never(name) => self.two_persons_of(name),
            Guard::Set { name, loses, two_persons } => {
                let now = self.two_persons_of(name);
                let weakens = two_persons.is_some_and(|then| then < now);
                if *loses || weakens { now } else { TwoPersons::Off }
            }
        }
    }

    fn two_persons_of(&self, name: &str) -> TwoPersons {
        let listed = pools(name)
            .next()
            .and_then(|pool| self.pools.read().get(pool).map(Listed::two_persons));
        let of_one = || self.pool_of_one(name).ok().map(|serving| of_serving(&serving));
        listed.or_else(of_one).unwrap_or_else(|| self.strictest())
    }

    fn strictest(&self) -> TwoPersons {
        self.pools.read().values().map(Listed::two_persons).max().unwrap_or_default()
    }

    /// Looks up what the names of an act mean now.
    ///
    /// # Errors
    /// One means nothing.
    pub fn meant(&self, guard: &Guard) -> Result<Meant, ApiError> {
        let each = guard.names().into_iter();
        each.map(|name| Ok((name.clone(), self.meant_by(name)?)))
            .collect::<Result<_, _>>()
            .map(Meant)
    }

    fn meant_by(&self, name: &str) -> Result<(String, Option<u64>, Option<u64>), ApiError> {
        let listed = self.pools.read().get(name).map(|listed| listed.cached.guid.clone());
        if let Some(guid) = listed {
            return Ok((guid, None, None));
        }
        let serving = self.pool_of_one(name)?;
        let datasets = &serving.service().datasets;
        let subject = Subject::parse(datasets, name).map_err(|_| {
            let place = FullName::of(name).dataset();
            ApiError::not_found(format!("there is no dataset {place:?}: nothing was done"))
        })?;
        let dataset = subject.dataset().id.0;
        let one = subject.one_snapshot(name).ok();
        let snapshot = one.and_then(|one| datasets.snapshot_by_name(&one.full).ok());
        let guid = aquifer_api::guid_text(serving.service().pool.guid().0);
        Ok((guid, Some(dataset), snapshot.map(|(_, snapshot)| snapshot.txg.0)))
    }

    /// Whether one that brings a stream would wait for a second person, if it destroyed something
    /// in the pool of this dataset.
    pub(super) fn waits_for_second(&self, bringer: &Bringer, dataset: &str) -> bool {
        bringer.has_token() && self.two_persons_of(dataset) != TwoPersons::Off
    }

    /// Keeps a pool's value on the list, for when it is not in service. Returns a note if that
    /// cannot be written.
    pub(super) fn keep_two_persons(&self, pool: &str) -> Option<String> {
        let value = kept_value(&*self.serving(pool).ok()?);
        if let Some(listed) = self.pools.write().get_mut(pool) {
            listed.cached.two_persons = value;
        }
        self.store().err().map(|error| error.to_string())
    }
}

impl Listed {
    fn two_persons(&self) -> TwoPersons {
        match self.serving() {
            Some(serving) => of_serving(serving),
            None => self.cached.two_persons(),
        }
    }

    /// With what the list keeps of the pool's properties.
    pub(super) fn kept_anew(mut self) -> Listed {
        if let Some(serving) = self.serving() {
            self.cached.two_persons = kept_value(serving);
        }
        self
    }
}

impl CachedPool {
    /// One that cannot be read is the strictest.
    fn two_persons(&self) -> TwoPersons {
        let value = self.two_persons.as_deref();
        value.map_or(TwoPersons::Off, |value| TwoPersons::parse(value).unwrap_or(TwoPersons::On))
    }
}

fn kept_value(serving: &Serving) -> Option<String> {
    let value = of_serving(serving);
    (value != TwoPersons::Off).then(|| value.to_string())
}

fn of_serving(serving: &Serving) -> TwoPersons {
    serving.service().datasets.two_persons()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prunes_or_lets_hosts_destroy_waits_and_other_properties_do_not() {
        let guard = |name: &str, value: Option<&str>| {
            let properties = [(name.to_string(), value.map(str::to_string))].into();
            let request = SetProperties { name: "tank/a".into(), properties, exports: false };
            Guard::of_properties(&request)
        };
        let name = || "tank/a".to_string();
        let set = |loses, two_persons| Guard::Set { name: name(), loses, two_persons };
        for (property, value) in [
            ("snapcontrol", Some("10.0.0.1")),
            ("snapcontrol", None),
            ("snapshots", Some("off")),
            ("filesnapshots", None),
            ("retain", Some("1d")),
        ] {
            assert_eq!(guard(property, value), set(true, None), "{property} {value:?}");
        }
        for (property, value) in [
            ("snapcontrol", Some("off")),
            ("sharenfs", Some("on")),
            ("sync", None),
            ("hold_max", Some("1d")),
            ("two_persons", Some("perhaps")),
        ] {
            assert_eq!(guard(property, value), Guard::Free, "{property} {value:?}");
        }
        assert_eq!(guard("two_persons", None), set(false, Some(TwoPersons::Off)));
        assert_eq!(
            guard("two_persons", Some("delay=1h")),
            set(false, Some(TwoPersons::Delay(3600)))
        );
    }
}
