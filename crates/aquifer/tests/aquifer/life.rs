//! A pool's whole life, through restarts of every kind.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{PATIENCE, Place};

#[test]
fn a_pool_lives_from_create_to_destroy() {
    let place = Place::new();
    let (a, b) = (place.image("a"), place.text("b"));
    let daemon = place.serve();
    place.must(&[
        "pool",
        "create",
        "-o",
        "compression=off",
        "--create-size",
        "256M",
        "tank",
        "mirror",
        &a,
        &b,
    ]);
    assert_eq!(fs::metadata(&b).unwrap().len(), 256 << 20);
    place.must(&["create", "-o", "sharenfs=insecure", "tank/vms"]);
    place.must(&["create", "tank/vms/one"]);
    place.must(&["set", "quota=100M", "sync=always", "tank/vms"]);

    let listed = place.json(&["list", "-r", "tank/vms"]);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|info| &info["name"]).collect();
    assert_eq!(names, ["tank/vms", "tank/vms/one"]);
    assert_eq!(listed[0]["available_bytes"], 100 << 20);
    assert_eq!(listed[1]["nfs_path"], "/tank/vms/one");
    assert_eq!(place.json(&["list", "tank"])[0]["nfs_path"], json!(null));
    let get = ["get", "-H", "compression,quota,sync", "tank/vms/one"];
    let values = "tank/vms/one\tcompression\toff\tinherited from tank\n\
                  tank/vms/one\tquota\tnone\tdefault\n\
                  tank/vms/one\tsync\talways\tinherited from tank/vms\n";
    assert_eq!(place.must(&get), values);

    // As if the machine had gone down: it comes back by itself.
    daemon.kill9();
    assert!(place.socket().exists(), "a killed daemon leaves its socket behind");
    let daemon = place.serve();
    assert_eq!(place.states("tank"), ("ONLINE".into(), vec!["ONLINE".into(), "ONLINE".into()]));
    assert_eq!(place.must(&get), values);
    place.must(&["inherit", "sync", "tank/vms"]);
    assert_eq!(
        place.must(&["get", "-H", "sync", "tank/vms/one"]),
        "tank/vms/one\tsync\tstandard\tdefault\n"
    );

    place.must(&["pool", "export", "tank"]);
    assert_eq!(place.json(&["pool", "list"]), json!([]));
    place.must(&["inspect", &a, &b]);
    let dir = place.path(".");
    let dir = dir.to_str().unwrap();
    let found = place.json(&["pool", "import", "-d", dir]);
    assert_eq!(found["pools"][0]["name"], "tank");
    assert_eq!(found["pools"][0]["clean"], true);
    let guid = found["pools"][0]["guid"].as_str().unwrap();
    place.must(&["pool", "import", "-d", dir, guid]);
    assert_eq!(place.json(&["list"]).as_array().unwrap().len(), 3);

    place.must(&["pool", "destroy", "-f", "tank"]);
    let none = place.ask(&["pool", "import", "-d", dir]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert!(none.err.contains("no pool was found"), "{none:?}");
    // The disks are free for another one, without force.
    place.must(&["pool", "create", "dozer", &a, &b]);
    assert_eq!(place.must(&["list", "-H", "-p"]).split('\t').next(), Some("dozer"));
    drop(daemon);
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_daemon() {
    let place = Place::new();
    let daemon = place.serve();
    let meta = fs::symlink_metadata(place.socket()).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(place.must(&["pool", "status"]), "no pools\n");
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    assert!(!place.socket().exists());
    let socket = place.socket();
    place.refuses(
        &["list"],
        &format!(
            "{}: no daemon can be asked there (No such file or directory (os error 2)); start one \
             with `aquifer serve`, or name its socket with --api-socket",
            socket.display()
        ),
    );
}

#[test]
fn a_signal_exports_and_the_next_start_imports() {
    let place = Place::new();
    let disks = [place.image("a"), place.image("b")];
    let mut daemon = place.serve();
    place.must(&["pool", "create", "tank", &disks[0]]);
    place.must(&["pool", "create", "dozer", &disks[1]]);
    place.must(&["create", "tank/vms"]);
    for signal in [Signal::TERM, Signal::INT] {
        daemon.signal(signal).unwrap();
        assert!(daemon.wait(PATIENCE).unwrap().success(), "{}", place.log());
        for disk in &disks {
            let report = place.json(&["inspect", disk]);
            assert_eq!(report["exported"], true, "{report}");
        }
        daemon = place.serve();
        for pool in ["tank", "dozer"] {
            assert_eq!(place.health(pool), "ONLINE");
        }
        assert_eq!(place.json(&["list"]).as_array().unwrap().len(), 3);
    }
    drop(daemon);
}

/// A disk that hangs would delay the export for ever: a second signal means that the sender
/// insists. Here an act with very many disks hangs.
#[test]
fn a_second_signal_ends_at_once() {
    let place = Place::new();
    let daemon = place.serve();
    let disks: Vec<String> = (0..120).map(|number| place.text(&format!("{number}"))).collect();
    let create = ["pool", "create", "--create-size", "256M", "tank"];
    let words: Vec<&str> = create.into_iter().chain(disks.iter().map(String::as_str)).collect();
    std::thread::scope(|scope| {
        let act = scope.spawn(|| place.ask(&words));
        place.wait_for(|| place.path("0").exists());
        daemon.signal(Signal::TERM).unwrap();
        place.wait_for(|| place.log().contains("a second signal ends at once"));
        daemon.signal(Signal::TERM).unwrap();
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(1), "{}", place.log());
        assert!(place.log().contains("ended at once; the next start replays"), "{}", place.log());
        assert!(act.join().unwrap().err.contains("the daemon gave no answer"));
    });
    // Its remains do not disturb the next daemon.
    let daemon = place.serve();
    assert_eq!(place.json(&["pool", "list"]), json!([]));
    drop(daemon);
}

#[test]
fn a_pool_can_go_back_and_says_what_that_costs() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "tank/before"]);
    place.must(&["create", "tank/after"]);
    place.must(&["pool", "export", "tank"]);
    // The export is a txg of its own.
    let said = place.ask(&["pool", "import", "-d", &a, "--rewind=2", "tank"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.starts_with("note: rewound from txg "), "{said:?}");
    assert!(said.err.contains("changes after it, and the intent log, are dropped"), "{said:?}");
    place.must(&["list", "tank/before"]);
    assert_eq!(place.ask(&["list", "tank/after"]).code, 1);
    let status = place.must(&["pool", "status", "tank"]);
    assert!(status.contains("import: rewound from txg"), "{status}");
    assert!(said.err.contains("are missing in tank, tank/before"), "{said:?}");
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &a, "--discard-log", "tank"]);
    place.must(&["list", "tank/before"]);
    // The cost of a rewind stays visible. Discarding a whole log costs nothing more.
    let lost = || place.json(&["pool", "status", "tank"])["dropped_log"].clone();
    assert_eq!(lost()["rewound"], true, "{}", lost());
    assert_eq!(lost()["datasets"], serde_json::json!(["tank", "tank/before"]));
    place.must(&["pool", "clear", "tank"]);
    place.must(&["pool", "export", "tank"]);
    place.must(&["pool", "import", "-d", &a, "--discard-log", "tank"]);
    assert_eq!(lost(), serde_json::json!(null));
}

#[test]
fn one_daemon_for_a_state_directory_and_a_socket() {
    let place = Place::new();
    let daemon = place.serve();
    assert_eq!(place.spawn("state").wait(PATIENCE).unwrap().code(), Some(1));
    assert!(place.log().contains("another aquifer daemon uses this state directory"));
    assert_eq!(place.spawn("other-state").wait(PATIENCE).unwrap().code(), Some(1));
    assert!(place.log().contains("another daemon answers there"));
    assert!(daemon.is_running());
    place.must(&["pool", "list"]);
}

/// The messages of sd_notify(3), as a service manager receives them.
#[test]
fn a_service_manager_hears_of_ready_alive_and_stopping() {
    let place = Place::new();
    let a = place.image("a");
    let daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    daemon.kill9();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let hear = || loop {
        let mut message = [0; 1000];
        let length = manager.recv(&mut message).unwrap();
        let message = String::from_utf8(message[..length].to_vec()).unwrap().trim().to_string();
        // Beside them it says how it stands.
        if !message.starts_with("STATUS=") {
            return message;
        }
    };
    let environment =
        [("NOTIFY_SOCKET", place.text("notify")), ("WATCHDOG_USEC", "200000".to_string())];
    let daemon = place.spawn_with("state", &environment);
    assert_eq!(hear(), "READY=1");
    assert!(place.must(&["pool", "list"]).contains("ONLINE"), "ready is when it is in service");
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    daemon.signal(Signal::TERM).unwrap();
    while hear() != "STOPPING=1" {}
    assert!(daemon.wait(PATIENCE).unwrap().success());
}

#[test]
fn a_configuration_is_checked_and_used() {
    let place = Place::new();
    let config = place.text("aquifer.toml");
    std::fs::write(&config, "memory = \"96M\"\n[nfs]\nlisten = [\"127.0.0.1:0\"]\n").unwrap();
    let check = place.ask(&["serve", "--check", "--config", &config, "--state-dir", "/nowhere"]);
    assert_eq!((check.code, check.err.as_str()), (0, ""));
    for line in ["memory = \"96M\"", "state_dir = \"/nowhere\"", "listen = [\"127.0.0.1:0\"]"] {
        assert!(check.out.contains(line), "{}", check.out);
    }
    std::fs::write(&config, "memory = \"96M\"\n[nsf]\n").unwrap();
    let check = place.ask(&["serve", "--check", "--config", &config]);
    assert_eq!(check.code, 2);
    assert!(check.err.contains("line 2") && check.err.contains("nsf"), "{}", check.err);
}

/// After an upgrade people ask what runs.
#[test]
fn the_version_that_runs_is_told_everywhere() {
    let place = Place::new();
    let built = place.must(&["--version"]);
    let alone = place.ask(&["version"]);
    assert_eq!((alone.code, &alone.out), (1, &built), "{alone:?}");
    assert!(alone.err.starts_with("aquifer: "), "{alone:?}");
    let alone: Value = serde_json::from_str(&place.ask(&["version", "--json"]).out).unwrap();
    assert!(alone["daemon"].is_null() && alone["error"]["message"].is_string(), "{alone}");

    let _daemon = place.serve();
    let told = place.must(&["version"]);
    assert_eq!(told, format!("{built}{}", built.replacen("aquifer", "daemon", 1)));
    let json = place.json(&["version"]);
    assert_eq!(json["program"], json["daemon"]);
    let commit = json["daemon"]["commit"].as_str().unwrap_or_default();
    let (_, metrics) = place.get("/metrics");
    let version = env!("CARGO_PKG_VERSION");
    let series = format!("aquifer_build_info{{version=\"{version}\",commit=\"{commit}\"}} 1\n");
    assert!(metrics.contains(&series), "{metrics}");
    let (_, daemon) = place.get("/v1/daemon");
    assert!(commit.is_empty() || daemon.contains(&format!("\"commit\":\"{commit}\"")), "{daemon}");
}
