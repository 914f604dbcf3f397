//! The read cache and the memory, as `arcstat` shows them.

use serde_json::Value;

use super::client::Client;
use super::{find, number};
use crate::bed::noise;
use crate::support::{MIB, Place};

const MEMORY: &str = "128M";
const MEMORY_BYTES: u64 = 128 * MIB;
/// Four fifths of it.
const FILE_BYTES: u64 = MEMORY_BYTES / 5 * 4;
const PIECE: u64 = 256 << 10;

/// Of a pool's cache: looks that found nothing, and those that found a block.
fn looks(place: &Place, pool: &str) -> (u64, u64) {
    let told = place.json(&["arcstat"]);
    let cache = &find(&told["pools"], "name", pool)["cache"];
    let hits = |class: &str| number(&cache[class]["hits"]);
    (number(&cache["misses"]), hits("nodes") + hits("data"))
}

fn read_all(client: &mut Client, file: &[u8]) {
    for at in (0..FILE_BYTES).step_by(PIECE as usize) {
        client.read(file, at, PIECE as u32).unwrap();
    }
}

#[test]
fn a_file_of_four_fifths_of_the_memory_comes_from_the_cache_when_read_again() {
    let place = Place::new();
    let disk = place.sized_image("a", 1024 * MIB);
    let daemon = place.spawn_serving(&["--memory", MEMORY]);
    place.must(&["pool", "create", "-o", "compression=off", "tank", &disk]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let file = client.create(&root, "disk.raw");
    for at in (0..FILE_BYTES).step_by(PIECE as usize) {
        client.write(&file, at, &noise(at, PIECE as usize), false);
    }
    client.commit(&file);
    // What is in the log only is found among changes after the restart, not in the cache.
    let is_written = || {
        let told = place.json(&["arcstat"]);
        number(&told["pools"][0]["dirty_bytes"]) < FILE_BYTES / 50
    };
    place.wait_for(is_written);
    daemon.kill9();

    let _daemon = place.spawn_serving(&["--memory", MEMORY]);
    let mut client = Client::new(&place, "127.0.0.1");
    read_all(&mut client, &file);
    let before = looks(&place, "tank");
    assert!(before.0 > FILE_BYTES / 4096 / 10 * 9, "{before:?}: it was not in memory before");
    read_all(&mut client, &file);
    let after = looks(&place, "tank");
    let (missed, found) = (after.0 - before.0, after.1 - before.1);
    // What the log brought back may be found among changes instead.
    let many = FILE_BYTES / 4096 / 5 * 4;
    assert!(found > many && missed < found / 100, "{missed} missed, {found} found");

    // All that is shown lies within the memory, and most of it is the cache.
    let told = place.json(&["arcstat"]);
    assert_eq!(number(&told["cap_bytes"]), MEMORY_BYTES);
    let pool = &told["pools"][0];
    let held = |name: &str| number(&pool[name]);
    let cache = &pool["cache"];
    let size = number(&cache["size_bytes"]);
    assert!(size <= number(&cache["target_bytes"]) && size > FILE_BYTES, "{cache}");
    let others = held("dirty_bytes") + held("bitmap_bytes");
    let others = others + number(&told["nfs_bytes"]) + number(&told["object_bytes"]);
    assert!(number(&cache["target_bytes"]) + others <= MEMORY_BYTES, "{told}");
    // Nobody waited for memory since the import, however full the cache is.
    assert_eq!(number(&pool["waits"]), 0, "{pool}");
    let (_, metrics) = place.get("/metrics");
    for series in
        ["aquifer_pool_memory_waits_total{pool=\"tank\"}", "aquifer_nfs_memory_waits_total"]
    {
        assert!(metrics.contains(&format!("\n{series} 0\n")), "{series}");
    }
    let report = place.must(&["arcstat", "-v"]);
    assert!(report.lines().next().unwrap().starts_with("POOL"), "{report}");
    assert!(report.contains("tank") && report.contains("cache, data"), "{report}");
    let rows: Vec<&str> = report.lines().filter(|line| line.starts_with("nfs")).collect();
    assert_eq!(rows.len(), 1, "{report}");
    let lines = place.must(&["arcstat", "-Hp", "0.1", "2"]);
    assert_eq!(lines.lines().filter(|line| line.starts_with("tank\t")).count(), 2, "{lines}");

    // Writes that are under way take memory from it, and give it back.
    client.write(&file, 0, &noise(7, MIB as usize), false);
    let dirty = |told: &Value| number(&told["pools"][0]["dirty_bytes"]);
    assert!(dirty(&place.json(&["arcstat"])) >= MIB);
    client.commit(&file);
    place.wait_for(|| dirty(&place.json(&["arcstat"])) < MIB + 2 * MIB);
}
