//! XDR: decoding is total and takes memory in proportion to its bytes. A value that decodes is
//! written in one form only.

use std::fmt::Debug;

use aquifer_nfs::proto::mount::{self, DirPath, MountBody, MountList, MountRes3};
use aquifer_nfs::proto::nlm::{
    CancArgs4, LockArgs4, Nlm4Res, Notify4, ShareArgs4, ShareRes4, TestArgs4, TestRes4, UnlockArgs4,
};
use aquifer_nfs::proto::nsm::{StatChge, StatRes};
use aquifer_nfs::proto::v3::{
    Access3Res, Args3, Create3Res, EntryPlus3, Fsinfo3Res, Fsstat3Res, Getattr3Res, Link3Res,
    Lookup3Res, NfsFh3, Pathconf3Res, Procedure3, Read3Res, Readdir3Res, Readdirplus3Res,
    Readlink3Res, Rename3Res, Sattr3, Setattr3Res, Write3Head, Write3Res,
};
use aquifer_rpc::auth::{AuthSys, OpaqueAuth};
use aquifer_rpc::message::{Accepted, Asked, Call, CallError, Rejection, Reply};
use aquifer_rpc::portmap::Mapping;
use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, Span};

use crate::cost::{self, Limit};

/// Tries one input: its first byte chooses the type that the others are read as.
pub fn run(input: &[u8]) {
    let Some((which, bytes)) = input.split_first() else { return };
    let which = usize::from(*which);
    match which.checked_sub(FIRST_PROCEDURE) {
        None => TYPES.get(which).into_iter().for_each(|read_as| read_as(bytes)),
        Some(procedure) => match Procedure3::ALL.get(procedure) {
            Some(procedure) => arguments(*procedure, bytes),
            None => header(bytes),
        },
    }
}

/// A value that decodes must encode to as many bytes as were read, and these must decode to the
/// same value.
macro_rules! one_form {
    ($($type:ty,)*) => {
        [$(|bytes: &[u8]| {
            let decode = || {
                let mut from = Decoder::new(bytes);
                <$type>::decode(&mut from).map(|value| (value, from))
            };
            let Ok((value, from)) = fair(bytes, decode) else { return };
            let written = encoded(&value);
            // Padding may be missing at the very end.
            let read = from.position();
            assert!((read..read + 4).contains(&written.len()), "{value:?}: {read} bytes read");
            let mut from = Decoder::new(&written);
            let again: $type = Decode::decode(&mut from).unwrap();
            assert_eq!(again, value);
            assert!(from.remaining().is_empty(), "{value:?}");
            assert_eq!(encoded(&again), written);
        }),*]
    };
}

/// Every type that a stranger's bytes are read as, except for NFS's arguments and headers. New
/// types come last, so that the corpus keeps its meaning.
const TYPES: &[fn(&[u8])] = &one_form![
    u32,
    i64,
    bool,
    [u8; 3],
    &[u8],
    Span<'_>,
    Option<u64>,
    OpaqueAuth<'_>,
    AuthSys<'_>,
    Reply<'_>,
    Accepted,
    Rejection,
    Mapping,
    DirPath<'_>,
    MountBody<'_>,
    MountRes3,
    MountList<'_>,
    mount::Exports<'_>,
    NfsFh3,
    Sattr3,
    Getattr3Res,
    Setattr3Res,
    Lookup3Res,
    Access3Res,
    Readlink3Res<'_>,
    Read3Res<'_>,
    Write3Res,
    Create3Res,
    Rename3Res,
    Link3Res,
    EntryPlus3<'_>,
    Readdir3Res<'_>,
    Readdirplus3Res<'_>,
    Fsstat3Res,
    Fsinfo3Res,
    Pathconf3Res,
    TestArgs4<'_>,
    LockArgs4<'_>,
    CancArgs4<'_>,
    UnlockArgs4<'_>,
    ShareArgs4<'_>,
    Notify4<'_>,
    TestRes4<'_>,
    Nlm4Res<'_>,
    ShareRes4<'_>,
    StatChge<'_>,
    StatRes,
];

/// Arguments by procedure; and WRITE's from its first bytes alone.
fn arguments(procedure: Procedure3, bytes: &[u8]) {
    let decode = || Args3::decode(procedure, &mut Decoder::new(bytes));
    let Ok(args) = fair(bytes, decode) else { return };
    assert_eq!(args.procedure(), procedure);
    let written = encoded(&args);
    let mut from = Decoder::new(&written);
    assert_eq!(Args3::decode(procedure, &mut from), Ok(args));
    assert!(from.remaining().is_empty(), "{args:?}");
    if let Args3::Write(write) = args {
        let mut from = Decoder::new(bytes);
        assert_eq!(Write3Head::decode(&mut from), Ok(write.head));
        assert_eq!(from.position(), write.data.offset);
    }
}

/// A call's header: it is read, refused with its own xid, or no answer is possible.
fn header(bytes: &[u8]) {
    let decode = || {
        let mut from = Decoder::new(bytes);
        Call::decode(&mut from).map(|call| (call, from))
    };
    match fair(bytes, decode) {
        Ok((call, from)) => {
            let written = encoded(&call);
            assert_eq!(Call::decode(&mut Decoder::new(&written)), Ok(call));
            let mut quickly = Decoder::new(bytes);
            let Call { program, version, procedure, .. } = call;
            let asked = Some(Asked { program, version, procedure });
            assert_eq!(Asked::decode(&mut quickly), asked);
            assert_eq!(quickly.position(), from.position());
        }
        Err(CallError::Refused { xid, why }) => {
            assert_eq!(bytes[..4], xid.to_be_bytes());
            let written = encoded(&Reply::denied(xid, why));
            let read = Reply::decode(&mut Decoder::new(&written));
            assert_eq!(read, Ok(Reply::denied(xid, why)));
        }
        Err(CallError::Reply { xid }) => assert_eq!(bytes[..4], xid.to_be_bytes()),
        Err(CallError::Unreadable(_)) => {}
    }
}

fn encoded(value: &(impl Encode + Debug)) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    to.put(value);
    to.to_vec()
}

/// The result of `read` on `bytes`, at a cost in proportion to them.
fn fair<T>(bytes: &[u8], read: impl FnMut() -> T) -> T {
    cost::fair("decoding", bytes.len(), &LIMIT, read)
}

/// First bytes from this one on choose a procedure of NFS, and after these a call's header.
const FIRST_PROCEDURE: usize = 128;
/// The densest list is that of READDIRPLUS: 32 bytes become an entry of 300, in a list that doubles
/// as it grows. The first few places of a list are allocated at once.
const LIMIT: Limit = Limit { peak: 2048, peak_per_byte: 48, steps: 500, steps_per_byte: 8 };
