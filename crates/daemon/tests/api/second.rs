//! `two_persons`: which acts wait, and what comes of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use aquifer_api::{
    BindToken, ConfirmAct, CreateDataset, CreateToken, DatasetQuery, DestroyDataset, HistoryEntry,
    HistoryQuery, HoldSnapshots, MakeBookmark, On, ReleaseSnapshots, RenameDataset, RevokeToken,
    Role, RotateToken, SendQuery, SetProperties, TakeSnapshots, WaitingAct,
};
use aquifer_daemon::http::routes;
use serde_json::{Value, json};

use crate::daemon::{Daemon, raw};
use crate::insiders::{id_of, part_as, stream};
use crate::roles::{asked_by, serve_roles, status};

/// Requests that lose something, by route.
fn guarded() -> Vec<(&'static str, &'static str, Value)> {
    let set = |name: &str, value: Value| {
        let properties = json!({"quota": "1G", name: value});
        json!({"name": "tank/vms", "properties": properties})
    };
    let own = |value: Value| json!({"name": "tank", "properties": {"two_persons": value}});
    let disk = [json!({"kind": "single", "disks": ["/nothing"]})];
    let new = json!({"disk": "/a", "new": "/nothing", "force": true});
    let token = |role: &str| json!({"name": "c", "role": role});
    let bare = json!({});
    let snapshot = ["tank/vms@a"];
    vec![
        ("/import", "", json!({"pool": "other", "rewind": 1})),
        ("/import", "", json!({"pool": "other", "new_name": "tub"})),
        ("/pools/{name}/export", "tank", json!({})),
        ("/pools/{name}/export", "tank", json!({"force": true})),
        ("/pools/{name}/online", "tank", json!({"disk": "/a", "force": true})),
        ("/datasets/set", "", set("snapcontrol", json!("10.0.0.1"))),
        ("/datasets/set", "", set("snapcontrol", Value::Null)),
        ("/datasets/set", "", set("snapshots", json!("off"))),
        ("/datasets/set", "", set("filesnapshots", Value::Null)),
        ("/datasets/set", "", set("retain", json!("1d"))),
        ("/datasets/set", "", own(json!("off"))),
        ("/datasets/set", "", own(json!("delay=30d"))),
        ("/datasets/set", "", own(Value::Null)),
        (
            "/snapshots/hold",
            "",
            json!({"tag": "t", "names": snapshot, "until_s": 4_000_000_000_u64}),
        ),
        ("/pools", "", json!({"name": "new", "vdevs": disk, "force": true})),
        ("/pools/{name}/destroy", "tank", json!({"confirm": "tank"})),
        ("/pools/{name}/add", "tank", json!({"vdevs": disk, "force": true})),
        ("/pools/{name}/attach", "tank", new.clone()),
        ("/pools/{name}/replace", "tank", new),
        ("/datasets/destroy", "", json!({"name": "tank/vms", "confirm": "tank/vms"})),
        ("/datasets/rename", "", json!({"name": "tank/vms", "new": "tank/other/vms"})),
        ("/datasets/promote", "", json!({"name": "tank/vms"})),
        ("/datasets/rollback", "", json!({"name": "tank/vms@a"})),
        ("/bookmarks/destroy", "", json!({"names": ["tank/vms#b"]})),
        ("/snapshots/destroy", "", json!({"name": "tank/vms@a", "confirm": "tank/vms@a"})),
        ("/snapshots/release", "", json!({"tag": "t", "names": snapshot})),
        ("/replicate", "", json!({"dataset": "tank/vms", "target": "tub/vms", "force": true})),
        ("/tokens", "", token("admin")),
        ("/tokens", "", token("operator")),
        ("/tokens", "", token("receive")),
        ("/tokens/{name}/rotate", "feeder", json!({})),
        ("/tokens/{name}/rotate", "b", bare.clone()),
        ("/tokens/{name}/rotate", "token", bare),
        ("/tokens/{name}/bind", "b", json!({"certificates": []})),
        ("/tokens/{name}/revoke", "b", Value::Null),
    ]
}

/// Requests that lose nothing: of guarded routes too, and of each other act.
fn free() -> Vec<(&'static str, &'static str, Value)> {
    let set = |name: &str, value: Value| json!({"name": "tank/vms", "properties": {name: value}});
    let disk = json!({"disk": "/a"});
    let bare = || json!({});
    let destroy = json!({"name": "tank/vms@a", "dry_run": true});
    vec![
        ("/import", "", json!({"pool": "other"})),
        ("/pools/{name}/clear", "tank", Value::Null),
        ("/pools/{name}/clear-disk", "tank", disk.clone()),
        ("/pools/{name}/offline", "tank", disk.clone()),
        ("/pools/{name}/online", "tank", disk.clone()),
        ("/pools/{name}/scrub", "tank", json!({"act": "stop"})),
        ("/pools/{name}/free-space", "tank", bare()),
        ("/pools/{name}/drill", "tank", bare()),
        ("/pools/{name}/remove", "tank", disk.clone()),
        ("/pools/{name}/detach", "tank", disk),
        ("/pools/{name}/inject", "tank", bare()),
        ("/datasets", "", json!({"name": "tank/a", "properties": {"snapshots": "hourly=1"}})),
        ("/datasets/clone", "", json!({"snapshot": "tank/vms@a", "name": "tank/clone"})),
        ("/datasets/set", "", set("quota", json!("1G"))),
        ("/datasets/set", "", set("snapcontrol", json!("off"))),
        ("/datasets/set", "", json!({"name": "tank", "properties": {"two_persons": "on"}})),
        ("/datasets/rename", "", json!({"name": "tank/a", "new": "tank/b"})),
        ("/datasets/clear", "", json!({"name": "tank/vms", "file": "x"})),
        ("/snapshots", "", json!({"names": ["tank/vms@free"]})),
        ("/snapshots/rename", "", json!({"name": "tank/vms@free", "new": "freed"})),
        ("/snapshots/hold", "", json!({"tag": "u", "names": ["tank/vms@a"]})),
        ("/snapshots/destroy", "", destroy),
        ("/bookmarks", "", json!({"snapshot": "tank/vms@freed", "bookmark": "#freed"})),
        ("/receive", "", json!({"name": "tank/new"})),
        ("/receive/{name}/end", "7", bare()),
        ("/receives/give-up", "", json!({"name": "tank/new"})),
        ("/replicate", "", json!({"dataset": "tank/vms", "target": "tub/vms"})),
        ("/replicate/stop", "", json!({"dataset": "tank/vms", "target": "tub/vms"})),
        // Of what was taken for the caller's own token, and nothing else.
        ("/pull/take", "", json!({"datasets": ["tank/vms"]})),
        ("/pull/settle", "", json!({"dataset": "tank/vms", "copy": "b/vms", "guid": "1"})),
        ("/pull/prune", "", json!({"dataset": "tank/vms"})),
        ("/locks/clear", "", json!({"address": "10.0.0.1"})),
        ("/tokens", "", json!({"name": "d", "role": "read"})),
        ("/tokens/{name}/rotate", "d", bare()),
        ("/tokens/{name}/bind", "d", json!({"certificates": []})),
        ("/tokens/{name}/revoke", "d", Value::Null),
        ("/confirmations/{name}/confirm", "1", json!({"act": "x"})),
        ("/confirmations/{name}/refuse", "1", json!({"act": "x"})),
    ]
}

/// No acts: they change nothing, or are parts of a stream.
const NO_ACTS: [&str; 4] = ["/scan", "/alerts/test", "/send", "/receive/{name}"];
/// It is guarded and cannot wait.
const NEVER: &str = "/receive";

/// The routes that the page marks.
fn marked() -> BTreeSet<&'static str> {
    let page = include_str!("../../src/http/routes.rs");
    let lines = page.lines().filter_map(|line| line.strip_prefix("//! POST "));
    let marked = lines.filter(|line| line.ends_with(" (9)"));
    marked.map(|line| line.split_whitespace().next().unwrap()).collect()
}

struct Bed {
    daemon: Daemon,
    roles: PathBuf,
}

impl Bed {
    /// A pool with this value, a dataset with a held snapshot and a bookmark, and tokens: a and b
    /// of administrators, and one of a feeder.
    async fn new(two_persons: &str) -> Bed {
        let daemon = Daemon::start().await;
        daemon.make_tank().await;
        let client = &daemon.client;
        for name in ["tank/vms", "tank/other"] {
            let request = CreateDataset { name: name.into(), properties: Default::default() };
            client.ask(&request).await.unwrap();
        }
        let names = vec!["tank/vms@a".to_string()];
        let take = TakeSnapshots { names: names.clone(), recursive: false };
        client.ask(&take).await.unwrap();
        let mark = MakeBookmark { snapshot: "tank/vms@a".into(), bookmark: "#b".into() };
        client.ask(&mark).await.unwrap();
        let hold = HoldSnapshots { tag: "t".into(), names, recursive: false, until_s: None };
        client.ask(&hold).await.unwrap();
        let bed = Bed { roles: serve_roles(&daemon), daemon };
        for (name, role) in [("a", Role::Admin), ("b", Role::Admin), ("feeder", Role::Receive)] {
            let name = name.to_string();
            let request = CreateToken {
                name,
                role,
                expires_s: None,
                certificates: Vec::new(),
                datasets: Vec::new(),
            };
            bed.daemon.client.ask(&request).await.unwrap();
        }
        assert!(bed.set(two_persons).await.is_empty());
        bed
    }

    async fn set(&self, two_persons: &str) -> Vec<String> {
        let properties = [("two_persons".to_string(), Some(two_persons.to_string()))].into();
        let request = SetProperties { name: "tank".into(), properties, exports: false };
        self.daemon.client.ask(&request).await.unwrap().notes
    }

    async fn release(&self, snapshot: &str) {
        let names = vec![snapshot.to_string()];
        let release = ReleaseSnapshots { tag: "t".into(), names, recursive: false };
        self.daemon.client.ask(&release).await.unwrap();
    }

    fn post(&self, token: &str, path: &str, body: &Value) -> String {
        raw(&self.roles, &asked_by(token, ("POST", path), Role::Admin, &body.to_string()))
    }

    fn destroys(&self, token: &str) -> WaitingAct {
        let body = json!({"name": "tank/vms", "confirm": "tank/vms", "recursive": true});
        let answer = self.post(token, "/datasets/destroy", &body);
        assert!(status(&answer) == "428" && answer.contains("needs_second"), "{answer}");
        self.waiting().pop().unwrap()
    }

    fn waiting(&self) -> Vec<WaitingAct> {
        self.daemon.control.waiting_acts()
    }

    fn decide(&self, token: &str, decision: &str, waits: &WaitingAct) -> String {
        let path = format!("/confirmations/{}/{decision}", waits.number);
        self.post(token, &path, &json!({"act": waits.act}))
    }

    async fn has_vms(&self) -> bool {
        self.daemon.client.ask(&DatasetQuery::default()).await.unwrap().len() == 3
    }

    async fn history(&self) -> Vec<String> {
        let line = |of: HistoryEntry| {
            format!("{} | {} | {:?} {}", of.who, of.act, of.outcome, of.result).trim().to_string()
        };
        let all = self.daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
        all.into_iter().map(line).collect()
    }
}

fn filled(path: &str, name: &str) -> String {
    path.replace("{name}", name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_act_that_loses_something_waits_and_no_other_one() {
    let bed = Bed::new("on").await;
    for (at, (path, name, body)) in guarded().into_iter().enumerate() {
        let answer = bed.post(&format!("t{at}"), &filled(path, name), &body);
        assert!(
            status(&answer) == "428" && answer.contains("waits for a second person until"),
            "{path} {body}: {answer}"
        );
        assert_eq!(bed.waiting().len(), at + 1, "{path} {body}");
    }
    let force = json!({"name": "tank/vms", "force": true});
    let answer = bed.post("a", NEVER, &force);
    assert!(status(&answer) == "409" && answer.contains("cannot wait"), "{answer}");
    let waiting = bed.waiting().len();
    for (path, name, body) in free() {
        let answer = bed.post("a", &filled(path, name), &body);
        assert_ne!(status(&answer), "428", "{path} {body}: {answer}");
    }
    assert_eq!(bed.waiting().len(), waiting);
    // Each act is in one of the lists, and the page marks those that may wait.
    let guarded: BTreeSet<&str> = guarded().into_iter().map(|of| of.0).chain([NEVER]).collect();
    let free: BTreeSet<&str> = free().into_iter().map(|of| of.0).collect();
    let acts = routes().into_iter().filter(|route| route.method == "POST").map(|route| route.path);
    let acts: BTreeSet<&str> = acts.filter(|path| !NO_ACTS.contains(path)).collect();
    assert_eq!(guarded.union(&free).copied().collect::<BTreeSet<_>>(), acts);
    assert_eq!(guarded, marked());
    // By the socket nothing waits, and without the property neither.
    bed.set("off").await;
    let body = json!({"name": "tank/vms@a", "confirm": "tank/vms@a"});
    let answer = bed.post("a", "/snapshots/destroy", &body);
    assert!(answer.contains("held"), "{answer}");
    bed.daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_token_confirms_what_was_shown_and_the_history_names_both() {
    let bed = Bed::new("on").await;
    bed.post("a", "/snapshots/release", &json!({"tag": "t", "names": ["tank/vms@a"]}));
    let release = bed.waiting().pop().unwrap();
    let answer = bed.decide("a", "confirm", &release);
    assert!(status(&answer) == "403" && answer.contains("asked for it itself"), "{answer}");
    let other = WaitingAct { act: "release t tank/vms@b".into(), ..release.clone() };
    assert_eq!(status(&bed.decide("b", "confirm", &other)), "409");
    let operator = asked_by(
        "o",
        ("POST", &format!("/confirmations/{}/confirm", release.number)),
        Role::Operator,
        &json!({"act": release.act}).to_string(),
    );
    assert_eq!(status(&raw(&bed.roles, &operator)), "403");
    let problems = bed.daemon.control.info().problems;
    let stands =
        problems.iter().any(|of| of.code == "act-waits" && of.status.contains("release t"));
    assert!(stands, "{problems:?}");
    let answer = bed.decide("b", "confirm", &release);
    assert!(status(&answer) == "200" && answer.contains("tank/vms@a"), "{answer}");
    assert!(bed.daemon.control.info().problems.iter().all(|of| of.code != "act-waits"));
    let waits = bed.destroys("a");
    assert!(bed.has_vms().await);
    assert_eq!(status(&bed.decide("b", "refuse", &waits)), "200");
    assert!(bed.has_vms().await && bed.waiting().is_empty());
    assert_eq!(status(&bed.decide("b", "confirm", &waits)), "404");
    let waits = bed.destroys("a");
    assert_eq!(status(&bed.decide("b", "confirm", &waits)), "200");
    assert!(!bed.has_vms().await);
    let history = bed.history().await;
    let [a, b] = ["a", "b"].map(|token| format!("token {token} from 10.0.0.1"));
    let (act, number) = ("destroy -r tank/vms", waits.number);
    for line in [
        format!("{a} | ask {number}: {act} | Done"),
        format!("{b} | confirm {number}: {act} | Done"),
        format!("{a}, confirmed by {b} | {act} | Done"),
        format!("{b} | refuse {}: {act} | Done", number - 1),
        format!("{a}, confirmed by {b} | release t tank/vms@a | Done"),
    ] {
        assert!(history.contains(&line), "{line} is not in {history:#?}");
    }
    bed.daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_mean_something_else_by_now_is_not_carried_out() {
    let bed = Bed::new("on").await;
    let client = &bed.daemon.client;
    // Another dataset has the name.
    let waits = bed.destroys("a");
    for (name, new) in [("tank/vms", "tank/old"), ("tank/other", "tank/vms")] {
        let rename = RenameDataset { name: name.into(), new: new.into() };
        client.ask(&rename).await.unwrap();
    }
    let answer = bed.decide("b", "confirm", &waits);
    assert!(status(&answer) == "409" && answer.contains("something else"), "{answer}");
    assert!(bed.has_vms().await);
    // What is taken meanwhile is not in a range.
    let range = json!({"name": "tank/old@%", "confirm": "tank/old@%"});
    bed.post("a", "/snapshots/destroy", &range);
    let take = TakeSnapshots { names: vec!["tank/old@new".into()], recursive: false };
    client.ask(&take).await.unwrap();
    let destroy = bed.waiting().pop().unwrap();
    bed.release("tank/old@a").await;
    assert_eq!(status(&bed.decide("b", "confirm", &destroy)), "200");
    let left = client.snapshots(&Default::default()).await.unwrap();
    assert_eq!(left.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["tank/old@new"]);
    // Its token has ended.
    let waits = bed.destroys("a");
    client.ask(&On::new("a", RevokeToken)).await.unwrap();
    assert!(bed.waiting().is_empty());
    assert_eq!(status(&bed.decide("b", "confirm", &waits)), "404");
    let notes = bed.set("on").await;
    assert!(notes.len() == 1 && notes[0].contains("fewer than two tokens"), "{notes:?}");
    // Or has another text, or another owner's name.
    let waits = bed.destroys("b");
    client.ask(&On::new("b", RotateToken::default())).await.unwrap();
    assert_eq!(status(&bed.decide("c", "confirm", &waits)), "404");
    assert!(bed.has_vms().await);
    let history = bed.history().await;
    let dropped =
        format!("itself | drop {}: destroy -r tank/vms (token b is no longer", waits.number);
    assert!(history.iter().any(|line| line.starts_with(&dropped)), "{history:#?}");
    // What is not there is not asked for.
    let body = json!({"name": "tank/none", "confirm": "tank/none"});
    assert_eq!(status(&bed.post("x", "/datasets/destroy", &body)), "404");
    bed.daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_ends_in_the_act_unless_somebody_refuses() {
    let bed = Bed::new("delay=3s").await;
    bed.release("tank/vms@a").await;
    let waits = bed.destroys("a");
    assert_eq!(status(&bed.decide("b", "refuse", &waits)), "200");
    // An act that was asked for under a delay does not outrun a stricter property.
    let waits = bed.destroys("a");
    bed.set("on").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(bed.has_vms().await && bed.waiting().is_empty());
    let failed = bed.history().await;
    let stricter = "two_persons is stricter now";
    assert!(failed.iter().any(|line| line.contains(stricter)), "{failed:#?} {waits:?}");
    bed.set("delay=2s").await;
    bed.destroys("a");
    assert!(bed.has_vms().await);
    let line = "token a from 10.0.0.1, waited, as delay=2s | destroy -r tank/vms | Done";
    let is_done = async || bed.history().await.contains(&line.to_string());
    for _ in 0..200 {
        if is_done().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_done().await && !bed.has_vms().await, "{:#?}", bed.history().await);
    bed.daemon.control.stop().await;
}

/// Brings a snapshot of tank/vms into tank/copy, as a replication does; what it prunes.
async fn bring(
    bed: &Bed,
    (token, role): (&str, Role),
    (from, to): (Option<&str>, &str),
    prune: &[&str],
) {
    let from = from.map(|from| format!("@{from}"));
    let snapshot = format!("tank/vms@{to}");
    let query = SendQuery { snapshot, from, ..SendQuery::default() };
    let bytes = stream(&bed.daemon, query).await;
    let post = |path: &str, body: Value| {
        let answer = raw(&bed.roles, &asked_by(token, ("POST", path), role, &body.to_string()));
        assert_eq!(status(&answer), "200", "{path}: {answer}");
        answer
    };
    let id = id_of(&post("/receive", json!({"name": "tank/copy", "sender": "x"})));
    let answer = part_as(token, role, &bed.roles, id, &bytes);
    assert_eq!(status(&answer), "200", "{answer}");
    post(&format!("/receive/{id}/end"), json!({"prune": prune}));
}

/// An administrator's token prunes what another one fed, but not where that takes two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_takes_away_no_more_than_its_token_fed() {
    let bed = Bed::new("off").await;
    let [one, two, three] =
        [7, 8, 9].map(|hour| format!("replicate-x-2026-11-27T0{hour}:00:00.000Z"));
    for name in [&one, &two, &three] {
        let take = TakeSnapshots { names: vec![format!("tank/vms@{name}")], recursive: false };
        bed.daemon.client.ask(&take).await.unwrap();
    }
    bring(&bed, ("feeder", Role::Receive), (None, &one), &[]).await;
    for hold in bed.daemon.control.holds(&Default::default(), &Default::default()).await.unwrap() {
        let (tag, names) = (hold.tag, vec![hold.snapshot]);
        let release = ReleaseSnapshots { tag, names, recursive: false };
        bed.daemon.client.ask(&release).await.unwrap();
    }
    let has_first = async || {
        let all = bed.daemon.client.snapshots(&Default::default()).await.unwrap();
        all.iter().any(|of| of.name == format!("tank/copy@{one}"))
    };
    bed.set("on").await;
    bring(&bed, ("a", Role::Admin), (Some(&one), &two), &[&one]).await;
    assert!(has_first().await);
    bed.set("off").await;
    bring(&bed, ("b", Role::Admin), (Some(&two), &three), &[&one]).await;
    assert!(!has_first().await);
    bed.daemon.control.stop().await;
}

/// A thief has the token a, and may do all that one administrator may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thief_neither_becomes_two_nor_fills_the_list() {
    let bed = Bed::new("on").await;
    for at in 0..20 {
        let body = json!({"tag": "t", "names": [format!("tank/vms@a")]});
        let answer = bed.post("a", "/snapshots/release", &body);
        let expected = if at < 8 { "428" } else { "409" };
        assert_eq!(status(&answer), expected, "{answer}");
    }
    let mine = bed.waiting();
    assert!(mine.iter().all(|waits| status(&bed.decide("a", "confirm", waits)) == "403"));
    let long = format!("tank/vms@{}", "a,".repeat(3000));
    let answer = bed.post("t", "/snapshots/destroy", &json!({"name": long, "confirm": long}));
    assert!(status(&answer) == "409" && answer.contains("cannot read so much"), "{answer}");
    // Its own token it may end and make again: that is the same name.
    assert_eq!(status(&bed.post("a", "/tokens/a/rotate", &json!({}))), "200");
    assert!(bed.waiting().is_empty(), "what it asked for ends with it");
    let destroy = DestroyDataset {
        name: "tank/vms".into(),
        confirm: "tank/vms".into(),
        recursive: true,
        clones: false,
    };
    let waits = bed.destroys("b");
    // Root confirms what it likes, and never waits.
    let confirm = ConfirmAct { act: waits.act.clone() };
    let held =
        bed.daemon.client.ask(&On::new(waits.number.to_string(), confirm)).await.unwrap_err();
    assert!(held.to_string().contains("held"), "{held}");
    let error = bed.daemon.client.ask(&destroy).await.unwrap_err();
    assert!(!error.to_string().contains("second person"), "{error}");
    let bind = BindToken { certificates: Vec::new() };
    assert!(bed.daemon.client.ask(&On::new("b", bind)).await.is_ok());
    bed.daemon.control.stop().await;
}
