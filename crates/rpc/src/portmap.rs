//! The portmapper (RFC 1833): where programs listen. Version 2 (section 3) here, versions 3 and 4
//! in [`rpcb`].
//!
//! Two sides: [`answer`] serves a fixed table where no rpcbind runs (QEMU's libnfs driver and
//! `rpcinfo` ask port 111); [`Request`] asks a running rpcbind to announce our programs.
//!
//! Invariants:
//! - No call changes the table. SET and UNSET answer FALSE. CALLIT is not offered: it would make
//!   the server call others on a stranger's behalf.
//! - Version 2 knows IPv4 only: a service that listens on IPv6 alone is not in its answers.

pub mod rpcb;

use std::net::{IpAddr, SocketAddr};

use crate::auth::{Credential, OpaqueAuth};
use crate::message::{Accepted, Call, CallError, Reply, ReplyBody};
use crate::record::{begin_record, end_record};
use crate::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use crate::xdr_table;

#[cfg(test)]
mod tests;

/// The portmapper's own program number.
pub const PROGRAM: u32 = 100_000;
/// The lowest served version, which knows ports instead of addresses.
pub const VERSION: u32 = 2;
/// Its port, TCP and UDP.
pub const PORT: u16 = 111;
/// `prot` of TCP.
pub const IPPROTO_TCP: u32 = 6;
/// `prot` of UDP.
pub const IPPROTO_UDP: u32 = 17;

xdr_table! {
    /// The procedures of PMAP_VERS 2.
    enum Procedure {
        /// PMAPPROC_NULL.
        Null = 0,
        /// PMAPPROC_SET: announces a mapping.
        Set = 1,
        /// PMAPPROC_UNSET: withdraws all mappings of a program's version.
        Unset = 2,
        /// PMAPPROC_GETPORT: the port of a program, 0 if it is not registered.
        Getport = 3,
        /// PMAPPROC_DUMP: all mappings.
        Dump = 4,
        /// PMAPPROC_CALLIT: calls a procedure of another program.
        Callit = 5,
    }

    /// `struct mapping`.
    struct Mapping {
        /// Program number.
        prog: u32,
        /// Its version.
        vers: u32,
        /// Transport: [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
        prot: u32,
        /// Port; 0 in a request.
        port: u32,
    }
}

/// A program and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Program number.
    pub prog: u32,
    /// Its version.
    pub vers: u32,
    /// Transport: [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
    pub prot: u32,
    /// Its address: a particular one or, of either family, all.
    pub at: SocketAddr,
}

impl Service {
    /// Its mapping in version 2; `None` if it listens on IPv6.
    pub fn mapping(&self) -> Option<Mapping> {
        let Service { prog, vers, prot, at } = *self;
        at.is_ipv4().then(|| Mapping { prog, vers, prot, port: at.port().into() })
    }
}

/// How the transport separates messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// UDP: a datagram is a message.
    Datagram,
    /// TCP: a message is a record behind its mark.
    Record,
}

/// Answers one message of `peer`, without its record mark, from `table`. Appends the reply to `to`,
/// with a mark if `framing` says so. UDP sources can be forged: a daemon that serves UDP should
/// answer its own networks only.
///
/// # Errors
/// [`XdrError`] if the message is no call and cannot be answered; close the stream.
pub fn answer(
    table: &[Service],
    peer: IpAddr,
    message: &[u8],
    framing: Framing,
    to: &mut EncodeBuf,
) -> Result<(), XdrError> {
    let mut from = Decoder::new(message);
    let call = match Call::decode(&mut from) {
        Ok(call) => Ok(call),
        Err(CallError::Refused { xid, why }) => Err(Reply::denied(xid, why)),
        Err(CallError::Unreadable(error)) => return Err(error),
        Err(CallError::Reply { .. }) => {
            return Err(XdrError::BadValue { offset: 4, what: "msg_type of a call", value: 1 });
        }
    };
    let record = match framing {
        Framing::Datagram => None,
        Framing::Record => Some(begin_record(to)),
    };
    match &call {
        Ok(call) => carry_out(table, (peer, framing), call, &mut from, to),
        Err(refusal) => refusal.encode(to),
    }
    if let Some(record) = record {
        end_record(to, record);
    }
    Ok(())
}

fn carry_out(
    table: &[Service],
    over: (IpAddr, Framing),
    call: &Call<'_>,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) {
    let start = to.mark();
    Reply::accepted(call.xid, Accepted::Success).encode(to);
    if let Err(status) = results(table, over, call, from, to) {
        to.truncate(start);
        Reply::accepted(call.xid, status).encode(to);
    }
}

fn results(
    table: &[Service],
    (peer, framing): (IpAddr, Framing),
    call: &Call<'_>,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Accepted> {
    if call.program != PROGRAM {
        return Err(Accepted::ProgUnavail);
    }
    match call.version {
        VERSION => {}
        rpcb::VERSION_3 | rpcb::VERSION_4 => {
            return rpcb::results(table, peer, framing, call, from, to);
        }
        _ => return Err(Accepted::ProgMismatch { low: VERSION, high: rpcb::VERSION_4 }),
    }
    let mut mapping = || Mapping::decode(from).map_err(|_| Accepted::GarbageArgs);
    match Procedure::from_wire(call.procedure) {
        Some(Procedure::Null) => {}
        Some(Procedure::Set | Procedure::Unset) => {
            mapping()?;
            to.bool(false);
        }
        Some(Procedure::Getport) => to.u32(port_of(table, mapping()?)),
        Some(Procedure::Dump) if framing == Framing::Record => {
            to.list(table.iter().filter_map(Service::mapping));
        }
        Some(Procedure::Dump | Procedure::Callit) | None => return Err(Accepted::ProcUnavail),
    }
    Ok(())
}

/// The port of the requested program. As rpcbind does it: without that very version, returns the
/// port of any version of the program, and the program itself answers PROG_MISMATCH.
fn port_of(table: &[Service], asked: Mapping) -> u32 {
    let mappings = || table.iter().filter_map(Service::mapping);
    let offers = || mappings().filter(|it| it.prog == asked.prog && it.prot == asked.prot);
    let exact = offers().find(|it| it.vers == asked.vers);
    exact.or_else(|| offers().next()).map_or(0, |it| it.port)
}

/// A request to another portmapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Does it run?
    Null,
    /// Announce this.
    Set(Mapping),
    /// Withdraw every mapping of this program and version; `prot` and `port` are ignored.
    Unset(Mapping),
    /// On which port is this? `port` is ignored.
    Getport(Mapping),
    /// List all mappings.
    Dump,
}

/// The other portmapper's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// NULL: it runs.
    Null,
    /// SET and UNSET: whether it was done.
    Done(bool),
    /// GETPORT: the port, 0 for none.
    Port(u32),
    /// DUMP: all mappings.
    Mappings(Vec<Mapping>),
}

/// Why an answer is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The message cannot be decoded.
    #[error("portmapper's reply: {0}")]
    Unreadable(#[from] XdrError),
    /// A reply to another call.
    #[error("portmapper replied to {got:#010x}, asked was {asked:#010x}")]
    OtherXid {
        /// Our call.
        asked: u32,
        /// The reply's call.
        got: u32,
    },
    /// The call was denied.
    #[error("portmapper denied the call: {0:?}")]
    Denied(crate::message::Rejection),
    /// The call was accepted and failed.
    #[error("portmapper failed the call: {0:?}")]
    Failed(Accepted),
}

impl Request {
    /// The procedure.
    pub fn procedure(&self) -> Procedure {
        match self {
            Request::Null => Procedure::Null,
            Request::Set(_) => Procedure::Set,
            Request::Unset(_) => Procedure::Unset,
            Request::Getport(_) => Procedure::Getport,
            Request::Dump => Procedure::Dump,
        }
    }

    /// Appends the whole call, without a record mark. rpcbind takes SET and UNSET from its own
    /// machine only, over loopback or its Unix socket.
    pub fn encode(&self, xid: u32, credential: Credential<'_>, to: &mut EncodeBuf) {
        let procedure = self.procedure().wire();
        let verifier = OpaqueAuth::NONE;
        let (program, version) = (PROGRAM, VERSION);
        to.put(&Call { xid, program, version, procedure, credential, verifier });
        match self {
            Request::Null | Request::Dump => {}
            Request::Set(mapping) | Request::Unset(mapping) | Request::Getport(mapping) => {
                to.put(mapping);
            }
        }
    }

    /// Reads the reply to this request, without its record mark.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn decode_answer(&self, xid: u32, message: &[u8]) -> Result<Answer, AnswerError> {
        let mut from = Decoder::new(message);
        let reply = Reply::decode(&mut from)?;
        if reply.xid != xid {
            return Err(AnswerError::OtherXid { asked: xid, got: reply.xid });
        }
        match reply.body {
            ReplyBody::Denied(why) => return Err(AnswerError::Denied(why)),
            ReplyBody::Accepted { status: Accepted::Success, .. } => {}
            ReplyBody::Accepted { status, .. } => return Err(AnswerError::Failed(status)),
        }
        Ok(match self {
            Request::Null => Answer::Null,
            Request::Set(_) | Request::Unset(_) => Answer::Done(from.bool()?),
            Request::Getport(_) => Answer::Port(from.u32()?),
            Request::Dump => Answer::Mappings(from.list()?),
        })
    }
}
