//! Answers to our calls, pure: any bytes are an answer or none.

use aquifer_nfs::proto::nsm::StatRes;
use aquifer_rpc::message::{Accepted, Reply, ReplyBody};
use aquifer_rpc::xdr::{Decode, Decoder};

/// The results in `reply`; `None` if it is no reply to the call with this `xid`.
///
/// # Errors
/// Why the call was refused.
pub fn results(reply: &[u8], xid: u32) -> Option<Result<Vec<u8>, String>> {
    let mut from = Decoder::new(reply);
    let reply = Reply::decode(&mut from).ok().filter(|reply| reply.xid == xid)?;
    Some(match reply.body {
        ReplyBody::Accepted { status: Accepted::Success, .. } => Ok(from.remaining().to_vec()),
        other => Err(format!("refused: {other:?}")),
    })
}

/// The port in the results of GETPORT; `None` if there is no such program.
pub fn port(results: &[u8]) -> Option<u16> {
    let port = Decoder::new(results).u32().ok().and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0)
}

/// The state in the results of SM_STAT; `None` if no monitor has such a state.
pub fn state(results: &[u8]) -> Option<i32> {
    let told = StatRes::decode(&mut Decoder::new(results)).ok();
    told.map(|told| told.state).filter(|state| *state > 0)
}
