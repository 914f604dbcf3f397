//! Questions about the load of the past.

use std::collections::{BTreeMap, HashMap};

use aquifer_api::{
    ApiError, LoadColumns, LoadQuery, LoadSeries, LoadSpan, LoadSum, LoadedDisk, guid_of,
    guid_text, time,
};
use aquifer_dataset::load::{LoadAsked, LoadGrain, LoadOf, LoadPart, LoadRecord, LoadSample};
use aquifer_nfs::traffic::DiskKey;
use aquifer_ondisk::{Guid, ObjectId};

use super::super::Control;

impl Control {
    /// The load of a pool, step by step.
    ///
    /// # Errors
    /// There is no such pool in service, the question makes no sense, or it cannot be read.
    pub async fn load(&self, name: &str, query: &LoadQuery) -> Result<LoadSeries, ApiError> {
        let step_s = step_of(query)?;
        let mut asked = asked(query)?;
        let of = of(query.of.as_deref())?;
        asked.of = Some(of);
        let mut steps = BTreeMap::<u64, Step>::new();
        for record in self.read_load(name, asked).await? {
            for (at_s, sample) in record.times().filter(|(at_s, _)| asked.has(*at_s)) {
                steps.entry(at_s / step_s * step_s).or_default().add(&sample);
            }
        }
        let mut series = LoadSeries { step_s, ..LoadSeries::default() };
        for (at_s, step) in steps {
            series.at_s.push(at_s);
            push(&mut series.reads, step.reads.sum());
            push(&mut series.writes, step.writes.sum());
            if of == LoadOf::Disks {
                series.used_bytes.push(step.used_sectors.saturating_mul(4096));
            }
        }
        Ok(series)
    }

    /// The VM disks that were busiest in a time, the busiest first.
    ///
    /// # Errors
    /// As [`Control::load`].
    pub async fn loaded_disks(
        &self,
        name: &str,
        query: &LoadQuery,
    ) -> Result<Vec<LoadedDisk>, ApiError> {
        let asked = asked(query)?;
        let mut files = HashMap::<DiskKey, Step>::new();
        for record in self.read_load(name, asked).await? {
            let LoadOf::File { fs_guid, object } = record.of else { continue };
            let step = files.entry(DiskKey { fs_guid: fs_guid.0, object: object.0 }).or_default();
            let samples = record.times().filter(|(at_s, _)| asked.has(*at_s));
            samples.for_each(|(_, sample)| step.add(&sample));
        }
        let mut busiest: Vec<(DiskKey, Step)> =
            files.into_iter().filter(|(_, step)| step.busy_ns() > 0).collect();
        busiest.sort_by_key(|(key, step)| {
            (std::cmp::Reverse(step.busy_ns()), key.fs_guid, key.object)
        });
        let keys: Vec<DiskKey> = busiest.iter().map(|(key, _)| *key).collect();
        let names = self.names_of(&keys).await;
        let each =
            busiest.into_iter().zip(names).map(|((key, step), (dataset, file))| LoadedDisk {
                fs_guid: guid_text(key.fs_guid),
                object: key.object,
                dataset,
                file,
                reads: step.reads.sum(),
                writes: step.writes.sum(),
            });
        Ok(each.collect())
    }

    async fn read_load(&self, name: &str, asked: LoadAsked) -> Result<Vec<LoadRecord>, ApiError> {
        let serving = self.serving(name)?;
        let datasets = serving.service().datasets.clone();
        let read = serving.run(async move { datasets.history().read_load(&asked).await }).await;
        let read = read.map_err(|error| ApiError::failed(error.to_string()))?;
        read.map_err(|error| ApiError::failed(format!("the load of {name:?}: {error}")))
    }
}

fn grain(span: LoadSpan) -> LoadGrain {
    match span {
        LoadSpan::Day => LoadGrain::TenSeconds,
        LoadSpan::Month => LoadGrain::TenMinutes,
    }
}

fn step_of(query: &LoadQuery) -> Result<u64, ApiError> {
    let finest = query.span.grain_s();
    match query.step_s {
        None => Ok(finest),
        Some(step) if step >= finest && step % finest == 0 => Ok(step),
        Some(step) => Err(ApiError::invalid(format!(
            "step_s={step}: a step is {finest} seconds here, or a multiple of them"
        ))),
    }
}

fn asked(query: &LoadQuery) -> Result<LoadAsked, ApiError> {
    let now_s = time::now_ns() / 1_000_000_000;
    let to_s = query.to_s.unwrap_or(now_s).min(now_s);
    let from_s = query.from_s.unwrap_or(now_s.saturating_sub(query.span.seconds()));
    if query.to_s.is_some_and(|to_s| to_s <= from_s) {
        return Err(ApiError::invalid(format!(
            "from_s={from_s} is not before to_s={}",
            query.to_s.unwrap_or(0)
        )));
    }
    Ok(LoadAsked { grain: grain(query.span), from_s, to_s, of: None })
}

fn of(of: Option<&str>) -> Result<LoadOf, ApiError> {
    let file = |text: &str| {
        let (fs_guid, object) = text.split_once(':')?;
        let (fs_guid, object) = (Guid(guid_of(fs_guid)?), ObjectId(object.parse().ok()?));
        Some(LoadOf::File { fs_guid, object })
    };
    match of {
        None | Some("disks") => Ok(LoadOf::Disks),
        Some("clients") => Ok(LoadOf::Clients),
        Some(text) => file(text).ok_or_else(|| {
            ApiError::invalid(format!(
                "of={text:?}: this is `disks`, `clients`, or a file as FS_GUID:OBJECT"
            ))
        }),
    }
}

/// Samples added up.
#[derive(Debug, Default)]
struct Step {
    reads: Sum,
    writes: Sum,
    used_sectors: u64,
}

#[derive(Debug, Default)]
struct Sum {
    operations: u64,
    bytes: u64,
    total_ns: u128,
    p99_ns: u64,
}

impl Step {
    fn add(&mut self, sample: &LoadSample) {
        self.reads.add(&sample.reads);
        self.writes.add(&sample.writes);
        // They come in the order of their times.
        self.used_sectors = sample.used_sectors;
    }

    fn busy_ns(&self) -> u128 {
        self.reads.total_ns + self.writes.total_ns
    }
}

impl Sum {
    fn add(&mut self, part: &LoadPart) {
        let operations = part.operations.value();
        self.operations = self.operations.saturating_add(operations);
        self.bytes = self.bytes.saturating_add(part.bytes.value());
        let total_ns = u128::from(operations) * u128::from(part.mean_ns.value());
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.p99_ns = self.p99_ns.max(part.p99_ns.value());
    }

    fn sum(&self) -> LoadSum {
        let mean_ns = self.total_ns / u128::from(self.operations.max(1));
        LoadSum {
            operations: self.operations,
            bytes: self.bytes,
            mean_ns: u64::try_from(mean_ns).unwrap_or(u64::MAX),
            p99_ns: self.p99_ns,
        }
    }
}

fn push(columns: &mut LoadColumns, sum: LoadSum) {
    columns.operations.push(sum.operations);
    columns.bytes.push(sum.bytes);
    columns.mean_ns.push(sum.mean_ns);
    columns.p99_ns.push(sum.p99_ns);
}
