//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use aquifer_api::{VdevKind, VdevRequest};
use aquifer_meter::size;
use clap::{Parser, Subcommand};

mod pool;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use pool::PoolCommand;
pub(crate) use token::TokenCommand;

/// Turns disks into a datastore for virtual machines, served over NFS.
#[derive(Debug, Parser)]
#[command(name = "aquifer", version, disable_help_subcommand = true)]
pub(crate) struct Args {
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
    #[command(subcommand)]
    pub command: Command,
}

/// Which daemon is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct ApiArgs {
    /// The daemon's socket.
    #[arg(long, global = true, value_name = "PATH", default_value = API_SOCKET)]
    pub api_socket: PathBuf,
    /// A daemon on another machine instead: https://HOST:PORT.
    #[arg(long, global = true, value_name = "URL")]
    pub api: Option<String>,
    /// The certificate that it must show, or its authority's (PEM).
    #[arg(long, global = true, value_name = "FILE")]
    pub api_certificate: Option<PathBuf>,
    /// The file with its token.
    #[arg(long, global = true, value_name = "FILE")]
    pub api_token: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon in the foreground.
    Serve(ServeArgs),
    /// Pools: create, import, export, list, status, history, destroy, and their disks.
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Make a dataset.
    Create {
        /// A property of its own; may be given several times.
        #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = assignment)]
        properties: Vec<(String, String)>,
        /// Full name, such as tank/vms.
        dataset: String,
    },
    /// Destroy a dataset. Everything in it is lost.
    Destroy {
        /// Also all datasets below it.
        #[arg(short = 'r')]
        recursive: bool,
        /// Do not ask.
        #[arg(short = 'f')]
        force: bool,
        /// The dataset.
        dataset: String,
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
    Get {
        /// Also of all datasets below.
        #[arg(short = 'r')]
        recursive: bool,
        /// `all`, or properties with commas between them.
        properties: String,
        /// The datasets; without any, all.
        datasets: Vec<String>,
    },
    /// List datasets.
    List {
        /// Also those below.
        #[arg(short = 'r')]
        recursive: bool,
        /// The dataset; without one, all.
        dataset: Option<String>,
    },
    /// Show which files are locked, by whom, and who waits.
    #[command(args_conflicts_with_subcommands = true)]
    Locks {
        /// What to do instead.
        #[command(subcommand)]
        command: Option<LocksCommand>,
    },
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
        /// A pool, an interval in seconds, and how many reports.
        #[arg(value_name = "POOL] [INTERVAL] [COUNT", num_args = 0..=3)]
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
        /// So many lines of each.
        #[arg(short = 'n', long, value_name = "LINES", default_value_t = 20)]
        top: usize,
        /// An interval in seconds, and how many reports.
        #[arg(value_name = "INTERVAL] [COUNT", num_args = 0..=2)]
        words: Vec<String>,
    },
    /// Show what happened: disks that failed, what was repaired, who came, what was changed.
    Events {
        /// Go on, and show what happens.
        #[arg(short = 'f')]
        follow: bool,
    },
    /// List exports with all their options, or ask why somebody is let in or refused.
    #[command(args_conflicts_with_subcommands = true)]
    Share {
        /// Only those that let in more than named hosts, and why that is a risk. Fails if there
        /// are any.
        #[arg(long)]
        audit: bool,
        #[command(subcommand)]
        command: Option<ShareCommand>,
    },
    /// Tokens for the API over TCP: create, list, revoke, rotate.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print what to type on a hypervisor to use a dataset.
    Connect {
        /// Which hypervisor.
        #[arg(long = "for", value_name = "HYPERVISOR")]
        hypervisor: Hypervisor,
        /// This machine's name or address, as the hypervisors reach it; else its host name.
        #[arg(long, value_name = "NAME")]
        host: Option<String>,
        /// The dataset.
        dataset: String,
    },
    /// Read an exported pool from its disks alone and say what is wrong with it.
    Inspect(InspectArgs),
    /// Print a completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocksCommand {
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

#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Name the rule that lets a client in or refuses it.
    Why {
        /// The client's address or name.
        host: String,
        /// The path that it mounts, or a dataset.
        path: String,
    },
}

/// Who uses a datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Hypervisor {
    /// XCP-ng, XenServer
    XcpNg,
    /// VMware ESXi
    Esxi,
    /// Proxmox VE
    Proxmox,
    /// libvirt, with images on a mount
    Libvirt,
    /// QEMU's own driver, nfs://
    Qemu,
    /// Any Linux
    Linux,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The configuration; what is given here beside it goes before. [default:
    /// /etc/aquifer/aquifer.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say what would be served by, or what is wrong with it.
    #[arg(long)]
    pub check: bool,
    /// Where the list of imported pools is kept. [default: /var/lib/aquifer]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where NFS listens; may be given several times. [default: [::]:2049]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub nfs_addr: Vec<SocketAddr>,
    /// Where the portmapper listens; may be given several times. [default: [::]:111]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub portmap_addr: Vec<SocketAddr>,
    /// No portmapper: clients must be told the port.
    #[arg(long, conflicts_with = "portmap_addr")]
    pub no_portmap: bool,
    /// Memory of each pool's engine, such as 4G; NFS takes up to 188 MiB beside it. [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u64>,
    /// Longest wait at the start for disks that are missing; those that uberblocks name outdated
    /// are not waited for. [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub wait_for_disks: Option<u32>,
    /// What is logged, as in RUST_LOG, which goes before the configuration. [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// Where to look for the pool instead of all block devices.
    #[arg(short = 'd', value_name = "PLACE")]
    pub places: Vec<PathBuf>,
    /// Also look at this many older roots.
    #[arg(long, value_name = "TXGS", default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=2))]
    pub rewind: u8,
    /// Read every copy on every disk.
    #[arg(long)]
    pub deep: bool,
    /// Read all data.
    #[arg(long)]
    pub data: bool,
    /// A pool's name or guid, or disks by absolute path.
    #[arg(required = true, value_name = "POOL|DISK")]
    pub targets: Vec<String>,
}

/// Where the daemon is asked if nobody says otherwise.
pub(crate) const API_SOCKET: &str = "/run/aquifer/aquifer.sock";

/// The vdevs that the words of a command line ask for: those for data, those for the log.
///
/// # Errors
/// Words that are not offered, and a mirror or a log without disks.
pub(crate) fn vdevs(words: &[String]) -> Result<(Vec<VdevRequest>, Vec<VdevRequest>), String> {
    let (mut data, mut logs) = (Vec::new(), Vec::new());
    let (mut of_log, mut mirror) = (false, false);
    for word in words {
        let vdevs: &mut Vec<VdevRequest> = if of_log { &mut logs } else { &mut data };
        match word.as_str() {
            "log" if of_log => return Err("the word log is given twice".into()),
            "log" => (of_log, mirror) = (true, false),
            "mirror" => {
                mirror = true;
                vdevs.push(VdevRequest { kind: VdevKind::Mirror, disks: Vec::new() });
            }
            "raidz" | "raidz1" | "raidz2" | "raidz3" | "draid" => {
                return Err(format!("{word} is not offered by this version; there is mirror"));
            }
            "cache" | "spare" | "special" | "dedup" => {
                return Err(format!("{word} devices are not offered by this version"));
            }
            disk => match vdevs.last_mut().filter(|_| mirror) {
                Some(vdev) => vdev.disks.push(disk.into()),
                None => {
                    let disks = vec![disk.into()];
                    vdevs.push(VdevRequest { kind: VdevKind::Single, disks });
                }
            },
        }
    }
    if of_log && logs.is_empty() {
        return Err("the word log needs a disk behind it: log A, or log mirror A B".into());
    }
    let lonely = |vdev: &VdevRequest| vdev.kind == VdevKind::Mirror && vdev.disks.len() < 2;
    match data.iter().chain(&logs).any(lonely) {
        true => Err("a mirror needs at least two disks: mirror A B".into()),
        false => Ok((data, logs)),
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

pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        bytes if bytes < MEMORY_BYTES_MIN => Err("a pool needs 64M or more".into()),
        bytes => Ok(bytes),
    }
}

/// The smallest cap that the engine keeps to (pool, `limits`).
const MEMORY_BYTES_MIN: u64 = 64 << 20;
