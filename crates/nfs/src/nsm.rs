//! The procedures of NSM: hosts tell each other of restarts.
//!
//! Invariants:
//! - A notice of a restart is verified before the host's locks end ([`Restart`]): everybody behind
//!   its address can send one, and the sender of a datagram can be forged.
//! - We monitor no host for others: that service is for lock managers of this machine, and ours
//!   does not need it.

use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use crate::limits::LOCK_NAME_BYTES_MAX;
use crate::lock::{Client, Restart};
use crate::nlm::LockRequest;
use crate::proto::nsm::{Procedure, Res, StatChge, StatRes};

/// Carries out one call and appends its results.
///
/// # Errors
/// The status that RPC returns instead of results.
pub(crate) fn carry_out(
    request: &LockRequest<'_>,
    procedure: u32,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Accepted> {
    let state = request.locks.state();
    match Procedure::from_wire(procedure).ok_or(Accepted::ProcUnavail)? {
        // A restart is not simulated: it would cost every client its locks.
        Procedure::Null | Procedure::SimuCrash => {}
        Procedure::Stat | Procedure::Mon => to.put(&StatRes { res_stat: Res::Fail, state }),
        Procedure::Unmon | Procedure::UnmonAll => to.i32(state),
        Procedure::Notify => {
            let args = StatChge::decode(from).map_err(|_| Accepted::GarbageArgs)?;
            let address = request.origin.address();
            let name = args.mon_name.0;
            if name.len() <= LOCK_NAME_BYTES_MAX {
                request.locks.says_restarted(Restart {
                    host: Client { address, name: name.into() },
                    state: args.state,
                    via: request.origin.local,
                    is_from_root: request.origin.is_from_root(),
                });
            }
        }
    }
    Ok(())
}
