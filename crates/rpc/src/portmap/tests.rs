//! The portmapper against RFC 1833 section 3.

use proptest::prelude::*;

use super::*;
use crate::message::Rejection;
use crate::record::{RecordReader, StreamEnd};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn mapping(prog: u32, vers: u32, prot: u32, port: u32) -> Mapping {
    Mapping { prog, vers, prot, port }
}

fn table() -> Vec<Mapping> {
    vec![
        mapping(PROGRAM, 2, IPPROTO_TCP, 111),
        mapping(PROGRAM, 2, IPPROTO_UDP, 111),
        mapping(NFS, 3, IPPROTO_TCP, 2049),
        mapping(MOUNT, 3, IPPROTO_TCP, 20_048),
    ]
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn answer_to(message: &[u8]) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    answer(&table(), message, Framing::Datagram, &mut to).unwrap();
    to.to_vec()
}

/// The call of a portmapper procedure by AUTH_NONE, then `args`.
fn call(version: u32, procedure: u32, args: &[u32]) -> Vec<u8> {
    words(&[&[9, 0, 2, PROGRAM, version, procedure, 0, 0, 0, 0], args].concat())
}

/// A successful reply's words.
fn success(results: &[u32]) -> Vec<u8> {
    words(&[&[9, 1, 0, 0, 0, 0], results].concat())
}

#[test]
fn golden_procedures() {
    assert_eq!(answer_to(&call(2, 0, &[])), success(&[]));
    assert_eq!(answer_to(&call(2, 1, &[NFS, 3, 6, 666])), success(&[0]), "SET is refused");
    assert_eq!(answer_to(&call(2, 2, &[NFS, 3, 0, 0])), success(&[0]), "UNSET is refused");
    assert_eq!(answer_to(&call(2, 3, &[NFS, 3, 6, 0])), success(&[2049]));
    assert_eq!(answer_to(&call(2, 3, &[NFS, 3, 17, 0])), success(&[0]), "no NFS over UDP");
    assert_eq!(answer_to(&call(2, 3, &[NFS, 4, 6, 0])), success(&[2049]), "NFS says itself: no v4");
    assert_eq!(answer_to(&call(2, 3, &[100_021, 4, 6, 0])), success(&[0]), "no lock manager");
    let dump = [
        1, PROGRAM, 2, 6, 111, 1, PROGRAM, 2, 17, 111, 1, NFS, 3, 6, 2049, 1, MOUNT, 3, 6, 20_048,
        0,
    ];
    assert_eq!(answer_to(&call(2, 4, &[])), success(&dump));
}

#[test]
fn refusals() {
    let unavailable = words(&[9, 1, 0, 0, 0, 3]);
    assert_eq!(answer_to(&call(2, 5, &[NFS, 3, 0, 0])), unavailable, "CALLIT");
    assert_eq!(answer_to(&call(2, 6, &[])), unavailable);
    for version in [1, 3, 4] {
        let mismatch = words(&[9, 1, 0, 0, 0, 2, 2, 2]);
        assert_eq!(answer_to(&call(version, 0, &[])), mismatch);
    }
    assert_eq!(answer_to(&call(2, 3, &[NFS, 3, 6])), words(&[9, 1, 0, 0, 0, 4]), "GARBAGE_ARGS");
    let other = words(&[9, 0, 2, NFS, 3, 0, 0, 0, 0, 0]);
    assert_eq!(answer_to(&other), words(&[9, 1, 0, 0, 0, 1]), "PROG_UNAVAIL");
    assert_eq!(answer_to(&words(&[9, 0, 1])), words(&[9, 1, 1, 0, 2, 2]), "RPC_MISMATCH");
    let mut to = EncodeBuf::new();
    for message in [&b"junk"[..], b"", &success(&[])] {
        assert!(answer(&table(), message, Framing::Record, &mut to).is_err());
        assert!(to.is_empty(), "nothing is sent to what is no call");
    }
}

/// Over TCP the same bytes stand behind a record mark.
#[test]
fn framing() {
    let message = call(2, 3, &[NFS, 3, 6, 0]);
    let mut to = EncodeBuf::new();
    answer(&table(), &message, Framing::Record, &mut to).unwrap();
    answer(&table(), &message, Framing::Record, &mut to).unwrap();
    let bytes = to.to_vec();
    let mut reader = RecordReader::new(1000, 0);
    reader.space()[..bytes.len()].copy_from_slice(&bytes);
    reader.filled(bytes.len());
    for _ in 0..2 {
        assert_eq!(reader.next_record(), Ok(Some(&answer_to(&message)[..])));
    }
    assert_eq!(reader.next_record(), Ok(None));
    assert_eq!(reader.stream_end(), StreamEnd::Clean);
}

/// Our client side asks our server side.
#[test]
fn requests_and_answers() {
    let asked = mapping(MOUNT, 3, IPPROTO_TCP, 0);
    let cases = [
        (Request::Null, Answer::Null),
        (Request::Set(asked), Answer::Done(false)),
        (Request::Unset(asked), Answer::Done(false)),
        (Request::Getport(asked), Answer::Port(20_048)),
        (Request::Dump, Answer::Mappings(table())),
    ];
    for (request, want) in cases {
        let mut to = EncodeBuf::new();
        request.encode(77, Credential::None, &mut to);
        let reply = answer_to(&to.to_vec());
        assert_eq!(request.decode_answer(77, &reply), Ok(want));
        let other = Err(AnswerError::OtherXid { asked: 78, got: 77 });
        assert_eq!(request.decode_answer(78, &reply), other);
    }
}

/// SET as it goes to an rpcbind: RFC 1833 section 3.1, word by word; and rpcbind's TRUE.
#[test]
fn golden_set() {
    let mut to = EncodeBuf::new();
    let request = Request::Set(mapping(NFS, 3, IPPROTO_TCP, 2049));
    request.encode(9, Credential::None, &mut to);
    assert_eq!(to.to_vec(), call(2, 1, &[NFS, 3, 6, 2049]));
    assert_eq!(request.decode_answer(9, &success(&[1])), Ok(Answer::Done(true)));
    let denied = words(&[9, 1, 1, 1, 5]);
    let why = Rejection::AuthError(crate::auth::AuthStat::TooWeak);
    assert_eq!(request.decode_answer(9, &denied), Err(AnswerError::Denied(why)));
    let failed = words(&[9, 1, 0, 0, 0, 5]);
    let status = AnswerError::Failed(Accepted::SystemErr);
    assert_eq!(request.decode_answer(9, &failed), Err(status));
    assert!(matches!(request.decode_answer(9, &[]), Err(AnswerError::Unreadable(_))));
}

proptest! {
    #[test]
    fn total(args in prop::collection::vec(0..20_u32, 0..12), procedure in 0..8_u32) {
        let message = call(2, procedure, &args);
        for len in 0..=message.len() {
            let mut to = EncodeBuf::new();
            let answered = answer(&table(), &message[..len], Framing::Record, &mut to);
            prop_assert_eq!(answered.is_err(), to.is_empty());
        }
        for request in [Request::Dump, Request::Null, Request::Set(mapping(1, 2, 3, 4))] {
            let _ = request.decode_answer(9, &success(&args));
        }
    }
}
