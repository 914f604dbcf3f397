//! The portmapper, compared with RFC 1833 section 3.

use proptest::prelude::*;

use super::*;
use crate::message::Rejection;
use crate::record::{RecordReader, StreamEnd};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

fn mapping(prog: u32, vers: u32, prot: u32, port: u32) -> Mapping {
    Mapping { prog, vers, prot, port }
}

fn mappings() -> Vec<Mapping> {
    vec![
        mapping(PROGRAM, 2, IPPROTO_TCP, 111),
        mapping(PROGRAM, 2, IPPROTO_UDP, 111),
        mapping(NFS, 3, IPPROTO_TCP, 2049),
        mapping(MOUNT, 3, IPPROTO_TCP, 20_048),
    ]
}

/// On all addresses of IPv4, and NFS on all of IPv6, too.
fn table() -> Vec<Service> {
    let any = |port: u32| SocketAddr::from(([0, 0, 0, 0], port.try_into().unwrap()));
    let v4 = mappings().into_iter().map(|Mapping { prog, vers, prot, port }| Service {
        prog,
        vers,
        prot,
        at: any(port),
    });
    let at = "[::]:2049".parse().unwrap();
    v4.chain([Service { prog: NFS, vers: 3, prot: IPPROTO_TCP, at }]).collect()
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn answer_to(message: &[u8]) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    answer(&table(), PEER, message, Framing::Datagram, &mut to).unwrap();
    to.to_vec()
}

/// The answer over TCP, behind its mark.
fn answer_over_tcp(message: &[u8]) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    answer(&table(), PEER, message, Framing::Record, &mut to).unwrap();
    to.to_vec().split_off(4)
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
    assert_eq!(answer_over_tcp(&call(2, 4, &[])), success(&dump));
}

#[test]
fn refusals() {
    let unavailable = words(&[9, 1, 0, 0, 0, 3]);
    assert_eq!(answer_to(&call(2, 4, &[])), unavailable, "DUMP over UDP");
    assert_eq!(answer_to(&call(3, 4, &[])), unavailable, "DUMP over UDP");
    assert_eq!(answer_to(&call(4, 4, &[])), unavailable, "DUMP over UDP");
    let addresses = rpcb_call(4, 11, (NFS, 3), "", "10.0.0.5.0.111");
    assert_eq!(answer_to(&addresses), unavailable, "GETADDRLIST over UDP");
    assert_eq!(answer_to(&call(2, 5, &[NFS, 3, 0, 0])), unavailable, "CALLIT");
    assert_eq!(answer_to(&call(2, 6, &[])), unavailable);
    for version in [1, 5] {
        let mismatch = words(&[9, 1, 0, 0, 0, 2, 2, 4]);
        assert_eq!(answer_to(&call(version, 0, &[])), mismatch);
    }
    assert_eq!(answer_to(&call(2, 3, &[NFS, 3, 6])), words(&[9, 1, 0, 0, 0, 4]), "GARBAGE_ARGS");
    let other = words(&[9, 0, 2, NFS, 3, 0, 0, 0, 0, 0]);
    assert_eq!(answer_to(&other), words(&[9, 1, 0, 0, 0, 1]), "PROG_UNAVAIL");
    assert_eq!(answer_to(&words(&[9, 0, 1])), words(&[9, 1, 1, 0, 2, 2]), "RPC_MISMATCH");
    let mut to = EncodeBuf::new();
    for message in [&b"junk"[..], b"", &success(&[])] {
        assert!(answer(&table(), PEER, message, Framing::Record, &mut to).is_err());
        assert!(to.is_empty(), "nothing is sent to what is no call");
    }
}

/// Over TCP the same bytes follow a record mark.
#[test]
fn framing() {
    let message = call(2, 3, &[NFS, 3, 6, 0]);
    let mut to = EncodeBuf::new();
    answer(&table(), PEER, &message, Framing::Record, &mut to).unwrap();
    answer(&table(), PEER, &message, Framing::Record, &mut to).unwrap();
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
        (Request::Dump, Answer::Mappings(mappings())),
    ];
    for (request, want) in cases {
        let mut to = EncodeBuf::new();
        request.encode(77, Credential::None, &mut to);
        let reply = answer_over_tcp(&to.to_vec());
        assert_eq!(request.decode_answer(77, &reply), Ok(want));
        let other = Err(AnswerError::OtherXid { asked: 78, got: 77 });
        assert_eq!(request.decode_answer(78, &reply), other);
    }
}

/// SET to an rpcbind: RFC 1833 section 3.1, word by word; and rpcbind's TRUE.
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

/// A call of rpcbind about a program on a transport, asked at an address.
fn rpcb_call(version: u32, procedure: u32, what: (u32, u32), netid: &str, addr: &str) -> Vec<u8> {
    let (prog, vers) = what;
    let owner = "somebody".into();
    let mut to = EncodeBuf::new();
    to.put(&rpcb::Rpcb { prog, vers, netid: netid.into(), addr: addr.into(), owner });
    [call(version, procedure, &[]), to.to_vec()].concat()
}

/// The text in a successful reply.
fn text(reply: &[u8]) -> String {
    let mut from = Decoder::new(reply);
    let reply = Reply::decode(&mut from).unwrap();
    assert!(matches!(reply.body, ReplyBody::Accepted { status: Accepted::Success, .. }));
    let text = String::from_utf8(from.string(100).unwrap().to_vec()).unwrap();
    assert!(from.remaining().is_empty());
    text
}

#[test]
fn rpcbind_tells_addresses_as_who_asks_can_reach_them() {
    for version in [3, 4] {
        for (what, netid, hint, expected) in [
            ((NFS, 3), "tcp", "10.0.0.5.0.111", "10.0.0.5.8.1"),
            ((NFS, 3), "tcp6", "fd00::5.0.111", "fd00::5.8.1"),
            ((NFS, 4), "tcp", "10.0.0.5.0.111", "10.0.0.5.8.1"),
            ((NFS, 3), "tcp", "", "0.0.0.0.8.1"),
            ((NFS, 3), "tcp", "fd00::5.0.111", "0.0.0.0.8.1"),
            ((NFS, 3), "tcp", "nonsense", "0.0.0.0.8.1"),
            ((NFS, 3), "udp", "10.0.0.5.0.111", ""),
            ((MOUNT, 3), "tcp6", "fd00::5.0.111", ""),
            ((PROGRAM, 2), "", "10.0.0.5.0.111", "10.0.0.5.0.111"),
            ((100_021, 4), "tcp", "10.0.0.5.0.111", ""),
        ] {
            let said = answer_to(&rpcb_call(version, 3, what, netid, hint));
            assert_eq!(text(&said), expected, "{version} {what:?} {netid} {hint}");
        }
    }
    let exact = |vers| text(&answer_to(&rpcb_call(4, 9, (NFS, vers), "tcp", "10.0.0.5.0.111")));
    assert_eq!((exact(3), exact(4)), ("10.0.0.5.8.1".into(), String::new()));
}

#[test]
fn rpcbind_lists_what_there_is_and_changes_nothing() {
    for version in [3, 4] {
        let reply = answer_over_tcp(&call(version, 4, &[]));
        let mut from = Decoder::new(&reply[24..]);
        let listed: Vec<rpcb::Rpcb> = from.list().unwrap();
        let line = |it: &rpcb::Rpcb| format!("{} {} {} {}", it.prog, it.vers, it.netid, it.addr);
        let lines: Vec<String> = listed.iter().map(line).collect();
        let expected = [
            "100000 2 tcp 0.0.0.0.0.111",
            "100000 2 udp 0.0.0.0.0.111",
            "100003 3 tcp 0.0.0.0.8.1",
            "100005 3 tcp 0.0.0.0.78.80",
            "100003 3 tcp6 ::.8.1",
        ];
        assert_eq!(lines, expected);
        assert!(listed.iter().all(|it| it.owner == "superuser"));
        for procedure in [1, 2] {
            let change = rpcb_call(version, procedure, (NFS, 3), "tcp", "0.0.0.0.8.1");
            assert_eq!(answer_to(&change), success(&[0]));
        }
        assert_eq!(answer_to(&call(version, 3, &[1])), words(&[9, 1, 0, 0, 0, 4]), "GARBAGE_ARGS");
        assert_eq!(answer_to(&call(version, 5, &[])), words(&[9, 1, 0, 0, 0, 3]), "CALLIT, BCAST");
    }
    assert_eq!(answer_to(&call(3, 9, &[])), words(&[9, 1, 0, 0, 0, 3]), "of version 4 only");
    assert_eq!(answer_to(&call(4, 10, &[])), words(&[9, 1, 0, 0, 0, 3]), "INDIRECT");
}

/// `rpcb_entry_list`: RFC 1833 section 2.1, word by word.
#[test]
fn golden_getaddrlist() {
    let said = answer_over_tcp(&rpcb_call(4, 11, (NFS, 3), "", "10.0.0.5.0.111"));
    let mut expected = EncodeBuf::new();
    for (address, netid, family) in [("10.0.0.5.8.1", "tcp", "inet"), ("::.8.1", "tcp6", "inet6")] {
        expected.bool(true);
        expected.opaque(address.as_bytes());
        expected.opaque(netid.as_bytes());
        expected.u32(3);
        expected.opaque(family.as_bytes());
        expected.opaque(b"tcp");
    }
    expected.bool(false);
    assert_eq!(said, [success(&[]), expected.to_vec()].concat());
}

#[test]
fn universal_addresses_are_texts_of_sockets() {
    for (socket, text) in [("10.0.0.5:2049", "10.0.0.5.8.1"), ("[fd00::5]:111", "fd00::5.0.111")] {
        let socket: SocketAddr = socket.parse().unwrap();
        assert_eq!(
            (rpcb::universal(socket).as_str(), rpcb::of_universal(text)),
            (text, Some(socket))
        );
    }
    for text in
        ["", ".", "10.0.0.5", "10.0.0.5.8", "10.0.0.5.8.256", "::.8", "x.1.1", "1.2.3.4.5.6.7"]
    {
        assert_eq!(rpcb::of_universal(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn total_rpcbind(
        args in prop::collection::vec(0..20_u32, 0..12),
        version in 3..5_u32,
        procedure in 0..14_u32,
    ) {
        let mut to = EncodeBuf::new();
        let message = call(version, procedure, &args);
        prop_assert!(answer(&table(), PEER, &message, Framing::Datagram, &mut to).is_ok());
        prop_assert!(Reply::decode(&mut Decoder::new(&to.to_vec())).is_ok());
    }

    #[test]
    fn total(args in prop::collection::vec(0..20_u32, 0..12), procedure in 0..8_u32) {
        let message = call(2, procedure, &args);
        for len in 0..=message.len() {
            let mut to = EncodeBuf::new();
            let answered = answer(&table(), PEER, &message[..len], Framing::Record, &mut to);
            prop_assert_eq!(answered.is_err(), to.is_empty());
        }
        for request in [Request::Dump, Request::Null, Request::Set(mapping(1, 2, 3, 4))] {
            let _ = request.decode_answer(9, &success(&args));
        }
    }
}
