//! Numbers: the work of disks, and the requests of clients.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aquifer_api::{
    ApiError, ClientStat, Count, DiskStat, Event, EventQuery, Flow, IoQuery, NfsLoad, NfsStat,
    PoolIo, ProcedureStat, guid_text,
};
use aquifer_nfs::traffic::{self, Disk, DiskKey, TrafficCounts};
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::PoolStatus;
use aquifer_vdev::IoCounts;
use tokio::time::timeout;

use super::Control;
use super::serving::Serving;
use crate::status;

/// The requests of clients, counted by the frontend.
#[derive(Debug, Clone, Default)]
pub struct NfsCounts {
    /// Since it began to listen.
    pub uptime: Duration,
    /// By procedure, client and file.
    pub traffic: TrafficCounts,
    /// Connections and their load.
    pub load: NfsLoad,
}

/// Paths of files in the counts, and when each was found, or not found.
pub(super) type Names = HashMap<DiskKey, (Option<String>, Instant)>;

impl Control {
    /// The work of the disks of pools in service.
    ///
    /// # Errors
    /// The requested pool is not in service.
    pub fn iostat(&self, query: &IoQuery) -> Result<Vec<PoolIo>, ApiError> {
        let pools = match &query.pool {
            Some(name) => vec![self.serving(name)?],
            None => self.all_serving(),
        };
        let io = |serving: &Arc<Serving>| status::io(&serving.service().pool.status());
        Ok(pools.iter().map(io).collect())
    }

    /// The requests of clients.
    pub async fn nfs_stat(&self) -> NfsStat {
        let Some(NfsCounts { uptime, traffic, load }) = self.frontend.counts() else {
            return NfsStat::default();
        };
        let procedures = traffic.procedures.iter().map(|counted| ProcedureStat {
            name: format!("{:?}", counted.procedure).to_lowercase(),
            errors: counted.failed,
            latency: (&counted.latency).into(),
        });
        let clients = traffic
            .clients
            .iter()
            .map(|(client, flow)| ClientStat { client: client.to_string(), flow: flow_of(flow) });
        NfsStat {
            uptime_ns: u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX),
            procedures: procedures.collect(),
            load,
            clients: clients.collect(),
            other_clients: flow_of(&traffic.other_clients),
            disks: self.named(&traffic.disks).await,
            other_disks: flow_of(&traffic.other_disks),
        }
    }

    /// The engines' state of pools in service.
    pub fn engines(&self) -> Vec<PoolStatus> {
        self.all_serving().iter().map(|one| one.service().pool.status()).collect()
    }

    /// The events after one. Waits for an event if the query asks for that.
    pub async fn events_after(&self, query: &EventQuery) -> Vec<Event> {
        self.events.wait_after(query.after, Duration::from_millis(query.wait_ms)).await
    }

    /// Files with their names.
    async fn named(&self, disks: &[(DiskKey, Disk)]) -> Vec<DiskStat> {
        let keys: Vec<DiskKey> = disks.iter().map(|(key, _)| *key).collect();
        let names = self.names_of(&keys).await;
        let each = disks.iter().zip(names).map(|((key, disk), (dataset, file))| DiskStat {
            fs_guid: guid_text(key.fs_guid),
            object: key.object,
            dataset,
            file,
            client: disk.client.to_string(),
            shared: disk.shared,
            flow: flow_of(&disk.flow),
        });
        each.collect()
    }

    /// Datasets and paths of files: empty names of datasets that are gone, `#` and the number of
    /// files that are. One walk of a dataset finds all of its names, on request: an operation on a
    /// file does not know the file's name.
    pub(super) async fn names_of(&self, keys: &[DiskKey]) -> Vec<(String, String)> {
        let pools = self.all_serving();
        let mut names = self.names.lock().await;
        names.retain(|_, (_, found)| found.elapsed() < NAME_AGE_MAX);
        let mut of_guid: HashMap<u64, (String, Vec<DiskKey>)> = HashMap::new();
        for key in keys {
            let (_, unknown) = of_guid.entry(key.fs_guid).or_default();
            if !names.contains_key(key) {
                unknown.push(*key);
            }
        }
        for (guid, (dataset, unknown)) in &mut of_guid {
            let Some((serving, name)) = dataset_of(&pools, *guid) else { continue };
            *dataset = name;
            if !unknown.is_empty() {
                names.extend(find(serving, dataset, unknown).await);
            }
        }
        let each = keys.iter().map(|key| {
            let path = names.get(key).and_then(|(path, _)| path.clone());
            let dataset = of_guid.get(&key.fs_guid).map(|(name, _)| name.clone());
            (dataset.unwrap_or_default(), path.unwrap_or_else(|| format!("#{}", key.object)))
        });
        each.collect()
    }
}

fn dataset_of(pools: &[Arc<Serving>], guid: u64) -> Option<(&Arc<Serving>, String)> {
    pools.iter().find_map(|serving| {
        let datasets = &serving.service().datasets;
        let dataset = datasets.by_guid(Guid(guid))?;
        Some((serving, datasets.full_name(&dataset)))
    })
}

async fn find(
    serving: &Serving,
    dataset: &str,
    keys: &[DiskKey],
) -> Vec<(DiskKey, (Option<String>, Instant))> {
    let ids = keys.iter().map(|key| ObjectId(key.object));
    // A version of a file, in `.aquifer`, has no path of its own to search for.
    let wanted: HashSet<ObjectId> = ids.filter(|id| Unstored::of(*id).is_none()).collect();
    let search = serving.service().files.paths_of(dataset, wanted, NAME_SEARCH_ENTRIES_MAX);
    // A disk that hangs must not keep anybody from seeing that it hangs.
    let mut paths = timeout(NAME_SEARCH_PATIENCE, search).await.unwrap_or_default();
    let now = Instant::now();
    keys.iter().map(|key| (*key, (paths.remove(&ObjectId(key.object)), now))).collect()
}

pub(super) fn flow_of(flow: &traffic::Flow) -> Flow {
    let of =
        |stream: &traffic::Stream| Count { bytes: stream.bytes, latency: (&stream.latency).into() };
    Flow {
        reads: of(&flow.reads),
        writes: of(&flow.writes),
        others: flow.others,
        others_ns: flow.others_ns,
        errors: flow.errors,
    }
}

/// The sum over vdevs.
pub(crate) fn sum<'a>(of: impl Iterator<Item = &'a IoCounts>) -> IoCounts {
    of.fold(IoCounts::default(), |mut sum, one| {
        let kinds = [
            (&mut sum.reads, &one.reads),
            (&mut sum.writes, &one.writes),
            (&mut sum.durable_writes, &one.durable_writes),
            (&mut sum.flushes, &one.flushes),
        ];
        for (sum, one) in kinds {
            sum.bytes += one.bytes;
            sum.latency.add(&one.latency);
        }
        sum
    })
}

/// Time limit of a search for names.
const NAME_SEARCH_PATIENCE: Duration = Duration::from_secs(1);
/// A name is searched again after this time: it may have changed.
const NAME_AGE_MAX: Duration = Duration::from_secs(60);
/// Directory entries of a dataset that a search for its files' names reads. A datastore has
/// hundreds or thousands, and this many take some 50 ms.
const NAME_SEARCH_ENTRIES_MAX: usize = 100_000;
