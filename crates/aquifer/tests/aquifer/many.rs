//! A thousand datasets, and two hundred VM disks: what those pay who look at them again and again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::eyes::client::Client;
use crate::support::{Daemon, MIB, Place};

const DATASETS: usize = 1000;
const VM_DISKS: usize = 200;
const ASKED: u32 = 10;

/// Sends a request to the API, and returns the body of its answer.
fn post(place: &Place, path: &str, body: &Value) -> String {
    let (head, body) = place.post(path, body);
    assert!(head.contains(" 200 OK"), "{path}: {head}\n{body}");
    body
}

fn create(place: &Place, name: &str) {
    post(place, "/v1/datasets", &json!({ "name": name, "properties": {} }));
}

/// Measures one answer: its time, that of the daemon's processors, and its bytes.
fn cost(place: &Place, daemon: &Daemon, path: &str) -> (Duration, Duration, usize) {
    let (begun, cpu) = (Instant::now(), daemon.cpu_time().unwrap());
    let mut bytes = 0;
    for _ in 0..ASKED {
        let (head, body) = place.get(path);
        assert!(head.contains(" 200 OK"), "{path}: {head}");
        bytes = body.len();
    }
    (begun.elapsed() / ASKED, (daemon.cpu_time().unwrap() - cpu) / ASKED, bytes)
}

#[test]
fn what_is_asked_again_and_again_costs_little() {
    let place = Place::new();
    let daemon = place.serve();
    let disk = place.sized_image("a", 4096 * MIB);
    place.must(&["pool", "create", "tank", &disk]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    for number in 0..VM_DISKS {
        let file = client.create(&root, &format!("vm{number}.raw"));
        client.write(&file, 0, &[1; 4096], true);
        assert_eq!(client.read(&file, 0, 4096), Ok(4096));
    }
    let (mut begun, mut cpu) = (Instant::now(), daemon.cpu_time().unwrap());
    let mut hundreds = Vec::new();
    for number in 0..DATASETS {
        create(&place, &format!("tank/vms/{number}"));
        if number % 100 == 99 {
            let now = daemon.cpu_time().unwrap();
            println!("a hundred datasets: {:?}, {:?} of a core", begun.elapsed(), now - cpu);
            hundreds.push((now - cpu).as_millis());
            (begun, cpu) = (Instant::now(), now);
        }
    }
    // The last ones cost what the first ones cost, more or less. Other tests use the processors
    // too: so what counts is the daemon's time on them.
    let [first, last] = [&hundreds[..3], &hundreds[7..]].map(|some| some.iter().sum::<u128>());
    assert!(last < 10 * first.max(200), "{hundreds:?}");
    for path in [
        "/metrics",
        "/v1/pools",
        "/v1/pools/tank",
        "/v1/datasets",
        "/v1/snapshots?name=tank&recursive=true",
        "/v1/shares",
        "/v1/nfs",
        "/v1/alerts",
        "/v1/iostat",
    ] {
        let (took, cpu, bytes) = cost(&place, &daemon, path);
        println!("{path}: {took:?}, {cpu:?} of a core, {bytes} bytes");
        // It is asked every few seconds, and everything else waits for it.
        assert!(cpu < Duration::from_millis(200), "{path}: {cpu:?}");
    }
    for words in [&["pool", "status"][..], &["list", "-r"], &["pool", "list"], &["share"]] {
        let begun = Instant::now();
        place.must(words);
        println!("{words:?}: {:?}", begun.elapsed());
    }
}
