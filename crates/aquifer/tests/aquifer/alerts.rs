//! Alerts: a disk is missing, and mail, a webhook and a program hear of it, once.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Place;

type Got = Arc<Mutex<Vec<String>>>;

/// A server on a port of its own. Returns its address, and what `talk` returned of each connection.
fn server(talk: fn(TcpStream) -> Option<String>) -> (String, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let got = Got::default();
    let into = Arc::clone(&got);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let into = Arc::clone(&into);
            thread::spawn(move || {
                if let Some(text) = talk(stream) {
                    into.lock().unwrap().push(text);
                }
            });
        }
    });
    (address, got)
}

/// As much of SMTP (RFC 5321) as one mail needs. Returns the mail.
fn smtp(mut stream: TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    stream.write_all(b"220 test ESMTP\r\n").ok()?;
    let mut line = String::new();
    loop {
        line.clear();
        lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.split_whitespace().next().unwrap_or_default().to_uppercase().as_str() {
            "DATA" => break,
            _ => stream.write_all(b"250 OK\r\n").ok()?,
        }
    }
    stream.write_all(b"354 go on\r\n").ok()?;
    let mut mail = String::new();
    loop {
        line.clear();
        lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == ".\r\n" {
            break;
        }
        mail.push_str(&line);
    }
    stream.write_all(b"250 taken\r\n").ok()?;
    // QUIT.
    lines.read_line(&mut line).ok()?;
    stream.write_all(b"221 bye\r\n").ok()?;
    Some(mail)
}

/// Takes one POST. Returns its body.
fn http(mut stream: TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").ok()?;
    String::from_utf8(body).ok()
}

/// Says nothing, and keeps the connection.
fn hangs(mut stream: TcpStream) -> Option<String> {
    let mut sink = [0; 64];
    while stream.read(&mut sink).is_ok_and(|read| read > 0) {}
    None
}

fn configured(place: &Place, [mail, hook, slack, silent]: [&str; 4]) -> String {
    let got = place.text("got");
    let script = place.path("told");
    fs::write(&script, format!("#!/bin/sh\necho \"$AQUIFER_SUBJECT\" >>{got}\ncat >>{got}\n"))
        .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let config = place.path("aquifer.toml");
    let text = format!(
        r#"
wait_for_disks_s = 1
[alerts]
[[alerts.mail]]
server = "{mail}"
tls = "none"
from = "Aquifer <store@example.com>"
to = ["admin@example.com", "night@example.com"]
[[alerts.webhook]]
name = "hook"
url = "http://{hook}/x"
[[alerts.webhook]]
name = "errors alone"
severity = "error"
url = "http://{slack}/y"
shape = "slack"
[[alerts.webhook]]
name = "hangs"
url = "http://{silent}/z"
[[alerts.command]]
run = ["{script}"]
"#,
        script = script.display(),
    );
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_string()
}

fn outlet(alerts: &Value, name: &str) -> Value {
    let outlets = alerts["outlets"].as_array().unwrap();
    outlets.iter().find(|outlet| outlet["name"] == name).unwrap().clone()
}

#[test]
fn a_missing_disk_is_told_by_every_outlet_once() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.image(name));
    let (mail, mails) = server(smtp);
    let (hook, bodies) = server(http);
    let (slack, slacks) = server(http);
    let (silent, _) = server(hangs);
    let config = configured(&place, [&mail, &hook, &slack, &silent]);
    let serve = || place.spawn_serving(&["--config", &config]);
    let daemon = serve();
    place.must(&["pool", "create", "tank", "mirror", &a, &b]);
    let quiet = place.must(&["alerts"]);
    assert!(quiet.starts_with("nothing is wrong\n") && quiet.contains("errors alone"), "{quiet}");

    // Somebody wants to see whether it arrives.
    let tested = place.must(&["alerts", "test", "mail-1"]);
    assert_eq!(tested, "mail-1: sent\n");
    place.wait_for(|| !mails.lock().unwrap().is_empty());
    let mail = mails.lock().unwrap().pop().unwrap();
    assert!(mail.contains("Subject: [aquifer ") && mail.contains("This is a test"), "{mail}");
    assert!(mail.contains("To: admin@example.com, night@example.com"), "{mail}");
    let unknown = place.ask(&["alerts", "test", "pager"]);
    assert!(unknown.code == 1 && unknown.err.contains("no outlet \"pager\""), "{}", unknown.err);
    daemon.kill9();

    fs::rename(&b, place.path("away")).unwrap();
    let daemon = serve();
    place.wait_for(|| {
        let got = fs::read_to_string(place.path("got")).unwrap_or_default();
        let each = [&mails, &bodies, &slacks].map(|got| got.lock().unwrap().len());
        each == [1, 1, 1] && got.contains("disk-missing")
    });
    let mail = mails.lock().unwrap()[0].clone();
    assert!(mail.contains("ERROR: disk-missing of tank"), "{mail}");
    let hooked: Value = serde_json::from_str(&bodies.lock().unwrap()[0]).unwrap();
    assert_eq!((&hooked["version"], &hooked["severity"]), (&1.into(), &"error".into()));
    let alert = &hooked["alerts"][0];
    assert_eq!((&alert["kind"], &alert["pool"]), (&"raised".into(), &"tank".into()));
    // The words of the status, with what to type.
    let status = place.json(&["pool", "status", "tank"]);
    assert_eq!(alert["status"], status["problems"][0]["status"]);
    assert!(alert["action"].as_str().unwrap().contains(&format!("pool replace tank {b} NEW")));
    let body: Value = serde_json::from_str(&slacks.lock().unwrap()[0]).unwrap();
    assert!(body["text"].as_str().unwrap().contains("disk-missing"), "{body}");

    // One that hangs holds up nobody, and says so.
    let begun = Instant::now();
    let alerts = place.json(&["alerts"]);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(alerts["active"][0]["code"], "disk-missing");
    assert_eq!(outlet(&alerts, "hangs")["waiting"], 1);
    assert_eq!(outlet(&alerts, "hook")["sent"], 1);
    let table = place.must(&["alerts"]);
    assert!(table.contains(" alert: error disk-missing of pool tank\n"), "{table}");
    // Each of them leads to the run-book.
    let see = "/usr/share/doc/aquifer/docs/runbook.md#replace-a-disk";
    for json in [&alerts["active"][0], &status["problems"][0], &hooked["alerts"][0]] {
        assert_eq!(json["see"], see);
    }
    let shown = place.must(&["pool", "status", "tank"]);
    for text in [&table, &shown, &mail] {
        assert!(text.contains(&format!("see: {see}")), "{text}");
    }

    // The outlets had their second; then it is kept what was sent. (Before, it is sent again.)
    let kept = place.path("state/alerts.json");
    place.wait_for(|| fs::read_to_string(&kept).is_ok_and(|kept| kept.contains("disk-missing")));
    // The txg of an act has the events before it, too.
    place.must(&["create", "tank/vms"]);
    daemon.kill9();

    // A restart tells nothing twice, and goes on with what was not sent.
    let told = || [&mails, &bodies, &slacks].map(|got| got.lock().unwrap().len());
    let _daemon = serve();
    place.wait_for(|| place.json(&["alerts"])["active"][0]["code"] == "disk-missing");
    thread::sleep(LOOKS);
    let events = place.must(&["pool", "events", "tank"]);
    assert!(events.contains("disk.missing"), "kept by the pool, over a kill: {events}");
    let alerts = place.json(&["alerts"]);
    assert_eq!((told(), &outlet(&alerts, "hangs")["waiting"]), ([1, 1, 1], &1.into()));
}

/// Two looks at what is wrong, and more.
const LOOKS: Duration = Duration::from_secs(12);

#[test]
fn settings_of_alerts_that_cannot_be_are_refused() {
    let place = Place::new();
    let config = place.path("aquifer.toml");
    let refusal = |text: &str| {
        fs::write(&config, text).unwrap();
        let said = place.ask(&["serve", "--check", "--config", config.to_str().unwrap()]);
        assert_eq!(said.code, 2, "{text}: {}", said.err);
        said.err
    };
    for (text, why) in [
        ("[[alerts.mail]]\nserver = \"x\"\nfrom = \"a@b.c\"\nto = []\n", "names nobody"),
        ("[[alerts.mail]]\nserver = \"x\"\nfrom = \"nobody\"\nto = [\"a@b.c\"]\n", "no address"),
        ("[[alerts.webhook]]\nurl = \"example.com\"\n", "begins with https://"),
        ("[[alerts.command]]\nrun = [\"page\"]\n", "absolute path"),
        ("[alerts]\ncapacity_warning_percent = 95\n", "a warning comes before an error"),
        ("[[alerts.webhook]]\nurl = \"https://a/\"\nshape = \"teams\"\n", "teams"),
        ("[alerts]\nmial = []\n", "mial"),
    ] {
        let said = refusal(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    let none = Place::new();
    let _daemon = none.serve();
    let said = none.ask(&["alerts", "test"]);
    assert!(said.code == 1 && said.err.contains("sent nowhere"), "{}: {}", said.code, said.err);
}
