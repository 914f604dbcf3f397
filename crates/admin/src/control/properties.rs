//! Properties in an administrator's request: checked before anything is changed.

use aquifer_api::ApiError;
use aquifer_dataset::{Property, PropertyName};

use super::errors::api_error;
use super::replicate::{self, Peers};
use crate::sharenfs;

/// Whether `property=value` can be set on `dataset`; `peers`: those that replication knows.
pub(super) fn check(
    dataset: &str,
    property: &str,
    value: &str,
    peers: &Peers,
) -> Result<(), ApiError> {
    let name = known(property)?;
    name.parse_value(value).map_err(api_error)?;
    let PropertyName::Native(known) = name else { return Ok(()) };
    if known == Property::Sharenfs {
        let share = sharenfs::parse(dataset, value);
        share.map_err(|why| ApiError::invalid(format!("property sharenfs: {why}")))?;
    }
    if known == Property::Snapcontrol {
        let clients = sharenfs::snapcontrol(value);
        clients.map_err(|why| ApiError::invalid(format!("property snapcontrol: {why}")))?;
    }
    replicate::check(known, value, peers)
}

/// Checks all properties of a dataset that is not there yet.
pub(super) fn check_new<'a>(
    dataset: &str,
    properties: impl IntoIterator<Item = (&'a String, &'a String)>,
    peers: &Peers,
) -> Result<(), ApiError> {
    for (property, value) in properties {
        check(dataset, property, value, peers)?;
        if property == Property::Pull.name() && value != Property::Pull.default_value() {
            return Err(ApiError::invalid(format!(
                "property pull: a new dataset is in service, and nothing is fetched into it: \
                 `aquifer replicate --pull PEER:POOL/NAME {dataset}` makes a copy; set it then"
            )));
        }
    }
    Ok(())
}

/// The property of this name, or the reason why there is none.
pub(super) fn known(property: &str) -> Result<PropertyName, ApiError> {
    let absent = ABSENT.iter().find(|(name, _)| *name == property);
    if let Some((name, why)) = absent {
        return Err(ApiError::invalid(format!("property {name}: {why}")));
    }
    PropertyName::parse(property).map_err(api_error)
}

/// Properties known from ZFS that do not exist here, or cannot be set.
const ABSENT: [(&str, &str); 16] = [
    ("ashift", "does not exist here: a sector is 4 KiB on every disk"),
    ("checksum", "does not exist here: every page has a checksum, which cannot be switched off"),
    ("mountpoint", NOT_MOUNTED),
    ("canmount", NOT_MOUNTED),
    ("volsize", "does not exist here: the disk of a VM is a file in a dataset"),
    ("used", READ_ONLY),
    ("available", READ_ONLY),
    ("referenced", READ_ONLY),
    ("refer", READ_ONLY),
    ("usedbyrefreservation", READ_ONLY),
    ("logicalused", READ_ONLY),
    ("logicalreferenced", READ_ONLY),
    ("compressratio", READ_ONLY),
    ("refcompressratio", READ_ONLY),
    ("freeing", READ_ONLY),
    ("next_snapshot", READ_ONLY),
];

const NOT_MOUNTED: &str = "does not exist here: a dataset is not mounted on this machine; clients \
                           reach it over NFS as / and its name (property sharenfs)";
const READ_ONLY: &str = "cannot be set, only read";
