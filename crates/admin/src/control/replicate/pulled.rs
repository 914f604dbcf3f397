//! The server from which another one fetches copies: what that one's token may ask for.
//!
//! Invariants:
//! - All goes by the token's name: its snapshots and holds are those of a replication to a peer of
//!   that name ([`own`]). It takes away nothing else.
//! - It cannot fill the pool: of its snapshots that no copy has, [`PASSING_MAX`] are there of a
//!   dataset, and of those that it holds, [`COPIES_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aquifer_api::{
    ApiError, DatasetDone, DatasetName, PULLED_MAX, PrunePull, PullKnown, PullQuery, PullSource,
    PullTaken, SettlePull, SnapshotName, TakePull, time,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::{Control, Named, Scope};
use super::own::{self, Member, Own};
use super::target::{TAG_OF_COPY, Target, check_peer};

/// One that fetches copies, by the name of its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Puller(String);

/// Whether a token of this name may fetch copies: snapshots and holds bear its name.
///
/// # Errors
/// Why not.
pub fn check_puller(name: &str) -> Result<(), String> {
    check_peer(name)
}

impl Puller {
    /// The bearer of a token of this name.
    ///
    /// # Errors
    /// No snapshot can be called so.
    pub fn new(token: &str) -> Result<Puller, ApiError> {
        check_puller(token).map_err(ApiError::invalid)?;
        Ok(Puller(token.into()))
    }

    /// Its copy of a dataset.
    fn target(&self, copy: &str) -> Target {
        Target { peer: Some(self.0.clone()), dataset: copy.into() }
    }

    /// A dataset as its snapshots are known, whichever copy they go to.
    fn member(&self, dataset: &DatasetName) -> Member {
        let dataset = dataset.to_string();
        Member { target: self.target(&dataset), dataset }
    }
}

/// How often those that fetch copies ask for them.
#[derive(Debug, Default)]
pub(in super::super) struct Pulls {
    /// One takes snapshots at a time: they are counted before.
    taking: tokio::sync::Mutex<()>,
    /// Of each token: since when, and how often it took some.
    taken: Mutex<BTreeMap<String, (Instant, u32)>>,
    /// When the history had that a token fetches a dataset.
    noted: Mutex<BTreeMap<(String, String), Instant>>,
}

impl Pulls {
    fn check_pace(&self, puller: &Puller) -> Result<(), ApiError> {
        let mut taken = self.taken.lock();
        taken.retain(|_, (since, _)| since.elapsed() < PACE_SPAN);
        let (_, count) = taken.entry(puller.0.clone()).or_insert((Instant::now(), 0));
        *count += 1;
        match *count <= TAKES_MAX {
            true => Ok(()),
            false => Err(ApiError::conflict(format!(
                "token {} took snapshots {TAKES_MAX} times in a minute: fetch less often",
                puller.0
            ))),
        }
    }

    fn is_noted(&self, puller: &Puller, dataset: &DatasetName) -> bool {
        let mut noted = self.noted.lock();
        noted.retain(|_, at| at.elapsed() < NOTED_AGAIN_AFTER);
        let what = (puller.0.clone(), dataset.to_string());
        // Each token has places of its own: it keeps nobody else out of the history.
        let own = noted.keys().filter(|(token, _)| *token == puller.0).count();
        let is_known = noted.contains_key(&what) || own >= NOTED_MAX;
        !is_known && noted.insert(what, Instant::now()).is_none()
    }
}

impl Control {
    /// Lists the snapshots and bookmarks that a copy of a dataset may have too.
    ///
    /// # Errors
    /// There is no such dataset in the scope.
    pub fn pull_known(
        &self,
        query: &PullQuery,
        puller: &Puller,
        scope: &Scope,
    ) -> Result<PullSource, ApiError> {
        let dataset = query.dataset.as_str();
        self.check_named(scope, &[Named::Dataset(dataset.into())])?;
        let bytes: BTreeMap<String, u64> = own::snapshots(self, dataset)?
            .into_iter()
            .map(|of| (of.known.guid, of.refer_bytes))
            .collect();
        let known = |of: super::plan::Known| {
            let refer_bytes = bytes.get(&of.guid).copied().unwrap_or(0);
            let name = SnapshotName::try_from(of.name).ok()?;
            Some(PullKnown { name, bookmark: of.is_bookmark, guid: of.guid, refer_bytes })
        };
        let snapshots = own::known(self, dataset)?.into_iter().filter_map(known).collect();
        let standby = own::stands_by(self, dataset)?;
        Ok(PullSource { token: puller.0.clone(), standby, snapshots })
    }

    /// Whether the history is to have that a token fetches these datasets: once an hour, so that
    /// it does not push out what people did.
    pub fn is_pull_noted(&self, puller: &Puller, datasets: &[DatasetName]) -> bool {
        let is_there = |of: &&DatasetName| own::stands_by(self, of.as_str()).is_ok();
        let Some(first) = datasets.first().filter(is_there) else { return false };
        self.replication.pulls.is_noted(puller, first)
    }

    /// Takes the snapshots that are to be fetched, all in one txg.
    ///
    /// # Errors
    /// A dataset stands by; one has too many that were taken so and that no copy has; too many
    /// requests.
    pub async fn take_for_pull(
        &self,
        request: TakePull,
        puller: &Puller,
    ) -> Result<PullTaken, ApiError> {
        let TakePull { datasets } = request;
        if datasets.len() > PULLED_MAX {
            return Err(ApiError::invalid(format!("{PULLED_MAX} datasets at a time at most")));
        }
        let pulls = &self.replication.pulls;
        let _taking = pulls.taking.lock().await;
        pulls.check_pace(puller)?;
        let datasets: BTreeSet<DatasetName> = datasets.into_iter().collect();
        let members: Vec<Member> = datasets.iter().map(|name| puller.member(name)).collect();
        for member in &members {
            // One that is gone is told so by what takes them.
            let Ok(all) = own::snapshots(self, &member.dataset) else { continue };
            self.check_taken(member, &all)?;
        }
        let name = puller.target("").snapshot_name(time::now_ns());
        let gone = own::take(self, &members, &name).await?;
        let gone = gone.into_iter().filter_map(|of| of.dataset.parse().ok()).collect();
        let snapshot = SnapshotName::try_from(name);
        let snapshot = snapshot.map_err(|error| ApiError::failed(error.to_string()))?;
        Ok(PullTaken { snapshot, gone })
    }

    fn check_taken(
        &self,
        Member { dataset, target }: &Member,
        all: &[Own],
    ) -> Result<(), ApiError> {
        if own::stands_by(self, dataset)? {
            return Err(ApiError::conflict(format!(
                "{dataset:?} stands by, and has the snapshots that it receives: fetch one of these \
                 (--snapshot)"
            )));
        }
        let waits = |of: &&Own| target.is_own(&of.known.name) && of.tags.is_empty();
        let waiting = all.iter().filter(waits).count();
        match waiting < PASSING_MAX {
            true => Ok(()),
            false => Err(ApiError::conflict(format!(
                "{dataset:?} has {waiting} snapshots that were taken to be fetched and that no \
                 copy has: the next run prunes them first, or `aquifer destroy` does"
            ))),
        }
    }

    /// A copy has a snapshot on disk: it is held instead of the one that the copy had before.
    ///
    /// # Errors
    /// Snapshots are held for too many copies of this token.
    pub async fn settle_pull(
        &self,
        request: SettlePull,
        puller: &Puller,
    ) -> Result<DatasetDone, ApiError> {
        let SettlePull { dataset, copy, guid } = request;
        let name = dataset.to_string();
        let target = puller.target(copy.as_str());
        let (tag, of_puller) = (target.tag(), format!("{TAG_OF_COPY}{}:", puller.0));
        let _taking = self.replication.pulls.taking.lock().await;
        let all = own::snapshots(self, &name)?;
        let tags = all.iter().flat_map(|of| &of.tags);
        let others: BTreeSet<&String> =
            tags.filter(|of| **of != tag && of.starts_with(&of_puller)).collect();
        if others.len() >= COPIES_MAX {
            return Err(ApiError::conflict(format!(
                "{name:?} has snapshots that are held for {} other copies of token {}: release \
                 those that nobody fetches any more (`aquifer holds {name}`)",
                others.len(),
                puller.0
            )));
        }
        own::settle(self, &Member { dataset: name.clone(), target }, &guid).await?;
        Ok(DatasetDone { name, notes: Vec::new() })
    }

    /// Destroys what was taken for this token, and no copy has or needs.
    ///
    /// # Errors
    /// There is no such dataset.
    pub async fn prune_pull(
        &self,
        request: PrunePull,
        puller: &Puller,
    ) -> Result<DatasetDone, ApiError> {
        let PrunePull { dataset, needed } = request;
        let name = dataset.to_string();
        own::snapshots(self, &name)?;
        own::prune(self, &puller.member(&dataset), &needed).await;
        Ok(DatasetDone { name, notes: Vec::new() })
    }
}

/// Most snapshots of a dataset that no copy has: those that several runs at a time have taken, and
/// what is left of some that broke off.
const PASSING_MAX: usize = 4;
/// Copies of one dataset that one server makes.
const COPIES_MAX: usize = 4;
/// Of one token, in [`PACE_SPAN`].
const TAKES_MAX: u32 = 60;
const PACE_SPAN: Duration = Duration::from_secs(60);
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// Of one token.
const NOTED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_takes_so_many_in_a_minute_and_leaves_others_theirs() {
        let (pulls, one, other) =
            (Pulls::default(), Puller::new("a").unwrap(), Puller::new("b").unwrap());
        for _ in 0..TAKES_MAX {
            pulls.check_pace(&one).unwrap();
        }
        assert!(pulls.check_pace(&one).is_err() && pulls.check_pace(&other).is_ok());
        tokio::time::advance(PACE_SPAN).await;
        assert!(pulls.check_pace(&one).is_ok());
        let name = |at: usize| format!("tank/{at}").parse::<DatasetName>().unwrap();
        for at in 0..NOTED_MAX {
            assert!(pulls.is_noted(&one, &name(at)) && !pulls.is_noted(&one, &name(at)));
        }
        assert!(!pulls.is_noted(&one, &name(NOTED_MAX)) && pulls.is_noted(&other, &name(0)));
        tokio::time::advance(NOTED_AGAIN_AFTER).await;
        assert!(pulls.is_noted(&one, &name(0)));
        assert!(Puller::new("a,%").is_err() && Puller::new(&"x".repeat(33)).is_err());
    }
}
