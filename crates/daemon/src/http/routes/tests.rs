//! The page at the head of the routes is the table, and what a body needs beyond its route.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_api::ImportRequest;

use super::super::acts::{import_needs, properties_need};
use super::*;

#[test]
fn the_page_names_every_route_with_its_role() {
    let page = include_str!("../routes.rs");
    let told: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter(|line| line.starts_with("GET ") || line.starts_with("POST "))
        .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
        .collect();
    let line = |route: Route| format!("{} {} {}", route.method, route.path, route.role);
    let routed: Vec<String> = routes().into_iter().map(line).collect();
    assert_eq!(told, routed.iter().cloned().collect());
    assert_eq!(told.len(), routed.len(), "a route is there twice");
}

/// No act goes by the history: the only way to carry one out is `Acting`. An operation goes that
/// way by itself.
#[test]
fn every_act_is_noted() {
    let page = concat!(
        include_str!("daemon.rs"),
        include_str!("datasets.rs"),
        include_str!("disks.rs"),
        include_str!("pools.rs"),
        include_str!("replicate.rs"),
        include_str!("second.rs"),
        include_str!("send.rs"),
        include_str!("snapshots.rs"),
        include_str!("tokens.rs")
    );
    let acts: Vec<&str> = page
        .lines()
        .filter_map(|line| Some(line.split_once(".act::<")?.1))
        .map(|line| line.trim_end_matches([';', ')']).rsplit('(').next().unwrap())
        .collect();
    let noted = acts.len() + page.matches(".operation(").count();
    let posts = routes().into_iter().filter(|route| route.method == "POST").count();
    assert_eq!(noted + 4, posts, "all but /scan, tests of alerts, and parts of streams");
    for act in acts {
        let (_, from) = page.split_once(&format!("async fn {act}(")).unwrap();
        let (body, _) = from.split_once("\n}\n").unwrap();
        assert!(body.contains("acting.carry_out("), "{act}");
    }
}

#[test]
fn reading_needs_no_more_than_read_and_acting_no_less_than_operator() {
    for route in routes() {
        match (route.method, route.path) {
            ("GET", "/metrics") => assert_eq!(route.role, Role::Metrics),
            ("GET", "/pull/known") => assert_eq!(route.role, Role::Admin),
            ("GET", _) => assert_eq!(route.role, Role::Read, "{route:?}"),
            _ => assert!(route.role >= Role::Operator, "{route:?}"),
        }
    }
}

#[test]
fn an_import_that_loses_something_is_an_administrators() {
    let plain = ImportRequest { pool: "tank".into(), ..ImportRequest::default() };
    assert_eq!(import_needs(&plain), Role::Operator);
    for request in [
        ImportRequest { rewind: 1, ..plain.clone() },
        ImportRequest { discard_log: true, ..plain.clone() },
        ImportRequest { missing_log: true, ..plain.clone() },
        ImportRequest { missing_vdev: true, ..plain.clone() },
        ImportRequest { discard_unreadable: true, ..plain.clone() },
        ImportRequest { use_offline: true, ..plain.clone() },
        ImportRequest { old_config: true, ..plain.clone() },
        ImportRequest { force: true, ..plain.clone() },
        ImportRequest { new_name: Some("other".into()), ..plain.clone() },
    ] {
        assert_eq!(import_needs(&request), Role::Admin, "{request:?}");
    }
}

#[test]
fn to_let_hosts_in_or_to_lie_about_durability_is_an_administrators() {
    let needs = |name: &str, value: Option<&str>| {
        let value = value.map(str::to_string);
        let set = BTreeMap::from([("quota".into(), Some("1G".into())), (name.to_string(), value)]);
        properties_need(set.iter().map(|(name, value)| (name, value.as_ref())))
    };
    for (name, value, role) in [
        ("compression", Some("zstd"), Role::Operator),
        ("readonly", None, Role::Operator),
        ("sync", Some("always"), Role::Operator),
        ("sync", Some("standard"), Role::Operator),
        ("sync", Some("disabled:why not"), Role::Admin),
        ("sync", None, Role::Admin),
        ("sharenfs", Some("off"), Role::Admin),
        ("sharenfs", None, Role::Admin),
        ("snapcontrol", Some("off"), Role::Admin),
        ("replicate", Some("off"), Role::Admin),
        ("pull", Some("store1:tank/vms"), Role::Admin),
        ("pull", None, Role::Admin),
        ("snapshots", Some("hourly=1"), Role::Admin),
        ("filesnapshots", Some("* hourly=1"), Role::Admin),
        ("filesnapshots", None, Role::Admin),
        ("hold_max", Some("30d"), Role::Admin),
        ("retain", Some("30d"), Role::Admin),
        ("retain", None, Role::Admin),
    ] {
        assert_eq!(needs(name, value), role, "{name} {value:?}");
    }
}
