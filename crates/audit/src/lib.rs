//! Audit lines: who asked for what, from where, and what came of it, in a file and in a syslog.
//!
//! Lines are numbered, and each has the sum of the one before ([`line`]): so a gap shows, and a
//! line that somebody changed or took out ([`verify`]). A chain in a file goes on over restarts.
//!
//! Invariants:
//! - Nobody who notes a line waits for a disk or a network, whatever these do ([`Audit::note`]).
//! - What waits is bounded. Lines for which there is no room are counted, and the next line that
//!   goes out in their place says how many there were. So a gap is a line.
//! - Each destination has its own queue, thread and chain: one that does not answer takes nothing
//!   from another.
//! - Refusals of one caller take no room from acts: so many of them in a minute have lines, and one
//!   line counts the rest ([`flood`]).
//!
//! What it cannot show: that lines at the end were cut off while the daemon was down, and a chain
//! that somebody with all rights wrote anew. The lines at the other destination do.

mod destination;
mod file;
mod flood;
mod line;
mod queue;
mod settings;
mod syslog;
mod verify;

use std::sync::Arc;

use parking_lot::Mutex;

use destination::Destination;
use file::LogFile;
use flood::Flood;
use syslog::Syslog;

pub use line::{Entry, Kind};
pub use settings::{Settings, SyslogSettings};
pub use verify::{Broken, Verified, verify};

/// The audit of a daemon; by default nothing is audited.
#[derive(Debug, Default)]
pub struct Audit {
    destinations: Vec<Destination>,
    flood: Mutex<Flood>,
}

impl Audit {
    /// Begins to audit; `host` is the name of this machine.
    ///
    /// # Errors
    /// A thread cannot be started. A destination that does not work yet is tried again by itself.
    pub fn start(settings: &Settings, host: &str) -> std::io::Result<Audit> {
        let mut destinations = Vec::new();
        if let Some(path) = settings.file() {
            destinations.push(Destination::start("audit file", LogFile::new(path, host))?);
        }
        if let Some(of) = settings.syslog() {
            destinations.push(Destination::start("audit syslog", Syslog::new(of, host))?);
        }
        Ok(Audit { destinations, flood: Mutex::default() })
    }

    /// Notes a line. It goes out soon, and nobody waits for that.
    pub fn note(&self, entry: Entry) {
        if self.destinations.is_empty() {
            return;
        }
        let let_through = self.flood.lock().pass(entry, std::time::Instant::now());
        for entry in let_through.into_iter().map(Arc::new) {
            self.destinations.iter().for_each(|to| to.put(&entry));
        }
    }

    /// Lists each destination by its name, and why it does not work, if it does not.
    pub fn problems(&self) -> Vec<(&'static str, Option<String>)> {
        self.destinations.iter().map(|to| (to.name(), to.problem())).collect()
    }

    /// Ends it: what waits has a moment to go out. Later lines are lost.
    pub fn end(&self) {
        let rest = self.flood.lock().rest();
        for entry in rest.into_iter().map(Arc::new) {
            self.destinations.iter().for_each(|to| to.put(&entry));
        }
        self.destinations.iter().for_each(Destination::end);
    }
}
