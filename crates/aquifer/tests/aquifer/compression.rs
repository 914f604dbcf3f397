//! Savings by compression, as people and programs see them. The real binary and NFS.

use serde_json::json;

use crate::bed::with_file;
use crate::eyes::client::Client;
use crate::support::Place;

/// Writes 8 MiB of one byte: eight pages of it take one sector.
fn fill(client: &mut Client, file: &[u8], byte: u8) {
    for at in 0..128 {
        client.write(file, at * 65536, &[byte; 65536], false);
    }
    client.commit(file);
}

fn cells(place: &Place, kind: &str, columns: &str, name: &str) -> Vec<String> {
    let said = place.must(&["list", "-H", "-t", kind, "-o", columns, name]);
    said.split_whitespace().map(String::from).collect()
}

#[test]
fn ratios_are_shown_where_zfs_shows_them() {
    let place = Place::new();
    let disk = place.image("disk");
    let daemon = place.serve();
    let file = with_file(&place, "tank", &[&disk]);
    let mut client = Client::new(&place, "127.0.0.1");
    fill(&mut client, &file, 1);
    place.must(&["snapshot", "tank/vms@a"]);
    let columns = "refer,lrefer,refratio";
    assert_eq!(cells(&place, "filesystem", columns, "tank/vms"), ["1M", "8M", "8.00x"]);
    assert_eq!(
        cells(&place, "snapshot", "refer,lrefer,ratio", "tank/vms@a"),
        ["1M", "8M", "8.00x"]
    );

    // What the snapshot keeps is counted on: twice as much without compression.
    fill(&mut client, &file, 2);
    place.must(&["snapshot", "tank/vms@b"]);
    let listed = &place.json(&["list", "tank/vms"])[0];
    let (used, logical) = (listed["used_bytes"].as_u64(), listed["logical_used_bytes"].as_u64());
    assert_eq!(logical.unwrap() - used.unwrap(), 2 * (7 << 20), "{listed}");
    assert_eq!(listed["logical_refer_bytes"], json!(8 << 20));
    let words = ["logicalused", "logicalreferenced", "compressratio", "refcompressratio"];
    let got = place.must(&["get", "-H", "-o", "value,source", &words.join(","), "tank/vms"]);
    let ratio = cells(&place, "filesystem", "compressratio", "tank/vms").concat();
    let lines: Vec<&str> = got.lines().collect();
    assert_eq!(lines[1..], ["8M\t-", &format!("{ratio}\t-"), "8.00x\t-"], "{got}");
    let refused = place.ask(&["set", "compressratio=2.00x", "tank/vms"]);
    assert!(refused.code != 0 && refused.err.contains("only read"), "{refused:?}");

    // The dataset above has all of it, and a daemon that starts again knows it.
    daemon.kill9();
    let _daemon = place.serve();
    let above = &place.json(&["list", "tank"])[0];
    let saved = |of: &serde_json::Value| {
        of["logical_used_bytes"].as_u64().unwrap() - of["used_bytes"].as_u64().unwrap()
    };
    assert_eq!(saved(above), 2 * (7 << 20), "{above}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk, "tank"]);
}
