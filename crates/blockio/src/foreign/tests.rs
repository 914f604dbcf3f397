//! Every signature by itself, structures built by hand, and the output of the real tools (those
//! tests skip tools that are not installed, and say so).

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::{FileDisk, OpenOptions, create_image};

const SIZE: usize = 8 << 20;

/// Both ends of a disk that holds `bytes`.
fn ends(bytes: &[u8]) -> Ends {
    let head = bytes.len().min(usize::try_from(HEAD_BYTES).unwrap());
    let tail = bytes.len().saturating_sub(usize::try_from(TAIL_BYTES).unwrap());
    Ends { size: bytes.len() as u64, head: bytes[..head].to_vec(), tail: bytes[tail..].to_vec() }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// The content found on a blank disk after `write`.
fn names(write: impl FnOnce(&mut [u8])) -> Vec<&'static str> {
    let mut bytes = vec![0; SIZE];
    write(&mut bytes);
    recognise(&ends(&bytes)).iter().map(|it| it.what).collect()
}

#[test]
fn blank_disks_hold_nothing() {
    assert!(names(|_| {}).is_empty());
    for size in [0, 1, 511, 512, 4096, 70_000] {
        assert!(recognise(&ends(&vec![0; size])).is_empty());
    }
}

#[test]
fn every_line_of_the_table_is_found_where_it_says() {
    for signature in SIGNATURES {
        let at = match signature.place {
            Place::Start(at) => usize::try_from(at).unwrap(),
            Place::End(before) => SIZE - usize::try_from(before).unwrap(),
        };
        assert_eq!(names(|disk| put(disk, at, signature.magic)), [signature.what]);
        // A byte away from its place it means nothing.
        if matches!(signature.place, Place::Start(_)) {
            assert!(names(|disk| put(disk, at + 1, signature.magic)).is_empty());
        }
    }
}

#[test]
fn ext_is_told_apart_by_its_features() {
    let ext = |compatible: u32, incompatible: u32, read_only: u32| {
        names(|disk| {
            put(disk, 1024 + 0x38, &[0x53, 0xEF]);
            put(disk, 1024 + 0x4C, &1u32.to_le_bytes());
            put(disk, 1024 + 0x5C, &compatible.to_le_bytes());
            put(disk, 1024 + 0x60, &incompatible.to_le_bytes());
            put(disk, 1024 + 0x64, &read_only.to_le_bytes());
        })
    };
    assert_eq!(ext(0x38, 0x2, 0x3), ["ext2 file system"]);
    assert_eq!(ext(0x3C, 0x2, 0x3), ["ext3 file system"]);
    assert_eq!(ext(0x3C, 0x2C2, 0x46B), ["ext4 file system"]);
    assert_eq!(ext(0, 0x8, 0), ["ext3/ext4 journal"]);
    let senseless = names(|disk| {
        put(disk, 1024 + 0x38, &[0x53, 0xEF]);
        put(disk, 1024 + 0x18, &[7]);
    });
    assert!(senseless.is_empty());
}

#[test]
fn raid_is_found_at_each_of_its_places() {
    let member = [&0xA92B_4EFCu32.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
    for at in [0, 4096, SIZE - 8192] {
        assert_eq!(names(|disk| put(disk, at, &member)), ["Linux RAID member"]);
    }
    let old = SIZE - 0x1_0000;
    for magic in [0xA92B_4EFCu32.to_le_bytes(), 0xA92B_4EFCu32.to_be_bytes()] {
        assert_eq!(names(|disk| put(disk, old, &magic)), ["Linux RAID member (0.90)"]);
    }
}

#[test]
fn zfs_is_found_in_every_label() {
    const LABEL: usize = 256 << 10;
    for label in [0, LABEL, SIZE - 2 * LABEL, SIZE - LABEL] {
        for magic in [0x00BA_B10Cu64.to_le_bytes(), 0x00BA_B10Cu64.to_be_bytes()] {
            let found = names(|disk| put(disk, label + (128 << 10) + 5 * 4096, &magic));
            assert_eq!(found, ["ZFS pool member"]);
        }
        let found = names(|disk| {
            put(disk, label + (16 << 10), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            put(disk, label + (16 << 10) + 24, b"version");
        });
        assert_eq!(found, ["ZFS pool member"]);
    }
    // A size that is not whole labels: the last two lie before the odd rest.
    let mut odd = vec![0; SIZE + 70_000];
    put(&mut odd, SIZE - LABEL + (128 << 10), &0x00BA_B10Cu64.to_le_bytes());
    assert_eq!(recognise(&ends(&odd)).len(), 1);
}

#[test]
fn boot_sectors_are_named_by_what_they_hold() {
    let boot = |disk: &mut [u8]| put(disk, 510, &[0x55, 0xAA]);
    assert_eq!(names(boot), ["boot sector"]);
    let partition = |disk: &mut [u8]| {
        boot(disk);
        put(disk, 446, &[0x80, 0, 0, 0, 0x83]);
    };
    assert_eq!(names(partition), ["MBR partition table"]);
    let protective = names(|disk| {
        partition(disk);
        put(disk, 512, b"EFI PART");
    });
    assert_eq!(protective, [GPT]);
    let fat = names(|disk| {
        boot(disk);
        put(disk, 82, b"FAT32   ");
    });
    assert_eq!(fat, ["FAT file system"]);
    assert!(names(|disk| put(disk, 82, b"FAT32   ")).is_empty());
}

#[test]
fn lvm_and_second_luks_headers() {
    let lvm = names(|disk| {
        put(disk, 512, b"LABELONE");
        put(disk, 512 + 24, b"LVM2 001");
    });
    assert_eq!(lvm, ["LVM2 physical volume"]);
    let luks = names(|disk| put(disk, 0x4000, b"SKUL\xBA\xBE"));
    assert_eq!(luks, ["LUKS encrypted volume (second header)"]);
}

proptest! {
    /// Any bytes, any size: an answer, no panic.
    #[test]
    fn recognising_is_total(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        size in any::<u64>(),
    ) {
        let _ = recognise(&Ends { size, head: bytes.clone(), tail: bytes });
    }
}

/// Runs a tool; `None` and a message if it is not installed.
fn tool(name: &str, arguments: &[&str]) -> Option<()> {
    let sbin = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    match Command::new(name).args(arguments).env("PATH", sbin).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {said}");
            Some(())
        }
        Err(error) => {
            eprintln!("SKIPPED: {name} cannot be run here ({error})");
            None
        }
    }
}

/// The content found in an image that `tool` has written. `IMAGE` stands for its path.
fn made_by(name: &str, arguments: &[&str]) -> Option<Vec<&'static str>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    create_image(&path, (320 << 20) / SECTOR_BYTES as u64).unwrap();
    let image = path.to_str().unwrap();
    let arguments: Vec<_> = arguments.iter().map(|it| it.replace("IMAGE", image)).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    tool(name, &arguments)?;
    Some(found_in(&path))
}

fn found_in(path: &Path) -> Vec<&'static str> {
    let disk = FileDisk::open(path, OpenOptions::inspect()).unwrap();
    disk.foreign_content().unwrap().iter().map(|it| it.what).collect()
}

#[test]
fn what_real_tools_write_is_recognised() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("mkfs.ext2", &["-q", "-F", "IMAGE"], "ext2 file system"),
        ("mkfs.ext3", &["-q", "-F", "IMAGE"], "ext3 file system"),
        ("mkfs.ext4", &["-q", "-F", "IMAGE"], "ext4 file system"),
        ("mkfs.xfs", &["-q", "IMAGE"], "XFS file system"),
        ("mkfs.btrfs", &["-q", "IMAGE"], "btrfs file system"),
        ("mkfs.vfat", &["-F", "16", "IMAGE"], "FAT file system"),
        ("mkfs.vfat", &["-F", "32", "IMAGE"], "FAT file system"),
        ("mkfs.ntfs", &["-q", "-F", "IMAGE"], "NTFS file system"),
        ("mkfs.f2fs", &["-q", "IMAGE"], "F2FS file system"),
        ("mkswap", &["IMAGE"], "swap space"),
        ("sgdisk", &["-n", "1:2048:0", "IMAGE"], GPT),
        ("qemu-img", &["create", "-f", "qcow2", "IMAGE", "1G"], "qcow2 virtual disk"),
        ("qemu-img", &["create", "-f", "vhdx", "IMAGE", "1G"], "VHDX virtual disk"),
        ("qemu-img", &["create", "-f", "vmdk", "IMAGE", "1G"], "VMDK virtual disk"),
        ("qemu-img", &["create", "-f", "vdi", "IMAGE", "1G"], "VDI virtual disk"),
        ("qemu-img", &["create", "-f", "vpc", "IMAGE", "1G"], "VHD virtual disk"),
        (
            "qemu-img",
            &["create", "-f", "vpc", "-o", "subformat=fixed", "IMAGE", "64M"],
            "VHD virtual disk",
        ),
        (
            "cryptsetup",
            &["luksFormat", "-q", "--pbkdf", "pbkdf2", "--key-file", "/etc/hostname", "IMAGE"],
            "LUKS encrypted volume",
        ),
    ];
    for (name, arguments, expected) in cases {
        let Some(found) = made_by(name, arguments) else {
            continue;
        };
        assert_eq!(found.first(), Some(expected), "{name} {arguments:?}: {found:?}");
    }
}

#[test]
fn an_image_of_zeros_is_blank() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blank.img");
    create_image(&path, 1000).unwrap();
    assert!(found_in(&path).is_empty());
}
