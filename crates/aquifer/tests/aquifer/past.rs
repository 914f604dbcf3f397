//! The load of the past: from the counters into the pool, over a restart and an export.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::bed::{Served, served};
use crate::support::Place;

/// The writes of clients in each step, by its time.
fn writes(place: &Place, words: &[&str]) -> BTreeMap<u64, u64> {
    let told = place.json(&[&["iostat", "--history=5m", "tank"], words].concat());
    let numbers = |value: &Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let series = &told["tank"];
    assert_eq!(series["step_s"], 10);
    let operations = numbers(&series["writes"]["operations"]);
    numbers(&series["at_s"]).into_iter().zip(operations).collect()
}

#[test]
fn load_of_the_past_is_kept_over_restarts_and_exports() {
    let Served { place, disk: _, daemon, mut client, root: _, file } = served();
    // A pool of 256 MiB keeps none of VM disks: a larger one does.
    let large = place.sized_image("large", 2 << 30);
    place.must(&["pool", "create", "big", &large]);
    place.must(&["create", "-o", "sharenfs=insecure", "big/vms"]);
    let of_big = client.mount("/big/vms");
    let other = client.create(&of_big, "busy.raw");
    let mut sent = 0;
    let is_noted = |place: &Place| writes(place, &["-c"]).values().any(|writes| *writes > 0);
    while !is_noted(&place) {
        for page in 0..20 {
            client.write(&file, page * 4096, &[1; 4096], true);
            client.write(&other, page * 4096, &[1; 4096], true);
        }
        sent += 20;
        std::thread::sleep(Duration::from_millis(200));
    }
    // The next samples have the rest.
    place.wait_for(|| writes(&place, &["-c"]).values().sum::<u64>() > 0);
    let seen = writes(&place, &["-c"]);
    assert!(seen.values().sum::<u64>() <= sent, "{seen:?} of {sent}");
    assert!(writes(&place, &[]).values().sum::<u64>() > 0, "the disks wrote too");
    let busiest = place.json(&["iostat", "--history=5m", "-d", "big"]);
    assert_eq!(busiest["big"][0]["file"], "/busy.raw", "{busiest}");
    assert_eq!(busiest["big"][0]["dataset"], "big/vms");
    let text = place.must(&["iostat", "--history=5m", "-l", "tank"]);
    assert!(text.starts_with("TIME"), "{text}");
    assert!(text.lines().count() > seen.len(), "{text}");

    let long = "--history=40d: a time of 10s to 31d, such as 20m, 12h or 7d";
    for (words, message) in [
        (["iostat", "--history=40d", "tank"].as_slice(), long),
        (&["iostat", "--history", "tank", "5"], "the past has no interval: give a pool at most"),
    ] {
        let said = place.ask(words);
        assert_eq!((said.code, said.err), (2, format!("aquifer: {message}\n")));
    }

    let again = |place: &Place, what: &str| {
        let now = writes(place, &["-c"]);
        let all = seen.iter().all(|(at_s, writes)| now.get(at_s) == Some(writes));
        assert!(all, "{what}: {now:?}, and {seen:?} before");
    };
    assert!(daemon.terminate(Duration::from_secs(30)).unwrap().success());
    let daemon = place.serve();
    place.wait_for(|| place.ask(&["list", "tank/vms"]).code == 0);
    again(&place, "after a restart");
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &place.text(""), "tank"]);
    again(&place, "after an export");
    drop(daemon);
}
