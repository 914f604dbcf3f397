//! Log lines that clients cause, at a limited rate: a client that is shut out asks again and again,
//! and a hostile one would fill the journal.
//!
//! Invariants:
//! - The first refusal of a client at an export is logged at once. [`Refusals::report`] logs
//!   further ones as a number.
//! - For all clients together, [`TOLD_AT_ONCE_MAX`] lines are logged at once between two reports,
//!   and [`REPORTED_MAX`] in one: a machine may have as many addresses as it likes. Lines that only
//!   a client named by an export can cause have a limit of their own, so that strangers do not hide
//!   them.
//! - The bytes that a client sends never cause another line: only the kind of its end counts.
//! - Memory is bounded: refusals that do not fit are counted together. An admitted client costs
//!   nothing here.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::mem::{Discriminant, discriminant, take};
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::limits::{REFUSALS_MAX, REPORTED_MAX, TOLD_AT_ONCE_MAX};

/// The refusals since the last report: of strangers, and of clients that an export names.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    strangers: Mutex<Seen>,
    named: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Per client: the lines that were logged, or are still to be logged.
    each: HashMap<Key, Again>,
    /// Lines since the last report.
    told: usize,
    /// Refusals that did not fit.
    others: u64,
}

type Key = (IpAddr, String, Discriminant<Why>);

/// Counts repetitions that were not logged.
#[derive(Debug)]
struct Again {
    times: u64,
    /// The last reason.
    why: Why,
}

/// The reason for a line about a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// No rule lets the client in.
    NotNamed,
    /// It comes from a port that everybody can use, and the export is `secure`.
    Port,
    /// It comes in the clear, or without a certificate, and the export asks for more (`xprtsec`).
    Unprotected,
    /// Host names were never looked up successfully.
    NamesUnknown,
    /// It has mounted an export.
    Mounted,
    /// It has given up all its locks.
    GaveUp,
    /// Its connection was closed at once: there are too many.
    TooMany,
    /// Its connection was closed at once: the worker for it has ended.
    NoWorker,
    /// Its connection did not end properly.
    Ended(String),
}

impl Why {
    fn class(&self) -> &'static str {
        match self {
            Why::NotNamed | Why::Port | Why::Unprotected | Why::NamesUnknown => "client.refused",
            Why::Mounted => "client.mounted",
            Why::GaveUp => "locks.ended",
            Why::TooMany | Why::NoWorker => "client.turned_away",
            Why::Ended(_) => "client.disconnected",
        }
    }

    /// Whether only a client that an export names can cause it.
    fn is_of_named(&self) -> bool {
        matches!(self, Why::Mounted | Why::GaveUp | Why::Port | Why::Unprotected)
    }

    /// Whether somebody may have to act on it.
    fn is_warning(&self) -> bool {
        !matches!(self, Why::Mounted | Why::GaveUp | Why::Ended(_))
    }

    fn text(&self) -> &'static str {
        match self {
            Why::NotNamed | Why::Port | Why::Unprotected | Why::NamesUnknown => {
                "refused; `aquifer share why CLIENT EXPORT` says more"
            }
            Why::Mounted => "mounted",
            Why::GaveUp => "a client gives up all its locks",
            Why::TooMany | Why::NoWorker => "connection closed",
            Why::Ended(_) => "connection ended",
        }
    }

    /// Logs the first time, or the number of repetitions.
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
        if self.is_told(client, path, &why) {
            why.log(client, path, None);
        }
    }

    /// Logs what was not logged at once, and forgets the clients that have stopped.
    pub fn report(&self) {
        for of in [&self.named, &self.strangers] {
            let (reported, others) = of.lock().report();
            for ((client, path, _), Again { times, why }) in reported {
                why.log(client, &path, Some(times));
            }
            if others > 0 {
                tracing::warn!(
                    class = "client.refused",
                    times = others,
                    "more clients were refused, or closed their connections"
                );
            }
        }
    }

    /// Whether to log it at once. If not, it is counted.
    fn is_told(&self, client: IpAddr, path: &str, why: &Why) -> bool {
        let of = if why.is_of_named() { &self.named } else { &self.strangers };
        of.lock().is_told((client, path.to_owned(), discriminant(why)), why)
    }
}

impl Seen {
    fn is_told(&mut self, key: Key, why: &Why) -> bool {
        if let Some(again) = self.each.get_mut(&key) {
            again.times += 1;
            again.why.clone_from(why);
            return false;
        }
        if self.each.len() >= REFUSALS_MAX {
            self.others += 1;
            return false;
        }
        let is_told = self.told < TOLD_AT_ONCE_MAX;
        self.told += usize::from(is_told);
        self.each.insert(key, Again { times: u64::from(!is_told), why: why.clone() });
        is_told
    }

    /// The repetitions to log, most frequent first, and the number of those that did not fit. A
    /// client with repetitions is still known afterwards.
    fn report(&mut self) -> (Vec<(Key, Again)>, u64) {
        self.told = 0;
        let mut all = Vec::new();
        self.each.retain(|key, again| {
            let times = take(&mut again.times);
            if times > 0 {
                all.push((key.clone(), Again { times, why: again.why.clone() }));
            }
            times > 0
        });
        all.sort_by_key(|(_, again)| Reverse(again.times));
        let rest = all.split_off(all.len().min(REPORTED_MAX));
        let rest: u64 = rest.iter().map(|(_, again)| again.times).sum();
        (all, rest + take(&mut self.others))
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
            Why::GaveUp => "it says so (FREE_ALL)",
            Why::TooMany => "too many connections",
            Why::NoWorker => "the worker for it has ended; the log says why",
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
        let first = |path| refusals.is_told(client(1), path, &Why::NotNamed);
        assert!(first("/a") && first("/b") && !first("/a") && !first("/a"));
        assert!(refusals.is_told(client(1), "/a", &Why::Port));
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
        for number in 0..10_000 {
            refusals.is_told(client(number), "/a", &Why::NotNamed);
        }
        let seen = refusals.strangers.lock();
        assert_eq!(seen.each.len(), REFUSALS_MAX);
        assert_eq!(seen.others, 10_000 - u64::try_from(REFUSALS_MAX).unwrap());
    }

    /// A machine with many addresses, and one that makes up errors.
    #[test]
    fn strangers_fill_no_log_and_hide_nobody() {
        let refusals = Refusals::default();
        let ended = |text: u32| Why::Ended(format!("record of at least {text} bytes"));
        for _ in 0..3 {
            let mistakes = (0..1000).filter(|n| refusals.is_told(client(7), "", &ended(*n)));
            assert!(mistakes.count() <= 1, "each of its mistakes is told");
            let machines = (0..1000).filter(|n| refusals.is_told(client(*n), "", &ended(0)));
            assert!(machines.count() <= TOLD_AT_ONCE_MAX);
            assert!(refusals.is_told(client(1), "/a", &Why::Port), "an export names it");
            let (reported, others) = refusals.strangers.lock().report();
            assert_eq!(reported.len(), REPORTED_MAX);
            assert_eq!(reported[0].0.0, client(7), "most frequent first");
            let told = reported.iter().map(|(_, again)| again.times).sum::<u64>() + others;
            assert!(told > 1900, "all are counted: {told}");
            refusals.report();
            refusals.report();
        }
    }
}
