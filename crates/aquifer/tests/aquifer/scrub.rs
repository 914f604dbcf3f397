//! A scrub under a client: what rots on one side is mended, what rots on both is named.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};

use crate::bed::{noise, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const CHUNK: usize = 64 << 10;
const CHUNKS: u64 = 128;

/// Writes to an image, and to the disk below it at once: the daemon reads past the page cache.
pub fn overwrite(image: &str, at: u64, bytes: &[u8]) {
    let mut file = File::options().write(true).open(image).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Where an image holds this.
pub fn find(image: &str, wanted: &[u8]) -> Option<u64> {
    let mut bytes = Vec::new();
    File::open(image).unwrap().read_to_end(&mut bytes).unwrap();
    let at = bytes.chunks(4096).position(|page| page == &wanted[..4096])?;
    Some(at as u64 * 4096)
}

fn write_file(client: &mut Client, file: &[u8], seed: u64) {
    for chunk in 0..CHUNKS {
        client.write(file, chunk * CHUNK as u64, &noise(seed + chunk, CHUNK), true);
    }
    client.commit(file);
}

/// Both sides of a mirror lose this content.
fn lose(images: [&str; 2], lost: &[u8]) {
    for image in images {
        let at = find(image, lost).unwrap();
        overwrite(image, at, &noise(77, 4096));
    }
}

#[test]
fn a_whole_side_of_noise_is_mended_while_a_client_reads() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    write_file(&mut client, &file, 1);

    let bytes = fs::metadata(&b).unwrap().len();
    for (seed, at) in (1000..).zip((0..bytes).step_by(1 << 20)) {
        overwrite(&b, at, &noise(seed, (bytes - at).min(1 << 20) as usize));
        let read = seed % CHUNKS * CHUNK as u64;
        assert_eq!(client.read(&file, read, 4096), Ok(4096));
    }
    let said = place.must(&["pool", "scrub", "-w", "tank"]);
    assert!(said.contains("scrub repaired") && said.contains("with 0 errors"), "{said}");
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains("  scan: scrub repaired"), "{status}");
    // The files are named: by the command that waited, and with -v.
    assert!(!status.contains("disk.raw"), "{status}");
    let detail = place.must(&["pool", "status", "-v", "tank"]);
    for text in [&said, &detail] {
        assert!(text.contains("tank/vms /disk.raw: ") && text.contains(" repaired, "), "{text}");
    }
    let json = place.json(&["pool", "status", "tank"]);
    let repaired = json["scrub"]["repaired_bytes"].as_u64();
    assert!(repaired.is_some_and(|bytes| bytes >= 4 << 20), "{json}");

    assert_eq!(place.ask(&["pool", "status", "-x"]).code, 3);
    place.refuses(
        &["pool", "clear", "tank", "/dev/nothing"],
        "/dev/nothing: is no disk of pool \"tank\"; \
         `aquifer pool status tank` shows those that are",
    );
    place.must(&["pool", "clear", "tank", &a]);
    assert_eq!(place.ask(&["pool", "status", "-x"]).code, 3);
    place.must(&["pool", "clear", "tank", &b]);
    assert_eq!(place.must(&["pool", "status", "-x", "tank"]), "pool 'tank' is healthy\n");

    // That side does alone.
    daemon.kill9();
    fs::rename(&a, place.path("away")).unwrap();
    let _daemon = place.spawn_serving(&["--wait-for-disks", "1"]);
    place.wait_for(|| place.health("tank") == "DEGRADED");
    let mut client = Client::new(&place, "127.0.0.1");
    for chunk in 0..CHUNKS {
        assert_eq!(client.read(&file, chunk * CHUNK as u64, CHUNK as u32), Ok(CHUNK as u32));
    }
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &b, "tank"]);
}

#[test]
fn what_no_side_holds_is_named_by_file_and_range() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.refuses(&["pool", "scrub", "-p", "tank"], "tank: is not being scrubbed");
    place.refuses(&["pool", "scrub", "-s", "tank"], "tank: is not being scrubbed");
    place.must(&["pool", "scrub", "-w", "tank"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let root = client.mount("/tank/vms");
    let web = client.mkdir(&root, "web01");
    let file = client.create(&web, "disk0.raw");
    write_file(&mut client, &file, 1);
    place.must(&["pool", "export", "tank"]);
    let lost = noise(1 + 5, CHUNK);
    lose([&a, &b], &lost);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);
    let said = place.ask(&["pool", "scrub", "-w", "tank"]);
    assert_eq!(said.code, 1, "{} {}", said.out, said.err);
    assert!(said.out.contains("with 1 errors"), "{}", said.out);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains("web01/disk0.raw"), "{status}");
    // It is remembered over a restart, until somebody writes there.
    daemon.kill9();
    let _daemon = place.serve();
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains("web01/disk0.raw") && status.contains("with 1 errors"), "{status}");
    let mut client = Client::new(&place, "127.0.0.1");
    client.write(&file, 5 * CHUNK as u64, &lost, true);
    place.must(&["pool", "scrub", "-w", "tank"]);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(!status.contains("disk0.raw") && status.contains("with 0 errors"), "{status}");
}

/// A walk meets what a file and its snapshot both show with the snapshot.
#[test]
fn what_a_file_has_lost_with_its_snapshot_is_named_too() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    write_file(&mut client, &file, 1);
    place.must(&["snapshot", "tank/vms@s"]);
    place.must(&["pool", "export", "tank"]);
    let lost = noise(1 + 5, CHUNK);
    lose([&a, &b], &lost);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);
    // The second scrub forgets nothing: nobody wrote there.
    for _ in 0..2 {
        assert_eq!(place.ask(&["pool", "scrub", "-w", "tank"]).code, 1);
        let status = place.must(&["pool", "status", "tank"]);
        let at = 5 * CHUNK;
        assert!(status.contains(&format!("/disk.raw: bytes {at}-{}", at + 4095)), "{status}");
        assert!(status.contains("runbook.md#a-file-is-damaged"), "{status}");
    }
    // The file is whole again; its snapshot is not.
    let mut client = Client::new(&place, "127.0.0.1");
    client.write(&file, 5 * CHUNK as u64, &lost, true);
    assert_eq!(place.ask(&["pool", "scrub", "-w", "tank"]).code, 1);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(!status.contains("disk.raw") && status.contains("with 1 errors"), "{status}");
}
