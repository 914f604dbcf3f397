//! Cache disks: what an administrator does with them, and what clients notice.

use std::fs;

use serde_json::Value;

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const PAGES: u64 = 1024;

/// The cache disks, as the status has them.
fn caches(place: &Place) -> Vec<Value> {
    place.json(&["pool", "status", "tank"])["caches"].as_array().unwrap().clone()
}

fn number(cache: &Value, field: &str) -> u64 {
    cache[field].as_u64().unwrap()
}

/// A pool of one disk with a cache disk, and a file in it.
fn with_cache(place: &Place, disk: &str, cache: &str) -> Vec<u8> {
    let file = with_file(place, "tank", &[disk, "cache", cache]);
    let mut client = Client::new(place, "127.0.0.1");
    for page in 0..PAGES {
        client.write(&file, page * 4096, &noise(page, 4096), page == PAGES - 1);
    }
    client.commit(&file);
    file
}

/// Reads the file and compares it.
fn assert_right(place: &Place, file: &[u8]) {
    let mut client = Client::new(place, "127.0.0.1");
    for page in 0..PAGES {
        let read = client.read_bytes(file, page * 4096, 4096).unwrap();
        assert!(read == noise(page, 4096), "page {page}");
    }
}

#[test]
fn a_cache_disk_is_filled_by_reads_and_warm_after_a_kill_and_an_import() {
    let place = Place::new();
    let [disk, cache, other] = ["a", "b", "c"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_cache(&place, &disk, &cache);
    assert_eq!(caches(&place)[0]["state"], "ONLINE");
    // What was written lately is in memory, and what a log is replayed from. Then the pool is read.
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &disk, "-d", &cache, "tank"]);
    assert_right(&place, &file);
    place.wait_for(|| number(&caches(&place)[0], "held_bytes") >= PAGES / 2 * 4096);
    daemon.kill9();

    let daemon = place.serve();
    place.wait_for(|| number(&caches(&place)[0], "held_bytes") >= PAGES / 2 * 4096);
    assert_right(&place, &file);
    let shown = caches(&place);
    assert!(number(&shown[0], "hits") >= PAGES / 2, "{shown:?}");
    assert_eq!(number(&shown[0], "checksum_errors"), 0);
    let status = place.must(&["pool", "status", "-v", "tank"]);
    let folded = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(folded.contains("reads found; its index takes"), "{status}");
    assert!(status.contains(&format!("\tcache\n\t  {cache}")), "{status}");
    let (_, metrics) = place.get("/metrics");
    assert!(metrics.contains("aquifer_cache_disk_hits_total{pool=\"tank\""), "{metrics}");

    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "-d", &cache, "tank"]);
    place.must(&["pool", "import", "-d", &disk, "-d", &cache, "tank"]);
    place.wait_for(|| number(&caches(&place)[0], "held_bytes") >= PAGES / 2 * 4096);

    // It leaves, and is free for anything.
    place.must(&["pool", "remove", "tank", &cache]);
    assert!(caches(&place).is_empty());
    place.must(&["pool", "create", "dozer", &cache]);
    place.must(&["pool", "destroy", "-f", "dozer"]);
    place.must(&["pool", "add", "tank", "cache", &cache, &other]);
    assert_eq!(caches(&place).len(), 2);
    assert_right(&place, &file);
    drop(daemon);
}

#[test]
fn a_pool_does_without_its_cache_disk_and_says_so() {
    let place = Place::new();
    let [disk, cache, other] = ["a", "b", "c"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_cache(&place, &disk, &cache);
    for (words, message) in [
        (vec!["pool", "offline", "tank", &cache], "which holds nothing that is needed"),
        (vec!["pool", "replace", "tank", &cache, &other], "which holds nothing that is needed"),
        (vec!["pool", "attach", "tank", &disk, &cache], "of pool \"tank\" already"),
        (vec!["pool", "add", "tank", "cache", &cache], "of pool \"tank\" already"),
        (vec!["pool", "add", "tank", "cache", &disk], "of pool \"tank\" already"),
        (vec!["pool", "add", "tank", "cache", "mirror", &other, &disk], "come last"),
        (vec!["pool", "create", "dozer", &cache], "in use by pool \"tank\""),
    ] {
        let said = place.ask(&words);
        assert!(said.code != 0 && said.err.contains(message), "{words:?}: {}", said.err);
    }
    daemon.kill9();

    fs::rename(&cache, place.path("away")).unwrap();
    let daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    assert_right(&place, &file);
    assert_eq!(place.health("tank"), "ONLINE");
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(status["caches"][0]["state"], "MISSING");
    assert_eq!(status["problems"][0]["code"], "cache-unusable");
    daemon.kill9();
    fs::rename(place.path("away"), &cache).unwrap();
    let daemon = place.serve();
    assert_eq!(caches(&place)[0]["state"], "ONLINE");
    assert!(place.json(&["pool", "status", "tank"])["problems"].as_array().unwrap().is_empty());
    assert_right(&place, &file);
    drop(daemon);
}
