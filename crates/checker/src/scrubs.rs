//! Scrubs, as an act of the administrator. One is started, paused, resumed and stopped beside
//! clients, cuts hit it, and it goes on by itself after a restart.
//!
//! What an act answered is there after a cut: the same scrub, in the state in which the act left
//! it, and no further back. A scrub that is active may have ended by itself meanwhile. Each vdev
//! keeps a good side, so no scrub loses anything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_files::{ScrubError, Service};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_sim::Rng;

/// The administrator's knowledge of the newest scrub.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scrubs(Arc<Mutex<Known>>);

#[derive(Debug, Clone, Copy, Default)]
enum Known {
    /// There never was one.
    #[default]
    Never,
    /// An act was under way.
    Unknown,
    /// Durable state of the scrub.
    Was(Scrub),
}

#[derive(Debug, Clone, Copy)]
struct Scrub {
    begun: Time,
    state: ScrubState,
    position: WalkPosition,
}

/// Act of an administrator on a scrub.
#[derive(Debug, Clone, Copy)]
enum Act {
    Start,
    Pause,
    Stop,
}

/// Longest time between two acts.
const REST_MS_MAX: u64 = 60;

/// Longest time in which a scrub of these small pools ends.
const END: Duration = Duration::from_secs(600);

impl Scrubs {
    /// The pool went back to an older state: nothing is known.
    pub(crate) fn forget(&self) {
        self.note(Known::Unknown);
    }

    fn note(&self, known: Known) {
        *self.0.lock().unwrap() = known;
    }

    /// Checks the newest scrub after a restart.
    ///
    /// # Errors
    /// It contradicts the knowledge.
    pub(crate) fn check(&self, service: &Service) -> Result<(), String> {
        let found = service.files.scrub_status();
        let known = *self.0.lock().unwrap();
        let fits = match (known, &found) {
            (Known::Never, found) => found.is_none(),
            (Known::Unknown, _) => true,
            (Known::Was(_), None) => false,
            (Known::Was(was), Some(found)) => {
                let by_itself =
                    was.state == ScrubState::Active && found.state == ScrubState::Finished;
                was.begun == found.begun
                    && was.position <= found.position
                    && (was.state == found.state || by_itself)
            }
        };
        if !fits {
            return Err(format!("scrub: found {found:?}, known {known:?}"));
        }
        let Some(found) = found else { return Ok(()) };
        loses_nothing(&found)?;
        // What it did since the import may not be durable yet.
        let state = match found.state {
            ScrubState::Finished => ScrubState::Active,
            other => other,
        };
        let position = match known {
            Known::Was(was) => was.position,
            Known::Never | Known::Unknown => WalkPosition::default(),
        };
        self.note(Known::Was(Scrub { begun: found.begun, state, position }));
        Ok(())
    }

    /// Acts that often.
    ///
    /// # Errors
    /// An act did what it must not.
    pub(crate) async fn administer(
        &self,
        service: &Service,
        mut rng: Rng,
        acts: u64,
    ) -> Result<(), String> {
        for _ in 0..acts {
            let rest = Duration::from_millis(rng.below(REST_MS_MAX));
            service.pool.world().sleep(rest).await;
            let act = [Act::Start, Act::Start, Act::Pause, Act::Stop][rng.index(4)];
            self.act(service, act).await?;
        }
        Ok(())
    }

    async fn act(&self, service: &Service, act: Act) -> Result<(), String> {
        // It is carried out at once, and then waits for the disk.
        let before = service.files.scrub_status();
        before.iter().try_for_each(loses_nothing)?;
        let state = before.map(|record| record.state);
        let (is_active, is_paused) =
            (state == Some(ScrubState::Active), state == Some(ScrubState::Paused));
        let wanted = match act {
            Act::Start if is_active => Err(ScrubError::Active),
            Act::Pause if !is_active => Err(ScrubError::NotActive),
            Act::Stop if !is_active && !is_paused => Err(ScrubError::NotActive),
            _ => Ok(()),
        };
        let known = *self.0.lock().unwrap();
        self.note(Known::Unknown);
        let done = match act {
            Act::Start => service.files.start_scrub().await,
            Act::Pause => service.files.end_scrub(true).await,
            Act::Stop => service.files.end_scrub(false).await,
        };
        if let Err(error @ ScrubError::Pool(_)) = &done {
            return Err(format!("administrator: {act:?} of a scrub: {error}"));
        }
        if done != wanted {
            return Err(format!("{act:?} of a scrub: {done:?}, with {before:?}"));
        }
        if done.is_err() {
            self.note(known);
            return Ok(());
        }
        let after = service.files.scrub_status().ok_or("a scrub without a record")?;
        let goes_on = before.filter(|_| is_active || is_paused);
        if goes_on.is_some_and(|before| before.begun != after.begun) {
            return Err(format!("{act:?} of a scrub: {before:?}, then {after:?}"));
        }
        let state = match act {
            Act::Start => ScrubState::Active,
            Act::Pause => ScrubState::Paused,
            Act::Stop => ScrubState::Canceled,
        };
        let position = goes_on.map_or(WalkPosition::default(), |before| before.position);
        self.note(Known::Was(Scrub { begun: after.begun, state, position }));
        Ok(())
    }

    /// Lets a scrub go on to its end: the one that has begun, else a new one.
    ///
    /// # Errors
    /// It does not end, or has lost something.
    pub(crate) async fn finish(&self, service: &Service) -> Result<ScrubRecord, String> {
        let state = service.files.scrub_status().map(|record| record.state);
        if state != Some(ScrubState::Active) {
            self.act(service, Act::Start).await?;
        }
        let world = service.pool.world();
        let begun = world.now();
        while world.now() - begun < END {
            let record = service.files.scrub_status().ok_or("a scrub without a record")?;
            if record.state == ScrubState::Finished {
                return loses_nothing(&record).map(|()| record);
            }
            world.sleep(Duration::from_millis(10)).await;
        }
        Err(format!("a scrub does not end: {:?}", service.files.scrub_status()))
    }
}

fn loses_nothing(record: &ScrubRecord) -> Result<(), String> {
    match record.unreadable_blocks {
        0 => Ok(()),
        _ => Err(format!("a scrub found no copy: {record:?}")),
    }
}
