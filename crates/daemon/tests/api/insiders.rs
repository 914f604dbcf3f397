//! Acts of one who has a token and means ill: each role, with each text that another place might
//! read as more than a name; and the streams and copies of others.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use aquifer_admin::control::Scope;
use aquifer_api::{
    CreateDataset, DatasetQuery, HistoryQuery, HoldSnapshots, MakeBookmark, On, ReceiveEnd,
    ReceiveRequest, ReceivesQuery, Role, SendQuery, SnapshotQuery, TakeSnapshots,
};
use serde_json::{Map, Value, json};

use crate::daemon::{Daemon, raw};
use crate::roles::{asked_by, serve_roles, status};

/// Texts that mean more than a name to somebody who parses them.
const HOSTILE: [&str; 16] = [
    "%",
    "a,%,b",
    "a%b",
    ",",
    "@",
    "@%",
    "*",
    "?",
    "[a-z]",
    "/",
    "..",
    "/../",
    "\0",
    "\n",
    "\\x41",
    "\u{1b}[2J",
];

const TAKEN: &str = "replicate-other-2026-11-27T08:00:00.000Z";

/// A pool with a dataset, snapshots, a hold, a bookmark, and a copy with what replications took.
async fn filled() -> Daemon {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let client = &daemon.client;
    let properties = Default::default();
    client.ask(&CreateDataset { name: "tank/vms".into(), properties }).await.unwrap();
    for name in ["tank/vms@keep", &format!("tank/vms@{TAKEN}"), "tank/vms@last"] {
        let names = vec![name.to_string()];
        client.ask(&TakeSnapshots { names, recursive: false }).await.unwrap();
    }
    let snapshot = "tank/vms@keep".to_string();
    let bookmark = MakeBookmark { snapshot, bookmark: "tank/vms#mark".into() };
    client.ask(&bookmark).await.unwrap();
    for (from, to) in [(None, "keep"), (Some("keep"), TAKEN), (Some(TAKEN), "last")] {
        let snapshot = format!("tank/vms@{to}");
        let from = from.map(|from| format!("@{from}"));
        let query = SendQuery { snapshot, from, ..SendQuery::default() };
        let stream = stream(&daemon, query).await;
        let into = ReceiveRequest { name: "tank/copy".into(), ..ReceiveRequest::default() };
        let id = client.ask(&into).await.unwrap().id;
        client.receive_part(id, stream.into()).await.unwrap();
        client.ask(&On::new(id.to_string(), ReceiveEnd::default())).await.unwrap();
    }
    let hold = HoldSnapshots {
        tag: "mine".into(),
        names: vec!["tank/vms@last".into()],
        recursive: false,
        until_s: None,
    };
    client.ask(&hold).await.unwrap();
    daemon
}

pub async fn stream(daemon: &Daemon, mut query: SendQuery) -> Vec<u8> {
    let mut stream = Vec::new();
    loop {
        let part = daemon.control.send_part(query.clone(), &Scope::default()).await.unwrap();
        stream.extend(part.bytes);
        query.after = part.next;
        if query.after.is_none() {
            return stream;
        }
    }
}

/// Returns all that nobody below an administrator may take away: datasets, snapshots, holds,
/// bookmarks, by guid where they have one.
pub async fn state(daemon: &Daemon) -> BTreeSet<String> {
    let client = &daemon.client;
    let datasets = client.ask(&DatasetQuery::default()).await.unwrap();
    let snapshots = client.snapshots(&SnapshotQuery::default()).await.unwrap();
    let holds = daemon.control.holds(&SnapshotQuery::default(), &Scope::default()).await.unwrap();
    let bookmarks =
        daemon.control.bookmarks(&SnapshotQuery::default(), &Scope::default()).await.unwrap();
    let properties = datasets.iter().flat_map(|of| {
        let own = of.properties.iter().filter(|property| property.source == "local");
        own.map(|property| format!("{} {}={}", of.name, property.name, property.value))
    });
    let names = datasets.iter().map(|of| of.name.clone());
    let snapshots = snapshots.iter().map(|of| format!("{} {}", of.name, of.guid));
    let holds = holds.iter().map(|of| format!("{} held {}", of.snapshot, of.tag));
    let bookmarks = bookmarks.iter().map(|of| format!("{of:?}"));
    names.chain(properties).chain(snapshots).chain(holds).chain(bookmarks).collect()
}

/// The places of texts in a body of this schema, each with a body that has it and all that is
/// needed besides.
fn bodies(all: &Value, schema: &Value, hostile: &str) -> Vec<Value> {
    let resolve = |schema: &Value| match schema["$ref"].as_str() {
        Some(to) => all.pointer(to.trim_start_matches('#')).unwrap().clone(),
        None => schema.clone(),
    };
    let schema = resolve(schema);
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let needed: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let kind = |of: &Value| {
        let of = resolve(of);
        let kinds = of["type"].as_array().cloned().unwrap_or_else(|| vec![of["type"].clone()]);
        kinds.into_iter().find_map(|kind| kind.as_str().map(str::to_string)).unwrap_or_default()
    };
    let base = |name: &str| match name {
        "snapshot" | "names" | "from" => "tank/vms@keep",
        "new" | "tag" => "new",
        "disk" | "disks" => "/nowhere/disk",
        _ => "tank/vms",
    };
    let filled = |name: &str, of: &Value, text: &str| match kind(of).as_str() {
        "string" => Some(json!(text)),
        "array" => Some(json!([text])),
        "object" => Some(json!({text: text})),
        "integer" => needed.contains(&name).then_some(json!(0)),
        "boolean" => needed.contains(&name).then_some(json!(false)),
        _ => None,
    };
    let mut found = Vec::new();
    for name in properties.keys() {
        for text in [hostile.to_string(), format!("tank/vms@{hostile}"), format!("tank/{hostile}")]
        {
            let mut body = Map::new();
            for (other, of) in properties {
                let is_it = other == name;
                if is_it || needed.contains(&other.as_str()) {
                    let text = if is_it { text.as_str() } else { base(other) };
                    body.extend(filled(other, of, text).map(|value| (other.clone(), value)));
                }
            }
            if body.contains_key(name) {
                found.push(Value::Object(body));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_a_lesser_role_means_more_than_a_name() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let all: Value = serde_json::from_str(include_str!("../../src/http/openapi.json")).unwrap();
    let before = state(&daemon).await;
    assert!(before.len() >= 12, "{before:?}");
    let paths = all["paths"].as_object().unwrap();
    let mut asked = 0;
    for role in [Role::Metrics, Role::Receive, Role::Read, Role::Operator] {
        for (path, of) in paths {
            let path = path.trim_start_matches(aquifer_api::PATH);
            // Those may take a pool away from here, which this is not about.
            if of.get("post").is_none() || path == "/import" || path.ends_with("/export") {
                continue;
            }
            let schema = &of["post"]["requestBody"]["content"]["application/json"]["schema"];
            for hostile in HOSTILE {
                for body in bodies(&all, schema, hostile) {
                    let request = asked_by("insider", ("POST", path), role, &body.to_string());
                    let answer = raw(&socket, &request);
                    assert!(!answer.contains("HTTP/1.1 500"), "{path} {body}: {answer}");
                    asked += 1;
                }
            }
        }
        let after = state(&daemon).await;
        let gone: Vec<&String> = before.difference(&after).collect();
        assert!(gone.is_empty(), "{role}: {gone:?}");
    }
    assert!(asked > 4000, "{asked}");
    daemon.control.stop().await;
}

/// Begins a stream of a token's. Gives the answer.
fn begin(socket: &Path, token: &str, into: &str, sender: Option<&str>) -> String {
    let body = json!({"name": into, "sender": sender, "resumable": true}).to_string();
    raw(socket, &asked_by(token, ("POST", "/receive"), Role::Receive, &body))
}

pub fn id_of(answer: &str) -> u64 {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    body["id"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn part(socket: &Path, token: &str, id: u64, bytes: &[u8]) -> String {
    part_as(token, Role::Receive, socket, id, bytes)
}

pub fn part_as(token: &str, role: Role, socket: &Path, id: u64, bytes: &[u8]) -> String {
    let head = asked_by(token, ("POST", &format!("/receive/{id}")), role, "");
    let head = head.replace("content-length: 0", &format!("content-length: {}", bytes.len()));
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(head.as_bytes()).unwrap();
    // The daemon may refuse it by its head.
    let _ = client.write_all(bytes);
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    answer
}

fn end(socket: &Path, token: &str, id: u64, body: &Value) -> String {
    let path = format!("/receive/{id}/end");
    raw(socket, &asked_by(token, ("POST", &path), Role::Receive, &body.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_destroys_nothing_of_copies_that_it_did_not_feed() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let before = state(&daemon).await;
    // All of it is there already: the stream is passed over, and ends well.
    let query =
        SendQuery { snapshot: "tank/vms@last".into(), recursive: true, ..Default::default() };
    let passed_over = stream(&daemon, query).await;
    let all = format!("{TAKEN},%,{TAKEN}");
    for (prune, expected) in [(all.as_str(), "400"), (TAKEN, "200"), ("keep", "403")] {
        let id = id_of(&begin(&socket, "thief", "tank/copy", Some("x")));
        let answer = part(&socket, "thief", id, &passed_over);
        assert_eq!(status(&answer), "200", "{answer}");
        let answer = end(&socket, "thief", id, &json!({"prune": [prune]}));
        assert_eq!(status(&answer), expected, "{prune}: {answer}");
        if expected != "200" {
            end(&socket, "thief", id, &json!({"give_up": true}));
        }
        assert_eq!(state(&daemon).await, before, "{prune}");
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_one_feeder_who_alone_prunes_it_and_that_is_in_the_history() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let names = vec!["tank/vms@more".to_string(), "tank/vms@most".into()];
    for name in names {
        let names = vec![name];
        daemon.client.ask(&TakeSnapshots { names, recursive: false }).await.unwrap();
    }
    let since = async |from: Option<&str>, to: &str| {
        let from = from.map(|from| format!("@{from}"));
        let snapshot = format!("tank/vms@{to}");
        stream(&daemon, SendQuery { snapshot, from, ..SendQuery::default() }).await
    };
    let bring = async |token: &str, from: Option<&str>, to: &str, prune: &[&str]| {
        let id = id_of(&begin(&socket, token, "tank/fed", Some("x")));
        let answer = part(&socket, token, id, &since(from, to).await);
        assert_eq!(status(&answer), "200", "{answer}");
        end(&socket, token, id, &json!({"prune": prune}))
    };
    let answer = bring("feeder", None, TAKEN, &[]).await;
    assert_eq!(status(&answer), "200", "{answer}");
    // Another one's stream is refused, and changes nothing.
    let before = state(&daemon).await;
    let answer = bring("thief", Some(TAKEN), "last", &[TAKEN]).await;
    assert!(answer.contains("another one feeds") && answer.contains("feeder"), "{answer}");
    assert_eq!(state(&daemon).await, before);
    // The feeder's goes in, and takes away what it is over: by name, and no more.
    let answer = bring("feeder", Some(TAKEN), "last", &[TAKEN]).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let query =
        SnapshotQuery { name: Some("tank/fed".into()), recursive: false, ..Default::default() };
    let names = async || {
        let listed = daemon.client.snapshots(&query).await.unwrap();
        listed.into_iter().map(|of| of.name).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["tank/fed@last"]);
    let history = daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
    let gone = format!("tank/fed@{TAKEN}");
    let is_told = |of: &aquifer_api::HistoryEntry| {
        of.who.contains("feeder") && of.changes.iter().any(|change| change.what == gone)
    };
    assert!(history.iter().any(is_told), "{history:?}");
    // The newest one is held on this side, too.
    let holds = daemon.control.holds(&query, &Scope::default()).await.unwrap();
    assert_eq!(holds.len(), 1, "{holds:?}");
    assert_eq!(holds[0].tag, "received by token feeder");
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_its_bringers_and_a_part_is_judged_before_its_body() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let id = id_of(&begin(&socket, "mine", "tank/new", None));
    // Nothing of a body was sent: the answer comes all the same.
    for (token, id, expected) in [("mine", 4711, "404"), ("other", id, "403")] {
        let head = asked_by(token, ("POST", &format!("/receive/{id}")), Role::Receive, "");
        let head = head.replace("content-length: 0", "content-length: 4194304");
        let answer = raw(&socket, &head);
        assert_eq!(status(&answer), expected, "{answer}");
    }
    for body in [json!({}), json!({"give_up": true})] {
        let answer = end(&socket, "other", id, &body);
        assert_eq!(status(&answer), "403", "{answer}");
    }
    // The same sender's name gives nobody a right.
    id_of(&begin(&socket, "mine", "tank/sent", Some("x")));
    id_of(&begin(&socket, "other", "tank/sent", Some("x")));
    let query = ReceivesQuery { coming: true, ..ReceivesQuery::default() };
    let coming = daemon.client.ask(&query).await.unwrap();
    let mut owners: Vec<String> = coming.iter().filter_map(|of| of.owner.clone()).collect();
    owners.sort();
    assert_eq!(owners, ["token mine", "token mine", "token other"]);
    assert!(coming.iter().all(|of| of.begun_ns.is_some() && of.receiving), "{coming:?}");
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_takes_all_places_and_one_is_the_administrators() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let mut taken = Vec::new();
    for (token, places) in [("one", 3), ("two", 2)] {
        for place in 0..places {
            let answer = begin(&socket, token, &format!("tank/{token}{place}"), None);
            taken.push((token, id_of(&answer)));
        }
        if token == "one" {
            let answer = begin(&socket, token, "tank/more", None);
            assert!(answer.contains("3 of them by token one"), "{answer}");
        }
    }
    let answer = begin(&socket, "three", "tank/three", None);
    assert_eq!(status(&answer), "409", "{answer}");
    let own = ReceiveRequest { name: "tank/own".into(), ..ReceiveRequest::default() };
    let id = daemon.client.ask(&own).await.unwrap().id;
    assert!(daemon.client.ask(&own).await.is_err());
    for (token, id) in taken {
        end(&socket, token, id, &json!({"give_up": true}));
    }
    let give_up = ReceiveEnd { give_up: true, ..ReceiveEnd::default() };
    assert!(daemon.client.ask(&On::new(id.to_string(), give_up)).await.is_err());
    id_of(&begin(&socket, "three", "tank/three", None));
    daemon.control.stop().await;
}
