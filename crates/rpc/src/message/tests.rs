//! Call and reply headers, compared with RFC 5531.

use proptest::prelude::*;

use super::*;
use crate::auth::{AUTH_NONE, AUTH_SYS, AUTH_TLS, AuthSys, Gids};

/// Words as they stand on the wire.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    to.put(value);
    to.to_vec()
}

fn decode(bytes: &[u8]) -> Result<Call<'_>, CallError> {
    Call::decode(&mut Decoder::new(bytes))
}

/// The procedure asked for, and the place of its arguments.
fn asked(bytes: &[u8]) -> Option<(Asked, usize)> {
    let mut from = Decoder::new(bytes);
    Asked::decode(&mut from).map(|asked| (asked, from.position()))
}

/// An anonymous NULL of NFSv3, RFC 5531 section 9, word by word.
#[test]
fn golden_null_call() {
    // xid, CALL, rpcvers, prog, vers, proc, cred {flavor, length}, verf {flavor, length}
    let bytes = words(&[0x1234_5678, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
    let call = Call {
        xid: 0x1234_5678,
        program: 100_003,
        version: 3,
        procedure: NULL_PROCEDURE,
        credential: Credential::None,
        verifier: OpaqueAuth::NONE,
    };
    assert_eq!(encoded(&call), bytes);
    assert_eq!(decode(&bytes), Ok(call));
}

/// AUTH_SYS, RFC 5531 appendix A; the decoder stops at the arguments.
#[test]
fn golden_auth_sys_call() {
    let mut bytes = words(&[7, 0, 2, 100_003, 3, 1, 1, 32]);
    bytes.extend(words(&[0x5f00_0001, 3]));
    bytes.extend(b"esx\0");
    bytes.extend(words(&[0, 1, 2, 10, 20]));
    bytes.extend(words(&[0, 0]));
    let gids = Gids::new(&[10, 20]).unwrap();
    let sys = AuthSys { stamp: 0x5f00_0001, machine_name: b"esx", uid: 0, gid: 1, gids };
    let call = Call {
        xid: 7,
        program: 100_003,
        version: 3,
        procedure: 1,
        credential: Credential::Sys(sys),
        verifier: OpaqueAuth::NONE,
    };
    assert_eq!(encoded(&call), bytes);
    let getattr = Asked { program: 100_003, version: 3, procedure: 1 };
    assert_eq!(asked(&bytes), Some((getattr, bytes.len())));
    for cut in 0..bytes.len() {
        assert_eq!(asked(&bytes[..cut]), None, "{cut} bytes");
    }
    bytes.extend(b"args");
    let mut from = Decoder::new(&bytes);
    assert_eq!(Call::decode(&mut from), Ok(call));
    assert_eq!((from.remaining(), from.position()), (&b"args"[..], bytes.len() - 4));
    assert!(gids.contains(20) && !gids.contains(0));
}

#[test]
fn golden_replies() {
    let cases: &[(Accepted, &[u32])] = &[
        (Accepted::Success, &[9, 1, 0, 0, 0, 0]),
        (Accepted::ProgUnavail, &[9, 1, 0, 0, 0, 1]),
        (Accepted::ProgMismatch { low: 3, high: 4 }, &[9, 1, 0, 0, 0, 2, 3, 4]),
        (Accepted::ProcUnavail, &[9, 1, 0, 0, 0, 3]),
        (Accepted::GarbageArgs, &[9, 1, 0, 0, 0, 4]),
        (Accepted::SystemErr, &[9, 1, 0, 0, 0, 5]),
    ];
    for (status, wire) in cases {
        let reply = Reply::accepted(9, *status);
        assert_eq!(encoded(&reply), words(wire));
        assert_eq!(Reply::decode(&mut Decoder::new(&words(wire))), Ok(reply));
    }
    let mismatch = Reply::denied(9, Rejection::RpcMismatch { low: 2, high: 2 });
    assert_eq!(encoded(&mismatch), words(&[9, 1, 1, 0, 2, 2]));
    for &stat in AuthStat::ALL {
        let denied = Reply::denied(9, Rejection::AuthError(stat));
        let wire = words(&[9, 1, 1, 1, stat.wire()]);
        assert_eq!(encoded(&denied), wire);
        assert_eq!(Reply::decode(&mut Decoder::new(&wire)), Ok(denied));
    }
    assert_eq!(AuthStat::ALL.len(), 15);
    assert_eq!(AuthStat::TooWeak.wire(), 5);
    assert_eq!(AuthStat::GssCtxProblem.wire(), 14);
}

#[test]
fn other_rpc_versions_are_refused() {
    for version in [0, 1, 3, u32::MAX] {
        let why = Rejection::RpcMismatch { low: 2, high: 2 };
        let refused = Err(CallError::Refused { xid: 5, why });
        assert_eq!(decode(&words(&[5, 0, version])), refused);
    }
}

#[test]
fn limits_of_auth_sys_give_badcred() {
    let call = |body: &[u8]| {
        let len = u32::try_from(body.len()).unwrap();
        [words(&[5, 0, 2, 1, 1, 0, 1, len]), body.to_vec(), words(&[0, 0])].concat()
    };
    let body = |name: usize, gids: u32| {
        let name_len = u32::try_from(name).unwrap();
        let mut body = words(&[0, name_len]);
        body.extend(vec![b'n'; name.next_multiple_of(4)]);
        body.extend(words(&[1, 2, gids]));
        body.extend((0..gids).flat_map(|gid| gid.to_be_bytes()));
        body
    };
    let bad = CallError::Refused { xid: 5, why: Rejection::AuthError(AuthStat::BadCred) };
    assert!(decode(&call(&body(255, 16))).is_ok());
    assert_eq!(decode(&call(&body(256, 0))), Err(bad));
    assert_eq!(decode(&call(&body(0, 17))), Err(bad));
    assert_eq!(decode(&call(&[])), Err(bad));
    let whole = body(5, 3);
    for len in 0..whole.len() {
        assert_eq!(decode(&call(&whole[..len])), Err(bad), "body cut to {len} bytes");
    }
    assert!(decode(&call(&[whole, words(&[0, 0])].concat())).is_ok(), "more than we know of");
    assert!(Gids::new(&[0; 16]).is_some() && Gids::new(&[0; 17]).is_none());
}

#[test]
fn limits_of_opaque_auth() {
    let refused = |why| Err(CallError::Refused { xid: 5, why: Rejection::AuthError(why) });
    let cred = [words(&[5, 0, 2, 1, 1, 0, 0, 404]), vec![0; 404], words(&[0, 0])].concat();
    assert_eq!(decode(&cred), refused(AuthStat::BadCred));
    let verf = [words(&[5, 0, 2, 1, 1, 0, 0, 0, 0, 401]), vec![0; 404]].concat();
    assert_eq!(decode(&verf), refused(AuthStat::BadVerf));
    let most = [words(&[5, 0, 2, 1, 1, 0, 99, 400]), vec![7; 400], words(&[98, 400])].concat();
    let most = [most, vec![8; 400]].concat();
    assert_eq!(most.len(), CALL_HEADER_BYTES_MAX);
    let call = decode(&most).unwrap();
    let other = OpaqueAuth { flavor: 99, body: &[7; 400] };
    assert_eq!(call.credential, Credential::Other(other));
    assert_eq!(call.verifier, OpaqueAuth { flavor: 98, body: &[8; 400] });
    assert_eq!(encoded(&call), most);
}

/// RFC 9289 section 4.1: the probe is NULL with AUTH_TLS; it must reach the program as such.
#[test]
fn starttls_probe_is_passed_on() {
    let bytes = words(&[1, 0, 2, 100_003, 3, 0, 7, 0, 0, 0]);
    let call = decode(&bytes).map(|call| call.credential);
    assert_eq!(call, Ok(Credential::Other(OpaqueAuth { flavor: AUTH_TLS, body: &[] })));
    assert_eq!((AUTH_NONE, AUTH_SYS), (0, 1));
}

#[test]
fn what_is_no_call() {
    assert_eq!(decode(&words(&[5, 1, 0, 0, 0, 0])), Err(CallError::Reply { xid: 5 }));
    assert!(matches!(decode(&words(&[5, 2])), Err(CallError::Unreadable(_))));
    let whole = words(&[5, 0, 2, 1, 1, 0, 0, 0, 0, 0]);
    for len in 0..whole.len() {
        let cut = decode(&whole[..len]);
        assert!(matches!(cut, Err(CallError::Unreadable(XdrError::Truncated { .. }))));
    }
    let bytes = words(&[5, 0]);
    let a_call = Reply::decode(&mut Decoder::new(&bytes));
    assert!(matches!(a_call, Err(XdrError::BadValue { offset: 4, .. })));
}

proptest! {
    #[test]
    fn round_trip(
        numbers in any::<(u32, u32, u32, u32)>(),
        name in prop::collection::vec(any::<u8>(), 0..=255),
        ids in any::<(u32, u32, u32)>(),
        gids in prop::collection::vec(any::<u32>(), 0..=16),
        flavor in 2..u32::MAX,
        body in prop::collection::vec(any::<u8>(), 0..=400),
        kind in 0..3_u8,
    ) {
        let (stamp, uid, gid) = ids;
        let gids = Gids::new(&gids).unwrap();
        let opaque = OpaqueAuth { flavor, body: &body };
        let credential = match kind {
            0 => Credential::None,
            1 => Credential::Sys(AuthSys { stamp, machine_name: &name, uid, gid, gids }),
            _ => Credential::Other(opaque),
        };
        let (xid, program, version, procedure) = numbers;
        let call = Call { xid, program, version, procedure, credential, verifier: opaque };
        let bytes = encoded(&call);
        prop_assert_eq!(decode(&bytes), Ok(call));
        let body = ReplyBody::Accepted { verifier: opaque, status: Accepted::SystemErr };
        let reply = Reply { xid, body };
        let bytes = encoded(&reply);
        prop_assert_eq!(Reply::decode(&mut Decoder::new(&bytes)), Ok(reply));
    }

    /// Small words make it deep into the definitions; anything else is refused early.
    #[test]
    fn total(
        start in prop::collection::vec(0..20_u32, 0..24),
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let bytes = [words(&start), rest].concat();
        let _ = decode(&bytes);
        let _ = Reply::decode(&mut Decoder::new(&bytes));
        let call = [words(&[1, 0, 2, 3, 4, 5, 1, 64]), bytes].concat();
        let _ = decode(&call);
    }
}
