//! Signatures that are a fixed string of bytes at a fixed place.

use super::{Category, GPT};

/// One line of the table.
pub(super) struct Signature {
    pub(super) category: Category,
    pub(super) what: &'static str,
    pub(super) place: Place,
    pub(super) magic: &'static [u8],
}

/// Where a signature begins.
pub(super) enum Place {
    /// That many bytes from the beginning.
    Start(u64),
    /// That many bytes before the end.
    End(u64),
}

use Category::{FileSystem, OtherFile, PartitionTable, Swap, VirtualDisk, Volume};
use Place::{End, Start};

const fn sign(
    category: Category,
    what: &'static str,
    place: Place,
    magic: &'static [u8],
) -> Signature {
    Signature { category, what, place, magic }
}

const BCACHE: &[u8; 16] = b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81";
const BCACHEFS: &[u8; 16] = b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF";
const STRATIS: &[u8; 16] = b"!Stra0tis\x86\xFF\x02^\x41rh";

pub(super) const SIGNATURES: &[Signature] = &[
    // File systems.
    sign(FileSystem, "XFS file system", Start(0), b"XFSB"),
    sign(FileSystem, "btrfs file system", Start(0x1_0040), b"_BHRfS_M"),
    sign(FileSystem, "NTFS file system", Start(3), b"NTFS    "),
    sign(FileSystem, "exFAT file system", Start(3), b"EXFAT   "),
    sign(FileSystem, "ReFS file system", Start(3), b"ReFS\0"),
    sign(FileSystem, "F2FS file system", Start(1024), b"\x10\x20\xF5\xF2"),
    sign(FileSystem, "JFS file system", Start(0x8000), b"JFS1"),
    sign(FileSystem, "ReiserFS file system", Start(0x1_0034), b"ReIsEr"),
    sign(FileSystem, "HFS+ file system", Start(1024), b"H+\0\x04"),
    sign(FileSystem, "HFSX file system", Start(1024), b"HX\0\x05"),
    sign(FileSystem, "APFS container", Start(32), b"NXSB"),
    sign(FileSystem, "UFS1 file system", Start(0x2000 + 1372), b"\x54\x19\x01\0"),
    sign(FileSystem, "UFS2 file system", Start(0x1_0000 + 1372), b"\x19\x01\x54\x19"),
    sign(FileSystem, "NILFS2 file system", Start(1024), b"\x02\0\0\0\0\0\x34\x34"),
    sign(FileSystem, "OCFS2 file system", Start(0x400), b"OCFSV2"),
    sign(FileSystem, "OCFS2 file system", Start(0x800), b"OCFSV2"),
    sign(FileSystem, "OCFS2 file system", Start(0x1000), b"OCFSV2"),
    sign(FileSystem, "GFS2 file system", Start(0x1_0000), b"\x01\x16\x19\x70"),
    sign(FileSystem, "bcachefs file system", Start(0x1018), BCACHEFS),
    sign(FileSystem, "SquashFS file system", Start(0), b"hsqs"),
    sign(FileSystem, "EROFS file system", Start(1024), b"\xE2\xE1\xF5\xE0"),
    sign(FileSystem, "ISO 9660 file system", Start(0x8001), b"CD001"),
    sign(FileSystem, "UDF file system", Start(0x8001), b"BEA01"),
    sign(FileSystem, "VMFS volume", Start(0x10_0000), b"\x0D\xD0\x01\xC0"),
    sign(FileSystem, "VMFS file system", Start(0x20_0000), b"\x5E\xF1\xAB\x2F"),
    // Partition tables; the second places are those of disks with 4 KiB sectors.
    sign(PartitionTable, GPT, Start(512), b"EFI PART"),
    sign(PartitionTable, GPT, Start(4096), b"EFI PART"),
    sign(PartitionTable, GPT, End(512), b"EFI PART"),
    sign(PartitionTable, GPT, End(4096), b"EFI PART"),
    sign(PartitionTable, "Apple partition map", Start(512), b"PM\0\0\0\0"),
    // Volumes.
    sign(Volume, "LUKS encrypted volume", Start(0), b"LUKS\xBA\xBE"),
    sign(Volume, "BitLocker volume", Start(3), b"-FVE-FS-"),
    sign(Volume, "Ceph BlueStore", Start(0), b"bluestore block device"),
    sign(Volume, "bcache device", Start(0x1018), BCACHE),
    sign(Volume, "Stratis pool member", Start(512 + 4), STRATIS),
    sign(Volume, "Stratis pool member", Start(9 * 512 + 4), STRATIS),
    sign(Volume, "VDO volume", Start(0), b"dmvdo001"),
    sign(Volume, "dm-integrity volume", Start(0), b"integrt\0"),
    sign(Volume, "dm-verity hash device", Start(0), b"verity\0\0"),
    sign(Volume, "Oracle ASM disk", Start(32), b"ORCLDISK"),
    sign(Volume, "DDF RAID member", End(512), b"\xDE\x11\xDE\x11"),
    sign(Volume, "Intel RAID member", End(1024), b"Intel Raid ISM Cfg Sig. "),
    // Swap: the last ten bytes of its first page, whatever the size of a page.
    sign(Swap, "swap space", Start(0x1000 - 10), b"SWAPSPACE2"),
    sign(Swap, "swap space", Start(0x2000 - 10), b"SWAPSPACE2"),
    sign(Swap, "swap space", Start(0x4000 - 10), b"SWAPSPACE2"),
    sign(Swap, "swap space", Start(0x1_0000 - 10), b"SWAPSPACE2"),
    sign(Swap, "swap space", Start(0x1000 - 10), b"SWAP-SPACE"),
    sign(Swap, "hibernated system", Start(0x1000 - 10), b"S1SUSPEND"),
    sign(Swap, "hibernated system", Start(0x1000 - 10), b"S2SUSPEND"),
    sign(Swap, "hibernated system", Start(0x1000 - 10), b"ULSUSPEND"),
    sign(Swap, "hibernated system", Start(0x1000 - 10), b"LINHIB0001"),
    // Virtual disks.
    sign(VirtualDisk, "qcow2 virtual disk", Start(0), b"QFI\xFB"),
    sign(VirtualDisk, "QED virtual disk", Start(0), b"QED\0"),
    sign(VirtualDisk, "VHDX virtual disk", Start(0), b"vhdxfile"),
    sign(VirtualDisk, "VHD virtual disk", Start(0), b"conectix"),
    sign(VirtualDisk, "VHD virtual disk", End(512), b"conectix"),
    sign(VirtualDisk, "VMDK virtual disk", Start(0), b"KDMV"),
    sign(VirtualDisk, "VMDK virtual disk", Start(0), b"COWD"),
    sign(VirtualDisk, "VMDK descriptor", Start(0), b"# Disk DescriptorFile"),
    sign(VirtualDisk, "VDI virtual disk", Start(64), b"\x7F\x10\xDA\xBE"),
    sign(VirtualDisk, "Parallels virtual disk", Start(0), b"WithoutFreeSpace"),
    sign(VirtualDisk, "Parallels virtual disk", Start(0), b"WithouFreSpacExt"),
    sign(VirtualDisk, "DMG disk image", End(512), b"koly\0\0\0\x04"),
    // Files that nobody wants to lose by naming the wrong file.
    sign(OtherFile, "tar archive (or OVA)", Start(257), b"ustar"),
    sign(OtherFile, "ZIP archive", Start(0), b"PK\x03\x04"),
    sign(OtherFile, "7z archive", Start(0), b"7z\xBC\xAF\x27\x1C"),
    sign(OtherFile, "XZ archive", Start(0), b"\xFD7zXZ\0"),
    sign(OtherFile, "Zstandard archive", Start(0), b"\x28\xB5\x2F\xFD"),
    sign(OtherFile, "gzip archive", Start(0), b"\x1F\x8B\x08\x00"),
    sign(OtherFile, "gzip archive", Start(0), b"\x1F\x8B\x08\x08"),
    sign(OtherFile, "program", Start(0), b"\x7FELF"),
];
