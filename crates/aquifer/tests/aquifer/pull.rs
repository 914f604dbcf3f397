//! Copies that are fetched: the server that has the datasets knows no token of the one that keeps
//! the copies. The real binary, TLS, tokens and kills.

use std::process::Stdio;

use serde_json::Value;

use crate::bed::{fill, with_file};
use crate::eyes::client::Client;
use crate::remote::Far;
use crate::replicate::{Pair, done, fails, give_token, replicate, snapshots};
use crate::support::Place;

const FETCH: [&str; 3] = ["--pull", "other:tank/vms", "backup/vms"];

/// `here` has the dataset, and `there` fetches it with a token that may only send.
fn fetching(pair: &Pair) {
    let (here, there) = (&pair.here, &pair.there);
    let create = ["token", "create", "fetch", "--role", "send", "--dataset", "tank/vms"];
    give_token(there, &here.must(&create));
    // The source has no token of the other side.
    std::fs::remove_file(here.path("other.token")).unwrap();
}

fn sent_bytes(place: &Place) -> u64 {
    place.json(&["replicate"])[0]["sent_bytes"].as_u64().unwrap()
}

fn waits(place: &Place) -> u64 {
    let all = place.json(&["list", "-t", "receiving"]);
    all.as_array().unwrap().iter().map(|of| of["received_bytes"].as_u64().unwrap()).sum()
}

#[test]
fn a_copy_is_fetched_and_goes_on_where_it_broke_off() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    fetching(&pair);
    let mut client = Client::new(here, "127.0.0.1");
    // More than waits between the two sides at a time.
    fill(&mut client, &file, 1, 0, 32);

    // A whole one, in two parts: the source dies in the middle.
    let slowly = [&["replicate", "--rate", "4M"], &FETCH[..]].concat();
    let begin = || {
        let mut command = there.command(&slowly);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap();
        there.wait_for(|| {
            let all = there.json(&["replicate"]);
            let all = all.as_array().unwrap();
            all.iter().any(|of| of["state"] == "running" && of["sent_bytes"].as_u64() > Some(0))
        });
        child
    };
    let mut child = begin();
    there.wait_for(|| waits(there) > 0);
    there.must(&["snapshot", "backup@now"]);
    daemon.kill9();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let daemon = pair.serve(here);
    let came = waits(there);
    assert!(came > 0);
    done(&replicate(there, &FETCH));
    assert!(sent_bytes(there) <= (32 << 20) + (1 << 20) - came, "{came}");
    assert_eq!(waits(there), 0);
    let first = snapshots(there, "backup/vms");
    assert!(first.len() == 1 && first[0].starts_with("replicate-fetch-"), "{first:?}");
    assert_eq!(snapshots(here, "tank/vms"), first);
    let holds = here.json(&["holds", "tank/vms"]);
    assert_eq!(holds[0]["tag"], "replicated to fetch:backup/vms");
    let holds = there.json(&["holds", "backup/vms"]);
    assert_eq!(holds[0]["tag"], "received by peer other");
    let listed = there.json(&["replicate"]);
    assert_eq!(listed[0]["dataset"], "other:tank/vms");
    assert_eq!(listed[0]["target"], "backup/vms");

    // What changed: this side dies in the middle; then all of it. The one before goes on both.
    fill(&mut Client::new(here, "127.0.0.1"), &file, 2, 0, 32);
    let mut child = begin();
    other.kill9();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let _other = pair.serve(there);
    assert_eq!(snapshots(there, "backup/vms"), first);
    done(&replicate(there, &FETCH));
    let second = snapshots(there, "backup/vms");
    assert!(second.len() == 1 && second != first, "{second:?}");
    assert_eq!(snapshots(here, "tank/vms"), second);
    // What the source's administrator sets changes nothing at the copy.
    here.must(&["set", "sharenfs=rw,insecure", "compression=off", "tank/vms"]);
    here.must(&["snapshot", "tank/vms@own"]);
    done(&replicate(there, &[&["--keep", "2"], &FETCH[..]].concat()));
    let source = |property: &str| {
        let found = there.json(&["get", property, "backup/vms"]);
        found[0]["source"].as_str().unwrap_or_else(|| panic!("{found}")).to_string()
    };
    assert_ne!(source("sharenfs"), "local");
    let third = snapshots(there, "backup/vms");
    assert!(third.len() == 2 && third[0] == second[0], "{third:?}");
    // It takes the place of its source.
    here.must(&["set", "standby=on", "tank/vms"]);
    drop(daemon);
    there.must(&["set", "standby=off", "sharenfs=insecure", "backup/vms"]);
    let mut client = Client::new(there, "127.0.0.1");
    crate::bed::has(&mut client, &file, 2, 0, 32);
}

#[test]
fn a_tree_is_fetched_and_the_token_does_nothing_else() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let _daemons = pair.both();
    here.must(&["pool", "create", "tank", &pair.disks[0]]);
    for name in ["tank/vms", "tank/vms/a", "tank/vms2"] {
        here.must(&["create", name]);
        here.must(&["snapshot", &format!("{name}@own")]);
    }
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    let said = here.ask(&["token", "create", "fetch", "--role", "send"]);
    assert!(said.code == 1 && said.err.contains("--dataset tank/vms"), "{said:?}");
    let long = "x".repeat(33);
    let said = here.ask(&["token", "create", &long, "--role", "send", "--dataset", "tank/vms"]);
    fails(&said, "no name of a peer");
    fetching(&pair);
    done(&replicate(there, &[&["-r"], &FETCH[..]].concat()));
    let taken = snapshots(here, "tank/vms").pop().unwrap();
    for copy in ["backup/vms", "backup/vms/a"] {
        assert_eq!(snapshots(there, copy), [taken.as_str()], "{copy}");
    }
    // Names.
    fails(&replicate(there, &["--pull", "tank/vms", "backup/x"]), "from which peer");
    fails(&replicate(there, &["--pull", "other:tank/vms", "other:backup/x"]), "into this daemon");
    let said = replicate(there, &["--pull", "other:tank/vms2", "backup/x"]);
    fails(&said, "there is no \"tank/vms2\" within tank/vms");
    fails(&replicate(there, &["--pull", "nobody:tank/vms", "backup/x"]), "no peer \"nobody\"");

    // The token alone, in the hands of a thief.
    let far = Far::at(there, pair.url_here(), there.text("other.pem"));
    let token = there.text("other.token");
    let before = |place: &Place| {
        let all = place.json(&["list", "-t", "all"]);
        let all: Vec<String> = all
            .as_array()
            .map(|all| all.iter().map(Value::to_string).collect())
            .unwrap_or_else(|| vec![all.to_string()]);
        all
    };
    let was = before(here).len();
    let needs = "token fetch has the role send; this needs";
    for words in [
        &["snapshot", "tank/vms@x"][..],
        &["destroy", "-f", "tank/vms@own"],
        &["destroy", "-r", "-f", "tank/vms"],
        &["rollback", "tank/vms@own"],
        &["release", "replicated to fetch:backup/vms", "tank/vms@own"],
        &["hold", "x", "tank/vms@own"],
        &["set", "compression=off", "tank/vms"],
        &["create", "tank/vms/x"],
        &["rename", "tank/vms/a", "tank/vms/b"],
        &["pool", "list"],
        &["pool", "export", "tank"],
        &["token", "create", "x", "--role", "read"],
        &["list", "-t", "snapshot"],
    ] {
        let said = far.ask(&token, words);
        assert!(said.code == 1 && said.err.contains(needs), "{words:?}: {said:?}");
    }
    assert_eq!(before(here).len(), was);
    let listed = far.must(&token, &["-H", "list"]);
    let names: Vec<&str> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["tank/vms", "tank/vms/a"]);
    let history = here.must(&["pool", "history", "tank"]);
    assert!(history.contains("replicate --pull (snapshot) tank/vms tank/vms/a"), "{history}");
    // Without it nothing is fetched.
    here.must(&["token", "revoke", "fetch"]);
    let said = replicate(there, &FETCH);
    fails(&said, "aquifer token create NAME --role send");
    pair.inspect();
}

#[test]
fn a_tree_is_fetched_by_its_property_while_it_stands_by() {
    let pair = Pair::new();
    let (here, there) = (&pair.here, &pair.there);
    let (daemon, other) = pair.both();
    let file = with_file(here, "tank", &[&pair.disks[0]]);
    here.must(&["create", "tank/vms/a"]);
    there.must(&["pool", "create", "backup", &pair.disks[1]]);
    fetching(&pair);

    // It stands at a copy that is there, and names a dataset of a peer.
    let pull = "pull=other:tank/vms every=10s keep=2 recursive";
    let said = there.ask(&["set", pull, "backup/vms"]);
    fails(&said, "`aquifer replicate --pull other:tank/vms backup/vms` makes it");
    there.must(&["create", "backup/used"]);
    fails(&there.ask(&["set", pull, "backup/used"]), "\"backup/used\" is in service");
    fails(&there.ask(&["create", "-o", pull, "backup/new"]), "a new dataset is in service");
    for (value, why) in [
        ("tank/vms", "says from no peer"),
        ("nobody:tank/vms", "no peer \"nobody\""),
        ("other:tank/vms every=1s", "from 10s"),
        ("other:tank", "below a pool's"),
    ] {
        fails(&there.ask(&["set", &format!("pull={value}"), "backup/used"]), why);
    }
    done(&replicate(there, &[&["-r"], &FETCH[..]].concat()));
    there.must(&["set", pull, "backup/vms"]);
    let value = there.must(&["-H", "get", "-o", "value,source", "pull", "backup/vms/a"]);
    assert_eq!(value, "off\tdefault\n");

    // The next ones come by themselves, with a dataset that is new there.
    let listed = || there.json(&["replicate"])[0].clone();
    let newest = || snapshots(there, "backup/vms").pop().unwrap();
    let first = newest();
    fill(&mut Client::new(here, "127.0.0.1"), &file, 1, 0, 2);
    here.must(&["create", "tank/vms/b"]);
    there.wait_for(|| newest() != first && there.ask(&["list", "backup/vms/b"]).code == 0);
    there.wait_for(|| snapshots(there, "backup/vms").len() == 2);
    assert_eq!(listed()["every_s"], 10);
    let shown = there.must(&["replicate"]);
    let row = shown.lines().find(|line| line.starts_with("other:tank/vms/a ")).unwrap();
    assert!(row.contains(" backup/vms/a ") && row.contains(" 00:00:10 "), "{shown}");
    let status = there.must(&["pool", "status", "backup"]);
    let line = status.lines().find(|line| line.starts_with("  copy: ")).unwrap();
    assert!(line.starts_with("  copy: other:tank/vms to backup/vms: 00:00:"), "{status}");
    let (_, page) = there.get("/metrics");
    let behind = "aquifer_replication_behind_seconds{dataset=\"other:tank/vms/a\",\
                  target=\"backup/vms/a\"} ";
    assert!(page.contains(behind), "{page}");

    // Nobody there, and a restart here: it is known what the copies have, of all.
    daemon.kill9();
    other.kill9();
    let _other = pair.serve(there);
    there.wait_for(|| listed()["state"] == "failed");
    let copies = listed()["copies"].as_array().unwrap().clone();
    let known = |copy: &Value| (copy["copy"].clone(), copy["behind_s"].is_u64());
    let known: Vec<(Value, bool)> = copies.iter().map(known).collect();
    let all = ["backup/vms", "backup/vms/a", "backup/vms/b"];
    assert_eq!(known, all.map(|copy| (Value::from(copy), true)));
    let _daemon = pair.serve(here);
    let last = newest();
    there.wait_for(|| newest() != last);

    // In service it is nobody's copy; as one again it follows.
    there.must(&["set", "standby=off", "backup/vms"]);
    there.wait_for(|| listed()["state"] != "running");
    assert_eq!(there.json(&["pool", "status", "backup"])["replications"], Value::Null);
    let last = newest();
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert_eq!(newest(), last);
    there.must(&["set", "standby=on", "backup/vms"]);
    there.wait_for(|| newest() != last);
    there.must(&["set", "pull=off", "backup/vms"]);
    there.wait_for(|| there.json(&["replicate"])[0]["state"] != "running");
    assert_eq!(there.json(&["pool", "status", "backup"])["replications"], Value::Null);
    pair.inspect();
}
