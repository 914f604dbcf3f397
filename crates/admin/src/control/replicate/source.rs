//! The side that has the dataset: this daemon ([`own`]), or a peer over its API, which does there
//! what this one does here.
//!
//! Invariant: of what a peer says nothing is believed that matters here. Names and guids are parsed
//! into types, datasets lie below the one that was asked for, numbers and bytes are bounded; and
//! what it sends is received as that of any stranger.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use aquifer_api::{
    ApiError, DatasetName, DatasetQuery, PULLED_MAX, PrunePull, PullKnown, PullQuery, SendQuery,
    SentPart, SettlePull, TakePull, guid_of, time,
};

use super::super::Control;
use super::jobs::{Job, Wish};
use super::line::{ACT, Line, PART, QUESTION};
use super::own::{self, Member};
use super::plan::Known;
use super::rest::Start;
use super::target::{Target, check_peer, is_of_replication};

/// Where a dataset is.
#[derive(Debug)]
pub(super) enum Source {
    Here(Arc<Control>),
    There {
        line: Line,
        /// The name of our token there, as the peer says it.
        token: OnceLock<String>,
    },
}

/// State of a dataset at its source.
#[derive(Debug, Clone, Default)]
pub(super) struct Has {
    /// It is a copy itself.
    pub standby: bool,
    /// Snapshots and bookmarks, as they were taken.
    pub known: Vec<Known>,
    /// Bytes of a whole stream of snapshots, by name.
    pub refer_bytes: BTreeMap<String, u64>,
}

impl Source {
    /// The side of the dataset.
    ///
    /// # Errors
    /// The configuration has no such peer; its files cannot be used.
    pub fn of(control: &Arc<Control>, wish: &Wish) -> Result<Source, ApiError> {
        match &wish.source {
            None => Ok(Source::Here(Arc::clone(control))),
            Some(peer) => {
                let line = Line::to(control, peer, "send")?;
                Ok(Source::There { line, token: OnceLock::new() })
            }
        }
    }

    /// Whether it did not answer the last time.
    pub fn is_away(&self) -> bool {
        match self {
            Source::Here(_) => false,
            Source::There { line, .. } => line.is_away(),
        }
    }

    /// The datasets that a run is about.
    pub async fn members(&self, job: &Job) -> Result<Vec<Member>, ApiError> {
        let Wish { dataset, target, recursive, .. } = &job.wish;
        let Source::There { line, .. } = self else { return job.members_here(self.control()?) };
        let recursive = recursive.unwrap_or(false);
        let query = DatasetQuery { name: Some(dataset.clone()), recursive };
        let found = line.asked(QUESTION, line.client.ask(&query)).await?;
        if found.len() > PULLED_MAX {
            let why = format!("{} datasets: {PULLED_MAX} are fetched at a time", found.len());
            return Err(line.senseless(&why));
        }
        let asked: DatasetName = parsed(line, dataset)?;
        let mut members = Vec::new();
        for info in found {
            let name: DatasetName = parsed(line, &info.name)?;
            let is_it = if recursive { asked.covers(name.as_str()) } else { name == asked };
            if !is_it {
                return Err(line.senseless(&format!("it says {name:?}, which was not asked for")));
            }
            members.push(Member { target: target.of(dataset, name.as_str()), dataset: info.name });
        }
        members.sort_by(|a, b| a.dataset.cmp(&b.dataset));
        members.dedup();
        Ok(members)
    }

    fn control(&self) -> Result<&Control, ApiError> {
        match self {
            Source::Here(control) => Ok(control),
            Source::There { .. } => Err(ApiError::failed("the dataset is elsewhere")),
        }
    }

    /// Looks up what it has of a dataset.
    pub async fn look(&self, dataset: &str) -> Result<Has, ApiError> {
        match self {
            Source::Here(control) => {
                let own = own::snapshots(control, dataset)?;
                let refer_bytes = own.into_iter().map(|of| (of.known.name, of.refer_bytes));
                Ok(Has {
                    standby: own::stands_by(control, dataset)?,
                    known: own::known(control, dataset)?,
                    refer_bytes: refer_bytes.collect(),
                })
            }
            Source::There { line, token } => {
                let query = PullQuery { dataset: parsed(line, dataset)? };
                let found = line.asked(QUESTION, line.client.ask(&query)).await?;
                check_peer(&found.token).map_err(|why| line.senseless(&why))?;
                if *token.get_or_init(|| found.token.clone()) != found.token {
                    return Err(line.senseless("it has two names for one token"));
                }
                has(line, found.standby, found.snapshots)
            }
        }
    }

    /// Whether a snapshot of this name was taken for copies on the side of a target.
    pub fn is_own(&self, target: &Target, name: &str) -> bool {
        match self {
            Source::Here(_) => target.is_own(name),
            Source::There { token, .. } => token.get().is_some_and(|token| {
                Target { peer: Some(token.clone()), dataset: String::new() }.is_own(name)
            }),
        }
    }

    /// Takes snapshots of one name, all in one txg. Returns it, and those that are gone.
    pub async fn take(&self, wish: &Wish, members: &[Member]) -> Result<Taken, ApiError> {
        match self {
            Source::Here(control) => {
                let name = wish.target.snapshot_name(time::now_ns());
                let gone = own::take(control, members, &name).await?;
                Ok((name, gone))
            }
            Source::There { .. } if members.is_empty() => Ok(Taken::default()),
            Source::There { line, .. } => {
                let datasets = members.iter().map(|of| parsed(line, &of.dataset));
                let request = TakePull { datasets: datasets.collect::<Result<_, _>>()? };
                let taken = line.asked(ACT, line.client.ask(&request)).await?;
                let is_gone = |of: &&Member| taken.gone.iter().any(|it| it.as_str() == of.dataset);
                let gone = members.iter().filter(is_gone).cloned().collect();
                Ok((taken.snapshot.into(), gone))
            }
        }
    }

    /// Of these copies, those to which no dataset goes.
    pub async fn left(&self, wish: &Wish, copies: Vec<String>) -> Result<Vec<String>, ApiError> {
        match self {
            Source::Here(control) => own::left(control, &wish.dataset, &wish.target, copies),
            // Of a peer the members are all that is known.
            Source::There { .. } => Ok(copies),
        }
    }

    /// A copy has this snapshot on disk.
    pub async fn settle(&self, member: &Member, guid: &str) -> Result<(), ApiError> {
        match self {
            Source::Here(control) => own::settle(control, member, guid).await,
            Source::There { line, .. } => {
                let (dataset, copy) =
                    (parsed(line, &member.dataset)?, parsed(line, &member.target.dataset)?);
                let request = SettlePull { dataset, copy, guid: guid.into() };
                line.asked(ACT, line.client.ask(&request)).await.map(drop)
            }
        }
    }

    /// Destroys what earlier runs took and nobody needs.
    pub async fn prune(&self, member: &Member, needed: &[String]) {
        match self {
            Source::Here(control) => own::prune(control, member, needed).await,
            Source::There { line, .. } => {
                let Ok(dataset) = parsed(line, &member.dataset) else { return };
                let request = PrunePull { dataset, needed: needed.to_vec() };
                let pruned = line.asked(ACT, line.client.ask(&request)).await;
                if let Err(error) = pruned {
                    tracing::debug!(dataset = member.dataset, %error, "snapshots stay there");
                }
            }
        }
    }

    /// Some bytes of a stream.
    pub async fn part(&self, query: &SendQuery, at: Option<&Start>) -> Result<SentPart, ApiError> {
        match self {
            Source::Here(control) => {
                control.send_part_from(query.clone(), at.map(|at| at.place)).await
            }
            Source::There { line, .. } => {
                let token = at.map(|at| at.token.clone());
                let query = SendQuery { token, ..query.clone() };
                let part = async { line.client.begin_part(&query).await?.whole().await };
                let part = line.asked(PART, part).await?;
                match part.bytes.len() <= PART_BYTES_MAX {
                    true => Ok(part),
                    false => Err(line.senseless("a part of its stream is too long")),
                }
            }
        }
    }
}

/// The name of snapshots that were taken, and the datasets that are gone.
type Taken = (String, Vec<Member>);

fn parsed(line: &Line, dataset: &str) -> Result<DatasetName, ApiError> {
    dataset.parse().map_err(|error| line.senseless(&format!("{error}")))
}

/// Takes over a peer's list of what it has, as far as that makes sense.
fn has(line: &Line, standby: bool, snapshots: Vec<PullKnown>) -> Result<Has, ApiError> {
    let mut has = Has { standby, ..Has::default() };
    for PullKnown { name, bookmark, guid, refer_bytes } in snapshots {
        if guid_of(&guid).is_none() {
            return Err(line.senseless(&format!("{guid:?} is no guid of a snapshot")));
        }
        let name = name.to_string();
        let is_passing = is_of_replication(&name);
        if !bookmark {
            has.refer_bytes.insert(name.clone(), refer_bytes);
        }
        has.known.push(Known { name, is_bookmark: bookmark, guid, is_passing });
    }
    Ok(has)
}

/// Of an answer with bytes of a stream. A record has a megabyte at most, and a part some of them.
const PART_BYTES_MAX: usize = 32 << 20;
