//! Every limit of flow, with its unit and its reason. What follows from a pool's size is in
//! [`Limits`](crate::limits::Limits). A *share* is one of a full txg; where a constant is an
//! integer and named so, it says "one part in so many".

use std::time::Duration;

use aquifer_ondisk::log_batch::BATCH_SECTORS_MAX;

const KIB: u64 = 1 << 10;

// When a txg closes.

/// A txg closes at this age even if little is dirty.
pub const TXG_INTERVAL_MS: u64 = 15_000;
/// The same while something waits to be freed in the background: soon, and not one txg after the
/// other for a few files each.
pub const TXG_BACKGROUND_MS: u64 = 100;
/// A txg that takes longer than this to come to disk is told as slow. The next one is open all that
/// time: its writers are slowed when it is full.
pub const TXG_SLOW_MS: u64 = TXG_INTERVAL_MS;
/// A txg is full when its records have taken one part in so many of the log: two txgs are in
/// memory, and the log frees whole segments only.
pub const TXG_LOG_SHARE: u64 = 4;
/// A txg is full when it has reserved one part in so many of the room on the disks: the other half
/// is for the txg on its way.
pub const TXG_SPACE_SHARE: u64 = 2;
/// However little room there is, a txg is not full before it has reserved so many sectors: on a
/// full pool it is not worth a txg to let in a change or two.
pub const TXG_FULL_SECTORS_MIN: u64 = 4096;

// Which changes find room.

/// Sparse changes may take one part in so many of a txg's dirty memory,
pub const SPARSE_TXG_SHARE: u64 = 16;
/// each of them this much at most,
pub const SPARSE_BYTES_MAX: u64 = 64 * KIB;
/// and one part in so many of the log is kept for them.
pub const SPARSE_LOG_SHARE: u64 = 64;
/// Changes are not delayed by a log that is full up to this: two full txgs leave it below.
pub const LOG_EASY_PERCENT: u64 = 60;
const _: () = assert!(2 * 100 / TXG_LOG_SHARE < LOG_EASY_PERCENT, "room for two full txgs");
/// Above it a change waits this long, times the square of the percents above it, over those free.
pub const LOG_DELAY_US: u64 = 25;

// How fast changes come in.

/// When changes are slowed, whoever comes after this long without others need not wait.
pub const THROTTLE_CREDIT_MS: u64 = 5;
/// Those that wait look this often whether their turn comes earlier than it seemed.
pub const THROTTLE_LOOK_MS: u64 = 50;
/// A wait that rounds to nothing would never end.
pub const THROTTLE_WAIT_MIN: Duration = Duration::from_micros(20);
/// The open txg is filled up to this share, by the time the other is on disk. The rest is for what
/// comes when that takes longer than it seemed.
pub const FILL_SHARE: f64 = 0.95;
/// That rest is made to last this much longer than the other seems to need.
pub const REST_LASTS: f64 = 4.0;
/// Faster than the disks by this factor at most, while txgs close full.
pub const FASTEST: f64 = 4.0;
/// Of a txg smaller than this share nothing is learnt: fixed costs rule it.
pub const LEARN_SHARE: f64 = 1.0 / 8.0;
/// A txg as large as this share closed because it was full.
pub const PRESSED_SHARE: f64 = 0.9;
/// While txgs do not close because they are full nobody waits below this share.
pub const EASY_SHARE: f64 = 0.5;
/// The least that is expected of what a txg on its way still takes, in seconds.
pub const LEFT_SECONDS_MIN: f64 = 0.001;
/// A txg that seems to stand still is expected to need this much longer than it has needed, or than
/// those before it did.
pub const STANDSTILL: f64 = 8.0;
/// The speed of late is that of about so long, in seconds.
pub const SPEED_SECONDS: f64 = 0.3;
/// What is written in the end may be more than it seemed: by this share of it at least.
pub const MISSING_SHARE_MIN: f64 = 0.02;

// How a sync goes out.

/// A sync that nobody waits for spreads its work over so long, or until the open txg is half full.
pub const SYNC_SPREAD_MS: u64 = 250;
/// Its data is on its way when the open txg is full to this share: before that nobody is slowed.
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
/// The window before any write has come back.
pub const SYNC_WINDOW_SECTORS_FIRST: usize = SYNC_WINDOW_SECTORS_MAX / 4;
/// A write that came back soon makes the window larger by one part in so many of it,
pub const SYNC_WINDOW_GROW_SHARE: usize = 4;
/// and one that took long smaller by one part in so many: more, so that a slow device is seen soon.
pub const SYNC_WINDOW_SHRINK_SHARE: usize = 2;
/// A sync's write that takes longer than this shrinks the window, where batches of the log go to
/// the same disks: each of them waits about as long.
pub const SYNC_WRITE_BESIDE_LOG_MS: u64 = 4;
/// The same where the log has disks of its own: only reads wait.
pub const SYNC_WRITE_ALONE_MS: u64 = 40;
/// Longest single write of a sync, in sectors (512 KiB): devices gain nothing from longer ones, the
/// kernel cuts them in pieces, and what waits beside one waits for all of it.
pub const SYNC_WRITE_SECTORS_MAX: usize = 128;
/// Writes of a sync that have been made up and are not on disk: as many as fit in the window. More
/// would only take memory.
pub const SYNC_WRITES_MAX: usize = SYNC_WINDOW_SECTORS_MAX / SYNC_WRITE_SECTORS_MAX;

// Where large data goes.

/// The size, in bytes, for which it is judged whether large data goes early.
pub const PLACEMENT_BYTES: u64 = 64 * KIB;
/// Operations of each sort without which nothing is concluded.
pub const PLACEMENT_SAMPLES_MIN: u64 = 8;
/// A large batch is taken for so many small ones at most: devices take bytes in passing.
pub const PLACEMENT_BATCHES_MAX: u64 = 4;

// When batches of the log go.

/// Batches of the intent log on their way to the device at most.
pub const LOG_BATCHES_IN_FLIGHT_MAX: usize = 3;
/// A second batch goes out beside the first only if it has gathered this many pages.
pub const LOG_SECOND_BATCH_PAGES_MIN: usize = 8;
/// Bytes of a batch's header above which it takes no more records.
pub const LOG_HEADER_BYTES_MAX: usize = 24 * 4096;
/// Payload pages above which a batch takes no more records: the rest of its sectors.
pub const LOG_PAYLOAD_PAGES_MAX: usize = BATCH_SECTORS_MAX - LOG_HEADER_BYTES_MAX / 4096;
/// A log that is idle this long writes its mark.
pub const LOG_IDLE_MS: u64 = 10;
/// Room of the log, in bytes, below which it does not: records need the space more than the mark.
pub const LOG_IDLE_ROOM_BYTES_MIN: u64 = 512 * 4 * KIB;
