//! What a call may cost.
//!
//! - Any: so many steps whatever it says, so many for each byte of it and of its reply, and a few
//!   for each byte of the input's earlier calls, which may be what it commits or cuts off.
//! - One of locks: so many for each lock of the file that it names, and for each pair of one that
//!   holds and one that waits there. Locks of other files cost nothing.
//! - One that may end what a client or a file has: so many for each lock there is.
//! - EXPORT: so many for each export there is, those too that it does not tell.

use std::collections::HashMap;

use aquifer_files::FileHandle;
use aquifer_nfs::Nfs;
use aquifer_nfs::lock::{LockState, Locks};
use aquifer_nfs::proto::{mount, nlm, nsm};
use aquifer_rpc::message::Call;
use aquifer_rpc::xdr::Decoder;

/// Breaks if a call took more steps than it may. `bytes`: its own, and the input's so far.
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

/// What locks and exports allow beside. They are looked at after the call.
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

/// Locks that are held and waited for, by file.
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
