//! What clients cause to be logged, told once a while: a client that is shut out asks again and
//! again, and a hostile one would fill the journal.
//!
//! Invariants:
//! - The first time of a client at an export is logged at once, further ones as a number by
//!   [`Refusals::report`].
//! - Memory is bounded: what does not fit is counted together. Who is let in pays nothing.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::limits::REFUSALS_MAX;

/// The refusals since the last report.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// How often after the first time.
    again: HashMap<(IpAddr, String, Why), u64>,
    others: u64,
}

/// What is said of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// No rule lets the client in.
    NotNamed,
    /// It comes from a port that everybody can use, and the export is `secure`.
    Port,
    /// It comes in the clear, or without a certificate, and the export asks for more (`xprtsec`).
    Unprotected,
    /// Names of hosts were never looked up with success.
    NamesUnknown,
    /// It has mounted an export.
    Mounted,
    /// Its connection was closed at once: there are too many.
    TooMany,
    /// Its connection was closed at once: its runtime is overloaded.
    Overloaded,
    /// Its connection ended, and not as it should.
    Ended(String),
}

impl Why {
    fn class(&self) -> &'static str {
        match self {
            Why::NotNamed | Why::Port | Why::Unprotected | Why::NamesUnknown => "client.refused",
            Why::Mounted => "client.mounted",
            Why::TooMany | Why::Overloaded => "client.turned_away",
            Why::Ended(_) => "client.disconnected",
        }
    }

    /// Whether somebody may have to do something about it.
    fn is_warning(&self) -> bool {
        !matches!(self, Why::Mounted | Why::Ended(_))
    }

    fn text(&self) -> &'static str {
        match self {
            Why::NotNamed | Why::Port | Why::Unprotected | Why::NamesUnknown => {
                "refused; `aquifer share why CLIENT EXPORT` says more"
            }
            Why::Mounted => "mounted",
            Why::TooMany | Why::Overloaded => "connection closed",
            Why::Ended(_) => "connection ended",
        }
    }

    /// The first time, or how often it came again.
    fn log(&self, client: IpAddr, export: &str, times: Option<u64>) {
        let (class, text) = (self.class(), self.text());
        let export = (!export.is_empty()).then_some(export);
        let why = self.to_string();
        match self.is_warning() {
            true => tracing::warn!(class, %client, export, why, times, "{text}"),
            false => tracing::info!(class, %client, export, why, times, "{text}"),
        }
    }
}

impl Refusals {
    pub fn note(&self, client: IpAddr, path: &str, why: Why) {
        let client = client.to_canonical();
        if self.is_first(client, path, why.clone()) {
            why.log(client, path, None);
        }
    }

    /// Logs what came after the first time, and begins anew for those who have stopped.
    pub fn report(&self) {
        let seen = &mut *self.seen.lock();
        seen.again.retain(|(client, path, why), times| {
            let times = std::mem::take(times);
            if times > 0 {
                why.log(*client, path, Some(times));
            }
            times > 0
        });
        let others = std::mem::take(&mut seen.others);
        if others > 0 {
            tracing::warn!(
                class = "client.refused",
                times = others,
                "many other clients were refused, or closed their connections"
            );
        }
    }

    fn is_first(&self, client: IpAddr, path: &str, why: Why) -> bool {
        let mut seen = self.seen.lock();
        let key = (client, path.to_owned(), why);
        if let Some(times) = seen.again.get_mut(&key) {
            *times += 1;
            return false;
        }
        if seen.again.len() >= REFUSALS_MAX {
            seen.others += 1;
            return false;
        }
        seen.again.insert(key, 0);
        true
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::NotNamed => "no rule of sharenfs lets it in",
            Why::Port => "it calls from a port above 1023, and sharenfs says secure",
            Why::Unprotected => "it comes without the TLS that the export asks for (xprtsec)",
            Why::NamesUnknown => "names of hosts in sharenfs could not be looked up yet",
            Why::Mounted => "a rule of sharenfs lets it in",
            Why::TooMany => "too many connections",
            Why::Overloaded => "its runtime is overloaded",
            Why::Ended(end) => end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn a_client_is_told_at_once_and_then_once_a_report() {
        let refusals = Refusals::default();
        let first = |path| refusals.is_first(client(1), path, Why::NotNamed);
        assert!(first("/a") && first("/b") && !first("/a") && !first("/a"));
        assert!(refusals.is_first(client(1), "/a", Why::Port));
        refusals.report();
        assert!(!first("/a"), "it goes on");
        assert!(first("/b"), "it had stopped");
        refusals.report();
        refusals.report();
        assert!(first("/a") && first("/b"));
    }

    #[test]
    fn memory_is_bounded() {
        let refusals = Refusals::default();
        let told = (0..10_000).filter(|n| refusals.is_first(client(*n), "/a", Why::NotNamed));
        assert_eq!(told.count(), REFUSALS_MAX);
        let seen = refusals.seen.lock();
        assert_eq!(seen.again.len(), REFUSALS_MAX);
        assert_eq!(seen.others, 10_000 - u64::try_from(REFUSALS_MAX).unwrap());
    }
}
