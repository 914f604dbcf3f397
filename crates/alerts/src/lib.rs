//! Alerts: what is wrong reaches people by mail, webhooks and programs, once.
//!
//! Who looks (the administrator's side of the daemon) says every few seconds what is wrong
//! ([`Alerts::look`]), and what has happened ([`Alerts::happened`]). This room decides what of it
//! is new ([`watch`]), and sends it. It knows nothing of pools.
//!
//! Invariants:
//! - Nobody who looks waits for an outlet.
//! - Told at least once: what was told is remembered over restarts, and what was not sent yet. A
//!   kill forgets what has happened in the last seconds; what is wrong is seen again.

mod command;
mod mail;
mod message;
mod outlet;
mod secret;
mod settings;
pub mod watch;
mod webhook;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aquifer_api::time::now_ns;
use aquifer_api::{AlertsInfo, OutletKind, Problem, Severity, TestedOutlet};
use aquifer_blockio::durable::Replaced;
use parking_lot::Mutex;

use message::{Item, Kind, Message};
use outlet::{Outlet, Sender};
use serde::{Deserialize, Serialize};
pub use settings::{BadSetting, Mail, MailTls, Program, Settings, Shape, Webhook};
use watch::{Known, Seen, Watch};

/// The alerts of a daemon.
#[derive(Debug)]
pub struct Alerts {
    settings: Settings,
    host: String,
    file: Replaced,
    outlets: Vec<Arc<Outlet>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watch: Watch,
    /// Events that were told, by code and pool, and when.
    happened: BTreeMap<(String, Option<String>), u64>,
    kept: Kept,
}

/// State that a restart must know, as the file has it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    told: Vec<Known>,
    /// By outlet.
    waiting: BTreeMap<String, Vec<Message>>,
}

impl Alerts {
    /// Starts the outlets, and goes on from what an earlier daemon has told and not sent yet, which
    /// stands in `state_dir`. If that cannot be read, it is logged, and problems are sent again.
    ///
    /// # Errors
    /// The system has no threads.
    pub fn open(settings: Settings, state_dir: &Path, host: &str) -> std::io::Result<Alerts> {
        let path = state_dir.join(FILE_NAME);
        let kept = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice::<Kept>(&bytes)?));
        let file = Replaced::at(path.clone(), 0o600);
        file.adopt();
        let kept = kept.unwrap_or_else(|error| {
            if error.kind() != ErrorKind::NotFound {
                let path = path.display();
                tracing::warn!(%path, %error, "alerts of before are not known");
                // What is in the way is a problem, until it is gone.
                let _ = file.store(text_of(&Kept::default()));
            }
            Kept::default()
        });
        let mut outlets = Vec::new();
        for (name, (kind, least, sender)) in settings.names().into_iter().zip(senders(&settings)) {
            let waiting = kept.waiting.get(&name).into_iter().flatten();
            let outlet = Outlet::start(name.clone(), kind, least, sender)?;
            waiting.for_each(|message| outlet.put(message));
            outlets.push(outlet);
        }
        let watch = Watch::restored(kept.told.clone());
        let state = Mutex::new(State { watch, happened: BTreeMap::new(), kept });
        Ok(Alerts { settings, host: host.into(), file, outlets, state })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tells what is new of what was seen now.
    pub fn look(&self, seen: &Seen) {
        let (now_ns, remind_ns) =
            (now_ns(), u64::from(self.settings.remind_hours) * 3600 * 1_000_000_000);
        let items = self.state.lock().watch.look(now_ns, seen, remind_ns);
        if self.tell(now_ns, items) {
            self.let_send();
        }
        self.keep();
    }

    /// The daemon ends: what is not sent within a second is kept for the next one. Blocks.
    pub fn end(&self) {
        self.let_send();
        self.keep();
    }

    /// Most outlets send at once: what they did is then kept with what was told.
    fn let_send(&self) {
        let begun = Instant::now();
        let waits = |outlet: &Arc<Outlet>| !outlet.waiting().is_empty();
        while self.outlets.iter().any(waits) && begun.elapsed() < SEND_AT_ONCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Keeps what a restart must know.
    fn keep(&self) {
        let mut state = self.state.lock();
        let waiting = |outlet: &Arc<Outlet>| (outlet.name.clone(), outlet.waiting());
        let waiting = self.outlets.iter().map(waiting).filter(|(_, waiting)| !waiting.is_empty());
        let kept = Kept { told: state.watch.told(), waiting: waiting.collect() };
        if kept == state.kept {
            return;
        }
        if let Err(error) = self.file.store(text_of(&kept)) {
            tracing::debug!(%error, "a restart will tell alerts again");
        }
        state.kept = kept;
    }

    /// Writes the file again if it is spoilt, or could not be written.
    pub fn look_after_file(&self) {
        self.file.look_again();
    }

    /// Why the file cannot be written: a restart will tell alerts again.
    pub fn problem(&self) -> Option<String> {
        self.file.problem()
    }

    /// Tells that something has happened, at most once an hour.
    pub fn happened(&self, pool: Option<String>, problem: Problem) {
        let now_ns = now_ns();
        let mut state = self.state.lock();
        state.happened.retain(|_, told_ns| now_ns.saturating_sub(*told_ns) < AGAIN_AFTER_NS);
        let key = (problem.code.clone(), pool.clone());
        if state.happened.contains_key(&key) || state.happened.len() >= HAPPENED_MAX {
            return;
        }
        state.happened.insert(key, now_ns);
        let Problem { code, severity, status, action, see } = problem;
        let (kind, since_ns) = (Kind::Happened, now_ns);
        self.tell(now_ns, vec![Item { kind, severity, pool, code, status, action, see, since_ns }]);
    }

    /// Returns whether there was something to tell.
    fn tell(&self, now_ns: u64, mut items: Vec<Item>) -> bool {
        items.retain(|item| !self.settings.mute.contains(&item.code));
        if items.is_empty() {
            return false;
        }
        let message = Message::new(&self.host, now_ns, items);
        self.outlets.iter().for_each(|outlet| outlet.put(&message));
        true
    }

    /// Lists what is wrong now, and where it is sent.
    pub fn info(&self) -> AlertsInfo {
        let active = self.state.lock().watch.active();
        AlertsInfo { active, outlets: self.outlets.iter().map(|outlet| outlet.info()).collect() }
    }

    /// Sends a message that says it is a test, by one outlet or by all, and waits for that: half a
    /// minute and more. `None`: there is no outlet of this name.
    pub fn test(&self, name: Option<&str>) -> Option<Vec<TestedOutlet>> {
        let is_meant = |outlet: &&Arc<Outlet>| name.is_none_or(|name| outlet.name == name);
        let meant: Vec<_> = self.outlets.iter().filter(is_meant).cloned().collect();
        if meant.is_empty() && name.is_some() {
            return None;
        }
        let message = Message::test(&self.host, now_ns());
        let tests = std::thread::scope(|scope| {
            let each = |outlet: &'_ Arc<Outlet>| {
                let (outlet, message) = (Arc::clone(outlet), &message);
                scope.spawn(move || {
                    let error = outlet.test(message).err();
                    TestedOutlet { name: outlet.name.clone(), error }
                })
            };
            let tests: Vec<_> = meant.iter().map(each).collect();
            tests.into_iter().filter_map(|test| test.join().ok()).collect()
        });
        Some(tests)
    }

    /// The outlets' names.
    pub fn outlets(&self) -> Vec<&str> {
        self.outlets.iter().map(|outlet| outlet.name.as_str()).collect()
    }
}

impl Drop for Alerts {
    fn drop(&mut self) {
        self.outlets.iter().for_each(|outlet| outlet.end());
    }
}

fn text_of(kept: &Kept) -> Vec<u8> {
    serde_json::to_vec_pretty(kept).unwrap_or_default()
}

/// In the order of [`Settings::names`].
fn senders(
    settings: &Settings,
) -> impl Iterator<Item = (OutletKind, Severity, Box<dyn Sender>)> + use<'_> {
    let mail = settings
        .mail
        .iter()
        .map(|mail| (OutletKind::Mail, mail.severity, Box::new(mail.clone()) as Box<dyn Sender>));
    let webhook = settings.webhook.iter().map(|hook| {
        (OutletKind::Webhook, hook.severity, Box::new(hook.clone()) as Box<dyn Sender>)
    });
    let command = settings.command.iter().map(|program| {
        (OutletKind::Command, program.severity, Box::new(program.clone()) as Box<dyn Sender>)
    });
    mail.chain(webhook).chain(command)
}

/// How long is waited for outlets that send at once.
const SEND_AT_ONCE: Duration = Duration::from_secs(1);
const FILE_NAME: &str = "alerts.json";
/// Time in which the same event is not told again.
const AGAIN_AFTER_NS: u64 = 3600 * 1_000_000_000;
/// Kinds of events within an hour: codes times pools.
const HAPPENED_MAX: usize = 256;
