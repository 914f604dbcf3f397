//! The API over HTTP: any bytes on a connection, and requests that are nearly right.
//!
//! Behind it is a daemon without NFS and with one pool, in an unlinked image file. No request
//! reaches a route that opens disks: the request is parsed as the route does, and refused
//! ([`guard`]). Only listed requests pass.
//!
//! The target checks these invariants:
//! - no panic, not in an act either, which would be answered as a bug;
//! - each answer is HTTP, its JSON is JSON, and a refusal of the API is an [`ApiError`];
//! - memory is bounded.

mod guard;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::{Control, ControlConfig, Frontend, NfsCounts, Offer};
use aquifer_api::{ApiError, CreatePool, HostInfo, VdevKind, VdevRequest};
use aquifer_daemon::caller::Caller;
use aquifer_daemon::http::{Api, router};
use aquifer_daemon::remote::tokens::Tokens;
use aquifer_nfs::lock::LockView;
use aquifer_nfs::{Explanation, Exports};
use aquifer_pool::BoxFuture;
use arbitrary::{Result, Unstructured};
use axum::middleware::from_fn;
use axum::serve::Listener;
use axum::{Extension, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::cost::cost_of;

/// Tries one input: as it is, and as the source of a request.
pub fn run(input: &[u8]) {
    DAEMON.with(|daemon| {
        let (_, cost) = cost_of(|| {
            daemon.exchange(input);
            if let Ok(request) = nearly_right(&mut Unstructured::new(input)) {
                daemon.exchange(&request);
            }
        });
        assert!(cost.peak <= MEMORY_MAX, "{} bytes of memory", cost.peak);
    });
}

thread_local! {
    // Never dropped: a runtime must not end while its thread does.
    static DAEMON: &'static Daemon = Box::leak(Box::new(Daemon::start()));
}

struct Daemon {
    runtime: Runtime,
    connect: mpsc::UnboundedSender<DuplexStream>,
}

impl Daemon {
    fn start() -> Daemon {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (connect, connections) = mpsc::unbounded_channel();
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let config = ControlConfig {
                state_dir: dir.path().join("state"),
                memory: aquifer_pool::Memory::new(64 << 20),
                wait_for_disks: Duration::ZERO,
                host_limits: aquifer_files::HostLimits::NONE,
                smartctl: Default::default(),
                alerts: Default::default(),
                peers: Default::default(),
                commit: None,
                parts: Arc::default(),
                audit: Arc::default(),
            };
            let control = Control::open(config, Arc::new(Nowhere), Arc::default()).unwrap();
            control.start().await;
            let disk = dir.path().join("disk").to_str().unwrap().to_owned();
            let request = CreatePool {
                name: "tank".into(),
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
            control.create_pool(request).await.unwrap();
            let tokens = Arc::new(Tokens::open(&dir.path().join("state/api")));
            let caller = Extension(Caller::of_socket(0));
            let routes = router(Api { control, tokens, home: None }).layer(caller);
            let guarded: Router = routes.layer(from_fn(guard::guard));
            tokio::spawn(async { axum::serve(Connections(connections), guarded).await });
        });
        // The open image stays; a write of the pool's acts would not.
        dir.close().unwrap();
        Daemon { runtime, connect }
    }

    fn exchange(&self, request: &[u8]) {
        let (mut ours, theirs) = duplex(PIPE_BYTES);
        self.connect.send(theirs).unwrap();
        let answer = self.runtime.block_on(async {
            let (mut from, mut to) = tokio::io::split(&mut ours);
            let mut answer = Vec::new();
            let write = async {
                // The server may close the connection before it has read everything.
                let _ = to.write_all(request).await;
                let _ = to.shutdown().await;
            };
            let (_, read) = tokio::join!(write, from.read_to_end(&mut answer));
            read.unwrap();
            answer
        });
        let is_head = request.starts_with(b"HEAD");
        if !answer.is_empty() && !is_head {
            check(&answer);
        }
    }
}

/// Checks the first answer of a connection.
fn check(answer: &[u8]) {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&answer[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next().unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap();
    let headers: Vec<(String, &str)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let header = |name: &str| headers.iter().find(|(of, _)| of == name).map(|(_, value)| *value);
    let Some(length) = header("content-length") else {
        assert!(header("transfer-encoding").is_some() || status < 200, "{head}");
        return;
    };
    let length: usize = length.parse().unwrap();
    let body = &answer[end + 4..][..length];
    match header("content-type") {
        Some("application/json") if status >= 400 => {
            let error: ApiError = serde_json::from_slice(body).unwrap();
            assert!(!error.message.is_empty());
            assert!(!error.message.contains("has a bug"), "{error:?}");
        }
        Some("application/json") => {
            drop(serde_json::from_slice::<serde_json::Value>(body).unwrap())
        }
        // A request that is no HTTP never came to a route.
        None => assert!(status < 300 || body.is_empty(), "{head}"),
        Some(other) => assert!(status < 400, "{other}: {head}"),
    }
}

/// A request for an existing route, about things that may exist.
fn nearly_right(from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let route = *from.choose(&ROUTES)?;
    let query = match route.contains('?') && from.ratio(7, 8)? {
        true => text(from)?,
        false => String::new(),
    };
    let mut body = String::new();
    if route.starts_with("POST") {
        value(from, &mut body, 0)?;
    }
    let json = if from.ratio(15, 16)? { "application/json" } else { "text/plain" };
    let length = if from.ratio(31, 32)? { body.len() } else { from.int_in_range(0..=40)? };
    let request = format!(
        "{route}{query} HTTP/1.1\r\nhost: aquifer\r\ncontent-type: {json}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}",
    );
    Ok(request.into_bytes())
}

/// A value of JSON, with field names of requests.
fn value(from: &mut Unstructured<'_>, to: &mut String, depth: u32) -> Result<()> {
    match from.int_in_range(0..=11)? {
        _ if depth == 0 && !from.ratio(1, 16)? => object(from, to, depth)?,
        0 if depth < 200 => {
            to.push('[');
            value(from, to, depth + 1)?;
            to.push(']');
        }
        1 | 2 if depth < 4 => object(from, to, depth)?,
        3 => to.push_str("null"),
        4 => to.push_str("true"),
        5 => to.push_str("-1"),
        6 => to.push_str("18446744073709551616"),
        7 => to.push_str("1e999"),
        _ => {
            let text = text(from)?;
            to.push_str(&serde_json::to_string(&text).unwrap());
        }
    }
    Ok(())
}

fn object(from: &mut Unstructured<'_>, to: &mut String, depth: u32) -> Result<()> {
    to.push('{');
    for at in 0..from.int_in_range(0..=3)? {
        let key = *from.choose(&KEYS)?;
        to.push_str(&format!("{}\"{key}\":", if at == 0 { "" } else { "," }));
        value(from, to, depth + 1)?;
    }
    to.push('}');
    Ok(())
}

fn text(from: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    for _ in 0..from.int_in_range(1..=3)? {
        text.push_str(from.choose(&TEXTS)?);
    }
    Ok(text)
}

/// Connections made in this process.
struct Connections(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for Connections {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(connection) => (connection, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A frontend without clients.
#[derive(Debug)]
struct Nowhere;

impl Frontend for Nowhere {
    fn serve(&self, _: Offer) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { Vec::new() })
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn listening(&self) -> Vec<String> {
        Vec::new()
    }

    fn locks(&self) -> (Vec<LockView>, bool) {
        (Vec::new(), false)
    }

    fn end_locks(&self, _: &dyn Fn(aquifer_files::Guid) -> bool) -> usize {
        0
    }

    fn clear_locks(&self, address: IpAddr, _: Option<&str>) -> usize {
        usize::from(address.is_loopback())
    }

    fn counts(&self) -> Option<NfsCounts> {
        None
    }

    fn look_up(&self, hosts: BTreeSet<String>) -> BoxFuture<'_, Vec<HostInfo>> {
        let known = |name| HostInfo { name, addresses: Vec::new(), problem: Some("no".into()) };
        Box::pin(async move { hosts.into_iter().map(known).collect() })
    }

    fn hosts(&self) -> Vec<HostInfo> {
        Vec::new()
    }

    fn explain(&self, path: &str, client: IpAddr) -> Option<Explanation> {
        Some(Exports::new(Vec::new(), |_| None).unwrap().explain(path, client))
    }
}

const ROUTES: [&str; 73] = [
    "GET /v1/alerts",
    "POST /v1/alerts/test",
    "GET /v1/daemon",
    "GET /v1/openapi.json",
    "GET /v1/pools",
    "GET /v1/pools/tank",
    "GET /v1/pools/tank/events",
    "GET /v1/pools/tank/load?span=month&of=clients&step_s=",
    "GET /v1/pools/tank/load/disks?from_s=",
    "GET /v1/pools/%FF",
    "GET /v1/locks",
    "GET /v1/datasets?",
    "GET /v1/datasets?name=",
    "GET /v1/datasets?recursive=true&name=tank",
    "GET /v1/iostat?pool=",
    "GET /v1/nfs",
    "GET /v1/memory",
    "GET /v1/events?after=",
    "GET /v1/events?wait_ms=",
    "GET /metrics",
    "GET /v1/session",
    "GET /v1/shares",
    "GET /v1/shares/why?host=",
    "GET /v1/shares/why?path=/tank&host=",
    "GET /v1/connect?hypervisor=esxi&dataset=",
    "GET /v1/replications",
    "GET /v1/replications?id=",
    "POST /v1/replicate",
    "POST /v1/replicate/stop",
    "GET /v1/nothing",
    "DELETE /v1/pools",
    "HEAD /v1/daemon",
    "POST /v1/pools/tank/clear",
    "POST /v1/datasets",
    "POST /v1/datasets/set",
    "POST /v1/datasets/destroy",
    "POST /v1/datasets/clear",
    "POST /v1/locks/clear",
    "POST /v1/pools",
    "POST /v1/pools/tank/add",
    "POST /v1/pools/tank/replace",
    "POST /v1/import",
    "POST /v1/scan",
    "GET /v1/snapshots?name=",
    "POST /v1/snapshots",
    "GET /v1/bookmarks?name=",
    "POST /v1/bookmarks",
    "POST /v1/bookmarks/destroy",
    "POST /v1/snapshots/rename",
    "POST /v1/datasets/rollback",
    "POST /v1/datasets/clone",
    "POST /v1/datasets/promote",
    "POST /v1/snapshots/destroy",
    "GET /v1/snapshots/holds?name=",
    "GET /v1/diff?to=tank&from=",
    "GET /v1/diff/ranges?from=tank/vms@a:x&to=",
    "POST /v1/snapshots/hold",
    "POST /v1/snapshots/release",
    "POST /v1/datasets/rename",
    "POST /v1/send",
    "POST /v1/receive",
    "POST /v1/receive/0",
    "POST /v1/receive/0/end",
    "POST /v1/receives/give-up",
    "GET /v1/pull/known",
    "POST /v1/pull/take",
    "POST /v1/pull/settle",
    "POST /v1/pull/prune",
    "GET /v1/receives?name=",
    "POST /v1/tokens/ci/bind",
    "GET /v1/confirmations",
    "POST /v1/confirmations/1/confirm",
    "POST /v1/confirmations/1/refuse",
];
const KEYS: [&str; 26] = [
    "name",
    "name",
    "properties",
    "properties",
    "sharenfs",
    "compression",
    "sync",
    "quota",
    "com.example:backup",
    "reservation",
    "readonly",
    "confirm",
    "recursive",
    "file",
    "address",
    "client",
    "vdevs",
    "kind",
    "disks",
    "force",
    "pool",
    "guid",
    "logs",
    "disk",
    "create_bytes",
    "certificates",
];
const TEXTS: [&str; 36] = [
    "tank",
    "tank",
    "tank",
    "/",
    "/a",
    "/b",
    "tank/a",
    "#1",
    "#99999999999999999999",
    "..",
    "@",
    "",
    "10.0.0.1",
    "::1",
    "127.0.0.1",
    "[",
    "hv1",
    "on",
    "off",
    "lz4",
    "zstd",
    "disabled",
    "standard",
    "none",
    "1G",
    "16E",
    "-1",
    "0",
    "%00",
    "&recursive=true",
    "&name=",
    "\u{202e}",
    "\0",
    "rw=@10.1",
    "root=hv1,rw",
    "ffffffffffffffff",
];
const PIPE_BYTES: usize = 16 << 10;
const MEMORY_MAX: usize = 64 << 20;
