//! From a record to its reply: RPC, and the programs that this server has.
//!
//! Invariants:
//! - Every call whose xid can be read is answered exactly once, unless its fate is open
//!   ([`Unanswered::Unsettled`]). A record that gets no answer leaves the buffer as it was.
//! - A refused call gets the reason in RPC's own terms, at once: a client that asks for NFSv4 gets
//!   PROG_MISMATCH with the versions that exist, and continues.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_rpc::auth::{AuthStat, Credential};
use aquifer_rpc::message::{Accepted, Asked, Call, CallError, Rejection, Reply};
use aquifer_rpc::portmap::{self, Framing, Service};
use aquifer_rpc::record::{begin_record, end_record};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf, Span};
use parking_lot::RwLock;

use crate::counters::Counters;
use crate::export::{Exports, RESERVED_PORTS};
use crate::limits::{
    LISTING_BYTES_MAX, LOCK_REPLY_BYTES_MAX, SMALL_REPLY_BYTES_MAX, TARGET_BYTES_MAX,
    TRANSFER_BYTES_MAX,
};
use crate::lock::Locks;
use crate::mount::{self, MountRequest, Mounts};
use crate::nlm::{self, LockRequest};
use crate::proto::v3::{
    Args3, Procedure3, Read3Args, Readdir3Args, Readdirplus3Args, Write3Args, Write3Head,
};
use crate::proto::{mount as mount_proto, nlm as nlm_proto, nsm as nsm_proto, v3 as nfs_proto};
use crate::refusals::Why;
use crate::security::Security;
use crate::traffic::{self, Done, Traffic};
use crate::{nsm, v3};

#[cfg(test)]
pub(crate) mod tests;

/// NFSv3 and its companions over the files of pools.
#[derive(Debug)]
pub struct Nfs {
    exports: Exports,
    mounts: Mounts,
    locks: Arc<Locks>,
    portmap: RwLock<Vec<Service>>,
    counters: Counters,
    traffic: Traffic,
}

/// Why a record gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// It is no call, and no answer is possible: close the stream.
    #[error("not a call: {0}")]
    NoCall(#[from] CallError),
    /// The call may have been carried out, and only its pool can say: its disks do not answer, or
    /// it is not in service. Or it waits for disks that do not answer, and its protocol has no word
    /// for "later". Pass it in again after a while. If nobody does, its client sends it again.
    #[error("a call whose fate is open")]
    Unsettled,
}

/// A call is not carried out, or its fate is open.
pub(crate) enum Undone {
    Refused(Accepted),
    Unsettled,
}

impl From<Accepted> for Undone {
    fn from(why: Accepted) -> Self {
        Undone::Refused(why)
    }
}

/// The origin of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client.
    pub peer: SocketAddr,
    /// The local address that it called, if known: clients of locks believe only calls from there.
    pub local: Option<IpAddr>,
    /// It came as a datagram: the sender can be forged.
    pub is_datagram: bool,
    /// The protection of the connection.
    pub security: Security,
}

impl Origin {
    /// The caller's address, as IPv4 if it is an IPv4 address mapped into IPv6.
    pub fn address(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Whether the caller has a port that only the superuser gets. This means nothing if a network
    /// behind the address chooses its own ports.
    pub(crate) fn is_from_low_port(&self) -> bool {
        self.peer.port() < RESERVED_PORTS
    }

    /// Whether the caller is a superuser of its machine, as far as its address shows.
    pub(crate) fn is_from_root(&self) -> bool {
        self.is_from_low_port() && !self.is_datagram
    }
}

impl From<SocketAddr> for Origin {
    fn from(peer: SocketAddr) -> Self {
        Origin { peer, local: None, is_datagram: false, security: Security::Clear }
    }
}

impl Nfs {
    /// A server of these exports, whose locks call no client.
    pub fn new(exports: Exports) -> Self {
        Nfs::with_locks(exports, Arc::new(Locks::alone()))
    }

    /// A server of these exports, with these locks.
    pub fn with_locks(exports: Exports, locks: Arc<Locks>) -> Self {
        Nfs {
            exports,
            locks,
            mounts: Mounts::default(),
            portmap: RwLock::default(),
            counters: Counters::default(),
            traffic: Traffic::default(),
        }
    }

    /// The export table, to read or replace.
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The locks of files.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Logs something about a client: the first time at once, then at a limited rate.
    pub fn tell(&self, client: IpAddr, why: Why) {
        self.exports.tell(client, "", why);
    }

    /// Counts of calls beside NFSv3.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts of NFSv3 calls by client and file. The caller of [`Nfs::answer`] counts, because it
    /// has the clock.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Sets where the programs listen, for clients that ask the portmapper: the daemon knows.
    pub fn set_portmap(&self, table: Vec<Service>) {
        *self.portmap.write() = table;
    }

    /// The table that [`Nfs::set_portmap`] set.
    pub fn portmap(&self) -> Vec<Service> {
        self.portmap.read().clone()
    }

    /// Whether the call in `record` is of a program that is also served over UDP: locks, and
    /// notices of restarts. Such calls are small, and clients mostly have no choice.
    pub fn serves_datagram(&self, record: &[u8]) -> bool {
        let call = Call::decode(&mut Decoder::new(record));
        call.is_ok_and(|call| [nlm_proto::PROGRAM, nsm_proto::PROGRAM].contains(&call.program))
    }

    /// Carries out the call in `record` (without its mark), and appends the reply (with its mark)
    /// to `out`. The call came from `peer`: its address, or an [`Origin`] with both ends. Returns
    /// what was done, if it was a call of NFSv3.
    ///
    /// Dropping the future may leave the call carried out and unanswered, like a lost connection.
    ///
    /// # Errors
    /// [`Unanswered`]; `out` is then as it was.
    pub fn answer<'a>(
        &'a self,
        peer: impl Into<Origin>,
        record: &'a [u8],
        out: &'a mut EncodeBuf,
    ) -> impl Future<Output = Result<Option<Done>, Unanswered>> + 'a {
        self.answer_with(peer.into(), record, None, out)
    }

    /// As [`Nfs::answer`]. If the data of a WRITE was received into pages ([`write_data`]),
    /// `record` ends where the data begins.
    ///
    /// # Errors
    /// [`Unanswered`]; `out` is then as it was.
    pub async fn answer_with(
        &self,
        origin: Origin,
        record: &[u8],
        pages: Option<&[Page]>,
        out: &mut EncodeBuf,
    ) -> Result<Option<Done>, Unanswered> {
        let mut from = Decoder::new(record);
        let call = match Call::decode(&mut from) {
            Ok(call) => call,
            Err(CallError::Refused { xid, why }) => {
                self.refuse(&Reply::denied(xid, why), out);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if call.program == portmap::PROGRAM {
            self.counters.count_portmap();
            let table = self.portmap();
            let answered = portmap::answer(&table, origin.peer.ip(), record, Framing::Record, out);
            answered.map_err(CallError::Unreadable)?;
            return Ok(None);
        }
        if let Credential::Other(_) = call.credential {
            let why = Rejection::AuthError(AuthStat::BadCred);
            self.refuse(&Reply::denied(call.xid, why), out);
            return Ok(None);
        }
        if !self.may_call(&origin, &call) {
            self.exports.refuse_locks(&origin);
            let why = Rejection::AuthError(AuthStat::TooWeak);
            self.refuse(&Reply::denied(call.xid, why), out);
            return Ok(None);
        }
        let begun = out.mark();
        let open = begin_record(out);
        out.put(&Reply::accepted(call.xid, Accepted::Success));
        let done = match self.carry_out(&origin, &call, (&mut from, pages), out).await {
            Ok(done) => done,
            Err(Undone::Refused(why)) => {
                self.counters.count_refused();
                out.truncate(open.body());
                out.put(&Reply::accepted(call.xid, why));
                None
            }
            Err(Undone::Unsettled) => {
                out.truncate(begun);
                return Err(Unanswered::Unsettled);
            }
        };
        end_record(out, open);
        Ok(done)
    }

    /// The longest reply that the call in `record` can have, in bytes, including its mark. Reserve
    /// that much before carrying it out.
    pub fn reply_bytes_max(&self, record: &[u8]) -> usize {
        let mut from = Decoder::new(record);
        let Some(asked) = Asked::decode(&mut from) else { return SMALL_REPLY_BYTES_MAX };
        let body = match asked.program {
            nfs_proto::PROGRAM => nfs3_bytes_max(asked.procedure, &mut from),
            mount_proto::PROGRAM => {
                mount::reply_bytes_max(&self.exports, &self.mounts, asked.procedure)
            }
            portmap::PROGRAM => self.portmap.read().len() * SERVICE_BYTES_MAX,
            nlm_proto::PROGRAM => LOCK_REPLY_BYTES_MAX,
            _ => 0,
        };
        SMALL_REPLY_BYTES_MAX + body
    }

    async fn carry_out(
        &self,
        origin: &Origin,
        call: &Call<'_>,
        (from, pages): (&mut Decoder<'_>, Option<&[Page]>),
        out: &mut EncodeBuf,
    ) -> Result<Option<Done>, Undone> {
        match call.program {
            nfs_proto::PROGRAM => {
                served(call.version, nfs_proto::VERSION, nfs_proto::VERSION)?;
                self.nfs3(origin, call, (from, pages), out).await.map(Some)
            }
            mount_proto::PROGRAM => {
                served(call.version, mount::VERSION_LOW, mount_proto::VERSION)?;
                self.counters.count_mount();
                let request = MountRequest { exports: &self.exports, mounts: &self.mounts, origin };
                let (version, procedure) = (call.version, call.procedure);
                Box::pin(mount::carry_out(&request, version, procedure, from, out)).await?;
                Ok(None)
            }
            nlm_proto::PROGRAM => {
                served(call.version, nlm_proto::VERSION, nlm_proto::VERSION)?;
                self.counters.count_locks();
                let request = self.lock_request(origin);
                Box::pin(nlm::carry_out(&request, call.procedure, from, out)).await?;
                Ok(None)
            }
            nsm_proto::PROGRAM => {
                served(call.version, nsm_proto::VERSION, nsm_proto::VERSION)?;
                self.counters.count_locks();
                nsm::carry_out(&self.lock_request(origin), call.procedure, from, out)?;
                Ok(None)
            }
            _ => Err(Accepted::ProgUnavail.into()),
        }
    }

    /// Whether the caller may call this procedure at all. A call about a file is checked by its
    /// export. Some lock calls name no file, and strangers must cost nothing.
    fn may_call(&self, origin: &Origin, call: &Call<'_>) -> bool {
        match call.program {
            _ if call.procedure == NULL => true,
            nlm_proto::PROGRAM => {
                self.exports.may_admit(origin, true)
                    || origin.is_from_low_port() && self.locks.knows(origin.address())
            }
            // Status monitors call from any port.
            nsm_proto::PROGRAM => {
                self.exports.may_admit(origin, false) || self.locks.knows(origin.address())
            }
            _ => true,
        }
    }

    fn lock_request<'a>(&'a self, origin: &'a Origin) -> LockRequest<'a> {
        LockRequest { exports: &self.exports, locks: &self.locks, origin }
    }

    async fn nfs3(
        &self,
        origin: &Origin,
        call: &Call<'_>,
        (from, pages): (&mut Decoder<'_>, Option<&[Page]>),
        out: &mut EncodeBuf,
    ) -> Result<Done, Undone> {
        let procedure = Procedure3::from_wire(call.procedure).ok_or(Accepted::ProcUnavail)?;
        let rest = from.remaining();
        let args = match pages {
            Some(_) if procedure != Procedure3::Write => None,
            Some(pages) => decode_write(from, pages).map(Args3::Write),
            None => Args3::decode(procedure, from).ok(),
        };
        let args = args.ok_or(Accepted::GarbageArgs)?;
        let arguments = rest.len() - from.remaining().len();
        let id = (v3::is_once(procedure) || v3::is_order(&args))
            .then(|| v3::call_id(origin.peer, call, rest.get(..arguments).unwrap_or_default()));
        let credential = call.credential;
        let (exports, locks) = (&self.exports, &self.locks);
        let request = v3::Request { exports, origin, locks, credential, call: id, pages };
        if exports.has_arrivals() {
            // Boxed: most calls are made without it.
            Box::pin(request.arrival(&args)).await;
        }
        let (status, bytes) = match id {
            Some(id) => match v3::carry_out_once(&request, id, &args, out).await {
                Ok(status) => (status, 0),
                Err(v3::Unsettled) => return Err(Undone::Unsettled),
            },
            None => v3::carry_out(&request, &args, out).await,
        };
        Ok(Done { procedure, status, file: traffic::file_of(&args, status), bytes })
    }

    fn refuse(&self, reply: &Reply<'_>, out: &mut EncodeBuf) {
        self.counters.count_refused();
        let open = begin_record(out);
        out.put(reply);
        end_record(out, open);
    }
}

/// The place of a WRITE's data in its record of `record_bytes`, of which `head` has arrived. The
/// data must reach to the record's end, and be whole pages for whole pages of the file. `None` if
/// that is not so, or not known yet: the record is then received like any other.
pub fn write_data(head: &[u8], record_bytes: usize) -> Option<Range<usize>> {
    let mut from = Decoder::new(head);
    let asked = Asked::decode(&mut from)?;
    let is_write = asked.program == nfs_proto::PROGRAM
        && asked.version == nfs_proto::VERSION
        && Procedure3::from_wire(asked.procedure) == Some(Procedure3::Write);
    if !is_write {
        return None;
    }
    let write = Write3Head::decode(&mut from).ok()?;
    let data = from.position()..record_bytes;
    let bytes = u32::try_from(data.len()).ok()?;
    let aligned = write.offset.is_multiple_of(PAGE) && u64::from(write.count).is_multiple_of(PAGE);
    (aligned && bytes == write.count && bytes <= TRANSFER_BYTES_MAX).then_some(data)
}

/// A WRITE whose data is in pages, if they hold exactly its count.
pub(crate) fn decode_write(from: &mut Decoder<'_>, pages: &[Page]) -> Option<Write3Args<'static>> {
    let head = Write3Head::decode(from).ok()?;
    let is_all = u64::from(head.count) == pages.len() as u64 * PAGE && from.remaining().is_empty();
    let data = Span { offset: from.position(), bytes: &[] };
    is_all.then_some(Write3Args { head, data })
}

const PAGE: u64 = SECTOR_BYTES as u64;

/// Procedure 0 of every program does nothing.
const NULL: u32 = 0;

/// Whether a version is served; if not, which ones are.
fn served(version: u32, low: u32, high: u32) -> Result<(), Accepted> {
    if (low..=high).contains(&version) { Ok(()) } else { Err(Accepted::ProgMismatch { low, high }) }
}

/// Bytes that a reply of NFSv3 may take beside [`SMALL_REPLY_BYTES_MAX`].
fn nfs3_bytes_max(procedure: u32, from: &mut Decoder<'_>) -> usize {
    let bytes = |count: u32, limit: u32| usize::try_from(count.min(limit)).unwrap_or(usize::MAX);
    match Procedure3::from_wire(procedure) {
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

/// A service in the longest of the portmapper's lists, `rpcb_entry_list`: link, address (an IPv6
/// one with its port: 48), four short words with their lengths.
const SERVICE_BYTES_MAX: usize = 128;
