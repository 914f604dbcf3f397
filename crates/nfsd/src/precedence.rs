//! Clients go before strangers.
//!
//! A datastore's network has other users, and their packets cost the server work before it can
//! refuse them: a connection, a handshake, a call. That work runs on threads that yield to those
//! that serve clients. So strangers compete for the processor time that clients leave, and for the
//! kernel's own work.

use rustix::process::{getpriority_process, setpriority_process};

use crate::limits::YIELDING_NICE;

/// Makes the calling thread yield to the others of this process. (On Linux each thread has a nice
/// value of its own: setpriority(2), "C library/kernel differences".)
pub fn yield_to_clients() {
    let own = getpriority_process(None);
    if let Err(error) = own.and_then(|own| setpriority_process(None, own + YIELDING_NICE)) {
        tracing::warn!(%error, "work for strangers has the same priority as that for clients");
    }
}
