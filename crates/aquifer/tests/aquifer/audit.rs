//! Audit lines of the real daemon: what is in them, over kills, restarts, and a file that cannot be
//! written.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use aquifer_nfs::proto::v3::Args3;
use serde_json::Value;

use crate::exports::address;
use crate::logs::{Mounted, fill};
use crate::once::{Client, mounted, place as of};
use crate::snapcontrol::{list, mkdir};
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
    let bound = ["token", "create", "t", "--role", "read", "--dataset", "tank/vms"];
    let bound = place.ask(&bound).out;
    // As long, and of nobody.
    let digit = |c: char| if c.is_ascii_digit() { '7' } else { c };
    let other: String = made.trim().chars().map(digit).collect();
    let tokens = [("ci", made.as_str()), ("m", &least), ("t", &bound), ("bad", &other)];
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
    // What is outside, and what is not there.
    assert_eq!(ask("t", &["list", "tank"]), 1);
    assert_eq!(ask("t", &["list", "tank/vms/gone"]), 1);
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
        format!(
            "act | {me} | admin | socket | token create --role read --dataset tank/vms t | done"
        ),
        "refused | token ci | read | 127.0.0.1 | POST /v1/datasets/destroy | forbidden".into(),
        "refused | token ci | read | 127.0.0.1 | POST /v1/datasets/destroy | forbidden".into(),
        "refused | token m | metrics | 127.0.0.1 | GET /v1/pools | forbidden".into(),
        "refused | token t | read | 127.0.0.1 | GET /v1/datasets?name=tank&recursive=false | \
         forbidden"
            .into(),
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
    what_was_changed_is_found(&place, &file);
}

/// Somebody makes another one of a line, and takes one out.
fn what_was_changed_is_found(place: &Place, file: &str) {
    let whole = fs::read_to_string(file).unwrap();
    fs::write(file, whole.replacen("pool create tank", "pool create mine", 1)).unwrap();
    let said = place.ask(&["audit", "verify", file]);
    let why = "audit.log:4: the line before this one, number 3, was changed";
    assert!(said.code == 1 && said.err.contains(why), "{said:?}");
    let without: Vec<&str> =
        whole.split_inclusive('\n').filter(|of| !of.contains("nonsense")).collect();
    fs::write(file, without.concat()).unwrap();
    let said = place.ask(&["audit", "verify", file]);
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

/// Checks that the part of a line that a full file system took goes again, and that the chain goes
/// on.
#[test]
fn a_full_file_system_leaves_no_half_line() {
    let place = Place::new();
    let Some(_mounted) = Mounted::tmpfs(&place.text("small"), 1) else { return };
    let (a, file) = (place.image("a"), place.text("small/audit.log"));
    fs::write(place.path("config"), format!("[audit]\nfile = {file:?}\n")).unwrap();
    let daemon = serve(&place);
    place.must(&["pool", "create", "tank", &a]);
    // All but the rest of the file's own last page.
    let filler = place.path("small/filler");
    fill(&filler);
    let is_told = || place.must(&["alerts"]).contains("audit-not_written");
    let mut acts = 0;
    while !is_told() {
        place.must(&["set", &format!("test:act={acts}"), "tank"]);
        acts += 1;
    }
    let there = fs::read_to_string(&file).unwrap();
    assert!(there.ends_with('\n') && there.lines().count() > 3, "{there}");
    fs::remove_file(&filler).unwrap();
    place.wait_for(|| !is_told());
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    place.must(&["audit", "verify", &file]);
    let text = fs::read_to_string(&file).unwrap();
    for act in 0..acts {
        assert!(text.contains(&format!("set test:act={act} tank")), "{act}: {text}");
    }
}

/// The log has twenty lines of a host in a minute at most. The audit has all, also in one burst.
#[test]
fn each_act_of_a_busy_host_has_its_line() {
    const SNAPSHOTS: usize = 40;
    let at = Place::new();
    let image = at.image("a");
    let file = at.text("audit.log");
    fs::write(at.path("config"), format!("[audit]\nfile = {file:?}\n")).unwrap();
    let daemon = serve(&at);
    at.must(&["pool", "create", "tank", &image]);
    let control = "snapcontrol=127.0.0.1:[::1]";
    at.must(&["create", "-o", "sharenfs=insecure", "-o", control, "tank/vms"]);
    let names: Vec<String> = (0..SNAPSHOTS).map(|number| format!("s{number}")).collect();
    let nfs = address(&at);
    let root = mounted(&nfs, "/tank/vms");
    let mut client = Client { nfs, sent: Vec::new() };
    let list = list(&client, root);
    for name in &names {
        client.call(mkdir(list, name));
    }
    for name in &names {
        client.call(Args3::Rmdir(of(list, name)));
    }
    assert!(daemon.terminate(PATIENCE).unwrap().success());
    let acts: Vec<String> = lines(&at).iter().map(text).collect();
    for word in ["snapshots taken", "snapshots destroyed"] {
        for name in &names {
            let act = format!("| {word} tank/vms@{name} | done");
            let of_host = |line: &&String| line.contains("host 127.0.0.1") && line.ends_with(&act);
            assert_eq!(acts.iter().filter(of_host).count(), 1, "{act}: {acts:#?}");
        }
    }
    at.must(&["audit", "verify", &file]);
}
