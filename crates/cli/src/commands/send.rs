//! `aquifer send` and `aquifer receive`: a stream goes between a daemon and a file or pipe.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::time::{Duration, Instant};

use aquifer_api::client::{Client, ComingPart};
use aquifer_api::{
    DatasetInfo, DatasetQuery, GiveUpReceive, On, ReceiveEnd, ReceiveRequest, ReceiveSummary,
    SendQuery, SentPart, SnapshotQuery,
};
use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::mpsc;

use super::{Output, tell};
use crate::args::assignment;
use crate::failure::Failure;

/// The arguments of `send`.
#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// Only say what would be sent.
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say on stderr how much was sent.
    #[arg(short = 'v')]
    verbose: bool,
    /// Send only what changed since this older snapshot of the same dataset or file, as @NAME, or
    /// since a bookmark of the dataset, as #NAME.
    #[arg(short = 'i', value_name = "OLD")]
    from: Option<String>,
    /// Send what -i sends, with all snapshots between: as one stream after the other. With -R, a
    /// dataset that has no OLD is sent with all snapshots that it has, from its oldest on.
    #[arg(short = 'I', value_name = "OLD", conflicts_with = "from")]
    from_all: Option<String>,
    /// Also the snapshots of this name of all datasets below, one stream behind the other. With
    /// -i, one that has no OLD is sent whole.
    #[arg(short = 'R', long, visible_short_alias = 'r', conflicts_with = "token")]
    recursive: bool,
    /// Send the rest of a stream that broke off: what `aquifer get receive_resume_token DATASET`
    /// says at the receiver.
    #[arg(short = 't', value_name = "TOKEN", conflicts_with_all = ["from", "from_all", "snapshot"])]
    token: Option<String>,
    /// The snapshot, such as tank/vms@before or tank/vms:web01/disk.vhd@before.
    #[arg(value_name = "DATASET[:PATH]@NAME", required_unless_present = "token")]
    snapshot: Option<String>,
}

/// The arguments of `receive`.
#[derive(Debug, clap::Args)]
pub struct ReceiveArgs {
    /// Only check the stream, all of it.
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say what came.
    #[arg(short = 'v')]
    verbose: bool,
    /// Give the dataset file handles of its own. It comes into service at once, also beside what
    /// was sent.
    #[arg(long)]
    new_handles: bool,
    /// Of a stream made with -i: drop what was changed in the dataset since its newest snapshot.
    #[arg(short = 'F')]
    force: bool,
    /// Keep what came if the stream breaks off: `aquifer send -t` sends the rest of it later.
    #[arg(short = 's')]
    resumable: bool,
    /// Do not bring it into service. Only --new-handles does that, so this is for fingers and
    /// scripts that know it from `zfs`.
    #[arg(short = 'u', conflicts_with = "new_handles")]
    stands_by: bool,
    /// Give up what came of a stream that broke off, and free its space. Nothing is received.
    #[arg(short = 'A', conflicts_with_all = ["dry_run", "new_handles", "force", "resumable"])]
    give_up: bool,
    /// Give the copy this value, whatever the stream has; may be given several times.
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = assignment)]
    properties: Vec<(String, String)>,
    /// Leave this property of the stream out; may be given several times.
    #[arg(short = 'x', value_name = "PROPERTY")]
    exclude: Vec<String>,
    /// Full name of the new dataset, such as tank/copy; of a stream made with -i, the dataset that
    /// has the older snapshot.
    dataset: String,
}

/// How often a daemon hears from a client that waits for its input.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// So much higher is the nice value of a command that copies a stream, as that of the daemon's
/// threads that do.
const NICER: i32 = 10;
/// Parts of a stream between its reader and its writer.
const PARTS_WAITING: usize = 2;
/// Bytes of a part that is received, at most. What comes through a slow pipe waits for so many; a
/// longer one would keep more of them back.
const PART_BYTES: usize = 1 << 20;

pub(super) async fn send(client: &Client, output: Output, args: SendArgs) -> Result<(), Failure> {
    yield_to_others();
    let SendArgs { dry_run, verbose, from, from_all, recursive, token, snapshot } = args;
    let is_rest = token.is_some();
    let snapshot = snapshot.unwrap_or_default();
    let steps = match from_all {
        Some(from) if !recursive => steps(client, &snapshot, from).await?,
        from_all => {
            let (snapshot, between) = (snapshot.clone(), from_all.is_some());
            let from = from.or(from_all);
            let query = SendQuery { snapshot, token, from, recursive, ..SendQuery::default() };
            vec![SendQuery { between, ..query }]
        }
    };
    if recursive {
        match left_out(client, &snapshot).await {
            // It may be a file: the daemon says so.
            Err(_) if snapshot.contains(':') => {}
            left_out => tell(output, &left_out?),
        }
    }
    let snapshot = if is_rest { "the rest of a stream".into() } else { snapshot };
    // Of a file alone, the daemon says how long the stream is.
    let is_whole = !recursive && !is_rest && steps.iter().any(|step| step.from.is_none());
    if dry_run && is_whole && !snapshot.contains(':') {
        return would_send(client, output, &snapshot).await;
    }
    if dry_run {
        return would_send_changes(client, output, steps).await;
    }
    if stdout().is_terminal() {
        let why = "a stream is no text: send it to a file (> FILE) or a command (| COMMAND)";
        return Err(Failure::usage(why));
    }
    let begun = Instant::now();
    let (to_writer, mut parts) = mpsc::channel::<Vec<u8>>(PARTS_WAITING);
    let writer = tokio::task::spawn_blocking(move || {
        let mut out = stdout().lock();
        while let Some(part) = parts.blocking_recv() {
            out.write_all(&part)?;
        }
        out.flush()
    });
    let mut sent_bytes = 0u64;
    let mut failed = None;
    for step in steps {
        match send_one(client, step, &to_writer).await {
            Ok(Some(bytes)) => sent_bytes = sent_bytes.saturating_add(bytes),
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    drop(to_writer);
    let written = writer.await.map_err(Failure::failed)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let why =
        |error| Failure::failed(format!("the stream of {snapshot:?} cannot be written: {error}"));
    written.map_err(why)?;
    if verbose {
        let seconds = begun.elapsed().as_secs_f64();
        let sent = output.size(sent_bytes);
        tell(output, &[format!("sent {snapshot}: {sent} in {seconds:.1} s")]);
    }
    Ok(())
}

/// A stream takes the processor time that the machine has left: the daemon's clients may need it.
fn yield_to_others() {
    // Without it, it is only less polite.
    let _ = getpriority_process(None).and_then(|own| setpriority_process(None, own + NICER));
}

/// Gives the bytes of a stream to a writer, and returns how many; `None`: the writer has ended,
/// since it could not write.
///
/// The daemon makes a part while the one before comes. It is not asked for one that has no room
/// here: a daemon does not wait for a slow writer.
async fn send_one(
    client: &Client,
    mut query: SendQuery,
    to: &mpsc::Sender<Vec<u8>>,
) -> Result<Option<u64>, Failure> {
    let mut coming = begin_part(client, &query, to).await?;
    let mut sent_bytes = 0u64;
    while let Some((part, room)) = coming {
        query.after = part.next().map(Into::into);
        let take = async {
            let SentPart { bytes, .. } = part.whole().await?;
            sent_bytes = sent_bytes.saturating_add(bytes.len() as u64);
            room.send(bytes);
            Ok(())
        };
        let next = async {
            match query.after {
                Some(_) => begin_part(client, &query, to).await,
                None => Ok(None),
            }
        };
        ((), coming) = tokio::try_join!(take, next)?;
    }
    Ok(Some(sent_bytes).filter(|_| !to.is_closed()))
}

/// Asks for a part when there is room for it; `None`: the writer has ended.
async fn begin_part<'a>(
    client: &Client,
    query: &SendQuery,
    to: &'a mpsc::Sender<Vec<u8>>,
) -> Result<Option<(ComingPart, mpsc::Permit<'a, Vec<u8>>)>, Failure> {
    match to.reserve().await {
        Ok(room) => Ok(Some((client.begin_part(query).await?, room))),
        Err(_) => Ok(None),
    }
}

/// Datasets below that have no snapshot of this name.
async fn left_out(client: &Client, snapshot: &str) -> Result<Vec<String>, Failure> {
    let Some((dataset, name)) = snapshot.split_once('@') else {
        return Err(Failure::usage(format!("{snapshot:?} is no snapshot: write DATASET@NAME")));
    };
    let query = DatasetQuery { name: Some(dataset.into()), recursive: true };
    let all = client.ask(&query).await?;
    let query = SnapshotQuery { name: Some(dataset.into()), recursive: true, ..Default::default() };
    let listed = client.snapshots(&query).await?.into_iter().filter(|of| of.path.is_none());
    let has: BTreeSet<String> = listed.map(|of| of.name).collect();
    let is_left_out = |of: &DatasetInfo| !has.contains(&format!("{}@{name}", of.name));
    let line = |of: DatasetInfo| format!("{} has no snapshot {name:?} and is left out", of.name);
    Ok(all.into_iter().filter(is_left_out).map(line).collect())
}

/// From each snapshot to the next one, from an older one to a newer one.
async fn steps(client: &Client, new: &str, old: String) -> Result<Vec<SendQuery>, Failure> {
    let of = new.rsplit_once('@').map_or(new, |(of, _)| of);
    let old = if old.starts_with('@') { format!("{of}{old}") } else { old };
    let names = names_of(client, of).await?;
    let at = |name: &str| names.iter().position(|of| of == name);
    let ends = [old, new.to_string()];
    let between = match (at(&ends[0]), at(new)) {
        (Some(from), Some(to)) if from < to => names.get(from..=to).unwrap_or_default(),
        // The daemon says why.
        _ => &ends,
    };
    let step = |pair: &[String]| {
        let (from, snapshot) = (pair.first().cloned(), pair.last().cloned().unwrap_or_default());
        SendQuery { snapshot, from, ..SendQuery::default() }
    };
    Ok(between.windows(2).map(step).collect())
}

/// The snapshots of a dataset, or of a file, in the order in which they were taken.
async fn names_of(client: &Client, of: &str) -> Result<Vec<String>, Failure> {
    // A name of a dataset may have a colon, too.
    if of.contains(':') {
        let query = SnapshotQuery { name: Some(format!("{of}@*")), ..Default::default() };
        if let Ok(listed) = client.snapshots(&query).await {
            return Ok(listed.into_iter().map(|file| file.name).collect());
        }
    }
    let query = SnapshotQuery { name: Some(of.into()), recursive: false, ..Default::default() };
    let listed = client.snapshots(&query).await?;
    let of_it = listed.into_iter().filter(|one| one.path.is_none() && one.dataset == of);
    Ok(of_it.map(|one| one.name).collect())
}

async fn would_send(client: &Client, output: Output, snapshot: &str) -> Result<(), Failure> {
    let query =
        SnapshotQuery { name: Some(snapshot.into()), recursive: false, ..Default::default() };
    let found = client.snapshots(&query).await?;
    let Some(found) = found.first().filter(|_| snapshot.contains('@')) else {
        return Err(Failure::usage(format!("{snapshot:?} is no snapshot: write DATASET@NAME")));
    };
    let text = format!(
        "would send {}: {} on disk, and more where it is compressed\n",
        found.name,
        output.size(found.refer_bytes)
    );
    output.answer(found, |_| text)
}

/// Answer of `send -n -i`.
#[derive(Debug, serde::Serialize)]
struct WouldSend {
    snapshot: String,
    from: String,
    stream_bytes: u64,
}

/// The daemon compares both snapshots as for a stream, and reads no content.
async fn would_send_changes(
    client: &Client,
    output: Output,
    steps: Vec<SendQuery>,
) -> Result<(), Failure> {
    let mut stream_bytes = 0u64;
    let (first, last) = (steps.first().cloned(), steps.last().cloned());
    for step in steps {
        let mut query = SendQuery { size_only: true, ..step };
        loop {
            let part = client.begin_part(&query).await?.whole().await?;
            stream_bytes = stream_bytes.saturating_add(part.stream_bytes);
            query.after = part.next;
            if query.after.is_none() {
                break;
            }
        }
    }
    let SendQuery { snapshot, recursive, between, .. } = last.unwrap_or_default();
    let from = first.and_then(|first| first.from).unwrap_or_default();
    let size = output.size(stream_bytes);
    let below = if recursive { ", with all below" } else { "" };
    let (all, streams) = if between { (", with all between", "streams") } else { ("", "a stream") };
    let text = match from.is_empty() {
        true if recursive => format!("would send {snapshot}{below}: {size}\n"),
        true if snapshot.is_empty() => format!("would send the rest of a stream: {size}\n"),
        true => format!("would send {snapshot}: a stream of {size}\n"),
        false => format!(
            "would send {snapshot}{below}, what changed since {from}{all}: {streams} of {size}\n"
        ),
    };
    output.answer(&WouldSend { snapshot, from, stream_bytes }, |_| text)
}

pub(super) async fn receive(
    client: &Client,
    output: Output,
    args: ReceiveArgs,
) -> Result<(), Failure> {
    let ReceiveArgs { dry_run, verbose, new_handles, force, resumable, give_up, dataset, .. } =
        args;
    let (properties, exclude) = (args.properties.into_iter().collect(), args.exclude);
    if give_up {
        let done = client.ask(&GiveUpReceive { name: dataset }).await?;
        return output.answer(&done, |_| String::new());
    }
    yield_to_others();
    if stdin().is_terminal() {
        return Err(Failure::usage("the stream comes from stdin: < FILE, or COMMAND |"));
    }
    let (name, sender) = (dataset, None);
    let request = ReceiveRequest {
        name,
        dry_run,
        new_handles,
        force,
        sender,
        resumable,
        properties,
        exclude,
    };
    let begun = client.ask(&request).await?;
    let (id, part_bytes) = (begun.id, begun.part_bytes_max().min(PART_BYTES));
    let (to_us, mut parts) = mpsc::channel(PARTS_WAITING);
    // Not waited for: it may sit in a read that never ends.
    std::thread::spawn(move || read_parts(part_bytes, &to_us));
    loop {
        let part = match tokio::time::timeout(ALIVE_EVERY, parts.recv()).await {
            Err(_) => Vec::new(),
            Ok(None) => break,
            Ok(Some(Ok(part))) => part,
            Ok(Some(Err(error))) => {
                // What failed first counts.
                let given_up = ReceiveEnd { give_up: true, ..ReceiveEnd::default() };
                let _ = client.ask(&On::new(id.to_string(), given_up)).await;
                return Err(Failure::failed(format!("stdin cannot be read: {error}")));
            }
        };
        client.receive_part(id, part.into()).await?;
    }
    let done = client.ask(&On::new(id.to_string(), ReceiveEnd::default())).await?;
    let tense = if dry_run { "would receive" } else { "received" };
    output.answer(&done, |done| match verbose || dry_run {
        true => text(done, tense, output),
        false => notes(done) + &done.below.iter().map(notes).collect::<String>(),
    })
}

fn notes(done: &ReceiveSummary) -> String {
    done.notes.iter().map(|note| format!("{note}\n")).collect()
}

fn text(done: &ReceiveSummary, tense: &str, output: Output) -> String {
    let ReceiveSummary { snapshot, sent, since, objects, removed, bytes, .. } = done;
    let bytes = output.size(*bytes);
    let below: String = done.below.iter().map(|below| text(below, tense, output)).collect();
    let what = match since {
        None => format!("({sent}): {objects} files and directories, {bytes}"),
        Some(since) => format!(
            "({sent}, what changed since {since}): {objects} files and directories changed, \
             {removed} removed, {bytes}"
        ),
    };
    format!("{tense} {snapshot} {what}\n{}{below}", notes(done))
}

/// Reads stdin in parts, to its end or an error.
fn read_parts(part_bytes: usize, to: &mpsc::Sender<std::io::Result<Vec<u8>>>) {
    let mut input = stdin().lock();
    loop {
        let mut part = Vec::with_capacity(part_bytes);
        let most = u64::try_from(part_bytes).unwrap_or(u64::MAX);
        let read = input.by_ref().take(most).read_to_end(&mut part);
        let is_last = !matches!(read, Ok(count) if count > 0);
        let part = read.map(|_| part);
        let is_empty = part.as_ref().is_ok_and(Vec::is_empty);
        // Nobody listens any more if the command has failed.
        if !is_empty && to.blocking_send(part).is_err() || is_last {
            return;
        }
    }
}
