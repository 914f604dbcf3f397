//! The pool's vdevs on the disks that are there: reads copies and sides, and never writes.
//!
//! Invariants:
//! - Nothing here writes. (`aquifer_vdev::Vdev::read` repairs bad copies as it meets them. An
//!   inspection must leave the evidence as it is, so it does not use that.)
//! - Only places that lie in a vdev's logical space are read.

use std::sync::Arc;

use aquifer_blockio::{Disk, DiskError, Page};
use aquifer_ondisk::config::{Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::layout::{Geometry, leaf_segments};
use aquifer_ondisk::{BlockPointer, Guid, Place, Txg};
use futures_util::future::join_all;

use crate::finding::{At, Findings, Kind};
use crate::labels::Member;
use crate::report::{LeafRole, LeafSummary};
use crate::vote::Vote;

/// Longest single read of joined neighbours, in sectors (1 MiB).
const READ_SECTORS_MAX: u64 = 256;

/// One disk that holds everything committed.
#[derive(Debug)]
pub(crate) struct Side {
    pub disk: Arc<dyn Disk>,
}

/// One top-level vdev with at least one side.
#[derive(Debug)]
pub(crate) struct VdevView {
    pub class: VdevClass,
    pub geometry: Geometry,
    pub sides: Vec<Side>,
}

/// All vdevs; `None` for one that cannot be read at all.
#[derive(Debug)]
pub(crate) struct Media {
    pub vdevs: Vec<Option<VdevView>>,
    /// When vdevs for data without redundancy came to the pool.
    singles: Vec<Txg>,
}

/// How many copies and sides to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// Up to the first that verifies.
    Any,
    /// Every place, on one side that verifies.
    Copies,
    /// Every place on every side.
    All,
}

/// A copy with wrong content or a read error.
#[derive(Debug)]
pub(crate) struct BadCopy {
    pub place: Place,
    pub side: String,
    /// The disk's error; none if the content is wrong.
    pub error: Option<DiskError>,
}

/// The result of a read.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub good: Option<Vec<Page>>,
    pub bad: Vec<BadCopy>,
}

impl Fetched {
    fn take(&mut self, place: Place, side: &Side, read: Judged) {
        let error = match read {
            Ok(Some(pages)) => {
                self.good.get_or_insert(pages);
                return;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        self.bad.push(BadCopy { place, side: side.disk.name().to_string(), error });
    }
}

/// Pages if they verify.
type Judged = Result<Option<Vec<Page>>, DiskError>;

/// Decides which pages are the right ones.
pub(crate) type Verify<'a> = &'a (dyn Fn(&[Page]) -> bool + Sync);

impl Media {
    /// The vdevs of the elected config over the disks that take part.
    pub fn new(
        vote: &Vote,
        members: &[Member],
        findings: &mut Findings,
    ) -> (Media, Vec<LeafSummary>) {
        let mut leaves = Vec::new();
        let mut vdevs = Vec::new();
        for (index, config) in (0u16..).zip(&vote.config.vdevs) {
            let sides = sides(index, config, vote, members, findings, &mut leaves);
            vdevs.push(view(index, config, sides, findings));
        }
        for member in members {
            let guid = member.label.leaf_guid;
            if !vote.config.disks().any(|disk| disk.guid == guid) {
                let name = member.disk.name();
                findings.add(Kind::NotAMember, At::disk(name), || {
                    format!("{name}: leaf {:016x} is no part of the pool any more", guid.0)
                });
            }
        }
        // A log vdev holds no records.
        let single = |config: &&VdevConfig| {
            config.class == VdevClass::Data && config.redundancy == Redundancy::Single
        };
        let singles = vote.config.vdevs.iter().filter(single).map(|config| config.birth).collect();
        (Media { vdevs, singles }, leaves)
    }

    /// Copies of records and inner nodes of `txg`: 2 if any vdev for data was without redundancy.
    pub fn copies(&self, txg: Txg) -> u8 {
        if self.singles.iter().any(|birth| *birth <= txg) { 2 } else { 1 }
    }

    /// Whether a place is on a vdev that can be read, or on none of the pool's.
    pub fn is_there(&self, place: Place) -> bool {
        self.vdevs.get(usize::from(place.vdev())).is_none_or(Option::is_some)
    }

    /// The vdev of a place.
    pub fn vdev(&self, place: Place) -> Option<&VdevView> {
        self.vdevs.get(usize::from(place.vdev()))?.as_ref()
    }

    /// Whether a run lies in the logical space of a vdev that is there.
    pub fn holds(&self, place: Place, sectors: u64) -> bool {
        let end = place.sector().saturating_add(sectors);
        self.vdev(place).is_some_and(|vdev| sectors > 0 && end <= vdev.geometry.sectors())
    }

    /// Reads `count` sectors at each of `places`, as many of them as `breadth` says.
    pub async fn fetch(
        &self,
        places: impl Iterator<Item = Place>,
        count: u64,
        verify: Verify<'_>,
        breadth: Breadth,
    ) -> Fetched {
        let mut fetched = Fetched::default();
        for place in places {
            let Some(vdev) = self.vdev(place).filter(|_| self.holds(place, count)) else {
                continue;
            };
            if breadth == Breadth::All {
                let reads = vdev.sides.iter().map(|side| judged(side, place, count, verify));
                for (side, read) in vdev.sides.iter().zip(join_all(reads).await) {
                    fetched.take(place, side, read);
                }
                continue;
            }
            for side in vdev.in_turn(place) {
                let read = judged(side, place, count, verify).await;
                let good = matches!(read, Ok(Some(_)));
                fetched.take(place, side, read);
                if good {
                    break;
                }
            }
            if breadth == Breadth::Any && fetched.good.is_some() {
                break;
            }
        }
        fetched
    }

    /// Reads the first copies of nodes, unverified, neighbours in one read. [`Media::fetch`] reads
    /// missing or wrong ones again.
    pub async fn read_ahead(&self, pointers: &[&BlockPointer]) -> Vec<Option<Page>> {
        let mut order: Vec<(Place, usize)> = pointers
            .iter()
            .enumerate()
            .map(|(at, pointer)| (pointer.places[0], at))
            .filter(|(place, _)| self.holds(*place, 1))
            .collect();
        order.sort_unstable();
        let follows = |a: &(Place, usize), b: &(Place, usize)| {
            b.0.0 - a.0.0 <= 1 && !b.0.sector().is_multiple_of(READ_SECTORS_MAX)
        };
        let groups: Vec<&[(Place, usize)]> = order.chunk_by(follows).collect();
        let reads = groups.iter().map(|group| self.read_group(group));
        let mut pages = vec![None; pointers.len()];
        for (group, read) in groups.iter().zip(join_all(reads).await) {
            let start = group.first().map_or(0, |(place, _)| place.0);
            for (place, at) in *group {
                let offset = usize::try_from(place.0 - start).unwrap_or(usize::MAX);
                if let Some(page) = pages.get_mut(*at) {
                    *page = read.get(offset).cloned();
                }
            }
        }
        pages
    }

    async fn read_group(&self, group: &[(Place, usize)]) -> Vec<Page> {
        let (Some((first, _)), Some((last, _))) = (group.first(), group.last()) else {
            return Vec::new();
        };
        let side = self.vdev(*first).and_then(|vdev| vdev.in_turn(*first).next());
        let Some(side) = side else { return Vec::new() };
        let count = usize::try_from(last.0 - first.0 + 1).unwrap_or(0);
        side.disk.read(first.sector(), count).await.unwrap_or_default()
    }
}

impl VdevView {
    /// The sides, beginning with another one every MiB.
    pub fn in_turn(&self, place: Place) -> impl Iterator<Item = &Side> {
        let turn = usize::try_from(place.sector() / READ_SECTORS_MAX).unwrap_or(0);
        let count = self.sides.len();
        (0..count).filter_map(move |step| self.sides.get((turn + step) % count))
    }
}

async fn judged(side: &Side, place: Place, count: u64, verify: Verify<'_>) -> Judged {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let pages = side.disk.read(place.sector(), count).await?;
    Ok(verify(&pages).then_some(pages))
}

fn sides(
    index: u16,
    config: &VdevConfig,
    vote: &Vote,
    members: &[Member],
    findings: &mut Findings,
    leaves: &mut Vec<LeafSummary>,
) -> Vec<Side> {
    let mut sides = Vec::new();
    for leaf in &config.leaves {
        let member = members.iter().find(|member| member.label.leaf_guid == leaf.guid);
        let name = member.map_or(leaf.path.as_str(), |member| member.disk.name());
        let at = || At::disk(name);
        let Guid(guid) = leaf.guid;
        let role = if vote.is_outdated(leaf.guid) {
            findings.add(Kind::LeafOutdated, at(), || {
                format!("{name}: leaf {guid:016x} of vdev {index} is outdated and takes no part")
            });
            LeafRole::Outdated
        } else if let Some(member) = member {
            if leaf_segments(member.disk.sectors()) > config.segments {
                sides.push(Side { disk: member.disk.clone() });
                LeafRole::Online
            } else {
                findings.add(Kind::LeafTooSmall, at(), || {
                    format!("{name}: is smaller than vdev {index}, and takes no part")
                });
                LeafRole::Missing
            }
        } else {
            findings.add(Kind::LeafMissing, at(), || {
                format!("{name}: leaf {guid:016x} of vdev {index} is missing")
            });
            LeafRole::Missing
        };
        leaves.push(LeafSummary {
            guid: leaf.guid,
            name: name.to_string(),
            vdev: index,
            role,
            sequence: member
                .and_then(|member| member.uberblocks.first())
                .map_or(0, |uberblock| uberblock.sequence),
            labels: member.map_or(0, |member| member.labels),
        });
    }
    sides
}

fn view(
    index: u16,
    config: &VdevConfig,
    sides: Vec<Side>,
    findings: &mut Findings,
) -> Option<VdevView> {
    for (at, leaf) in config.leaves.iter().enumerate() {
        if config.leaves.iter().take(at).any(|other| other.guid == leaf.guid) {
            findings.add(Kind::ConfigInvalid, At::nowhere(), || {
                format!("vdev {index} has leaf {:016x} twice", leaf.guid.0)
            });
        }
    }
    // Without a disk to compare with, a vdev's size is only a number: it is not used.
    if config.class == VdevClass::Hole {
        return None;
    }
    if sides.is_empty() {
        // The pool can do without a log vdev. Whether the log lies there shows when it is read.
        let kind =
            if config.class == VdevClass::Log { Kind::LogVdevMissing } else { Kind::VdevMissing };
        findings.add(kind, At::nowhere(), || format!("vdev {index}: no disk of it can be used"));
        return None;
    }
    Some(VdevView { class: config.class, geometry: Geometry::of(index, config), sides })
}
