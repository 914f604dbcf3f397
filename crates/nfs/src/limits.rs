//! Every limit of this crate, with its source.

use aquifer_rpc::limits::PAYLOAD_BYTES_MAX;

/// Most bytes of one READ or WRITE, and the preferred size that FSINFO reports: 1 MiB. Linux asks
/// for no more, and a log batch holds as much.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Most bytes of one listing: larger requests are cut to it, which RFC 1813 allows. FSINFO prefers
/// this size; a longer reply would only keep others waiting.
pub const LISTING_BYTES_MAX: u32 = 64 * 1024;

/// Most WRITEs in one write batch.
pub const TOGETHER_MAX: usize = aquifer_files::TOGETHER_MAX;

// `files` defines these limits; FSINFO and PATHCONF report them.
pub use aquifer_files::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};

/// Most entries that one call of `files` returns for a listing. It bounds the effect of a client
/// that allows very few bytes for each name of [`LISTING_BYTES_MAX`].
pub const LISTING_BATCH_MAX: usize = 1024;

/// Fewest entries that one call of `files` returns: `.` and `..` come in one batch. A client that
/// gives little room does not cost a call of `files` for each entry.
pub const LISTING_BATCH_MIN: usize = 8;

/// Most exports in a table: a dataset for each virtual machine of some racks.
pub const EXPORTS_MAX: usize = 64 * 1024;

/// Most clients whose standings the table remembers.
pub const STANDINGS_MAX: usize = 4096;

/// Most bytes of the list of exports and their clients in EXPORT's reply. Exports that do not fit
/// are left out, and can be mounted all the same.
pub const EXPORT_LIST_BYTES_MAX: usize = 512 * 1024;

/// Most clients listed for one export.
pub const CLIENTS_MAX: usize = 256;

/// Most clients whose refusals are counted separately between two reports.
pub const REFUSALS_MAX: usize = 256;

/// Most lines about refused or mounting clients that are logged at once between two reports (a
/// minute): for clients that an export names, and as many for strangers. With the reports, and the
/// lines of locks and the API, that is less than 100 in any minute.
pub const TOLD_AT_ONCE_MAX: usize = 14;

/// Most such lines in one report.
pub const REPORTED_MAX: usize = 5;

/// Most mounts that are remembered for DUMP. The oldest is forgotten first: the list is a courtesy,
/// and nothing depends on it.
pub const MOUNTS_MAX: usize = 1024;

/// Most bytes of paths in the remembered mounts.
pub const MOUNT_PATH_BYTES_MAX: usize = 64 * 1024;

/// Most locks, shares and waiters of all clients. With the longest owners they take 8 MiB; an image
/// of a virtual machine has some ten.
pub const LOCKS_MAX: usize = 16 * 1024;

/// Most of them for one address (for IPv6, one network of 64 bits), so that others have some too.
pub const SITE_LOCKS_MAX: usize = 4096;

/// The last of all locks are for addresses that have no more than [`SITE_LOCKS_SMALL`].
pub const LOCKS_RESERVED: usize = LOCKS_MAX / 4;

/// Locks that an address gets in any case: a host with six images in use.
pub const SITE_LOCKS_SMALL: usize = 64;

/// Most names of clients with locks at one address: the hosts behind a NAT.
pub const SITE_NAMES_MAX: usize = 64;

/// Most locks and reservations of one file. A call looks at all of them, so this bounds its cost.
pub const FILE_LOCKS_MAX: usize = 1024;

/// Most waiters for locks of one file.
pub const FILE_WAITERS_MAX: usize = 256;

/// Longest name of a client or owner of a lock, in bytes: Linux's are below 80.
pub const LOCK_NAME_BYTES_MAX: usize = 256;

/// Most messages that wait to be sent to lock managers. They are results of asynchronous
/// procedures, which clients ask for again if one is lost.
pub const MESSAGES_MAX: usize = 256;

/// Most of them for one host: its calls outpace its answers only if it does not answer.
pub const HOST_MESSAGES_MAX: usize = 16;

/// Grants to tell one host, after which settled ones are searched for.
pub const HOST_GRANTS_LOOK: usize = 1024;

/// Clients in the notes, after which those without locks are searched for.
pub const HOSTS_LOOK: usize = LOCKS_MAX + 1024;

/// Most hosts whose notice of a restart waits or is being verified.
pub const RESTARTS_MAX: usize = 256;

/// Most hosts whose last restart is remembered, so that a repeated notice has no effect.
pub const REBOOTS_MAX: usize = 1024;

/// Bytes that the results of a lock procedure take beside [`SMALL_REPLY_BYTES_MAX`]: the caller's
/// cookie, up to 1024 bytes, comes back.
pub const LOCK_REPLY_BYTES_MAX: usize = 1024;

/// The largest future of a procedure that is boxed rather than part of its call's future: such
/// procedures are rare beside reads and writes.
pub const BOXED_BYTES_MAX: usize = 4096;

/// Room for a reply without payload or list: the longest is RENAME's, a reply header of 24 bytes
/// and two `wcc_data` of 120.
pub const SMALL_REPLY_BYTES_MAX: usize = 512;

/// Most files whose traffic is counted separately, on all runtimes together. A file takes 1.7 KiB,
/// for two histograms of 98 buckets each. The largest hosts have hundreds of virtual disks.
pub const DISKS_MAX: usize = 2048;

/// Most clients whose traffic is counted separately.
pub const TRAFFIC_CLIENTS_MAX: usize = 256;

/// Entries that each runtime's table may hold in any case, if others have taken all.
pub const TRAFFIC_ENTRIES_MIN: usize = 16;

const _: () =
    assert!(TRANSFER_BYTES_MAX as usize == PAYLOAD_BYTES_MAX, "what FSINFO offers fits a record");
