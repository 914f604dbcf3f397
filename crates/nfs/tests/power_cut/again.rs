//! After a restart: clients first send their unanswered calls again.
//!
//! The check of the files comes after that. So a call that must not run twice is no ghost: it has
//! its answer by then, and ran once or not at all. A WRITE that is sent again may be carried out
//! twice, so it is another call to the witness. The one sent before the cut stays a ghost.

use aquifer_checker::op::{Op, Reply};
use aquifer_checker::{Door, End};
use aquifer_files::{FsError, Stability};
use futures_util::future::join_all;

use crate::door::{Made, NfsDoor, UnderWay};
use crate::wire;

/// Sends again the unanswered calls, and some of the answered ones.
///
/// # Errors
/// An answer that is impossible.
pub async fn send_all(doors: &[NfsDoor], end: End) -> Result<(), String> {
    for door in doors {
        let mut known = door.known().lock().unwrap();
        if end == End::Rewind {
            // No promise holds: the clients start over, too.
            known.under_way.clear();
            known.later.clear();
            known.made.clear();
        }
        drop(known);
        if door.chance(8) {
            // A client that is gone for ever.
            let mut known = door.known().lock().unwrap();
            known.under_way.clear();
            known.later.clear();
        }
    }
    let done = join_all(doors.iter().map(of_client)).await;
    done.into_iter().collect::<Result<Vec<()>, String>>().map(drop)
}

async fn of_client(door: &NfsDoor) -> Result<(), String> {
    let (under_way, later, made) = {
        let known = door.known().lock().unwrap();
        (known.under_way.clone(), known.later.clone(), known.made.clone())
    };
    let begun = later.iter().map(|(number, op)| begin_again(door, op, *number));
    let begun = async { join_all(begun).await.into_iter().collect::<Result<Vec<()>, String>>() };
    let again = under_way.iter().map(|(xid, sent)| resume(door, *xid, sent));
    let again = async { join_all(again).await.into_iter().collect::<Result<Vec<()>, String>>() };
    let twice = made.iter().filter(|_| door.chance(3)).map(|made| repeat(door, made));
    let twice: Vec<_> = twice.collect();
    let twice = async { join_all(twice).await.into_iter().collect::<Result<Vec<()>, String>>() };
    let (again, twice, begun) = futures_util::future::join3(again, twice, begun).await;
    again.and(twice).and(begun).map(drop)
}

/// Makes a call that heard "later": it was not made, so this is its first time.
async fn begin_again(door: &NfsDoor, op: &Op, number: usize) -> Result<(), String> {
    let outcome = door.begin_again(op, number).await;
    let what = format!("{op:?} heard \"later\", and was made after a restart: {outcome:?}");
    let is_wrong = matches!(outcome, Err(FsError::Pool(_) | FsError::TryLater));
    door.shared().lock().unwrap().end(number, outcome);
    if is_wrong { Err(what) } else { Ok(()) }
}

async fn resume(door: &NfsDoor, xid: u32, sent: &UnderWay) -> Result<(), String> {
    let shared = door.shared();
    let number = match &sent.op {
        op if wire::is_once(op) => sent.number,
        op @ (Op::Write { .. } | Op::Commit { .. }) => shared.lock().unwrap().begin(op.clone()),
        _ => {
            door.known().lock().unwrap().under_way.remove(&xid);
            return Ok(());
        }
    };
    let outcome = door.resume(xid, sent, number).await;
    let what = format!("{:?}, sent again after a restart: {outcome:?}", sent.op);
    let is_wrong = matches!(outcome, Err(FsError::Pool(_) | FsError::TryLater));
    let verifier = match outcome {
        Ok(Reply::Committed(verifier)) => Some(verifier),
        _ => None,
    };
    {
        let mut witness = shared.lock().unwrap();
        // The answer may be of a call made in this life: sent twice, with the first answer lost.
        let was_done = match &outcome {
            Ok(Reply::Done { attributes, .. }) => {
                !attributes.as_ref().is_some_and(|made| witness.is_of_this_life(made.handle))
            }
            _ => false,
        };
        if wire::is_once(&sent.op) && !was_done {
            witness.ran_again(number, &outcome);
        }
        witness.end(number, outcome);
    }
    if is_wrong {
        return Err(what);
    }
    match (&sent.op, verifier) {
        (Op::Commit { file, .. }, Some(verifier)) => {
            write_again(door, file.tag, number, verifier).await;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The COMMIT with this number has another write verifier than the WRITEs that it covers: sends
/// their data again, and commits it.
async fn write_again(door: &NfsDoor, tag: u32, commit: usize, verifier: u64) {
    let shared = door.shared();
    let lost: Vec<Op> = {
        let witness = shared.lock().unwrap();
        let begun = witness.calls[commit].begun;
        let is_lost = |reply: &Reply| match reply {
            Reply::Changed { stability: Stability::Unstable, verifier: had, .. } => {
                *had != verifier
            }
            _ => false,
        };
        let calls = witness.calls.iter().filter(|call| call.ended < begun);
        let of_file = calls.filter(|call| {
            matches!(&call.op, Op::Write { file, .. } if file.tag == tag)
                && matches!(&call.outcome, Some(Ok(reply)) if is_lost(reply))
        });
        of_file.map(|call| call.op.clone()).collect()
    };
    let Some(Op::Write { file, .. }) = lost.first() else { return };
    let commit = Op::Commit { file: *file, offset: 0, count: 0 };
    for op in lost.iter().chain([&commit]) {
        let number = shared.lock().unwrap().begin(op.clone());
        let outcome = door.call(op, Some(number)).await;
        shared.lock().unwrap().end(number, outcome);
    }
}

/// A change that is sent again long after its answer is not made again.
async fn repeat(door: &NfsDoor, made: &Made) -> Result<(), String> {
    let answer = wire::answer(&made.op, &door.repeat(&made.record).await);
    let handle = |seen: &aquifer_files::Attributes| Some(seen.handle);
    match &answer {
        Ok(Reply::Done { attributes, .. })
            if attributes.is_none()
                || made.handle.is_none()
                || attributes.as_ref().and_then(handle) == made.handle =>
        {
            Ok(())
        }
        _ => Err(format!("{:?} was made, and sent again: {answer:?}", made.op)),
    }
}
