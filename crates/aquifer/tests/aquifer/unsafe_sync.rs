//! `sync=disabled`: set by name and reason, reported everywhere, and its cost.

use serde_json::json;

use crate::eyes::client::Client;
use crate::support::Place;

#[test]
fn nobody_is_unsafe_without_a_reason_that_all_can_read() {
    let place = Place::new();
    let (a, log) = (place.image("a"), place.image("log-disk"));
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a, "log", &log]);
    place.must(&["create", "tank/vms"]);
    let why = "property sync: \"disabled\" acknowledges what a power cut or a crash takes back, \
               and guests are damaged by that; it needs a reason, which every status shows: \
               sync=disabled:scratch space only";
    place.refuses(&["set", "sync=disabled", "tank/vms"], why);
    place.refuses(&["create", "-o", "sync=disabled:", "tank/scratch"], why);
    place.must(&["create", "-o", "sync=disabled:made anew each night", "tank/scratch"]);
    place.must(&["create", "tank/scratch/below"]);
    assert_eq!(
        place.must(&["get", "-H", "-r", "sync", "tank/scratch"]),
        "tank/scratch\tsync\tdisabled:made anew each night\tlocal\n\
         tank/scratch/below\tsync\tdisabled:made anew each night\tinherited from tank/scratch\n"
    );
    let listed = place.must(&["list"]);
    assert!(listed.ends_with(
        "sync=disabled: tank/scratch: made anew each night\n\
         sync=disabled: tank/scratch/below: made anew each night\n"
    ));
    assert!(!place.must(&["list", "-H"]).contains("sync"), "scripts have `get`");
    let status = place.must(&["pool", "status"]);
    let flat = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(
        "unsafe: sync=disabled: what these datasets acknowledged in the last seconds is lost in a \
         power cut or crash: tank/scratch: made anew each night tank/scratch/below: made anew each \
         night"
    ));
    assert!(!status.contains('\x1b'), "no colours in a file");
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(
        status["sync_disabled"][0],
        json!({"dataset": "tank/scratch", "reason": "made anew each night"})
    );
    place.must(&["set", "sync=standard", "tank/scratch/below"]);
    place.must(&["inherit", "sync", "tank/scratch"]);
    assert_eq!(place.json(&["pool", "status", "tank"])["sync_disabled"], json!([]));
}

/// Bytes that the log device was written durably.
fn logged_bytes(place: &Place) -> u64 {
    let stat = place.json(&["iostat", "tank"]);
    stat[0]["vdevs"][1]["io"]["durable_writes"]["bytes"].as_u64().unwrap()
}

#[test]
fn what_is_acknowledged_without_a_log_is_lost_and_nothing_else_is() {
    let place = Place::new();
    let (a, log) = (place.image("a"), place.image("log-disk"));
    let daemon = place.serve();
    place.must(&["pool", "create", "-o", "sharenfs=insecure", "tank", &a, "log", &log]);
    place.must(&["create", "tank/vms"]);
    place.must(&["create", "tank/scratch"]);
    let mut client = Client::new(&place, "127.0.0.1");
    let [vms, scratch] = ["/tank/vms", "/tank/scratch"].map(|path| client.mount(path));
    let [safe, file] = [&vms, &scratch].map(|dir| client.create(dir, "disk.raw"));
    client.write(&file, 0, &[1; 4096], true);
    place.must(&["set", "sync=disabled:a test", "tank/scratch"]);
    let before = logged_bytes(&place);
    for at in 1..50 {
        // Each write is answered as stable.
        client.write(&file, at * 4096, &[2; 4096], true);
        client.write(&file, at * 4096, &[3; 4096], false);
        client.commit(&file);
    }
    let lost = client.create(&scratch, "lost");
    let logged = logged_bytes(&place) - before;
    assert!(logged < 10 * 4096, "{logged} bytes for what is not to be logged");
    client.write(&safe, 0, &[4; 4096], true);
    assert!(logged_bytes(&place) > before);
    daemon.kill9();
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    assert_eq!(client.read(&safe, 0, 4096), Ok(4096));
    assert_eq!(client.read(&file, 0, 4096), Ok(4096));
    assert_eq!(client.read(&file, 4096, 4096), Ok(0), "written since, and lost");
    assert_eq!(client.read(&lost, 0, 4096), Err(70), "stale");
    let again = client.create(&scratch, "again");
    assert_ne!(again, lost, "a handle names one file for its life");
    assert_eq!(client.read(&lost, 0, 4096), Err(70), "stale");

    // Back to normal: all earlier changes are on disk, all new ones are logged.
    client.write(&file, 4096, &[5; 4096], true);
    place.must(&["set", "sync=standard", "tank/scratch"]);
    client.write(&file, 8192, &[6; 4096], true);
    let kept = client.create(&scratch, "kept");
    drop(_daemon);
    let _daemon = place.serve();
    let mut client = Client::new(&place, "127.0.0.1");
    for (file, at, found) in
        [(&file, 4096, 4096), (&file, 8192, 4096), (&kept, 0, 0), (&again, 0, 0)]
    {
        assert_eq!(client.read(file, at, 4096), Ok(found));
    }
}
