//! The property `retain`: who sets it, how long it may be, and what it does to copies.

use aquifer_admin::control::Scope;
use aquifer_api::{
    CreateDataset, DestroySnapshots, HistoryQuery, On, ReceiveEnd, Role, SendQuery, SetProperties,
    SnapshotQuery, TakeSnapshots, time,
};
use serde_json::json;

use crate::daemon::{Daemon, raw};
use crate::insiders::stream;
use crate::roles::{asked_by, serve_roles, status};

const DAY_S: u64 = 86_400;

async fn create(daemon: &Daemon, name: &str, retain: &str) {
    let properties = [("retain".to_string(), retain.to_string())].into();
    let request = CreateDataset { name: name.into(), properties };
    daemon.client.ask(&request).await.unwrap();
}

async fn snapshot(daemon: &Daemon, name: &str) {
    let request = TakeSnapshots { names: vec![name.into()], recursive: false };
    daemon.client.ask(&request).await.unwrap();
}

/// Brings a stream as a replication of a token of the role `receive` does; what it prunes.
async fn bring(daemon: &Daemon, (from, to): (Option<&str>, &str), prune: &[&str]) {
    let socket = daemon.dir.path().join("roles");
    let from = from.map(|from| format!("@{from}"));
    let query = SendQuery { snapshot: to.into(), from, ..SendQuery::default() };
    let bytes = stream(daemon, query).await;
    let body = json!({"name": "tank/copies/vms", "sender": "x"}).to_string();
    let as_feeder = |path: &str, body: &str| {
        raw(&socket, &asked_by("feeder", ("POST", path), Role::Receive, body))
    };
    let answer = as_feeder("/receive", &body);
    assert_eq!(status(&answer), "200", "{answer}");
    let id = crate::insiders::id_of(&answer);
    let answer = crate::insiders::part_as("feeder", Role::Receive, &socket, id, &bytes);
    assert_eq!(status(&answer), "200", "{answer}");
    let end = serde_json::to_string(&ReceiveEnd {
        give_up: false,
        prune: prune.iter().map(|name| name.to_string().try_into().unwrap()).collect(),
    });
    let answer = as_feeder(&format!("/receive/{id}/end"), &end.unwrap());
    assert_eq!(status(&answer), "200", "{answer}");
}

/// Days for which each snapshot is held by itself yet.
async fn held(daemon: &Daemon) -> Vec<(String, u64)> {
    let holds = daemon.control.holds(&SnapshotQuery::default(), &Scope::default()).await.unwrap();
    let retained = holds.into_iter().filter(|hold| hold.tag == "retain");
    let days =
        |until_s: Option<u64>| until_s.unwrap().saturating_sub(time::now_s()).div_ceil(DAY_S);
    let mut all: Vec<_> = retained.map(|hold| (hold.snapshot, days(hold.ends_s))).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_sets_it_and_hold_max_bounds_it() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let socket = serve_roles(&daemon);
    let ask = |path: &str, role: Role, body: serde_json::Value| {
        raw(&socket, &asked_by("t", ("POST", path), role, &body.to_string()))
    };
    let set = |role: Role, name: &str, value: serde_json::Value| {
        ask("/datasets/set", role, json!({"name": "tank", "properties": {name: value}}))
    };
    let new = json!({"name": "tank/new", "properties": {"retain": "1d"}});
    for answer in [
        set(Role::Operator, "retain", json!("1d")),
        set(Role::Operator, "retain", json!(null)),
        ask("/datasets", Role::Operator, new),
    ] {
        assert_eq!(status(&answer), "403", "{answer}");
    }
    let answer = set(Role::Admin, "retain", json!("30d"));
    assert!(status(&answer) == "200" && answer.contains("held for 30d"), "{answer}");
    let answer = set(Role::Admin, "hold_max", json!("20d"));
    assert!(status(&answer) == "400" && answer.contains("retain=30d"), "{answer}");
    assert_eq!(status(&set(Role::Admin, "retain", json!("20d"))), "200");
    assert_eq!(status(&set(Role::Admin, "hold_max", json!("20d"))), "200");
    let answer = set(Role::Admin, "retain", json!("21d"));
    assert!(status(&answer) == "400" && answer.contains("hold_max"), "{answer}");
    snapshot(&daemon, "tank@a").await;
    assert_eq!(held(&daemon).await, [("tank@a".to_string(), 20)]);
    // An administrator who turns it off ends no hold.
    assert_eq!(status(&set(Role::Admin, "retain", json!("off"))), "200");
    let [name, confirm] = ["tank@a"; 2].map(String::from);
    let destroy = DestroySnapshots { name, confirm, ..DestroySnapshots::default() };
    let refused = daemon.client.ask(&destroy).await.unwrap_err().to_string();
    assert!(refused.contains("held by \"retain\" until"), "{refused}");
    daemon.control.stop().await;
}

/// A copy holds what it receives, by its own value. Its feeder prunes none of it, and that fills no
/// history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_holds_what_it_receives_and_its_feeder_prunes_none_of_it() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    serve_roles(&daemon);
    create(&daemon, "tank/vms", "1d").await;
    create(&daemon, "tank/copies", "9d").await;
    let names = ["1", "2", "3"].map(|of| format!("replicate-other-2026-11-27T08:0{of}:00.000Z"));
    let mut before: Option<&str> = None;
    for name in &names {
        let full = format!("tank/vms@{name}");
        snapshot(&daemon, &full).await;
        let prune: Vec<&str> = before.into_iter().collect();
        bring(&daemon, (before, &full), &prune).await;
        before = Some(name);
    }
    let of =
        |dataset: &str, days: u64| names.clone().map(|name| (format!("{dataset}@{name}"), days));
    assert_eq!(held(&daemon).await, [of("tank/copies/vms", 9), of("tank/vms", 1)].concat());
    let history = daemon.client.ask(&On::new("tank", HistoryQuery)).await.unwrap();
    let prunes = history.iter().filter(|entry| entry.act.contains("prunes")).count();
    assert_eq!(prunes, 0, "{history:?}");
    // The value of the source does not come, whatever changes there.
    let set = SetProperties {
        name: "tank/vms".into(),
        properties: [("retain".to_string(), Some("2d".to_string()))].into(),
        exports: false,
    };
    daemon.client.ask(&set).await.unwrap();
    let last = "tank/vms@replicate-other-2026-11-27T08:09:00.000Z";
    snapshot(&daemon, last).await;
    bring(&daemon, (before, last), &[]).await;
    let last = last.replace("tank/vms", "tank/copies/vms");
    assert!(held(&daemon).await.contains(&(last, 9)));
    daemon.control.stop().await;
}
