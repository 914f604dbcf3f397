//! A disk that errs too often: reads that fail take it out, bad copies do not.

use std::fs::File;

use serde_json::{Value, json};

use crate::bed::{noise, removable, with_file};
use crate::eyes::client::Client;
use crate::support::Place;

const CHUNK: usize = 64 << 10;
const CHUNKS: u64 = 128;

fn set_len(image: &str, bytes: u64) {
    File::options().write(true).open(image).unwrap().set_len(bytes).unwrap();
}

fn events(place: &Place, class: &str) -> Vec<Value> {
    let events = place.json(&["events"]);
    let events = events.as_array().unwrap().iter();
    events.filter(|event| event["class"] == class).cloned().collect()
}

/// One side gives errors where it is read. Then it is there again, and holds little more than its
/// head.
#[test]
fn a_side_that_errs_too_often_is_faulted_and_one_with_bad_copies_is_mended() {
    let place = Place::new();
    let Some(disk) = removable(&place, "b") else { return };
    let (a, b) = (place.image("a"), disk.path.clone());
    let _daemon = place.serve();
    let file = with_file(&place, "tank", &["mirror", &a, &b]);
    let mut client = Client::new(&place, "127.0.0.1");
    for chunk in 0..CHUNKS {
        client.write(&file, chunk * CHUNK as u64, &noise(chunk, CHUNK), true);
    }
    client.commit(&file);
    // Nothing of it is in memory then.
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &a, "-d", &b, "tank"]);

    disk.err_at_reads();
    let mut client = Client::new(&place, "127.0.0.1");
    let mut read = |chunks: std::ops::Range<u64>| {
        for chunk in chunks {
            let read = client.read(&file, chunk * CHUNK as u64, CHUNK as u32);
            assert_eq!(read, Ok(CHUNK as u32));
        }
    };
    read(0..CHUNKS / 2);
    assert_eq!(place.states("tank").1, ["ONLINE", "FAULTED"], "{}", place.log());
    let said = place.ask(&["pool", "status", "-x", "tank"]);
    assert_eq!(said.code, 3);
    assert!(said.out.contains(" state: DEGRADED\n"), "{}", said.out);
    let reason = "too many errors: 10 reads in 10 minutes; read at";
    assert!(said.out.contains("had too many errors and is tried again"), "{}", said.out);
    let clear = format!("`aquifer pool clear tank {b}`");
    assert!(said.out.contains(&clear), "{}", said.out);
    let [failed] = &events(&place, "disk.failed")[..] else { panic!("{}", place.log()) };
    assert_eq!(failed["fields"]["leaf"], json!(b));
    assert!(failed["fields"]["error"].as_str().unwrap().starts_with(reason), "{failed}");

    let taken_out = format!("[by itself] {b} is taken out of use: {reason}");
    place.wait_for(|| place.must(&["pool", "history", "-i", "tank"]).contains(&taken_out));
    assert!(!place.must(&["pool", "history", "tank"]).contains("by itself"));

    // It is there again: what it missed is copied, and what it lost is not.
    set_len(&disk.image, 2 << 20);
    set_len(&disk.image, 256 << 20);
    disk.come_back();
    place.must(&["pool", "clear", "tank", &b]);
    place.must(&["pool", "wait", "tank"]);
    assert_eq!(place.health("tank"), "ONLINE");
    read(CHUNKS / 2..CHUNKS);
    place.must(&["pool", "scrub", "-w", "tank"]);
    assert_eq!(place.states("tank"), ("DEGRADED".into(), vec!["ONLINE".into(), "DEGRADED".into()]));
    let said = place.ask(&["pool", "status", "-x", "tank"]);
    assert_eq!(said.code, 3);
    assert!(said.out.contains("is in use, and had too many bad copies"), "{}", said.out);
    assert_eq!(events(&place, "disk.degraded").len(), 1);
    place.must(&["pool", "clear", "tank", &b]);
    assert_eq!(place.must(&["pool", "status", "-x", "tank"]), "pool 'tank' is healthy\n");
    // Every bad copy was mended.
    place.must(&["pool", "scrub", "-w", "tank"]);
    assert_eq!(place.must(&["pool", "status", "-x", "tank"]), "pool 'tank' is healthy\n");
    place.must(&["pool", "export", "tank"]);
    place.must(&["inspect", "--deep", "-d", &disk.image, "-d", &a, "tank"]);
}
