//! An administrator. Datasets come and go beside the one that clients share, with files and a
//! quota, and the shared one is sometimes `sync=always`. After a cut, finished acts are there; an
//! act that was under way is done or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aquifer_dataset::{DatasetError, Property};
use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;

use crate::lives::DATASET;
use crate::scrubs::Scrubs;

/// The administrator's knowledge of the datasets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Estate {
    known: Arc<Mutex<Known>>,
    scrubs: Scrubs,
}

#[derive(Debug, Default)]
struct Known {
    /// Datasets beside the shared one.
    others: BTreeMap<u64, Holding>,
    /// The shared one's `sync`.
    sync: Option<String>,
}

/// The knowledge of a dataset. It was never made if there is no entry.
#[derive(Debug)]
enum Holding {
    /// It was destroyed.
    Gone,
    /// It was made.
    There(Dataset),
    /// An act was under way.
    Unknown,
}

#[derive(Debug, Default)]
struct Dataset {
    /// The quota that was set; `None`: unknown.
    quota: Option<String>,
    /// Content that is durable, by name.
    files: BTreeMap<String, Vec<u8>>,
}

/// Datasets beside the shared one.
const OTHERS: u64 = 3;
/// A property of a user: the quota, once more.
const NOTED: &str = "com.example:quota";

fn name_of(at: u64) -> String {
    format!("tank/other{at}")
}

impl Estate {
    /// The pool went back to an older state: nothing is known.
    pub(crate) fn forget(&self) {
        let known = &mut *self.known.lock().unwrap();
        known.sync = None;
        known.others = (0..OTHERS).map(|at| (at, Holding::Unknown)).collect();
        self.scrubs.forget();
    }

    /// Scrubs of the pool.
    pub(crate) fn scrubs(&self) -> &Scrubs {
        &self.scrubs
    }

    /// The files of which everything is known: dataset, name, content.
    pub(crate) fn files(&self) -> Vec<(String, String, Vec<u8>)> {
        let known = self.known.lock().unwrap();
        let there = known.others.iter().filter_map(|(at, holding)| match holding {
            Holding::There(dataset) => Some((name_of(*at), &dataset.files)),
            Holding::Gone | Holding::Unknown => None,
        });
        let named = there.flat_map(|(dataset, files)| {
            files
                .iter()
                .map(move |(file, content)| (dataset.clone(), file.clone(), content.clone()))
        });
        named.collect()
    }

    /// Checks the datasets and the newest scrub after a restart.
    ///
    /// # Errors
    /// They contradict the knowledge.
    pub(crate) async fn check(&self, service: &Service) -> Result<(), String> {
        self.scrubs.check(service)?;
        let sync = value(service, DATASET, Property::Sync).ok_or("no dataset")?;
        if let Some(set) = self.known.lock().unwrap().sync.as_ref().filter(|set| **set != sync) {
            return Err(format!("sync was set to {set}, and is {sync}"));
        }
        for at in 0..OTHERS {
            let name = name_of(at);
            let there = service.datasets.by_name(&name).is_some();
            let (is, quota, files) = match self.known.lock().unwrap().others.get(&at) {
                None | Some(Holding::Gone) => (Some(false), None, BTreeMap::new()),
                Some(Holding::Unknown) => (None, None, BTreeMap::new()),
                Some(Holding::There(of)) => (Some(true), of.quota.clone(), of.files.clone()),
            };
            if is.is_some_and(|is| is != there) {
                return Err(format!("{name}: there is {there}, and was {is:?}"));
            }
            if !there {
                self.note(at, Holding::Gone);
                continue;
            }
            let has = value(service, &name, Property::Quota);
            if quota.is_some() && quota != has {
                return Err(format!("{name}: quota is {has:?}, and was set to {quota:?}"));
            }
            // It is noted in the same act.
            let noted = noted(service, &name);
            if noted != has {
                return Err(format!("{name}: quota is {has:?}, and noted is {noted:?}"));
            }
            for (file, content) in &files {
                holds(service, &name, file, content).await?;
            }
            self.note(at, Holding::There(Dataset { quota: has, files }));
        }
        Ok(())
    }

    fn note(&self, at: u64, what: Holding) {
        self.known.lock().unwrap().others.insert(at, what);
    }

    fn with(&self, at: u64, change: impl FnOnce(&mut Dataset)) {
        if let Some(Holding::There(dataset)) = self.known.lock().unwrap().others.get_mut(&at) {
            change(dataset);
        }
    }

    fn take(&self, at: u64) -> Holding {
        let taken = self.known.lock().unwrap().others.insert(at, Holding::Unknown);
        taken.unwrap_or(Holding::Gone)
    }

    /// Acts that often.
    ///
    /// # Errors
    /// An act failed that should have succeeded.
    pub(crate) async fn administer(
        &self,
        service: &Service,
        mut rng: Rng,
        acts: u64,
    ) -> Result<(), String> {
        for _ in 0..acts {
            let at = rng.below(OTHERS);
            let name = name_of(at);
            let failed = |error| format!("administrator: {name}: {error}");
            let datasets = &service.datasets;
            match (rng.below(6), datasets.by_name(&name).is_some()) {
                (0, _) => {
                    let sync = if rng.coin() { "always" } else { "standard" };
                    self.known.lock().unwrap().sync = None;
                    datasets.set(DATASET, "sync", Some(sync)).await.map_err(failed)?;
                    self.known.lock().unwrap().sync = Some(sync.into());
                }
                (1, true) => {
                    self.take(at);
                    datasets.destroy(&name, true).await.map_err(failed)?;
                    self.note(at, Holding::Gone);
                }
                (2, true) => {
                    self.with(at, |dataset| dataset.quota = None);
                    let quota = rng.pick(&["64K", "1M", "none"]).copied();
                    let both = [("quota", quota), (NOTED, quota)];
                    let both = both.map(|(name, value)| (name.into(), value.map(String::from)));
                    match datasets.set_all(&name, &both).await {
                        // More is used than that.
                        Ok(()) | Err(DatasetError::BadProperty { .. }) => {}
                        Err(error) => return Err(failed(error)),
                    }
                    let quota = value(service, &name, Property::Quota);
                    self.with(at, |dataset| dataset.quota = quota);
                }
                (_, true) => {}
                (_, false) => {
                    self.take(at);
                    datasets.create(&name, &[]).await.map_err(failed)?;
                    self.note(at, Holding::There(Dataset::default()));
                }
            }
            if let Some(top) = service.files.root(&name) {
                self.populate(service, (at, top), &mut rng).await?;
            }
        }
        Ok(())
    }

    /// Some files, so that a destroy has something to free.
    async fn populate(
        &self,
        service: &Service,
        (at, top): (u64, FileHandle),
        rng: &mut Rng,
    ) -> Result<(), String> {
        let cred = Credentials::root();
        let full = |error: &FsError| matches!(error, FsError::Quota);
        for _ in 0..rng.below(6) {
            let name = format!("f{}", rng.below(20));
            let mut old = None;
            self.with(at, |dataset| old = dataset.files.remove(&name));
            let how = CreateHow::Unchecked(SetAttributes::default());
            let made = service.files.create(&cred, top, name.as_bytes(), how).await.kept().await.0;
            let made = match made {
                Err(error) if full(&error) => continue,
                made => made.map_err(|error| format!("administrator: {name}: {error}"))?,
            };
            let mut data = vec![0; 4096 * (1 + rng.index(12))];
            rng.fill(&mut data);
            let stability = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
            match service.files.write(&cred, made.handle, 0, &data, stability).await.0 {
                Err(error) if full(&error) => continue,
                Err(error) => return Err(format!("administrator: {name}: {error}")),
                Ok(Stability::Unstable) => continue,
                Ok(_) => {}
            }
            let more = old.unwrap_or_default();
            data.extend(more.get(data.len()..).unwrap_or_default());
            self.with(at, |dataset| _ = dataset.files.insert(name, data));
        }
        Ok(())
    }
}

fn value(service: &Service, name: &str, property: Property) -> Option<String> {
    let dataset = service.datasets.by_name(name)?;
    Some(service.datasets.value(&dataset, property).0)
}

/// The quota that stands in a property of a user.
fn noted(service: &Service, name: &str) -> Option<String> {
    let dataset = service.datasets.by_name(name)?;
    let all = service.datasets.user_values(&dataset);
    let noted = all.into_iter().find(|(property, ..)| property == NOTED);
    let noted = noted.map_or_else(|| "none".into(), |(_, value, _)| value);
    Property::Quota.parse(&noted).ok()
}

/// Whether a file begins with this.
async fn holds(service: &Service, name: &str, file: &str, content: &[u8]) -> Result<(), String> {
    let (files, cred) = (&service.files, Credentials::root());
    let failed = |error: FsError| format!("{name}/{file}: {error}");
    let top = files.root(name).ok_or_else(|| format!("{name} has no root"))?;
    let seen = files.lookup(&cred, top, file.as_bytes()).await.0.map_err(failed)?;
    let read = files.read(&cred, seen.handle, 0, content.len() as u32).await.map_err(failed)?;
    let mut bytes = Vec::new();
    for (page, range) in read.into_pieces() {
        bytes.extend_from_slice(&page[range]);
    }
    match bytes == content {
        true => Ok(()),
        false => Err(format!("{name}/{file} does not hold what was written")),
    }
}
