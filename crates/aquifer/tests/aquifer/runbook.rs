//! The run-book, block by block, as it stands in `docs/runbook.md`.

use std::fs;
use std::process::Command;

use crate::eyes::client::Client;
use crate::support::{AQUIFER, Daemon, MIB, Place};

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

/// What is wrong before a section is needed.
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
    client.write(&file, 0, &[1; 65536], true);
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
        _ => {}
    }
    daemon
}

#[test]
fn each_block_of_the_run_book_works_as_it_stands() {
    let sections = sections();
    assert_eq!(sections.len(), 8);
    for (title, block) in sections {
        let place = Place::new();
        let _daemon = bed(&place, title);
        let mut typed = block.to_string();
        for name in ["dev", "backup"] {
            typed = typed.replace(&format!("/{name}"), &place.text(name));
        }
        let socket = place.text("run/aquifer.sock");
        let ours = format!("aquifer() {{ {AQUIFER} --api-socket {socket} \"$@\"; }}");
        let said = Command::new("bash")
            .args(["-c", &format!("set -eux\n{ours}\n{typed}")])
            .output()
            .unwrap();
        let text = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(said.status.success(), "{title}: {text}\n{}", place.log());
        let status = place.ask(&["pool", "status", "-x", "tank"]);
        assert_eq!(status.code, 0, "{title}: {status:?}");
    }
}
