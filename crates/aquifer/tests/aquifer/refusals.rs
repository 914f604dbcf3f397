//! Refusals and their exact words, since people act on them.

use std::fs;
use std::process::Command;

use serde_json::json;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::POOL_VERSION;
use aquifer_ondisk::layout::{CONFIG_OFFSET, CONFIG_SECTORS, LABELS, label_sector};

use crate::support::{Place, has};

#[test]
fn disks_that_cannot_be_taken() {
    let place = Place::new();
    let _daemon = place.serve();
    let create = |disks: &[&str], message: &str| {
        let words: Vec<&str> =
            ["pool", "create", "tank"].into_iter().chain(disks.iter().copied()).collect();
        place.refuses(&words, message);
    };
    let (a, b) = (place.image("a"), place.image("b"));
    let missing = place.text("missing");
    create(
        &[&missing],
        &format!(
            "{missing}: does not exist; check the name, or let --create-size=10G make an image file"
        ),
    );
    let small = place.sized_image("small", 100 << 20);
    create(
        &[&a, &small],
        &format!("{small}: is too small: 100M, a pool needs disks of 256M or more"),
    );
    create(&["mirror", &a, &a], &format!("{a}: is given twice"));
    let other = place.text("other-name");
    fs::hard_link(&a, &other).unwrap();
    create(
        &["mirror", &a, &other],
        &format!("{other}: is the same disk as {a}; give each disk once"),
    );
    create(
        &["images/a"],
        "images/a: is a relative path; give image files by absolute path, \
                           devices by path or name",
    );
    create(
        &["sdzz"],
        "sdzz: no such device in /dev/disk/by-id or /dev; give image files by \
                       absolute path",
    );
    create(&["/dev"], "/dev: is a directory; name a block device or an image file");
    place.write("b", 1024 + 0x38, &[0x53, 0xEF]);
    create(
        &[&a, &b],
        &format!(
            "{b}: holds something already: ext2 file system (signature at byte 1080); -f takes it \
         nevertheless, and what it holds is lost"
        ),
    );
    // None of that wrote anything: the first disk is still empty.
    place.must(&["pool", "create", "-n", "tank", &a]);
    assert!(fs::read(&a).unwrap().iter().all(|byte| *byte == 0), "written by a refusal");
    place.must(&["pool", "create", "-f", "tank", &a, &b]);
}

#[test]
fn disks_of_other_pools() {
    let place = Place::new();
    let _daemon = place.serve();
    let (a, b) = (place.image("a"), place.image("b"));
    place.must(&["pool", "create", "tank", &a]);
    let other = place.text("other-name");
    fs::hard_link(&a, &other).unwrap();
    for name in [&a, &other] {
        place.refuses(&["pool", "create", "-f", "dozer", name], &format!(
            "{name}: is in use by pool \"tank\", which is imported; destroy that pool first, or \
             use another disk"
        ));
    }
    place.refuses(
        &["pool", "create", "tank", &b],
        "pool \"tank\" exists already; choose another name, or export it first",
    );
    place.must(&["pool", "export", "tank"]);
    place.refuses(&["pool", "create", "dozer", &b, &a], &format!(
        "{a}: belongs to pool \"tank\"; import that with `aquifer pool import tank`, or take the \
         disk with -f, and what the pool has on it is lost"
    ));
    place.must(&["pool", "create", "-f", "dozer", &b, &a]);
}

/// A disk that a later version of the format has written, on all its labels.
#[test]
fn disks_of_newer_software() {
    let place = Place::new();
    let _daemon = place.serve();
    let a = place.image("a");
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["pool", "export", "tank"]);
    let content = fs::read(&a).unwrap();
    let sectors = content.len() as u64 / 4096;
    for index in 0..LABELS {
        let at = (label_sector(index, sectors) + CONFIG_OFFSET) as usize * 4096;
        let mut config = content[at..at + CONFIG_SECTORS as usize * 4096].to_vec();
        // Its version, behind the magic; its last 16 bytes are the checksum of all before.
        config[8..12].copy_from_slice(&(POOL_VERSION + 1).to_le_bytes());
        let end = config.len() - 16;
        let sum = checksum128(&config[..end]).to_le_bytes();
        config[end..].copy_from_slice(&sum);
        place.write("a", at as u64, &config);
    }
    let before = fs::read(&a).unwrap();
    for words in [&["pool", "import", "-d", &a, "tank"][..], &["pool", "create", "dozer", &a]] {
        let said = place.ask(words);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("newer software"), "{said:?}");
    }
    assert_eq!(fs::read(&a).unwrap(), before, "and nothing is written to it");
}

/// Another daemon has the disk, on another list of pools.
#[test]
fn disks_in_use_elsewhere() {
    let (here, there) = (Place::new(), Place::new());
    let (_one, _two) = (here.serve(), there.serve());
    let a = here.image("a");
    here.must(&["pool", "create", "tank", &a]);
    let in_use =
        format!("{a}: is in use (locked by another daemon or tool); release it there first");
    there.refuses(&["pool", "create", "-f", "dozer", &a], &in_use);
    there.refuses(&["pool", "import", "-d", &a, "tank"], &in_use);
    here.refuses(&["inspect", &a], &format!(
        "{in_use}: what is in use changes while it is read; for a pool in service, `aquifer pool \
         export` comes first"
    ));
    here.must(&["pool", "export", "tank"]);
    there.must(&["pool", "import", "-d", &a, "tank"]);
}

#[test]
fn block_devices_that_are_mounted_and_files_behind_them() {
    let place = Place::new();
    if !(has("losetup") && has("mkfs.ext4")) {
        return;
    }
    let image = place.image("a");
    let Some(device) = Loop::of(&image) else { return };
    let _daemon = place.serve();
    place.refuses(
        &["pool", "create", "tank", &image],
        &format!(
            "{image}: is attached to {0}; use that device, or detach it with `losetup -d {0}`",
            device.0
        ),
    );
    place.refuses(
        &["pool", "create", "-f", "tank", "mirror", &device.0, &image],
        &format!("{image}: is the same disk as {}; give each disk once", device.0),
    );
    assert!(Command::new("mkfs.ext4").args(["-q", &device.0]).status().unwrap().success());
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let mount = Command::new("mount").arg(&device.0).arg(&mounted).status().unwrap();
    if mount.success() {
        let said = place.ask(&["pool", "create", "-f", "tank", &device.0]);
        assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
        let expected = format!(
            "aquifer: {}: is in use (mounted, swap, or part of another volume); release it there \
             first\n",
            device.0
        );
        assert_eq!((said.code, said.err), (1, expected));
    } else {
        eprintln!("SKIPPED: nothing can be mounted here");
    }
    place.refuses(
        &["pool", "create", "tank", &device.0],
        &format!(
            "{}: holds something already: ext4 file system (signature at byte 1080); -f takes it \
         nevertheless, and what it holds is lost",
            device.0
        ),
    );
    // Without -d all block devices are looked at, also those of other tests.
    let pool = format!("cli-{}", std::process::id());
    place.must(&["pool", "create", "-f", &pool, &device.0]);
    place.must(&["pool", "export", &pool]);
    place.must(&["pool", "import", &pool]);
    let status = place.json(&["pool", "status", &pool]);
    assert_eq!(status["vdevs"][0]["leaves"][0]["path"], device.0.as_str());
    place.must(&["pool", "export", &pool]);
    // A device and the file behind it are one disk, not a disk and its copy.
    place.must(&["pool", "import", "-d", &device.0, "-d", &image, &pool]);
    place.must(&["pool", "destroy", "-f", &pool]);
}

/// An attached loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn of(image: &str) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show", image]).output().unwrap();
        if !output.status.success() {
            eprintln!("SKIPPED: no loop device: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Loop(String::from_utf8(output.stdout).unwrap().trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn properties_that_do_not_exist_or_cannot_be_so() {
    let place = Place::new();
    let _daemon = place.serve();
    let a = place.image("a");
    let recordsize = "property recordsize: does not exist here: every 4 KiB page is stored, \
                      checksummed and rewritten by itself, so no size has to be chosen for a \
                      workload";
    place.refuses(&["pool", "create", "-o", "recordsize=8K", "tank", &a], recordsize);
    place.must(&["pool", "create", "tank", &a]);
    place.refuses(&["create", "-o", "recordsize=8K", "tank/vms"], recordsize);
    place.must(&["create", "tank/vms"]);
    for (assignment, message) in [
        ("recordsize=8K", recordsize),
        ("ashift=12", "property ashift: does not exist here: a sector is 4 KiB on every disk"),
        ("used=1", "property used: cannot be set, only read"),
        (
            "sync=disabled",
            "property sync: \"disabled\" acknowledges what a power cut or a crash takes back, and \
             guests are damaged by that; it needs a reason, which every status shows: \
             sync=disabled:scratch space only",
        ),
        (
            "sharenfs=async",
            "property sharenfs: option \"async\" is not offered: it loses acknowledged writes in a \
             power cut",
        ),
        ("quota=much", "property quota: \"much\" is no size: say 500G, 1.5T or none"),
        ("compression=gzip", "property compression: \"gzip\" is not one of on, off, lz4, zstd"),
    ] {
        // The first of two properties in one command is not set either.
        place.refuses(&["set", "readonly=on", assignment, "tank/vms"], message);
        assert_eq!(
            place.must(&["get", "-H", "readonly", "tank/vms"]),
            "tank/vms\treadonly\toff\tdefault\n"
        );
    }
    place.refuses(
        &["get", "recordsize", "tank/vms"],
        "property recordsize: unknown; there are used, available, referenced, \
         usedbyrefreservation, logicalused, logicalreferenced, compressratio, refcompressratio, \
         compression, sync, quota, reservation, refreservation, readonly, sharenfs, snapdir, \
         snapshots, standby, snapcontrol, replicate, pull, filesnapshots, retain, \
         next_snapshot",
    );
}

#[test]
fn names_that_mean_nothing() {
    let place = Place::new();
    let _daemon = place.serve();
    let a = place.image("a");
    let no_pool = "there is no pool \"tank\"; `aquifer pool list` shows those that are imported, \
                   `aquifer pool import` those that could be";
    for words in [
        &["pool", "status", "tank"][..],
        &["pool", "list", "tank"],
        &["pool", "export", "tank"],
        &["pool", "destroy", "-f", "tank"],
        &["create", "tank/vms"],
        &["list", "tank/vms"],
    ] {
        place.refuses(words, no_pool);
    }
    place.refuses(
        &["pool", "create", "mirror1/x", &a],
        "pool name \"mirror1/x\": may hold letters, digits, '-', '_', '.' and ':' only",
    );
    place.must(&["pool", "create", "tank", &a]);
    place.refuses(
        &["create", "tank/vms/one"],
        "dataset \"tank/vms\" does not exist; `aquifer list` shows those that do",
    );
    place.refuses(
        &["create", "tank"],
        "dataset name \"tank\": is a pool's name: a dataset lies below one, as in tank/vms",
    );
    place.must(&["create", "tank/vms"]);
    place.refuses(&["create", "tank/vms"], "dataset \"tank/vms\" exists already");
    place.refuses(&["pool", "import", "tank"], "pool \"tank\" is imported already");
    place.refuses(
        &["pool", "import", "-d", &place.text("."), "dozer"],
        "no pool \"dozer\" was found; `aquifer pool import` lists those that were, -d DIR looks \
         elsewhere",
    );
}

#[test]
fn destroying_is_confirmed_by_name() {
    let place = Place::new();
    let _daemon = place.serve();
    let a = place.image("a");
    place.must(&["pool", "create", "tank", &a]);
    let question = "Everything in pool \"tank\" will be lost. Type its name again to destroy it: ";
    for (typed, code) in [("yes\n", 1), ("", 1), ("tank\n", 0)] {
        let said = place.ask_with_input(&["pool", "destroy", "tank"], typed);
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.err.starts_with(question), "{said:?}");
    }
    assert_eq!(place.json(&["pool", "list"]), json!([]));
}

#[test]
fn programs_get_errors_as_json_and_usage_has_its_own_code() {
    let place = Place::new();
    let _daemon = place.serve();
    let said = place.ask(&["pool", "status", "tank", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &error["error"]["kind"]), (1, &json!("not_found")));
    assert!(error["error"]["message"].as_str().unwrap().starts_with("there is no pool"));
    for words in [
        &["pool", "create", "tank", "raidz", "/a", "/b", "/c"][..],
        &["pool", "create", "tank", "mirror", "/a"],
        &["pool", "create", "tank"],
        &["pool", "import", "--rewind=1"],
        &["set", "tank/vms", "compression=off"],
        &["frobnicate"],
    ] {
        let said = place.ask(words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?}: {said:?}");
        assert!(!said.err.is_empty(), "{words:?}");
    }
}
