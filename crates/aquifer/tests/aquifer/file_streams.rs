//! One disk image travels by itself, from one daemon to another: the real binary, files and NFS.

use crate::bed::{fill, has, with_file};
use crate::eyes::client::Client;
use crate::send::{receive, send_words};
use crate::support::{Place, Said};

#[track_caller]
fn received(said: Said) {
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}

/// Checks what differs, by the names of both kinds of snapshots, and what cannot be sent.
fn differs_and_refuses(here: &Place) {
    here.must(&["snapshot", "tank/vms@all"]);
    let wanted = serde_json::json!([{"offset": 5 << 20, "length": 1 << 20, "data": true}]);
    for (old, new) in [
        ("tank/vms:disk.raw@b", "tank/vms:disk.raw@c"),
        ("tank/vms:disk.raw@b", "tank/vms@all:disk.raw"),
        ("tank/vms:disk.raw@b", "tank/vms:disk.raw@all"),
        ("tank/vms:disk.raw@b", "tank/vms:disk.raw"),
    ] {
        let answer = here.json(&["diff", "--ranges", old, new]);
        assert_eq!((&answer["ranges"], &answer["same_file"]), (&wanted, &true.into()), "{new}");
    }
    for (words, message) in [
        (vec!["send", "-n", "tank/vms:*@a"], None),
        (vec!["send", "-n", "tank/vms:*@*"], Some("several snapshots: give one at a time")),
        (vec!["send", "-n", "tank/vms:disk.raw@x"], Some("there is no snapshot")),
        (vec!["send", "-n", "-i", "@c", "tank/vms:disk.raw@a"], Some("is not older than")),
        (vec!["send", "-n", "-i", "#a", "tank/vms:disk.raw@c"], Some("has no bookmarks")),
        (vec!["send", "-n", "-R", "tank/vms:disk.raw@c"], Some("-R is for datasets")),
        (
            vec!["diff", "--ranges", "tank/vms:disk.raw@a", "tank/vms:disk.raw@x"],
            Some("there is no snapshot"),
        ),
    ] {
        let said = here.ask(&words);
        let fits = message.map_or(said.code == 0, |why| said.code != 0 && said.err.contains(why));
        assert!(fits, "{words:?}: {said:?}");
    }
}

#[test]
fn one_disk_is_sent_followed_and_cloned_into_place() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other_disk) = (here.image("disk"), there.image("disk"));
    let (_daemon, _other) = (here.serve(), there.serve());
    let file = with_file(&here, "tank", &[&disk]);
    let mut client = Client::new(&here, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let other = client.create(&root, "other.raw");
    fill(&mut client, &other, 9, 0, 8);
    for (name, seed, from, mib) in [("a", 1, 0, 8), ("b", 2, 3, 3), ("c", 3, 5, 1)] {
        fill(&mut client, &file, seed, from, mib);
        here.must(&["snapshot", &format!("tank/vms:disk.raw@{name}")]);
    }
    there.must(&["pool", "create", "backup", &other_disk]);

    // The size that is foretold is that of the stream; no other file is in it.
    let of = "tank/vms:disk.raw@a";
    assert_eq!(here.must(&["send", "-n", of]), format!("would send {of}: a stream of 8M\n"));
    let size = here.json(&["send", "-n", of])["stream_bytes"].as_u64();
    send_words(&here, &[of], "a");
    assert_eq!(Some(std::fs::metadata(here.path("a")).unwrap().len()), size);
    let said = receive(&there, &["-v", "backup/disk"], &here, "a");
    let text = format!("received backup/disk@a ({of}): 2 files and directories, 8M\n");
    assert_eq!(said.out, text, "{said:?}");

    // What changed, with all between; one breaks off and goes on by its token.
    let said = here.must(&["send", "-n", "-I", "@a", "tank/vms:disk.raw@c"]);
    let text = "would send tank/vms:disk.raw@c, what changed since tank/vms:disk.raw@a: a stream \
                of 4M\n";
    assert_eq!(said, text);
    send_words(&here, &["-I", "@a", "tank/vms:disk.raw@c"], "abc");
    let whole = std::fs::read(here.path("abc")).unwrap();
    std::fs::write(here.path("part"), &whole[..whole.len() / 2]).unwrap();
    let said = receive(&there, &["-s", "backup/disk"], &here, "part");
    assert!(said.code == 1 && said.err.contains("What came waits for the rest"), "{said:?}");
    let words = ["-H", "get", "-o", "value", "receive_resume_token", "backup/disk"];
    let token = there.must(&words);
    send_words(&here, &["-t", token.trim()], "rest");
    received(receive(&there, &["backup/disk"], &here, "rest"));
    send_words(&here, &["-i", "tank/vms:disk.raw@b", "tank/vms:disk.raw@c"], "bc");
    received(receive(&there, &["-u", "backup/disk"], &here, "bc"));
    let listed = there.json(&["list", "-t", "snapshot", "backup/disk"]);
    let names = listed.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["backup/disk@a", "backup/disk@b", "backup/disk@c"]);

    differs_and_refuses(&here);

    // In service by itself, and cloned into a file system that is.
    there.must(&["create", "-o", "sharenfs=insecure", "backup/vms"]);
    there.must(&["clone", "backup/disk:disk.raw@b", "backup/vms:web.raw"]);
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/disk"]);
    let mut client = Client::new(&there, "127.0.0.1");
    for (path, name, last) in [("/backup/disk", "disk.raw", 3), ("/backup/vms", "web.raw", 2)] {
        let root = client.mount(path);
        let copy = client.lookup(&root, name).unwrap();
        has(&mut client, &copy, 2, 3, 2);
        has(&mut client, &copy, last, 5, if last == 3 { 1 } else { 0 });
    }
    here.must(&["pool", "export", "tank"]);
    there.must(&["pool", "export", "backup"]);
    here.must(&["inspect", "--deep", "-d", &disk, "tank"]);
    there.must(&["inspect", "--deep", "-d", &other_disk, "backup"]);
}
