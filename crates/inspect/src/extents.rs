//! A file's extents: their order, their sectors, and with the options `data` and `deep` their data.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::dead::DeadKind;
use aquifer_ondisk::extent::{COMPRESSED_PAGES_MAX, Extent, PAGE_LIMIT, Stored};
use aquifer_ondisk::tree_node::{Extents, NodeOwner};
use aquifer_ondisk::types::{Place, Run, SEGMENT_SECTORS, Txg};
use aquifer_ondisk::{BlockPointer, Space};
use futures_util::stream::{self, StreamExt};

use crate::finding::{At, Kind};
use crate::media::{Breadth, Fetched, Media};
use crate::scan::{Scan, Use};
use crate::snapshots::OfLine;
use crate::tree::{Leaf, Walk, name};

/// Extents whose data is read at a time.
const EXTENTS_IN_FLIGHT: usize = 32;
/// Extents remembered as verified (some 40 MiB).
const VERIFIED_MAX: usize = 1 << 20;

/// One pass over the extents of a file, in order.
struct Pass {
    owner: NodeOwner,
    /// The page after the last extent.
    end: u64,
    /// Number of pages in the file's size.
    size_pages: u64,
    leaf: u64,
    /// Compressed extents of which parts may still come, in the order in which they were met.
    tenancies: Vec<Tenancy>,
    refer: Space,
    inherited: Space,
    cloned: Space,
}

/// A compressed extent seen so far.
struct Tenancy {
    first: Extent,
    /// The page at which the whole of it would begin.
    origin: u64,
    leaf: u64,
    /// After it came parts of one that began before it: no part of it may follow.
    closed: bool,
}

/// Data that was verified in a newer root. Most data of an older root is the same, and one bad page
/// should give one finding.
#[derive(Debug)]
pub(crate) struct Verified {
    met: HashSet<(Place, u64)>,
    /// The limit of entries; beyond it, data is verified again.
    entries_max: usize,
}

impl Verified {
    /// Keeps nothing unless older roots are inspected too.
    pub fn new(older_roots: bool) -> Self {
        let entries_max = if older_roots { VERIFIED_MAX } else { 0 };
        Verified { met: HashSet::new(), entries_max }
    }

    /// Whether an extent, with these checksums, is new here.
    fn enter(&mut self, extent: &Extent) -> bool {
        let mut hash = DefaultHasher::new();
        match &extent.stored {
            Stored::Plain(sums) => sums.hash(&mut hash),
            Stored::Compressed { stored_sectors, checksum, .. } => {
                (stored_sectors, checksum).hash(&mut hash);
            }
        }
        let key = (extent.place, hash.finish());
        if self.met.len() < self.entries_max {
            self.met.insert(key)
        } else {
            !self.met.contains(&key)
        }
    }
}

/// The result of a file's tree.
pub(crate) struct FileExtents {
    /// Bytes of disk that it refers to.
    pub refer: Space,
    /// Of them, those that the origin of a clone, of the dataset or of the file, owns.
    pub inherited: Space,
    /// Of them, those that the file owns that this one was cloned from.
    pub cloned: Space,
    /// It could be read to its end.
    pub whole: bool,
}

/// Walks a file's extents. `size_pages`: pages beyond are reported.
pub(crate) async fn walk(
    scan: &mut Scan<'_>,
    mut tree: Walk<Extents>,
    owner: NodeOwner,
    size_pages: u64,
) -> FileExtents {
    let mut pass = Pass {
        owner,
        end: 0,
        size_pages,
        leaf: 0,
        tenancies: Vec::new(),
        refer: Space::default(),
        inherited: Space::default(),
        cloned: Space::default(),
    };
    while let Some(leaf) = tree.next(scan).await {
        let owned = pass.leaf(scan, leaf);
        if !owned.is_empty() {
            verify(scan, owner, owned).await;
        }
    }
    FileExtents {
        refer: pass.refer,
        inherited: pass.inherited,
        cloned: pass.cloned,
        whole: tree.whole,
    }
}

impl Pass {
    /// Checks a leaf's extents. Returns those whose data must be checked: sectors that had no owner
    /// before.
    fn leaf(&mut self, scan: &mut Scan<'_>, leaf: Leaf<Extents>) -> Vec<Extent> {
        self.leaf += 1;
        let wanted = scan.options.data || scan.options.deep;
        let mut owned = Vec::new();
        for extent in leaf.entries {
            self.check(scan, &extent, &leaf.pointer, leaf.upper);
            let first = match extent.stored {
                Stored::Plain(_) => true,
                Stored::Compressed { .. } => self.join(scan, &extent),
            };
            self.end = self.end.max(extent.end());
            if !first {
                continue;
            }
            let sectors = extent.stored_sectors();
            let saved_sectors = if scan.counts_saved { extent.saved_sectors() } else { 0 };
            let space = Space::of_sectors(sectors, saved_sectors.into());
            self.refer = self.refer.plus(space);
            if scan.is_of_another(extent.birth) {
                continue;
            }
            let is_cloned = scan.is_cloned(extent.birth);
            if is_cloned {
                self.cloned = self.cloned.plus(space);
            }
            let is_of_line = scan.is_of_line(extent.birth);
            let is_inherited = is_of_line || scan.is_inherited(extent.birth);
            if is_cloned || is_inherited {
                self.inherited = self.inherited.plus(space);
            }
            if is_cloned && scan.is_begun_here() {
                continue;
            }
            if is_of_line {
                if !scan.is_of_line(leaf.pointer.birth) {
                    let run = Run::new(extent.place, sectors);
                    scan.of_line.push(OfLine::Extent { run, birth: extent.birth, of: scan.of });
                }
                continue;
            }
            if is_inherited {
                let run = Run::new(extent.place, sectors);
                scan.inherit(run, (DeadKind::Extent, extent.birth));
                continue;
            }
            let who = || format!("data of {}, page {}", name(self.owner), extent.page);
            let fresh = scan.mark(extent.place, sectors, Use::Data, who);
            if fresh && wanted {
                owned.push(extent);
            }
        }
        owned
    }

    fn check(&self, scan: &mut Scan<'_>, extent: &Extent, node: &BlockPointer, upper: Option<u64>) {
        let (page, end) = (extent.page, extent.end());
        let (birth, written) = (extent.birth, extent.written);
        let who = || format!("{}, pages {page}..{end}", name(self.owner));
        let mut add = |kind, why: &str| {
            scan.findings.add(kind, self.at(extent), || format!("{}: {why}", who()));
        };
        if page < self.end {
            add(Kind::ExtentOverlap, "overlap the extent before");
        }
        if upper.is_some_and(|upper| end > upper) {
            add(Kind::ExtentOverlap, "reach into the range of the next leaf");
        }
        if end > PAGE_LIMIT {
            add(Kind::ExtentInvalid, "lie beyond the largest file");
        } else if end > self.size_pages {
            add(Kind::ExtentBeyondSize, "lie beyond the end of the file");
        }
        if birth > node.birth || written > birth || written == Txg(0) {
            let above = node.birth;
            add(
                Kind::BirthOrder,
                &format!("written in txg {written}, born in {birth}, under a node of {above}"),
            );
        }
        let last = extent.place.sector().saturating_add(extent.stored_sectors().max(1) - 1);
        if extent.place.sector() / SEGMENT_SECTORS != last / SEGMENT_SECTORS {
            add(Kind::ExtentAcrossSegments, "lie across two segments");
        }
        if extent.counted {
            add(Kind::Unsupported, "counted in a refcount tree, which is not known yet");
        }
    }

    /// Takes a part of a compressed extent. Returns whether it is the first part met.
    fn join(&mut self, scan: &mut Scan<'_>, extent: &Extent) -> bool {
        let Stored::Compressed { offset_pages, .. } = extent.stored else {
            return true;
        };
        let Some(origin) = extent.page.checked_sub(offset_pages.into()) else {
            scan.findings.add(Kind::ExtentInvalid, self.at(extent), || {
                let page = extent.page;
                format!("{}, page {page}: begins before the file", name(self.owner))
            });
            return true;
        };
        self.tenancies.retain(|tenancy| tenancy.origin + COMPRESSED_PAGES_MAX > extent.page);
        let same =
            |tenancy: &Tenancy| tenancy.origin == origin && tenancy.first.same_tenancy(extent);
        let Some(found) = self.tenancies.iter().position(same) else {
            // While extents are in order, no more are open at a time than one has pages.
            if self.tenancies.len() as u64 > COMPRESSED_PAGES_MAX {
                self.tenancies.remove(0);
            }
            self.tenancies.push(Tenancy {
                first: extent.clone(),
                origin,
                leaf: self.leaf,
                closed: false,
            });
            return true;
        };
        // Those that began after it are over, because it continues here.
        self.tenancies.iter_mut().skip(found + 1).for_each(|inner| inner.closed = true);
        let Some(tenancy) = self.tenancies.get(found) else {
            return false;
        };
        let at = || self.at(extent);
        let who = || format!("{}, page {}", name(self.owner), extent.page);
        if tenancy.leaf != self.leaf {
            scan.findings.add(Kind::TenancySplit, at(), || {
                format!("{}: parts of one compressed extent lie in two leaves", who())
            });
        }
        if tenancy.closed {
            scan.findings.add(Kind::ExtentInvalid, at(), || {
                format!("{}: parts of two compressed extents cross", who())
            });
        }
        if !same_stored(&tenancy.first, extent) {
            scan.findings.add(Kind::ExtentInvalid, at(), || {
                format!("{}: parts of one compressed extent contradict each other", who())
            });
        }
        false
    }

    fn at(&self, extent: &Extent) -> At {
        at(self.owner, extent)
    }
}

fn at(owner: NodeOwner, extent: &Extent) -> At {
    At {
        run: At::place(extent.place, extent.stored_sectors()).run,
        ..At::object(owner.dataset, owner.object)
    }
}

/// Whether two parts agree on the whole.
fn same_stored(one: &Extent, other: &Extent) -> bool {
    let without_offset = |extent: &Extent| {
        let mut stored = extent.stored.clone();
        if let Stored::Compressed { offset_pages, .. } = &mut stored {
            *offset_pages = 0;
        }
        (stored, extent.counted)
    };
    without_offset(one) == without_offset(other)
}

/// Whether sectors match an extent's checksums.
pub(crate) fn matches(extent: &Extent, pages: &[Page]) -> bool {
    match &extent.stored {
        Stored::Plain(sums) => {
            pages.len() == sums.len()
                && pages.iter().zip(sums).all(|(page, sum)| checksum64(page.as_slice()) == *sum)
        }
        Stored::Compressed { checksum, .. } => checksum64(&bytes_of(pages)) == *checksum,
    }
}

/// Reads data on all sides. With `deep` alone only where there is more than one side to compare.
pub(crate) async fn verify(scan: &mut Scan<'_>, owner: NodeOwner, extents: Vec<Extent>) {
    let (media, all) = (scan.media, scan.options.data);
    let mut reads = Vec::new();
    for extent in extents {
        let mirrored = media.vdev(extent.place).is_some_and(|vdev| vdev.sides.len() > 1);
        if (all || mirrored) && scan.verified.enter(&extent) {
            reads.push(read(media, extent));
        }
    }
    let mut reads = stream::iter(reads).buffered(EXTENTS_IN_FLIGHT);
    while let Some(found) = reads.next().await {
        for (extent, fetched) in &found {
            say(scan, owner, extent, fetched);
        }
    }
}

/// Reads an extent. If no side has a plain one whole, reads it page by page, since each page may be
/// good on another side.
async fn read(media: &Media, extent: Extent) -> Vec<(Extent, Fetched)> {
    let fetched = read_whole(media, &extent).await;
    let plain = matches!(extent.stored, Stored::Plain(_));
    if fetched.good.is_some() || !plain {
        return vec![(extent, fetched)];
    }
    let mut pages = Vec::new();
    for page in extent.page..extent.end() {
        if let Some(page) = extent.slice(page, page + 1) {
            let fetched = read_whole(media, &page).await;
            pages.push((page, fetched));
        }
    }
    pages
}

async fn read_whole(media: &Media, extent: &Extent) -> Fetched {
    let check = |pages: &[Page]| matches(extent, pages);
    let place = std::iter::once(extent.place);
    media.fetch(place, extent.stored_sectors(), &check, Breadth::All).await
}

fn say(scan: &mut Scan<'_>, owner: NodeOwner, extent: &Extent, fetched: &Fetched) {
    scan.judge(fetched, Kind::DataBad, at(owner, extent), extent.stored_sectors(), || {
        format!("data of {}, page {}", name(owner), extent.page)
    });
}
