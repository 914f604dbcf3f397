//! Against a tree as the kernel and udev lay it out.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct Tree {
    dir: TempDir,
}

impl Tree {
    fn new() -> Tree {
        let tree = Tree { dir: tempfile::tempdir().unwrap() };
        for dir in ["sys/dev/block", "udev", "by-id"] {
            fs::create_dir_all(tree.path(dir)).unwrap();
        }
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str, content: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(path)).unwrap();
    }

    /// A disk or partition in sysfs, with its number.
    fn device(&self, path: &str, number: &str, sectors: u64) {
        self.file(&format!("{path}/dev"), format!("{number}\n").as_bytes());
        self.file(&format!("{path}/size"), format!("{sectors}\n").as_bytes());
        self.link(&format!("sys/dev/block/{number}"), self.path(path));
    }

    fn describe(&self, major: u32, minor: u32) -> Option<DiskInfo> {
        let system =
            System { sys: self.path("sys"), udev: self.path("udev"), by_id: self.path("by-id") };
        let number = rustix::fs::makedev(major, minor);
        system.describe("/dev/whatever", DiskNumbers::Block(number))
    }

    fn by_id(&self, name: &str) -> Option<String> {
        Some(self.path("by-id").join(name).display().to_string())
    }
}

const ATA: &str = "sys/devices/pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sdb";

fn ata() -> Tree {
    let tree = Tree::new();
    tree.device(ATA, "8:16", 7_814_037_168);
    tree.file(&format!("{ATA}/queue/rotational"), b"1\n");
    tree.file(&format!("{ATA}/device/model"), b"WDC WD40EFRX-68N\n");
    tree.device(&format!("{ATA}/sdb1"), "8:17", 7_814_033_408);
    tree.file(&format!("{ATA}/sdb1/partition"), b"1\n");
    for name in ["wwn-0x50014ee2b5d1f2a3", "ata-WDC_WD40EFRX-68N32N0_WD-WCC7K1AAAAAA"] {
        tree.link(&format!("by-id/{name}"), "../../sdb");
        tree.link(&format!("by-id/{name}-part1"), "../../sdb1");
    }
    tree.link("by-id/ata-OTHER_S1", "../../sdbb");
    tree
}

#[test]
fn a_disk_is_what_udev_says() {
    let tree = ata();
    tree.file(
        "udev/b8:16",
        b"S:disk/by-id/ata-x\nE:ID_BUS=ata\nE:ID_MODEL=WDC_WD40EFRX-68N32N0\n\
          E:ID_MODEL_ENC=WDC\\x20WD40EFRX-68N32N0\\x20\\x20\\x20\n\
          E:ID_SERIAL=WDC_WD40EFRX-68N32N0_WD-WCC7K1AAAAAA\nE:ID_SERIAL_SHORT=WD-WCC7K1AAAAAA\n\
          E:ID_PATH=pci-0000:00:17.0-ata-3\n",
    );
    let wanted = DiskInfo {
        by_id: tree.by_id("ata-WDC_WD40EFRX-68N32N0_WD-WCC7K1AAAAAA"),
        device: Some("/dev/sdb".into()),
        size_bytes: 4_000_787_030_016,
        bus: Some("ata".into()),
        rotational: Some(true),
        model: Some("WDC WD40EFRX-68N32N0".into()),
        serial: Some("WD-WCC7K1AAAAAA".into()),
        location: Some("pci-0000:00:17.0-ata-3".into()),
        port: Some("pci-0000:00:17.0-ata-3".into()),
        ..DiskInfo::default()
    };
    assert_eq!(tree.describe(8, 16), Some(wanted.clone()));
    // A partition belongs to its disk.
    let part = DiskInfo {
        by_id: tree.by_id("ata-WDC_WD40EFRX-68N32N0_WD-WCC7K1AAAAAA-part1"),
        size_bytes: 7_814_033_408 * 512,
        partition: Some(1),
        ..wanted
    };
    assert_eq!(tree.describe(8, 17), Some(part));
    assert_eq!(tree.describe(8, 32), None);
}

#[test]
fn without_udev_the_kernel_knows_some() {
    let tree = ata();
    let mut page = b"\x00\x80\x00\x14".to_vec();
    page.extend_from_slice(b"     WD-WCC7K1AAAAAA");
    tree.file(&format!("{ATA}/device/vpd_pg80"), &page);
    tree.file(&format!("{ATA}/device/enclosure_device:Slot 07/slot"), b"7\n");
    let disk = tree.describe(8, 16).unwrap();
    assert_eq!(disk.model.as_deref(), Some("WDC WD40EFRX-68N"));
    assert_eq!(disk.serial.as_deref(), Some("WD-WCC7K1AAAAAA"));
    assert_eq!(
        (disk.bus.as_deref(), disk.location.as_deref()),
        (Some("ata"), Some("slot Slot 07"))
    );
}

#[test]
fn other_kinds_of_disks() {
    let tree = Tree::new();
    let nvme = "sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1";
    tree.device(nvme, "259:0", 1000);
    tree.file(&format!("{nvme}/queue/rotational"), b"0\n");
    tree.file(&format!("{nvme}/device/model"), b"Samsung SSD 980 PRO 1TB                 \n");
    tree.file(&format!("{nvme}/device/serial"), b"S5GXNX0R123456     \n");
    tree.link("by-id/nvme-eui.002538b111b2c3d4", "../../nvme0n1");
    tree.link("by-id/nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0R123456", "../../nvme0n1");
    let disk = tree.describe(259, 0).unwrap();
    assert_eq!((disk.bus.as_deref(), disk.rotational), (Some("nvme"), Some(false)));
    assert_eq!(disk.serial.as_deref(), Some("S5GXNX0R123456"));
    assert_eq!(disk.by_id, tree.by_id("nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0R123456"));
    assert_eq!(disk.to_find_it().unwrap(), "Samsung SSD 980 PRO 1TB, serial number S5GXNX0R123456");

    tree.device("sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda", "254:0", 8);
    tree.file("sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda/serial", b"disk-7");
    let disk = tree.describe(254, 0).unwrap();
    assert_eq!((disk.bus.as_deref(), disk.serial.as_deref()), (Some("virtio"), Some("disk-7")));

    tree.device("sys/devices/virtual/block/loop3", "7:3", 8);
    tree.file("sys/devices/virtual/block/loop3/loop/backing_file", b"/srv/my  disk\n");
    let disk = tree.describe(7, 3).unwrap();
    assert_eq!((disk.bus.as_deref(), disk.file.as_deref()), (Some("loop"), Some("/srv/my  disk")));
    assert_eq!((disk.size_bytes, disk.to_find_it()), (4096, None));
}

#[test]
fn firmware_may_say_anything() {
    let tree = Tree::new();
    let disk = "sys/devices/x/block/sda";
    tree.device(disk, "8:0", 1);
    let mut model = b"\x1b[2J\n\xff ".to_vec();
    model.extend_from_slice(&[b'x'; 5000]);
    tree.file(&format!("{disk}/device/model"), &model);
    tree.file("udev/b8:0", b"E:ID_MODEL_ENC=a\\x1b\\xzz\\x2\nE:ID_SERIAL_SHORT=\nE:ID_BUS\nE:=\n");
    let found = tree.describe(8, 0).unwrap();
    assert_eq!(found.model.as_deref(), Some("a \\xzz\\x2"));
    assert_eq!((found.serial, found.bus), (None, None));
    fs::remove_file(tree.path("udev/b8:0")).unwrap();
    // Not even text.
    assert_eq!(tree.describe(8, 0).unwrap().model, None);
    tree.file(&format!("{disk}/device/model"), &[b'x'; 5000]);
    assert_eq!(tree.describe(8, 0).unwrap().model.unwrap().len(), TEXT_CHARS_MAX);
    tree.file(&format!("{disk}/size"), b"many\n");
    assert_eq!(tree.describe(8, 0), None);
}

#[test]
fn an_image_is_its_file() {
    let tree = Tree::new();
    tree.file("a.img", &[0; 8192]);
    let path = tree.path("a.img").display().to_string();
    let image = DiskNumbers::Image { device: 1, inode: 2 };
    let disk = System::default().describe(&path, image).unwrap();
    assert_eq!((disk.file.as_deref(), disk.size_bytes), (Some(path.as_str()), 8192));
    assert_eq!(System::default().describe("/nowhere/at/all", image), None);
}

/// A new disk sits where one was that is gone: the port is what they share.
#[test]
fn the_disk_at_a_port_is_the_only_whole_one_there() {
    let tree = ata();
    let system =
        System { sys: tree.path("sys"), udev: tree.path("udev"), by_id: tree.path("by-id") };
    let port = "pci-0000:00:17.0-ata-3";
    assert_eq!(system.only_disk_at(port), None, "udev says nothing");
    let at = |disk: &str, port: &str| {
        tree.file(&format!("udev/b{disk}"), format!("E:ID_PATH={port}\n").as_bytes());
    };
    at("8:16", port);
    let by_id = tree.by_id("ata-WDC_WD40EFRX-68N32N0_WD-WCC7K1AAAAAA");
    assert_eq!(system.only_disk_at(port), by_id, "its partition is none");
    assert_eq!(system.only_disk_at("pci-0000:00:17.0-ata-4"), None);
    // Another one, without a persistent name: at another port, at the same, empty.
    let other = ATA.replace("sdb", "sdc").replace("ata3", "ata4");
    tree.device(&other, "8:32", 1000);
    at("8:32", "pci-0000:00:17.0-ata-4");
    assert_eq!(system.only_disk_at("pci-0000:00:17.0-ata-4"), Some("/dev/sdc".into()));
    at("8:32", port);
    assert_eq!(system.only_disk_at(port), None, "which one is it?");
    tree.file(&format!("{other}/size"), b"0\n");
    assert_eq!(system.only_disk_at(port), by_id, "a card reader without a card");
}
