//! Pools without their disks come back by themselves.
//!
//! Two kinds of pools are looked for: those that were suspended because disks failed them, and
//! those that the start could not import, whatever the reason was. The disks are looked at at
//! growing intervals, and at once on request. When enough of them are there, a suspended pool's old
//! instance ends, and the pool is imported as after `kill -9`.
//!
//! # Invariants
//! - A suspended pool comes back only with, of each vdev, a disk that held everything when it was
//!   suspended, and that no other host has used since. Its list entry keeps who that was, also for
//!   the next start. Before an import that does without some of them, these are struck from it.
//! - A disk is imported only when nothing of the old instance can change it any more.
//! - The old instance answers reads until its disks are back. From then on clients get an
//!   answer that lets them ask again later, until the new one is in service.
//! - No act waits for a disk here. A pool that was exported meanwhile does not come back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{ApiError, guid_of};
use aquifer_ondisk::Guid;
use aquifer_pool::import::FoundLeaf;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::serving::{Remnant, Serving, close};
use super::whole::{Enough, enough, whole_note};
use super::{Control, Listed, State};
use crate::cache::CachedPool;
use crate::devices::{Sought, Unanswered, all_paths, claim, search_patiently};

/// The pools that are looked for.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// By guid.
    looks: Mutex<BTreeMap<String, Looks>>,
    unanswered: Unanswered,
    /// Somebody wants a look at once.
    wanted: Notify,
    /// Remnants of old instances.
    remnants: Mutex<Vec<Remnant>>,
}

/// The looks for one pool.
#[derive(Debug)]
struct Looks {
    next: Instant,
    pause: Duration,
    is_under_way: bool,
    /// Since when it could be imported without some disks.
    short_since: Option<Instant>,
    /// It was asked for: what is not there is not waited for.
    is_asked: bool,
    /// Since when the pool is in service again.
    back: Option<Instant>,
    /// Text for people that says what it waits for.
    waits: String,
}

impl Looks {
    fn new() -> Looks {
        Looks {
            next: Instant::now() + LOOK_FIRST,
            pause: LOOK_FIRST,
            is_under_way: false,
            short_since: None,
            is_asked: false,
            back: None,
            waits: String::new(),
        }
    }

    /// Nothing came of a look. The next one follows; while only some disks are late, soon.
    fn again(&mut self) {
        self.is_under_way = false;
        self.is_asked = false;
        let pause = if self.short_since.is_some() { LOOK_FIRST } else { self.pause };
        self.next = Instant::now() + pause;
        self.pause = LOOK_MAX.min(self.pause * 2);
    }
}

impl Control {
    /// Looks for pools without their disks, as long as the daemon runs.
    pub async fn look_for_disks(self: &Arc<Self>) {
        loop {
            for listed in self.due() {
                let control = Arc::clone(self);
                tokio::spawn(async move { control.look(listed).await });
            }
            tokio::select! {
                () = sleep(TICK) => {}
                () = self.awaited.wanted.notified() => {}
            }
        }
    }

    /// Returns what a pool waits for, if it is looked for.
    pub(super) fn waits_for(&self, guid: &str) -> Option<String> {
        let looks = self.awaited.looks.lock();
        let waits = looks.get(guid).filter(|looks| looks.back.is_none())?.waits.clone();
        Some(waits).filter(|waits| !waits.is_empty())
    }

    /// From now on the pool is looked for.
    pub(super) fn await_disks(&self, guid: &str) {
        self.awaited.looks.lock().entry(guid.into()).or_insert_with(Looks::new);
    }

    /// Looks for a pool at once, if it is without its disks. Whether that is so.
    pub(super) fn look_at_once(&self, listed: &Listed) -> bool {
        let is_without = match &listed.state {
            State::Unavail(_) => true,
            State::Serving(serving) => serving.service().pool.may_come_back(),
            State::Importing => false,
        };
        if is_without {
            let mut all = self.awaited.looks.lock();
            let looks = all.entry(listed.cached.guid.clone()).or_insert_with(Looks::new);
            (looks.next, looks.pause) = (Instant::now(), LOOK_FIRST);
            (looks.is_asked, looks.back) = (true, None);
            self.awaited.wanted.notify_one();
        }
        is_without
    }

    /// Keeps what is left of an old instance in view.
    pub(super) fn note_remnant(&self, remnant: Remnant) {
        let mut remnants = self.awaited.remnants.lock();
        remnants.retain(|remnant| !remnant.holds().is_empty());
        remnants.push(remnant);
    }

    /// Disks that have not answered a search.
    pub(super) fn unanswered_disks(&self) -> &Unanswered {
        &self.awaited.unanswered
    }

    /// Lists the remnants of old instances that still hold disks.
    pub(super) fn remnants(&self) -> Vec<Remnant> {
        let remnants = self.awaited.remnants.lock();
        remnants.iter().filter(|remnant| !remnant.holds().is_empty()).cloned().collect()
    }

    /// The pools whose next look is due. The caller begins it.
    fn due(&self) -> Vec<Listed> {
        let pools = self.pools.read().clone();
        let mut all = self.awaited.looks.lock();
        all.retain(|guid, _| pools.values().any(|listed| listed.cached.guid == *guid));
        let (now, mut due, mut suspended) = (Instant::now(), Vec::new(), Vec::new());
        for listed in pools.into_values() {
            let guid = &listed.cached.guid;
            match &listed.state {
                State::Serving(serving) if serving.service().pool.may_come_back() => {
                    let looks = all.entry(guid.clone()).or_insert_with(Looks::new);
                    if let Some(back) = looks.back.take() {
                        // One that fails again at once is not tried without a pause.
                        match now - back > LOOK_MAX {
                            true => *looks = Looks::new(),
                            false => looks.again(),
                        }
                    }
                }
                State::Unavail(_) => {}
                State::Importing | State::Serving(_) => continue,
            }
            let Some(looks) = all.get_mut(guid) else { continue };
            if let State::Serving(serving) = &listed.state
                && listed.cached.whole.is_none()
            {
                suspended.push((listed.cached.clone(), Arc::clone(serving)));
            } else if looks.next <= now && !looks.is_under_way {
                looks.is_under_way = true;
                due.push(listed);
            }
        }
        drop(all);
        suspended.into_iter().for_each(|(cached, serving)| self.note_whole(cached, serving));
        due
    }

    /// A pool has just been suspended: notes the disks that hold everything, for the next start
    /// too.
    fn note_whole(&self, cached: CachedPool, serving: Arc<Serving>) {
        let whole = Some(whole_note(&serving.service().pool));
        self.put(CachedPool { whole, ..cached }, State::Serving(serving));
        if let Err(error) = self.store() {
            tracing::warn!(%error, "the next start does not know that a pool was suspended");
        }
    }

    /// One look for the disks of a pool, and the import if enough of them are there.
    async fn look(self: Arc<Self>, listed: Listed) {
        let cached = &listed.cached;
        let leaves = self.find(cached).await;
        let waits = match leaves {
            Ok(leaves) => match enough(&leaves, cached, self.host.id) {
                Enough::All => return self.bring_in(listed, leaves).await,
                Enough::Some if self.waited_enough(&cached.guid) => {
                    return self.bring_in(listed, leaves).await;
                }
                Enough::Some => "its other disks, for a moment".into(),
                Enough::No(waits) => waits,
            },
            Err(why) => why,
        };
        self.note_waits(&listed, waits);
    }

    /// Whether missing disks that the pool can do without were waited for long enough.
    fn waited_enough(&self, guid: &str) -> bool {
        let mut all = self.awaited.looks.lock();
        let Some(looks) = all.get_mut(guid) else { return true };
        let since = *looks.short_since.get_or_insert_with(Instant::now);
        let patience = self.config.wait_for_disks.min(SHORT_PATIENCE);
        looks.is_asked || since.elapsed() >= patience
    }

    fn note_waits(&self, listed: &Listed, waits: String) {
        let Listed { cached, state } = listed;
        {
            let mut all = self.awaited.looks.lock();
            let Some(looks) = all.get_mut(&cached.guid) else { return };
            looks.again();
            if looks.waits == waits {
                return;
            }
            looks.waits.clone_from(&waits);
        }
        let pool = &cached.name;
        tracing::info!(class = "pool.awaited", %pool, waits, "a pool waits for disks");
        if let State::Unavail(_) = state
            && self.is_listed(listed)
        {
            self.put(cached.clone(), State::Unavail(waits));
        }
    }

    /// Whether the pool is still on the list, in this state.
    fn is_listed(&self, listed: &Listed) -> bool {
        let pools = self.pools.read();
        let now = pools.get(&listed.cached.name);
        now.is_some_and(|now| {
            now.cached.guid == listed.cached.guid && now.state.is_same(&listed.state)
        })
    }

    /// The disks of a pool: those on the list, else those in all usual places.
    async fn find(&self, cached: &CachedPool) -> Result<Vec<FoundLeaf>, String> {
        let Some(guid) = guid_of(&cached.guid).map(Guid) else {
            return Err(format!("a pool whose guid is {:?}", cached.guid));
        };
        let mut known = cached.disks.clone();
        let there = known.iter().filter(|path| path.exists()).cloned().collect();
        let unanswered = &self.awaited.unanswered;
        let mut found = search_patiently(Sought::Places(there), unanswered).await;
        let leaves = found.pools.get(&guid).map(Vec::as_slice).unwrap_or_default();
        if enough(leaves, cached, self.host.id) != Enough::All {
            known.extend(all_paths(leaves));
            known.sort();
            known.dedup();
            found = search_patiently(Sought::Usual(known), unanswered).await;
        }
        if found.pools.contains_key(&guid) {
            found.pool(&cached.guid).map_err(|error| error.message)?;
        }
        Ok(found.pools.remove(&guid).unwrap_or_default())
    }

    /// Ends the old instance, if there is one, and imports the pool on these disks.
    async fn bring_in(&self, listed: Listed, leaves: Vec<FoundLeaf>) {
        let (taken, cached) = match self.prepare(leaves, &listed.cached) {
            Ok(prepared) => prepared,
            Err(error) => return self.note_waits(&listed, error.message),
        };
        let disks: Vec<(Guid, PathBuf)> = taken
            .iter()
            .map(|leaf| (leaf.labels.label.leaf_guid, PathBuf::from(&leaf.disk.path)))
            .collect();
        drop(taken);
        if self.take_out(listed, &cached).await
            && let Some(paths) = self.ended(&cached, disks).await
        {
            let imported = self.import_again(&cached, paths).await;
            self.put_in(cached, imported).await;
        }
    }

    /// The old instance gives way: nobody must hold it any more. Not if the pool is in another
    /// state by now.
    async fn take_out(&self, listed: Listed, cached: &CachedPool) -> bool {
        let Ok(act) = self.turn(&cached.name, "a pool comes back").await else { return false };
        if !self.is_listed(&listed) {
            return false;
        }
        self.put(cached.clone(), State::Importing);
        if let Err(error) = self.store() {
            // An import now could leave disks behind that the list still counts as whole.
            self.put(listed.cached.clone(), listed.state.clone());
            drop(act);
            self.note_waits(&listed, error.to_string());
            return false;
        }
        if let State::Serving(serving) = listed.state {
            self.refresh_exports().await;
            self.note_remnant(serving.leave());
        }
        true
    }

    /// Waits until nothing of an old instance can change the disks that the import needs. Returns
    /// the paths of all that it can have: one that is outdated anyway is not waited for. `None` for
    /// a pool that is off the list meanwhile.
    async fn ended(
        &self,
        cached: &CachedPool,
        disks: Vec<(Guid, PathBuf)>,
    ) -> Option<Vec<PathBuf>> {
        let is_needed = |guid: Guid| {
            let whole = cached.whole.as_ref();
            whole.is_none_or(|whole| whole.vdevs.iter().flatten().any(|disk| disk.is(guid)))
        };
        let is_held = |guid: Guid| self.remnants().iter().any(|remnant| remnant.holds_any(&[guid]));
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            let needs_more = disks.iter().any(|(guid, _)| is_needed(*guid) && is_held(*guid));
            let is_late = disks.iter().any(|(guid, _)| is_held(*guid));
            if !needs_more && (!is_late || begun.elapsed() > LOOK_FIRST) {
                let free = disks.into_iter().filter(|(guid, _)| !is_held(*guid));
                return Some(free.map(|(_, path)| path).collect());
            }
            if !self.is_importing(cached) {
                return None;
            }
            if begun.elapsed() > LOOK_MAX && !is_told {
                is_told = true;
                tracing::warn!(
                    class = "pool.awaited", pool = %cached.name,
                    "disks of a suspended pool have not answered what they were given before"
                );
            }
            sleep(END_POLL).await;
        }
    }

    pub(super) fn is_importing(&self, cached: &CachedPool) -> bool {
        self.is_listed(&Listed { cached: cached.clone(), state: State::Importing })
    }

    async fn import_again(
        &self,
        cached: &CachedPool,
        paths: Vec<PathBuf>,
    ) -> Result<Serving, ApiError> {
        let guid = guid_of(&cached.guid).map(Guid).unwrap_or_default();
        let claimed = claim(guid, paths).await?;
        // Until now others could write them.
        if let Enough::No(waits) = enough(&claimed.leaves, cached, self.host.id) {
            close(claimed.disks).await;
            return Err(ApiError::conflict(waits));
        }
        Serving::bring_up(&cached.name, claimed, (self.import_options(), self.config.host_limits))
            .await
    }

    /// A pool is in service again, or was not imported.
    async fn put_in(&self, cached: CachedPool, imported: Result<Serving, ApiError>) {
        let act = self.turn(&cached.name, "a pool comes back").await;
        let is_wanted = act.is_ok() && self.is_importing(&cached);
        match imported {
            Ok(serving) if is_wanted => {
                let notes = serving.import_notes().to_vec();
                self.note_disks(&Arc::new(serving));
                if let Err(error) = self.store() {
                    tracing::warn!(%error, "the list of pools is not up to date");
                }
                self.refresh_exports().await;
                tracing::info!(
                    class = "pool.resumed", pool = %cached.name, ?notes,
                    "a pool's disks are back, and it is in service again"
                );
                if let Some(looks) = self.awaited.looks.lock().get_mut(&cached.guid) {
                    (looks.is_under_way, looks.is_asked) = (false, false);
                    (looks.back, looks.short_since) = (Some(Instant::now()), None);
                    looks.waits.clear();
                }
            }
            // It was exported by force, or the daemon stops.
            Ok(serving) => {
                let serving = Arc::new(serving);
                if let Some(error) = serving.export().await {
                    tracing::error!(pool = %cached.name, %error, "pool not exported cleanly");
                }
                close(serving.let_go().await).await;
            }
            Err(error) if is_wanted => {
                let listed = Listed { cached, state: State::Unavail(error.message.clone()) };
                self.put(listed.cached.clone(), listed.state.clone());
                self.note_waits(&listed, error.message);
            }
            Err(_) => {}
        }
    }
}

impl State {
    fn is_same(&self, other: &State) -> bool {
        match (self, other) {
            (State::Importing, State::Importing) | (State::Unavail(_), State::Unavail(_)) => true,
            (State::Serving(one), State::Serving(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// How often it is looked whether a pool is without its disks.
const TICK: Duration = Duration::from_millis(500);
/// From the loss of the disks to the first look.
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// Longest time between two looks, each of which may open all disks of the machine.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// How long disks are waited for that the pool can do without. Clients wait, too: less than
/// half of the 35 s of an ESXi lock.
const SHORT_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks whether an old instance has ended.
const END_POLL: Duration = Duration::from_millis(20);
