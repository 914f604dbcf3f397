//! A dataset with all below it goes to another daemon: what came later, what fails alone, what is
//! gone here.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::bed::{fill, has, with_file};
use crate::eyes::client::Client;
use crate::replicate::{Pair, done, fails, give_admins, replicate, snapshots};
use crate::send::{receive, send_words};
use crate::support::Place;

const TREE: [&str; 3] = ["-R", "tank/vms", "other:backup/vms"];
const COPIES: [&str; 3] = ["backup/vms", "backup/vms/a", "backup/vms/a/deep"];

/// A dataset below, with a file of a MiB.
fn below(place: &Place, client: &mut Client, dataset: &str, seed: u64) -> Vec<u8> {
    place.must(&["create", dataset]);
    let root = client.mount(&format!("/{dataset}"));
    let file = client.create(&root, "disk.raw");
    fill(client, &file, seed, 0, 1);
    file
}

/// Three datasets, one below the other, with their files.
fn tree(place: &Place, disk: &str) -> (Client, [Vec<u8>; 3]) {
    let top = with_file(place, "tank", &[disk]);
    let mut client = Client::new(place, "127.0.0.1");
    fill(&mut client, &top, 1, 0, 1);
    let middle = below(place, &mut client, "tank/vms/a", 2);
    let deep = below(place, &mut client, "tank/vms/a/deep", 3);
    (client, [top, middle, deep])
}

/// Releases what the runs held, for one that is to be destroyed.
fn let_go(place: &Place, dataset: &str) {
    for hold in place.json(&["holds", "-r", dataset]).as_array().unwrap() {
        let [tag, name] = ["tag", "snapshot"].map(|field| hold[field].as_str().unwrap());
        place.must(&["release", tag, name]);
    }
}

/// Name, state and error of each dataset of the newest run.
fn states(place: &Place) -> Vec<(String, String, String)> {
    let listed = place.json(&["replicate"]);
    let text = |of: &Value| of.as_str().unwrap_or_default().to_string();
    let of = |copy: &Value| (text(&copy["dataset"]), text(&copy["state"]), text(&copy["error"]));
    listed[0]["copies"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_tree_goes_whole_then_what_changed_and_one_that_fails_holds_up_no_other() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let _daemons = pair.both();
    let (mut client, files) = tree(here, &pair.disks[0]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    here.must(&["snapshot", "-r", "tank/vms@own"]);
    done(&replicate(here, &[&["--all"], &TREE[..]].concat()));
    let first = snapshots(there, "backup/vms");
    assert_eq!((first.len(), first[0].as_str()), (2, "own"), "{first:?}");
    // All of one moment.
    COPIES.iter().for_each(|copy| assert_eq!(snapshots(there, copy), first));

    // What changed, and one that is new.
    fill(&mut client, &files[2], 4, 0, 1);
    let late = below(here, &mut client, "tank/vms/late", 5);
    let said = replicate(here, &[&["-v"], &TREE[..]].concat());
    assert_eq!((said.code, said.out.lines().count()), (0, 5), "{said:?}");
    assert!(said.out.contains("other:backup/vms/a/deep has tank/vms/a/deep@repl"), "{said:?}");
    let sent = here.json(&["replicate"])[0]["sent_bytes"].as_u64().unwrap();
    assert!((2 << 20..3 << 20).contains(&sent), "{sent}");
    let second = snapshots(there, "backup/vms").pop().unwrap();
    for copy in COPIES {
        assert_eq!(snapshots(there, copy), ["own", second.as_str()], "{copy}");
    }
    assert_eq!(snapshots(there, "backup/vms/late"), [second.as_str()]);

    // Somebody wrote to one of the copies: that one fails, and the others go.
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms/a"]);
    let mut stranger = Client::new(there, "127.0.0.1");
    fill(&mut stranger, &files[1], 9, 0, 1);
    there.must(&["set", "standby=on", "backup/vms/a"]);
    fill(&mut client, &files[2], 6, 0, 1);
    let said = replicate(here, &TREE);
    fails(&said, "tank/vms/a to other:backup/vms/a: ");
    assert!(said.err.contains("was changed since") && !said.err.contains("late"), "{said:?}");
    let third = snapshots(there, "backup/vms").pop().unwrap();
    assert!(third != second && snapshots(there, "backup/vms/a").pop() == Some(second));
    assert_eq!(snapshots(there, "backup/vms/a/deep").pop(), Some(third));
    let failed = states(here);
    let is_failed = |of: &(String, String, String)| of.1 == "failed" && of.2.contains("changed");
    assert!(failed.len() == 4 && is_failed(&failed[1]), "{failed:?}");
    assert_eq!(failed.iter().filter(|of| of.1 == "done" && of.2.is_empty()).count(), 3);
    let (_, page) = here.get("/metrics");
    let sample = |name: &str, failed: u8| {
        format!("_failed{{dataset=\"tank/{name}\",target=\"other:backup/{name}\"}} {failed}\n")
    };
    assert!(page.contains(&sample("vms/a", 1)) && page.contains(&sample("vms", 0)), "{page}");
    give_admins(here, there);
    done(&replicate(here, &[&["-F"], &TREE[..]].concat()));
    let last = snapshots(there, "backup/vms").pop().unwrap();
    COPIES.iter().for_each(|copy| assert_eq!(snapshots(there, copy).pop().unwrap(), last));

    // The copies take the place of all.
    here.must(&["pool", "export", "tank"]);
    let all =
        COPIES.iter().zip(&files).zip([1, 2, 6]).map(|((copy, file), seed)| (*copy, file, seed));
    let mut stranger = Client::new(there, "127.0.0.1");
    for (copy, file, seed) in all.chain([("backup/vms/late", &late, 5)]) {
        there.must(&["set", "standby=off", "sharenfs=insecure", copy]);
        has(&mut stranger, file, seed, 0, 1);
    }
    there.must(&["pool", "export", "backup"]);
    there.must(&["inspect", "--deep", "-d", &pair.disks[1], "backup"]);
}

#[test]
fn a_dataset_that_is_gone_here_stays_there_and_is_named() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let _daemons = pair.both();
    let _tree = tree(here, &pair.disks[0]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    // Nothing below: as without.
    here.must(&["create", "tank/alone"]);
    done(&replicate(here, &["--recursive", "tank/alone", "other:backup/alone"]));
    assert_eq!(snapshots(there, "backup/alone").len(), 1);
    let_go(here, "tank/alone");
    here.must(&["destroy", "-r", "-f", "tank/alone"]);
    there.must(&["destroy", "-r", "-f", "backup/alone"]);

    done(&replicate(here, &TREE));
    let_go(here, "tank/vms/a");
    here.must(&["destroy", "-r", "-f", "tank/vms/a"]);
    let said = replicate(here, &[&["-v"], &TREE[..]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    let note = "note: other:backup/vms/a/deep stays there, but no dataset here goes to it any more";
    assert!(said.err.contains(note), "{said:?}");
    let left = |place: &Place| {
        let listed = place.json(&["replicate"]);
        let mut all = listed.as_array().unwrap().iter();
        all.find(|of| of["dataset"] == "tank/vms").unwrap()["left"].clone()
    };
    assert_eq!(left(here), serde_json::json!(["backup/vms/a", "backup/vms/a/deep"]));
    assert!(here.must(&["replicate"]).contains("`aquifer destroy -r backup/vms/a` there"));
    assert_eq!(snapshots(there, "backup/vms/a/deep").len(), 1);
    there.must(&["destroy", "-r", "-f", "backup/vms/a"]);
    done(&replicate(here, &TREE));
    assert_eq!(left(here), Value::Null);

    // One of the same name is something else there.
    there.must(&["create", "backup/vms/new"]);
    here.must(&["create", "tank/vms/new"]);
    let said = replicate(here, &TREE);
    fails(&said, "tank/vms/new to other:backup/vms/new: \"backup/vms/new\" is in service there");
    there.must(&["set", "standby=on", "backup/vms/new"]);
    fails(&replicate(here, &TREE), "no snapshot in common with \"tank/vms/new\"");
    pair.inspect();
}

#[test]
fn a_tree_goes_through_a_file_and_then_what_changed() {
    let (here, there) = (Place::new(), Place::new());
    let (disk, other) = (here.image("a"), there.image("b"));
    let _daemons = (here.serve(), there.serve());
    let (mut client, files) = tree(&here, &disk);
    there.must(&["pool", "create", "backup", &other]);
    here.must(&["snapshot", "-r", "tank/vms@a"]);
    let late = below(&here, &mut client, "tank/vms/late", 5);
    let said = here.ask(&["send", "-n", "-R", "tank/vms@a"]);
    assert!(said.out.starts_with("would send tank/vms@a, with all below: 3M"), "{said:?}");
    let note = "note: tank/vms/late has no snapshot \"a\" and is left out\n";
    assert_eq!(said.err, note);
    send_words(&here, &["-R", "tank/vms@a"], "all");
    let said = receive(&there, &["-n", "backup/vms"], &here, "all");
    let line = |at: &str| {
        format!("would receive backup/{at}@a (tank/{at}@a): 2 files and directories, 1M\n")
    };
    assert_eq!((said.code, said.out), (0, ["vms", "vms/a", "vms/a/deep"].map(line).concat()));

    // It breaks off in the last one; what came stays, and the next one passes it over.
    let bytes = std::fs::read(here.path("all")).unwrap();
    std::fs::write(here.path("part"), &bytes[..bytes.len() - 5000]).unwrap();
    let said = receive(&there, &["backup/vms"], &here, "part");
    fails(&said, "backup/vms/a/deep: the stream ends after ");
    assert!(said.err.contains("2 of 3 datasets came before it, and stay"), "{said:?}");
    // With -s, that one goes on by itself first.
    let said = receive(&there, &["-s", "backup/vms"], &here, "part");
    fails(
        &said,
        "What came waits for the rest: `aquifer get receive_resume_token backup/vms/a/deep`",
    );
    let said = receive(&there, &["backup/vms"], &here, "all");
    fails(&said, "has part of a stream that broke off");
    let token = there.json(&["list", "-t", "receiving"])[0]["receive_resume_token"].clone();
    send_words(&here, &["-t", token.as_str().unwrap()], "rest");
    let said = receive(&there, &["backup/vms/a/deep"], &here, "rest");
    assert_eq!(said.code, 0, "{said:?}");
    there.must(&["destroy", "-r", "-f", "backup/vms/a/deep"]);
    let said = receive(&there, &["backup/vms"], &here, "all");
    let text = "backup/vms@a was there already, and stays as it is\n\
                backup/vms/a@a was there already, and stays as it is\n";
    assert_eq!((said.code, said.out.as_str()), (0, text), "{said:?}");

    fill(&mut client, &files[2], 6, 0, 1);
    here.must(&["snapshot", "-r", "tank/vms@b"]);
    let words = ["-R", "-i", "@a", "tank/vms@b"];
    let said = here.ask(&[&["send", "-n"], &words[..]].concat());
    let start = "would send tank/vms@b, with all below, what changed since @a: a stream of 2M";
    assert!(said.out.starts_with(start) && said.err.is_empty(), "{said:?}");
    send_words(&here, &words, "changes");
    let said = receive(&there, &["-v", "backup/vms"], &here, "changes");
    assert_eq!((said.code, said.out.lines().count()), (0, 4), "{said:?}");
    let whole = "received backup/vms/late@b (tank/vms/late@b): 2 files and directories, 1M\n";
    let changed = "received backup/vms/a/deep@b (tank/vms/a/deep@b, what changed since \
                   tank/vms/a/deep@a): 1 files and directories changed, 0 removed, 1M\n";
    assert!(said.out.contains(whole) && said.out.contains(changed), "{said:?}");
    COPIES.iter().for_each(|copy| assert_eq!(snapshots(&there, copy), ["a", "b"]));

    let mut stranger = Client::new(&there, "127.0.0.1");
    let all = COPIES.iter().zip(&files).zip([1, 2, 6]);
    let all = all.map(|((copy, file), seed)| (*copy, file, seed));
    for (copy, file, seed) in all.chain([("backup/vms/late", &late, 5)]) {
        there.must(&["set", "-f", "standby=off", copy]);
        has(&mut stranger, file, seed, 0, 1);
    }
    there.must(&["pool", "export", "backup"]);
    there.must(&["inspect", "--deep", "-d", &other, "backup"]);
}

/// Its first stream is read slowly; then the next one is not there any more.
#[test]
fn a_tree_that_changes_while_it_is_sent_ends_the_bundle() {
    let (place, there) = (Place::new(), Place::new());
    let (disk, other) = (place.image("a"), there.image("b"));
    let _daemons = (place.serve(), there.serve());
    let (mut client, files) = tree(&place, &disk);
    fill(&mut client, &files[0], 7, 0, 40);
    place.must(&["snapshot", "-r", "tank/vms@a"]);
    // Streams of several parts.
    send_words(&place, &["-R", "tank/vms@a"], "all");
    there.must(&["pool", "create", "backup", &other]);
    let said = receive(&there, &["-v", "backup/vms"], &place, "all");
    assert!(said.code == 0 && said.out.contains("backup/vms@a (tank/vms@a): 2 files"), "{said:?}");
    there.must(&["set", "-f", "standby=off", "backup/vms"]);
    has(&mut Client::new(&there, "127.0.0.1"), &files[0], 7, 0, 40);

    let mut sending = place.command(&["send", "-R", "tank/vms@a"]);
    let mut sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = sending.stdout.take().unwrap();
    let mut magic = [0; 8];
    out.read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"AQBUNDLE");
    place.must(&["destroy", "-f", "tank/vms/a@a"]);
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let ended = sending.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(said.contains("changed while they were sent: begin again"), "{said}");
}

#[test]
fn a_tree_that_cannot_be_sent_says_why() {
    let place = Place::new();
    let disk = place.image("a");
    let _daemon = place.serve();
    let _tree = tree(&place, &disk);
    place.must(&["snapshot", "-r", "tank/vms@a"]);
    place.must(&["snapshot", "-r", "tank/vms@b"]);
    let send = |words: &[&str]| place.ask(&[&["send", "-n", "-R"], words].concat());
    for (words, why) in [
        (&["tank/vms@none"][..], "\"tank/vms@none\" does not exist"),
        (&["tank/none@a"][..], "\"tank/none\" does not exist"),
        (&["-i", "@none", "tank/vms@b"][..], "\"tank/vms@none\" does not exist"),
        (&["-i", "#none", "tank/vms@b"][..], "does not exist"),
        (&["-i", "tank/vms/a@a", "tank/vms@b"][..], "say -i @NAME"),
        (&["-i", "@b", "tank/vms@a"][..], "is not older than"),
    ] {
        fails(&send(words), why);
    }
    assert_eq!(send(&["tank/vms"]).code, 2);
    // In the place of its source, or under one that is not there: nothing is changed.
    send_words(&place, &["-R", "tank/vms@a"], "all");
    fails(
        &receive(&place, &["tank/vms"], &place, "all"),
        "aquifer: tank/vms: dataset \"tank/vms\" exists already\n",
    );
    let said = receive(&place, &["tank/none/vms"], &place, "all");
    fails(&said, "\"tank/none\" does not exist");
    // Beside it, with handles of its own.
    place.must(&["create", "tank/beside"]);
    let said = receive(&place, &["--new-handles", "tank/beside/vms"], &place, "all");
    assert_eq!(said.code, 0, "{said:?}");
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/beside/vms/a/deep");
    let copy = client.lookup(&root, "disk.raw").unwrap();
    has(&mut client, &copy, 3, 0, 1);
}
