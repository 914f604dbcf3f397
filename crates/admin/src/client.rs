//! A client of the API: one call at a time, each on a connection of its own.
//!
//! There is no time limit: an import that replays a long log, or a pool being made on slow disks,
//! takes as long as it takes, and the act would go on anyway.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::{
    ApiError, ClearDamage, CreateDataset, CreatePool, DaemonInfo, DatasetDone, DatasetInfo,
    DatasetQuery, DestroyDataset, DestroyPool, ImportRequest, LocksInfo, PoolCreated, PoolDone,
    PoolStatus, PoolSummary, ScanRequest, ScanResult, SetProperties, ShareInfo, ShareQuery,
    ShareWhy,
};

/// Where a daemon is to be asked.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// A call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon, or not for us.
    #[error("{socket}: no daemon can be asked there ({source}); {hint}")]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The daemon refused or failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// It went away, or does not speak the API.
    #[error("the daemon gave no answer that makes sense: {0}; its log may say why")]
    Broken(String),
}

/// What a call gives.
pub type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client of the daemon behind `socket`. Nothing is done yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { socket: socket.into() }
    }

    /// Who answers.
    pub async fn daemon(&self) -> Answer<DaemonInfo> {
        self.get("/daemon").await
    }

    /// All pools.
    pub async fn pools(&self) -> Answer<Vec<PoolSummary>> {
        self.get("/pools").await
    }

    /// One pool.
    pub async fn pool(&self, name: &str) -> Answer<PoolStatus> {
        self.get(&format!("/pools/{}", escaped(name))).await
    }

    /// Makes a pool.
    pub async fn create_pool(&self, request: &CreatePool) -> Answer<PoolCreated> {
        self.post("/pools", request).await
    }

    /// Exports a pool.
    pub async fn export_pool(&self, name: &str) -> Answer<PoolDone> {
        self.post(&format!("/pools/{}/export", escaped(name)), &()).await
    }

    /// Destroys a pool.
    pub async fn destroy_pool(&self, name: &str, request: &DestroyPool) -> Answer<PoolDone> {
        self.post(&format!("/pools/{}/destroy", escaped(name)), request).await
    }

    /// Looks for pools.
    pub async fn scan(&self, request: &ScanRequest) -> Answer<ScanResult> {
        self.post("/scan", request).await
    }

    /// Imports a pool.
    pub async fn import_pool(&self, request: &ImportRequest) -> Answer<PoolDone> {
        self.post("/import", request).await
    }

    /// Lists datasets.
    pub async fn datasets(&self, query: &DatasetQuery) -> Answer<Vec<DatasetInfo>> {
        let mut path = format!("/datasets?recursive={}", query.recursive);
        if let Some(name) = &query.name {
            path.push_str("&name=");
            path.push_str(&escaped(name));
        }
        self.get(&path).await
    }

    /// Makes a dataset.
    pub async fn create_dataset(&self, request: &CreateDataset) -> Answer<DatasetDone> {
        self.post("/datasets", request).await
    }

    /// Sets properties.
    pub async fn set_properties(&self, request: &SetProperties) -> Answer<DatasetDone> {
        self.post("/datasets/set", request).await
    }

    /// Destroys a dataset.
    pub async fn destroy_dataset(&self, request: &DestroyDataset) -> Answer<DatasetDone> {
        self.post("/datasets/destroy", request).await
    }

    /// Takes a damaged file as it is.
    pub async fn clear_damage(&self, request: &ClearDamage) -> Answer<DatasetDone> {
        self.post("/datasets/clear", request).await
    }

    /// Locks of files.
    pub async fn locks(&self) -> Answer<LocksInfo> {
        self.get("/locks").await
    }

    /// Lists exports.
    pub async fn shares(&self) -> Answer<Vec<ShareInfo>> {
        self.get("/shares").await
    }

    /// Asks what a host may do at a path, and why.
    pub async fn share_why(&self, query: &ShareQuery) -> Answer<ShareWhy> {
        let (host, path) = (escaped(&query.host), escaped(&query.path));
        self.get(&format!("/shares/why?host={host}&path={path}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        self.call(Method::POST, path, serde_json::to_vec(body).map_err(broken)?.into()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<T> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| unreachable(&self.socket, source))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "aquifer")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(broken)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(broken)?.to_bytes();
        drop(sender);
        connection.abort();
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(broken);
        }
        let error: Result<ApiError, _> = serde_json::from_slice(&body);
        Err(match error {
            Ok(error) => ClientError::Api(error),
            Err(_) => broken(format!("status {status}")),
        })
    }
}

fn unreachable(socket: &Path, source: io::Error) -> ClientError {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => "run as the user whom the daemon runs as, mostly root",
        _ => "start one with `aquifer serve`, or name its socket with --api-socket",
    };
    ClientError::Unreachable { socket: socket.into(), source, hint }
}

fn broken(error: impl ToString) -> ClientError {
    ClientError::Broken(error.to_string())
}

/// A name as part of a path or query (RFC 3986 section 2.1).
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Longest answer: some 100,000 datasets.
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_way_through_a_path() {
        assert_eq!(escaped("tank/my vms?"), "tank%2Fmy%20vms%3F");
        assert_eq!(escaped("tank-1_a.b:c"), "tank-1_a.b%3Ac");
    }
}
