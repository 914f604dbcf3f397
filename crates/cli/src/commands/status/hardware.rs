//! The disks of a pool as things in a machine: model, serial number, place, health.

use std::collections::BTreeSet;

use aquifer_api::shown::shown;
use aquifer_api::{DiskInfo, PoolStatus, SmartInfo};

use super::super::Output;
use crate::table::Table;

/// A row for each disk, spares and cache disks too, and why some health is not known.
pub(super) fn text(pool: &PoolStatus, output: Output) -> String {
    let columns = ["\tDISK", ">SIZE", "TYPE", "MODEL", "SERIAL", "SMART", "PLACE", "NAME"];
    let mut table = Table::new(&columns);
    let mut notes = BTreeSet::new();
    let leaves = pool.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    let leaves = leaves.map(|leaf| (&leaf.path, &leaf.disk));
    let spares = pool.waiting_spares().map(|spare| (&spare.path, &spare.disk));
    let caches = pool.caches.iter().map(|cache| (&cache.path, &cache.disk));
    for (path, disk) in leaves.chain(spares).chain(caches) {
        let unknown = DiskInfo::default();
        let disk = disk.as_ref().unwrap_or(&unknown);
        notes.extend(disk.smart_note.clone().filter(|_| !disk.gone));
        let size = if disk.size_bytes > 0 { output.size(disk.size_bytes) } else { dash(None) };
        table.row(vec![
            format!("\t{path}"),
            size,
            dash(kind(disk)),
            dash(disk.model.clone()),
            dash(disk.serial.clone()),
            dash(disk.smart.as_ref().map(smart)),
            dash(disk.location.clone()),
            dash(names(disk, path)),
        ]);
    }
    let notes: String = notes.iter().map(|note| format!("\t{}\n", shown(note))).collect();
    let blank = if notes.is_empty() { "" } else { "\n" };
    format!("{}{blank}{notes}", table.text(false))
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// How it is attached, and whether it turns.
fn kind(disk: &DiskInfo) -> Option<String> {
    if disk.bus.is_none() && disk.file.is_some() {
        return Some("file".into());
    }
    let turns = disk.rotational.map(|rotational| if rotational { "hdd" } else { "ssd" });
    // Whatever is below a loop device or a virtual disk, the kernel does not know.
    let is_real = !matches!(disk.bus.as_deref(), Some("loop" | "virtio" | "dm"));
    let words = [disk.bus.as_deref(), turns.filter(|_| is_real)];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The verdict, and the numbers that tell of trouble to come.
fn smart(smart: &SmartInfo) -> String {
    let verdict = if smart.passed { "passed" } else { "FAILING" };
    let count = |count: Option<u64>, what: &str| {
        count.filter(|count| *count > 0).map(|count| format!("{count} {what}"))
    };
    let words = [
        Some(verdict.to_string()),
        smart.temperature_c.map(|degrees| format!("{degrees} C")),
        smart.power_on_hours.map(|hours| format!("{hours} h")),
        smart.used_percent.map(|percent| format!("{percent}% used")),
        count(smart.reallocated_sectors, "reallocated"),
        count(smart.pending_sectors, "pending"),
        count(smart.uncorrectable_sectors, "uncorrectable"),
        count(smart.media_errors, "media errors"),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Its other names: the persistent one, the kernel's, the file behind it.
fn names(disk: &DiskInfo, path: &str) -> Option<String> {
    let kernel = disk.device.as_ref().map(|device| match disk.partition {
        Some(partition) => format!("{device} (partition {partition})"),
        None => device.clone(),
    });
    let names = [disk.by_id.clone(), kernel.filter(|_| !disk.gone), disk.file.clone()];
    let mut names: Vec<String> = names.into_iter().flatten().filter(|name| name != path).collect();
    if disk.gone {
        names.push("(gone)".into());
    }
    (!names.is_empty()).then(|| names.join(" "))
}
