//! The run-book, block by block, as it stands in `docs/runbook.md`.

use std::fs;
use std::process::Command;

use crate::bed::noise;
use crate::eyes::client::Client;
use crate::scrub::{find, overwrite};
use crate::support::{AQUIFER, Daemon, MIB, PATIENCE, Place};

/// Titles, and the blocks below them.
fn sections() -> Vec<(&'static str, &'static str)> {
    let page = include_str!("../../../../docs/runbook.md");
    let each = page.split("\n## ").skip(1).filter_map(|section| {
        let (title, rest) = section.split_once('\n')?;
        let (_, rest) = rest.split_once("```sh\n")?;
        Some((title, rest.split_once("```")?.0))
    });
    each.collect()
}

/// Sets up a pool, with what is wrong before a section is needed.
fn bed(place: &Place, title: &str) -> Daemon {
    fs::create_dir(place.path("dev")).unwrap();
    fs::create_dir(place.path("backup")).unwrap();
    let daemon = place.serve();
    let disk = |name: &str| place.sized_image(&format!("dev/{name}"), 256 * MIB);
    let (b, c, e) = (disk("sdb"), disk("sdc"), disk("sde"));
    disk("sdd");
    place.must(&["pool", "create", "tank", "mirror", &b, &c, "log", &e]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let mut client = Client::new(place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let web01 = client.mkdir(&root, "web01");
    let file = client.create(&web01, "disk0.vhd");
    client.write(&file, 0, &noise(1, 65536), true);
    place.must(&["snapshot", "tank/vms@old"]);
    place.must(&["hold", "before-update", "tank/vms@old"]);
    place.must(&["snapshot", "tank/vms:web01/disk0.vhd@before"]);
    match title {
        "Replace a disk" => drop(place.must(&["pool", "offline", "tank", &b])),
        "A host is not let in" => drop(place.must(&["set", "sharenfs=off", "tank/vms"])),
        "A log device is lost" => {
            daemon.kill9();
            fs::remove_file(place.path("dev/sde")).unwrap();
            let daemon = place.spawn_serving(&["--wait-for-disks", "0"]);
            assert_eq!(place.health("tank"), "UNAVAIL");
            return daemon;
        }
        "A pool is not in service" => {
            daemon.kill9();
            for name in ["sdb", "sdc"] {
                fs::rename(place.path("dev").join(name), place.path(name)).unwrap();
            }
            let daemon = place.spawn_serving(&["--wait-for-disks", "0"]);
            assert_eq!(place.health("tank"), "UNAVAIL");
            for name in ["sdb", "sdc"] {
                fs::rename(place.path(name), place.path("dev").join(name)).unwrap();
            }
            return daemon;
        }
        "A file is damaged" => {
            let stream = fs::File::create(place.path("backup/vms.stream")).unwrap();
            let mut send = place.command(&["send", "tank/vms@old"]);
            assert!(send.stdout(stream).status().unwrap().success());
            client.write(&file, 0, &noise(2, 65536), true);
            place.must(&["pool", "export", "tank"]);
            for image in [&b, &c] {
                let at = find(image, &noise(2, 65536)).unwrap();
                overwrite(image, at, &noise(3, 4096));
            }
            place.must(&["pool", "import", "-d", &place.text("dev"), "tank"]);
            assert_eq!(place.ask(&["pool", "scrub", "-w", "tank"]).code, 1);
        }
        _ => {}
    }
    daemon
}

/// Types commands as an administrator would, with our disks, backups and daemon.
fn types(place: &Place, title: &str, block: &str) {
    let mut typed = block.to_string();
    for name in ["dev", "backup"] {
        typed = typed.replace(&format!("/{name}"), &place.text(name));
    }
    let socket = place.text("run/aquifer.sock");
    let ours = format!("aquifer() {{ {AQUIFER} --api-socket {socket} \"$@\"; }}");
    let said =
        Command::new("bash").args(["-c", &format!("set -eux\n{ours}\n{typed}")]).output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(said.status.success(), "{title}: {text}\n{}", place.log());
}

/// Installation of a package, which `make deb-test` does with a package and systemd: here the
/// daemon is stopped, and started.
const INSTALL: &str = "apt install ./aquifer_NEW_amd64.deb\n";

#[test]
fn each_block_of_the_run_book_works_as_it_stands() {
    let sections = sections();
    assert_eq!(sections.len(), 12);
    for (title, block) in sections {
        let place = Place::new();
        let mut daemon = bed(&place, title);
        let mut parts = block.split(INSTALL);
        types(&place, title, parts.next().unwrap());
        for part in parts {
            assert!(daemon.terminate(PATIENCE).unwrap().success(), "{title}: {}", place.log());
            daemon = place.serve();
            types(&place, title, part);
        }
        let status = place.ask(&["pool", "status", "-x", "tank"]);
        assert_eq!(status.code, 0, "{title}: {status:?}");
    }
}
