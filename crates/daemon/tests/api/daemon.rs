//! A daemon on a directory of its own, whose frontend writes down what it is told.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::events::EventRing;
use aquifer_admin::{Control, ControlConfig, Frontend, NfsCounts, Offer, Peers, ServedPool};
use aquifer_alerts as alerts;
use aquifer_api::client::Client;
use aquifer_api::{CreatePool, HostInfo, VdevKind, VdevRequest};
use aquifer_daemon::http::{self, Api};
use aquifer_daemon::remote::tokens::Tokens;
use aquifer_nfs::lock::LockView;
use aquifer_nfs::{Explanation, Exports};
use aquifer_pool::{BoxFuture, PoolError};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A frontend that records what it is told, in order; `serve` names exports, `release` whether the
/// pool was exported by then.
#[derive(Debug, Default)]
pub struct Recorder {
    told: Mutex<Vec<String>>,
    pub served: Mutex<Vec<ServedPool>>,
    withdrawn: Mutex<Vec<ServedPool>>,
    pub locks: Mutex<Vec<LockView>>,
}

impl Frontend for Recorder {
    fn serve(&self, offer: Offer) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let pools = offer.pools;
            let paths: Vec<&str> =
                pools.iter().flat_map(|pool| &pool.exports).map(|e| e.path.as_str()).collect();
            self.told.lock().push(format!("serve {}: {}", pools.len(), paths.join(" ")));
            let before = std::mem::replace(&mut *self.served.lock(), pools.clone());
            let gone = |pool: &ServedPool| !pools.iter().any(|other| other.name == pool.name);
            self.withdrawn.lock().extend(before.into_iter().filter(gone));
            Vec::new()
        })
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let withdrawn = std::mem::take(&mut *self.withdrawn.lock());
            for pool in withdrawn {
                let late = format!("{}/late", pool.name);
                let refused = pool.files.datasets().create(&late, &[]).await;
                let exported = matches!(
                    refused,
                    Err(aquifer_dataset::DatasetError::Pool(PoolError::Exported))
                );
                self.told.lock().push(format!("release {}: exported {exported}", pool.name));
            }
        })
    }

    fn listening(&self) -> Vec<String> {
        vec!["nowhere".into()]
    }

    fn locks(&self) -> (Vec<LockView>, bool) {
        (self.locks.lock().clone(), true)
    }

    fn end_locks(&self, is_gone: &dyn Fn(aquifer_files::Guid) -> bool) -> usize {
        let mut locks = self.locks.lock();
        let before = locks.len();
        locks.retain(|lock| !is_gone(lock.file.fs_guid));
        before - locks.len()
    }

    fn clear_locks(&self, address: IpAddr, client: Option<&str>) -> usize {
        let mut locks = self.locks.lock();
        let before = locks.len();
        let is_it = |name: &[u8]| client.is_none_or(|client| client.as_bytes() == name);
        locks.retain(|lock| {
            let of = &lock.owner.client;
            of.address != address || !is_it(&of.name)
        });
        before - locks.len()
    }

    fn counts(&self) -> Option<NfsCounts> {
        None
    }

    fn look_up(&self, hosts: BTreeSet<String>) -> BoxFuture<'_, Vec<HostInfo>> {
        let known = |name: String| match name.as_str() {
            "hv1" => HostInfo { name, addresses: vec!["10.0.0.1".parse().unwrap()], problem: None },
            _ => HostInfo { name, addresses: Vec::new(), problem: Some("nobody knows it".into()) },
        };
        let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
        self.told.lock().push(format!("look up {}", names.join(" ")));
        Box::pin(async move { hosts.into_iter().map(known).collect() })
    }

    fn hosts(&self) -> Vec<HostInfo> {
        Vec::new()
    }

    fn explain(&self, path: &str, client: IpAddr) -> Option<Explanation> {
        let served = self.served.lock();
        let exports = served.iter().flat_map(|pool| pool.exports.clone()).collect();
        Some(Exports::new(exports, |_| None).unwrap().explain(path, client))
    }
}

pub struct Daemon {
    pub dir: TempDir,
    pub recorder: Arc<Recorder>,
    pub control: Arc<Control>,
    pub events: Arc<EventRing>,
    pub tokens: Arc<Tokens>,
    pub client: Client,
    peers: Peers,
    alerts: alerts::Settings,
    /// Dropping the sender ends the API.
    answering: (oneshot::Sender<()>, JoinHandle<()>),
}

impl Daemon {
    pub async fn start() -> Daemon {
        Daemon::start_with(Peers::new()).await
    }

    /// One that knows these peers.
    pub async fn start_with(peers: Peers) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        Daemon::start_in(dir, peers, alerts::Settings::default()).await
    }

    /// One that has this directory.
    pub async fn start_in(dir: TempDir, peers: Peers, alerts: alerts::Settings) -> Daemon {
        let recorder = Arc::new(Recorder::default());
        let config = ControlConfig {
            state_dir: dir.path().join("state"),
            memory: aquifer_pool::Memory::new(64 << 20),
            wait_for_disks: Duration::ZERO,
            host_limits: aquifer_files::HostLimits::NONE,
            smartctl: Default::default(),
            alerts: alerts.clone(),
            peers: peers.clone(),
            commit: None,
            parts: Arc::default(),
            audit: Arc::default(),
        };
        let events: Arc<EventRing> = Arc::default();
        let control = Control::open(config, recorder.clone(), events.clone()).unwrap();
        let socket = dir.path().join("api");
        let listener = http::bind(&socket).unwrap();
        let tokens = Arc::new(Tokens::open(&dir.path().join("state/api")));
        let api = Api { control: control.clone(), tokens: tokens.clone(), home: None };
        let (stops, stopped) = oneshot::channel::<()>();
        let answers = async move {
            let stopped = async { drop(stopped.await) };
            http::serve(listener, api, stopped).await.unwrap();
        };
        let answering = (stops, tokio::spawn(answers));
        control.start().await;
        let client = Client::new(socket);
        Daemon { client, dir, recorder, control, events, tokens, peers, alerts, answering }
    }

    /// Ends it in order; then the next one starts, with the same directory and settings.
    pub async fn restart(self) -> Daemon {
        let Daemon { dir, control, client, peers, alerts, answering: (stops, ends), .. } = self;
        assert_eq!(control.stop().await, [""; 0]);
        drop((client, stops, control));
        ends.await.unwrap();
        Daemon::start_in(dir, peers, alerts).await
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("api")
    }

    pub async fn make_tank(&self) {
        self.make_pool("tank", "disk").await;
    }

    /// Makes a pool of one image file, which lies at this name below the daemon's directory.
    pub async fn make_pool(&self, name: &str, disk: &str) {
        let disk = self.path(disk);
        let request = CreatePool {
            name: name.into(),
            vdevs: vec![VdevRequest { kind: VdevKind::Single, disks: vec![disk] }],
            logs: Vec::new(),
            spares: Vec::new(),
            caches: Vec::new(),
            properties: Default::default(),
            force: false,
            dry_run: false,
            create_bytes: Some(256 << 20),
            held_until_s: None,
        };
        self.client.ask(&request).await.unwrap();
    }

    /// The path of what lies there below the daemon's directory.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_string()
    }

    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.recorder.told.lock())
    }
}

/// One request as raw bytes; gives the whole answer.
pub fn raw(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: aquifer\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
