//! Mending of what rots: the end of a seed.
//!
//! All disks are there, and all sides whole. A scrub mends what rotted while clients worked. Then
//! known pages of files rot, each on some sides of its mirror, never on all. A scrub mends them
//! over cuts and pauses, beside an administrator. It names each file with its bytes, and no other.
//! In half of the seeds more of these pages rot while it goes on, also where it has been: then
//! another scrub follows, and nothing bad is left.
//! Whatever it did is held against the disks by the inspection: it reads every copy by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_files::{RepairedFiles, Service};
use aquifer_ondisk::config::VdevClass;
use aquifer_pool::LeafState;
use aquifer_pool::import::ImportOptions;
use aquifer_sim::{Corruption, CutPlan, Rng, Sim, SimDisk, Stop};

use futures_util::future::join3;

use crate::administrator::Estate;
use crate::bed::{Shape, Ticking, copies_inspected, open};
use crate::lives::SCALE;

/// A page of a file: dataset, name, number.
type FilePage = (String, String, u64);

/// A page of a file that may rot on all sides but one.
struct Rots {
    page: FilePage,
    /// Old batches of the log and freed blocks hold the same.
    sectors: Vec<u64>,
    /// The side on which it never rots.
    good: usize,
}

/// Pages of files, and those that have rotted so far, with the sides on which each did.
struct Rot {
    pages: Vec<Rots>,
    rotten: BTreeMap<FilePage, BTreeSet<usize>>,
}

impl Rot {
    /// Some pages rot now.
    fn some(&mut self, data_disks: &[SimDisk], rng: &mut Rng) {
        for Rots { page, sectors, good } in &self.pages {
            if rng.below(4) > 0 {
                continue;
            }
            for (at, disk) in data_disks.iter().enumerate() {
                if at != *good && (data_disks.len() == 2 || rng.coin()) {
                    sectors.iter().for_each(|at| disk.corrupt(*at, Corruption::FlipBits(3)));
                    self.rotten.entry(page.clone()).or_default().insert(at);
                }
            }
        }
    }
}

/// A machine at the end of its seed.
pub(crate) struct Mended<'a> {
    pub sim: &'a mut Sim,
    pub world: Arc<Ticking>,
    pub shape: Shape,
    pub disks: &'a [SimDisk],
    pub estate: Estate,
    pub rng: Rng,
}

/// Acts of an administrator, most of which write files.
const ACTS: u64 = 6;
/// Longest time between two moments at which pages rot while a scrub goes on: it takes some ms.
const ROT_REST_US_MAX: u64 = 10_000;
/// Longest time in which all sides become whole.
const WHOLE_SECONDS_MAX: u64 = 600;

impl<'a> Mended<'a> {
    /// Lets pages rot and scrubs mend them. Returns how many did.
    ///
    /// # Errors
    /// Something bad is left, or something else was named.
    pub(crate) fn run(mut self) -> Result<u64, String> {
        for disk in self.disks {
            disk.clear_faults();
            disk.come_back();
        }
        let estate = self.estate.clone();
        let acts = Rng::stream(self.rng.next_u64(), "administrator");
        let lacks_a_disk = AtomicBool::new(false);
        self.live(async |service| {
            // All labels of a disk may have rotted: it must be replaced.
            if states(service).contains(&LeafState::Missing) {
                lacks_a_disk.store(true, Ordering::Relaxed);
                return Ok(());
            }
            whole(service).await?;
            estate.administer(service, acts, ACTS).await?;
            // One that goes on has passed by what rotted later: another one begins after that.
            for _ in 0..2 {
                estate.scrubs().finish(service).await?;
            }
            export(service).await
        })?;
        if lacks_a_disk.into_inner() {
            return Ok(0);
        }
        self.is_clean()?;
        let mut later = Rng::stream(self.rng.next_u64(), "rots later");
        let rots_later = later.coin();
        let mut rot = self.pages_that_may_rot();
        rot.some(self.data_disks(), &mut self.rng);
        let rot = Mutex::new(rot);
        let named = Mutex::new(BTreeSet::new());
        let cuts = self.rng.below(3);
        for _ in 0..cuts {
            self.sim.plan_cut(CutPlan::AtEvent(1 + self.rng.below(4000)));
            let rots = rots_later.then(|| Rng::stream(later.next_u64(), "life"));
            self.scrub_beside_others(&named, &rot, rots)?;
            if self.rng.below(4) == 0 {
                self.sim.kill()
            } else {
                _ = self.sim.power_cut_any()
            }
            self.sim.plan_cut(CutPlan::Never);
        }
        let repaired_bytes = Mutex::new(0);
        self.live(async |service| {
            let record = estate.scrubs().finish(service).await?;
            *repaired_bytes.lock().unwrap() = record.repaired_bytes;
            note(&service.files.repaired_files(), &mut named.lock().unwrap())?;
            if rots_later && cuts > 0 {
                estate.scrubs().finish(service).await?;
                note(&service.files.repaired_files(), &mut named.lock().unwrap())?;
            }
            export(service).await
        })?;
        self.is_clean()?;
        self.live(async |service| {
            estate.check(service).await?;
            export(service).await
        })?;
        let rotten = rot.into_inner().unwrap().rotten;
        let (named, repaired_bytes) =
            (named.into_inner().unwrap(), repaired_bytes.into_inner().unwrap());
        // What was mended before a cut was named then.
        names_them(&rotten, &named, (cuts == 0).then_some(repaired_bytes))?;
        Ok(rotten.len() as u64)
    }

    fn data_disks(&self) -> &'a [SimDisk] {
        &self.disks[..self.shape.data_disks()]
    }

    /// A scrub that an administrator starts, pauses and stops, until a cut, or for some time. With
    /// `rots` more pages rot meanwhile.
    fn scrub_beside_others(
        &mut self,
        named: &Mutex<BTreeSet<FilePage>>,
        rot: &Mutex<Rot>,
        rots: Option<Rng>,
    ) -> Result<(), String> {
        let (estate, acts) = (self.estate.clone(), 1 + self.rng.below(6));
        let rng = Rng::stream(self.rng.next_u64(), "scrubs");
        let ms = self.rng.below(300);
        let data_disks = self.data_disks();
        self.live(async |service| {
            let scrubs = estate.scrubs().administer(service, rng, acts);
            let world = service.pool.world();
            let looks = async {
                for _ in 0..ms / 10 {
                    world.sleep(Duration::from_millis(10)).await;
                    note(&service.files.repaired_files(), &mut named.lock().unwrap())?;
                }
                Ok(())
            };
            let rotting = async {
                let Some(mut rng) = rots else { return };
                for _ in 0..rng.below(8) {
                    world.sleep(Duration::from_micros(rng.below(ROT_REST_US_MAX))).await;
                    rot.lock().unwrap().some(data_disks, &mut rng);
                }
            };
            let (done, looked, ()) = join3(scrubs, looks, rotting).await;
            done.and(looked)
        })
    }

    /// The pages of files, with their places: the disks rest.
    fn pages_that_may_rot(&mut self) -> Rot {
        let mut places: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        self.data_disks()[0].durable_image().for_each(|sector, page| {
            places.entry(page.to_vec()).or_default().push(sector);
        });
        let sides = self.data_disks().len();
        let mut pages = Vec::new();
        for (dataset, file, content) in self.estate.files() {
            for (number, page) in (0..).zip(content.chunks(4096)) {
                let Some(sectors) = places.get(page) else { continue };
                let good = self.rng.index(sides);
                let page = (dataset.clone(), file.clone(), number);
                pages.push(Rots { page, sectors: sectors.clone(), good });
            }
        }
        Rot { pages, rotten: BTreeMap::new() }
    }

    /// No copy of anything is bad.
    fn is_clean(&mut self) -> Result<(), String> {
        let inspected = self.sim.run_until(copies_inspected(self.disks));
        inspected.map_err(|stop| stop.to_string())?
    }

    fn live(
        &mut self,
        work: impl AsyncFnOnce(&Service) -> Result<(), String>,
    ) -> Result<(), String> {
        let options = ImportOptions { scale: SCALE, ..ImportOptions::default() };
        let (world, estate, disks) = (self.world.clone(), self.estate.clone(), self.disks);
        let ended = self.sim.run_until(async {
            let service = open(world, disks, &options).await?;
            // No file is read here: a read mends what it meets.
            estate.scrubs().check(&service)?;
            work(&service).await
        });
        match ended {
            Ok(done) => done,
            Err(Stop::Halted) => Ok(()),
            Err(stop) => Err(stop.to_string()),
        }
    }
}

/// Whether a scrub named only what had rotted, and, if it was the only one, all of that.
fn names_them(
    rotten: &BTreeMap<FilePage, BTreeSet<usize>>,
    named: &BTreeSet<FilePage>,
    repaired_bytes: Option<u64>,
) -> Result<(), String> {
    if let Some(other) = named.iter().find(|page| !rotten.contains_key(*page)) {
        return Err(format!("a scrub named {other:?}, which had not rotted"));
    }
    let Some(repaired_bytes) = repaired_bytes else { return Ok(()) };
    let wanted_bytes = rotten.values().map(|sides| sides.len() as u64 * 4096).sum::<u64>();
    if named.len() != rotten.len() || repaired_bytes != wanted_bytes {
        let missed = rotten.keys().find(|page| !named.contains(*page));
        return Err(format!(
            "a scrub named {} pages of {}, not {missed:?}, and mended {repaired_bytes} bytes of \
             {wanted_bytes}",
            named.len(),
            rotten.len()
        ));
    }
    Ok(())
}

async fn export(service: &Service) -> Result<(), String> {
    service.pool.export().await.map_err(|error| error.to_string())
}

/// Waits until every side of the data vdevs holds everything.
async fn whole(service: &Service) -> Result<(), String> {
    for _ in 0..WHOLE_SECONDS_MAX {
        if states(service).iter().all(|state| *state == LeafState::Online) {
            return Ok(());
        }
        service.pool.world().sleep(Duration::from_secs(1)).await;
    }
    Err(format!("not whole: {:?}", states(service)))
}

/// Of the leaves of data vdevs.
fn states(service: &Service) -> Vec<LeafState> {
    let vdevs = service.pool.status().vdevs;
    let data = vdevs.into_iter().filter(|vdev| vdev.class == VdevClass::Data);
    data.flat_map(|vdev| vdev.leaves).map(|leaf| leaf.state).collect()
}

/// Notes the pages that a scrub has named.
fn note(repaired: &RepairedFiles, named: &mut BTreeSet<FilePage>) -> Result<(), String> {
    for file in &repaired.files {
        if file.more {
            return Err(format!("not all ranges are named: {file:?}"));
        }
        let name = file.file.trim_start_matches('/');
        for page in file.ranges.iter().flat_map(|(from, to)| from / 4096..to / 4096) {
            named.insert((file.dataset.clone(), name.into(), page));
        }
    }
    Ok(())
}
