//! From a record to its reply: RPC, and the programs that are served.
//!
//! Invariants:
//! - Every call whose xid can be read is answered exactly once, and what cannot be answered leaves
//!   the buffer as it was.
//! - A call that is refused says why in RPC's own words, at once: a client that asks for NFSv4 is
//!   told PROG_MISMATCH with the versions that there are, and goes on.

use std::net::SocketAddr;

use aquifer_rpc::auth::{AuthStat, Credential};
use aquifer_rpc::message::{Accepted, Call, CallError, Rejection, Reply};
use aquifer_rpc::portmap::{self, Framing, Mapping};
use aquifer_rpc::record::{begin_record, end_record};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};
use parking_lot::RwLock;

use crate::counters::Counters;
use crate::export::Exports;
use crate::limits::{
    LISTING_BYTES_MAX, SMALL_REPLY_BYTES_MAX, TARGET_BYTES_MAX, TRANSFER_BYTES_MAX,
};
use crate::mount::{self, MountRequest, Mounts};
use crate::proto::v3::{Args3, Procedure3, Read3Args, Readdir3Args, Readdirplus3Args};
use crate::proto::{mount as mount_proto, v3 as nfs_proto};
use crate::v3;

#[cfg(test)]
pub(crate) mod tests;

/// NFSv3 and its companions over the files of pools.
#[derive(Debug)]
pub struct Nfs {
    exports: Exports,
    mounts: Mounts,
    portmap: RwLock<Vec<Mapping>>,
    counters: Counters,
}

/// A record is no call, and there is nothing to answer to: the stream is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a call: {0}")]
pub struct NoCall(#[from] pub CallError);

impl Nfs {
    /// A server of what is exported.
    pub fn new(exports: Exports) -> Self {
        Nfs {
            exports,
            mounts: Mounts::default(),
            portmap: RwLock::default(),
            counters: Counters::default(),
        }
    }

    /// The export table, to be looked at or replaced.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// How often what was called.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the programs listen, for clients that ask the portmapper: the daemon knows.
    pub fn set_portmap(&self, table: Vec<Mapping>) {
        *self.portmap.write() = table;
    }

    /// The table that [`Nfs::set_portmap`] set.
    pub fn portmap(&self) -> Vec<Mapping> {
        self.portmap.read().clone()
    }

    /// Carries out the call in `record` (without its mark), which came from `peer`, and appends
    /// the reply (with its mark) to `out`.
    ///
    /// Dropping the future may leave the call carried out and unanswered, as a lost connection
    /// does.
    ///
    /// # Errors
    /// [`NoCall`]; `out` is then as it was.
    pub async fn answer(
        &self,
        peer: SocketAddr,
        record: &[u8],
        out: &mut EncodeBuf,
    ) -> Result<(), NoCall> {
        let mut from = Decoder::new(record);
        let call = match Call::decode(&mut from) {
            Ok(call) => call,
            Err(CallError::Refused { xid, why }) => {
                self.refuse(&Reply::denied(xid, why), out);
                return Ok(());
            }
            Err(error) => return Err(NoCall(error)),
        };
        if call.program == portmap::PROGRAM {
            self.counters.count_portmap();
            let answered = portmap::answer(&self.portmap(), record, Framing::Record, out);
            return answered.map_err(|error| NoCall(CallError::Unreadable(error)));
        }
        if let Credential::Other(_) = call.credential {
            let why = Rejection::AuthError(AuthStat::BadCred);
            self.refuse(&Reply::denied(call.xid, why), out);
            return Ok(());
        }
        let open = begin_record(out);
        out.put(&Reply::accepted(call.xid, Accepted::Success));
        if let Err(status) = self.carry_out(peer, &call, &mut from, out).await {
            self.counters.count_refused();
            out.truncate(open.body());
            out.put(&Reply::accepted(call.xid, status));
        }
        end_record(out, open);
        Ok(())
    }

    /// The longest reply that the call in `record` can have, in bytes, its mark included: what is
    /// to be set aside before it is carried out.
    pub fn reply_bytes_max(&self, record: &[u8]) -> usize {
        let mut from = Decoder::new(record);
        let body = match Call::decode(&mut from) {
            Ok(call) if call.program == nfs_proto::PROGRAM => nfs3_bytes_max(&call, &mut from),
            Ok(call) if call.program == mount_proto::PROGRAM => {
                mount::reply_bytes_max(&self.exports, &self.mounts, call.procedure)
            }
            Ok(call) if call.program == portmap::PROGRAM => {
                self.portmap.read().len() * MAPPING_BYTES
            }
            _ => 0,
        };
        SMALL_REPLY_BYTES_MAX + body
    }

    async fn carry_out(
        &self,
        peer: SocketAddr,
        call: &Call<'_>,
        from: &mut Decoder<'_>,
        out: &mut EncodeBuf,
    ) -> Result<(), Accepted> {
        match call.program {
            nfs_proto::PROGRAM => {
                served(call.version, nfs_proto::VERSION, nfs_proto::VERSION)?;
                self.nfs3(peer, call, from, out).await
            }
            mount_proto::PROGRAM => {
                served(call.version, mount::VERSION_LOW, mount_proto::VERSION)?;
                self.counters.count_mount();
                let request = MountRequest { exports: &self.exports, mounts: &self.mounts, peer };
                mount::carry_out(&request, call.version, call.procedure, from, out).await
            }
            _ => Err(Accepted::ProgUnavail),
        }
    }

    async fn nfs3(
        &self,
        peer: SocketAddr,
        call: &Call<'_>,
        from: &mut Decoder<'_>,
        out: &mut EncodeBuf,
    ) -> Result<(), Accepted> {
        let procedure = Procedure3::from_wire(call.procedure).ok_or(Accepted::ProcUnavail)?;
        let rest = from.remaining();
        let args = Args3::decode(procedure, from).map_err(|_| Accepted::GarbageArgs)?;
        let arguments = rest.len() - from.remaining().len();
        let id = v3::is_once(procedure)
            .then(|| v3::call_id(peer, call, rest.get(..arguments).unwrap_or_default()));
        let credential = call.credential;
        let request = v3::Request { exports: &self.exports, peer, credential, call: id };
        let status = match id {
            Some(id) => v3::carry_out_once(&request, id, &args, out).await,
            None => v3::carry_out(&request, &args, out).await,
        };
        self.counters.count_nfs3(procedure, status);
        Ok(())
    }

    fn refuse(&self, reply: &Reply<'_>, out: &mut EncodeBuf) {
        self.counters.count_refused();
        let open = begin_record(out);
        out.put(reply);
        end_record(out, open);
    }
}

/// Whether a version is served; if not, which ones are.
fn served(version: u32, low: u32, high: u32) -> Result<(), Accepted> {
    if (low..=high).contains(&version) { Ok(()) } else { Err(Accepted::ProgMismatch { low, high }) }
}

/// What a reply of NFSv3 may take beside [`SMALL_REPLY_BYTES_MAX`].
fn nfs3_bytes_max(call: &Call<'_>, from: &mut Decoder<'_>) -> usize {
    let bytes = |count: u32, limit: u32| usize::try_from(count.min(limit)).unwrap_or(usize::MAX);
    match Procedure3::from_wire(call.procedure) {
        Some(Procedure3::Read) => {
            Read3Args::decode(from).map_or(0, |args| bytes(args.count, TRANSFER_BYTES_MAX))
        }
        Some(Procedure3::Readdir) => {
            Readdir3Args::decode(from).map_or(0, |args| bytes(args.count, LISTING_BYTES_MAX))
        }
        Some(Procedure3::Readdirplus) => {
            Readdirplus3Args::decode(from).map_or(0, |args| bytes(args.maxcount, LISTING_BYTES_MAX))
        }
        Some(Procedure3::Readlink) => TARGET_BYTES_MAX,
        _ => 0,
    }
}

/// A mapping in a reply to DUMP: link and four words.
const MAPPING_BYTES: usize = 20;
