//! Identity of a disk, so that a person finds it in the machine; and its health.

use serde::{Deserialize, Serialize};

/// Facts that the system knows about a disk. Those that it does not know are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DiskInfo {
    /// Its persistent name, below `/dev/disk/by-id`; of a partition the partition's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_id: Option<String>,
    /// The kernel's name of the whole disk, such as `/dev/sdb`. Another disk may have it after the
    /// next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The number of the partition of that disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// The image file, or the file behind a loop device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// How it is attached: `ata`, `nvme`, `scsi`, `usb`, `virtio`, `loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Whether it has moving parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number, as printed on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Where it is: the slot of its enclosure, or else the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The port by udev's name (`ID_PATH`): a disk that is put in its place has the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The disk is gone. This is what it was.
    pub gone: bool,
    /// Its own view of its health; absent if `smartctl` did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smart: Option<SmartInfo>,
    /// Why `smartctl` did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smart_note: Option<String>,
}

impl DiskInfo {
    /// Model, serial number and place, for a person who looks for the disk.
    pub fn to_find_it(&self) -> Option<String> {
        let DiskInfo { model, serial, location, .. } = self;
        let serial = serial.as_ref().map(|serial| format!("serial number {serial}"));
        let location = location.as_ref().map(|location| format!("at {location}"));
        // A model alone finds nothing among its like.
        (serial.is_some() || location.is_some()).then(|| {
            let known = [model.clone(), serial, location];
            known.into_iter().flatten().collect::<Vec<_>>().join(", ")
        })
    }
}

/// SMART health, as `smartctl` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SmartInfo {
    /// The disk's own verdict: `false` is a disk that expects to fail.
    pub passed: bool,
    /// Temperature in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i64>,
    /// Hours that it was switched on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
    /// Sectors that it replaced by spare ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reallocated_sectors: Option<u64>,
    /// Sectors that it could not read, and will replace when they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_sectors: Option<u64>,
    /// Sectors that its own tests could not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncorrectable_sectors: Option<u64>,
    /// Errors of the medium that an NVMe disk counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_errors: Option<u64>,
    /// The part of its life that an SSD has used up, in percent. It may exceed 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_percent: Option<u64>,
    /// When it was asked: Unix time in nanoseconds.
    pub asked_ns: u64,
}

/// A disk that is much slower than its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowInfo {
    /// At what: `reads`, `writes`, `durable writes`, `flushes`.
    pub at: String,
    /// So many thousandths of its operations took no longer than `own_ns`, and of those of other
    /// disks no longer than `others_ns`.
    pub thousandths: u64,
    /// Its own time, in nanoseconds.
    pub own_ns: u64,
    /// That of the others.
    pub others_ns: u64,
}
