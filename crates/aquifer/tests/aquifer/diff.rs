//! Differences of two snapshots: names and ranges. The daemon, the command line, and NFS.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::bed::{Served, noise, served, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
const RANGES: [&str; 4] = ["diff", "--ranges", "tank/vms@a:disk.raw", "tank/vms@b:/disk.raw"];

/// A copy of a file, as a backup program keeps it.
fn brought_up(copy: &mut Vec<u8>, answer: &Value, read: impl Fn(u64, usize) -> Vec<u8>) {
    copy.resize(answer["new_bytes"].as_u64().unwrap() as usize, 0);
    for range in answer["ranges"].as_array().unwrap() {
        let (at, length) = (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap());
        let (from, length) = (at as usize, length as usize);
        match range["data"].as_bool().unwrap() {
            true => copy[from..from + length].copy_from_slice(&read(at, length)),
            false => copy[from..from + length].fill(0),
        }
    }
}

fn content(client: &mut Client, file: &[u8], bytes: usize) -> Vec<u8> {
    let read =
        |at: usize| client.read_bytes(file, at as u64, (bytes - at).min(65536) as u32).unwrap();
    (0..bytes).step_by(65536).map(read).collect::<Vec<_>>().concat()
}

/// The ranges, and that a copy of the old version becomes the new one by them alone.
fn check_ranges(
    place: &Place,
    client: &mut Client,
    root: &[u8],
    (mut copy, plain): (Vec<u8>, &Vec<u8>),
) {
    let answer = place.json(&RANGES);
    assert_eq!(
        answer,
        json!({
            "old_bytes": MIB, "new_bytes": 3 * MIB + PAGE, "same_file": true,
            "ranges": [
                { "offset": 8192, "length": 4096, "data": true },
                { "offset": 65536, "length": 8192, "data": false },
                { "offset": 3 * MIB, "length": 4096, "data": true },
            ],
        })
    );
    assert_eq!(place.must(&RANGES), "data\t8192\t4096\nhole\t65536\t8192\ndata\t3145728\t4096\n");
    let snapshot = client.lookup(root, ".aquifer").unwrap();
    let snapshot = client.lookup(&snapshot, "snapshot").unwrap();
    let snapshot = client.lookup(&snapshot, "b").unwrap();
    let of_b = client.lookup(&snapshot, "disk.raw").unwrap();
    let of_b = content(client, &of_b, plain.len());
    assert!(of_b == *plain);
    brought_up(&mut copy, &answer, |at, length| of_b[at as usize..at as usize + length].to_vec());
    assert!(copy == *plain, "the copy is the new version");
}

#[test]
fn names_and_ranges_of_what_clients_changed() {
    let Served { place, daemon, mut client, root, file, .. } = served();
    let vm = client.mkdir(&root, "web 01");
    let inner = client.create(&vm, "disk.vhd");
    let gone = client.create(&root, "gone");
    client.write(&inner, 0, &noise(1, PAGE), true);
    client.write(&gone, 0, &noise(2, PAGE), true);
    let mut plain = noise(3, MIB);
    client.write(&file, 0, &plain, true);
    place.must(&["snapshot", "tank/vms@a"]);
    let copy = plain.clone();

    client.write(&file, 8192 + 100, &noise(4, 8), true);
    plain[8292..8300].copy_from_slice(&noise(4, 8));
    client.write(&file, 65536, &vec![0; 2 * PAGE], true);
    plain[65536..65536 + 2 * PAGE].fill(0);
    client.write(&file, 3 * MIB as u64, &noise(5, PAGE), true);
    plain.resize(3 * MIB, 0);
    plain.extend(noise(5, PAGE));
    client.write(&inner, 0, &noise(6, PAGE), true);
    client.remove(&root, "gone");
    client.create(&vm, "new");
    // From here on the answer is about the dataset as it is, written or not.
    let now = place.must(&["diff", "tank/vms@a"]);
    let lines = "M\t/tank/vms/\nM\t/tank/vms/disk.raw\nM\t/tank/vms/web 01\n\
                 M\t/tank/vms/web 01/disk.vhd\n-\t/tank/vms/gone\n+\t/tank/vms/web 01/new\n";
    assert_eq!(now, lines);
    place.must(&["snapshot", "tank/vms@b"]);
    client.write(&file, 0, &noise(7, PAGE), true);
    assert_eq!(place.must(&["diff", "tank/vms@a", "tank/vms@b"]), lines);
    let typed = place.must(&["diff", "-F", "-H", "tank/vms@b", "tank/vms@a"]);
    assert!(typed.contains("+\tF\t/tank/vms/gone\n"), "{typed}");
    assert!(typed.contains("M\t/\t/tank/vms/web 01\n"), "{typed}");
    let names = place.json(&["diff", "tank/vms@a", "tank/vms@b"]);
    assert_eq!(names["names"].as_array().unwrap().len(), 6);
    assert_eq!(names["names"][1]["path"], "/disk.raw");
    assert_eq!(names["names"][1]["change"], "modified");
    assert_eq!(place.json(&["diff", "tank/vms@b", "tank/vms@b"]), json!({ "names": [] }));

    let answer = place.json(&RANGES);
    check_ranges(&place, &mut client, &root, (copy, &plain));

    // After a restart the same, and of clones with their origin.
    daemon.kill9();
    let _daemon = place.serve();
    assert_eq!(place.json(&RANGES), answer);
    place.must(&["clone", "tank/vms@a", "tank/new"]);
    assert_eq!(place.must(&["diff", "tank/vms@a", "tank/new"]), "");
    let of_clone = place.json(&["diff", "--ranges", "tank/new:disk.raw", "tank/vms@b:disk.raw"]);
    assert_eq!(of_clone, answer);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let Served { place, daemon: _daemon, mut client, root, .. } = served();
    client.mkdir(&root, "d");
    place.must(&["create", "tank/other"]);
    place.must(&["snapshot", "tank/vms@a:b", "tank/other@a"]);
    let listed = "`aquifer list -t snapshot` shows those that do";
    place.refuses(
        &["diff", "tank/vms@x"],
        &format!("snapshot \"tank/vms@x\" does not exist; {listed}"),
    );
    place.refuses(
        &["diff", "tank/vms@a:b", "tank/no"],
        "dataset \"tank/no\" does not exist; `aquifer list` shows those that do",
    );
    place.refuses(
        &["diff", "tank/vms@a:b", "tank/other@a"],
        "\"tank/vms@a:b\" and \"tank/other@a\" have no past in common: compare two snapshots of \
         one dataset, one with its dataset, or a clone with a snapshot of its origin",
    );
    let ranges = |old: &str, new: &str, message: &str| {
        place.refuses(&["diff", "--ranges", old, new], message);
    };
    ranges(
        "tank/vms@a:b:d",
        "tank/vms:d",
        "\"d\" in \"tank/vms@a:b\" is a directory: only regular files have ranges",
    );
    ranges(
        "tank/vms@a:b:disk.raw",
        "tank/vms:no/such",
        "there is no file \"no/such\" in \"tank/vms\"",
    );
    ranges(
        "tank/vms@x:disk.raw",
        "tank/vms:disk.raw",
        "\"tank/vms@x:disk.raw\" names no file of a dataset or snapshot that exists: write \
         DATASET@SNAPSHOT:PATH, such as tank/vms@before:web01/disk.vhd",
    );
    assert_eq!(place.must(&["diff", "--ranges", "tank/vms@a:b:disk.raw", "tank/vms:disk.raw"]), "");
    assert_eq!(place.ask(&["diff", "--ranges", "tank/vms@a:b:disk.raw"]).code, 2);
    let said = place.ask(&["diff", "no@a"]);
    assert!(said.code == 1 && said.err.contains("no pool"), "{said:?}");
}

fn begin(place: &Place, words: &[&str]) -> Child {
    let mut command = place.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A snapshot that is destroyed and taken again meanwhile: each answer is whole and right, or an
/// error.
#[test]
fn a_snapshot_that_goes_meanwhile_is_an_error_or_was_compared_before() {
    let Served { place, daemon: _daemon, mut client, file, .. } = served();
    place.must(&["snapshot", "tank/vms@a"]);
    // More than one page of an answer: each second page is a hole.
    let count = 12_000u64;
    for at in 0..count {
        client.write(&file, at * 2 * PAGE as u64, &noise(at + 1, PAGE), false);
    }
    client.commit(&file);
    let mut errors = 0;
    for round in 0..8u64 {
        place.must(&["snapshot", "tank/vms@b"]);
        let words = ["diff", "--ranges", "tank/vms@a:disk.raw", "tank/vms@b:disk.raw", "--json"];
        let child = begin(&place, &words);
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        place.must(&["destroy", "-f", "tank/vms@b"]);
        if round.is_multiple_of(2) {
            place.must(&["snapshot", "tank/vms@b"]);
        }
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        if output.status.success() {
            let answer: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(answer["ranges"].as_array().unwrap().len() as u64, count);
        } else {
            errors += 1;
            assert!(out.contains("\"error\""), "{out}");
        }
        if round.is_multiple_of(2) {
            place.must(&["destroy", "-f", "tank/vms@b"]);
        }
    }
    eprintln!("{errors} of 8 comparisons ended with an error");
}

/// `cargo test -p aquifer --test aquifer -- --ignored --nocapture the_cost_of_a_diff` prints it.
#[test]
#[ignore = "a measurement: run it on an idle machine"]
fn the_cost_of_a_diff() {
    const FILE_PAGES: u64 = 1 << 28;
    let place = Place::new();
    let disk = place.sized_image("a", 2 << 30);
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    let mut seed = 1u64;
    let mut write = |client: &mut Client, count: usize| {
        for _ in 0..count {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 20) % FILE_PAGES * PAGE as u64;
            client.write(&file, at, &noise(seed, PAGE), false);
        }
        client.commit(&file);
    };
    write(&mut client, 100_000);
    client.write(&file, (FILE_PAGES - 1) * PAGE as u64, &noise(3, PAGE), true);
    place.must(&["snapshot", "tank/vms@a"]);
    write(&mut client, 10_000);
    place.must(&["snapshot", "tank/vms@b"]);
    let words = ["diff", "--ranges", "tank/vms@a:disk.raw", "tank/vms@b:disk.raw"];
    let measure = |state: &str| {
        let began = std::time::Instant::now();
        let ranges = place.must(&words).lines().count();
        eprintln!("{state}: {ranges} ranges in {:?}", began.elapsed());
    };
    (0..3).for_each(|_| measure("in memory"));
    daemon.kill9();
    let _daemon = place.serve();
    measure("after a restart");
}
