//! NLM version 4: the network lock manager (RFC 1813 appendix II; X/Open C702 chapters 9 to 11 for
//! the semantics). Version 4 is version 3 with offsets of 64 bits and handles of NFSv3.

use aquifer_rpc::xdr::{Decode, Decoder, Encode, EncodeBuf, XdrError};
use aquifer_rpc::xdr_table;

/// Program number of NLM.
pub const PROGRAM: u32 = 100_021;
/// Version 4.
pub const VERSION: u32 = 4;
/// Most bytes of a `netobj` (MAXNETOBJ_SZ).
pub const NETOBJ_BYTES_MAX: usize = 1024;
/// Most bytes of a `caller_name` (LM_MAXSTRLEN).
pub const NAME_BYTES_MAX: usize = 1024;

xdr_table! {
    /// The procedures. Those in `Msg` have no results; a call of the one in `Res` brings them.
    enum Procedure {
        /// NLMPROC4_NULL.
        Null = 0,
        /// NLMPROC4_TEST: asks for a conflicting lock.
        Test = 1,
        /// NLMPROC4_LOCK.
        Lock = 2,
        /// NLMPROC4_CANCEL: ends the wait for a lock.
        Cancel = 3,
        /// NLMPROC4_UNLOCK.
        Unlock = 4,
        /// NLMPROC4_GRANTED: the server's call: the client now holds a lock that it waited for.
        Granted = 5,
        /// NLMPROC4_TEST_MSG.
        TestMsg = 6,
        /// NLMPROC4_LOCK_MSG.
        LockMsg = 7,
        /// NLMPROC4_CANCEL_MSG.
        CancelMsg = 8,
        /// NLMPROC4_UNLOCK_MSG.
        UnlockMsg = 9,
        /// NLMPROC4_GRANTED_MSG.
        GrantedMsg = 10,
        /// NLMPROC4_TEST_RES.
        TestRes = 11,
        /// NLMPROC4_LOCK_RES.
        LockRes = 12,
        /// NLMPROC4_CANCEL_RES.
        CancelRes = 13,
        /// NLMPROC4_UNLOCK_RES.
        UnlockRes = 14,
        /// NLMPROC4_GRANTED_RES.
        GrantedRes = 15,
        /// NLMPROC4_SHARE: reserves a file, as DOS programs do.
        Share = 20,
        /// NLMPROC4_UNSHARE.
        Unshare = 21,
        /// NLMPROC4_NM_LOCK: a lock of a client that is not monitored.
        NmLock = 22,
        /// NLMPROC4_FREE_ALL: the client has restarted; all of its locks end.
        FreeAll = 23,
    }

    /// `enum nlm4_stats`.
    enum Nlm4Stats {
        /// NLM4_GRANTED: done.
        Granted = 0,
        /// NLM4_DENIED: another owner's lock conflicts.
        Denied = 1,
        /// NLM4_DENIED_NOLOCKS: there are too many locks.
        DeniedNolocks = 2,
        /// NLM4_BLOCKED: the request waits; a GRANTED call follows.
        Blocked = 3,
        /// NLM4_DENIED_GRACE_PERIOD: only reclaims are granted now; ask again later.
        DeniedGracePeriod = 4,
        /// NLM4_DEADLCK: the wait would never end.
        Deadlck = 5,
        /// NLM4_ROFS: an exclusive lock where nothing can be written.
        Rofs = 6,
        /// NLM4_STALE_FH: there is no such file.
        StaleFh = 7,
        /// NLM4_FBIG: the range does not fit 64 bits.
        Fbig = 8,
        /// NLM4_FAILED: another reason.
        Failed = 9,
    }

    /// `struct nlm4_lock`.
    struct Lock4<'a> {
        /// The client.
        caller_name: Name<'a>,
        /// The file.
        fh: Netobj<'a>,
        /// The owner, as the client names it.
        oh: Netobj<'a>,
        /// The process.
        svid: i32,
        /// First byte.
        l_offset: u64,
        /// Bytes; 0 reaches to the end.
        l_len: u64,
    }

    /// `struct nlm4_holder`: a conflicting lock.
    struct Holder4<'a> {
        /// Whether it is exclusive.
        exclusive: bool,
        /// The process.
        svid: i32,
        /// The owner.
        oh: Netobj<'a>,
        /// First byte.
        l_offset: u64,
        /// Bytes; 0 reaches to the end.
        l_len: u64,
    }

    /// `struct nlm4_testargs`, of TEST and GRANTED.
    struct TestArgs4<'a> {
        /// Comes back with the results.
        cookie: Netobj<'a>,
        /// Whether the lock is exclusive.
        exclusive: bool,
        /// The lock.
        alock: Lock4<'a>,
    }

    /// `struct nlm4_lockargs`.
    struct LockArgs4<'a> {
        /// Comes back with the results.
        cookie: Netobj<'a>,
        /// Whether to wait.
        block: bool,
        /// Whether the lock is exclusive.
        exclusive: bool,
        /// The lock.
        alock: Lock4<'a>,
        /// Whether it was held before the server restarted.
        reclaim: bool,
        /// The state of the client's status monitor.
        state: i32,
    }

    /// `struct nlm4_cancargs`.
    struct CancArgs4<'a> {
        /// Comes back with the results.
        cookie: Netobj<'a>,
        /// As in LOCK.
        block: bool,
        /// As in LOCK.
        exclusive: bool,
        /// The lock.
        alock: Lock4<'a>,
    }

    /// `struct nlm4_unlockargs`.
    struct UnlockArgs4<'a> {
        /// Comes back with the results.
        cookie: Netobj<'a>,
        /// The range.
        alock: Lock4<'a>,
    }

    /// `struct nlm4_res`.
    struct Nlm4Res<'a> {
        /// The cookie of the call.
        cookie: Netobj<'a>,
        /// The status.
        stat: Nlm4Stats,
    }

    /// `struct nlm4_share`.
    struct Share4<'a> {
        /// The client.
        caller_name: Name<'a>,
        /// The file.
        fh: Netobj<'a>,
        /// The owner.
        oh: Netobj<'a>,
        /// `fsh4_mode`: the access that others must not have; bit 0 reading, bit 1 writing.
        mode: u32,
        /// `fsh4_access`: the owner's access.
        access: u32,
    }

    /// `struct nlm4_shareargs`.
    struct ShareArgs4<'a> {
        /// Comes back with the results.
        cookie: Netobj<'a>,
        /// The reservation.
        share: Share4<'a>,
        /// Whether it was held before the server restarted.
        reclaim: bool,
    }

    /// `struct nlm4_shareres`.
    struct ShareRes4<'a> {
        /// The cookie of the call.
        cookie: Netobj<'a>,
        /// The status.
        stat: Nlm4Stats,
        /// For clients that count their calls: 0.
        sequence: i32,
    }

    /// `struct nlm4_notify`, up to the state, which implementations write in 4 or in 8 bytes.
    struct Notify4<'a> {
        /// The client.
        name: Name<'a>,
    }
}

/// `netobj`: bytes that only their sender understands.
pub type Netobj<'a> = Limited<'a, NETOBJ_BYTES_MAX>;
/// The name of a host.
pub type Name<'a> = Limited<'a, NAME_BYTES_MAX>;

/// At most `MAX` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limited<'a, const MAX: usize>(
    /// The bytes.
    pub &'a [u8],
);

impl<const MAX: usize> Encode for Limited<'_, MAX> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.opaque(self.0);
    }
}

impl<'a, const MAX: usize> Decode<'a> for Limited<'a, MAX> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        from.opaque(MAX).map(Limited)
    }
}

/// `struct nlm4_testres`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRes4<'a> {
    /// The cookie of the call.
    pub cookie: Netobj<'a>,
    /// The status that a LOCK would have.
    pub stat: Nlm4Stats,
    /// The conflicting lock, with [`Nlm4Stats::Denied`] only.
    pub holder: Option<Holder4<'a>>,
}

impl Encode for TestRes4<'_> {
    fn encode(&self, to: &mut EncodeBuf) {
        to.put(&self.cookie);
        to.put(&self.stat);
        if let (Nlm4Stats::Denied, Some(holder)) = (self.stat, &self.holder) {
            to.put(holder);
        }
    }
}

impl<'a> Decode<'a> for TestRes4<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let (cookie, stat) = (Decode::decode(from)?, Nlm4Stats::decode(from)?);
        let holder = match stat {
            Nlm4Stats::Denied => Some(Holder4::decode(from)?),
            _ => None,
        };
        Ok(TestRes4 { cookie, stat, holder })
    }
}
