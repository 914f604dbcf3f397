//! The grounds of insiders, and what must stay whatever they do.
//!
//! `tank/lab` lets a network in from any port, and one of its hosts takes snapshots of it. There is
//! a token of each role below the administrator's. What the administrator made before, snapshots
//! and lines of the history, is looked for after each phase.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use aquifer_nfs::proto::v3::{Args3, DirOpArgs3, Getattr3Args, Getattr3Res, NfsFh3};
use aquifer_rig::daemon::Daemon;
use aquifer_rig::wire::call::{Caller, Source, of_nfs};
use aquifer_rig::wire::{Connection, decode, granted, results};
use serde_json::Value;

use super::http::Request;
use super::place::{HOST, NEIGHBOUR, POOL, nfs};
use super::watch::Answers;
use crate::{Error, Result};

/// A machine that `tank/lab` lets in. There are 4096 of them.
pub(super) fn lab_host(number: u32) -> Ipv4Addr {
    let number = number % 4096;
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 9, 32, 0]) + number)
}

/// The content of `tank/lab`.
#[derive(Clone, Copy, Debug)]
pub struct Lab {
    /// Empty files in its top directory.
    pub files: usize,
    /// Snapshots of it.
    pub snapshots: usize,
}

/// A token of each role below the administrator's, by role.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub metrics: String,
    pub receive: String,
    pub read: String,
    pub operator: String,
}

/// A dataset, tokens, and what the administrator made.
#[derive(Clone, Debug)]
pub(super) struct Grounds {
    /// The top directory of `tank/lab`.
    pub lab: NfsFh3,
    /// How many snapshots it has.
    pub snapshots: usize,
    pub tokens: Tokens,
}

impl Grounds {
    /// Makes all that insiders find. Runs in the daemon's network.
    ///
    /// # Errors
    /// The daemon's error.
    pub fn make(daemon: &Daemon, lab: Lab) -> Result<Self> {
        let ask = |words: &[&str]| daemon.command().args(words).check(PATIENCE);
        ask(&["create", LAB])?;
        ask(&["set", &format!("sharenfs=insecure,rw=@10.9.32.0/20:{NEIGHBOUR}"), LAB])?;
        ask(&["set", &format!("snapcontrol={NEIGHBOUR}"), LAB])?;
        let stream = Source::root(NEIGHBOUR).connect(nfs()).map_err(Error::io("connect"))?;
        let mut neighbour = Connection::new(stream)?;
        let top = neighbour.mount(&format!("/{LAB}"))?;
        for number in 0..lab.files {
            neighbour.create(top, &format!("a-file-with-a-name-of-some-length-{number}"))?;
        }
        for number in 0..lab.snapshots {
            let body = format!(r#"{{"names":["{LAB}@{}"]}}"#, snapshot_of(number));
            let request = Request::post("/v1/snapshots", body.as_bytes());
            request.send_locally(daemon.socket()).map_err(Error::io("take a snapshot"))?;
        }
        for kept in KEPT {
            ask(&["snapshot", kept])?;
        }
        let token = |role: &str| -> Result<String> {
            let made = ask(&["token", "create", &format!("of-{role}"), "--role", role])?;
            Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned())
        };
        let tokens = Tokens {
            metrics: token("metrics")?,
            receive: token("receive")?,
            read: token("read")?,
            operator: token("operator")?,
        };
        Ok(Grounds { lab: top, snapshots: lab.snapshots, tokens })
    }
}

/// Snapshots and acts that the administrator made before a phase.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// Guids of snapshots, by name.
    snapshots: BTreeMap<String, String>,
    /// The last acts of the history, by order.
    acts: BTreeMap<u64, String>,
}

impl Made {
    /// Notes the snapshots and acts that there are now.
    ///
    /// # Errors
    /// The API does not answer.
    pub fn now(socket: &Path) -> Result<Self> {
        let mut acts = acts(socket)?;
        while acts.len() > ACTS_NOTED {
            acts.pop_first();
        }
        Ok(Made { snapshots: snapshots(socket)?, acts })
    }

    /// Lists those snapshots and acts that are not there any more.
    ///
    /// # Errors
    /// The API does not answer.
    pub fn missing(&self, socket: &Path) -> Result<Vec<String>> {
        let (there, told) = (snapshots(socket)?, acts(socket)?);
        let gone = self.snapshots.iter().filter(|(name, guid)| there.get(*name) != Some(guid));
        let gone = gone.map(|(name, _)| format!("snapshot {name}"));
        let untold = self.acts.iter().filter(|(order, act)| told.get(order) != Some(act));
        let untold = untold.map(|(_, act)| format!("the history's line of {act:?}"));
        Ok(gone.chain(untold).collect())
    }
}

/// The name of a snapshot of `tank/lab`.
pub(super) fn snapshot_of(number: usize) -> String {
    format!("lab{number}")
}

/// Snapshots of the host's dataset: guids by name.
fn snapshots(socket: &Path) -> Result<BTreeMap<String, String>> {
    let all = list(socket, "/v1/snapshots?name=tank%2Fvms")?;
    let of = |one: &Value| Some((text(one, "name")?, text(one, "guid")?));
    Ok(all.iter().filter_map(of).collect())
}

/// The administrator's acts, by order.
fn acts(socket: &Path) -> Result<BTreeMap<u64, String>> {
    let all = list(socket, &format!("/v1/pools/{POOL}/history"))?;
    let own = all.iter().filter_map(|of| {
        let order = of.get("order")?.as_u64()?;
        text(of, "who")?.starts_with("uid ").then_some((order, text(of, "act")?))
    });
    Ok(own.collect())
}

fn text(of: &Value, field: &str) -> Option<String> {
    of.get(field)?.as_str().map(str::to_owned)
}

fn list(socket: &Path, path: &str) -> Result<Vec<Value>> {
    let said = Request::get(path).send_locally(socket).map_err(Error::io("ask the API"))?;
    serde_json::from_str(&said).map_err(|error| Error::Malformed(format!("{path}: {error}")))
}

/// An act of the administrator's, every two seconds, over the Unix socket.
pub(super) fn act(socket: &Path, over: &AtomicBool) -> Answers {
    Answers::ask(ACT_PAUSE, over, |answers, number| {
        let body = format!(r#"{{"name":"tank/vms","properties":{{"bench:act":"{number}"}}}}"#);
        let begun = Instant::now();
        answers.note(begun, Request::post(ACT, body.as_bytes()).send_locally(socket));
    })
}

/// New connections of the host, each with a call: as its administrator who mounts has them. One
/// that fails is tried again, as by a client that mounts, and its time runs on.
pub(super) fn mount_anew(file: NfsFh3, over: &AtomicBool) -> Answers {
    Answers::ask(MOUNT_PAUSE, over, |answers, _| {
        let begun = Instant::now();
        let answered = loop {
            let answered = mount_once(file);
            if answered.is_ok() || begun.elapsed() > MOUNT_PATIENCE {
                break answered;
            }
        };
        answers.note(begun, answered);
    })
}

fn mount_once(file: NfsFh3) -> std::io::Result<String> {
    let mut caller = Caller::connect(Source::root(HOST), nfs())?;
    let args = Args3::Getattr(Getattr3Args { object: file });
    let reply = caller.call(of_nfs(&args), &args)?;
    let (_, mut from) = results(&reply).map_err(std::io::Error::other)?;
    let got = decode::<Getattr3Res>(&mut from).and_then(|got| granted("GETATTR", got));
    got.map(|_| String::new()).map_err(std::io::Error::other)
}

/// A name in a directory, as arguments of LOOKUP.
pub(super) fn lookup<'a>(dir: NfsFh3, name: &'a str) -> Args3<'a> {
    Args3::Lookup(DirOpArgs3 { dir, name: name.as_bytes() })
}

pub(super) const LAB: &str = "tank/lab";
const KEPT: [&str; 3] = ["tank/vms@before-1", "tank/vms@before-2", "tank/vms@before-3"];
/// Later ones of the administrator's may push older ones out.
const ACTS_NOTED: usize = 100;
const ACT: &str = "/v1/datasets/set";
const ACT_PAUSE: Duration = Duration::from_secs(2);
const MOUNT_PAUSE: Duration = Duration::from_millis(500);
/// Clients that mount try for longer: two minutes in Linux (nfs(5), `retry`).
const MOUNT_PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(300);
