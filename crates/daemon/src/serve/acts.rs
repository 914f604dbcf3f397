//! Which acts have lines of the log: of one caller and of one host so many in a minute, wherever
//! they come from. History, events and audit have all of them.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Instant;

use aquifer_meter::Seldom;
use aquifer_nfs::site;
use parking_lot::Mutex;
use tracing::Event;
use tracing::field::{Field, Visit};

/// Acts of a caller of the API that have lines in a minute.
const OF_CALLER: u64 = 30;
/// Acts of a host over NFS that have lines in a minute.
const OF_HOST: u64 = 20;

/// Lines of acts that there were lately.
#[derive(Debug)]
pub(super) struct Acts {
    since: Instant,
    callers: Mutex<Seldom<String>>,
    hosts: Mutex<Seldom<IpAddr>>,
}

impl Default for Acts {
    fn default() -> Self {
        let (callers, hosts) = (Seldom::of(OF_CALLER), Seldom::of(OF_HOST));
        Acts { since: Instant::now(), callers: Mutex::new(callers), hosts: Mutex::new(hosts) }
    }
}

impl Acts {
    /// Whether an event has a line. If so, returns how many acts of its caller had none since the
    /// last one; 0 if it is no act.
    pub fn tells(&self, event: &Event<'_>) -> Option<u64> {
        let fields = event.metadata().fields();
        if fields.field("caller").is_none() && fields.field("who").is_none() {
            return Some(0);
        }
        let (mut asked, now) = (Asked::default(), self.since.elapsed());
        event.record(&mut asked);
        if asked.class == "api.act" {
            // A token counts as one, from wherever it is shown.
            let caller = asked.caller.split(" from ").next().unwrap_or_default();
            return self.callers.lock().tells(caller.into(), now);
        }
        match asked.who.strip_prefix("host ").and_then(|host| host.parse().ok()) {
            Some(host) => self.hosts.lock().tells(site(host), now),
            None => Some(0),
        }
    }
}

/// The fields that say what is asked, and by whom.
#[derive(Default)]
struct Asked {
    class: String,
    caller: String,
    who: String,
}

impl Asked {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "class" => self.class = value,
            "caller" => self.caller = value,
            "who" => self.who = value,
            _ => {}
        }
    }
}

impl Visit for Asked {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}
