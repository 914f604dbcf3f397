//! Clients go before strangers.
//!
//! A datastore's network has others on it, and what they send costs the server work before it can
//! be refused: a connection, a handshake, a call. That work is done on threads that yield to those
//! that serve clients. So who is no client competes for what clients leave over, and for the
//! kernel's own work.

use rustix::process::{getpriority_process, setpriority_process};

use crate::limits::YIELDING_NICE;

/// Makes the calling thread one that yields to the others of this process. (On Linux each thread
/// has a nice value of its own: setpriority(2), "C library/kernel differences".)
pub fn yield_to_clients() {
    let own = getpriority_process(None);
    if let Err(error) = own.and_then(|own| setpriority_process(None, own + YIELDING_NICE)) {
        tracing::warn!(%error, "work for strangers has the same priority as that for clients");
    }
}
