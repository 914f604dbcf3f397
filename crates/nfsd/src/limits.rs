//! Every limit of the daemon, with its source.
//!
//! ```text
//! memory <= requests 64 MiB + replies 56 MiB                       the two budgets
//!         + connections (4096) * 16 KiB                             the allowances: 64 MiB
//!         + runtimes * 0.5 MiB                                      one receive buffer each
//!         + fragmented records (64) * 1.2 MiB                       no known client sends such
//! ```
//! In addition, each connection needs memory for its task and its socket (measured: below 8 KiB).
//! Over TLS its session needs some 10 KiB, and while records come 64 KiB more.

use std::time::Duration;

use aquifer_nfs::limits::TRANSFER_BYTES_MAX;
use aquifer_rpc::limits::RECORD_BYTES_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sizes that a configuration may change. The tests of the limits derive the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at a time; one more is closed at once. Each is an open file: the number is
    /// lower where the system allows fewer, see [`Limits::within_files`].
    pub connections_max: usize,
    /// Most requests of one connection that run at a time. Linux keeps up to some hundreds
    /// outstanding; more than this in parallel would not make disks faster.
    pub in_flight_max: usize,
    /// Most bytes of replies of one connection, set aside and unsent together. Four of the largest
    /// READs: enough to keep a 10 Gbit/s link full over 3 ms.
    pub connection_reply_bytes_max: usize,
    /// Bytes of received requests of all connections, beside the allowances.
    pub request_bytes_max: usize,
    /// Bytes of replies of all connections, beside the allowances.
    pub reply_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 4096,
            in_flight_max: 128,
            connection_reply_bytes_max: 4 * (BULK_BYTES + IN_FLIGHT_BYTES),
            request_bytes_max: 64 << 20,
            reply_bytes_max: 56 << 20,
        }
    }
}

impl Limits {
    /// These limits, for a process that may take so much memory in all: requests and replies have
    /// an eighth each at most.
    #[must_use]
    pub fn within_memory(mut self, memory_bytes: u64) -> Self {
        let eighth = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
        let most = eighth.max(BUDGET_BYTES_MIN);
        self.request_bytes_max = self.request_bytes_max.min(most);
        self.reply_bytes_max = self.reply_bytes_max.min(most);
        self
    }

    /// These limits, with no more connections than a process may have that is allowed `files` open
    /// files (`None`: any number). Pools, the API and the log must never find none left.
    #[must_use]
    pub fn within_files(mut self, files: Option<u64>) -> Self {
        let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
        let most = files.saturating_sub(OTHER_FILES).max(1);
        if self.connections_max > most {
            tracing::warn!(
                wanted = self.connections_max,
                connections = most,
                files,
                "fewer connections than configured: the limit of open files (RLIMIT_NOFILE)"
            );
            self.connections_max = most;
        }
        self
    }
}

/// Allows this process as many open files as the system permits: a connection is one. Where the
/// process may not raise the limit, there are fewer connections, see [`Limits::within_files`].
pub fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Open files other than clients' connections: disks, the API, tasks and sockets of ours.
pub const OTHER_FILES: usize = 512;

/// The largest READ with its header.
const BULK_BYTES: usize = TRANSFER_BYTES_MAX as usize + 4096;

/// The smallest budget that can be configured: the largest request, or reply, and others beside.
pub const BUDGET_BYTES_MIN: usize = 4 * RECORD_BYTES_MAX;

/// The unit of a budget: small enough that thousands of connections can hold some, large enough
/// that a connection seldom asks.
pub const GRANULE_BYTES: usize = 16 * 1024;

/// How much leased memory a connection keeps that it does not need at the moment.
pub const LEASE_SLACK_BYTES: usize = 64 * 1024;

/// Bytes of requests that a connection may hold without asking the budget: a 4 KiB WRITE. So a
/// lock renewal or a GETATTR never waits for other connections' bulk.
pub const REQUEST_ALLOWANCE_BYTES: usize = 8 * 1024;

/// Bytes of replies that a connection may hold without asking the budget.
pub const REPLY_ALLOWANCE_BYTES: usize = 9 * 1024;

/// Room that a reply has from its beginning: enough for all except listings and READs.
pub const USUAL_REPLY_BYTES: usize = 256;

/// Memory of a running request, beside its record and reply: its future with boxed parts, its place
/// in the connection. Charged with the reply. The allowance has room for one.
pub const IN_FLIGHT_BYTES: usize = FUTURE_BYTES_MAX + aquifer_nfs::limits::BOXED_BYTES_MAX + 128;

/// The largest allowed future of a request. Every request pays for it: the future is moved when it
/// begins.
pub const FUTURE_BYTES_MAX: usize = 4096;

/// Memory of a received request beside its bytes.
pub const RECORD_OVERHEAD_BYTES: usize = 64;

/// Least room for a read: with less, the connection waits for the budget.
pub const READ_BYTES_MIN: usize = 1024;

/// How many requests of a connection begin before other connections have their turn, and the
/// present replies are sent: about 50 us if all are answered at once. With fewer there is more to
/// send. With more, a client that has 64 outstanding waits for all of them (with 64, 0.6 times as
/// many GETATTRs a second, and 0.88 times as many READs of 4 KiB).
pub const BEGUN_PER_TURN_MAX: u64 = 32;

/// How many bytes of a connection are received before other connections have their turn.
pub const RECEIVED_PER_TURN_MAX: u64 = 1 << 20;

/// How many bytes of replies are gathered before they are sent.
pub const REPLIES_PER_WRITE_MAX: usize = 256 * 1024;

/// Calls whose replies may be this large run on an idle thread, if others of the connection come
/// before them.
pub const HANDED_OVER_BYTES_MIN: usize = 256 * 1024;

/// Most bytes of one vectored write: some half of the CPU's second-level cache, since they are read
/// once before the kernel copies them. A READ of 1 MiB with its header takes two.
pub const WRITE_BYTES_MAX: usize = 576 * 1024;

/// Names of a client's certificate that count: each call compares them with the rules.
pub const CERTIFICATE_NAMES_MAX: usize = 32;

/// Between two checks whether the key files have changed, and whether the certificates of connected
/// clients are still good.
pub const KEYS_LOOK: Duration = Duration::from_secs(5);

/// Bytes of TLS records of one connection under way to the socket: two READs of 64 KiB. They are
/// leased as the replies that they contain.
pub const SEND_BYTES_MAX: usize = 136 * 1024;

/// Received bytes of TLS records of one connection that were not read yet.
pub const AHEAD_BYTES_MAX: usize = 32 * 1024;

/// With this much plaintext no more records are opened.
pub const PLAINTEXT_BYTES_MAX: usize = 16 * 1024;

/// Slices of one vectored write: the pages of a 1 MiB READ and small replies around it. Linux takes
/// at most 1024.
pub const WRITE_SLICES_MAX: usize = 320;

/// Most connections that may be inside a record of several fragments at a time.
pub const FRAGMENTED_RECORDS_MAX: usize = 64;

/// How often a connection with something unfinished looks at its own progress.
pub const TICK: Duration = Duration::from_millis(250);

/// A connection that moves fewer bytes than this in a tick is slow: 256 KiB/s.
pub const SLOW_TICK_BYTES: u64 = 64 * 1024;

/// After this many slow ticks a connection is closed if others wait for memory: they wait less than
/// a second.
pub const SLOW_TICKS_MAX: u32 = 2;

/// Strangers, which no export admits, have one in this many of all connections.
pub const STRANGERS_SHARE: usize = 16;

/// A stranger's connection is closed when it has been idle for this long.
pub const STRANGER_IDLE_MAX: Duration = Duration::from_secs(60);

/// A client that was heard from within this time keeps its connection when all are taken.
pub const IDLE_MIN: Duration = Duration::from_secs(10);

/// After this many ticks (60 s) without a byte a connection is closed in any case.
pub const STILL_TICKS_MAX: u32 = 240;

/// A larger output buffer is freed when a connection has nothing more to send.
pub const IDLE_BUFFER_BYTES_MAX: usize = 4096;

/// Connections beyond the limit that may be about to end: those that make room for others.
pub const ENDING_MAX: usize = 64;

/// Connections that wait to be accepted.
pub const LISTEN_BACKLOG: i32 = 1024;

/// Accepted connections under way to a runtime. More wait in the backlog.
pub const HANDOVER_MAX: usize = 16;

/// Threads that serve strangers have a nice value this much higher. Where all want a processor,
/// such a thread gets a tenth of the share of each other thread.
pub const YIELDING_NICE: i32 = 10;

/// How long a closing connection waits for the client to close, so that our close does not destroy
/// the last replies under way.
pub const LINGER: Duration = Duration::from_millis(250);

/// Longest datagram that the portmapper reads.
pub const DATAGRAM_BYTES_MAX: usize = 1024;

/// Longest call over UDP that is read: a lock's longest names and a handle.
pub const CALL_DATAGRAM_BYTES_MAX: usize = 8 * 1024;

/// Calls over UDP under way at a time.
pub const DATAGRAMS_MAX: usize = 64;

/// Calls that tell clients of locks, at a time.
pub const CALLOUTS_MAX: usize = 64;

/// Calls about restarts, ours and theirs, at a time. They have more time, and delay nobody.
pub const NOTICES_MAX: usize = 64;

/// How long a host's status monitor is asked whether the host has restarted, before the notice is
/// forgotten. Early in a start of the host its monitor may not run yet.
pub const CONFIRM_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The first pause between two such questions, and the least between two about one host.
pub const CONFIRM_PAUSE: Duration = Duration::from_secs(2);

/// Between two log lines that notices of one host's restart may cause.
pub const TOLD_PAUSE: Duration = Duration::from_secs(60);

/// The number of hosts in the log in that time.
pub const TOLD_HOSTS_MAX: usize = 8;

/// Addresses of lock clients that are remembered.
pub const LOCK_ADDRESSES_MAX: usize = 4096;

/// An address joins the list of lock clients with this many names at once, then with one a second.
/// Each costs a file that is written and flushed.
pub const LOCK_NAMES_AT_ONCE: u32 = 16;

/// How long a client has to answer a call of ours.
pub const CALL_PATIENCE: Duration = Duration::from_secs(3);

/// How often a call over UDP is sent in that time.
pub const CALL_ATTEMPTS: u32 = 3;

/// Longest reply to a call of ours: results of GRANTED with a cookie.
pub const CALL_REPLY_BYTES_MAX: usize = 4 * 1024;

/// Pauses before each time that a client is told of its lock. After some 15 s, plus the time of the
/// calls, the next in the queue gets it. Linux asks again after 30 s.
pub const GRANT_PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// How long the server tries to tell a client of its restart: as long as Linux's sm-notify does.
pub const NOTIFY_PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Longest pause between two tries.
pub const NOTIFY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Between two tries of an address that cannot be listened on, or of a portmapper.
pub const DOORS_RETRY: Duration = Duration::from_secs(2);

/// Between two looks whether the list of lock clients is on disk as it was written.
pub const LOCK_LIST_LOOK: Duration = Duration::from_secs(5);

/// How long another portmapper has for an answer.
pub const RPCBIND_PATIENCE: Duration = Duration::from_secs(1);

/// How often the registration with another portmapper is checked: that one may restart.
pub const RPCBIND_CHECK: Duration = Duration::from_secs(60);

/// Keepalive of a connection: probed after a minute of silence, given up after another.
pub const KEEPALIVE: (Duration, Duration, u32) =
    (Duration::from_secs(60), Duration::from_secs(10), 6);

/// Answers of DNS are valid at least this long: a server with a shorter TTL would make us ask all
/// the time.
pub const NAME_TTL_MIN: Duration = Duration::from_secs(30);

/// And at most this long: a host that moves is known at its new address within this time.
pub const NAME_TTL_MAX: Duration = Duration::from_secs(3600);

/// While no DNS server answers, the last answer is valid this long: over a weekend. Then the host
/// is unknown again, because another host may have its address by then.
pub const NAME_AGE_MAX: Duration = Duration::from_secs(72 * 3600);

/// When a name without an answer is looked up again.
pub const LOOKUP_RETRY: Duration = Duration::from_secs(10);

/// Most names that are looked up at a time.
pub const LOOKUPS_MAX: usize = 16;

/// How long a DNS server has for an answer.
pub const DNS_PATIENCE: Duration = Duration::from_millis(900);

/// How often each DNS server is asked.
pub const DNS_ROUNDS: u32 = 2;

/// Most DNS servers (resolv.conf(5): MAXNS).
pub const DNS_SERVERS_MAX: usize = 3;

/// Most domains in which a short name is looked up.
pub const DNS_SEARCH_MAX: usize = 6;

/// The port of DNS servers.
pub const DNS_PORT: u16 = 53;

/// Longest DNS datagram that is read; the question asks for 512 bytes.
pub const DNS_DATAGRAM_BYTES_MAX: usize = 4096;

/// How often refusals are reported again.
pub const REFUSALS_REPORT: Duration = Duration::from_secs(60);

const _: () = assert!(
    REPLY_ALLOWANCE_BYTES >= IN_FLIGHT_BYTES + aquifer_nfs::limits::SMALL_REPLY_BYTES_MAX,
    "a small request fits the allowances"
);
const _: () = assert!(
    BEGUN_PER_TURN_MAX <= aquifer_nfs::limits::TOGETHER_MAX as u64,
    "what is begun in a turn may be carried out together"
);
const _: () = assert!(
    REQUEST_ALLOWANCE_BYTES >= 4096 + 1024 + READ_BYTES_MIN,
    "a 4 KiB WRITE fits the allowances"
);
