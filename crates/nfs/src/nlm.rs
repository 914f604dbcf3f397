//! The procedures of NLM version 4.
//!
//! Invariants:
//! - Every call needs what NFS calls need: a handle of ours, in an export that admits the caller's
//!   address and port. An exclusive lock needs an export that can be written. A lock in a file that
//!   is no longer exported can be released without that: from a port that the superuser has.
//! - No datagram releases a lock that a client took over a connection.
//! - A file that is being rolled back is not locked meanwhile: clients hear "grace period".
//! - The user does not matter: clients lock as any user (Linux as root), after the right user has
//!   opened the file.
//! - A call that waits for disks which do not answer hears "grace period": clients ask again after
//!   some seconds (Linux: 5). A claim of an earlier lock is granted without them: clients give such
//!   a lock up at any other answer. So a claim in a file of a pool that is not there yet gets no
//!   answer until it is.
//! - An asynchronous procedure does the same as its synchronous one, and sends the results in a
//!   call of its own.

use std::sync::Arc;

use aquifer_files::FileHandle;
use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use crate::export::{Exports, Refusal};
use crate::limits::LOCK_NAME_BYTES_MAX;
use crate::lock::Shared;
use crate::lock::{Ask, Callout, Client, Locked, Locks, Manner, Owner, Range};
use crate::proto::nlm::{
    CancArgs4, Holder4, Limited, Lock4, LockArgs4, Netobj, Nlm4Res, Nlm4Stats, Notify4, Procedure,
    ShareArgs4, ShareRes4, TestArgs4, TestRes4, UnlockArgs4,
};
use crate::refusals::Why;
use crate::server::{Origin, Undone};
use crate::status::nlm4_stats;

/// The caller, and the server's tables.
pub(crate) struct LockRequest<'a> {
    pub exports: &'a Exports,
    pub locks: &'a Locks,
    pub origin: &'a Origin,
}

/// Carries out one call and appends its results.
///
/// # Errors
/// The status that RPC returns instead of results; or the file's pool is not there yet.
pub(crate) async fn carry_out(
    request: &LockRequest<'_>,
    procedure: u32,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Undone> {
    use Procedure::{
        Cancel, CancelMsg, CancelRes, Granted, GrantedMsg, GrantedRes, Lock, LockMsg, LockRes,
        NmLock, Null, Share, Test, TestMsg, TestRes, Unlock, UnlockMsg, UnlockRes, Unshare,
    };
    let procedure = Procedure::from_wire(procedure).ok_or(Accepted::ProcUnavail)?;
    let results_in = match procedure {
        TestMsg => Some((Test, TestRes)),
        LockMsg => Some((Lock, LockRes)),
        CancelMsg => Some((Cancel, CancelRes)),
        UnlockMsg => Some((Unlock, UnlockRes)),
        GrantedMsg => Some((Granted, GrantedRes)),
        _ => None,
    };
    if let Some((same, results)) = results_in {
        let mut body = EncodeBuf::new();
        request.results(same, from, &mut body).await?;
        let (via, procedure, args) = (request.origin.local, results.wire(), body.to_vec());
        let results = Callout { via, procedure, args, grant: None };
        request.locks.send(request.origin.address(), results);
        return Ok(());
    }
    match procedure {
        // GRANTED is always called with results, so none come in a call of their own.
        Null | TestRes | LockRes | CancelRes | UnlockRes | GrantedRes => Ok(()),
        Procedure::FreeAll => {
            let Notify4 { name } = decode(from)?;
            // A datagram releases nothing.
            let client = request.client(name.0).filter(|_| request.origin.is_from_root());
            if let Some(client) = client
                && request.locks.free_all(&client) > 0
            {
                request.exports.tell(client.address, "", Why::GaveUp);
            }
            Ok(())
        }
        Share | Unshare => request.share(procedure == Share, from, to).await,
        Test | Lock | Cancel | Unlock | Granted | NmLock => {
            request.results(procedure, from, to).await
        }
        TestMsg | LockMsg | CancelMsg | UnlockMsg | GrantedMsg => Err(Accepted::ProcUnavail.into()),
    }
}

impl LockRequest<'_> {
    /// Carries out a procedure that has results and that may also come as a message.
    async fn results(
        &self,
        procedure: Procedure,
        from: &mut Decoder<'_>,
        to: &mut EncodeBuf,
    ) -> Result<(), Undone> {
        let (cookie, stat) = match procedure {
            Procedure::Test => {
                let args: TestArgs4<'_> = decode(from)?;
                self.test(&args, to).await;
                return Ok(());
            }
            Procedure::Lock | Procedure::NmLock => {
                let args: LockArgs4<'_> = decode(from)?;
                if args.reclaim {
                    self.check_is_there(&args.alock.fh)?;
                }
                (args.cookie, self.lock(&args, procedure == Procedure::Lock).await)
            }
            Procedure::Cancel => {
                let args: CancArgs4<'_> = decode(from)?;
                (args.cookie, self.cancel(&args).unwrap_or_else(|stat| stat))
            }
            Procedure::Unlock => {
                let args: UnlockArgs4<'_> = decode(from)?;
                (args.cookie, self.unlock(&args).unwrap_or_else(|stat| stat))
            }
            Procedure::Granted => {
                // This server never waits for a lock of another server.
                let args: TestArgs4<'_> = decode(from)?;
                (args.cookie, Nlm4Stats::Denied)
            }
            _ => return Err(Accepted::ProcUnavail.into()),
        };
        to.put(&Nlm4Res { cookie, stat });
        Ok(())
    }

    async fn test(&self, args: &TestArgs4<'_>, to: &mut EncodeBuf) {
        let TestArgs4 { cookie, exclusive, ref alock } = *args;
        let found = match self.asked(alock, exclusive) {
            Ok(_) if self.locks.in_grace() => Err(Nlm4Stats::DeniedGracePeriod),
            Ok(ask) => {
                self.file(&alock.fh, false, false).await.map(|file| self.locks.test(file, &ask))
            }
            Err(stat) => Err(stat),
        };
        let holder = found.as_ref().ok().and_then(Option::as_ref).map(|blocker| Holder4 {
            exclusive: blocker.exclusive,
            svid: blocker.owner.svid,
            oh: Limited(&blocker.owner.oh),
            l_offset: blocker.range.first,
            l_len: blocker.range.length(),
        });
        let stat = match &found {
            Ok(None) => Nlm4Stats::Granted,
            Ok(Some(_)) => Nlm4Stats::Denied,
            Err(stat) => *stat,
        };
        to.put(&TestRes4 { cookie, stat, holder });
    }

    async fn lock(&self, args: &LockArgs4<'_>, is_monitored: bool) -> Nlm4Stats {
        let asked = match self.asked(&args.alock, args.exclusive) {
            Ok(ask) if !self.is_its_time(&ask.owner.client, args.reclaim) => {
                Err(Nlm4Stats::DeniedGracePeriod)
            }
            Ok(ask) => {
                let file = self.file(&args.alock.fh, args.exclusive, args.reclaim).await;
                file.map(|file| (file, ask))
            }
            Err(stat) => Err(stat),
        };
        let (file, ask) = match asked {
            Ok(found) => found,
            Err(stat) => return stat,
        };
        let manner = Manner {
            // A lock that was held before cannot have to wait.
            may_wait: args.block && !args.reclaim,
            is_monitored,
            by_stream: !self.origin.is_datagram,
            state: args.state,
        };
        // A claim is of what the client had before: it would give that up at any other answer.
        let door = self.door(file);
        let goes_back = || !args.reclaim && door();
        match self.locks.lock(file, &ask, manner, goes_back).await {
            // Clients ask again after some seconds.
            Locked::Later => Nlm4Stats::DeniedGracePeriod,
            Locked::Granted => Nlm4Stats::Granted,
            Locked::Denied(_) => Nlm4Stats::Denied,
            Locked::Blocked => Nlm4Stats::Blocked,
            Locked::NoLocks => Nlm4Stats::DeniedNolocks,
        }
    }

    /// Whether it is the time for reclaims of earlier locks, or for other locks.
    fn is_its_time(&self, client: &Client, reclaims: bool) -> bool {
        if reclaims { self.locks.may_claim(client) } else { !self.locks.in_grace() }
    }

    fn cancel(&self, args: &CancArgs4<'_>) -> Result<Nlm4Stats, Nlm4Stats> {
        let ask = self.asked(&args.alock, args.exclusive)?;
        let file = self.given_back(&args.alock.fh, &ask.owner.client)?;
        Ok(match self.locks.cancel(file, &ask) {
            true => Nlm4Stats::Granted,
            false => Nlm4Stats::Denied,
        })
    }

    fn unlock(&self, args: &UnlockArgs4<'_>) -> Result<Nlm4Stats, Nlm4Stats> {
        let ask = self.asked(&args.alock, false)?;
        let file = self.given_back(&args.alock.fh, &ask.owner.client)?;
        Ok(match self.locks.unlock(file, &ask.owner, ask.range) {
            true => Nlm4Stats::Granted,
            false => Nlm4Stats::DeniedNolocks,
        })
    }

    async fn share(
        &self,
        reserves: bool,
        from: &mut Decoder<'_>,
        to: &mut EncodeBuf,
    ) -> Result<(), Undone> {
        let ShareArgs4 { cookie, share, reclaim } = decode(from)?;
        // `fsh4_mode` and `fsh4_access` end at 3.
        if share.mode > 3 || share.access > 3 {
            return Err(Accepted::GarbageArgs.into());
        }
        if reclaim {
            self.check_is_there(&share.fh)?;
        }
        let stat = match self.owner(share.caller_name.0, share.oh.0, 0) {
            None => Nlm4Stats::DeniedNolocks,
            Some(owner) if !reserves => match self.given_back(&share.fh, &owner.client) {
                Err(stat) => stat,
                Ok(file) => {
                    self.locks.unshare(file, &owner);
                    Nlm4Stats::Granted
                }
            },
            Some(owner) if !self.is_its_time(&owner.client, reclaim) => {
                Nlm4Stats::DeniedGracePeriod
            }
            Some(owner) => match self.file(&share.fh, false, reclaim).await {
                Err(stat) => stat,
                Ok(file) => {
                    let kind = (share.access, share.mode);
                    let door = self.door(file);
                    let goes_back = || !reclaim && door();
                    match self.locks.share(file, &owner, kind, goes_back) {
                        None => Nlm4Stats::DeniedGracePeriod,
                        Some(Shared::Granted) => Nlm4Stats::Granted,
                        Some(Shared::Denied) => Nlm4Stats::Denied,
                        Some(Shared::NoLocks) => Nlm4Stats::DeniedNolocks,
                    }
                }
            },
        };
        to.put(&ShareRes4 { cookie, stat, sequence: 0 });
        Ok(())
    }

    /// The requested lock.
    fn asked(&self, alock: &Lock4<'_>, exclusive: bool) -> Result<Ask, Nlm4Stats> {
        let range = Range::new(alock.l_offset, alock.l_len).ok_or(Nlm4Stats::Fbig)?;
        let owner = self.owner(alock.caller_name.0, alock.oh.0, alock.svid);
        let owner = owner.ok_or(Nlm4Stats::DeniedNolocks)?;
        Ok(Ask { owner, range, exclusive, via: self.origin.local })
    }

    /// The owner; `None` if its names are too long.
    fn owner(&self, caller_name: &[u8], oh: &[u8], svid: i32) -> Option<Arc<Owner>> {
        let client = Arc::new(self.client(caller_name)?);
        let fits = oh.len() <= LOCK_NAME_BYTES_MAX;
        fits.then(|| Arc::new(Owner { client, svid, oh: oh.into() }))
    }

    fn client(&self, name: &[u8]) -> Option<Client> {
        let address = self.origin.address();
        (name.len() <= LOCK_NAME_BYTES_MAX).then(|| Client { address, name: name.into() })
    }

    /// A claim of an earlier lock waits for the pool of its file.
    fn check_is_there(&self, fh: &Netobj<'_>) -> Result<(), Undone> {
        let admitted = handle(fh).map(|file| self.exports.admit(file.fs_guid.0, self.origin));
        match admitted {
            Some(Err(Refusal::NotYet)) => Err(Undone::Unsettled),
            _ => Ok(()),
        }
    }

    /// Tells whether a rollback of a file, or of its dataset, is under way. The volume is looked up
    /// before: others wait for the table of locks.
    fn door(&self, file: FileHandle) -> impl Fn() -> bool + use<> {
        let volume = self.exports.admit(file.fs_guid.0, self.origin).map(|(volume, _)| volume).ok();
        move || volume.as_ref().is_some_and(|volume| volume.goes_back(file))
    }

    /// The file in which `client` releases something.
    fn given_back(&self, fh: &Netobj<'_>, client: &Client) -> Result<FileHandle, Nlm4Stats> {
        let file = handle(fh).ok_or(Nlm4Stats::StaleFh)?;
        if self.origin.is_datagram && self.locks.locks_by_stream(client) {
            return Err(Nlm4Stats::Failed);
        }
        match self.exports.admit(file.fs_guid.0, self.origin) {
            Ok(_) => Ok(file),
            // The file is not exported any more, or gone: whose calls are taken at all may still
            // release its locks there.
            Err(Refusal::NotExported) => Ok(file),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The file, if it exists and the caller may lock it. If its disks are silent, it exists for a
    /// caller that `reclaims` an earlier lock in it.
    async fn file(
        &self,
        fh: &Netobj<'_>,
        to_write: bool,
        reclaims: bool,
    ) -> Result<FileHandle, Nlm4Stats> {
        let file = handle(fh).ok_or(Nlm4Stats::StaleFh)?;
        let (volume, rights) = self.exports.admit(file.fs_guid.0, self.origin)?;
        if to_write && rights.read_only {
            return Err(Nlm4Stats::Rofs);
        }
        let Some(found) = volume.unless_silent(volume.getattr(file)).await else {
            return if reclaims { Ok(file) } else { Err(Nlm4Stats::DeniedGracePeriod) };
        };
        match found.map_err(|error| nlm4_stats(&error)) {
            Ok(_) => Ok(file),
            Err(stat) => {
                if stat == Nlm4Stats::StaleFh {
                    self.locks.forget(file);
                }
                Err(stat)
            }
        }
    }
}

fn handle(fh: &Netobj<'_>) -> Option<FileHandle> {
    FileHandle::decode(fh.0)
}

fn decode<'a, T: Decode<'a>>(from: &mut Decoder<'a>) -> Result<T, Accepted> {
    T::decode(from).map_err(|_| Accepted::GarbageArgs)
}
