//! The command line of `aquifer serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use aquifer_meter::size;

/// Arguments of the command line beside the configuration.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
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
    /// Memory that all pools and NFS may take together, such as 4G. [default: half of the
    /// machine's]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u64>,
    /// Longest wait at the start for disks that are missing; those that uberblocks name outdated
    /// are not waited for. [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub wait_for_disks: Option<u32>,
    /// Filter of the log, as in RUST_LOG, which goes before the configuration. [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
}

pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match size::parse(text) {
        None => Err(format!("{text:?} is no size: say 4G, 512M")),
        Some(bytes) if bytes < MEMORY_BYTES_MIN => Err("a pool needs 64M or more".into()),
        Some(bytes) => Ok(bytes),
    }
}

/// The smallest cap that the engine keeps to (pool, `limits`).
pub(crate) const MEMORY_BYTES_MIN: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_needs_some_memory() {
        assert_eq!(memory("64M"), Ok(MEMORY_BYTES_MIN));
        assert!(memory("63M").is_err() && memory("much").is_err());
    }
}
