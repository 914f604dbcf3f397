//! The command line.

use std::net::IpAddr;

use aquifer_api::{Hypervisor, VdevKind, VdevRequest};
use aquifer_meter::size;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};

mod alerts;
mod api;
mod list;
mod past;
mod pool;
#[cfg(test)]
mod tests;
mod token;

pub use alerts::AlertsCommand;
pub use api::ApiArgs;
pub use list::{GetArgs, GetColumn, ListArgs, ListKind, SortKey, Source};
pub use past::PastArgs;
pub use pool::{CreateArgs, DrillArgs, ImportArgs, InitializeArgs, PoolCommand, TrimArgs};
pub use token::TokenCommand;

/// Options of every command: which daemon is asked, and how the answer is printed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Options {
    /// Which daemon is asked.
    #[command(flatten)]
    pub api: ApiArgs,
    /// Answer in JSON, errors too.
    #[arg(long, global = true)]
    pub json: bool,
    /// For scripts: no headers, one tab between columns.
    #[arg(short = 'H', long, global = true)]
    pub script: bool,
    /// Sizes in bytes.
    #[arg(short = 'p', long, global = true)]
    pub exact: bool,
}

/// Commands for a daemon.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Pools: create, import, export, list, status, history, destroy, and their disks.
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Put faults before a disk, for tests.
    #[cfg(debug_assertions)]
    Inject(crate::commands::InjectArgs),
    /// Make a dataset.
    Create {
        /// A property of its own; may be given several times.
        #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = assignment)]
        properties: Vec<(String, String)>,
        /// Full name, such as tank/vms.
        dataset: String,
    },
    /// Take snapshots of datasets, or of single files, all at one moment.
    Snapshot {
        /// Also of all datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// Full names, such as tank/vms@before, or tank/vms:web01/disk0.vhd@before of a file. In a
        /// path '*' and '?' may stand for several files.
        #[arg(required = true, value_name = "DATASET[:PATH]@NAME")]
        snapshots: Vec<String>,
    },
    /// Make a bookmark of a snapshot: with it, what changed since is found when that is gone.
    Bookmark {
        /// The snapshot, such as tank/vms@before.
        #[arg(value_name = "DATASET@NAME")]
        snapshot: String,
        /// Such as tank/vms#sent or #sent.
        #[arg(value_name = "[DATASET]#BOOKMARK")]
        bookmark: String,
    },
    /// Show which files differ in two snapshots, or in a snapshot and its dataset.
    Diff(crate::commands::DiffArgs),
    /// Write a snapshot to stdout, as a stream that `aquifer receive` reads.
    Send(crate::commands::SendArgs),
    /// Make a dataset with a snapshot of the stream on stdin.
    Receive(crate::commands::ReceiveArgs),
    /// Show the streams that come just now, and those that wait for their rest: whose they are,
    /// and since when.
    Receives {
        /// Only into this dataset and those below it.
        dataset: Option<String>,
    },
    /// Bring a copy of a dataset, on another Aquifer or in another pool, up to date; or show how
    /// copies stand.
    Replicate(crate::commands::ReplicateArgs),
    /// Destroy a dataset, snapshots, or a bookmark. Everything in it is lost.
    Destroy {
        /// Also all datasets below it; of snapshots: those of these names there.
        #[arg(short = 'r')]
        recursive: bool,
        /// Also all clones, with all below them.
        #[arg(short = 'R')]
        clones: bool,
        /// Do not ask.
        #[arg(short = 'f')]
        force: bool,
        /// Only say what would be destroyed, and what that would free. Of snapshots only.
        #[arg(short = 'n')]
        dry_run: bool,
        /// Name each snapshot.
        #[arg(short = 'v')]
        verbose: bool,
        /// The dataset, a bookmark, or snapshots: names with commas between them, A%B for A to B.
        /// With a path, snapshots of files; there '*' and '?' may stand in both.
        #[arg(value_name = "DATASET[[:PATH]@NAME|A%B[,...]|#BOOKMARK]")]
        dataset: String,
    },
    /// Make a dataset that begins as a snapshot, or files that begin as a file in a snapshot.
    Clone {
        /// A property of its own, of a dataset; may be given several times.
        #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = assignment)]
        properties: Vec<(String, String)>,
        /// The snapshot, such as tank/vms@before, or tank/vms:gold.vhd@v1 of a file.
        #[arg(value_name = "DATASET[:PATH]@NAME")]
        snapshot: String,
        /// Full name of the new dataset, in the same pool; or those of new files, such as
        /// tank/vms:web07/disk.vhd, in the same dataset.
        #[arg(value_name = "NEW", required = true)]
        names: Vec<String>,
    },
    /// Have a clone and its origin change places: it lists the snapshots that both come from, and
    /// the origin, which becomes a clone of it, can be destroyed.
    Promote {
        /// Full name of the clone.
        #[arg(value_name = "CLONE")]
        dataset: String,
    },
    /// Roll a dataset or a file back to a snapshot. What changed since the newest one is lost.
    Rollback {
        /// Destroys later snapshots. They stay otherwise.
        #[arg(short = 'r')]
        destroy_later: bool,
        /// Also while clients hold locks, or have data that waits for their COMMIT, and of a
        /// damaged file.
        #[arg(short = 'f')]
        force: bool,
        /// The snapshot, such as tank/vms@before or tank/vms:web01/disk0.vhd@before.
        #[arg(value_name = "DATASET[:PATH]@NAME")]
        snapshot: String,
    },
    /// Rename a dataset, with all below it, or a snapshot.
    Rename {
        /// Of a snapshot: also those of its name in all datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// Its full name, such as tank/vms or tank/vms@before.
        #[arg(value_name = "DATASET|DATASET[:PATH]@OLD")]
        name: String,
        /// Its new one.
        #[arg(value_name = "DATASET|@NEW")]
        new: String,
    },
    /// Keep snapshots from being destroyed, under a name.
    Hold {
        /// Also those of these names in all datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// Until then, in 30d, 12h, or at the beginning of 2027-01-31. Nobody can release it
        /// before, you neither.
        #[arg(long, value_name = "SPAN|DATE", value_parser = token::end)]
        until: Option<u64>,
        /// Name of the hold.
        tag: String,
        /// Full names, such as tank/vms@before, or tank/vms:web01/*@before of files.
        #[arg(required = true, value_name = "DATASET[:PATH]@NAME")]
        snapshots: Vec<String>,
    },
    /// End a hold on snapshots.
    Release {
        /// Also on those of these names in all datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// Name of the hold.
        tag: String,
        /// Full names, such as tank/vms@before, or tank/vms:web01/*@before of files.
        #[arg(required = true, value_name = "DATASET[:PATH]@NAME")]
        snapshots: Vec<String>,
    },
    /// List the holds on snapshots.
    Holds {
        /// Also those on snapshots of datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// Snapshots, or datasets for all of theirs; without one, all.
        #[arg(value_name = "DATASET[[:PATH]@NAME]")]
        names: Vec<String>,
    },
    /// Take a damaged file as it is on disk: what was lost of it stays lost.
    Clear {
        /// Its dataset.
        dataset: String,
        /// The file, as `pool status` shows it.
        file: String,
    },
    /// Set properties of a dataset.
    Set {
        /// Do not ask whether a copy that comes into service is to be exported.
        #[arg(short = 'f')]
        force: bool,
        /// Assignments, and at last the dataset.
        #[arg(required = true, num_args = 2.., value_name = "PROPERTY=VALUE... DATASET")]
        words: Vec<String>,
    },
    /// Let a property go back to what is inherited.
    Inherit {
        /// The property.
        property: String,
        /// The dataset.
        dataset: String,
    },
    /// Show properties.
    Get(GetArgs),
    /// List datasets and snapshots.
    List(ListArgs),
    /// Show which files are locked, by whom, and who waits.
    #[command(args_conflicts_with_subcommands = true)]
    Locks {
        /// Act to carry out instead.
        #[command(subcommand)]
        command: Option<LocksCommand>,
    },
    /// Numbers: of disks, caches and clients.
    #[command(flatten)]
    Stat(StatCommand),
    /// Show VM disks by load, each second, on the whole screen.
    Top(crate::commands::TopArgs),
    /// Show what happened: disks that failed, what was repaired, who came, what was changed.
    Events {
        /// Go on, and show what happens.
        #[arg(short = 'f')]
        follow: bool,
    },
    /// Show what is wrong now, and where that is sent.
    Alerts {
        /// Act to carry out instead.
        #[command(subcommand)]
        command: Option<AlertsCommand>,
    },
    /// List exports with all their options, or ask why somebody is let in or refused.
    #[command(args_conflicts_with_subcommands = true)]
    Share {
        /// Only those that let in more than named hosts, and why that is a risk. Fails if there
        /// are any.
        #[arg(long)]
        audit: bool,
        /// Question to ask instead.
        #[command(subcommand)]
        command: Option<ShareCommand>,
    },
    /// Tokens for the API over TCP: create, list, revoke, rotate.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Carry out an act over the network that waits for a second person, or list those that do.
    Confirm {
        /// Drop it.
        #[arg(long, requires = "number")]
        refuse: bool,
        /// Do not ask.
        #[arg(short = 'f', requires = "number")]
        force: bool,
        /// Its number; without one, all are listed.
        number: Option<u64>,
    },
    /// Print what to type on a hypervisor to use a dataset.
    Connect {
        /// Which hypervisor.
        #[arg(long = "for", value_name = "HYPERVISOR", value_parser = hypervisors())]
        hypervisor: Hypervisor,
        /// The server's name or address, as the hypervisors reach it; else its host name.
        #[arg(long, value_name = "NAME")]
        host: Option<String>,
        /// The dataset.
        dataset: String,
    },
}

/// Commands that show numbers, once or every few seconds.
#[derive(Debug, Subcommand)]
pub enum StatCommand {
    /// Show what disks do: operations, bytes, times.
    Iostat {
        /// Also vdevs and disks.
        #[arg(short = 'v')]
        verbose: bool,
        /// Also how long operations take, mean and 99th percentile.
        #[arg(short = 'l')]
        latency: bool,
        /// Instead, how many operations took how long.
        #[arg(short = 'w')]
        histograms: bool,
        #[command(flatten)]
        past: PastArgs,
        /// A pool, an interval in seconds, and how many reports.
        #[arg(value_name = "POOL] [INTERVAL] [COUNT", num_args = 0..=3)]
        words: Vec<String>,
    },
    /// Show what the read caches do, and who has the memory.
    Arcstat {
        /// Also who has how much of the memory.
        #[arg(short = 'v')]
        verbose: bool,
        /// An interval in seconds, and how many reports.
        #[arg(value_name = "INTERVAL] [COUNT", num_args = 0..=2)]
        words: Vec<String>,
    },
    /// Show how often NFS procedures are called, and how long they take.
    Nfsstat {
        /// An interval in seconds, and how many reports.
        #[arg(value_name = "INTERVAL] [COUNT", num_args = 0..=2)]
        words: Vec<String>,
    },
    /// Show what clients and VM disks ask for, the busiest first.
    Nfsiostat {
        /// Only clients.
        #[arg(short = 'c', long, conflicts_with = "disks")]
        clients: bool,
        /// Only VM disks.
        #[arg(short = 'd', long)]
        disks: bool,
        /// Also kB a call, times of reads and writes apart, other calls, errors: three lines each.
        #[arg(short = 'l', long)]
        long: bool,
        /// So many lines of each.
        #[arg(short = 'n', long, value_name = "LINES", default_value_t = 20)]
        top: usize,
        /// An interval in seconds, and how many reports.
        #[arg(value_name = "INTERVAL] [COUNT", num_args = 0..=2)]
        words: Vec<String>,
    },
}

/// Acts on locks.
#[derive(Debug, Subcommand)]
pub enum LocksCommand {
    /// End all locks of a client that is dead and does not come back. If it lives, it goes on to
    /// believe that it has them.
    Clear {
        /// Do not ask.
        #[arg(short = 'f')]
        force: bool,
        /// The client's address.
        address: IpAddr,
        /// The name that it gives itself; without one, all names there.
        name: Option<String>,
    },
}

/// Questions about exports.
#[derive(Debug, Subcommand)]
pub enum ShareCommand {
    /// Name the rule that lets a client in or refuses it.
    Why {
        /// The client's address or name.
        host: String,
        /// The path that it mounts, or a dataset.
        path: String,
    },
}

fn hypervisors() -> impl TypedValueParser<Value = Hypervisor> {
    let names = Hypervisor::ALL.map(Hypervisor::name);
    PossibleValuesParser::new(names).try_map(|text| {
        let found = Hypervisor::ALL.into_iter().find(|hypervisor| hypervisor.name() == text);
        found.ok_or("no hypervisor that is known")
    })
}

/// Where the daemon is asked if nobody says otherwise.
pub(crate) const API_SOCKET: &str = "/run/aquifer/aquifer.sock";

/// Vdevs and disks that the words of a command line ask for.
#[derive(Debug, Default)]
pub(crate) struct Vdevs {
    /// Vdevs for data.
    pub data: Vec<VdevRequest>,
    /// Vdevs for the log.
    pub logs: Vec<VdevRequest>,
    /// Spares.
    pub spares: Vec<String>,
    /// Cache disks.
    pub caches: Vec<String>,
}

/// The vdevs that the words of a command line ask for.
///
/// # Errors
/// Words that are not offered, and a mirror, a log, spares or a cache without disks.
pub(crate) fn vdevs(words: &[String]) -> Result<Vdevs, String> {
    let mut all = Vdevs::default();
    let (mut of, mut mirror, mut seen) = (Of::Data, false, Vec::new());
    for word in words {
        match word.as_str() {
            "log" | "spare" | "cache" => {
                let next = match word.as_str() {
                    "log" => Of::Log,
                    "spare" => Of::Spares,
                    _ => Of::Cache,
                };
                if seen.contains(&next) {
                    return Err(format!("the word {word} is given twice"));
                }
                if next == Of::Log && of != Of::Data {
                    return Err(COME_LAST.into());
                }
                seen.push(next);
                (of, mirror) = (next, false);
            }
            "mirror" => {
                let vdevs = all.vdevs(of).ok_or(COME_LAST)?;
                vdevs.push(VdevRequest { kind: VdevKind::Mirror, disks: Vec::new() });
                mirror = true;
            }
            "raidz" | "raidz1" | "raidz2" | "raidz3" | "draid" => {
                return Err(format!("{word} is not offered by this version; there is mirror"));
            }
            "special" | "dedup" => {
                return Err(format!("{word} devices are not offered by this version"));
            }
            disk => all.take(of, mirror, disk),
        }
    }
    for (of, word) in [(Of::Log, "log"), (Of::Spares, "spare"), (Of::Cache, "cache")] {
        if seen.contains(&of) && all.is_without(of) {
            return Err(format!("the word {word} needs a disk behind it: {word} A"));
        }
    }
    let lonely = |vdev: &VdevRequest| vdev.kind == VdevKind::Mirror && vdev.disks.len() < 2;
    match all.data.iter().chain(&all.logs).any(lonely) {
        true => Err("a mirror needs at least two disks: mirror A B".into()),
        false => Ok(all),
    }
}

const COME_LAST: &str = "spares and cache disks are disks, and come last: spare A B, cache C";

/// Use of the disks behind a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Data,
    Log,
    Spares,
    Cache,
}

impl Vdevs {
    fn vdevs(&mut self, of: Of) -> Option<&mut Vec<VdevRequest>> {
        match of {
            Of::Data => Some(&mut self.data),
            Of::Log => Some(&mut self.logs),
            Of::Spares | Of::Cache => None,
        }
    }

    /// A disk: of the last mirror, or by itself.
    fn take(&mut self, of: Of, mirror: bool, disk: &str) {
        match of {
            Of::Spares => self.spares.push(disk.into()),
            Of::Cache => self.caches.push(disk.into()),
            Of::Data | Of::Log => {
                let vdevs = if of == Of::Log { &mut self.logs } else { &mut self.data };
                match vdevs.last_mut().filter(|_| mirror) {
                    Some(vdev) => vdev.disks.push(disk.into()),
                    None => {
                        let disks = vec![disk.into()];
                        vdevs.push(VdevRequest { kind: VdevKind::Single, disks });
                    }
                }
            }
        }
    }

    fn is_without(&self, of: Of) -> bool {
        match of {
            Of::Data => self.data.is_empty(),
            Of::Log => self.logs.is_empty(),
            Of::Spares => self.spares.is_empty(),
            Of::Cache => self.caches.is_empty(),
        }
    }
}

/// `property=value`.
///
/// # Errors
/// What is missing.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is no PROPERTY=VALUE")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("{text:?} is no size: say 10G, 512M, 1.5T"))
}
