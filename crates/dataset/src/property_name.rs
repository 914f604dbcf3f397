//! Names of properties: those that this software knows, and those that users make up.
//!
//! A name with a colon is a user's. It takes any text, means nothing here, and is inherited. What a
//! dataset keeps of them is bounded, so that a namespace stays small.

use std::collections::BTreeMap;

use aquifer_ondisk::DatasetId;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::user_property::{
    USER_VALUE_BYTES_MAX, UserProperty, check_user_name, check_user_properties, user_name_number,
    user_property_keys,
};

use crate::error::DatasetError;
use crate::property::{LocalValues, Property};

/// The name of a property that can be set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PropertyName {
    /// One that means something here.
    Native(Property),
    /// One that a user made up.
    User(String),
}

impl PropertyName {
    /// The property of this name.
    ///
    /// # Errors
    /// Unknown names without a colon; names of users that are not allowed.
    pub fn parse(name: &str) -> Result<PropertyName, DatasetError> {
        if !name.contains(':') {
            return Property::from_name(name).map(PropertyName::Native);
        }
        match check_user_name(name) {
            Ok(()) => Ok(PropertyName::User(name.to_string())),
            Err(why) => Err(bad(name, format!("the name {why}"))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            PropertyName::Native(property) => property.name(),
            PropertyName::User(name) => name,
        }
    }

    /// Checks a value and converts it to its stored form.
    ///
    /// # Errors
    /// Values that the property does not take.
    pub fn parse_value(&self, value: &str) -> Result<String, DatasetError> {
        match self {
            PropertyName::Native(property) => property.parse(value),
            PropertyName::User(name) if value.len() > USER_VALUE_BYTES_MAX => {
                let (bytes, most) = (value.len(), USER_VALUE_BYTES_MAX);
                Err(bad(name, format!("the value has {bytes} bytes, {most} are allowed")))
            }
            PropertyName::User(_) => Ok(value.to_string()),
        }
    }

    /// Whether a user made it up.
    pub(crate) fn is_users(&self) -> bool {
        matches!(self, PropertyName::User(_))
    }
}

impl From<Property> for PropertyName {
    fn from(property: Property) -> PropertyName {
        PropertyName::Native(property)
    }
}

/// The items that make this the value of a dataset's property; `None`: it has none.
pub(crate) fn value_items(
    dataset: DatasetId,
    name: &PropertyName,
    value: Option<&String>,
) -> Vec<(ItemKey, Option<Item>)> {
    match name {
        PropertyName::Native(property) => {
            let key = ItemKey::new(dataset, ItemClass::Property, *property as u64);
            let item = value.map(|value| Item { key, value: value.clone().into_bytes() });
            vec![(key, item)]
        }
        PropertyName::User(name) => {
            let property =
                value.map(|value| UserProperty { name: name.clone(), value: value.clone() });
            let mut pieces = property.map_or_else(Vec::new, |of| of.pieces()).into_iter();
            let keys = user_property_keys(dataset, name);
            keys.map(|key| (key, pieces.next().map(|value| Item { key, value }))).collect()
        }
    }
}

/// How many items the values take.
pub(crate) fn items_of(values: &LocalValues) -> u64 {
    let items = |(name, value): (&PropertyName, &String)| match name {
        PropertyName::Native(_) => 1,
        PropertyName::User(name) => UserProperty::items(name.len(), value.len()),
    };
    values.iter().map(items).sum()
}

/// Fails if a dataset could not keep all of these values.
pub(crate) fn check_values(values: &LocalValues) -> Result<(), DatasetError> {
    let users = || values.iter().filter(|(name, _)| name.is_users());
    let Some((newest, _)) = users().next_back() else { return Ok(()) };
    let texts = users().map(|(name, value)| (name.name(), value.as_str()));
    check_user_properties(texts).map_err(|why| bad(newest.name(), why.into()))?;
    let mut numbers = BTreeMap::new();
    for (name, _) in users() {
        if let Some(other) = numbers.insert(user_name_number(name.name()), name.name()) {
            let why = format!("has the number of {other} on disk: choose another name");
            return Err(bad(name.name(), why));
        }
    }
    Ok(())
}

fn bad(property: &str, why: String) -> DatasetError {
    DatasetError::BadProperty { property: property.into(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_have_a_colon_and_small_letters() {
        for good in
            ["com.example:backup", "a:b", ":", "x-y_z.9:1", &format!("a:{}", "b".repeat(254))]
        {
            assert_eq!(PropertyName::parse(good).unwrap(), PropertyName::User(good.into()));
        }
        for (wrong, why) in [
            ("backup", "unknown; there are"),
            ("Com.example:backup", "capital letters"),
            ("-a:b", "begins with a dash"),
            ("a b:c", "other than a-z"),
            ("a:\u{e9}", "other than a-z"),
            (&format!("a:{}", "b".repeat(255)), "longer than 256"),
        ] {
            let error = PropertyName::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let name = PropertyName::parse("a:b").unwrap();
        assert_eq!(name.parse_value(&"x".repeat(8192)).unwrap().len(), 8192);
        assert!(name.parse_value(&"x".repeat(8193)).unwrap_err().to_string().contains("8193"));
    }

    #[test]
    fn a_value_has_the_items_that_are_counted_and_takes_away_all_others() {
        let name = PropertyName::parse("com.example:backup").unwrap();
        for bytes in [0, 1, 1173, 1174, 1175, 8192] {
            let value = "x".repeat(bytes);
            let items = value_items(DatasetId(7), &name, Some(&value));
            let there = items.iter().filter(|(_, item)| item.is_some()).count();
            let values = LocalValues::from([(name.clone(), value)]);
            assert_eq!((there as u64, items.len()), (items_of(&values), 8), "{bytes} bytes");
        }
        assert!(value_items(DatasetId(7), &name, None).iter().all(|(_, item)| item.is_none()));
    }

    #[test]
    fn what_a_dataset_keeps_is_bounded() {
        let name = |at: usize| PropertyName::User(format!("a:{at}"));
        let mut values: LocalValues = (0..128).map(|at| (name(at), "x".into())).collect();
        check_values(&values).unwrap();
        values.insert(name(128), String::new());
        assert!(check_values(&values).unwrap_err().to_string().contains("128"));
        let large: LocalValues = (0..8).map(|at| (name(at), "x".repeat(8192))).collect();
        assert!(check_values(&large).unwrap_err().to_string().contains("65536"));
    }
}
