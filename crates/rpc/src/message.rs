//! Call and reply headers (RFC 5531 section 9).
//!
//! Invariants:
//! - Every call whose xid can be read either decodes or names the reply that refuses it.
//! - [`Call::decode`] leaves the decoder at the first byte of the arguments, with offsets counted
//!   from the start of the record. It needs only the header's bytes, so it also serves on the head
//!   of a record that is still arriving.

use crate::auth::{AuthStat, Credential, OpaqueAuth};
use crate::limits::AUTH_BODY_BYTES_MAX;
use crate::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use crate::xdr_table;

#[cfg(test)]
mod tests;

/// The one version of the RPC protocol.
pub const RPC_VERSION: u32 = 2;

/// The number of the procedure that every program has: it does nothing and answers.
pub const NULL_PROCEDURE: u32 = 0;

xdr_table! {
    /// `enum msg_type`.
    enum MsgType {
        /// CALL.
        Call = 0,
        /// REPLY.
        Reply = 1,
    }
}

/// The header of a call: `rpc_msg` with `call_body`, up to the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Transaction id, by which the client matches the reply.
    pub xid: u32,
    /// Remote program.
    pub program: u32,
    /// Remote program's version.
    pub version: u32,
    /// Remote procedure.
    pub procedure: u32,
    /// The caller's identity.
    pub credential: Credential<'a>,
    /// The proof of it; beside AUTH_NONE and AUTH_SYS it should be AUTH_NONE, which is not
    /// enforced.
    pub verifier: OpaqueAuth<'a>,
}

/// Why a record is no call to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Too short for a header, or no RPC message. No answer is possible; close a stream that
    /// carries this.
    #[error("no RPC message: {0}")]
    Unreadable(#[from] XdrError),
    /// A reply. On a connection that carries calls in both directions (NFSv4.1), we match it to our
    /// call.
    #[error("a reply to {xid:#010x} where a call was expected")]
    Reply {
        /// The call that it answers.
        xid: u32,
    },
    /// A call that must be refused with `why`.
    #[error("call {xid:#010x} is to be refused: {why:?}")]
    Refused {
        /// The call.
        xid: u32,
        /// The refusal.
        why: Rejection,
    },
}

impl<'a> Call<'a> {
    /// Reads the header and leaves `from` at the arguments.
    ///
    /// # Errors
    /// [`CallError`], which says whether and how to answer.
    pub fn decode(from: &mut Decoder<'a>) -> Result<Self, CallError> {
        let xid = from.u32()?;
        match MsgType::decode(from)? {
            MsgType::Call => {}
            MsgType::Reply => return Err(CallError::Reply { xid }),
        }
        let refused = |why| CallError::Refused { xid, why };
        if from.u32()? != RPC_VERSION {
            return Err(refused(Rejection::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION }));
        }
        let (program, version, procedure) = (from.u32()?, from.u32()?, from.u32()?);
        let auth = |from: &mut Decoder<'a>, stat| match OpaqueAuth::decode(from) {
            Err(XdrError::TooLong { .. }) => Err(refused(Rejection::AuthError(stat))),
            Err(error) => Err(CallError::Unreadable(error)),
            Ok(auth) => Ok(auth),
        };
        let credential = Credential::parse(auth(from, AuthStat::BadCred)?)
            .map_err(|_| refused(Rejection::AuthError(AuthStat::BadCred)))?;
        let verifier = auth(from, AuthStat::BadVerf)?;
        Ok(Call { xid, program, version, procedure, credential, verifier })
    }
}

/// The procedure that a call's header asks for: enough to find its arguments. For code that looks
/// before a call is carried out, and need not know the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Remote program.
    pub program: u32,
    /// Remote program's version.
    pub version: u32,
    /// Remote procedure.
    pub procedure: u32,
}

impl Asked {
    /// Reads the header and leaves `from` at the arguments. Accepts every header that
    /// [`Call::decode`] takes, and some that it refuses: the caller's identity is skipped.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let _xid = from.u32().ok()?;
        let is_call = MsgType::decode(from) == Ok(MsgType::Call) && from.u32() == Ok(RPC_VERSION);
        let (program, version, procedure) = (from.u32().ok()?, from.u32().ok()?, from.u32().ok()?);
        let _credential = OpaqueAuth::decode(from).ok()?;
        let _verifier = OpaqueAuth::decode(from).ok()?;
        is_call.then_some(Asked { program, version, procedure })
    }
}

impl Encode for Call<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(self.xid);
        MsgType::Call.encode(to);
        to.u32(RPC_VERSION);
        to.u32(self.program);
        to.u32(self.version);
        to.u32(self.procedure);
        self.credential.encode(to);
        self.verifier.encode(to);
    }
}

/// The header of a reply: `rpc_msg` with `reply_body`, up to the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The call's transaction id.
    pub xid: u32,
    /// The result of the call.
    pub body: ReplyBody<'a>,
}

/// `union reply_body`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// MSG_ACCEPTED.
    Accepted {
        /// The server's proof of itself.
        verifier: OpaqueAuth<'a>,
        /// The status of the call; the results follow SUCCESS.
        status: Accepted,
    },
    /// MSG_DENIED.
    Denied(Rejection),
}

/// `enum accept_stat` with the fields of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// SUCCESS: carried out, whatever the program's results say.
    Success,
    /// PROG_UNAVAIL: there is no such program here.
    ProgUnavail,
    /// PROG_MISMATCH: there is no such version of it.
    ProgMismatch {
        /// Lowest version that there is.
        low: u32,
        /// Highest version that there is.
        high: u32,
    },
    /// PROC_UNAVAIL: the program has no such procedure.
    ProcUnavail,
    /// GARBAGE_ARGS: the arguments cannot be decoded.
    GarbageArgs,
    /// SYSTEM_ERR: no memory, or the like.
    SystemErr,
}

/// `union rejected_reply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// RPC_MISMATCH: not a version of RPC that is spoken here.
    RpcMismatch {
        /// Lowest version that is.
        low: u32,
        /// Highest version that is.
        high: u32,
    },
    /// AUTH_ERROR: the caller is not allowed, or its credential is wrong.
    AuthError(AuthStat),
}

impl Reply<'_> {
    /// Accepted with our usual verifier, AUTH_NONE.
    pub const fn accepted(xid: u32, status: Accepted) -> Reply<'static> {
        Reply { xid, body: ReplyBody::Accepted { verifier: OpaqueAuth::NONE, status } }
    }

    /// Denied.
    pub const fn denied(xid: u32, why: Rejection) -> Reply<'static> {
        Reply { xid, body: ReplyBody::Denied(why) }
    }
}

impl Encode for Reply<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.u32(self.xid);
        MsgType::Reply.encode(to);
        match self.body {
            ReplyBody::Accepted { verifier, status } => {
                to.u32(MSG_ACCEPTED);
                verifier.encode(to);
                status.encode(to);
            }
            ReplyBody::Denied(why) => {
                to.u32(MSG_DENIED);
                why.encode(to);
            }
        }
    }
}

impl<'a> Decode<'a> for Reply<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let xid = from.u32()?;
        let offset = from.position();
        if MsgType::decode(from)? != MsgType::Reply {
            let value = MsgType::Call.wire();
            return Err(XdrError::BadValue { offset, what: "msg_type of a reply", value });
        }
        let offset = from.position();
        let body = match from.u32()? {
            MSG_ACCEPTED => ReplyBody::Accepted {
                verifier: OpaqueAuth::decode(from)?,
                status: Accepted::decode(from)?,
            },
            MSG_DENIED => ReplyBody::Denied(Rejection::decode(from)?),
            value => {
                return Err(XdrError::BadValue { offset, what: "reply_stat", value });
            }
        };
        Ok(Reply { xid, body })
    }
}

impl Encode for Accepted {
    fn encode(&self, to: &mut EncodeBuf) {
        match *self {
            Accepted::Success => to.u32(SUCCESS),
            Accepted::ProgUnavail => to.u32(PROG_UNAVAIL),
            Accepted::ProgMismatch { low, high } => {
                to.u32(PROG_MISMATCH);
                to.u32(low);
                to.u32(high);
            }
            Accepted::ProcUnavail => to.u32(PROC_UNAVAIL),
            Accepted::GarbageArgs => to.u32(GARBAGE_ARGS),
            Accepted::SystemErr => to.u32(SYSTEM_ERR),
        }
    }
}

impl<'a> Decode<'a> for Accepted {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let offset = from.position();
        Ok(match from.u32()? {
            SUCCESS => Accepted::Success,
            PROG_UNAVAIL => Accepted::ProgUnavail,
            PROG_MISMATCH => Accepted::ProgMismatch { low: from.u32()?, high: from.u32()? },
            PROC_UNAVAIL => Accepted::ProcUnavail,
            GARBAGE_ARGS => Accepted::GarbageArgs,
            SYSTEM_ERR => Accepted::SystemErr,
            value => {
                return Err(XdrError::BadValue { offset, what: "accept_stat", value });
            }
        })
    }
}

impl Encode for Rejection {
    fn encode(&self, to: &mut EncodeBuf) {
        match *self {
            Rejection::RpcMismatch { low, high } => {
                to.u32(RPC_MISMATCH);
                to.u32(low);
                to.u32(high);
            }
            Rejection::AuthError(stat) => {
                to.u32(AUTH_ERROR);
                stat.encode(to);
            }
        }
    }
}

impl<'a> Decode<'a> for Rejection {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let offset = from.position();
        Ok(match from.u32()? {
            RPC_MISMATCH => Rejection::RpcMismatch { low: from.u32()?, high: from.u32()? },
            AUTH_ERROR => Rejection::AuthError(AuthStat::decode(from)?),
            value => {
                return Err(XdrError::BadValue { offset, what: "reject_stat", value });
            }
        })
    }
}

const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

const SUCCESS: u32 = 0;
const PROG_UNAVAIL: u32 = 1;
const PROG_MISMATCH: u32 = 2;
const PROC_UNAVAIL: u32 = 3;
const GARBAGE_ARGS: u32 = 4;
const SYSTEM_ERR: u32 = 5;

const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Bytes of the longest call header: enough to decode any.
pub const CALL_HEADER_BYTES_MAX: usize = 24 + 2 * (8 + AUTH_BODY_BYTES_MAX);
