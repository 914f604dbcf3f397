//! A server from which copies are fetched, and that lies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::control::Scope;
use aquifer_admin::{Peer, Peers};
use aquifer_api::{
    CreateDataset, DatasetQuery, ReplicateRequest, ReplicationQuery, ReplicationState, SendQuery,
    SetProperties, SnapshotQuery, TakeSnapshots, time,
};
use aquifer_daemon::remote::keys::Keys;
use aquifer_ondisk::inode::Time;
use aquifer_stream::{Decoder, Encoder, Record};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::daemon::Daemon;
use crate::insiders::{state, stream};

/// Answers of the server that lies.
#[derive(Debug, Clone, Default)]
struct Says {
    datasets: Value,
    known: Value,
    stream: Vec<u8>,
}

/// Serves lies, with the keys of this directory. Returns the port.
async fn serve(keys: &Path, says: Arc<Mutex<Says>>) -> u16 {
    let certificates = CertificateDer::pem_file_iter(keys.join("certificate.pem")).unwrap();
    let certificates = certificates.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(keys.join("key.pem")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(certificates, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, says) = (acceptor.clone(), says.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let (mut request, mut piece) = (Vec::new(), [0; 4096]);
                while !is_whole(&request) {
                    let length = stream.read(&mut piece).await.unwrap_or(0);
                    if length == 0 {
                        return;
                    }
                    request.extend_from_slice(&piece[..length]);
                }
                let says = says.lock().clone();
                let path = String::from_utf8_lossy(&request);
                let path = path.split(' ').nth(1).unwrap().to_string();
                let body = match path.split('?').next().unwrap() {
                    "/v1/datasets" => says.datasets.to_string().into_bytes(),
                    "/v1/pull/known" => says.known.to_string().into_bytes(),
                    "/v1/send" => says.stream,
                    _ => json!({"name": "x", "notes": []}).to_string().into_bytes(),
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
                stream.shutdown().await.ok();
            });
        }
    });
    port
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// Fetches a copy. Returns why that failed.
async fn fetch(daemon: &Daemon) -> Option<String> {
    let request = ReplicateRequest {
        dataset: "evil:tank/src".into(),
        target: "tank/copy".into(),
        snapshot: Some("s".into()),
        pull: true,
        ..ReplicateRequest::default()
    };
    let id = daemon.control.begin_replication(request).unwrap().id;
    let query = ReplicationQuery { id: Some(id) };
    loop {
        let info = daemon.control.replications(&query, &Scope::default()).unwrap().remove(0);
        match info.state {
            ReplicationState::Done => return None,
            ReplicationState::Failed => return info.error,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A daemon that knows the server, with datasets of its own, whose streams that one sends. What the
/// server says is held by the second value; by the third, while keys are needed.
async fn knowing() -> (Daemon, Arc<Mutex<Says>>, tempfile::TempDir) {
    let keys = tempfile::tempdir().unwrap();
    Keys::open(keys.path(), &[], &[]).unwrap();
    let says = Arc::new(Mutex::new(Says::default()));
    let port = serve(keys.path(), says.clone()).await;
    let peer = Peer {
        url: format!("https://127.0.0.1:{port}"),
        certificate: keys.path().join("certificate.pem"),
        token: keys.path().join("token"),
        ..Peer::default()
    };
    let daemon = Daemon::start_with(Peers::from([("evil".to_string(), peer)])).await;
    daemon.make_tank().await;
    tokio::spawn(Arc::clone(&daemon.control).replicate());
    for name in ["tank/src", "tank/src/below", "tank/other"] {
        let (name, properties) = (name.to_string(), Default::default());
        daemon.client.ask(&CreateDataset { name, properties }).await.unwrap();
    }
    let open = [("sharenfs".to_string(), Some("rw".to_string()))].into();
    let open = SetProperties { name: "tank/src".into(), properties: open, exports: false };
    daemon.client.ask(&open).await.unwrap();
    for (name, recursive) in [("tank/src@s", true), ("tank/other@s", false), ("tank/src@t", false)]
    {
        let names = vec![name.to_string()];
        daemon.client.ask(&TakeSnapshots { names, recursive }).await.unwrap();
    }
    (daemon, says, keys)
}

/// The lies, each with a part of what is said of it, and the truth.
async fn told(daemon: &Daemon) -> (Vec<(Says, &'static str)>, Says) {
    let query = DatasetQuery { name: Some("tank/src".into()), recursive: false };
    let own = serde_json::to_value(daemon.client.ask(&query).await.unwrap()).unwrap();
    let query = SnapshotQuery { name: Some("tank/src@s".into()), ..SnapshotQuery::default() };
    let guid = daemon.client.snapshots(&query).await.unwrap().remove(0).guid;
    let known = |token: &str, name: &str, guid: &str| {
        let of = json!({"name": name, "bookmark": false, "guid": guid, "refer_bytes": 4096});
        json!({"token": token, "standby": false, "snapshots": [of]})
    };
    let named = |name: &str| {
        let mut all = own.clone();
        all[0]["name"] = json!(name);
        all
    };
    let of = |snapshot: &str, from: Option<&str>, recursive: bool| SendQuery {
        snapshot: snapshot.into(),
        from: from.map(Into::into),
        recursive,
        ..SendQuery::default()
    };
    let good = Says {
        datasets: own.clone(),
        known: known("fetch", "s", &guid),
        stream: stream(daemon, of("tank/src@s", None, false)).await,
    };
    let other = stream(daemon, of("tank/other@s", None, false)).await;
    let later = stream(daemon, of("tank/src@t", Some("@s"), false)).await;
    let bundle = stream(daemon, of("tank/src@s", None, true)).await;
    let lies = [
        (Says { datasets: named("tank/else"), ..good.clone() }, "was not asked for"),
        (Says { datasets: named("tank/src/below"), ..good.clone() }, "was not asked for"),
        (Says { datasets: named("tank/src,tank"), ..good.clone() }, "is no name of a dataset"),
        (Says { datasets: named("../src"), ..good.clone() }, "is no name of a dataset"),
        (Says { datasets: json!({}), ..good.clone() }, "evil: "),
        (Says { known: known("a,%", "s", &guid), ..good.clone() }, "no name of a peer"),
        (Says { known: known("fetch", "s,%", &guid), ..good.clone() }, "is no name of a snapshot"),
        (Says { known: known("fetch", "s", "no"), ..good.clone() }, "is no guid"),
        (Says { known: known("fetch", "x", &guid), ..good.clone() }, "has no snapshot \"s\""),
        (Says { stream: other, ..good.clone() }, "other snapshots were asked for"),
        (Says { stream: later.clone(), ..good.clone() }, "other snapshots were asked for"),
        (Says { stream: bundle, ..good.clone() }, "it is a bundle, and one stream was asked for"),
        (Says { stream: b"rubbish".repeat(9), ..good.clone() }, "stream"),
        (Says { stream: Vec::new(), ..good.clone() }, "stream"),
        (Says { stream: good.stream[..100].to_vec(), ..good.clone() }, "stream"),
    ];
    // A second stream behind the one that was asked for.
    let rest = [&good.stream[..], &later].concat();
    let rest = (Says { stream: rest, ..good.clone() }, "other snapshots were asked for");
    (lies.into_iter().chain([rest]).collect(), good)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_says_is_parsed_and_another_stream_than_was_asked_for_is_refused() {
    let (daemon, says, _keys) = knowing().await;
    let (mut lies, good) = told(&daemon).await;
    let last = lies.pop().unwrap();
    let before = state(&daemon).await;
    for (lie, why) in lies {
        let told = format!("{:?} {:?}", lie.datasets[0]["name"], lie.known);
        *says.lock() = lie;
        let error = fetch(&daemon).await.unwrap();
        assert!(error.contains(why), "{told} {why}: {error}");
        assert_eq!(state(&daemon).await, before, "{told} {why}");
    }
    // Of two streams the first one may stay: it was asked for.
    let (lie, why) = last;
    *says.lock() = lie;
    let error = fetch(&daemon).await.unwrap();
    assert!(error.contains(why), "{error}");
    // And the truth, which lets nobody in.
    *says.lock() = good;
    let query = DatasetQuery { name: Some("tank/copy".into()), recursive: false };
    if daemon.client.ask(&query).await.is_err() {
        assert_eq!(fetch(&daemon).await, None);
    }
    let copy = daemon.client.ask(&query).await.unwrap().remove(0);
    assert!(copy.standby, "{copy:?}");
    let shared = copy.properties.iter().find(|of| of.name == "sharenfs").unwrap();
    assert_ne!(shared.source, "local", "{shared:?}");
    daemon.control.stop().await;
}

/// This stream, with a snapshot that was taken at another time.
fn taken_at(stream: &[u8], seconds: i64) -> Vec<u8> {
    let (mut decoder, mut encoder) = (Decoder::default(), Encoder::default());
    decoder.push(stream.to_vec());
    while let Some(record) = decoder.next_record().unwrap() {
        match record {
            Record::Begin(mut begin) => {
                begin.to.created = Time { seconds, nanoseconds: 0 };
                encoder.put(&Record::Begin(begin));
            }
            Record::End(_) => encoder.end(),
            other => encoder.put(&other),
        }
    }
    encoder.into_parts().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_not_younger_than_when_it_came() {
    let (daemon, says, _keys) = knowing().await;
    let (_, good) = told(&daemon).await;
    let in_2100 = 4_102_444_800;
    *says.lock() = Says { stream: taken_at(&good.stream, in_2100), ..good };
    assert_eq!(fetch(&daemon).await, None);
    let came_ns = time::now_ns();
    let pull = Some("evil:tank/src every=1d".to_string());
    let set = SetProperties {
        name: "tank/copy".into(),
        properties: [("pull".to_string(), pull)].into(),
        exports: false,
    };
    daemon.client.ask(&set).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let query = ReplicationQuery::default();
    let info = daemon.control.replications(&query, &Scope::default()).unwrap().remove(0);
    assert_eq!((info.dataset.as_str(), info.every_s), ("evil:tank/src", Some(86_400)));
    let copy = &info.copies[0];
    assert!(copy.taken_ns.unwrap() <= came_ns && copy.behind_s.unwrap() >= 1, "{copy:?}");
    daemon.control.stop().await;
}
