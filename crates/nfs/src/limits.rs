//! Every limit of this crate, with where it comes from.

use aquifer_rpc::limits::PAYLOAD_BYTES_MAX;

/// Most bytes of one READ or WRITE, and what clients are told to prefer: 1 MiB, the most that
/// Linux asks for, and what a log batch holds.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Most bytes of one listing: larger wishes are cut to it, which RFC 1813 allows. It is what
/// FSINFO prefers; a longer reply would only keep others waiting.
pub const LISTING_BYTES_MAX: u32 = 64 * 1024;

/// Most WRITEs that are carried out together.
pub const TOGETHER_MAX: usize = aquifer_files::TOGETHER_MAX;

// What files are, is for `files` to say: FSINFO and PATHCONF tell it.
pub use aquifer_files::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};

/// Most entries that are asked of `files` at once for a listing: bounds what a tiny count of
/// bytes per name would make of [`LISTING_BYTES_MAX`].
pub const LISTING_BATCH_MAX: usize = 1024;

/// Fewest entries that are asked of `files` at once: `.` and `..` come in one batch, and a client
/// that gives little room costs no call of `files` per entry.
pub const LISTING_BATCH_MIN: usize = 8;

/// Most exports in a table: a dataset for each virtual machine of some racks.
pub const EXPORTS_MAX: usize = 64 * 1024;

/// Most clients of whom it is remembered what exports they may use.
pub const STANDINGS_MAX: usize = 4096;

/// Most bytes of the list of exports and their clients in EXPORT's reply: what does not fit is left
/// out, and can be mounted all the same.
pub const EXPORT_LIST_BYTES_MAX: usize = 512 * 1024;

/// Most clients listed for one export.
pub const CLIENTS_MAX: usize = 256;

/// Most clients whose refusals are told apart between two reports.
pub const REFUSALS_MAX: usize = 256;

/// Most lines about clients that were refused, or have mounted, which are logged at once between
/// two reports (a minute): of those that an export names, and as many of strangers. With reports,
/// and what locks and the API log, it is less than 100 in any minute.
pub const TOLD_AT_ONCE_MAX: usize = 14;

/// Most such lines in one report.
pub const REPORTED_MAX: usize = 5;

/// Most mounts that are remembered for DUMP. The oldest is forgotten first: it is a courtesy list,
/// nothing depends on it.
pub const MOUNTS_MAX: usize = 1024;

/// Most bytes of paths in the remembered mounts.
pub const MOUNT_PATH_BYTES_MAX: usize = 64 * 1024;

/// Most locks, shares and waiters of all clients. With the longest owners they take 8 MiB; an image
/// of a virtual machine has some ten.
pub const LOCKS_MAX: usize = 16 * 1024;

/// Most of them of one address (of IPv6, of a network of 64 bits), so that others have some, too.
pub const SITE_LOCKS_MAX: usize = 4096;

/// The last of all are for addresses that have no more than [`SITE_LOCKS_SMALL`].
pub const LOCKS_RESERVED: usize = LOCKS_MAX / 4;

/// What an address gets in any case: a host with six images in use.
pub const SITE_LOCKS_SMALL: usize = 64;

/// Most names of clients with locks at one address: the hosts behind a NAT.
pub const SITE_NAMES_MAX: usize = 64;

/// Most locks and reservations of one file. All are looked at by each call: they are what a call
/// costs at most.
pub const FILE_LOCKS_MAX: usize = 1024;

/// Most who wait for locks of one file.
pub const FILE_WAITERS_MAX: usize = 256;

/// Longest name of a client or owner of a lock, in bytes: Linux's are below 80.
pub const LOCK_NAME_BYTES_MAX: usize = 256;

/// Most messages that wait to be sent to lock managers: results of asynchronous procedures, which
/// are asked for again if lost.
pub const MESSAGES_MAX: usize = 256;

/// Most of them for one host: its calls outpace its answers only if it does not answer.
pub const HOST_MESSAGES_MAX: usize = 16;

/// Grants that a host is to be told of, after which those that are settled are looked for.
pub const HOST_GRANTS_LOOK: usize = 1024;

/// Clients about whom something is noted, after which those without locks are looked for.
pub const HOSTS_LOOK: usize = LOCKS_MAX + 1024;

/// Hosts whose word that they have restarted waits or is being looked into.
pub const RESTARTS_MAX: usize = 256;

/// Hosts whose last restart is remembered, so that the same word of it does nothing twice.
pub const REBOOTS_MAX: usize = 1024;

/// What the results of a lock procedure take beside [`SMALL_REPLY_BYTES_MAX`]: the caller's cookie,
/// up to 1024 bytes, comes back.
pub const LOCK_REPLY_BYTES_MAX: usize = 1024;

/// The largest that the future of a procedure may be which is not a part of its call's: those that
/// are rare beside reads and writes.
pub const BOXED_BYTES_MAX: usize = 4096;

/// Room for a reply without payload or list: the longest is RENAME's, a reply header of 24 bytes
/// and two `wcc_data` of 120.
pub const SMALL_REPLY_BYTES_MAX: usize = 512;

/// Most files whose traffic is counted each by itself, on all runtimes together. Two histograms of
/// 98 buckets each make 1.7 KiB of one; the virtual disks of the largest hosts are hundreds.
pub const DISKS_MAX: usize = 2048;

/// Most clients whose traffic is counted each by itself.
pub const TRAFFIC_CLIENTS_MAX: usize = 256;

/// What each runtime's table may hold in any case, if others have taken all.
pub const TRAFFIC_ENTRIES_MIN: usize = 16;

const _: () =
    assert!(TRANSFER_BYTES_MAX as usize == PAYLOAD_BYTES_MAX, "what FSINFO offers fits a record");
