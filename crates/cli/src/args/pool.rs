//! `aquifer pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use aquifer_api::time;

use super::{assignment, bytes};

/// A drill: a disk, and how long.
#[derive(Debug, Args)]
pub struct DrillArgs {
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// How long clients are measured with all disks, and again without this one.
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// End the drill that goes on: the disk comes back at once.
    #[arg(long, conflicts_with_all = ["disk", "seconds", "yes"])]
    pub stop: bool,
    /// The pool.
    pub name: String,
    /// A disk of a mirror that holds data.
    #[arg(required_unless_present = "stop")]
    pub disk: Option<String>,
}

/// A new pool: its disks, and how they are taken.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Also take disks that hold something else, which is lost, and single disks beside
    /// mirrors.
    #[arg(short = 'f')]
    pub force: bool,
    /// Only say what would be done, or why not.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// With -f, on the server itself: also take disks of a pool in which snapshots are held
    /// until this time. It is the one that the refusal says; they are destroyed.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub held_until: Option<u64>,
    /// A property of the pool's own dataset, which others inherit; may be given several times.
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = assignment)]
    pub properties: Vec<(String, String)>,
    /// Make image files that do not exist, of this size.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub create_size: Option<u64>,
    /// The pool's name.
    pub name: String,
    /// Disks: `A B` stripes, `mirror A B` mirrors, `mirror A B mirror C D` does both; behind
    /// the word `log` those of the intent log, behind `spare` spares,
    /// behind `cache` cache disks.
    #[arg(required = true, value_name = "[log] [spare] [cache] [mirror] DISK")]
    pub disks: Vec<String>,
}

/// A pool that comes into service, and what may be lost for that.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Take the pool although another host used it in the last minute, and did not export it.
    /// That host must be down.
    #[arg(short = 'f')]
    pub force: bool,
    /// Where to look instead of all block devices: directory, device, image file.
    #[arg(short = 'd', value_name = "PLACE")]
    pub places: Vec<PathBuf>,
    /// Go back this many txgs. What came after is lost.
    #[arg(long, value_name = "TXGS", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=2))]
    pub rewind: u64,
    /// End the intent log where it is damaged. What came after is lost.
    #[arg(long)]
    pub discard_log: bool,
    /// Do without a log device that is not there. What only it holds is lost.
    #[arg(short = 'm', long)]
    pub missing_log: bool,
    /// Import read-only, without data vdevs of which no disk is there, to rescue files. Nothing on
    /// the disks changes.
    #[arg(long, conflicts_with_all = ["discard_log", "missing_log", "discard_unreadable"])]
    pub missing_vdev: bool,
    /// Take what a disk does not give while the log is replayed for damaged. What the log says
    /// of it is lost.
    #[arg(long)]
    pub discard_unreadable: bool,
    /// Go back to what disks hold that were taken offline by order, if no other disk of their
    /// vdev is there. What was written since is lost.
    #[arg(long)]
    pub use_offline: bool,
    /// Go on although the labels are older than the pool's newest state. Acts on disks are
    /// undone.
    #[arg(long)]
    pub old_config: bool,
    /// Name or guid.
    pub pool: Option<String>,
    /// The name that it gets: also the way to import a second pool of one name.
    #[arg(value_name = "NEW")]
    pub new_name: Option<String>,
}

/// Acts on pools.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Make a pool and import it.
    Create(CreateArgs),
    /// Add disks to a pool: for data, for the intent log, spares, and a read cache.
    Add {
        /// Also take disks that hold something else, which is lost, and single disks beside
        /// mirrors.
        #[arg(short = 'f')]
        force: bool,
        /// Only say what would be done, or why not.
        #[arg(short = 'n')]
        dry_run: bool,
        /// Make image files that do not exist, of this size.
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        create_size: Option<u64>,
        /// The pool.
        name: String,
        /// Disks: `A`, `mirror A B`; behind the word `log` those of the intent log: `log A`, `log A
        /// B` (two, used in turn), `log mirror A B`; behind the word `spare` spares,
        /// behind `cache` cache disks.
        #[arg(required = true, value_name = "[log] [spare] [cache] [mirror] DISK")]
        disks: Vec<String>,
    },
    /// Take a log device, a spare or a cache disk out of a pool.
    Remove {
        /// The pool.
        name: String,
        /// The disk; of a mirror its name, such as mirror-1.
        disk: String,
    },
    /// Add a disk as another side of a mirror, or make a single disk a mirror.
    Attach {
        /// Wait until the disk holds everything.
        #[arg(short = 'w', long)]
        wait: bool,
        /// Take the new disk also if it holds something else. It is lost.
        #[arg(short = 'f')]
        force: bool,
        /// Make the new disk, if it is an image file that does not exist, of this size.
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        create_size: Option<u64>,
        /// The pool.
        name: String,
        /// A disk of the pool that holds data.
        disk: String,
        /// The disk that comes.
        new: String,
    },
    /// Take a side off a mirror.
    Detach {
        /// The pool.
        name: String,
        /// The disk.
        disk: String,
    },
    /// Put another disk in the place of one.
    Replace {
        /// Wait until the new disk holds everything.
        #[arg(short = 'w', long)]
        wait: bool,
        /// Take the new disk also if it holds something else. It is lost.
        #[arg(short = 'f')]
        force: bool,
        /// Make the new disk, if it is an image file that does not exist, of this size.
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        create_size: Option<u64>,
        /// The pool.
        name: String,
        /// The disk that goes.
        disk: String,
        /// The disk that comes. Without it: the one that is at the path of the old one now.
        new: Option<String>,
    },
    /// Examine every copy of everything in a pool, and mend bad copies. Resumes a paused scrub.
    Scrub {
        /// Pause the scrub.
        // Takes the place of the global option of this name, as zpool's users expect of `-p`.
        #[arg(id = "exact", short = 'p', long = "pause", conflicts_with = "stop")]
        pause: bool,
        /// Stop the scrub.
        #[arg(short = 's', long)]
        stop: bool,
        /// Wait until it has examined everything.
        #[arg(short = 'w', long, conflicts_with_all = ["exact", "stop"])]
        wait: bool,
        /// The pool.
        name: String,
    },
    /// Discard what is free on disks, so that they need not keep it. Resumes what is suspended.
    Trim(TrimArgs),
    /// Write over what is free on disks. Resumes what is suspended.
    Initialize(InitializeArgs),
    /// Wait until no disk of a pool is being resilvered, and no scrub goes on.
    Wait {
        /// The pool.
        name: String,
    },
    /// Take a disk away for a moment as if it had failed, and measure clients meanwhile. It comes
    /// back in any case.
    Drill(DrillArgs),
    /// Take a disk out of use until it is taken into use again.
    Offline {
        /// Until the next import at most.
        #[arg(short = 't')]
        temporary: bool,
        /// The pool.
        name: String,
        /// The disk.
        disk: String,
    },
    /// Take a disk into use again.
    Online {
        /// Wait until the disk holds everything.
        #[arg(short = 'w', long)]
        wait: bool,
        /// Also use disks of its vdev that have become larger. The disk may be in use.
        #[arg(short = 'e')]
        expand: bool,
        /// Also if it was in use apart from the pool. What only it has is lost.
        #[arg(short = 'f')]
        force: bool,
        /// The pool.
        name: String,
        /// The disk.
        disk: String,
    },
    /// Bring a pool into service; without a name, list those that are found.
    Import(ImportArgs),
    /// Take a pool out of service.
    Export {
        /// Within a minute, even if disks do not answer; says what it leaves behind.
        #[arg(long)]
        force: bool,
        /// The pool.
        name: String,
    },
    /// Take a notice of loss off a pool's status, and count the errors of its disks from 0 again.
    /// Look at once for disks that it waits for.
    Clear {
        /// The pool.
        name: String,
        /// Only the errors of this disk, or of the disks of this vdev.
        disk: Option<String>,
    },
    /// List pools.
    List {
        /// The pool; without one, all.
        name: Option<String>,
    },
    /// Say how pools are.
    Status {
        /// More: identities, sizes.
        #[arg(short = 'v')]
        verbose: bool,
        /// Of each disk, when it was last trimmed.
        #[arg(short = 't')]
        trim: bool,
        /// Of each disk, when it was last initialized.
        #[arg(short = 'i')]
        initialize: bool,
        /// Only pools with a problem. The exit code is 3 if there is one.
        #[arg(short = 'x')]
        problems: bool,
        /// The pool; without one, all.
        name: Option<String>,
    },
    /// Say what was done to pools, by whom.
    History {
        /// Also who asked, on which machine, and what it changed.
        #[arg(short = 'l')]
        long: bool,
        /// Also what was asked for and not carried out.
        #[arg(short = 'a')]
        all: bool,
        /// Also what pools did by themselves.
        #[arg(short = 'i')]
        internal: bool,
        /// The pool; without one, all.
        name: Option<String>,
    },
    /// Show what happened to a pool, as far as the pool has kept it: over restarts.
    Events {
        /// The pool.
        name: String,
    },
    /// Export a pool and erase its labels. Everything in it is lost.
    Destroy {
        /// Do not ask.
        #[arg(short = 'f')]
        force: bool,
        /// The pool.
        name: String,
    },
}

/// `pool trim`.
#[derive(Debug, Args)]
pub struct TrimArgs {
    /// Suspend it; `pool trim` resumes it.
    #[arg(short = 's', long)]
    pub suspend: bool,
    /// Cancel it.
    #[arg(short = 'c', long, conflicts_with = "suspend")]
    pub cancel: bool,
    /// Wait until it has ended.
    #[arg(short = 'w', long, conflicts_with_all = ["cancel", "suspend"])]
    pub wait: bool,
    /// Bytes a second at most, on each disk.
    #[arg(short = 'r', long, value_parser = bytes, conflicts_with_all = ["cancel", "suspend"])]
    pub rate: Option<u64>,
    /// The pool.
    pub name: String,
    /// The disks; without any, all that hold data.
    pub disks: Vec<String>,
}

/// `pool initialize`.
#[derive(Debug, Args)]
pub struct InitializeArgs {
    /// Suspend it; `pool initialize` resumes it.
    #[arg(short = 's', long)]
    pub suspend: bool,
    /// Cancel it.
    #[arg(short = 'c', long, conflicts_with = "suspend")]
    pub cancel: bool,
    /// Forget that it was done.
    #[arg(short = 'u', long = "uninit", conflicts_with_all = ["cancel", "suspend"])]
    pub forget: bool,
    /// Wait until it has ended.
    #[arg(short = 'w', long, conflicts_with_all = ["cancel", "suspend", "forget"])]
    pub wait: bool,
    /// The pool.
    pub name: String,
    /// The disks; without any, all that hold data.
    pub disks: Vec<String>,
}

/// A moment as the daemon says it: `2027-01-31T03:20:00Z`.
fn moment(text: &str) -> Result<u64, String> {
    let parsed = time::parse_moment(text, time::now_s());
    parsed.ok_or_else(|| format!("{text:?} is no time: write it as 2027-01-31T03:20:00Z"))
}
