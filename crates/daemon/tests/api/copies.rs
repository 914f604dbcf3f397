//! Ownership of copies: a copy is its administrator's own, whoever feeds it; and what reaches
//! further by the way.

use std::collections::BTreeMap;

use aquifer_api::client::ClientError;
use aquifer_api::{
    CloneSnapshot, CreateDataset, CreatePool, DatasetQuery, ErrorKind, ExportPool, HoldSnapshots,
    ImportRequest, On, ReceiveEnd, ReceiveRequest, Role, SendQuery, SetProperties, SnapshotQuery,
    TakeSnapshots, VdevKind, VdevRequest, time,
};
use serde_json::json;

use crate::daemon::{Daemon, raw};
use crate::insiders::stream;
use crate::roles::{asked_by, serve_roles, status};

fn some(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

async fn create(daemon: &Daemon, name: &str, properties: &[(&str, &str)]) {
    let request = CreateDataset { name: name.into(), properties: some(properties) };
    daemon.client.ask(&request).await.unwrap();
}

async fn set(daemon: &Daemon, name: &str, properties: &[(&str, &str)]) -> Result<(), ClientError> {
    let properties =
        some(properties).into_iter().map(|(name, value)| (name, Some(value))).collect();
    let request = SetProperties { name: name.into(), properties, exports: false };
    daemon.client.ask(&request).await.map(drop)
}

async fn snapshot(daemon: &Daemon, names: &[&str], recursive: bool) -> Vec<String> {
    let names = names.iter().map(|name| name.to_string()).collect();
    let request = TakeSnapshots { names, recursive };
    daemon.client.ask(&request).await.unwrap().notes
}

/// Brings a stream as a token of this role; `set`: more of the request.
async fn bring(
    daemon: &Daemon,
    (from, to): (Option<&str>, &str),
    (into, role): (&str, Role),
    set: serde_json::Value,
) -> String {
    let socket = daemon.dir.path().join("roles");
    let from = from.map(|from| format!("@{from}"));
    let query = SendQuery { snapshot: to.into(), from, ..SendQuery::default() };
    let bytes = stream(daemon, query).await;
    let mut body = json!({"name": into, "sender": "x"});
    body.as_object_mut().unwrap().extend(set.as_object().unwrap().clone());
    let answer = raw(&socket, &asked_by("feeder", ("POST", "/receive"), role, &body.to_string()));
    if status(&answer) != "200" {
        return answer;
    }
    let id = crate::insiders::id_of(&answer);
    let answer = crate::insiders::part_as("feeder", role, &socket, id, &bytes);
    assert_eq!(status(&answer), "200", "{answer}");
    raw(&socket, &asked_by("feeder", ("POST", &format!("/receive/{id}/end")), role, "{}"))
}

async fn local(daemon: &Daemon, name: &str) -> BTreeMap<String, String> {
    let query = DatasetQuery { name: Some(name.into()), recursive: false };
    let found = daemon.client.ask(&query).await.unwrap().remove(0);
    let own = found.properties.into_iter().filter(|property| property.source == "local");
    own.map(|property| (property.name, property.value)).collect()
}

fn refused(result: Result<(), ClientError>, kind: ErrorKind) -> String {
    let Err(ClientError::Api(error)) = result else { panic!("{result:?}") };
    assert_eq!(error.kind, kind, "{error}");
    error.message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_increment_leaves_the_copy_what_its_administrator_set() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    serve_roles(&daemon);
    let open = [
        ("sharenfs", "rw"),
        ("snapcontrol", "10.0.0.1"),
        ("sync", "disabled:test"),
        ("quota", "20M"),
        ("compression", "zstd"),
    ];
    create(&daemon, "tank/vms", &open).await;
    for name in ["a", "b", "c"] {
        snapshot(&daemon, &[&format!("tank/vms@{name}")], false).await;
    }
    let copy = ("tank/copy", Role::Receive);
    let answer = bring(&daemon, (None, "tank/vms@a"), copy, json!({})).await;
    assert_eq!(status(&answer), "200", "{answer}");
    // It lets nobody in, loses nothing, and has no bound.
    let expected = some(&[("compression", "zstd"), ("standby", "on")]);
    assert_eq!(local(&daemon, "tank/copy").await, expected);
    let own = [("sharenfs", "ro=10.9.9.9"), ("quota", "30M"), ("sync", "always")];
    set(&daemon, "tank/copy", &own).await.unwrap();
    let mut expected = expected;
    expected.extend(local(&daemon, "tank/copy").await);
    // Whoever brings the next ones, of whatever role.
    let answer = bring(&daemon, (Some("a"), "tank/vms@b"), copy, json!({})).await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert_eq!(local(&daemon, "tank/copy").await, expected);
    let admins = ("tank/copy", Role::Admin);
    let with = json!({"properties": {"snapcontrol": "10.0.0.7"}, "exclude": ["compression"]});
    let answer = bring(&daemon, (Some("b"), "tank/vms@c"), copy, with.clone()).await;
    assert_eq!(status(&answer), "403", "{answer}");
    let answer = bring(&daemon, (Some("b"), "tank/vms@c"), admins, with).await;
    assert_eq!(status(&answer), "200", "{answer}");
    expected.insert("snapcontrol".into(), "10.0.0.7".into());
    assert_eq!(local(&daemon, "tank/copy").await, expected);
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_comes_into_service_says_as_what_it_is_exported() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    create(&daemon, "tank/above", &[("sharenfs", "rw=10.0.0.1")]).await;
    create(&daemon, "tank/above/vms", &[]).await;
    set(&daemon, "tank/above/vms", &[("standby", "on")]).await.unwrap();
    let into = |properties: BTreeMap<String, Option<String>>, exports: bool| SetProperties {
        name: "tank/above/vms".into(),
        properties,
        exports,
    };
    let off = || BTreeMap::from([("standby".to_string(), Some("off".to_string()))]);
    let asked = daemon.client.ask(&into(off(), false)).await.map(drop);
    let why = refused(asked, ErrorKind::Refused);
    assert!(why.contains("/tank/above/vms") && why.contains("rw=10.0.0.1"), "{why}");
    daemon.client.ask(&into(off(), true)).await.unwrap();
    // What is set together is known, and what is exported to nobody needs no word.
    for own in ["ro=10.0.0.2", "off"] {
        set(&daemon, "tank/above/vms", &[("standby", "on"), ("sharenfs", own)]).await.unwrap();
        let mut both = off();
        both.insert("sharenfs".into(), Some(own.into()));
        daemon.client.ask(&into(both, false)).await.unwrap();
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_lets_nobody_in_by_a_clone() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let socket = serve_roles(&daemon);
    create(&daemon, "tank/secret", &[]).await;
    create(&daemon, "tank/public", &[("sharenfs", "rw")]).await;
    create(&daemon, "tank/some", &[("sharenfs", "rw=10.0.0.1")]).await;
    snapshot(&daemon, &["tank/secret@a", "tank/some@a", "tank/public@a"], false).await;
    let clone = |role: Role, from: &str, to: &str| {
        let body = json!({"snapshot": from, "name": to}).to_string();
        raw(&socket, &asked_by("op", ("POST", "/datasets/clone"), role, &body))
    };
    for (from, to, may) in [
        ("tank/secret@a", "tank/public/a", false),
        ("tank/secret@a", "tank/some/a", false),
        ("tank/some@a", "tank/public/b", false),
        ("tank/secret@a", "tank/secret/c", true),
        ("tank/public@a", "tank/some/c", true),
        ("tank/some@a", "tank/some/d", true),
    ] {
        let answer = clone(Role::Operator, from, to);
        let expected = if may { "200" } else { "403" };
        assert_eq!(status(&answer), expected, "{from} {to}: {answer}");
        if !may {
            assert!(answer.contains("more widely") && answer.contains("admin"), "{answer}");
            let answer = clone(Role::Admin, from, to);
            assert_eq!(status(&answer), "200", "{from} {to}: {answer}");
        }
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_all_below_leaves_copies_out_and_says_so() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    serve_roles(&daemon);
    create(&daemon, "tank/vms", &[]).await;
    create(&daemon, "tank/backups", &[]).await;
    snapshot(&daemon, &["tank/vms@a"], false).await;
    snapshot(&daemon, &["tank/vms@b"], false).await;
    let copy = ("tank/backups/vms", Role::Receive);
    let answer = bring(&daemon, (None, "tank/vms@a"), copy, json!({})).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let notes = snapshot(&daemon, &["tank@all"], true).await;
    assert!(notes.len() == 1 && notes[0].contains("tank/backups/vms left out"), "{notes:?}");
    let answer = bring(&daemon, (Some("a"), "tank/vms@b"), copy, json!({})).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let query = SnapshotQuery {
        name: Some("tank/backups/vms".into()),
        recursive: false,
        ..Default::default()
    };
    let listed = daemon.client.snapshots(&query).await.unwrap();
    let names: Vec<&str> = listed.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["tank/backups/vms@a", "tank/backups/vms@b"]);
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_prunes_what_schedules_took_by_a_rule_of_its_own() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    serve_roles(&daemon);
    create(&daemon, "tank/vms", &[]).await;
    let name = |hour: u64| format!("auto-hourly-2026-11-26T0{hour}:00Z");
    for hour in 1..6 {
        snapshot(&daemon, &[&format!("tank/vms@{}", name(hour))], false).await;
    }
    let copy = ("tank/copy", Role::Receive);
    let first = format!("tank/vms@{}", name(1));
    let answer = bring(&daemon, (None, &first), copy, json!({})).await;
    assert_eq!(status(&answer), "200", "{answer}");
    for hour in 2..6 {
        let to = format!("tank/vms@{}", name(hour));
        let answer = bring(&daemon, (Some(&name(hour - 1)), &to), copy, json!({})).await;
        assert_eq!(status(&answer), "200", "{answer}");
    }
    set(&daemon, "tank/copy", &[("snapshots", "hourly=2")]).await.unwrap();
    let query =
        SnapshotQuery { name: Some("tank/copy".into()), recursive: false, ..Default::default() };
    let listed = daemon.client.snapshots(&query).await.unwrap();
    let names: Vec<String> = listed.into_iter().map(|of| of.name).collect();
    assert_eq!(names, [4, 5].map(|hour| format!("tank/copy@{}", name(hour))));
    // Nobody pruned the source.
    let query =
        SnapshotQuery { name: Some("tank/vms".into()), recursive: false, ..Default::default() };
    assert_eq!(daemon.client.snapshots(&query).await.unwrap().len(), 5);
    daemon.control.stop().await;
}

pub fn pool_on(disk: &str, name: &str) -> CreatePool {
    CreatePool {
        name: name.into(),
        vdevs: vec![VdevRequest { kind: VdevKind::Single, disks: vec![disk.into()] }],
        logs: Vec::new(),
        spares: Vec::new(),
        caches: Vec::new(),
        properties: Default::default(),
        force: true,
        dry_run: false,
        create_bytes: None,
        held_until_s: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_with_an_end_stands_over_export_and_force() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let socket = serve_roles(&daemon);
    snapshot(&daemon, &["tank@a"], false).await;
    let hold = |until_s: u64| HoldSnapshots {
        tag: "law".into(),
        names: vec!["tank@a".into()],
        recursive: false,
        until_s: Some(until_s),
    };
    // A bound of the pool, which a token cannot raise.
    set(&daemon, "tank", &[("hold_max", "30d")]).await.unwrap();
    let day_s = 86_400;
    let far = daemon.client.ask(&hold(time::now_s() + 31 * day_s)).await.map(drop);
    let Err(ClientError::Api(far)) = far else { panic!("{far:?}") };
    assert!(far.message.contains("hold_max"), "{far}");
    for (value, expected) in [("none", "403"), ("31d", "403"), ("29d", "200")] {
        let body = json!({"name": "tank", "properties": {"hold_max": value}}).to_string();
        let answer = raw(&socket, &asked_by("a", ("POST", "/datasets/set"), Role::Admin, &body));
        assert_eq!(status(&answer), expected, "{value}: {answer}");
    }
    daemon.client.ask(&hold(time::now_s() + 7 * day_s)).await.unwrap();
    // Only an administrator takes it out of service.
    let export = asked_by("op", ("POST", "/pools/tank/export"), Role::Operator, "{}");
    let answer = raw(&socket, &export);
    assert!(status(&answer) == "403" && answer.contains("law"), "{answer}");
    daemon.client.ask(&On::new("tank", ExportPool::default())).await.unwrap();
    // Force does not take its disks: not for an administrator's token, whatever it types, and at
    // this machine only with the time.
    let disk = daemon.dir.path().join("disk").to_str().unwrap().to_string();
    let mut request = pool_on(&disk, "other");
    let why = refused(daemon.client.ask(&request).await.map(drop), ErrorKind::Refused);
    let (_, until) = why.split_once("held until ").unwrap();
    let until_s =
        time::parse_moment(until.split(':').take(3).collect::<Vec<_>>().join(":").trim(), 0);
    let until_s = until_s.unwrap_or_else(|| panic!("{why}"));
    assert!(until_s >= time::now_s() + 7 * day_s, "{why}");
    request.held_until_s = Some(until_s);
    let body = serde_json::to_string(&request).unwrap();
    let answer = raw(&socket, &asked_by("a", ("POST", "/pools"), Role::Admin, &body));
    assert!(status(&answer) == "422" && answer.contains("held until"), "{answer}");
    request.held_until_s = Some(until_s - 1);
    refused(daemon.client.ask(&request).await.map(drop), ErrorKind::Refused);
    // It is all there still.
    let places = vec![disk.clone().into()];
    let import = ImportRequest { pool: "tank".into(), places, ..ImportRequest::default() };
    daemon.client.ask(&import).await.unwrap();
    let query = SnapshotQuery { name: Some("tank".into()), recursive: false, ..Default::default() };
    assert_eq!(daemon.client.snapshots(&query).await.unwrap().len(), 1);
    daemon.client.ask(&On::new("tank", ExportPool::default())).await.unwrap();
    request.held_until_s = Some(until_s);
    daemon.client.ask(&request).await.unwrap();
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_pool_of_one_name_is_imported_under_another() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    create(&daemon, "tank/vms", &[]).await;
    snapshot(&daemon, &["tank/vms@a"], false).await;
    daemon.client.ask(&On::new("tank", ExportPool::default())).await.unwrap();
    let old = daemon.dir.path().join("disk").to_str().unwrap().to_string();
    let second = daemon.dir.path().join("second").to_str().unwrap().to_string();
    let request = CreatePool { create_bytes: Some(256 << 20), ..pool_on(&second, "tank") };
    daemon.client.ask(&request).await.unwrap();
    let import = |new: Option<&str>| ImportRequest {
        pool: "tank".into(),
        new_name: new.map(Into::into),
        places: vec![old.clone().into()],
        ..ImportRequest::default()
    };
    assert!(daemon.client.ask(&import(None)).await.is_err());
    assert!(daemon.client.ask(&import(Some("a/b"))).await.is_err());
    let done = daemon.client.ask(&import(Some("other"))).await.unwrap();
    assert_eq!(done.name, "other");
    let query = SnapshotQuery { name: Some("other".into()), recursive: true, ..Default::default() };
    assert_eq!(daemon.client.snapshots(&query).await.unwrap()[0].name, "other/vms@a");
    // It keeps the name.
    daemon.client.ask(&On::new("other", ExportPool::default())).await.unwrap();
    let again = ImportRequest { pool: "other".into(), new_name: None, ..import(None) };
    assert_eq!(daemon.client.ask(&again).await.unwrap().name, "other");
    create(&daemon, "other/more", &[]).await;
    let clone = CloneSnapshot {
        snapshot: "other/vms@a".into(),
        name: "other/clone".into(),
        more: Vec::new(),
        properties: Default::default(),
    };
    daemon.client.ask(&clone).await.unwrap();
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_source_is_copied_whatever_bounds_it() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    create(&daemon, "tank/vms", &[("quota", "1M"), ("reservation", "1M")]).await;
    snapshot(&daemon, &["tank/vms@a"], false).await;
    let query = SendQuery { snapshot: "tank/vms@a".into(), ..SendQuery::default() };
    let bytes = stream(&daemon, query).await;
    let into = ReceiveRequest { name: "tank/copy".into(), ..ReceiveRequest::default() };
    let id = daemon.client.ask(&into).await.unwrap().id;
    daemon.client.receive_part(id, bytes.into()).await.unwrap();
    daemon.client.ask(&On::new(id.to_string(), ReceiveEnd::default())).await.unwrap();
    let own = local(&daemon, "tank/copy").await;
    assert!(!own.contains_key("quota") && !own.contains_key("reservation"), "{own:?}");
    daemon.control.stop().await;
}
