//! Every limit of flow, with its unit and its reason. Limits that depend on a pool's size are in
//! [`Limits`](crate::limits::Limits). A share as `f64` is a share of a full txg. A share as integer
//! is a divisor: 4 means a quarter.

use std::time::Duration;

use aquifer_ondisk::log_batch::BATCH_SECTORS_MAX;

const KIB: u64 = 1 << 10;

// When a txg closes.

/// A txg closes at this age even if little is dirty.
pub const TXG_INTERVAL_MS: u64 = 15_000;
/// A txg closes at this age while the background has something to free. That is soon, but not so
/// soon that each txg frees a few files only.
pub const TXG_BACKGROUND_MS: u64 = 100;
/// A txg that takes longer than this to reach the disks is reported as slow. The next one stays
/// open all that time, and its writers are slowed once it is full.
pub const TXG_SLOW_MS: u64 = TXG_INTERVAL_MS;
/// A txg is full when its records take this share of the log. Two txgs are in memory, and the log
/// gives back whole segments only.
pub const TXG_LOG_SHARE: u64 = 4;
/// A txg is full when it has reserved this share of the room on the disks. The other half is for
/// the txg on its way.
pub const TXG_SPACE_SHARE: u64 = 2;
/// A txg is never full below so many reserved sectors. On a full pool a txg for one change or two
/// would cost more than it gives.
pub const TXG_FULL_SECTORS_MIN: u64 = 4096;

// Which changes find room.

/// Sparse changes may take this share of a txg's dirty memory,
pub const SPARSE_TXG_SHARE: u64 = 16;
/// each of them this many bytes at most,
pub const SPARSE_BYTES_MAX: u64 = 64 * KIB;
/// and this share of the log is kept for them.
pub const SPARSE_LOG_SHARE: u64 = 64;
/// A log that is full to this percentage delays nobody. Two full txgs leave it below.
pub const LOG_EASY_PERCENT: u64 = 60;
const _: () = assert!(2 * 100 / TXG_LOG_SHARE < LOG_EASY_PERCENT, "room for two full txgs");
/// Above it a change waits this many microseconds, times the square of the percents above it,
/// divided by the percents that are free.
pub const LOG_DELAY_US: u64 = 25;

// How fast changes come in.

/// While changes are slowed, a change that follows a rest of this length need not wait.
pub const THROTTLE_CREDIT_MS: u64 = 5;
/// A change that waits looks this often whether its turn comes earlier than expected.
pub const THROTTLE_LOOK_MS: u64 = 50;
/// A wait that rounds to nothing would never end.
pub const THROTTLE_WAIT_MIN: Duration = Duration::from_micros(20);
/// The open txg is full to this share when the other one is on disk. The rest is a reserve for a
/// sync that takes longer than expected.
pub const FILL_SHARE: f64 = 0.95;
/// That reserve lasts this many times the time that the other one still needs.
pub const REST_LASTS: f64 = 4.0;
/// While txgs close full, changes come in at most this many times as fast as the disks take them.
pub const FASTEST: f64 = 4.0;
/// A txg smaller than this share teaches nothing: fixed costs rule it.
pub const LEARN_SHARE: f64 = 1.0 / 8.0;
/// A txg that reaches this share counts as closed because it was full.
pub const PRESSED_SHARE: f64 = 0.9;
/// While txgs close for other reasons, nobody waits below this share.
pub const EASY_SHARE: f64 = 0.5;
/// A txg on its way is expected to take at least this many seconds more.
pub const LEFT_SECONDS_MIN: f64 = 0.001;
/// A txg that stands still is expected to take this many times its time so far, or the time of
/// those before it, whichever is longer.
pub const STANDSTILL: f64 = 8.0;
/// The recent speed of the disks is a mean over about so many seconds.
pub const SPEED_SECONDS: f64 = 0.3;
/// A txg may write more than expected: this share of it always counts as missing.
pub const MISSING_SHARE_MIN: f64 = 0.02;

// How a sync goes out.

/// A sync that nobody waits for spreads its work over so long, or until the open txg is half full.
pub const SYNC_SPREAD_MS: u64 = 250;
/// It has handed out its data when the open txg is full to this share, below which nobody is
/// slowed.
pub const SYNC_DONE_AT_FILL: f64 = EASY_SHARE;
/// Steps between two looks at the plan: some 50 us of a processor.
pub const SYNC_STEPS_PER_LOOK: u64 = 16;
/// A sync that is ahead of its plan looks again after this long.
pub const SYNC_LOOK_MS: u64 = 1;
/// Writes of a sync on their way to the devices, in sectors: at most (32 MiB), and however slow the
/// devices are (2 MiB).
pub const SYNC_WINDOW_SECTORS_MAX: usize = 8192;
/// See [`SYNC_WINDOW_SECTORS_MAX`].
pub const SYNC_WINDOW_SECTORS_MIN: usize = 512;
/// The window, in sectors, before any write has come back.
pub const SYNC_WINDOW_SECTORS_FIRST: usize = SYNC_WINDOW_SECTORS_MAX / 4;
/// A write that came back soon grows the window by this share of the write,
pub const SYNC_WINDOW_GROW_SHARE: usize = 4;
/// and one that took long shrinks it by this share: more, so that it follows a slow device quickly.
pub const SYNC_WINDOW_SHRINK_SHARE: usize = 2;
/// A sync's write that takes longer than this shrinks the window, where batches of the log go to
/// the same disks: each of them waits about as long.
pub const SYNC_WRITE_BESIDE_LOG_MS: u64 = 4;
/// A sync's write that takes longer than this shrinks the window, where the log has disks of its
/// own: only reads wait.
pub const SYNC_WRITE_ALONE_MS: u64 = 40;
/// Longest single write of a sync, in sectors (512 KiB): devices gain nothing from longer ones, the
/// kernel cuts them in pieces, and what waits beside one waits for all of it.
pub const SYNC_WRITE_SECTORS_MAX: usize = 128;
/// Writes that a sync has handed out and that are not on disk. More than fit in the window would
/// only take memory.
pub const SYNC_WRITES_MAX: usize = SYNC_WINDOW_SECTORS_MAX / SYNC_WRITE_SECTORS_MAX;

// Where large data goes.

/// The size in bytes for which the two ways of large data are compared.
pub const PLACEMENT_BYTES: u64 = 64 * KIB;
/// Fewer operations of a kind than this allow no conclusion.
pub const PLACEMENT_SAMPLES_MIN: u64 = 8;
/// A large batch takes at most as long as so many small ones.
pub const PLACEMENT_BATCHES_MAX: u64 = 4;

// What clients leave to background work.

/// So long after their last call clients count as at work.
pub const BACKGROUND_BUSY_MS: u64 = 200;
/// Beside them background work rests for so many times what it took,
pub const BACKGROUND_RESTS: u32 = 9;
/// and for so long at most.
pub const BACKGROUND_REST_MS_MAX: u64 = 1000;

// When batches of the log go.

/// Batches of the intent log on their way to the device at most.
pub const LOG_BATCHES_IN_FLIGHT_MAX: usize = 3;
/// A second batch goes out beside the first only if it has gathered this many pages.
pub const LOG_SECOND_BATCH_PAGES_MIN: usize = 8;
/// Bytes of a batch's header above which it takes no more records.
pub const LOG_HEADER_BYTES_MAX: usize = 24 * 4096;
/// Payload pages above which a batch takes no more records: the rest of its sectors.
pub const LOG_PAYLOAD_PAGES_MAX: usize = BATCH_SECTORS_MAX - LOG_HEADER_BYTES_MAX / 4096;
/// A log that is idle for this long writes its mark.
pub const LOG_IDLE_MS: u64 = 10;
/// With this many bytes of room or fewer it does not: records need the space more than the mark.
pub const LOG_IDLE_ROOM_BYTES_MIN: u64 = 512 * 4 * KIB;
