//! The API over its socket, with a frontend that writes down what it is told.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by ending"
)]

mod alarms;
mod copies;
mod daemon;
mod ends;
mod hostile;
mod insiders;
mod openapi;
mod pages;
mod retain;
mod roles;
mod scopes;
mod second;
#[cfg(debug_assertions)]
mod silent;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::client::ClientError;
use aquifer_api::{
    ClearLocks, CreateDataset, DaemonQuery, DatasetQuery, ErrorKind, ExportPool, LocksQuery, On,
    PoolQuery, ReceiveRequest, SetProperties, ShareAccess, ShareInfo, ShareQuery, SharesQuery,
};
use aquifer_nfs::lock::{Client as Host, LockKind, LockState, LockView, Owner, Range};

use daemon::{Daemon, post, raw};

#[tokio::test]
async fn clients_see_what_an_act_made_and_leave_before_the_disks_do() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let name = "tank/my vms".to_string();
    let properties = [("sharenfs".to_string(), "on".to_string())].into();
    daemon.client.ask(&CreateDataset { name: name.clone(), properties }).await.unwrap();
    let properties = [("sharenfs".to_string(), None)].into();
    daemon
        .client
        .ask(&SetProperties { name: name.clone(), properties, exports: false })
        .await
        .unwrap();
    assert_eq!(daemon.told(), ["serve 0: ", "serve 1: ", "serve 1: /tank/my vms", "serve 1: "]);
    let query = DatasetQuery { name: Some(name), recursive: true };
    assert_eq!(daemon.client.ask(&query).await.unwrap().len(), 1);
    daemon.client.ask(&On::new("tank", ExportPool::default())).await.unwrap();
    assert_eq!(daemon.told(), ["serve 0: ", "release tank: exported true"]);
}

#[tokio::test]
async fn the_end_of_the_daemon_exports_and_refuses_what_comes_late() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    daemon.told();
    daemon.control.stop().await;
    assert_eq!(daemon.told(), ["serve 0: ", "release tank: exported true"]);
    let late = CreateDataset { name: "tank/late".into(), properties: Default::default() };
    let Err(ClientError::Api(error)) = daemon.client.ask(&late).await else {
        panic!("an act after the end");
    };
    assert_eq!(error.message, "the daemon is stopping");
    // The list is left for the next start.
    let list = std::fs::read_to_string(daemon.dir.path().join("state/pools.json")).unwrap();
    assert!(list.contains("\"tank\""), "{list}");
}

/// A file is named by its path, one that is gone by its number; nothing else is needed of a pool.
#[tokio::test]
async fn locks_are_told_with_the_files_that_they_are_of() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let files = daemon.recorder.served.lock().first().unwrap().files.clone();
    let root = files.root("tank").unwrap();
    let cred = aquifer_files::Credentials::root();
    let (made, _) = files.mkdir(&cred, root, b"vm", &Default::default()).await.kept().await;
    let known = made.unwrap().handle;
    let client = Arc::new(Host { address: [10, 0, 0, 1].into(), name: (*b"pve1").into() });
    let owner = Arc::new(Owner { client, svid: 7, oh: (*b"7@pve1").into() });
    let view = |file, first, state| LockView {
        file,
        owner: owner.clone(),
        kind: LockKind::Exclusive(Range { first, last: first }),
        state,
    };
    let mut gone = known;
    gone.object.0 += 1000;
    let locks = vec![view(gone, 5, LockState::Waiting), view(known, 100, LockState::Held)];
    *daemon.recorder.locks.lock() = locks;
    let told = daemon.client.ask(&LocksQuery).await.unwrap();
    assert!(told.grace);
    let of = |number: usize| told.locks.get(number).unwrap();
    assert_eq!((of(0).file.as_deref(), of(0).dataset.as_str()), (Some("/vm"), "tank"));
    assert_eq!((of(0).offset, of(0).length, of(0).state.as_str()), (100, 1, "held"));
    assert_eq!((of(0).svid, of(0).owner.as_str(), of(0).client.as_str()), (7, "7@pve1", "pve1"));
    assert_eq!((of(1).file.as_deref(), of(1).object), (None, gone.object.0));
    assert_eq!(of(1).state, "waiting");
    // A dead client's are ended by the administrator; who has none, or is mistyped, is an error.
    let clear = async |client: Option<&str>| {
        let client = client.map(str::to_owned);
        let request = ClearLocks { address: [10, 0, 0, 1].into(), client };
        daemon.client.ask(&request).await
    };
    let refused = clear(Some("pve2")).await.unwrap_err().to_string();
    assert!(refused.contains("10.0.0.1 has no locks of \"pve2\""), "{refused}");
    assert_eq!(clear(Some("pve1")).await.unwrap().ended, 2);
    assert!(clear(None).await.is_err());
}

#[tokio::test]
async fn a_part_of_a_stream_has_its_limit() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let request = ReceiveRequest { name: "tank/copy".into(), ..ReceiveRequest::default() };
    let begun = daemon.client.ask(&request).await.unwrap();
    let most = begun.part_bytes_max();
    let part = async |bytes| daemon.client.receive_part(begun.id, vec![0; bytes].into()).await;
    // Nothing of it is taken in, and the stream goes on.
    let error = part(most + 1).await.unwrap_err().to_string();
    assert!(error.contains("a part of the stream: length limit exceeded"), "{error}");
    assert_eq!(part(0).await.unwrap().bytes, 0);
    assert_eq!(part(most).await.unwrap().bytes, most as u64);
    let error = part(0).await.unwrap_err().to_string();
    assert!(error.contains("this is no stream"), "{error}");
}

/// Dropped half-way, a dataset would be on disk and clients would not see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_leaves_nothing_half_done() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    daemon.told();
    for number in 0..20 {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        let body = format!("{{\"name\": \"tank/{number}\"}}");
        stream.write_all(post("/v1/datasets", &body).as_bytes()).unwrap();
        // Time for the request to be read, not for the txg to be on disk.
        tokio::time::sleep(Duration::from_millis(number % 5)).await;
        drop(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Acts wait for their turn: behind this one, all that were begun are done.
    let last = CreateDataset { name: "tank/last".into(), properties: Default::default() };
    daemon.client.ask(&last).await.unwrap();
    let shown = daemon.client.ask(&DatasetQuery::default()).await.unwrap();
    assert!(shown.len() > 2, "nothing was read before the hang-up: this tests nothing");
    assert_eq!(daemon.told().len(), shown.len() - 1, "clients are told of each");
    for number in 0..20 {
        let name = format!("tank/{number}");
        if shown.iter().any(|info| info.name == name) {
            continue;
        }
        // Not read before the hang-up: then it must be as if it had never been sent.
        let again = CreateDataset { name, properties: Default::default() };
        daemon.client.ask(&again).await.unwrap();
    }
    let shown = daemon.client.ask(&DatasetQuery::default()).await.unwrap();
    assert_eq!(shown.len(), 22);
    daemon.control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_understood_is_not_ignored() {
    let daemon = Daemon::start().await;
    for (request, status, part) in [
        (post("/v1/import", "{\"pool\": \"tank\", \"readonly\": true}"), 400, "unknown field"),
        (post("/v1/import", "{}"), 400, "missing field"),
        (post("/v1/import", "{"), 400, "JSON"),
        (post("/v1/nothing", "{}"), 404, "no such path"),
        (post("/v1/daemon", "{}"), 400, "does not do that"),
        (
            "GET /v1/datasets?nme=tank HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".into(),
            400,
            "unknown field",
        ),
        ("GET /v1/pools/%FF HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".into(), 400, "UTF-8"),
    ] {
        let answer = raw(&daemon.socket(), &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        assert!(answer.contains(part) && answer.contains("\"kind\":"), "{request}: {answer}");
    }
    let error = daemon.client.ask(&On::new("tank/../x", PoolQuery)).await.unwrap_err();
    let ClientError::Api(error) = error else { panic!("{error}") };
    assert_eq!(error.kind, ErrorKind::NotFound);
    let info = daemon.client.ask(&DaemonQuery).await.unwrap();
    assert_eq!((info.starting, info.nfs.listening), (false, vec!["nowhere".to_string()]));
    daemon.control.stop().await;
}

/// Returns the answer of `share why` about an address: may it, and the first reason.
async fn why(daemon: &Daemon, host: &str, path: &str) -> (ShareAccess, String) {
    let query = ShareQuery { host: host.into(), path: path.into() };
    let said = daemon.client.ask(&query).await.unwrap();
    let answer = said.answers.into_iter().next().unwrap();
    (answer.access, answer.why.into_iter().next().unwrap())
}

#[tokio::test]
async fn shares_are_listed_and_explained() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    let set = |name: &str, value: &str| SetProperties {
        name: name.into(),
        properties: [("sharenfs".to_string(), Some(value.to_string()))].into(),
        exports: false,
    };
    let vms = CreateDataset { name: "tank/vms".into(), properties: Default::default() };
    daemon.client.ask(&vms).await.unwrap();
    let value = "ro=@10.1,rw=10.1.0.7,none=10.1.9.9,root=10.1.0.7,nosuid";
    daemon.client.ask(&set("tank", value)).await.unwrap();

    let shares = daemon.client.ask(&SharesQuery).await.unwrap();
    let line = |share: &ShareInfo| format!("{} {}", share.path, share.source);
    let lines: Vec<String> = shares.iter().map(line).collect();
    assert_eq!(lines, ["/tank local", "/tank/vms inherited from tank"]);
    assert_eq!(
        shares[1].options,
        "rw=10.1.0.7,ro=10.1.0.0/16,none=10.1.9.9,root=10.1.0.7,root_squash,anonuid=65534,\
         anongid=65534,nosuid,secure"
    );
    for (host, path, access, reason) in [
        ("10.1.0.7", "/tank/vms/sr", ShareAccess::ReadWrite, "rw=10.1.0.7 lets it in"),
        ("10.1.0.8", "tank/vms", ShareAccess::ReadOnly, "ro=10.1.0.0/16 lets it in"),
        ("10.1.9.9", "/tank", ShareAccess::Refused, "none=10.1.9.9 refuses it"),
        ("[fd00::1]", "/tank", ShareAccess::Refused, "no rule lets it in"),
        ("hv1", "/tank", ShareAccess::Refused, "no rule lets it in"),
        ("10.1.0.7", "/other", ShareAccess::Refused, "there is no dataset at /other"),
    ] {
        assert_eq!(why(&daemon, host, path).await, (access, reason.into()), "{host} {path}");
    }
    daemon.client.ask(&set("tank/vms", "off")).await.unwrap();
    // The export above covers the path: what lies there is a directory of the parent.
    assert_eq!(why(&daemon, "10.1.0.8", "/tank/vms").await.0, ShareAccess::ReadOnly);
    daemon.client.ask(&set("tank", "off")).await.unwrap();
    let (_, reason) = why(&daemon, "10.1.0.8", "/tank/vms/sr").await;
    assert_eq!(reason, "tank/vms is not exported: sharenfs=off (local)");
    let unknown = ShareQuery { host: "hv9".into(), path: "/tank".into() };
    let error = daemon.client.ask(&unknown).await.unwrap_err().to_string();
    assert!(error.contains("nobody knows it"), "{error}");
}

/// Hosts are looked up before the change, and who has no address is told: the change is made.
#[tokio::test]
async fn hosts_are_looked_up_before_a_change_is_answered() {
    let daemon = Daemon::start().await;
    daemon.make_tank().await;
    daemon.told();
    let value = "rw=hv1:hv9,ro=@10.0.0.0/8".to_string();
    let properties = [("sharenfs".to_string(), Some(value))].into();
    let request = SetProperties { name: "tank".into(), properties, exports: false };
    let done = daemon.client.ask(&request).await.unwrap();
    assert_eq!(daemon.told(), ["look up hv1 hv9", "serve 1: /tank"]);
    assert_eq!(done.notes.len(), 1);
    assert!(done.notes[0].starts_with("host hv9 in sharenfs: nobody knows it"), "{done:?}");
    for value in ["rw=hv1,rw", "root_squash,no_root_squash", "rw=-hv1", "ro=*.example"] {
        let properties = [("sharenfs".to_string(), Some(value.to_string()))].into();
        let request = SetProperties { name: "tank".into(), properties, exports: false };
        daemon.client.ask(&request).await.unwrap_err();
    }
    assert_eq!(daemon.told(), [""; 0], "nothing was changed");
}
