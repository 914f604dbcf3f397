//! One run: brings a copy up to date, with those of the datasets below.
//!
//! # Order
//! First both sides are asked what they have: while one does not answer, no snapshot is taken. Then
//! all snapshots are taken in one txg, and sent one after the other. A snapshot is held at the
//! source once the copy has it on disk, and only then the one before is let go, here and there. So
//! a run that breaks off, wherever, leaves what the next one begins with: also the part of a stream
//! that came, if the side of the copy keeps it ([`super::rest`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_api::{
    ApiError, DatasetInfo, ReceiveRequest, SendQuery, SnapshotInfo, SnapshotName, guid_of,
};
use aquifer_dataset::FullName;
use aquifer_files::Expected;
use aquifer_ondisk::Guid;

use super::super::Control;
use super::jobs::{Job, Wish};
use super::own::Member;
use super::plan::{self, Known, Plan, Step, Wanted};
use super::pump::{self, Stream};
use super::rest::{Begun, Rest};
use super::side::Side;
use super::source::{Has, Source};
use super::target::is_of_replication;

/// A dataset, and what its copy has.
struct Look {
    member: Member,
    /// Snapshots and bookmarks that the dataset has.
    here: Vec<Known>,
    /// `None`: there is no copy yet.
    there: Option<There>,
    begun: Begun,
}

/// Snapshots that a copy has.
struct There {
    snapshots: Vec<Known>,
    /// Those that it does not need when it has one more.
    over: Vec<SnapshotName>,
}

/// Carries out a run.
///
/// # Errors
/// What went wrong, of the datasets for which something did.
pub(super) async fn run(control: &Arc<Control>, job: &Job) -> Result<(), ApiError> {
    let (source, side) = (Source::of(control, &job.wish)?, Side::of(control, &job.wish)?);
    let members = source.members(job).await?;
    job.is_about(&members);
    let there = there(&source, &side, &members, job).await?;
    let is_away = || side.is_away() || source.is_away();
    let sides = (&source, &side);
    let (mut looks, mut errors) = (Vec::new(), Vec::new());
    for member in members {
        job.gauge.check()?;
        let found = there.get(&member.target.dataset);
        match look(sides, (&member, found), job).await {
            Ok((here, there, begun)) => looks.push(Look { member, here, there, begun }),
            Err(error) => errors.push(failed(job, &member, error)),
        }
        if is_away() {
            break;
        }
    }
    let mut snapshot = job.wish.snapshot.clone().unwrap_or_default();
    if job.wish.snapshot.is_none() && !is_away() {
        let (taken, gone) = take((control, &source), &looks, job).await?;
        snapshot = taken;
        looks.retain(|look| !gone.contains(&look.member));
        let is_gone = |of: &Member| ApiError::not_found(format!("{:?} is gone", of.dataset));
        errors.extend(gone.iter().map(|member| failed(job, member, is_gone(member))));
    }
    for look in looks {
        if is_away() {
            break;
        }
        if let Err(stopped) = job.gauge.check() {
            errors.push(stopped);
            break;
        }
        let member = look.member.clone();
        match bring(control, sides, look, &snapshot, job).await {
            Ok(()) => job.is_through(&member.dataset, Ok(())),
            Err(error) => errors.push(failed(job, &member, error)),
        }
    }
    all_of(errors)
}

/// Lists the copies that are there, by full name. Those that no dataset here goes to are noted.
async fn there(
    source: &Source,
    side: &Side,
    members: &[Member],
    job: &Job,
) -> Result<BTreeMap<String, DatasetInfo>, ApiError> {
    let Wish { target, recursive, .. } = &job.wish;
    let is_tree = *recursive != Some(false);
    let found = side.datasets(&target.dataset, is_tree).await?;
    let there: BTreeMap<String, DatasetInfo> =
        found.into_iter().map(|of| (of.name.clone(), of)).collect();
    if is_tree {
        let wanted: BTreeSet<&String> = members.iter().map(|of| &of.target.dataset).collect();
        let others = there.values().filter(|of| of.standby && !wanted.contains(&of.name));
        let others = others.map(|of| of.name.clone()).collect();
        job.leaves(source.left(&job.wish, others).await?);
    }
    Ok(there)
}

/// Takes the snapshots that are to be sent, instead of those that nobody needs. Returns their name,
/// and the datasets that are gone.
async fn take(
    (control, source): (&Control, &Source),
    looks: &[Look],
    job: &Job,
) -> Result<(String, Vec<Member>), ApiError> {
    for look in looks {
        if !job.is_shared(control, &look.member.dataset) {
            source.prune(&look.member, &needed_guids(look)).await;
        }
    }
    let members: Vec<Member> = looks.iter().map(|look| look.member.clone()).collect();
    source.take(&job.wish, &members).await
}

/// One dataset failed: that is noted, and holds up no other.
fn failed(job: &Job, member: &Member, error: ApiError) -> ApiError {
    job.is_through(&member.dataset, Err(&error));
    about(member, error)
}

/// One error of all.
fn all_of(errors: Vec<ApiError>) -> Result<(), ApiError> {
    let Some(kind) = errors.first().map(|first| first.kind) else { return Ok(()) };
    let all: Vec<String> = errors.into_iter().map(|error| error.message).collect();
    Err(ApiError::new(kind, all.join("\n")))
}

fn about(member: &Member, error: ApiError) -> ApiError {
    let Member { dataset, target } = member;
    ApiError::new(error.kind, format!("{dataset} to {target}: {}", error.message))
}

fn refused(error: &plan::NoPlan) -> ApiError {
    ApiError::conflict(error.to_string())
}

/// Looks up what a dataset and its copy have, if something can be sent to the copy.
async fn look(
    (source, side): (&Source, &Side),
    (member, found): (&Member, Option<&DatasetInfo>),
    job: &Job,
) -> Result<(Vec<Known>, Option<There>, Begun), ApiError> {
    let copy = &member.target.dataset;
    let Has { standby, known: own, .. } = source.look(&member.dataset).await?;
    if job.wish.snapshot.is_none() && standby {
        return Err(ApiError::conflict(
            "it stands by, and has the snapshots that it receives: name one of them with \
             --snapshot, or set standby=off if it takes the place of its source",
        ));
    }
    let begun = async || Begun::look((source, side), &member.target, &own, job.wish.force).await;
    let Some(found) = found else {
        let begun = begun().await?;
        return Ok((own, None, begun));
    };
    if !found.standby {
        return Err(ApiError::conflict(format!(
            "{copy:?} is in service there, perhaps since it took the place of this one: nothing is \
             sent over what clients may change. `aquifer set standby=on {copy}` there makes a copy \
             of it again"
        )));
    }
    let begun = begun().await?;
    let infos = side.snapshots(copy).await?;
    let kept = infos.iter().filter(|of| source.is_own(&member.target, last(of))).rev();
    // The copy itself holds the newest one; those that somebody holds stay there.
    let over = kept.skip(job.wish.how.keep - 1);
    let over = over.filter_map(|of| last(of).to_string().try_into().ok()).collect();
    let snapshots: Vec<Known> = infos.iter().map(known).collect();
    let here = source.look(&member.dataset).await?.known;
    plan::check(&member.dataset, &here, &snapshots, job.wish.force)
        .map_err(|error| refused(&error))?;
    Ok((here, Some(There { snapshots, over }), begun))
}

/// The name behind the `@`.
fn last(of: &SnapshotInfo) -> &str {
    FullName::of(&of.name).snapshot().unwrap_or_default()
}

fn known(of: &SnapshotInfo) -> Known {
    let name = last(of).to_string();
    let is_passing = is_of_replication(&name);
    Known { is_passing, name, is_bookmark: false, guid: of.guid.clone() }
}

/// The guids of the newest snapshot that both have, and of the one that the copy has in part.
fn needed_guids(look: &Look) -> Vec<String> {
    let here = &look.here;
    let there = look.there.as_ref().map_or(&[][..], |there| &there.snapshots);
    let common = plan::common(here, there).and_then(|(place, _)| here.get(place));
    let rest = look.begun.rest.as_ref().map(|rest| &rest.to);
    common.into_iter().chain(rest).map(|known| known.guid.clone()).collect()
}

/// Brings one copy to a snapshot.
async fn bring(
    control: &Arc<Control>,
    sides: (&Source, &Side),
    Look { member, there, begun, .. }: Look,
    snapshot: &str,
    job: &Job,
) -> Result<(), ApiError> {
    let (member, (source, side)) = (&member, sides);
    let mut has = there.as_ref().map(|there| there.snapshots.clone());
    if let Some(rest) = &begun.rest {
        let into = into(control, member, &begun);
        bring_rest(sides, (member, rest), into, job).await?;
        has.get_or_insert_default().push(rest.to.clone());
    }
    let here = source.look(&member.dataset).await?;
    let known = &here.known;
    let (dataset, copy) = (member.dataset.as_str(), &member.target.dataset);
    let wanted = Wanted { dataset, to: snapshot, all: job.wish.how.all, force: job.wish.force };
    let Plan { back_to, steps } =
        plan::plan(wanted, known, has.as_deref()).map_err(|error| refused(&error))?;
    if let Some(back_to) = back_to {
        side.roll_back(format!("{copy}@{back_to}")).await?;
    }
    job.measure(source, (dataset, &here), &steps).await?;
    let mut over = there.map(|there| there.over).unwrap_or_default();
    // What came in two parts is one more of those that runs took.
    let rest = begun.rest.as_ref().map(|rest| &rest.to.name);
    let is_over = |name: &&String| job.wish.how.keep == 1 && source.is_own(&member.target, name);
    let rest = rest.filter(is_over).filter(|name| *name != snapshot).cloned();
    over.extend(rest.and_then(|name| name.try_into().ok()));
    for step in steps {
        let expected = expected(known, &step)?;
        let Step { from, to } = step;
        let full = |name: &String| format!("{dataset}@{name}");
        job.sends(full(&to));
        let since = from.as_ref().map(|from| format!("{dataset}{from}"));
        let query = SendQuery { snapshot: full(&to), from: since, ..Default::default() };
        let force = job.wish.force && from.is_some();
        let into = ReceiveRequest { force, ..into(control, member, &begun) };
        let prune = if to == snapshot { std::mem::take(&mut over) } else { Vec::new() };
        let stream = Stream { query, start: None, expected, into, prune };
        pump::send(sides, stream, (job.wish.how.rate_bytes, &job.gauge)).await?;
    }
    if let Some(new) = known.iter().find(|known| known.name == snapshot && !known.is_bookmark) {
        source.settle(member, &new.guid).await?;
        tracing::info!(
            class = "replication.done", dataset = %job.wish.full(), target = %member.target,
            snapshot, "a copy is up to date"
        );
        if !job.is_shared(control, dataset) {
            source.prune(member, std::slice::from_ref(&new.guid)).await;
        }
    }
    Ok(())
}

/// Brings the rest of a stream that broke off.
async fn bring_rest(
    sides: (&Source, &Side),
    (member, rest): (&Member, &Rest),
    into: ReceiveRequest,
    job: &Job,
) -> Result<(), ApiError> {
    let Rest { from, to, .. } = rest;
    let snapshot = format!("{}@{}", member.dataset, to.name);
    job.sends(snapshot.clone());
    let expected = Expected { to: guid(to)?, from: from.as_ref().map(guid).transpose()? };
    // Of this dataset alone, by names of its side: of what the copy says, only the place goes on
    // from here.
    let from = from.as_ref().map(|from| format!("{}{}", member.dataset, from.signed()));
    let query = SendQuery { snapshot, from, ..SendQuery::default() };
    let start = rest.start(&member.dataset);
    job.measure_stream(sides.0, query.clone(), &start).await?;
    let stream = Stream { query, start: Some(start), expected, into, prune: Vec::new() };
    pump::send(sides, stream, (job.wish.how.rate_bytes, &job.gauge)).await?;
    sides.0.settle(member, &to.guid).await
}

/// Returns the snapshots that the stream of a step must bring.
fn expected(known: &[Known], Step { from, to }: &Step) -> Result<Expected, ApiError> {
    let named = |is_it: &dyn Fn(&Known) -> bool| {
        let found = known.iter().find(|of| is_it(of));
        found.ok_or_else(|| ApiError::failed(format!("{to:?} is gone"))).and_then(guid)
    };
    let from = from.as_ref().map(|from| named(&|of| of.signed() == *from)).transpose()?;
    Ok(Expected { to: named(&|of| of.name == *to && !of.is_bookmark)?, from })
}

fn guid(known: &Known) -> Result<Guid, ApiError> {
    let guid = guid_of(&known.guid).map(Guid);
    guid.ok_or_else(|| ApiError::failed(format!("{:?} is no guid", known.guid)))
}

/// How a copy is sent to.
fn into(control: &Control, member: &Member, begun: &Begun) -> ReceiveRequest {
    let Member { dataset, target } = member;
    ReceiveRequest {
        name: target.dataset.clone(),
        sender: Some(format!("{:016x}:{dataset}", control.host.id)),
        resumable: begun.is_kept,
        ..ReceiveRequest::default()
    }
}
