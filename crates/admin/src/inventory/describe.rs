//! Description of a disk, by sysfs and udev.
//!
//! - A disk is looked up by its device number, taken from the open disk: the name by which it was
//!   opened may be another disk's by now.
//! - udev knows names in full, and the kernel cuts some. Without udev the kernel's do.
//! - Texts come from the disk's firmware, and may be anything: they are cut and cleaned.

use std::fs;
use std::path::{Path, PathBuf};

use aquifer_api::DiskInfo;
use aquifer_blockio::DiskNumbers;

/// Where the system tells of disks.
#[derive(Debug, Clone)]
pub(crate) struct System {
    pub sys: PathBuf,
    pub udev: PathBuf,
    pub by_id: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        System { sys: "/sys".into(), udev: udev_data(), by_id: "/dev/disk/by-id".into() }
    }
}

/// Where udev keeps its data. Tests of the whole daemon have none, and say what it would.
fn udev_data() -> PathBuf {
    #[cfg(debug_assertions)]
    if let Some(data) = std::env::var_os("AQUIFER_UDEV_DATA") {
        return data.into();
    }
    "/run/udev/data".into()
}

impl System {
    /// Describes the disk with these numbers, opened as `path`; `None` if it is gone.
    pub fn describe(&self, path: &str, numbers: DiskNumbers) -> Option<DiskInfo> {
        match numbers {
            DiskNumbers::Image { .. } => image(path),
            DiskNumbers::Block(number) => self.block(number),
        }
    }

    /// The one whole disk at a port, by its persistent name if it has one; `None` if there is none,
    /// or more than one.
    pub fn only_disk_at(&self, port: &str) -> Option<String> {
        let numbers = fs::read_dir(self.sys.join("dev/block")).ok()?.flatten();
        let numbers = numbers.filter_map(|entry| {
            let name = entry.file_name();
            let (major, minor) = name.to_str()?.split_once(':')?;
            Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        let disks = numbers.filter_map(|number| self.block(number));
        let mut there = disks.filter(|disk| {
            disk.partition.is_none() && disk.size_bytes > 0 && disk.port.as_deref() == Some(port)
        });
        let only = there.next().filter(|_| there.next().is_none())?;
        only.by_id.or(only.device)
    }

    fn block(&self, number: u64) -> Option<DiskInfo> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let own = self.sys.join(format!("dev/block/{major}:{minor}"));
        let own = fs::canonicalize(own).ok()?;
        let partition = number_in(&own.join("partition"));
        let whole = if partition.is_some() { own.parent()?.to_path_buf() } else { own.clone() };
        let (name, whole_name) = (name_of(&own)?, name_of(&whole)?);
        let udev = Udev::of(&self.udev, &whole);
        let sysfs = |file: &str| text_in(&whole.join(file));
        Some(DiskInfo {
            by_id: self.persistent_name(&name),
            file: whole_text(&whole.join("loop/backing_file")),
            size_bytes: number_in::<u64>(&own.join("size"))? * 512,
            bus: udev.get("ID_BUS").or_else(|| bus_of(&whole)),
            rotational: sysfs("queue/rotational").map(|text| text == "1"),
            model: udev.model().or_else(|| sysfs("device/model")).or_else(|| sysfs("device/name")),
            serial: udev.serial().or_else(|| serial_of(&whole)),
            location: slot_of(&whole).or_else(|| udev.get("ID_PATH")),
            port: udev.get("ID_PATH"),
            device: Some(format!("/dev/{}", whole_name.replace('!', "/"))),
            partition,
            ..DiskInfo::default()
        })
    }

    /// The name below `by-id` that says most to people: the one with model and serial number.
    fn persistent_name(&self, kernel_name: &str) -> Option<String> {
        let links = fs::read_dir(&self.by_id).ok()?.flatten();
        let own = links.filter(|link| {
            let target = fs::read_link(link.path()).ok();
            let target = target.as_deref().and_then(Path::file_name);
            target.is_some_and(|target| target == kernel_name)
        });
        let names = own.map(|link| link.file_name().to_string_lossy().into_owned());
        let best = names.min_by_key(|name| {
            let is_number = NUMBERS.iter().any(|start| name.starts_with(start));
            (is_number, name.clone())
        })?;
        Some(self.by_id.join(best).display().to_string())
    }
}

/// Notes that udev made of a disk.
struct Udev(String);

impl Udev {
    fn of(data: &Path, whole: &Path) -> Udev {
        let number = text_in(&whole.join("dev")).unwrap_or_default();
        Udev(fs::read_to_string(data.join(format!("b{number}"))).unwrap_or_default())
    }

    fn raw(&self, key: &str) -> Option<&str> {
        let property = |line: &'_ str| {
            line.strip_prefix("E:")?.strip_prefix(key)?.strip_prefix('=').map(str::len)
        };
        self.0.lines().find_map(|line| {
            let length = property(line)?;
            line.get(line.len() - length..)
        })
    }

    fn get(&self, key: &str) -> Option<String> {
        clean(self.raw(key)?)
    }

    fn model(&self) -> Option<String> {
        let encoded = self.raw("ID_MODEL_ENC").and_then(|model| clean(&decoded(model)));
        encoded.or_else(|| self.get("ID_MODEL"))
    }

    /// Of a SCSI disk the short one is not what is printed on it.
    fn serial(&self) -> Option<String> {
        self.get("ID_SCSI_SERIAL").or_else(|| self.get("ID_SERIAL_SHORT"))
    }
}

/// An image file.
fn image(path: &str) -> Option<DiskInfo> {
    let size_bytes = fs::metadata(path).ok()?.len();
    Some(DiskInfo { file: Some(path.into()), size_bytes, ..DiskInfo::default() })
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_string())
}

fn bus_of(whole: &Path) -> Option<String> {
    let path = whole.to_str()?;
    let has = |part: &&(&str, &str)| path.contains(part.0);
    BUSES.iter().find(has).map(|(_, bus)| bus.to_string())
}

fn serial_of(whole: &Path) -> Option<String> {
    let files = ["device/serial", "serial"].into_iter();
    files.filter_map(|file| text_in(&whole.join(file))).next().or_else(|| {
        // Of a SCSI disk: a page of vital product data, four bytes of head before the text.
        let page = fs::read(whole.join("device/vpd_pg80")).ok()?;
        clean(&String::from_utf8_lossy(page.get(4..)?))
    })
}

/// The slot in an enclosure that the kernel knows.
fn slot_of(whole: &Path) -> Option<String> {
    let entries = fs::read_dir(whole.join("device")).ok()?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let slot = names.filter_map(|name| clean(name.strip_prefix("enclosure_device:")?)).next()?;
    Some(format!("slot {slot}"))
}

fn number_in<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text_in(path)?.parse().ok()
}

fn text_in(path: &Path) -> Option<String> {
    clean(&fs::read_to_string(path).ok()?)
}

/// A path, as it is.
fn whole_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches('\n').to_string()).filter(|text| !text.is_empty())
}

/// A text in printable characters, with single spaces; `None` if nothing is left.
fn clean(text: &str) -> Option<String> {
    let plain = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let plain: String = plain.take(TEXT_CHARS_MAX).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// udev writes a space as `\x20`.
fn decoded(text: &str) -> String {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                bytes.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Names that only number a disk.
const NUMBERS: [&str; 7] =
    ["wwn-", "nvme-eui.", "nvme-uuid.", "nvme-nvme.", "scsi-3", "dm-uuid-", "lvm-pv-uuid-"];
/// Parts of a device's path in sysfs, and how it is attached. The first that fits counts.
const BUSES: [(&str, &str); 8] = [
    ("/usb", "usb"),
    ("/ata", "ata"),
    ("/nvme", "nvme"),
    ("/virtio", "virtio"),
    ("/mmc", "mmc"),
    ("/block/loop", "loop"),
    ("/block/dm-", "dm"),
    ("/host", "scsi"),
];
/// The longest text that is kept.
const TEXT_CHARS_MAX: usize = 128;

#[cfg(test)]
mod tests;
