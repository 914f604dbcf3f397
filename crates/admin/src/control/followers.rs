//! Those that follow the events: one keeps them in pools, one notes in histories what pools do by
//! themselves, one tells people.
//!
//! # Invariants
//! - They miss nothing at the end of the daemon, whose tasks end first: what is left is handed over
//!   by the end itself, to pools before they are exported, to people after that.

use std::sync::Arc;

use aquifer_api::Event;

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
    /// Pools are told what has happened until now.
    pub(super) fn tell_pools_the_rest(&self) {
        let keep = |kept: &mut Kept, event: &Event| self.keep_event(kept, event);
        self.events.catch_up(&self.followers.keeps, keep);
        let note = |noted: &mut Noted, event: &Event| self.note_act(noted, event);
        self.events.catch_up(&self.followers.notes, note);
    }

    /// People are told what has happened until now, by this daemon or by the next one.
    pub(super) async fn tell_people_the_rest(&self) {
        self.events.catch_up(&self.followers.tells, |(), event| self.tell_event(event));
        let alerts = Arc::clone(&self.alerts);
        // It writes a file.
        let _ = tokio::task::spawn_blocking(move || alerts.end()).await;
    }
}
