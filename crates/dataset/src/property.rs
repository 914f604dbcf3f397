//! Properties of datasets: their names, allowed values, and inheritance.

use std::collections::BTreeMap;

use aquifer_meter::{size, time};
use aquifer_ondisk::dataset::PROPERTY_STANDBY;
use aquifer_ondisk::extent::Compression;

use crate::error::DatasetError;
use crate::file_schedule::FileSchedule;
use crate::hold_span::parse_retain;
use crate::property_name::PropertyName;
use crate::schedule::Schedule;
use crate::two_persons::TwoPersons;

/// A settable property. The number is its item number on disk, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u64)]
pub enum Property {
    /// `on`, `off`, `lz4`, `zstd`.
    Compression = 1,
    /// `standard`, `always`, `disabled:` and a reason.
    Sync = 2,
    /// Bytes that the dataset and its children may use, or `none`.
    Quota = 3,
    /// Bytes kept for the dataset and its children, or `none`.
    Reservation = 4,
    /// `on`, `off`.
    Readonly = 5,
    /// `off`, `on`, or options.
    Sharenfs = 6,
    /// How often the pool is scrubbed: `off`, `weekly`, `monthly`. Of the pool's own dataset.
    Scrub = 7,
    /// Whether vdevs grow by themselves with their disks: `on`, `off`. Of the pool's own dataset.
    Autoexpand = 8,
    /// Whether a new disk in the place of one that is gone replaces it: `on`, `off`. Of the pool's
    /// own dataset.
    Autoreplace = 9,
    /// Whether what is released is discarded: `on`, `off`. Of the pool's own dataset.
    Autotrim = 10,
    /// How the directory `.aquifer` shows: `hidden`, `visible`, `disabled`.
    Snapdir = 11,
    /// Which snapshots are taken and pruned by themselves: `off`, or `hourly=24 daily=7`.
    Snapshots = 12,
    /// Whether it is a copy that is not in service: `on`, `off`.
    Standby = PROPERTY_STANDBY,
    /// Hosts that take and destroy snapshots over NFS: `off`, or a list of clients.
    Snapcontrol = 13,
    /// Which copy is kept up to date, and how: `off`, or `backup:pool/vms every=5m`.
    Replicate = 15,
    /// Which snapshots of files are taken and pruned by themselves: `off`, or patterns of paths,
    /// each with what stays: `web*/*.vhd daily=7; db01/* hourly=24`.
    Filesnapshots = 16,
    /// How far ahead the end of a hold may lie: `none`, or a span such as `30d`. Of the pool's own
    /// dataset.
    HoldMax = 17,
    /// Bytes kept free so that all of the dataset can be written over, or `none`.
    Refreservation = 18,
    /// How long each snapshot that is taken or received is held by itself: `off`, or a span such as
    /// `30d`.
    Retain = 19,
    /// Whether acts over the network that lose something wait for a second person: `off`, `on`, or
    /// `delay=24h`. Of the pool's own dataset.
    TwoPersons = 20,
    /// From which dataset of a peer a copy is fetched, and how: `off`, or `store1:tank/vms
    /// every=5m`.
    Pull = 21,
}

/// All properties.
pub const PROPERTIES: [Property; 21] = [
    Property::Compression,
    Property::Sync,
    Property::Quota,
    Property::Reservation,
    Property::Refreservation,
    Property::Readonly,
    Property::Sharenfs,
    Property::Scrub,
    Property::Autoexpand,
    Property::Autoreplace,
    Property::Autotrim,
    Property::Snapdir,
    Property::Snapshots,
    Property::Standby,
    Property::Snapcontrol,
    Property::Replicate,
    Property::Pull,
    Property::Filesnapshots,
    Property::HoldMax,
    Property::Retain,
    Property::TwoPersons,
];

/// How clients find the snapshots of a dataset, in the directory `.aquifer` of its root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snapdir {
    /// By its name; listings do not show it.
    Hidden,
    /// By its name, and in listings.
    Visible,
    /// Not at all: handles of snapshots are stale, too.
    Disabled,
}

/// When a write is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// As the client asks.
    Standard,
    /// Always before its reply.
    Always,
    /// With its txg, whatever the client asks for and the reply says.
    Disabled,
}

impl SyncMode {
    /// The mode of a stored value.
    pub fn of(value: &str) -> SyncMode {
        match value.split(':').next() {
            Some("always") => SyncMode::Always,
            Some("disabled") => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}

/// Longest reason for `sync=disabled`.
const REASON_CHARS_MAX: usize = 200;
/// Longest value, bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 1024;

impl Property {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Property::Compression => "compression",
            Property::Sync => "sync",
            Property::Quota => "quota",
            Property::Reservation => "reservation",
            Property::Refreservation => "refreservation",
            Property::Readonly => "readonly",
            Property::Sharenfs => "sharenfs",
            Property::Scrub => "scrub",
            Property::Autoexpand => "autoexpand",
            Property::Autoreplace => "autoreplace",
            Property::Autotrim => "autotrim",
            Property::Snapdir => "snapdir",
            Property::Snapshots => "snapshots",
            Property::Standby => "standby",
            Property::Snapcontrol => "snapcontrol",
            Property::Replicate => "replicate",
            Property::Filesnapshots => "filesnapshots",
            Property::HoldMax => "hold_max",
            Property::Retain => "retain",
            Property::TwoPersons => "two_persons",
            Property::Pull => "pull",
        }
    }

    /// The property of an item number.
    pub fn from_number(number: u64) -> Option<Property> {
        PROPERTIES.into_iter().find(|property| *property as u64 == number)
    }

    /// The property of this name.
    ///
    /// # Errors
    /// Unknown names; `recordsize`, with the reason why it does not exist.
    pub fn from_name(name: &str) -> Result<Property, DatasetError> {
        let found = PROPERTIES.into_iter().find(|property| property.name() == name);
        found.ok_or_else(|| {
            let why = match name {
                "recordsize" | "volblocksize" => {
                    "does not exist here: every 4 KiB page is stored, checksummed and rewritten by \
                     itself, so no size has to be chosen for a workload"
                        .to_string()
                }
                _ => {
                    let known: Vec<&str> = PROPERTIES.iter().map(|known| known.name()).collect();
                    format!(
                        "unknown; there are {}; one of your own has a colon in its name, such as \
                         com.example:backup",
                        known.join(", ")
                    )
                }
            };
            DatasetError::BadProperty { property: name.to_string(), why }
        })
    }

    /// Whether children take the value of their parent.
    pub fn is_inherited(self) -> bool {
        let is_own = matches!(
            self,
            Property::Quota
                | Property::Reservation
                | Property::Refreservation
                | Property::Standby
                | Property::Pull
        );
        !is_own && !self.is_of_pool()
    }

    /// Whether only the pool's own dataset has it.
    pub fn is_of_pool(self) -> bool {
        matches!(
            self,
            Property::Scrub
                | Property::Autoexpand
                | Property::Autoreplace
                | Property::Autotrim
                | Property::HoldMax
                | Property::TwoPersons
        )
    }

    /// The default value.
    pub fn default_value(self) -> &'static str {
        match self {
            Property::Compression => "on",
            Property::Sync => "standard",
            Property::Quota
            | Property::Reservation
            | Property::Refreservation
            | Property::HoldMax => "none",
            Property::Readonly
            | Property::Sharenfs
            | Property::Snapshots
            | Property::Standby
            | Property::Snapcontrol
            | Property::Replicate
            | Property::Pull
            | Property::Filesnapshots
            | Property::Retain
            | Property::TwoPersons => "off",
            Property::Autoexpand | Property::Autoreplace | Property::Autotrim => "off",
            Property::Scrub => "monthly",
            Property::Snapdir => "hidden",
        }
    }

    /// Checks a value and converts it to its stored form.
    ///
    /// # Errors
    /// Values that the property does not take, with those that it does.
    pub fn parse(self, value: &str) -> Result<String, DatasetError> {
        let one_of = |allowed: &[&str]| {
            if allowed.contains(&value) {
                return Ok(value.to_string());
            }
            Err(self.bad(format!("{value:?} is not one of {}", allowed.join(", "))))
        };
        match self {
            Property::Compression => one_of(&["on", "off", "lz4", "zstd"]),
            Property::Sync => match value.split_once(':') {
                Some(("disabled", reason)) => self.with_reason(reason),
                _ if value == "disabled" => self.with_reason(""),
                _ => one_of(&["standard", "always", "disabled:REASON"]),
            },
            Property::Readonly
            | Property::Standby
            | Property::Autoexpand
            | Property::Autoreplace
            | Property::Autotrim => one_of(&["on", "off"]),
            Property::Quota | Property::Reservation | Property::Refreservation => match value {
                "none" | "0" => Ok("none".into()),
                _ => size::parse(value).map(|bytes| bytes.to_string()).ok_or_else(|| {
                    self.bad(format!("{value:?} is no size: say 500G, 1.5T or none"))
                }),
            },
            // Their rooms know what they mean.
            Property::Sharenfs | Property::Snapcontrol | Property::Replicate | Property::Pull => {
                match value.len() <= VALUE_BYTES_MAX {
                    true => Ok(value.to_string()),
                    false => Err(self.bad(format!("longer than {VALUE_BYTES_MAX} bytes"))),
                }
            }
            Property::HoldMax => match value {
                "none" => Ok("none".into()),
                _ if time::parse_span(value).is_some_and(|span_s| span_s > 0) => Ok(value.into()),
                _ => Err(self.bad(format!("{value:?} is no span: say 30d, 12h or none"))),
            },
            Property::Retain => parse_retain(value).map_err(|why| self.bad(why)),
            Property::TwoPersons => match TwoPersons::parse(value) {
                Ok(_) => Ok(value.into()),
                Err(why) => Err(self.bad(why)),
            },
            Property::Scrub => one_of(&["off", "weekly", "monthly"]),
            Property::Snapdir => one_of(&["hidden", "visible", "disabled"]),
            Property::Snapshots => match Schedule::parse(value) {
                Ok(schedule) => Ok(schedule.to_string()),
                Err(why) => Err(self.bad(why)),
            },
            Property::Filesnapshots => match FileSchedule::parse(value) {
                Ok(schedule) => Ok(schedule.to_string()),
                Err(why) => Err(self.bad(why)),
            },
        }
    }

    /// `sync=disabled`, which takes a reason, so that it is not set by accident.
    fn with_reason(self, reason: &str) -> Result<String, DatasetError> {
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(self.bad(
                "\"disabled\" acknowledges what a power cut or a crash takes back, and guests are \
                 damaged by that; it needs a reason, which every status shows: \
                 sync=disabled:scratch space only"
                    .into(),
            ));
        }
        if reason.chars().count() > REASON_CHARS_MAX || reason.chars().any(char::is_control) {
            return Err(self
                .bad(format!("the reason is one line of at most {REASON_CHARS_MAX} characters")));
        }
        Ok(format!("disabled:{reason}"))
    }

    fn bad(self, why: String) -> DatasetError {
        DatasetError::BadProperty { property: self.name().into(), why }
    }
}

/// Values set on one dataset.
pub type LocalValues = BTreeMap<PropertyName, String>;

/// The values in force for a dataset, inheritance done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// How data is compressed.
    pub compression: Option<Compression>,
    /// When writes are durable.
    pub sync: SyncMode,
    /// Bytes at most.
    pub quota_bytes: Option<u64>,
    /// Bytes kept free for it.
    pub reservation_bytes: u64,
    /// Bytes of its own that it can write over, whatever snapshots show.
    pub refreservation_bytes: u64,
    /// Changes are refused.
    pub readonly: bool,
    /// NFS export.
    pub sharenfs: String,
    /// How clients find its snapshots.
    pub snapdir: Snapdir,
    /// Whether hosts take and destroy snapshots over NFS.
    pub has_snapcontrol: bool,
}

impl Properties {
    /// From the values in force by name.
    pub fn from_values(value: impl Fn(Property) -> String) -> Properties {
        let bytes = |property| value(property).parse::<u64>().ok();
        Properties {
            compression: match value(Property::Compression).as_str() {
                "off" => None,
                "zstd" => Some(Compression::Zstd),
                _ => Some(Compression::Lz4),
            },
            sync: SyncMode::of(&value(Property::Sync)),
            quota_bytes: bytes(Property::Quota),
            reservation_bytes: bytes(Property::Reservation).unwrap_or(0),
            refreservation_bytes: bytes(Property::Refreservation).unwrap_or(0),
            readonly: value(Property::Readonly) == "on",
            sharenfs: value(Property::Sharenfs),
            snapdir: match value(Property::Snapdir).as_str() {
                "visible" => Snapdir::Visible,
                "disabled" => Snapdir::Disabled,
                _ => Snapdir::Hidden,
            },
            has_snapcontrol: value(Property::Snapcontrol) != "off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordsize_is_refused_with_the_reason() {
        let error = Property::from_name("recordsize").unwrap_err().to_string();
        assert!(error.contains("4 KiB page"), "{error}");
        assert_eq!(Property::Quota.parse("1G").unwrap(), "1073741824");
    }

    #[test]
    fn sync_is_disabled_for_a_reason_only() {
        for bad in ["disabled", "disabled:", "disabled:  ", "disabled:a\nb", "Disabled:x", "off"] {
            assert!(Property::Sync.parse(bad).is_err(), "{bad:?}");
        }
        assert!(Property::Sync.parse(&format!("disabled:{}", "x".repeat(201))).is_err());
        let value = Property::Sync.parse("disabled: scratch: it is made anew ").unwrap();
        assert_eq!(value, "disabled:scratch: it is made anew");
        assert_eq!(SyncMode::of(&value), SyncMode::Disabled);
        assert_eq!(SyncMode::of("always"), SyncMode::Always);
        assert_eq!(SyncMode::of("standard"), SyncMode::Standard);
    }
}
