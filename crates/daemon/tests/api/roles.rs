//! Each role at each route.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use aquifer_admin::control::Scope;
use aquifer_api::client::ClientError;
use aquifer_api::{
    BindToken, CreateToken, DatasetName, ErrorKind, On, RevokeToken, Role, RotateToken, TokensQuery,
};
use aquifer_daemon::caller::{Caller, Rights};
use aquifer_daemon::http::{Api, router, routes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use crate::daemon::{Daemon, raw};

/// The role that each route needs, written down a second time: a new route is added here too, by a
/// person.
const NEEDED: [(Role, &[&str]); 4] = [
    (Role::Metrics, &["GET /metrics"]),
    (
        Role::Read,
        &[
            "GET /openapi.json",
            "GET /daemon",
            "GET /pools",
            "GET /pools/{name}",
            "GET /pools/{name}/history",
            "GET /pools/{name}/events",
            "GET /pools/{name}/load",
            "GET /pools/{name}/load/disks",
            "GET /locks",
            "GET /datasets",
            "GET /snapshots",
            "GET /bookmarks",
            "GET /snapshots/holds",
            "GET /diff",
            "GET /diff/ranges",
            "GET /iostat",
            "GET /memory",
            "GET /nfs",
            "GET /alerts",
            "GET /events",
            "GET /shares",
            "GET /shares/why",
            "GET /connect",
            "GET /replications",
            "GET /receives",
            "GET /tokens",
            "GET /session",
            "GET /confirmations",
        ],
    ),
    (
        Role::Operator,
        &[
            "POST /scan",
            "POST /alerts/test",
            "POST /import",
            "POST /pools/{name}/export",
            "POST /pools/{name}/clear",
            "POST /pools/{name}/clear-disk",
            "POST /pools/{name}/offline",
            "POST /pools/{name}/online",
            "POST /pools/{name}/scrub",
            "POST /pools/{name}/free-space",
            "POST /pools/{name}/drill",
            "POST /datasets",
            "POST /datasets/clone",
            "POST /datasets/set",
            "POST /snapshots",
            "POST /snapshots/rename",
            "POST /snapshots/hold",
            "POST /bookmarks",
        ],
    ),
    (
        Role::Admin,
        &[
            "POST /pools",
            "POST /pools/{name}/destroy",
            "POST /pools/{name}/add",
            "POST /pools/{name}/remove",
            "POST /pools/{name}/attach",
            "POST /pools/{name}/detach",
            "POST /pools/{name}/replace",
            "POST /pools/{name}/inject",
            "POST /datasets/destroy",
            "POST /datasets/rename",
            "POST /datasets/promote",
            "POST /datasets/clear",
            "POST /datasets/rollback",
            "POST /snapshots/destroy",
            "POST /snapshots/release",
            "POST /bookmarks/destroy",
            "POST /send",
            "POST /receive",
            "POST /receive/{name}",
            "POST /receive/{name}/end",
            "POST /receives/give-up",
            "GET /pull/known",
            "POST /pull/take",
            "POST /pull/settle",
            "POST /pull/prune",
            "POST /replicate",
            "POST /replicate/stop",
            "POST /locks/clear",
            "POST /tokens",
            "POST /tokens/{name}/rotate",
            "POST /tokens/{name}/bind",
            "POST /tokens/{name}/revoke",
            "POST /confirmations/{name}/confirm",
            "POST /confirmations/{name}/refuse",
        ],
    ),
];

/// Routes that a receiver may ask for beyond its place in the row, written down a second time too.
const OF_RECEIVERS: [&str; 7] = [
    "GET /datasets",
    "GET /snapshots",
    "GET /receives",
    "POST /receive",
    "POST /receive/{name}",
    "POST /receive/{name}/end",
    "POST /receives/give-up",
];

/// And one that may only send.
const OF_SENDERS: [&str; 7] = [
    "GET /session",
    "GET /datasets",
    "GET /pull/known",
    "POST /pull/take",
    "POST /pull/settle",
    "POST /pull/prune",
    "POST /send",
];

/// The API for callers whose role a header names: `x-role`, and whose token: `x-token`; and the
/// datasets for which that counts: `x-datasets`. Without a role, a request has no caller.
pub fn serve_roles(daemon: &Daemon) -> PathBuf {
    let by_header = async |mut request: Request, next: Next| -> Response {
        let name = request.headers().get("x-role").and_then(|value| value.to_str().ok());
        let role = Role::ALL.into_iter().find(|role| Some(role.name()) == name);
        if let Some(role) = role {
            let token = request.headers().get("x-token").and_then(|value| value.to_str().ok());
            let token = token.unwrap_or("test").into();
            let names = request.headers().get("x-datasets").and_then(|value| value.to_str().ok());
            let names = names.into_iter().flat_map(|names| names.split(','));
            let names: Vec<DatasetName> = names.map(|name| name.parse().unwrap()).collect();
            let rights = Rights { role, scope: Scope::of(&names) };
            let caller = Caller::of_token(token, rights, [10, 0, 0, 1].into());
            request.extensions_mut().insert(caller);
        }
        next.run(request).await
    };
    let (control, tokens) = (daemon.control.clone(), daemon.tokens.clone());
    let api = Api { control, tokens, home: None };
    let router = router(api).layer(from_fn(by_header));
    let path = daemon.dir.path().join("roles");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::UnixListener::from_std(listener).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    path
}

/// Builds a request of a role with a token of this name.
pub fn asked_by(token: &str, (method, path): (&str, &str), role: Role, body: &str) -> String {
    let request = asked(method, path, role.name(), body);
    request.replacen("x-role", &format!("x-token: {token}\r\nx-role"), 1)
}

fn asked(method: &str, path: &str, role: &str, body: &str) -> String {
    let path = path.replace("{name}", "nothing");
    let version = if path == "/metrics" { "" } else { aquifer_api::PATH };
    format!(
        "{method} {version}{path} HTTP/1.1\r\nhost: aquifer\r\nconnection: close\r\n\
         x-role: {role}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_at_each_route() {
    let daemon = Daemon::start().await;
    let socket = serve_roles(&daemon);
    let needed =
        NEEDED.into_iter().flat_map(|(role, routes)| routes.iter().map(move |r| (*r, role)));
    let needed: Vec<(&str, Role)> = needed.collect();
    assert_eq!(needed.len(), routes().len(), "a route is missing here");
    for (route, needs) in needed {
        let (method, path) = route.split_once(' ').unwrap();
        assert!(routes().iter().any(|r| (r.method, r.path) == (method, path)), "{route}");
        for role in Role::ALL {
            // Nothing is there, or it makes no sense: who may ask learns that, and nobody else.
            let answer = raw(&socket, &asked(method, path, role.name(), ""));
            let is_refused = status(&answer) == "403";
            let is_beside = match role {
                Role::Receive => OF_RECEIVERS.contains(&route),
                Role::Send => OF_SENDERS.contains(&route),
                _ => false,
            };
            assert_eq!(is_refused, role < needs && !is_beside, "{route} {role}: {answer}");
            if is_refused {
                let why = format!("token test has the role {role}; this needs {needs}");
                assert!(answer.contains(&why) && answer.contains("forbidden"), "{answer}");
            }
        }
        // Who has no role at all comes nowhere.
        let answer = raw(&socket, &asked(method, path, "", ""));
        assert_eq!(status(&answer), "500", "{route}: {answer}");
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_request_asks_for_may_need_more_than_its_route() {
    let daemon = Daemon::start().await;
    let socket = serve_roles(&daemon);
    for (path, body, needs) in [
        ("/import", r#"{"pool": "tank"}"#, Role::Operator),
        ("/import", r#"{"pool": "tank", "force": true}"#, Role::Admin),
        ("/datasets", r#"{"name": "tank/a", "properties": {"quota": "1G"}}"#, Role::Operator),
        ("/datasets", r#"{"name": "tank/a", "properties": {"sharenfs": "on"}}"#, Role::Admin),
        ("/datasets/set", r#"{"name": "tank", "properties": {"sync": "always"}}"#, Role::Operator),
        ("/datasets/set", r#"{"name": "tank", "properties": {"sync": null}}"#, Role::Admin),
    ] {
        for role in Role::ALL {
            let answer = raw(&socket, &asked("POST", path, role.name(), body));
            assert_eq!(status(&answer) == "403", role < needs, "{path} {body} {role}: {answer}");
        }
    }
    // A receiver takes nothing away, and brings no dataset into service.
    for (path, body, may) in [
        ("/receive", r#"{"name": "tank/a"}"#, true),
        ("/receive", r#"{"name": "tank/a", "force": true}"#, false),
        ("/receive", r#"{"name": "tank/a", "new_handles": true}"#, false),
        ("/receive/7/end", r#"{"prune": ["replicate-b-2026-11-27T08:00:00.000Z"]}"#, true),
        ("/receive/7/end", r#"{"prune": ["replicate-b-2026-11-27T08:00:00.000Z", "mine"]}"#, false),
    ] {
        let answer = raw(&socket, &asked("POST", path, Role::Receive.name(), body));
        assert_eq!(status(&answer) != "403", may, "{path} {body}: {answer}");
    }
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_administered_by_the_socket() {
    let daemon = Daemon::start().await;
    let create = |name: &str| CreateToken {
        name: name.into(),
        role: Role::Read,
        expires_s: None,
        certificates: Vec::new(),
        datasets: Vec::new(),
    };
    let made = daemon.client.ask(&create("ci")).await.unwrap();
    let rotated = daemon.client.ask(&On::new("ci", RotateToken::default())).await.unwrap();
    assert_ne!(made.token, rotated.token);
    assert_eq!(daemon.client.ask(&TokensQuery).await.unwrap(), [rotated.info]);
    let Err(ClientError::Api(error)) = daemon.client.ask(&create("ci")).await else {
        panic!("two tokens of one name");
    };
    assert_eq!(error.kind, ErrorKind::Conflict);
    let bind = BindToken { certificates: vec!["AB:".repeat(31) + "AB"] };
    let bound = daemon.client.ask(&On::new("ci", bind)).await.unwrap();
    assert_eq!(bound.certificates, ["ab".repeat(32)]);
    assert_eq!(daemon.client.ask(&TokensQuery).await.unwrap(), [bound]);
    let nothing = BindToken { certificates: vec!["ab".into()] };
    let Err(ClientError::Api(error)) = daemon.client.ask(&On::new("ci", nothing)).await else {
        panic!("bound to what is no fingerprint");
    };
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(daemon.client.ask(&On::new("ci", RevokeToken)).await.unwrap().name, "ci");
    assert!(daemon.client.ask(&TokensQuery).await.unwrap().is_empty());
}
