//! Which properties a copy takes from what it receives.
//!
//! Three kinds:
//! - Those that never travel: what bounds (quota, reservation), what is done by schedule, how long
//!   snapshots are held, where a copy goes from here, whether it stands by. A copy of a full
//!   dataset has other room, and a bound that an administrator raises there would come back with
//!   each run.
//! - Those that guard: who is let in (`sharenfs`, `snapcontrol`), what may be lost (`sync`), what
//!   may be changed (`readonly`). A new copy takes them; from then on they are the copy's own. From
//!   one that may only receive, none comes that lets in or loses.
//! - All others follow the source.
//!
//! The receiver may set values (`-o`), which win, and leave some out (`-x`), of which the copy has
//! its own or inherits.

use std::collections::BTreeSet;

use crate::error::DatasetError;
use crate::feeder::Feeder;
use crate::property::{LocalValues, Property};
use crate::property_name::{PropertyName, check_values};

/// The receiver's wishes for properties.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Values of the copy, whatever the stream has.
    set: LocalValues,
    /// Properties of the stream that are left out.
    left_out: BTreeSet<PropertyName>,
}

impl Chosen {
    /// Reads names and values.
    ///
    /// # Errors
    /// Unknown names, values that are none, properties that a receive does not set.
    pub fn parse<'a>(
        set: impl IntoIterator<Item = (&'a String, &'a String)>,
        left_out: &[String],
    ) -> Result<Chosen, DatasetError> {
        let mut chosen = Chosen::default();
        for (name, value) in set {
            let property = PropertyName::parse(name)?;
            if is_set_apart(&property) {
                let why = "a receive does not set it: use `aquifer set` when the copy is there";
                return Err(DatasetError::BadProperty { property: name.clone(), why: why.into() });
            }
            let value = property.parse_value(value)?;
            chosen.set.insert(property, value);
        }
        for name in left_out {
            chosen.left_out.insert(PropertyName::parse(name)?);
        }
        Ok(chosen)
    }

    /// The value to which `sync` is set.
    pub(crate) fn sync(&self) -> Option<&String> {
        self.set.get(&Property::Sync.into())
    }

    /// The values that a new copy has of its own, of those that came.
    pub(crate) fn of_new(&self, came: &[(String, String)], feeder: Option<&Feeder>) -> LocalValues {
        let mut values = travelling(came);
        let is_lesser = feeder.is_some_and(|feeder| !feeder.is_admin);
        values.retain(|name, value| {
            !(self.left_out.contains(name) || is_lesser && lets_in_or_loses(name, value))
        });
        values.extend(self.set.clone());
        values
    }

    /// The values of a copy that had these, of those that came.
    pub(crate) fn of_old(&self, before: &LocalValues, came: &[(String, String)]) -> LocalValues {
        let is_own =
            |name: &PropertyName| stays(name) || guards(name) || self.left_out.contains(name);
        let mut after = travelling(came);
        after.retain(|name, _| !is_own(name));
        let own = before.iter().filter(|(name, _)| is_own(name));
        after.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let set = self.set.iter().filter(|(name, _)| **name != Property::Sync.into());
        after.extend(set.map(|(name, value)| (name.clone(), value.clone())));
        after
    }
}

/// Whether a property does not travel.
fn stays(name: &PropertyName) -> bool {
    let PropertyName::Native(property) = name else { return false };
    *property == Property::Quota || is_set_apart(name)
}

/// Whether it is set by an act of its own: a reservation may have no room here, schedules would
/// begin at once, nobody takes back what `retain` holds, and from where a copy comes, and where it
/// goes from here, is no matter of what comes.
fn is_set_apart(name: &PropertyName) -> bool {
    let PropertyName::Native(property) = name else { return false };
    let is_own = matches!(
        property,
        Property::Reservation
            | Property::Refreservation
            | Property::Snapshots
            | Property::Filesnapshots
            | Property::Standby
            | Property::Replicate
            | Property::Pull
            | Property::Retain
    );
    is_own || property.is_of_pool()
}

/// Whether it is the copy's own once the copy is there.
fn guards(name: &PropertyName) -> bool {
    let PropertyName::Native(property) = name else { return false };
    matches!(
        property,
        Property::Sharenfs | Property::Snapcontrol | Property::Sync | Property::Readonly
    )
}

/// Whether only an administrator may bring this value.
fn lets_in_or_loses(name: &PropertyName, value: &str) -> bool {
    let PropertyName::Native(property) = name else { return false };
    match property {
        Property::Sharenfs | Property::Snapcontrol => true,
        Property::Sync => value.starts_with("disabled"),
        _ => false,
    }
}

/// The values that came, of those that travel. One whose value is not known here comes from a newer
/// release, as do more of users than a dataset can keep: of those, none is taken.
fn travelling(properties: &[(String, String)]) -> LocalValues {
    let known = properties.iter().filter_map(|(name, value)| {
        let name = PropertyName::parse(name).ok().filter(|name| !stays(name))?;
        let value = name.parse_value(value).ok()?;
        Some((name, value))
    });
    let mut known: LocalValues = known.collect();
    if check_values(&known).is_err() {
        known.retain(|name, _| !name.is_users());
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAME: [(&str, &str); 8] = [
        ("compression", "zstd"),
        ("quota", "1073741824"),
        ("reservation", "1073741824"),
        ("refreservation", "1073741824"),
        ("sharenfs", "on"),
        ("snapcontrol", "10.0.0.1"),
        ("sync", "disabled:test"),
        ("standby", "off"),
    ];

    fn came() -> Vec<(String, String)> {
        CAME.map(|(name, value)| (name.into(), value.into())).to_vec()
    }

    fn shown(values: &LocalValues) -> Vec<String> {
        values.iter().map(|(name, value)| format!("{}={value}", name.name())).collect()
    }

    fn feeder(is_admin: bool) -> Feeder {
        Feeder { principal: "token b".into(), is_admin }
    }

    #[test]
    fn a_receiver_brings_nothing_that_lets_in_loses_or_bounds() {
        let new = |of: Option<Feeder>| shown(&Chosen::default().of_new(&came(), of.as_ref()));
        assert_eq!(new(Some(feeder(false))), ["compression=zstd"]);
        let all = new(None);
        assert_eq!(all.len(), 4, "{all:?}");
        assert_eq!(new(Some(feeder(true))), all);
    }

    #[test]
    fn an_increment_leaves_what_guards_the_copy_as_it_is_there() {
        let name = |name: &str| PropertyName::parse(name).unwrap();
        let before: LocalValues = [
            ("quota", "7"),
            ("sharenfs", "ro"),
            ("sync", "always"),
            ("compression", "lz4"),
            ("standby", "on"),
        ]
        .map(|(of, value)| (name(of), value.to_string()))
        .into();
        let after = Chosen::default().of_old(&before, &came());
        let mut expected = before.clone();
        expected.insert(name("compression"), "zstd".into());
        assert_eq!(shown(&after), shown(&expected));
        // What is set wins, and what is left out stays as it was.
        let set = [("sharenfs".to_string(), "off".to_string())];
        let set = set.iter().map(|(name, value)| (name, value));
        let chosen = Chosen::parse(set, &["compression".into()]).unwrap();
        let after = chosen.of_old(&before, &came());
        expected.insert(name("compression"), "lz4".into());
        expected.insert(name("sharenfs"), "off".into());
        assert_eq!(shown(&after), shown(&expected));
    }

    #[test]
    fn what_has_an_act_of_its_own_is_not_set_by_the_way() {
        for name in [
            "standby",
            "reservation",
            "refreservation",
            "replicate",
            "pull",
            "snapshots",
            "retain",
            "scrub",
            "nothing",
        ] {
            let (name, value) = (name.to_string(), "off".to_string());
            assert!(Chosen::parse([(&name, &value)], &[]).is_err(), "{name}");
        }
    }
}
