//! `aquifer pool trim` and `aquifer pool initialize`, and what the status says of them.

use aquifer_api::client::Client;
use aquifer_api::{
    FreeWork, FreeWorkAct, FreeWorkInfo, FreeWorkRequest, FreeWorkState, On, PoolQuery,
};
use aquifer_api::{LeafStatus, PoolStatus, VdevClass, time};

use super::Output;
use super::pool::percent;
use super::progress::{LOOK_EVERY, Progress, Unit, Work};
use super::status::Show;
use crate::args::{InitializeArgs, TrimArgs};
use crate::failure::Failure;

/// Returns the act that the options ask for.
fn act(suspend: bool, cancel: bool, forget: bool) -> FreeWorkAct {
    match (suspend, cancel, forget) {
        (true, ..) => FreeWorkAct::Suspend,
        (_, true, _) => FreeWorkAct::Cancel,
        (.., true) => FreeWorkAct::Forget,
        _ => FreeWorkAct::Start,
    }
}

/// `pool trim`.
pub(super) async fn trim(client: &Client, output: Output, args: TrimArgs) -> Result<(), Failure> {
    let TrimArgs { suspend, cancel, wait, rate, name, disks } = args;
    let act = act(suspend, cancel, false);
    let request = FreeWorkRequest { work: FreeWork::Trim, act, disks, rate };
    work(client, output, &name, request, wait).await
}

/// `pool initialize`.
pub(super) async fn initialize(
    client: &Client,
    output: Output,
    args: InitializeArgs,
) -> Result<(), Failure> {
    let InitializeArgs { suspend, cancel, forget, wait, name, disks } = args;
    let act = act(suspend, cancel, forget);
    let request = FreeWorkRequest { work: FreeWork::Initialize, act, disks, rate: None };
    work(client, output, &name, request, wait).await
}

/// Asks for it, and waits for its end.
async fn work(
    client: &Client,
    output: Output,
    name: &str,
    request: FreeWorkRequest,
    wait: bool,
) -> Result<(), Failure> {
    let done = client.ask(&On::new(name, request.clone())).await?;
    if !wait {
        return output.answer(&done, |_| String::new());
    }
    let mut progress = Progress::new(output);
    let ended = loop {
        let pool = client.ask(&On::new(name, PoolQuery)).await?;
        let works = works(&pool, &request);
        let goes_on = |work: &FreeWorkInfo| {
            matches!(work.state, FreeWorkState::Running | FreeWorkState::Waiting)
        };
        if !works.iter().any(|(_, work)| goes_on(work)) {
            break works;
        }
        progress.show(&so_far(name, request.work, &works));
        tokio::time::sleep(LOOK_EVERY).await;
    };
    drop(progress);
    output.answer(&ended, |ended| {
        let line = |(disk, work): &(String, FreeWorkInfo)| {
            format!("{disk}: {}, {} done\n", text(request.work, work), output.size(work.done_bytes))
        };
        ended.iter().map(line).collect()
    })?;
    let is_finished = |work: &FreeWorkInfo| work.state == FreeWorkState::Finished;
    match ended.iter().find(|(_, work)| !is_finished(work)) {
        None if ended.is_empty() => Err(Failure::failed(format!("{name}: nothing goes on"))),
        None => Ok(()),
        Some((disk, work)) => {
            let why = work.last_error.as_ref().map(|error| format!(" ({error})"));
            let (text, why) = (text(request.work, work), why.unwrap_or_default());
            Err(Failure::failed(format!("{disk}: {text}{why}")))
        }
    }
}

/// How far the disks are together.
fn so_far(name: &str, work: FreeWork, works: &[(String, FreeWorkInfo)]) -> Work {
    let of = |count: fn(&FreeWorkInfo) -> u64| works.iter().map(|(_, work)| count(work)).sum();
    let begun_ns = works.iter().map(|(_, work)| work.begun_ns).min().unwrap_or(0);
    let verb = match work {
        FreeWork::Trim => "trim",
        FreeWork::Initialize => "initialization",
    };
    Work {
        what: format!("{verb} of {name}"),
        done: of(|work| work.passed_bytes),
        total: Some(of(|work| work.total_bytes)),
        unit: Unit::Bytes,
        took_ms: (time::now_s() * 1000).saturating_sub(begun_ns / 1_000_000),
        note: String::new(),
    }
}

/// The work of the disks that a request names.
fn works(pool: &PoolStatus, request: &FreeWorkRequest) -> Vec<(String, FreeWorkInfo)> {
    let data = pool.vdevs.iter().filter(|vdev| vdev.class == VdevClass::Data);
    let named = |leaf: &&LeafStatus| {
        let is_it = |disk: &String| leaf.path == *disk || leaf.guid == *disk;
        request.disks.is_empty() || request.disks.iter().any(is_it)
    };
    let of = |leaf: &LeafStatus| match request.work {
        FreeWork::Trim => leaf.trim.clone(),
        FreeWork::Initialize => leaf.initialize.clone(),
    };
    let leaves = data.flat_map(|vdev| &vdev.leaves).filter(named);
    leaves.filter_map(|leaf| Some((leaf.path.clone(), of(leaf)?))).collect()
}

/// Returns remarks for a disk's row of the status: work that goes on or waits, and what has ended
/// of late. What has ended earlier, and that there was none, only if that is asked for.
pub(super) fn remarks(leaf: &LeafStatus, show: Show) -> Vec<String> {
    let of = |kind, work: &Option<FreeWorkInfo>, is_asked: bool, none: &str| match work {
        Some(work) if is_asked || is_of_late(work) => Some(text(kind, work)),
        None if is_asked => Some(none.to_string()),
        Some(_) | None => None,
    };
    let (is_asked, none) = match leaf.cannot_discard {
        true => (show.trim || leaf.trim.is_none(), "trim unsupported"),
        false => (show.trim, "untrimmed"),
    };
    let trim = of(FreeWork::Trim, &leaf.trim, is_asked, none);
    let work = &leaf.initialize;
    let initialize = of(FreeWork::Initialize, work, show.initialize, "uninitialized");
    trim.into_iter().chain(initialize).collect()
}

/// Whether it goes on, or ended within the last day.
fn is_of_late(work: &FreeWorkInfo) -> bool {
    work.ended_ns.is_none_or(|ended| ended / 1_000_000_000 + 24 * 3600 > time::now_s())
}

/// In the manner of zpool.
fn text(work: FreeWork, info: &FreeWorkInfo) -> String {
    let (noun, done) = match work {
        FreeWork::Trim => ("trim", "trimmed"),
        FreeWork::Initialize => ("initialization", "initialized"),
    };
    let share = percent(info.passed_bytes, info.total_bytes.max(1));
    let began = || format!("started on {}", time::text(info.begun_ns));
    let ended = || time::text(info.ended_ns.unwrap_or(0));
    match info.state {
        FreeWorkState::Running => format!("{share} {done}, {}", began()),
        FreeWorkState::Waiting => format!("{share} {done}, waits for the disk, {}", began()),
        FreeWorkState::Suspended => format!("{share} {done}, suspended, {}", began()),
        FreeWorkState::Canceled => format!("{noun} canceled on {}", ended()),
        FreeWorkState::Finished => format!("{done} on {}", ended()),
        FreeWorkState::Unsupported => format!("{noun} unsupported"),
        FreeWorkState::Failed => format!("{noun} failed on {}", ended()),
    }
}
