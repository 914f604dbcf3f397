//! Tokens that count for some datasets alone: each route, each kind of name, inside, beside and
//! above.

use aquifer_api::{
    CreateDataset, DatasetQuery, HoldSnapshots, MakeBookmark, Role, SnapshotQuery, TakeSnapshots,
};
use aquifer_daemon::http::routes;
use serde_json::{Value, json};

use crate::daemon::{Daemon, raw};
use crate::roles::{asked_by, serve_roles, status};

/// Routes that a token that counts for some datasets may ask for, written down a second time.
const JUDGED: [&str; 26] = [
    "GET /openapi.json",
    "GET /session",
    "GET /datasets",
    "GET /snapshots",
    "GET /bookmarks",
    "GET /snapshots/holds",
    "GET /diff",
    "GET /diff/ranges",
    "GET /replications",
    "GET /receives",
    "POST /datasets",
    "POST /datasets/clone",
    "POST /datasets/set",
    "POST /snapshots",
    "POST /snapshots/rename",
    "POST /snapshots/hold",
    "POST /bookmarks",
    "POST /receive",
    "POST /receive/{name}",
    "POST /receive/{name}/end",
    "POST /receives/give-up",
    "GET /pull/known",
    "POST /pull/take",
    "POST /pull/settle",
    "POST /pull/prune",
    "POST /send",
];

/// Roles that may count for some datasets alone.
const ROLES: [Role; 4] = [Role::Receive, Role::Send, Role::Read, Role::Operator];

/// Datasets inside and outside of `tank/vms`, each with a snapshot, a hold and a bookmark.
const INSIDE: [&str; 2] = ["tank/vms", "tank/vms/a"];
const OUTSIDE: [&str; 6] =
    ["tank", "tank/vms2", "tank/vms:x", "tank/vms.x", "tank/secret", "tank/secret/vms"];

async fn filled() -> Daemon {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let client = &daemon.client;
    for name in INSIDE.into_iter().chain(OUTSIDE) {
        if name.contains('/') {
            let (name, properties) = (name.to_string(), Default::default());
            client.ask(&CreateDataset { name, properties }).await.unwrap();
        }
        for last in ["s", "t"] {
            let names = vec![format!("{name}@{last}")];
            let take = TakeSnapshots { names: names.clone(), recursive: false };
            client.ask(&take).await.unwrap();
            let (tag, recursive, until_s) = ("mine".into(), false, None);
            let hold = HoldSnapshots { tag, names, recursive, until_s };
            client.ask(&hold).await.unwrap();
        }
        let (snapshot, bookmark) = (format!("{name}@s"), "#b".into());
        client.ask(&MakeBookmark { snapshot, bookmark }).await.unwrap();
    }
    daemon
}

/// A request of a token that counts for `tank/vms` alone.
fn scoped(daemon: &Daemon, (method, path): (&str, &str), role: Role, body: &str) -> String {
    let request = asked_by("tenant", (method, path), role, body);
    let request = request.replacen("x-role", "x-datasets: tank/vms\r\nx-role", 1);
    raw(&daemon.dir.path().join("roles"), &request)
}

/// The status of an act, and its answer.
fn act_of(daemon: &Daemon, role: Role, (path, body): (&str, Value)) -> (String, String) {
    let answer = scoped(daemon, ("POST", path), role, &body.to_string());
    (status(&answer).to_string(), answer)
}

fn body_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    // Answers of some length come in chunks.
    let from = body.find(['[', '{']).unwrap();
    let to = body.rfind([']', '}']).unwrap();
    serde_json::from_str(&body[from..=to]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_route_lets_such_a_token_in() {
    let daemon = Daemon::start().await;
    serve_roles(&daemon);
    for route in routes() {
        let name = format!("{} {}", route.method, route.path);
        let is_judged = JUDGED.contains(&name.as_str());
        assert_eq!(route.is_of_scoped, is_judged, "{name}");
        for role in ROLES {
            let answer = scoped(&daemon, (route.method, route.path), role, "");
            let is_beside = match role {
                Role::Receive => route.is_of_receivers,
                Role::Send => route.is_of_senders,
                _ => false,
            };
            let has = role >= route.role || is_beside;
            let expected = match (has, is_judged) {
                (false, _) => "this needs",
                (true, false) => "this token counts for tank/vms and what lies below alone",
                (true, true) => {
                    assert_ne!(status(&answer), "403", "{name} {role}: {answer}");
                    continue;
                }
            };
            assert_eq!(status(&answer), "403", "{name} {role}: {answer}");
            assert!(answer.contains(expected), "{name} {role}: {answer}");
        }
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_what_is_inside_and_a_name_outside_means_nothing() {
    let daemon = filled().await;
    serve_roles(&daemon);
    let get = |path: &str| scoped(&daemon, ("GET", path), Role::Read, "");
    let names = |answer: &str, field: &str| {
        let all = body_of(answer);
        let all = all.as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        let names = all.iter().map(|of| of[field].as_str().unwrap().to_string());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let each = |ends: &[&str]| {
        let of = |name: &&str| ends.iter().map(|end| format!("{name}{end}")).collect::<Vec<_>>();
        let mut all: Vec<String> = INSIDE.iter().flat_map(of).collect();
        all.sort();
        all
    };
    for (path, field, ends) in [
        ("/datasets", "name", &[""][..]),
        ("/snapshots", "name", &["@s", "@t"]),
        ("/snapshots/holds", "snapshot", &["@s", "@t"]),
        ("/bookmarks", "name", &["#b"]),
    ] {
        for query in ["", "?name=tank&recursive=true", "?name=tank/vms&recursive=true"] {
            let answer = get(&format!("{path}{query}"));
            assert_eq!(names(&answer, field), each(ends), "{path}{query}");
        }
        // One that is there and one that is not are answered alike.
        let mut answers = Vec::new();
        for name in OUTSIDE.into_iter().chain(["tank/vms3", "nothing"]) {
            let answer = get(&format!("{path}?name={}", name.replace(':', "%3A")));
            assert_eq!(status(&answer), "404", "{path} {name}: {answer}");
            let message = body_of(&answer)["message"].as_str().unwrap().to_string();
            answers.push(message.replace(&format!("{name:?}"), "NAME"));
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
        for name in ["tank/secret", "tank/vms2"] {
            let answer = get(&format!("{path}?name={name}&recursive=true"));
            assert_eq!(status(&answer), "404", "{path} {name}: {answer}");
        }
    }
    // A page is cut of what is inside: an empty one would look like the last.
    assert_eq!(names(&get("/snapshots?limit=1"), "name"), ["tank/vms@s"]);
    for (from, to, code) in [
        ("tank/vms@s", "tank/vms@t", "200"),
        ("tank/vms@s", "tank/vms2@t", "404"),
        ("tank/vms2@s", "tank/vms@t", "404"),
        ("tank/secret@s", "tank/secret@t", "404"),
        ("tank/vms:x@s", "tank/vms:x@t", "404"),
    ] {
        let answer = get(&format!("/diff?from={from}&to={to}"));
        assert_eq!(status(&answer), code, "{from} {to}: {answer}");
    }
    let session = body_of(&get("/session"));
    assert_eq!(session["datasets"], json!(["tank/vms"]));
    daemon.control.stop().await;
}

/// Names, holds, bookmarks and properties of all datasets outside.
async fn outside(daemon: &Daemon) -> Vec<String> {
    let client = &daemon.client;
    let mut all = Vec::new();
    for of in client.ask(&DatasetQuery::default()).await.unwrap() {
        let own = of.properties.iter().filter(|property| property.source == "local");
        let own: Vec<String> = own.map(|of| format!("{}={}", of.name, of.value)).collect();
        all.push((of.name.clone(), format!("{} {own:?}", of.name)));
    }
    for of in client.snapshots(&SnapshotQuery::default()).await.unwrap() {
        all.push((of.dataset.clone(), format!("{} {} {}", of.name, of.guid, of.holds)));
    }
    let is_outside = |name: &str| name != "tank/vms" && !name.starts_with("tank/vms/");
    all.into_iter().filter(|(name, _)| is_outside(name)).map(|(_, told)| told).collect()
}

/// Texts that another place might read as more than the dataset that they begin with.
const TRICKS: [&str; 12] = [
    "tank/vms@s,tank/secret@t",
    "tank/vms@s%tank/secret@t",
    "tank/vms@s tank/secret@t",
    "tank/vms/../secret@t",
    "tank/vms/../secret",
    "tank/vms:../secret@t",
    "tank/vms2@s",
    "tank/vms:x@s",
    "tank/vms.x@s",
    "tank/*@s",
    "tank/vms*@s",
    "tank/secret@s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_act_reaches_outside() {
    let daemon = filled().await;
    serve_roles(&daemon);
    let before = outside(&daemon).await;
    let act = |path: &str, body: Value| act_of(&daemon, Role::Operator, (path, body));
    let snapshots = OUTSIDE.iter().map(|name| format!("{name}@s"));
    let snapshots = snapshots.chain(TRICKS.map(str::to_string));
    for name in snapshots {
        let new = name.replace("@s", "@new").replace("@t", "@new");
        for (path, body) in [
            ("/snapshots", json!({"names": [new]})),
            ("/snapshots", json!({"names": [new], "recursive": true})),
            ("/snapshots", json!({"names": ["tank/vms@new", new]})),
            ("/snapshots/rename", json!({"name": name, "new": "other"})),
            ("/snapshots/hold", json!({"tag": "x", "names": [name]})),
            ("/snapshots/hold", json!({"tag": "x", "names": ["tank/vms@s", name]})),
            ("/bookmarks", json!({"snapshot": name, "bookmark": "#new"})),
            ("/datasets/clone", json!({"snapshot": name, "name": "tank/vms/clone"})),
        ] {
            let (code, answer) = act(path, body);
            assert!(["404", "400"].contains(&code.as_str()), "{path} {name}: {answer}");
        }
    }
    let others = ["tank/new", "tank/vms2/new", "tank/vms:new", "tank/vms@new", "tank/vms/../new"];
    for name in OUTSIDE.into_iter().chain(others) {
        for (path, body) in [
            ("/datasets", json!({"name": name})),
            ("/datasets/set", json!({"name": name, "properties": {"compression": "zstd"}})),
            ("/datasets/clone", json!({"snapshot": "tank/vms@s", "name": name})),
        ] {
            let (code, answer) = act(path, body);
            assert_eq!(code, "404", "{path} {name}: {answer}");
        }
        for (path, body) in
            [("/receive", json!({"name": name})), ("/receives/give-up", json!({"name": name}))]
        {
            let answer = scoped(&daemon, ("POST", path), Role::Receive, &body.to_string());
            assert_eq!(status(&answer), "404", "{path} {name}: {answer}");
            assert!(answer.contains("within tank/vms"), "{answer}");
        }
    }
    // What bounds the whole is others'.
    for property in ["quota", "reservation", "refreservation"] {
        let body = json!({"name": "tank/vms", "properties": {property: "1M"}});
        let (code, answer) = act("/datasets/set", body);
        assert_eq!(code, "403", "{answer}");
    }
    assert_eq!(outside(&daemon).await, before);
    // Inside, it does what its role does.
    for (path, body) in [
        ("/datasets", json!({"name": "tank/vms/new"})),
        ("/datasets/set", json!({"name": "tank/vms", "properties": {"compression": "zstd"}})),
        ("/datasets/set", json!({"name": "tank/vms/new", "properties": {"quota": "9M"}})),
        ("/snapshots", json!({"names": ["tank/vms@new"], "recursive": true})),
        ("/snapshots/rename", json!({"name": "tank/vms@new", "new": "n", "recursive": true})),
        ("/snapshots/hold", json!({"tag": "x", "names": ["tank/vms@n", "tank/vms/a@s"]})),
        ("/bookmarks", json!({"snapshot": "tank/vms/a@t", "bookmark": "#t"})),
        ("/datasets/clone", json!({"snapshot": "tank/vms@n", "name": "tank/vms/clone"})),
    ] {
        let (code, answer) = act(path, body);
        assert_eq!(code, "200", "{path}: {answer}");
    }
    assert_eq!(outside(&daemon).await, before);
    daemon.control.stop().await;
}

/// A stream that goes elsewhere is unknown to it, as one that is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_goes_elsewhere_is_unknown() {
    let daemon = filled().await;
    let socket = serve_roles(&daemon);
    let all = asked_by("tenant", ("POST", "/receive"), Role::Receive, r#"{"name": "tank/other"}"#);
    let id = crate::insiders::id_of(&raw(&socket, &all));
    let inside = r#"{"name": "tank/vms/copy"}"#;
    let own = scoped(&daemon, ("POST", "/receive"), Role::Receive, inside);
    let own = crate::insiders::id_of(&own);
    for (id, code) in [(id, "404"), (own, "200"), (id + 100, "404")] {
        let answer = scoped(&daemon, ("POST", &format!("/receive/{id}")), Role::Receive, "");
        assert_eq!(status(&answer), code, "{answer}");
        assert!(!answer.contains("tank/other"), "{answer}");
    }
    let end = format!("/receive/{id}/end");
    let answer = scoped(&daemon, ("POST", &end), Role::Receive, r#"{"give_up": true}"#);
    assert_eq!(status(&answer), "404", "{answer}");
    let answer = scoped(&daemon, ("GET", "/receives?coming=true"), Role::Read, "");
    let coming = body_of(&answer);
    let names: Vec<&str> =
        coming.as_array().unwrap().iter().map(|of| of["dataset"].as_str().unwrap()).collect();
    assert_eq!(names, ["tank/vms/copy"]);
    daemon.control.stop().await;
}

/// Asks which snapshots and bookmarks of a dataset a copy may have too, as one that fetches the
/// copy.
fn known(daemon: &Daemon, dataset: &str) -> String {
    let path = format!("/pull/known?dataset={dataset}");
    scoped(daemon, ("GET", &path), Role::Send, "")
}

/// The server that fetches copies has snapshots taken, and reads, of its datasets alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fetches_copies_reaches_nothing_outside() {
    let daemon = filled().await;
    serve_roles(&daemon);
    let before = outside(&daemon).await;
    let act = |path: &str, body: Value| act_of(&daemon, Role::Send, (path, body));
    for name in OUTSIDE.into_iter().chain(["tank/vms3"]) {
        let guid = "00000000000000aa";
        for (path, body) in [
            ("/pull/take", json!({"datasets": ["tank/vms", name]})),
            ("/pull/settle", json!({"dataset": name, "copy": "b/c", "guid": guid})),
            ("/pull/prune", json!({"dataset": name})),
            ("/send", json!({"snapshot": format!("{name}@s")})),
            ("/send", json!({"snapshot": "tank/vms@t", "from": format!("{name}@s")})),
        ] {
            let (code, answer) = act(path, body);
            assert_eq!(code, "404", "{path} {name}: {answer}");
        }
        let answer = known(&daemon, &name.replace(':', "%3A"));
        assert_eq!(status(&answer), "404", "{name}");
    }
    for trick in TRICKS {
        let (code, answer) = act("/send", json!({"snapshot": trick}));
        assert!(["404", "400"].contains(&code.as_str()), "{trick}: {answer}");
        for (path, body) in [
            ("/pull/take", json!({"datasets": [trick]})),
            ("/pull/settle", json!({"dataset": "tank/vms", "copy": trick, "guid": ""})),
        ] {
            let (code, answer) = act(path, body);
            assert_eq!(code, "400", "{path} {trick}: {answer}");
        }
    }
    assert_eq!(outside(&daemon).await, before);
    daemon.control.stop().await;
}

/// It cannot fill the pool, and others' snapshots stay, whatever it prunes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fetches_copies_takes_so_many_and_takes_away_its_own_alone() {
    let daemon = filled().await;
    serve_roles(&daemon);
    let before = outside(&daemon).await;
    let act = |path: &str, body: Value| act_of(&daemon, Role::Send, (path, body));
    let names = async || {
        let query = SnapshotQuery { name: Some("tank/vms".into()), ..SnapshotQuery::default() };
        let found = daemon.client.snapshots(&query).await.unwrap();
        found.into_iter().map(|of| of.name).collect::<Vec<_>>()
    };
    for _ in 0..4 {
        let (code, answer) = act("/pull/take", json!({"datasets": ["tank/vms"]}));
        assert_eq!(code, "200", "{answer}");
    }
    let (code, answer) = act("/pull/take", json!({"datasets": ["tank/vms"]}));
    assert!(code == "409" && answer.contains("prunes them first"), "{answer}");
    let taken = names().await;
    assert!(taken.len() == 6 && taken[2].starts_with("tank/vms@replicate-tenant-"), "{taken:?}");
    let (code, answer) =
        act("/send", json!({"snapshot": taken[5], "from": "@s", "size_only": true}));
    assert_eq!(code, "200", "{answer}");

    let body = body_of(&known(&daemon, "tank/vms"));
    assert_eq!(body["token"], "tenant");
    let guid = |name: &str| {
        let all = body["snapshots"].as_array().unwrap().iter();
        let mut of = all.filter(|of| of["name"] == name).map(|of| of["guid"].clone());
        of.next_back().unwrap()
    };
    let last = taken[5].split_once('@').unwrap().1;
    for copy in ["b/1", "b/2", "b/3", "b/4"] {
        let body = json!({"dataset": "tank/vms", "copy": copy, "guid": guid(last)});
        let (code, answer) = act("/pull/settle", body);
        assert_eq!(code, "200", "{answer}");
    }
    let body = json!({"dataset": "tank/vms", "copy": "b/5", "guid": guid("s")});
    let (code, answer) = act("/pull/settle", body);
    assert!(code == "409" && answer.contains("4 other copies"), "{answer}");
    let (code, answer) = act("/pull/prune", json!({"dataset": "tank/vms"}));
    assert_eq!(code, "200", "{answer}");
    assert_eq!(names().await, ["tank/vms@s", "tank/vms@t", &taken[5]]);
    assert_eq!(outside(&daemon).await, before);
    daemon.control.stop().await;
}
