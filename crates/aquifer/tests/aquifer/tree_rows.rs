//! All snapshots of a tree since an older one go through a file: whole, again, broken off, and
//! where some of them are there already.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::bed::{fill, has, with_file};
use crate::eyes::client::Client;
use crate::replicate::{fails, snapshots};
use crate::send::{receive, send_words};
use crate::support::{Daemon, Place, Said};

const MIB: usize = 1 << 20;
const SENT: [&str; 2] = ["tank/vms", "tank/vms/a"];
const COPIES: [&str; 2] = ["backup/vms", "backup/vms/a"];
const ROWS: [&str; 4] = ["-R", "-I", "@s1", "tank/vms@s4"];

/// Two datasets with a disk each, which has other content in each of four snapshots; and a pool for
/// copies.
struct Bed {
    daemons: [Daemon; 2],
    here: Place,
    there: Place,
    other: String,
}

/// Returns the seed of the content that the disk of a dataset has in its first MiB.
fn seed(dataset: usize, snapshot: usize) -> u64 {
    (10 * dataset + snapshot) as u64
}

impl Bed {
    fn new() -> Bed {
        let (here, there) = (Place::new(), Place::new());
        let (disk, other) = (here.image("a"), there.image("b"));
        let daemons = [here.serve(), there.serve()];
        let first = with_file(&here, "tank", &[&disk]);
        let mut client = Client::new(&here, "127.0.0.1");
        here.must(&["create", SENT[1]]);
        let root = client.mount("/tank/vms/a");
        let second = client.create(&root, "disk.raw");
        for at in 1..=4 {
            for (of, file) in [&first, &second].into_iter().enumerate() {
                fill(&mut client, file, seed(of, at), 0, 1);
            }
            here.must(&["snapshot", "-r", &format!("tank/vms@s{at}")]);
        }
        there.must(&["pool", "create", "backup", &other]);
        Bed { daemons, here, there, other }
    }

    fn send(&self, words: &[&str], name: &str) {
        send_words(&self.here, words, name);
    }

    fn receive(&self, words: &[&str], name: &str) -> Said {
        receive(&self.there, &[words, &["backup/vms"]].concat(), &self.here, name)
    }

    fn has(&self) -> [String; 2] {
        COPIES.map(|copy| snapshots(&self.there, copy).join(" "))
    }

    /// Each snapshot of the copies has its content, and their pool is sound.
    fn is_right(&self) {
        COPIES.iter().for_each(|copy| drop(self.there.must(&["set", "-f", "standby=off", copy])));
        let mut client = Client::new(&self.there, "127.0.0.1");
        for (of, copy) in COPIES.iter().enumerate() {
            for name in snapshots(&self.there, copy) {
                let root = client.mount(&format!("/{copy}"));
                let path = [".aquifer", "snapshot", &name, "disk.raw"];
                let file = path.iter().fold(root, |at, name| client.lookup(&at, name).unwrap());
                has(&mut client, &file, seed(of, name[1..].parse().unwrap()), 0, 1);
            }
        }
        self.there.must(&["pool", "export", "backup"]);
        self.there.must(&["inspect", "--deep", "-d", &self.other, "backup"]);
    }
}

fn lines(said: &Said, part: &str) -> usize {
    said.out.lines().filter(|line| line.contains(part)).count()
}

#[test]
fn all_snapshots_of_a_tree_come_one_after_the_other_and_again_without_harm() {
    let bed = Bed::new();
    bed.send(&["-R", "tank/vms@s1"], "first");
    assert_eq!(bed.receive(&[], "first").code, 0);
    let said = bed.here.ask(&[&["send", "-n"], &ROWS[..]].concat());
    let start = "would send tank/vms@s4, with all below, what changed since @s1, with all between: \
                 streams of 6";
    assert!(said.code == 0 && said.out.starts_with(start) && said.err.is_empty(), "{said:?}");
    bed.send(&ROWS, "rows");
    let bytes = std::fs::read(bed.here.path("rows")).unwrap();
    assert_eq!((&bytes[..8], bytes[8]), (&b"AQBUNDLE"[..], 2));
    let estimate = bed.here.json(&[&["send", "-n"], &ROWS[..]].concat());
    assert_eq!(estimate["stream_bytes"], bytes.len() as u64);
    fails(&bed.receive(&["-n"], "rows"), "send -i, not -I");
    fails(&bed.receive(&["--new-handles"], "rows"), "leave out --new-handles");
    assert_eq!(bed.has(), ["s1", "s1"]);

    // It breaks off in the second stream of the first dataset, and then in that of the second.
    for (part, came) in [(2, ["s1 s2", "s1"]), (5, ["s1 s2 s3 s4", "s1 s2"])] {
        std::fs::write(bed.here.path("part"), &bytes[..part * MIB - MIB / 2]).unwrap();
        let said = bed.receive(&[], "part");
        fails(&said, "the stream ends after ");
        let stays = format!("{} of 6 streams came before it, and stay", part - 1);
        assert!(said.err.contains(&stays), "{said:?}");
        assert_eq!(bed.has(), came);
    }
    let said = bed.receive(&["-v"], "rows");
    assert_eq!((said.code, lines(&said, "was there already, and stays")), (0, 4), "{said:?}");
    let last = "received backup/vms/a@s4 (tank/vms/a@s4, what changed since tank/vms/a@s3): ";
    assert!(said.out.contains(last), "{said:?}");
    let said = bed.receive(&[], "rows");
    assert_eq!((said.code, lines(&said, "was there already, and stays")), (0, 6), "{said:?}");
    // What is only checked, too.
    assert_eq!(bed.receive(&["-n"], "rows").code, 0);
    assert_eq!(bed.has(), ["s1 s2 s3 s4", "s1 s2 s3 s4"]);
    bed.is_right();
}

#[test]
fn what_a_copy_skipped_is_passed_over_and_one_that_lacks_the_first_comes_whole() {
    let bed = Bed::new();
    // A copy that skipped the second one, of the second dataset.
    bed.send(&["tank/vms@s1"], "first");
    assert_eq!(bed.receive(&[], "first").code, 0);
    bed.send(&["-i", "@s1", "tank/vms@s3"], "third");
    assert_eq!(bed.receive(&[], "third").code, 0);
    bed.here.must(&["destroy", "-f", "tank/vms/a@s1"]);
    bed.send(&ROWS, "rows");
    let said = bed.receive(&["-v"], "rows");
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        "backup/vms@s2 is passed over, since backup/vms@s3 is there already\n",
        "backup/vms@s3 was there already, and stays as it is\n",
        "received backup/vms@s4 (tank/vms@s4, what changed since tank/vms@s3): ",
        "received backup/vms/a@s2 (tank/vms/a@s2): 2 files",
        "received backup/vms/a@s3 (tank/vms/a@s3, what changed since tank/vms/a@s2): ",
        "received backup/vms/a@s4 (tank/vms/a@s4, what changed since tank/vms/a@s3): ",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    assert_eq!(bed.has(), ["s1 s3 s4", "s2 s3 s4"]);
    bed.is_right();
}

/// In the middle of the second stream of a row.
#[test]
fn what_came_before_a_daemon_died_stays() {
    let mut bed = Bed::new();
    bed.send(&["-R", "tank/vms@s1"], "first");
    assert_eq!(bed.receive(&[], "first").code, 0);
    bed.send(&ROWS, "rows");
    let bytes = std::fs::read(bed.here.path("rows")).unwrap();
    let mut receiving = bed.there.command(&["receive", "backup/vms"]);
    let receiving = receiving.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut receiving = receiving.spawn().unwrap();
    let mut input = receiving.stdin.take().unwrap();
    // Parts have a MiB.
    input.write_all(&bytes[..2 * MIB + 5]).unwrap();
    bed.there.wait_for(|| bed.has() == ["s1 s2", "s1"]);
    let [here, there] = bed.daemons;
    there.kill9();
    drop(input);
    assert_eq!(receiving.wait().unwrap().code(), Some(1));
    bed.daemons = [here, bed.there.serve()];
    assert_eq!(bed.has(), ["s1 s2", "s1"]);
    let said = bed.receive(&[], "rows");
    assert_eq!((said.code, lines(&said, "was there already, and stays")), (0, 1), "{said:?}");
    assert_eq!(bed.has(), ["s1 s2 s3 s4", "s1 s2 s3 s4"]);
    bed.is_right();
}

#[test]
fn rows_go_on_by_a_token_and_begin_at_a_bookmark() {
    let bed = Bed::new();
    bed.here.must(&["bookmark", "tank/vms@s2", "tank/vms#mark"]);
    bed.send(&["-R", "tank/vms@s2"], "first");
    assert_eq!(bed.receive(&[], "first").code, 0);
    bed.here.must(&["destroy", "-f", "tank/vms@s2"]);
    bed.send(&["-R", "-I", "#mark", "tank/vms@s4"], "rows");
    // The second dataset has no bookmark: all of it, first the one before.
    let bytes = std::fs::read(bed.here.path("rows")).unwrap();
    std::fs::write(bed.here.path("part"), &bytes[..MIB + MIB / 2]).unwrap();
    let said = bed.receive(&["-s"], "part");
    fails(&said, "aquifer get receive_resume_token backup/vms`");
    fails(&bed.receive(&[], "rows"), "has part of a stream that broke off");
    let token = bed.there.json(&["list", "-t", "receiving"])[0]["receive_resume_token"].clone();
    bed.send(&["-t", token.as_str().unwrap()], "rest");
    assert_eq!(bed.receive(&[], "rest").code, 0);
    let said = bed.receive(&[], "rows");
    assert_eq!((said.code, lines(&said, "there already")), (0, 4), "{said:?}");
    assert!(lines(&said, "backup/vms/a@s1 is passed over, since backup/vms/a@s2 is") == 1);
    assert_eq!(bed.has(), ["s2 s3 s4", "s2 s3 s4"]);
    bed.is_right();
}

/// The size alone is asked for: as with the stream, from part to part.
#[test]
fn a_snapshot_between_that_goes_meanwhile_ends_the_bundle() {
    let bed = Bed::new();
    let mut query = json!({
        "snapshot": "tank/vms@s4", "from": "@s1", "recursive": true, "between": true,
        "size_only": true,
    });
    let next = |head: &str| {
        let mut lines = head.lines();
        lines.find_map(|line| line.strip_prefix("x-aquifer-next: ").map(str::to_string))
    };
    let (head, _) = bed.here.post("/v1/send", &query);
    query["after"] = next(&head).unwrap().into();
    let (head, _) = bed.here.post("/v1/send", &query);
    assert!(head.contains(" 200 OK") && next(&head).is_some(), "{head}");
    query["after"] = next(&head).unwrap().into();
    bed.here.must(&["destroy", "-f", "tank/vms/a@s3"]);
    let (head, said) = bed.here.post("/v1/send", &query);
    assert!(head.contains(" 409 ") && said.contains("begin again"), "{head} {said}");

    for (field, value, why) in [
        ("from", json!(null), "say since which snapshot"),
        ("recursive", json!(false), "ask for each after the other"),
    ] {
        let mut wrong = query.clone();
        (wrong["after"], wrong[field]) = (json!(null), value);
        let (head, said) = bed.here.post("/v1/send", &wrong);
        assert!(head.contains(" 400 ") && said.contains(why), "{head} {said}");
    }
}

#[test]
fn rows_that_cannot_be_sent_or_received_say_why() {
    let bed = Bed::new();
    let send = |words: &[&str]| bed.here.ask(&[&["send", "-n", "-R"], words].concat());
    for (words, why) in [
        (&["-I", "@none", "tank/vms@s4"][..], "\"tank/vms@none\" does not exist"),
        (&["-I", "#none", "tank/vms@s4"][..], "does not exist"),
        (&["-I", "tank/vms/a@s1", "tank/vms@s4"][..], "say -i @NAME"),
        (&["-I", "@s4", "tank/vms@s1"][..], "is not older than"),
    ] {
        fails(&send(words), why);
    }
    assert_eq!(send(&["-t", "1-0"]).code, 2);
    assert_eq!(send(&["-i", "@s1", "-I", "@s1", "tank/vms@s4"]).code, 2);
    // Nothing between: as with -i.
    bed.send(&["-R", "-I", "@s3", "tank/vms@s4"], "one");
    bed.send(&["-R", "-i", "@s3", "tank/vms@s4"], "same");
    let [one, same] = ["one", "same"].map(|name| std::fs::read(bed.here.path(name)).unwrap());
    assert!(one == same && one[8] == 1);
    // There is no copy, or one that somebody has changed.
    bed.send(&ROWS, "rows");
    fails(&bed.receive(&[], "rows"), "backup/vms: ");
    bed.send(&["-R", "tank/vms@s1"], "first");
    assert_eq!(bed.receive(&[], "first").code, 0);
    bed.there.must(&["set", "-f", "standby=off", COPIES[1]]);
    fails(&bed.receive(&[], "rows"), "backup/vms/a: ");
    assert_eq!(bed.has(), ["s1 s2 s3 s4", "s1"]);
    let mut client = Client::new(&bed.there, "127.0.0.1");
    let root = client.mount("/backup/vms/a");
    client.create(&root, "other");
    bed.there.must(&["set", "standby=on", COPIES[1]]);
    fails(&bed.receive(&[], "rows"), "was changed since");
    assert_eq!(bed.receive(&["-F"], "rows").code, 0);
    assert_eq!(bed.has(), ["s1 s2 s3 s4", "s1 s2 s3 s4"]);
    bed.is_right();
}
