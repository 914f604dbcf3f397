//! The second opinion: reads a pool from its on-disk format alone, and reports what is wrong with
//! it.
//!
//! It uses nothing of the engine. `aquifer_ondisk` and the rules in this crate decide what a pool
//! may hold. So a mistake of the engine cannot hide behind the same mistake here.
//!
//! # What holds
//! - Nothing is ever written: the evidence stays as it is.
//! - Every byte from a disk is untrusted. Damage is a finding. No content makes an inspection
//!   panic, run for ever, or take more memory than a few bits for each sector plus the content of
//!   the readable trees.
//! - One cause should give one finding. If a tree cannot be read to its end, consequences of the
//!   missing rest (leaked sectors, counts of links) are not reported as errors.
//!
//! # Order
//! Labels and uberblocks (`labels`, `vote`). Then for each root its records (`records`), the
//! bitmaps that follow from them (`used`), every tree (`tree` and the modules that build on it),
//! and for the newest root the log (`log`). At last the comparison of used and allocated sectors
//! (`space`).

mod directory;
mod extents;
mod finding;
mod history;
mod labels;
mod links;
mod log;
mod media;
mod namespace;
mod objects;
mod records;
mod report;
mod scan;
mod sectors;
mod snapshots;
mod space;
mod tree;
mod used;
mod vote;

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::Disk;
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::FEATURE_LOGICAL_SPACE;
use aquifer_ondisk::txg_record::RecordPointer;
use aquifer_ondisk::uberblock::ROOTS;
use futures_util::future::{BoxFuture, join_all};

pub use finding::{At, Finding, Kind, Severity};
pub use report::{
    DatasetSummary, LeafRole, LeafSummary, LogSummary, Report, RootSummary, SectorSummary, Summary,
};

use crate::extents::Verified;
use crate::finding::Findings;
use crate::labels::Member;
use crate::media::Media;
use crate::scan::Scan;
use crate::vote::Vote;

/// The extent of an inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The pool; `None`: the one with most of the disks.
    pub pool: Option<Guid>,
    /// Older roots to inspect beside the newest, 0 to 2.
    pub rewind: u8,
    /// Read every copy on every mirror side, of data too where there is more than one side.
    pub deep: bool,
    /// Read all data and check every page.
    pub data: bool,
    /// Findings of one kind that are kept; the others are counted.
    pub findings_per_kind_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { pool: None, rewind: 0, deep: false, data: false, findings_per_kind_max: 100 }
    }
}

/// Inspects the pool on `disks`. Reads only; unreadable parts are findings.
pub fn inspect(disks: Vec<Arc<dyn Disk>>, options: &Options) -> BoxFuture<'_, Report> {
    Box::pin(async move {
        let mut findings = Findings::new(options.findings_per_kind_max);
        let mut summary = Summary::default();
        let members = find_members(disks, options, &mut findings).await;
        if let Some(first) = members.first() {
            summary.guid = first.label.config.pool_guid;
            summary.name = first.label.config.name.clone();
            if let Some(vote) = vote::elect(&members, &mut findings) {
                let (media, leaves) = Media::new(&vote, &members, &mut findings);
                summary.leaves = leaves;
                look_at_roots(&media, &vote, options, &mut findings, &mut summary).await;
            }
        }
        Report { findings: findings.list, counts: findings.counts, summary }
    })
}

/// The disks of the inspected pool, each leaf once.
async fn find_members(
    disks: Vec<Arc<dyn Disk>>,
    options: &Options,
    findings: &mut Findings,
) -> Vec<Member> {
    let max = options.findings_per_kind_max;
    let mut pools: BTreeMap<Guid, Vec<Member>> = BTreeMap::new();
    for read in join_all(disks.into_iter().map(|disk| labels::read(disk, max))).await {
        match read {
            Ok(member) => pools.entry(member.label.config.pool_guid).or_default().push(member),
            Err(found) => findings.merge(found),
        }
    }
    let largest = pools.iter().max_by_key(|(_, members)| members.len());
    let wanted = options.pool.or(largest.map(|(guid, _)| *guid)).unwrap_or_default();
    let mut members: Vec<Member> = Vec::new();
    for (guid, found) in pools {
        for member in found {
            let name = member.disk.name();
            let twin = members.iter().find(|other| other.label.leaf_guid == member.label.leaf_guid);
            if guid != wanted {
                let pool = &member.label.config.name;
                findings.add(Kind::ForeignDisk, At::disk(name), || {
                    format!("{name}: belongs to pool {pool:?} (guid {:016x})", guid.0)
                });
            } else if let Some(twin) = twin {
                let other = twin.disk.name();
                findings.add(Kind::LeafTwice, At::disk(name), || {
                    format!("{name} and {other} say that they are the same leaf")
                });
            } else {
                members.push(member);
            }
        }
    }
    for member in &mut members {
        findings.merge(std::mem::replace(&mut member.findings, Findings::new(0)));
    }
    if members.is_empty() {
        findings.add(Kind::NoPool, At::nowhere(), || "no disk holds a label of the pool".into());
    }
    members
}

async fn look_at_roots(
    media: &Media,
    vote: &Vote,
    options: &Options,
    findings: &mut Findings,
    summary: &mut Summary,
) {
    let uberblock = &vote.uberblock;
    summary.name = vote.config.name.clone();
    summary.sequence = uberblock.sequence;
    summary.txg = uberblock.txg;
    summary.session = uberblock.session;
    summary.clean = uberblock.clean;
    summary.host.clone_from(&uberblock.host);
    summary.wall_ns = uberblock.wall_ns;
    summary.floor = uberblock.floor;
    let mut verified = Verified::new(options.rewind > 0);
    let last = usize::from(options.rewind).min(ROOTS - 1);
    for (back, pointer) in uberblock.roots.iter().enumerate().take(last + 1) {
        let Some(pointer) = pointer else { continue };
        let older: Vec<RecordPointer> =
            uberblock.roots.iter().skip(back + 1).flatten().copied().collect();
        findings.root = Some(pointer.txg);
        let pool = vote.config.pool_guid;
        let records = records::read(media, pool, *pointer, &older, options.deep, findings).await;
        let Some(records) = records else { continue };
        let mut scan = Scan::new(media, options, findings, pointer.txg, &mut verified);
        scan.counts_saved = vote.config.writes_with(FEATURE_LOGICAL_SPACE);
        let mut used = used::rebuild(&mut scan, &records).await;
        space::mark_own(&mut scan, &records.root);
        let datasets = namespace::walk(&mut scan, &records.root).await;
        space::compare(&mut scan, &records.root, &mut used);
        if back == 0 {
            summary.log = log::look(&mut scan, &records, vote, &used).await;
        }
        summary.roots.push(RootSummary {
            txg: pointer.txg,
            window_start: records.window_start,
            record_parts: records.window.len() as u64,
            whole: scan.whole,
            datasets,
            sectors: scan.sectors,
        });
    }
    findings.root = None;
}
