//! The allowed cost of a call.
//!
//! - Any call: a constant, and a number of steps for each byte of it and of its reply. A few more
//!   for each byte of the input's earlier calls, which it may commit or truncate.
//! - A lock call: a number of steps for each lock of the file that it names, and for each pair of a
//!   holder and a waiter there. Locks of other files cost nothing.
//! - A call that may end everything of a client or a file: a number of steps for each lock that
//!   exists.
//! - EXPORT: a number of steps for each export that exists, even those that it does not list.

use std::collections::HashMap;

use aquifer_files::FileHandle;
use aquifer_nfs::Nfs;
use aquifer_nfs::lock::{LockState, Locks};
use aquifer_nfs::proto::{mount, nlm, nsm};
use aquifer_rpc::message::Call;
use aquifer_rpc::xdr::Decoder;

/// Panics if a call took more steps than allowed. `bytes`: its own, and those of the input so far.
pub fn check(record: &[u8], steps: u64, bytes: [usize; 2], nfs: &Nfs) {
    let call = Call::decode(&mut Decoder::new(record)).ok();
    let what = call.map(|call| (call.program, call.procedure)).unwrap_or_default();
    let any = match what.0 {
        nlm::PROGRAM | nsm::PROGRAM => LOCK_STEPS,
        _ => STEPS,
    };
    let [own, all] = bytes.map(|bytes| u64::try_from(bytes).unwrap());
    let limit = any + STEPS_PER_BYTE * own + STEPS_PER_EARLIER_BYTE * all;
    if steps > limit {
        let limit = limit + more(what, record, nfs);
        assert!(steps <= limit, "{steps} steps for {what:?} of {bytes:?} bytes, not {limit}");
    }
}

/// The additional steps for locks and exports. They are counted after the call.
fn more(what: (u32, u32), record: &[u8], nfs: &Nfs) -> u64 {
    let files = crowded(nfs.locks());
    let all: u64 = files.values().flatten().sum();
    let of_file = |[held, waiting]: &[u64; 2]| {
        STEPS_PER_LOCK * (held + waiting) + STEPS_PER_PAIR * held * waiting
    };
    match what {
        (nlm::PROGRAM, procedure) if procedure != nlm::Procedure::FreeAll.wire() => {
            let words = record.windows(FileHandle::BYTES).step_by(WORD_BYTES);
            words.filter_map(|handle| files.get(handle)).map(of_file).sum()
        }
        (nlm::PROGRAM | nsm::PROGRAM, _) => STEPS_PER_LOCK * all,
        (mount::PROGRAM, procedure) if procedure == mount::Procedure::Export.wire() => {
            STEPS_PER_EXPORT * u64::try_from(nfs.exports().list().len()).unwrap()
        }
        _ => {
            STEPS_PER_LOCK * files.values().map(|[held, waiting]| held + waiting).max().unwrap_or(0)
        }
    }
}

/// Numbers of held locks and waiters, by file.
fn crowded(locks: &Locks) -> HashMap<[u8; FileHandle::BYTES], [u64; 2]> {
    let mut files: HashMap<_, [u64; 2]> = HashMap::new();
    for lock in locks.list() {
        let [held, waiting] = files.entry(lock.file.encode()).or_default();
        *if lock.state == LockState::Waiting { waiting } else { held } += 1;
    }
    files
}

const WORD_BYTES: usize = 4;
/// The most seen was 36,000: a table of 1,000 entries that grows.
const STEPS: u64 = 80_000;
/// The most seen was 5,000: a client that joins the durable list.
const LOCK_STEPS: u64 = 15_000;
/// The most seen was 5: lists.
const STEPS_PER_BYTE: u64 = 16;
const STEPS_PER_EARLIER_BYTE: u64 = 2;
const STEPS_PER_LOCK: u64 = 200;
const STEPS_PER_PAIR: u64 = 40;
const STEPS_PER_EXPORT: u64 = 200;
