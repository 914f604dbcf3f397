//! Bookmarks: what changed since a snapshot that is gone. The real binary, a pipe and NFS.

use std::process::Stdio;

use serde_json::json;

use crate::bed::{fill, has, with_file};
use crate::eyes::client::Client;
use crate::send::{receive, send_words};
use crate::support::Place;

fn used_bytes(place: &Place) -> u64 {
    place.json(&["list", "tank/vms"])[0]["used_bytes"].as_u64().unwrap()
}

#[test]
fn an_increment_begins_at_a_bookmark_when_the_snapshot_is_gone() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("disk"), there.image("disk"));
    let (daemon, _other) = (here.serve(), there.serve());
    let file = with_file(&here, "tank", &[&disk]);
    let mut client = Client::new(&here, "127.0.0.1");
    fill(&mut client, &file, 1, 0, 16);
    here.must(&["snapshot", "tank/vms@a"]);
    there.must(&["pool", "create", "backup", &other_disk]);
    send_words(&here, &["tank/vms@a"], "a");
    assert_eq!(receive(&there, &["backup/vms"], &here, "a").code, 0);

    let none = "no bookmarks (aquifer bookmark DATASET@NAME '#BOOKMARK')\n";
    assert_eq!(here.must(&["list", "-t", "bookmark"]), none);
    here.must(&["bookmark", "tank/vms@a", "#sent"]);
    here.must(&["destroy", "-f", "tank/vms@a"]);
    // All of it is written over: the snapshot would hold 16 MiB.
    fill(&mut client, &file, 2, 0, 16);
    fill(&mut client, &file, 3, 5, 1);
    here.wait_for(|| used_bytes(&here) < 18 << 20);
    let listed = here.json(&["list", "-t", "bookmark", "tank/vms"]);
    assert_eq!(listed[0]["name"], json!("tank/vms#sent"));
    let all = here.must(&["list", "-t", "all", "-o", "name,type,used", "-r", "tank"]);
    let line: Vec<&str> = all.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(line, ["tank/vms#sent", "bookmark", "-"], "{all}");

    // It outlives the daemon, in spite of a kill.
    daemon.kill9();
    let _daemon = here.serve();
    let mut client = Client::new(&here, "127.0.0.1");
    let changed = here.must(&["diff", "tank/vms#sent", "tank/vms"]);
    assert_eq!(changed, "M\t/tank/vms/disk.raw\n");
    here.must(&["snapshot", "tank/vms@b"]);
    send_words(&here, &["-i", "#sent", "tank/vms@b"], "ab");
    let said = receive(&there, &["-v", "backup/vms"], &here, "ab");
    assert!(said.out.contains("backup/vms@b"), "{said:?}");
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    let mut copy = Client::new(&there, "127.0.0.1");
    copy.mount("/backup/vms");
    has(&mut copy, &file, 2, 0, 5);
    has(&mut copy, &file, 3, 5, 1);

    // Changed ranges since a bookmark, for backup programs.
    here.must(&["bookmark", "tank/vms@b", "tank/vms#backup"]);
    here.must(&["destroy", "-f", "tank/vms@b"]);
    fill(&mut client, &file, 4, 9, 1);
    let ranges = ["diff", "--ranges", "tank/vms#backup:disk.raw", "tank/vms:disk.raw"];
    let range = json!([{ "offset": 9 << 20, "length": 1 << 20, "data": true }]);
    assert_eq!(here.json(&ranges)["ranges"], range);

    // Gone, and nothing of it is left; the pool is clean.
    here.must(&["destroy", "tank/vms#sent"]);
    here.must(&["destroy", "tank/vms#backup"]);
    here.must(&["pool", "export", "tank"]);
    here.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let disk = place.image("disk");
    let _daemon = place.serve();
    with_file(&place, "tank", &[&disk]);
    place.must(&["snapshot", "tank/vms@a"]);
    place.must(&["snapshot", "tank/vms@b"]);
    place.must(&["bookmark", "tank/vms@a", "#one"]);
    for (words, why) in [
        (&["bookmark", "tank/vms@a", "#two"][..], "has the bookmark \"tank/vms#one\" already"),
        (&["bookmark", "tank/vms@b", "#one"], "exists"),
        (&["bookmark", "tank/vms@b", "one"], "write dataset#name"),
        (&["bookmark", "tank/vms@b", "tank#two"], "is no bookmark of \"tank/vms\""),
        (&["bookmark", "tank/vms@b", "#a/b"], "may hold letters"),
        (&["bookmark", "tank/vms@none", "#two"], "tank/vms@none"),
        (&["bookmark", "tank/vms", "#two"], "write dataset@name"),
        (&["destroy", "tank/vms#none"], "tank/vms#none"),
        (&["send", "-i", "#none", "tank/vms@b"], "tank/vms#none"),
        (&["send", "-i", "#one", "tank/vms@a"], "is not older"),
        (&["rollback", "tank/vms#one"], "no snapshot"),
        (&["clone", "tank/vms#one", "tank/new"], "no snapshot"),
        (&["list", "-t", "bookmark", "tank/vms#none"], "there is no bookmark"),
    ] {
        let mut command = place.command(words);
        let said = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.code() == Some(1) && err.contains(why), "{words:?}: {err}");
    }
    let usage = place.ask(&["destroy", "-r", "tank/vms#one"]);
    assert_eq!(usage.code, 2, "{usage:?}");
    // A dataset goes with its bookmarks.
    place.must(&["destroy", "-f", "-r", "tank/vms"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
