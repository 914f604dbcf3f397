//! The side that has the copy: a peer over its API, or this daemon.
//!
//! Invariant: no question to a peer waits for ever. A peer whose network is gone is a failure after
//! a time, and the run begins again later.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aquifer_api::client::{Answer, Client, ClientError};
use aquifer_api::keys::{Identity, read_certificates, read_token};
use aquifer_api::{
    ApiError, DatasetInfo, DatasetQuery, ErrorKind, GiveUpReceive, ReceiveBegun, ReceiveEnd,
    ReceiveInfo, ReceiveRequest, ReceiveSummary, ReceivesQuery, RollBack, SnapshotInfo,
    SnapshotName, SnapshotQuery,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::receive::Bringer;
use super::super::{Control, Scope};
use super::target::{Target, check_peer};

/// Another Aquifer, as the configuration names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its API: `https://HOST:PORT`.
    pub url: String,
    /// The certificate that it must show, or its authority's (PEM).
    pub certificate: PathBuf,
    /// The file with a token of its own.
    pub token: PathBuf,
    /// The certificate that we show it (PEM), if not this machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
}

/// All peers by their names.
pub type Peers = BTreeMap<String, Peer>;

/// Whether these peers can be asked, as far as their configuration says.
///
/// # Errors
/// Names and addresses that are none. Files are read when they are needed, so that they may change.
pub fn check_peers(peers: &Peers) -> Result<(), String> {
    for (name, peer) in peers {
        check_peer(name).map_err(|why| format!("peers: {why}"))?;
        Client::remote(&peer.url, Vec::new(), String::new(), None)
            .map_err(|error| format!("peers.{name}.url: {error}"))?;
        if peer.client_certificate.is_some() != peer.client_key.is_some() {
            return Err(format!("peers.{name}: client_certificate and client_key belong together"));
        }
        let own = [&peer.client_certificate, &peer.client_key];
        for path in [&peer.certificate, &peer.token].into_iter().chain(own.into_iter().flatten()) {
            if !path.is_absolute() {
                return Err(format!("peers.{name}: {path:?}: name files by an absolute path"));
            }
        }
    }
    Ok(())
}

/// The configuration has no such peer.
pub(super) fn unknown_peer(peer: &str, peers: &Peers) -> ApiError {
    let known: Vec<&str> = peers.keys().map(String::as_str).collect();
    let known = match known[..] {
        [] => "there are none".to_string(),
        _ => format!("there are: {}", known.join(", ")),
    };
    ApiError::not_found(format!(
        "the configuration names no peer {peer:?} ({known}): add [peers.{peer}] with url, \
         certificate and token, and restart the daemon"
    ))
}

/// Where a copy is.
#[derive(Debug)]
pub(super) enum Side {
    Here(Arc<Control>),
    There {
        peer: String,
        client: Client,
        /// Its last answer did not come.
        is_away: AtomicBool,
    },
}

impl Side {
    /// The side of a copy.
    ///
    /// # Errors
    /// The configuration has no such peer; its files cannot be used.
    pub fn of(control: &Arc<Control>, target: &Target) -> Result<Side, ApiError> {
        let Some(peer) = &target.peer else { return Ok(Side::Here(Arc::clone(control))) };
        let peers = &control.config.peers;
        let known = peers.get(peer).ok_or_else(|| unknown_peer(peer, peers))?;
        let Peer { url, certificate, token, client_certificate, client_key } = known;
        let unusable = |error: &dyn std::fmt::Display| {
            ApiError::conflict(format!("peer {peer:?} cannot be asked: {error}"))
        };
        let certificates = read_certificates(certificate).map_err(|error| unusable(&error))?;
        let token = read_token(token).map_err(|error| unusable(&error))?;
        let own = client_certificate.as_deref().zip(client_key.as_deref());
        let own = own.map(|(certificate, key)| Identity::read(certificate, key)).transpose();
        let own = own.map_err(|error| unusable(&error))?;
        let client = Client::remote(url, certificates, token, own);
        let client = client.map_err(|error| unusable(&error))?;
        let (peer, client) = (peer.clone(), client.keeping_its_connection());
        Ok(Side::There { peer, client, is_away: AtomicBool::new(false) })
    }

    /// Whether it did not answer the last time: others need not try it now.
    pub fn is_away(&self) -> bool {
        match self {
            Side::Here(_) => false,
            Side::There { is_away, .. } => is_away.load(Ordering::Relaxed),
        }
    }

    /// A dataset, if it is there, perhaps with all below it.
    pub async fn datasets(
        &self,
        name: &str,
        recursive: bool,
    ) -> Result<Vec<DatasetInfo>, ApiError> {
        let query = DatasetQuery { name: Some(name.into()), recursive };
        let found = match self {
            Side::Here(control) => control.datasets(&query, &Scope::default()),
            Side::There { client, .. } => self.asked(QUESTION, client.datasets(&query)).await,
        };
        match found {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Vec::new()),
            found => found,
        }
    }

    /// The snapshots of a dataset, without those of files, as they were taken.
    pub async fn snapshots(&self, dataset: &str) -> Result<Vec<SnapshotInfo>, ApiError> {
        let query =
            SnapshotQuery { name: Some(dataset.into()), recursive: false, ..Default::default() };
        let found = match self {
            Side::Here(control) => control.snapshots(&query, "daemon", &Scope::default()).await,
            Side::There { client, .. } => self.asked(QUESTION, client.snapshots(&query)).await,
        };
        Ok(found?.into_iter().filter(|of| of.path.is_none()).collect())
    }

    pub async fn roll_back(&self, snapshot: String) -> Result<(), ApiError> {
        let request = RollBack { name: snapshot, destroy_later: true, force: true };
        match self {
            Side::Here(control) => control.roll_back(request).await.map(drop),
            Side::There { client, .. } => {
                self.asked(ACT, client.roll_back(&request)).await.map(drop)
            }
        }
    }

    /// What came of a stream into a dataset, if it may go on; `None`: the side is of an earlier
    /// release, which keeps nothing.
    pub async fn receives(&self, dataset: &str) -> Result<Option<Vec<ReceiveInfo>>, ApiError> {
        let query = ReceivesQuery { name: Some(dataset.into()), ..Default::default() };
        let found = match self {
            Side::Here(control) => control.receives(&query, &Scope::default()),
            Side::There { client, .. } => self.asked(QUESTION, client.receives(&query)).await,
        };
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops what came of a stream that broke off.
    pub async fn give_up_receive(&self, name: String) -> Result<(), ApiError> {
        let request = GiveUpReceive { name };
        match self {
            Side::Here(control) => {
                control.give_up_receive(request, &Bringer::itself()).await.map(drop)
            }
            Side::There { client, .. } => {
                self.asked(ACT, client.give_up_receive(&request)).await.map(drop)
            }
        }
    }

    pub async fn begin_receive(&self, request: ReceiveRequest) -> Result<ReceiveBegun, ApiError> {
        match self {
            Side::Here(control) => control.begin_receive(request, &Bringer::itself()).await,
            Side::There { client, .. } => self.asked(ACT, client.begin_receive(&request)).await,
        }
    }

    pub async fn receive_part(&self, id: u64, part: Bytes) -> Result<(), ApiError> {
        match self {
            Side::Here(control) => {
                let leave = control.admit_part(id, &Bringer::itself(), part.len()).await?;
                control.receive_part(leave, part.into()).await.map(drop)
            }
            Side::There { client, .. } => {
                self.asked(PART, client.receive_part(id, part)).await.map(drop)
            }
        }
    }

    /// The copy has the snapshot when this returns; older ones of these names are destroyed.
    pub async fn end_receive(
        &self,
        id: u64,
        prune: Vec<SnapshotName>,
    ) -> Result<ReceiveSummary, ApiError> {
        let end = ReceiveEnd { give_up: false, prune };
        match self {
            Side::Here(control) => control.end_receive(id, end, &Bringer::itself()).await,
            Side::There { client, .. } => self.asked(END, client.end_receive(id, &end)).await,
        }
    }

    /// Leaves a stream before its end: what came waits for the rest there. If the side does not
    /// hear it, it finds out by itself in a minute.
    pub async fn give_up(&self, id: u64) {
        let end = ReceiveEnd { give_up: true, prune: Vec::new() };
        let _ = match self {
            Side::Here(control) => control.end_receive(id, end, &Bringer::itself()).await.map(drop),
            Side::There { client, .. } => {
                self.asked(QUESTION, client.end_receive(id, &end)).await.map(drop)
            }
        };
    }

    /// Waits for an answer of the peer, so long.
    async fn asked<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Answer<T>>,
    ) -> Result<T, ApiError> {
        let answer = timeout(patience, answer).await;
        let peer = match self {
            Side::Here(_) => "this daemon",
            Side::There { peer, is_away, .. } => {
                let is_answer = matches!(answer, Ok(Ok(_) | Err(ClientError::Api(_))));
                is_away.store(!is_answer, Ordering::Relaxed);
                peer
            }
        };
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(told(peer, error)),
            Err(_) => Err(ApiError::failed(format!(
                "{peer} has not answered for {} s: look at the network, and at its disks \
                 (`aquifer pool status` there)",
                patience.as_secs()
            ))),
        }
    }
}

/// A failure of a peer, with what to do here.
fn told(peer: &str, error: ClientError) -> ApiError {
    match error {
        ClientError::Api(error) => {
            let message = bounded(&error.message);
            let what = match error.kind {
                ErrorKind::Unauthorized => format!(
                    "; make one there (`aquifer token create NAME --role receive`), and put it \
                     into the file that peers.{peer}.token names. Bind it to the certificate that \
                     this machine shows, or to none: `aquifer token bind NAME --certificate FILE` \
                     there"
                ),
                ErrorKind::Forbidden => format!(
                    "; put a token of such a role into the file of peers.{peer}.token (`aquifer \
                     token create` there): `receive` is enough for all but -F"
                ),
                _ => String::new(),
            };
            ApiError::new(error.kind, format!("{peer}: {message}{what}"))
        }
        ClientError::Unreachable { at, source, .. } if is_tls(&source) => {
            ApiError::failed(format!(
                "{peer}: {at} is not the daemon whose certificate peers.{peer}.certificate has \
                 ({source}): copy its certificate.pem again, and see that it was made for this \
                 name or address"
            ))
        }
        ClientError::Unreachable { at, source, .. } => ApiError::failed(format!(
            "{peer}: nothing answers at {at} ({source}): does the daemon run there, with `listen` \
             under [api], and does a firewall let it through?"
        )),
        ClientError::Broken(why) => ApiError::failed(format!(
            "{peer}: the connection was cut ({why}). What was sent waits there, and the next run \
             goes on with it"
        )),
        ClientError::Address(url) => {
            ApiError::invalid(format!("{peer}: {url:?} is no address of an API"))
        }
    }
}

/// The words of a peer go to the log, to status and alerts: no more of it than people read, and in
/// one line.
fn bounded(message: &str) -> String {
    let plain = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MESSAGE_CHARS_MAX).collect()
}

/// Rustls gives its errors so; those of sockets have other kinds.
fn is_tls(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidData
}

const MESSAGE_CHARS_MAX: usize = 2000;
/// Nothing is changed: a daemon that lives says it soon.
const QUESTION: Duration = Duration::from_secs(30);
/// An act waits for its turn, and for disks.
const ACT: Duration = Duration::from_secs(300);
/// A part waits for the pace of the disks.
const PART: Duration = Duration::from_secs(120);
/// What was removed is freed before the end of an increment.
const END: Duration = Duration::from_secs(1800);
