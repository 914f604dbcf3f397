//! The daemon's counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::connection::Budgets;

/// Counters of all runtimes. Connections update them once a turn, not once a request.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub connections: AtomicUsize,
    /// Of these, the ones in the lobby.
    pub in_lobby: Arc<AtomicUsize>,
    pub accepted: AtomicU64,
    pub turned_away: AtomicU64,
    pub accept_failures: AtomicU64,
    pub requests: AtomicU64,
    pub requests_waited: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub closed_as_slow: AtomicU64,
    pub protocol_errors: AtomicU64,
    pub panics: AtomicU64,
}

/// The daemon's present state and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connections that are open.
    pub connections: usize,
    /// Of these, the ones whose calls no export takes as they come.
    pub in_lobby: usize,
    /// Connections since the start.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub turned_away: u64,
    /// How often the system could not hand over a waiting connection: no file or no memory was
    /// left.
    pub accept_failures: u64,
    /// Requests that were begun.
    pub requests: u64,
    /// Those of them that could not be answered at once.
    pub requests_waited: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Connections closed because their slowness delayed others, or because nothing moved any more.
    pub closed_as_slow: u64,
    /// Connections closed because they sent something other than RPC.
    pub protocol_errors: u64,
    /// Requests that panicked: bugs of ours.
    pub panics: u64,
    /// Bytes that are leased for requests.
    pub request_bytes: usize,
    /// Bytes that are leased for replies.
    pub reply_bytes: usize,
    /// How often a connection had to wait for memory of either.
    pub memory_waits: u64,
    /// Both would have more if the process might take more.
    pub is_bound: bool,
}

impl Stats {
    pub(crate) fn load(&self, budgets: &Budgets) -> Load {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Load {
            connections: self.connections.load(Ordering::Relaxed),
            in_lobby: self.in_lobby.load(Ordering::Relaxed),
            accepted: read(&self.accepted),
            turned_away: read(&self.turned_away),
            accept_failures: read(&self.accept_failures),
            requests: read(&self.requests),
            requests_waited: read(&self.requests_waited),
            received_bytes: read(&self.received_bytes),
            sent_bytes: read(&self.sent_bytes),
            closed_as_slow: read(&self.closed_as_slow),
            protocol_errors: read(&self.protocol_errors),
            panics: read(&self.panics),
            request_bytes: budgets.reads.held_bytes() + budgets.records.held_bytes(),
            reply_bytes: budgets.replies.held_bytes(),
            memory_waits: budgets.waits(),
            is_bound: budgets.is_bound,
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
