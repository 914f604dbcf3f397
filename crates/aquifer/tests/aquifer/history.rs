//! The history of acts on a pool: over restarts of every kind, and on another machine.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::Place;

/// Acts with their outcomes.
fn acts(place: &Place) -> Vec<(String, String)> {
    let told = place.json(&["pool", "history", "-a", "tank"]);
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let entries = told["tank"].as_array().unwrap().iter();
    entries.map(|entry| (text(&entry["act"]), text(&entry["outcome"]))).collect()
}

fn changes_of(place: &Place, act: &str) -> Value {
    let told = place.json(&["pool", "history", "-a", "tank"]);
    let mut entries = told["tank"].as_array().unwrap().iter();
    entries.find(|entry| entry["act"] == act).unwrap_or_else(|| panic!("{act}"))["changes"].clone()
}

#[test]
fn history_of_a_pool_says_who_did_what_and_what_that_changed() {
    let place = Place::new();
    let (a, log) = (place.image("a"), place.image("log"));
    let daemon = place.serve();
    place.must(&["pool", "create", "-o", "compression=off", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    place.must(&["set", "compression=zstd", "quota=1G", "tank/vms"]);
    place.must(&["inherit", "compression", "tank/vms"]);
    place.must(&["pool", "add", "tank", "log", &log]);
    // Acts without a change are not in it; failed ones are, for those who ask for all.
    let more = place.image("more");
    place.must(&["pool", "add", "-n", "tank", "log", &more]);
    place.must(&["list", "-r", "tank"]);
    assert_eq!(place.ask(&["set", "readonly=on", "tank/none"]).code, 1);
    let expected = [
        (format!("pool create -o compression=off tank {a}"), "done"),
        ("create tank/vms".into(), "done"),
        ("set compression=zstd quota=1G tank/vms".into(), "done"),
        ("inherit compression tank/vms".into(), "done"),
        (format!("pool add tank log {log}"), "done"),
        ("set readonly=on tank/none".into(), "failed"),
    ];
    let expected: Vec<(String, String)> =
        expected.into_iter().map(|(act, outcome)| (act, outcome.to_string())).collect();
    assert_eq!(acts(&place), expected);
    let set = changes_of(&place, "set compression=zstd quota=1G tank/vms");
    assert_eq!(
        set,
        json!([
            { "what": "compression", "before": "off (inherited from tank)", "after": "zstd" },
            { "what": "quota", "before": "none (default)", "after": "1073741824" },
        ])
    );
    let added = changes_of(&place, &format!("pool add tank log {log}"));
    assert_eq!(added, json!([{ "what": log, "before": null, "after": "ONLINE (log)" }]));

    // On another machine too, after a clean export.
    place.must(&["pool", "export", "tank"]);
    daemon.kill9();
    let another = place.spawn("another");
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    place.must(&["pool", "import", "-d", &place.text(""), "tank"]);
    let now = acts(&place);
    assert_eq!(now[..6], expected);
    assert_eq!(now[6], ("pool export tank".into(), "done".into()));
    let imported = format!("pool import -d {} tank", place.text(""));
    assert_eq!(now[7], (imported, "done".into()));
    assert_eq!(now.len(), 8);

    // After a kill it also has the last answered act, but perhaps not its result.
    place.must(&["create", "tank/last"]);
    another.kill9();
    let _another = place.spawn("another");
    place.wait_for(|| place.ask(&["list", "tank/last"]).code == 0);
    let then = acts(&place);
    assert_eq!((&then[..7], then.len()), (&now[..7], 9));
    assert_eq!(then[8].0, "create tank/last");
    assert!(["done", "unknown"].contains(&then[8].1.as_str()), "{then:?}");
}

#[test]
fn history_as_people_read_it() {
    let place = Place::new();
    let a = place.image("a");
    let _daemon = place.serve();
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    place.must(&["set", "readonly=on", "tank/vms"]);
    assert_eq!(place.ask(&["set", "quota=nonsense", "tank"]).code, 1);
    place.must(&["destroy", "-f", "tank/vms"]);
    let without_time = |text: &str| -> Vec<String> {
        let line = |line: &str| match line.split_once(' ') {
            Some((time, rest)) if time.ends_with('Z') => format!("TIME {rest}"),
            _ => line.to_string(),
        };
        text.lines().map(line).collect()
    };
    let short = place.must(&["pool", "history"]);
    let expected = [
        "History for 'tank':",
        &format!("TIME aquifer pool create tank {a}"),
        "TIME aquifer create tank/vms",
        "TIME aquifer set readonly=on tank/vms",
        "TIME aquifer destroy tank/vms",
        "",
    ];
    assert_eq!(without_time(&short), expected);
    let host = String::from_utf8(rustix::system::uname().nodename().to_bytes().to_vec()).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let long = without_time(&place.must(&["pool", "history", "-la", "tank"]));
    let who = format!("[uid {uid} on {host}]");
    let at = |wanted: &str| {
        let found = long.iter().position(|line| line.starts_with(wanted));
        found.unwrap_or_else(|| panic!("{wanted}: {long:?}"))
    };
    let set = at(&format!("TIME aquifer set readonly=on tank/vms {who}"));
    assert_eq!(long[set + 1], "    readonly: off (default) -> on");
    at(&format!("TIME aquifer set quota=nonsense tank {who} (not done: "));
    let destroyed = at(&format!("TIME aquifer destroy tank/vms {who}"));
    assert_eq!(long[destroyed + 1], "    datasets: 1 -> -");
    let columns = place.must(&["-H", "pool", "history"]);
    let second: Vec<&str> = columns.lines().nth(2).unwrap().split('\t').collect();
    assert_eq!(second[0], "tank");
    assert_eq!(
        second[2..],
        [
            &format!("uid {uid}"),
            &host,
            "done",
            "set readonly=on tank/vms",
            "readonly: off (default) -> on",
        ]
    );
    let none = place.ask(&["pool", "history", "none"]);
    assert!((none.code, none.err.contains("there is no pool \"none\"")) == (1, true), "{none:?}");
}

/// Over TCP: the token's name and the peer; forbidden acts; and acts on tokens themselves.
#[test]
fn history_names_tokens_and_what_they_may_not_do() {
    let place = Place::new();
    let a = place.image("a");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(place.path("config"), format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n"))
        .unwrap();
    let _daemon = place.spawn_as("state", &[], &[], &["--config", &place.text("config")]);
    place.wait_for(|| place.ask(&["pool", "list"]).code == 0);
    place.must(&["pool", "create", "tank", &a]);
    let made = place.ask(&["token", "create", "ci", "--role", "operator"]);
    std::fs::write(place.path("ci"), &made.out).unwrap();
    std::process::Command::new("chmod").args(["600", &place.text("ci")]).status().unwrap();
    let (url, certificate) =
        (format!("https://127.0.0.1:{port}"), place.text("state/api/certificate.pem"));
    let ask = |words: &[&str]| {
        let token = place.text("ci");
        let start = ["--api", &url, "--api-certificate", &certificate, "--api-token", &token];
        place.ask(&[&start, words].concat()).code
    };
    assert_eq!(ask(&["create", "tank/vms"]), 0);
    // The role is too small for the route, and then for a parameter of the request.
    assert_eq!(ask(&["destroy", "-f", "tank/vms"]), 1);
    assert_eq!(ask(&["destroy", "-f", "tank/vms"]), 1);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(ask(&["set", "sharenfs=on", "tank/vms"]), 1);
    let told = place.json(&["pool", "history", "-a", "tank"]);
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let told: Vec<(String, String, String)> = told["tank"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(&entry["who"]), text(&entry["act"]), text(&entry["outcome"])))
        .collect();
    let line = |who: &str, act: &str, outcome: &str| {
        (who.to_string(), act.to_string(), outcome.to_string())
    };
    let me = format!("uid {}", rustix::process::getuid().as_raw());
    let token = "token ci from 127.0.0.1";
    let expected = [
        line(&me, &format!("pool create tank {a}"), "done"),
        line(&me, "token create --role operator ci", "done"),
        line(token, "create tank/vms", "done"),
        line(token, "POST /v1/datasets/destroy", "forbidden"),
        line(token, "set sharenfs=on tank/vms", "forbidden"),
    ];
    assert_eq!(told, expected);
    assert!(!place.must(&["--json", "pool", "history", "-a"]).contains(made.out.trim()));
}
