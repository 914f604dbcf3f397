//! A peer, and the line to it: how the configuration names it, and how it is asked.
//!
//! Invariant: no question to a peer waits for ever. A peer whose network is gone is a failure after
//! a time, and the run begins again later.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aquifer_api::client::{Answer, Client, ClientError};
use aquifer_api::keys::{Identity, read_certificates, read_token};
use aquifer_api::{ApiError, ErrorKind};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::Control;
use super::target::check_peer;

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

/// A peer that is asked over its API.
#[derive(Debug)]
pub(super) struct Line {
    pub client: Client,
    peer: String,
    /// The least role that is enough there.
    role: &'static str,
    /// Its last answer did not come.
    is_away: AtomicBool,
}

impl Line {
    /// The line to a peer, which needs a token of this role there.
    ///
    /// # Errors
    /// The configuration has no such peer; its files cannot be used.
    pub fn to(control: &Control, peer: &str, role: &'static str) -> Result<Line, ApiError> {
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
        let (peer, client) = (peer.to_string(), client.keeping_its_connection());
        Ok(Line { client, peer, role, is_away: AtomicBool::new(false) })
    }

    /// Whether it did not answer the last time: others need not try it now.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Waits for an answer of the peer, so long.
    ///
    /// # Errors
    /// It refuses, fails or does not answer.
    pub async fn asked<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Answer<T>>,
    ) -> Result<T, ApiError> {
        let answer = timeout(patience, answer).await;
        let is_answer = matches!(answer, Ok(Ok(_) | Err(ClientError::Api(_))));
        self.is_away.store(!is_answer, Ordering::Relaxed);
        let peer = &self.peer;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(told(peer, self.role, error)),
            Err(_) => Err(ApiError::failed(format!(
                "{peer} has not answered for {} s: look at the network, and at its disks \
                 (`aquifer pool status` there)",
                patience.as_secs()
            ))),
        }
    }

    /// The peer said what cannot be.
    pub fn senseless(&self, why: &str) -> ApiError {
        ApiError::failed(format!("{}: {}: look at that server", self.peer, bounded(why)))
    }
}

/// A failure of a peer, with what to do here.
fn told(peer: &str, role: &str, error: ClientError) -> ApiError {
    match error {
        ClientError::Api(error) => {
            let message = bounded(&error.message);
            let what = match error.kind {
                ErrorKind::Unauthorized => format!(
                    "; make one there (`aquifer token create NAME --role {role}`), and put it \
                     into the file that peers.{peer}.token names. Bind it to the certificate that \
                     this machine shows, or to none: `aquifer token bind NAME --certificate FILE` \
                     there"
                ),
                ErrorKind::Forbidden => format!(
                    "; put a token of such a role into the file of peers.{peer}.token (`aquifer \
                     token create` there): `{role}` is enough for all but -F"
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
pub(super) const QUESTION: Duration = Duration::from_secs(30);
/// An act waits for its turn, and for disks.
pub(super) const ACT: Duration = Duration::from_secs(300);
/// A part waits for the pace of the disks.
pub(super) const PART: Duration = Duration::from_secs(120);
/// Longest wait for the end of an increment: what was removed is freed before.
pub(super) const END: Duration = Duration::from_secs(1800);
