//! Answers to our calls on hosts that lock: from their portmapper, status monitor and lock manager.
//!
//! The kernel ensures that an answer comes from the called host: sockets are connected.

use aquifer_nfs::lock::GrantAnswer;
use aquifer_nfsd::answers::{port, results, state};
use aquifer_nfsd::limits::CALL_REPLY_BYTES_MAX;
use aquifer_rpc::auth::AuthStat;
use aquifer_rpc::message::{Accepted, Rejection, Reply};
use aquifer_rpc::record::RecordReader;
use aquifer_rpc::xdr::EncodeBuf;
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, fair};

/// Tries one input: as a datagram, as a stream, and as results behind a header.
pub fn run(input: &[u8]) {
    let xid = input.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
    answered(input, xid);
    stream(input);
    if let Ok((reply, xid)) = nearly_right(&mut Unstructured::new(input)) {
        answered(&reply, xid);
    }
}

fn answered(reply: &[u8], xid: u32) {
    let answer = fair("a reply", reply.len(), &LIMIT, || results(reply, xid));
    assert_eq!(results(reply, xid ^ 1), None, "a reply to another call");
    let Some(answer) = answer else { return };
    assert_eq!(reply[..4], xid.to_be_bytes());
    let Ok(results) = answer else { return };
    assert!(reply.ends_with(&results));
    let said = fair("results", results.len(), &LIMIT, || {
        (port(&results), state(&results), GrantAnswer::of(&results))
    });
    let word = results.first_chunk().map(|word| u32::from_be_bytes(*word));
    if let Some(port) = said.0 {
        assert!(port > 0 && word == Some(u32::from(port)));
    }
    assert!(said.1.is_none_or(|state| state > 0));
    if said.2 == GrantAnswer::Accepted {
        // A cookie, and the status "granted".
        let cookie = usize::try_from(word.unwrap()).unwrap().next_multiple_of(4);
        assert_eq!(results[4 + cookie..][..4], [0; 4]);
    }
}

/// The first reply to this call on a connection, read as in service.
fn stream(bytes: &[u8]) {
    let found = fair("a stream", bytes.len(), &STREAM, || {
        let mut reader = RecordReader::new(CALL_REPLY_BYTES_MAX, CALL_REPLY_BYTES_MAX);
        let mut rest = bytes;
        while !rest.is_empty() {
            let space = reader.space();
            let taken = space.len().min(rest.len());
            space[..taken].copy_from_slice(&rest[..taken]);
            reader.filled(taken);
            rest = &rest[taken..];
            while let Ok(Some(record)) = reader.next_record() {
                if let Some(answer) = results(record, STREAM_XID) {
                    return Some(answer);
                }
            }
            if reader.next_record().is_err() {
                break;
            }
        }
        None
    });
    if let Some(Ok(results)) = found {
        assert!(results.len() <= CALL_REPLY_BYTES_MAX);
    }
}

fn nearly_right(from: &mut Unstructured<'_>) -> Result<(Vec<u8>, u32)> {
    let xid = from.arbitrary()?;
    let mut to = EncodeBuf::new();
    to.put(&match from.int_in_range(0..=7)? {
        0 => Reply::denied(xid, Rejection::AuthError(AuthStat::TooWeak)),
        1 => Reply::accepted(xid, Accepted::ProcUnavail),
        _ => Reply::accepted(xid, Accepted::Success),
    });
    let cookie: u8 = from.int_in_range(0..=9)?;
    if from.arbitrary()? {
        to.opaque(&vec![cookie; cookie.into()]);
    }
    let mut reply = to.to_vec();
    reply.extend(from.bytes(from.len())?);
    Ok((reply, xid))
}

const STREAM_XID: u32 = 7;
const LIMIT: Limit = Limit { peak: 4096, peak_per_byte: 8, steps: 1000, steps_per_byte: 10 };
/// The reader's buffer, and room for one more record.
const STREAM: Limit = Limit { peak: 600_000, peak_per_byte: 8, steps: 30_000, steps_per_byte: 20 };
