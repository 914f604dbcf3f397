//! The load of pools, noted for later: what their disks, their clients and each VM disk did in the
//! last ten seconds and in the present ten minutes.
//!
//! Invariants:
//! - It costs no request anything: counts that are there anyway are looked at every ten seconds.
//! - A sample covers the time up to the boundary of ten seconds of the wall clock that was passed
//!   last. If the clock jumps, one sample is short.

mod asked;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::time;
use aquifer_dataset::load::{LoadGrain, LoadOf, LoadPart, LoadSample, Rough};
use aquifer_meter::Histogram;
use aquifer_nfs::traffic::{DiskKey, Flow, Stream};
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_vdev::IoCounts;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::Control;
use super::counts::sum;
use super::serving::Serving;

/// Counts of a pool at one time.
#[derive(Debug, Default)]
struct Counts {
    disks: IoCounts,
    used_sectors: u64,
    files: HashMap<DiskKey, Flow>,
}

/// The counts from which those of the next sample are taken.
#[derive(Debug, Default)]
pub(super) struct LoadMeter(Mutex<Option<Before>>);

#[derive(Debug)]
struct Before {
    last: Arc<Counts>,
    /// Those at the begin of the present ten minutes, and which these are.
    long: (u64, Arc<Counts>),
}

impl Control {
    /// Notes the load of pools in service, as long as the daemon runs.
    pub async fn keep_load(&self) {
        loop {
            let now_ms = time::now_ns() / 1_000_000;
            sleep(Duration::from_millis(SHORT_MS - now_ms % SHORT_MS)).await;
            // A timer may be early by a moment.
            let now_s = (time::now_ns() / 1_000_000 + SHORT_MS / 4) / SHORT_MS * SHORT_MS / 1000;
            let at_s = now_s.saturating_sub(LoadGrain::TenSeconds.seconds());
            for (serving, disks) in self.note_load(at_s) {
                self.look_at_overwritten(&serving, disks, now_s).await;
            }
        }
    }

    /// Notes what was done since the last look, as the sample of the time that begins then. Returns
    /// the VM disks that were written much in the present ten minutes, and how many bytes.
    fn note_load(&self, at_s: u64) -> Vec<(Arc<Serving>, Written)> {
        let mut written = Vec::new();
        let traffic = self.frontend.counts().unwrap_or_default().traffic;
        for serving in self.all_serving() {
            let datasets = &serving.service().datasets;
            let own = traffic.disks.iter();
            let own = own.filter(|(key, _)| datasets.by_guid(Guid(key.fs_guid)).is_some());
            let files = own.map(|(key, disk)| (*key, disk.flow.clone())).collect();
            let status = serving.service().pool.status();
            let disks = sum(status.vdevs.iter().map(|vdev| &vdev.io));
            let used_sectors = status.space.taken;
            let counts = Counts { disks, used_sectors, files };
            let Some([short, long]) = serving.load.take(at_s, Arc::new(counts)) else { continue };
            let disks = self.overwritten.worth_a_look(&long);
            note(&serving, at_s, short, long);
            written.push((serving, disks));
        }
        written
    }
}

fn note(serving: &Serving, at_s: u64, short: Samples, long: Samples) {
    let service = serving.service();
    let (load, now) = (service.datasets.history().load(), service.pool.world().now());
    load.note(now, (LoadGrain::TenSeconds, at_s), short);
    load.note(now, (LoadGrain::TenMinutes, at_s), long);
    if load.is_due(now) {
        service.pool.background_waits();
    }
}

type Samples = Vec<(LoadOf, LoadSample)>;
/// Bytes that were written to VM disks.
type Written = Vec<(DiskKey, u64)>;

impl LoadMeter {
    /// The samples of the last ten seconds and of the ten minutes in which they lie; none at the
    /// first look.
    fn take(&self, at_s: u64, now: Arc<Counts>) -> Option<[Samples; 2]> {
        let mut before = self.0.lock();
        let period = at_s / LoadGrain::TenMinutes.seconds();
        let (last, long) = match before.take() {
            None => {
                *before = Some(Before { last: Arc::clone(&now), long: (period, now) });
                return None;
            }
            Some(Before { last, long }) if long.0 == period => (last, long),
            Some(Before { last, .. }) => (Arc::clone(&last), (period, last)),
        };
        let samples = [samples(&now, &last), samples(&now, &long.1)];
        *before = Some(Before { last: now, long });
        Some(samples)
    }
}

/// Makes samples of what was done between two looks. VM disks that did nothing are left out.
fn samples(now: &Counts, then: &Counts) -> Samples {
    let mut all = Flow::default();
    let mut samples = Vec::new();
    let none = Flow::default();
    for (key, flow) in &now.files {
        let done = flow.since(then.files.get(key).unwrap_or(&none));
        let sample = sample_of(&done);
        if sample.is_busy() {
            all.add(&done);
            let (fs_guid, object) = (Guid(key.fs_guid), ObjectId(key.object));
            samples.push((LoadOf::File { fs_guid, object }, sample));
        }
    }
    samples.push((LoadOf::Clients, sample_of(&all)));
    let (new, old) = (&now.disks, &then.disks);
    let bytes = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new);
    let mut writes = new.writes.latency.since(&old.writes.latency);
    writes.add(&new.durable_writes.latency.since(&old.durable_writes.latency));
    let write_bytes = bytes(new.writes.bytes, old.writes.bytes)
        + bytes(new.durable_writes.bytes, old.durable_writes.bytes);
    let reads = new.reads.latency.since(&old.reads.latency);
    let disks = LoadSample {
        reads: part(bytes(new.reads.bytes, old.reads.bytes), &reads),
        writes: part(write_bytes, &writes),
        used_sectors: now.used_sectors,
    };
    samples.push((LoadOf::Disks, disks));
    samples
}

fn sample_of(flow: &Flow) -> LoadSample {
    let of = |stream: &Stream| part(stream.bytes, &stream.latency);
    LoadSample { reads: of(&flow.reads), writes: of(&flow.writes), used_sectors: 0 }
}

fn part(bytes: u64, latency: &Histogram) -> LoadPart {
    LoadPart {
        operations: Rough::of(latency.count()),
        bytes: Rough::of(bytes),
        mean_ns: Rough::of(latency.mean_ns()),
        p99_ns: Rough::of(latency.quantile_ns(990)),
    }
}

const SHORT_MS: u64 = LoadGrain::TenSeconds.seconds() * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(calls: u64, others: u64) -> Arc<Counts> {
        let mut counts = Counts { used_sectors: calls, ..Counts::default() };
        for (object, calls) in [(16, calls), (17, others)] {
            let mut flow = Flow::default();
            (0..calls).for_each(|_| flow.writes.latency.record(1 << 20));
            flow.writes.bytes = 4096 * calls;
            counts.files.insert(DiskKey { fs_guid: 1, object }, flow);
        }
        (0..calls).for_each(|_| counts.disks.durable_writes.latency.record(1 << 19));
        Arc::new(counts)
    }

    fn of(samples: &Samples, of: LoadOf) -> Option<(u64, u64)> {
        let found = samples.iter().find(|(found, _)| *found == of);
        found.map(|(_, sample)| (sample.writes.operations.value(), sample.writes.bytes.value()))
    }

    #[test]
    fn samples_are_what_was_done_since_and_minutes_go_on_over_looks() {
        let meter = LoadMeter::default();
        let file = |object| LoadOf::File { fs_guid: Guid(1), object: ObjectId(object) };
        assert!(meter.take(580, counts(100, 5)).is_none(), "what came before is of no time");
        let [short, long] = meter.take(590, counts(110, 5)).unwrap();
        assert_eq!(of(&short, file(16)), Some((10, 40960)));
        assert_eq!(of(&short, file(17)), None, "it did nothing");
        assert_eq!(of(&short, LoadOf::Clients), Some((10, 40960)));
        assert_eq!(of(&short, LoadOf::Disks), Some((10, 0)));
        assert_eq!(long, short);
        meter.take(600, counts(130, 5));
        let [short, long] = meter.take(610, counts(160, 7)).unwrap();
        assert_eq!(
            (of(&short, file(16)), of(&short, file(17))),
            (Some((30, 122_880)), Some((2, 8192)))
        );
        assert_eq!(of(&long, file(16)), Some((50, 204_800)), "those of 600 as well");
        // The clock was set back, and counting began again.
        let [short, long] = meter.take(20, counts(3, 0)).unwrap();
        assert_eq!(of(&short, file(16)), Some((3, 12288)));
        assert_eq!(long, short);
    }
}
