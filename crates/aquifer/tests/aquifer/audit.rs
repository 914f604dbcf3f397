//! Audit lines of the real daemon: what is in them, over kills, restarts, and a file that cannot be
//! written.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::{Daemon, PATIENCE, Place};

fn lines(place: &Place) -> Vec<Value> {
    let text = fs::read_to_string(place.path("audit.log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn serve(place: &Place) -> Daemon {
    let daemon = place.spawn_as("state", &[], &[], &["--config", &place.text("config")]);
    place.wait_for(|| {
        let said = place.ask(&["pool", "list", "--json"]);
        said.code == 0 && !said.out.contains("IMPORTING")
    });
    daemon
}

/// The members of a line, as one text.
fn text(line: &Value) -> String {
    let member = |name: &str| line[name].as_str().unwrap_or("-").to_string();
    ["kind", "who", "role", "from", "act", "outcome"].map(member).join(" | ")
}

/// Each act and each refusal has its line, by the socket, with tokens and without.
#[test]
fn acts_and_refusals_are_lines_of_a_chain_over_kills() {
    let place = Place::new();
    let a = place.image("a");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = place.text("audit.log");
    let config = format!("[api]\nlisten = [\"127.0.0.1:{port}\"]\n[audit]\nfile = {file:?}\n");
    fs::write(place.path("config"), config).unwrap();
    let daemon = serve(&place);
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    assert_eq!(place.ask(&["set", "quota=nonsense", "tank/vms"]).code, 1);
    let made = place.ask(&["token", "create", "ci", "--role", "read"]).out;
    let least = place.ask(&["token", "create", "m", "--role", "metrics"]).out;
    // As long, and of nobody.
    let digit = |c: char| if c.is_ascii_digit() { '7' } else { c };
    let other: String = made.trim().chars().map(digit).collect();
    let tokens = [("ci", made.as_str()), ("m", &least), ("bad", &other)];
    for (name, content) in tokens {
        fs::write(place.path(name), content).unwrap();
        fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let (url, certificate) =
        (format!("https://127.0.0.1:{port}"), place.text("state/api/certificate.pem"));
    let ask = |token: &str, words: &[&str]| {
        let token = place.text(token);
        let start = ["--api", &url, "--api-certificate", &certificate, "--api-token", &token];
        place.ask(&[&start, words].concat()).code
    };
    // Two at once: the history has one of them, the audit has both.
    assert_eq!(ask("ci", &["destroy", "-f", "tank/vms"]), 1);
    assert_eq!(ask("ci", &["destroy", "-f", "tank/vms"]), 1);
    assert_eq!(ask("m", &["pool", "list"]), 1);
    assert_eq!(ask("bad", &["pool", "list"]), 1);
    let me = format!("uid {}", rustix::process::getuid().as_raw());
    let expected = [
        "begin | - | - | - | - | -".to_string(),
        format!("act | {me} | - | - | the daemon starts | done"),
        format!("act | {me} | admin | socket | pool create tank {a} | done"),
        format!("act | {me} | admin | socket | create tank/vms | done"),
        format!("act | {me} | admin | socket | set quota=nonsense tank/vms | failed"),
        format!("act | {me} | admin | socket | token create --role read ci | done"),
        format!("act | {me} | admin | socket | token create --role metrics m | done"),
        "refused | token ci | read | 127.0.0.1 | POST /v1/datasets/destroy | forbidden".into(),
        "refused | token ci | read | 127.0.0.1 | POST /v1/datasets/destroy | forbidden".into(),
        "refused | token m | metrics | 127.0.0.1 | GET /v1/pools | forbidden".into(),
        "refused | - | - | 127.0.0.1 | /v1/pools | unauthorized".into(),
    ];
    place.wait_for(|| lines(&place).len() >= expected.len());
    let told: Vec<String> = lines(&place).iter().map(text).collect();
    assert_eq!(told, expected);
    assert!(!fs::read_to_string(&file).unwrap().contains(made.trim()), "no line has a token");
    daemon.kill9();
    let daemon = serve(&place);
    place.must(&["snapshot", "tank/vms@a"]);
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    let all = lines(&place);
    let last = all.len() as u64;
    assert_eq!(text(&all[all.len() - 1]), format!("act | {me} | - | - | the daemon stops | done"));
    assert_eq!(all[all.len() - 1]["seq"], last, "one chain over a kill and a restart");
    let verified = place.json(&["audit", "verify", &file]);
    assert_eq!((&verified["lines"], &verified["first"]), (&last.into(), &1.into()));
    // Somebody makes another one of a line, and takes one out.
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, whole.replacen("pool create tank", "pool create mine", 1)).unwrap();
    let said = place.ask(&["audit", "verify", &file]);
    let why = "audit.log:4: the line before this one, number 3, was changed";
    assert!(said.code == 1 && said.err.contains(why), "{said:?}");
    let without: Vec<&str> =
        whole.split_inclusive('\n').filter(|of| !of.contains("nonsense")).collect();
    fs::write(&file, without.concat()).unwrap();
    let said = place.ask(&["audit", "verify", &file]);
    let why = "audit.log:5: 1 lines are missing before this one, number 6";
    assert!(said.code == 1 && said.err.contains(why), "{said:?}");
}

/// A file that cannot be written holds up no act. The status says so until it can.
#[test]
fn acts_go_on_without_their_lines_and_the_status_says_so() {
    let place = Place::new();
    let a = place.image("a");
    let file = place.text("none/audit.log");
    fs::write(place.path("config"), format!("[audit]\nfile = {file:?}\n")).unwrap();
    let _daemon = serve(&place);
    place.must(&["pool", "create", "tank", &a]);
    place.must(&["create", "tank/vms"]);
    let is_told = || place.must(&["alerts"]).contains("audit-not_written");
    place.wait_for(is_told);
    fs::create_dir(place.path("none")).unwrap();
    place.wait_for(|| !is_told());
    let verified = place.json(&["audit", "verify", &file]);
    assert_eq!(verified["dropped"], 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("create tank/vms"), "what waited is there: {text}");
}
