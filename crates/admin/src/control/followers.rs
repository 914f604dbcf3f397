//! Those that follow the events: one keeps them in pools, one notes in histories what pools do by
//! themselves, one tells people.
//!
//! # Invariants
//! - They miss nothing at the end of the daemon, whose tasks end first: what is left is handed over
//!   by the end itself, to pools before they are exported, to people after that.

use std::sync::Arc;

use super::Control;
use super::by_itself::Noted;
use super::kept_events::Kept;
use crate::events::Follower;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Followers {
    pub keeps: Follower<Kept>,
    pub notes: Follower<Noted>,
    pub tells: Follower<()>,
}

impl Control {
    /// Tells pools what has happened until now.
    pub(super) fn tell_pools_the_rest(&self) {
        self.keep_new_events();
        self.note_new_acts();
    }

    /// Tells people what has happened until now, or has the next daemon do so.
    pub(super) async fn tell_people_the_rest(&self) {
        self.tell_new_events();
        let alerts = Arc::clone(&self.alerts);
        // It writes a file.
        let _ = tokio::task::spawn_blocking(move || alerts.end()).await;
    }
}
