//! Turns: acts on one pool run one after the other. Pools know nothing of each other's.
//!
//! # Invariants
//! - An act waits for disks only while it has the turn of their pool. It waits for nothing else
//!   then that another pool's disks could hold up: what all pools share (the list, what clients are
//!   offered) is held for moments.
//! - An act has one turn, so no two wait for each other.
//! - Nobody waits for the turn of a pool whose disks do not answer: who waits hears which disks
//!   these are, and which act waits for them, and nothing was done.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_api::ApiError;
use aquifer_files::subject::{FileSnapshotNames, pools};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::{sleep, timeout};

use super::Control;
use super::serving::Serving;

/// Turns by the names of pools, in service or not.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Weak<Turn>>>);

/// The turn of a pool.
#[derive(Debug, Default)]
pub(super) struct Turn {
    lock: Arc<AsyncMutex<()>>,
    /// The act that has it, in words.
    act: Mutex<Option<String>>,
}

/// An act has the turn of a pool, as long as this lives.
#[derive(Debug)]
pub struct Held {
    turn: Arc<Turn>,
    _guard: OwnedMutexGuard<()>,
}

impl Turns {
    /// That of a pool.
    pub fn of(&self, pool: &str) -> Arc<Turn> {
        let mut turns = self.0.lock();
        if let Some(turn) = turns.get(pool).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        turns.insert(pool.into(), Arc::downgrade(&turn));
        turn
    }

    /// The pools whose turns acts have, or wait for.
    pub fn pools(&self) -> Vec<String> {
        let turns = self.0.lock();
        let used = turns.iter().filter(|(_, turn)| turn.strong_count() > 0);
        used.map(|(pool, _)| pool.clone()).collect()
    }
}

impl Turn {
    /// Waits for it, however long that takes.
    pub async fn take(self: &Arc<Self>, act: &str) -> Held {
        let guard = Arc::clone(&self.lock).lock_owned().await;
        *self.act.lock() = Some(act.into());
        Held { turn: Arc::clone(self), _guard: guard }
    }

    /// Takes it, if nobody has it.
    pub fn try_take(self: &Arc<Self>, act: &str) -> Option<Held> {
        let guard = Arc::clone(&self.lock).try_lock_owned().ok()?;
        *self.act.lock() = Some(act.into());
        Some(Held { turn: Arc::clone(self), _guard: guard })
    }

    /// The act that has it.
    pub fn act(&self) -> Option<String> {
        self.act.lock().clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the guard goes: the next one writes its own.
        *self.turn.act.lock() = None;
    }
}

impl Control {
    /// The pool of a dataset, a snapshot, or a file in one. Its name may have colons, as may what
    /// comes behind it.
    pub(super) fn pool_of_one(&self, text: &str) -> Result<Arc<Serving>, ApiError> {
        let mut all = pools(text).map(|name| self.serving(name));
        // The longest name says what is missing.
        let longest = all.next().unwrap_or_else(|| self.serving(text));
        longest.or_else(|error| all.find_map(Result::ok).ok_or(error))
    }

    /// The pool of all these snapshots.
    pub(super) fn pool_of_all(&self, names: &[String]) -> Result<Arc<Serving>, ApiError> {
        let first = names.first().ok_or_else(|| ApiError::invalid("no snapshot is named"))?;
        let serving = self.pool_of_one(first)?;
        for other in names {
            if self.pool_of_one(other)?.name() != serving.name() {
                return Err(ApiError::invalid(format!(
                    "{first:?} and {other:?} are in two pools: a command acts on all snapshots at \
                     one moment, which two pools do not have"
                )));
            }
        }
        Ok(serving)
    }

    /// The pool of snapshots of files, if a text names some.
    pub(super) fn pool_of_files(&self, text: &str) -> Option<Arc<Serving>> {
        let serving = self.pool_of_one(text).ok()?;
        FileSnapshotNames::parse(&serving.service().datasets, text).ok()?;
        Some(serving)
    }
}

impl Control {
    /// The turn of an act on a pool of this name, which may be in service or not. Releases disks
    /// that left the pool meanwhile.
    ///
    /// # Errors
    /// The daemon is stopping; or another act waits for disks that do not answer.
    pub(super) async fn turn(&self, pool: &str, act: &str) -> Result<Held, ApiError> {
        let held = self.take_turn(&self.turns, (pool, act)).await?;
        self.check_goes_on()?;
        if let Ok(serving) = self.serving(pool)
            && serving.silent().is_none()
        {
            self.release_left(&serving).await;
        }
        Ok(held)
    }

    /// The turn of an act that needs the disks of a pool in service, and the pool.
    ///
    /// # Errors
    /// As [`Control::turn`]; it is not in service, or its disks do not answer.
    pub(super) async fn act(
        &self,
        pool: &str,
        act: &str,
    ) -> Result<(Held, Arc<Serving>), ApiError> {
        let held = self.turn(pool, act).await?;
        self.check_answers(pool)?;
        Ok((held, self.serving(pool)?))
    }

    /// As [`Control::act`], for the pool that the name of a dataset begins with.
    pub(super) async fn act_of(
        &self,
        dataset: &str,
        act: &str,
    ) -> Result<(Held, Arc<Serving>), ApiError> {
        self.act(dataset.split('/').next().unwrap_or_default(), act).await
    }

    /// As [`Control::act`], for the pool of a dataset, a snapshot, or a file in one.
    pub(super) async fn act_of_one(
        &self,
        name: &str,
        act: &str,
    ) -> Result<(Held, Arc<Serving>), ApiError> {
        self.check_goes_on()?;
        let pool = name_of(self.pool_of_one(name)?);
        self.act(&pool, act).await
    }

    /// As [`Control::act`], for the pool of all these snapshots.
    pub(super) async fn act_of_all(
        &self,
        names: &[String],
        act: &str,
    ) -> Result<(Held, Arc<Serving>), ApiError> {
        self.check_goes_on()?;
        let pool = name_of(self.pool_of_all(names)?);
        self.act(&pool, act).await
    }

    /// Waits for the turn of a pool, as long as its disks answer.
    pub(super) async fn take_turn(
        &self,
        turns: &Turns,
        (pool, act): (&str, &str),
    ) -> Result<Held, ApiError> {
        let turn = turns.of(pool);
        tokio::select! {
            biased;
            held = turn.take(act) => Ok(held),
            disks = self.unanswered(pool) => Err(not_done(pool, &disks, turn.act())),
        }
    }

    /// Waits until the disks of the pool of this name do not answer. Returns their paths. Keeps no
    /// pool in service.
    pub async fn unanswered(&self, pool: &str) -> Vec<String> {
        loop {
            if let Some(disks) = self.serving(pool).ok().and_then(|serving| serving.silent()) {
                return disks;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Fails if the disks of a pool in service do not answer.
    pub(super) fn check_answers(&self, pool: &str) -> Result<(), ApiError> {
        let disks = self.serving(pool).ok().and_then(|serving| serving.silent());
        disks.map_or(Ok(()), |disks| Err(not_done(pool, &disks, None)))
    }

    /// Waits until the disks of a pool in service answer.
    ///
    /// # Errors
    /// They do not for so long.
    pub(super) async fn until_it_answers(
        &self,
        pool: &str,
        patience: Duration,
    ) -> Result<(), ApiError> {
        let answers = async {
            while self.check_answers(pool).is_err() {
                sleep(LOOK_EVERY).await;
            }
        };
        match timeout(patience, answers).await {
            Ok(()) => Ok(()),
            Err(_) => self.check_answers(pool),
        }
    }

    /// Fails once the daemon is stopping.
    pub(super) fn check_goes_on(&self) -> Result<(), ApiError> {
        match self.is_stopping.load(Ordering::Acquire) {
            true => Err(ApiError::conflict("the daemon is stopping")),
            false => Ok(()),
        }
    }

    /// Makes the error for a caller whose act was begun, and waits for disks that do not answer.
    pub fn under_way(&self, pool: &str, disks: &[String]) -> ApiError {
        ApiError::failed(format!(
            "{}. It was begun, goes on if they answer, and may still be done: `aquifer pool \
             history {pool}` shows its end. {}",
            silence(pool, disks),
            way_out(pool)
        ))
    }
}

/// The name of a pool. Nobody keeps a pool in service while waiting for its turn: an export that
/// has the turn would wait for that in vain.
pub(super) fn name_of(serving: Arc<Serving>) -> String {
    serving.name().into()
}

/// An act does not begin, because disks do not answer.
fn not_done(pool: &str, disks: &[String], waiting: Option<String>) -> ApiError {
    let waits = waiting.map(|act| format!(", and `{act}` waits for them")).unwrap_or_default();
    let (silence, way_out) = (silence(pool, disks), way_out(pool));
    ApiError::conflict(format!("{silence}{waits}: nothing was done. {way_out}"))
}

fn silence(pool: &str, disks: &[String]) -> String {
    match disks {
        [] => format!("pool {pool:?}: its disks do not answer"),
        disks => format!("pool {pool:?}: its disks do not answer ({})", disks.join(", ")),
    }
}

fn way_out(pool: &str) -> String {
    format!(
        "The pool goes on when they answer; `aquifer pool export --force {pool}` takes it out of \
         service without them"
    )
}

/// How often somebody who waits looks whether the disks answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pools_have_turns_of_their_own_and_none_stays() {
        let turns = Turns::default();
        let held = turns.of("tank").take("create tank/a").await;
        assert!(turns.of("tank").try_take("set").is_none());
        assert_eq!(turns.of("tank").act().unwrap(), "create tank/a");
        let other = turns.of("dozer").try_take("set").unwrap();
        let mut pools = turns.pools();
        pools.sort();
        assert_eq!(pools, ["dozer", "tank"]);
        drop((held, other));
        assert!(turns.pools().is_empty());
        assert_eq!(turns.of("tank").act(), None);
        assert!(turns.of("tank").try_take("set").is_some());
    }
}
