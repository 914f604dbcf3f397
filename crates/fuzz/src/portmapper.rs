//! The portmapper, both sides.

use std::net::{IpAddr, SocketAddr};

use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::{Call, Reply};
use aquifer_rpc::portmap::{self, Framing, Mapping, Request, Service, rpcb};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, fair};

/// Tries one input.
pub fn run(input: &[u8]) {
    answer_of_another(input);
    ask(input);
    if let Ok(message) = nearly_a_call(&mut Unstructured::new(input)) {
        ask(&message);
    }
}

/// Messages to our portmapper, over UDP and TCP.
fn ask(message: &[u8]) {
    let table = [(100_003, 3, 2049), (100_005, 3, 2049), (100_005, 1, 2049), (100_000, 2, 111)];
    let table = table.map(|(prog, vers, port)| {
        let at = SocketAddr::from(([0, 0, 0, 0], port));
        Service { prog, vers, prot: portmap::IPPROTO_TCP, at }
    });
    let peer = IpAddr::from([127, 0, 0, 1]);
    let said = [Framing::Datagram, Framing::Record].map(|framing| {
        fair("a message", message.len(), &LIMIT, || {
            let mut to = EncodeBuf::new();
            let answered = portmap::answer(&table, peer, message, framing, &mut to);
            (answered, to.to_vec())
        })
    });
    let [(datagram, reply), (record, marked)] = said;
    assert_eq!(datagram, record, "the transport does not matter for what is a call");
    if datagram.is_err() {
        assert!(reply.is_empty() && marked.is_empty());
        return;
    }
    let (mark, recorded) = marked.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*mark), u32::try_from(recorded.len()).unwrap() | 1 << 31);
    for reply in [&reply, recorded] {
        assert!(reply.len() <= REPLY_BYTES_MAX, "{} bytes: an amplifier", reply.len());
        assert_eq!(reply[..4], message[..4], "the call's xid");
        Reply::decode(&mut Decoder::new(reply)).unwrap();
    }
    let call = Call::decode(&mut Decoder::new(message)).ok();
    if call.as_ref().is_some_and(asks_for_a_list) {
        assert!(reply.len() <= message.len(), "{} bytes: an amplifier", reply.len());
    } else if call.as_ref().is_some_and(asks_for_the_address_here) {
        assert_eq!(reply[..HEADER_BYTES], recorded[..HEADER_BYTES], "but for the address");
    } else {
        assert_eq!(reply, recorded, "the transport does not matter for what is said");
    }
}

/// GETADDR and GETVERSADDR return the address for the transport of the call, if the call names
/// none.
fn asks_for_the_address_here(call: &Call<'_>) -> bool {
    asks_rpcbind(call, [rpcb::Procedure::Getaddr, rpcb::Procedure::Getversaddr])
}

/// DUMP and GETADDRLIST are answered over TCP only.
fn asks_for_a_list(call: &Call<'_>) -> bool {
    let dump = (portmap::VERSION, portmap::Procedure::Dump.wire());
    call.program == portmap::PROGRAM
        && ((call.version, call.procedure) == dump
            || asks_rpcbind(call, [rpcb::Procedure::Dump, rpcb::Procedure::Getaddrlist]))
}

fn asks_rpcbind(call: &Call<'_>, procedures: [rpcb::Procedure; 2]) -> bool {
    matches!(call.version, rpcb::VERSION_3 | rpcb::VERSION_4)
        && procedures.map(|it| it.wire()).contains(&call.procedure)
}

fn answer_of_another(reply: &[u8]) {
    let xid = reply.first_chunk().map_or(0, |xid| u32::from_be_bytes(*xid));
    let mapping = Mapping { prog: 1, vers: 1, prot: 6, port: 0 };
    for asked in [
        Request::Null,
        Request::Set(mapping),
        Request::Unset(mapping),
        Request::Getport(mapping),
        Request::Dump,
    ] {
        // Any outcome except a panic is right. The compiler must not learn that the result is
        // unused.
        let decode = || asked.decode_answer(xid, reply);
        std::hint::black_box(fair("an answer", reply.len(), &LIMIT, decode)).ok();
    }
}

fn nearly_a_call(from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let xid = from.arbitrary()?;
    let program = *from.choose(&[portmap::PROGRAM, 100_003, 0])?;
    let version = from.int_in_range(0..=5)?;
    let procedure = from.int_in_range(0..=14)?;
    let gids = Gids::new(&[1, 2]).unwrap();
    let credential = match from.int_in_range(0..=2)? {
        0 => Credential::None,
        1 => Credential::Sys(AuthSys { stamp: 0, machine_name: b"", uid: 0, gid: 0, gids }),
        _ => Credential::Other(OpaqueAuth { flavor: from.arbitrary()?, body: b"x" }),
    };
    let mut to = EncodeBuf::new();
    to.put(&Call { xid, program, version, procedure, credential, verifier: OpaqueAuth::NONE });
    let mut message = to.to_vec();
    message.extend_from_slice(from.bytes(from.len())?);
    Ok(message)
}

/// xid, REPLY, accepted, no verifier (its flavor and length), and the status of the call.
const HEADER_BYTES: usize = 24;
/// A header, and the answer of DUMP of versions 3 and 4 about four services: for each its address
/// in words, its transport and its owner.
const REPLY_BYTES_MAX: usize = HEADER_BYTES + 4 * 100 + 4;
const LIMIT: Limit = Limit { peak: 8192, peak_per_byte: 48, steps: 2000, steps_per_byte: 10 };
