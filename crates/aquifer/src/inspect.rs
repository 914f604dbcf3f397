//! `aquifer inspect`: the second opinion, without a daemon.
//!
//! Invariant: this process holds the disks exclusively while it reads them, as far as it may, so
//! that nobody changes them meanwhile. It reads them through another handle, which cannot write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_admin::disks_of_pool;
use aquifer_blockio::{Disk, FileDisk, OpenError, OpenOptions};
use aquifer_cli::{Failure, Output};
use aquifer_inspect::{Options, Report, Severity, inspect as judge};
use serde_json::json;

/// Arguments of `aquifer inspect`: what is read, and how thoroughly.
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

/// Says what is wrong with a pool.
pub(crate) async fn inspect(output: Output, args: InspectArgs) -> Result<(), Failure> {
    let mut options =
        Options { rewind: args.rewind, deep: args.deep, data: args.data, ..Options::default() };
    let paths = match args.targets.as_slice() {
        [pool] if !pool.contains('/') => {
            let (guid, paths) = disks_of_pool(pool, args.places).await?;
            options.pool = Some(guid);
            paths
        }
        targets => targets.iter().map(PathBuf::from).collect(),
    };
    let mut held = Vec::new();
    let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
    for path in &paths {
        held.push(hold(path)?);
        let disk = FileDisk::open(path, OpenOptions::inspect()).map_err(Failure::failed)?;
        disks.push(Arc::new(disk));
    }
    let report = judge(disks, &options).await;
    drop(held);
    output.answer(&as_json(&report), |_| report.to_string())?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

/// Keeps other processes from using a disk. If this process may not open it for writing, others are
/// not kept away.
fn hold(path: &Path) -> Result<Option<FileDisk>, Failure> {
    match FileDisk::open(path, OpenOptions::exclusive()) {
        Ok(disk) => Ok(Some(disk)),
        Err(OpenError::ReadOnly { .. } | OpenError::NotPermitted { .. }) => Ok(None),
        Err(error @ OpenError::InUse { .. }) => Err(Failure::failed(format!(
            "{error}: what is in use changes while it is read; for a pool in service, `aquifer \
             pool export` comes first"
        ))),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn as_json(report: &Report) -> serde_json::Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "severity": finding.severity().to_string(),
                "kind": format!("{:?}", finding.kind),
                "message": finding.to_string(),
            })
        })
        .collect();
    let summary = &report.summary;
    json!({
        "pool": summary.name,
        "guid": aquifer_api::guid_text(summary.guid.0),
        "txg": summary.txg.0,
        "exported": summary.clean,
        "host": summary.host.as_ref().map(|host| &host.name),
        "host_id": summary.host.as_ref().map(|host| format!("{:016x}", host.id)),
        "wall_ns": summary.wall_ns,
        "clean": report.is_clean(),
        "errors": report.count_of(Severity::Error),
        "warnings": report.count_of(Severity::Warning),
        "findings": findings,
    })
}
