//! Problems of a pool that serves as ever: it or a dataset fills, something keeps space for ever,
//! clients are shut out by a rule that makes no sense, a check is overdue.
//!
//! Invariant: these are problems as all others. `status`, `-x`, alerts, page and doctor read the
//! one list.

use std::collections::BTreeSet;
use std::time::Duration;

use aquifer_api::{Health, PoolStatus, Problem, ScrubState, Severity, codes, time};
use aquifer_dataset::{Partial, Property};
use tokio::time::Instant;

use super::replicate::{TAG_OF_COPY, standing_copies, taken_of_copy_ns};
use super::serving::Serving;
use super::{Control, shares};

/// Problems that a look at all snapshots found, and the time of that look.
pub(super) type Kept = Option<(Instant, Vec<Problem>)>;

impl Control {
    /// Lists the problems of a pool in service beside those of which its engine tells.
    pub(super) fn beside(&self, serving: &Serving, status: &PoolStatus) -> Vec<Problem> {
        let settings = self.alerts.settings();
        let limits = [settings.capacity_warning_percent, settings.capacity_error_percent];
        let now_ns = time::now_ns();
        let overdue = scrub_interval(serving)
            .and_then(|interval| scrub_overdue(status, interval, now_ns))
            .or_else(|| scrub_paused(status, now_ns));
        let mut all: Vec<Problem> = full(status, limits).into_iter().chain(overdue).collect();
        all.extend(quotas(&used_of_quotas(serving), limits));
        all.extend(serving.files_astray());
        all.extend(not_taken(serving));
        all.extend(self.shut_out(serving));
        all.extend(parts(&serving.service().datasets.partials(), now_ns));
        all.extend(kept_for_ever(serving, now_ns));
        all
    }

    /// Exports that cannot be, and hosts that are not let in.
    fn shut_out(&self, serving: &Serving) -> Option<Problem> {
        let mut all = serving.export_problems();
        all.extend(shares::unknown_hosts(&serving.exports(), &self.frontend.hosts()));
        let status =
            (!all.is_empty()).then(|| format!("Clients are shut out: {}.", all.join("; ")))?;
        let action = "Mend the property with `aquifer set`, or give the host an address \
                      (/etc/hosts of the server goes before DNS). `aquifer share` shows the rules.";
        let action = Some(action.to_string());
        Some(Problem::new(codes::CLIENTS_SHUT_OUT, Severity::Error, status, action))
    }
}

/// How often a pool is scrubbed by itself.
fn scrub_interval(serving: &Serving) -> Option<Duration> {
    let datasets = &serving.service().datasets;
    let own = datasets.by_name(serving.name())?;
    match datasets.value(&own, Property::Scrub).0.as_str() {
        "weekly" => Some(7 * DAY),
        "monthly" => Some(30 * DAY),
        _ => None,
    }
}

/// A pool that is nearly full. `limits`: percent from which that is a warning and an error; 0:
/// never.
fn full(status: &PoolStatus, limits: [u8; 2]) -> Option<Problem> {
    let pool = &status.summary;
    let all = pool.allocated_bytes.saturating_add(pool.free_bytes);
    if pool.health == Health::Unavail || all == 0 {
        return None;
    }
    let percent = u128::from(pool.allocated_bytes) * 100 / u128::from(all);
    let reaches = |limit: u8| limit > 0 && percent >= u128::from(limit);
    let severity = match limits {
        [_, error] if reaches(error) => Severity::Error,
        [warning, _] if reaches(warning) => Severity::Warning,
        _ => return None,
    };
    let name = &pool.name;
    let status = format!(
        "The pool is {percent} % full. When it is full, clients hear that no space is left."
    );
    let action = format!(
        "See what takes the space: `aquifer list -r {name}` and `aquifer list -t snapshot \
         {name}`. Destroy what is not needed, or add disks: `aquifer pool add {name} DISK`."
    );
    Some(Problem::new(codes::POOL_FULL, severity, status, Some(action)))
}

/// A scrub that should have ended long ago.
fn scrub_overdue(status: &PoolStatus, interval: Duration, now_ns: u64) -> Option<Problem> {
    let scrub = status.scrub.as_ref()?;
    let late_ns = u64::try_from((interval * 2).as_nanos()).unwrap_or(u64::MAX);
    if now_ns.saturating_sub(scrub.begun_ns) < late_ns {
        return None;
    }
    let name = &status.summary.name;
    let why = match scrub.state {
        ScrubState::Paused => "is paused",
        ScrubState::Running => "does not come to its end",
        ScrubState::Finished | ScrubState::Stopped => "should have begun again since",
    };
    let status = format!(
        "The scrub that began {} days ago {why}: rot that no client reads is not found.",
        now_ns.saturating_sub(scrub.begun_ns) / 1_000_000_000 / DAY.as_secs()
    );
    let action = format!("To go on with it, or begin one, type `aquifer pool scrub {name}`.");
    Some(Problem::new(codes::SCRUB_OVERDUE, Severity::Warning, status, Some(action)))
}

/// A scrub that somebody has paused, and forgotten.
fn scrub_paused(status: &PoolStatus, now_ns: u64) -> Option<Problem> {
    let scrub = status.scrub.as_ref().filter(|scrub| scrub.state == ScrubState::Paused)?;
    let begun_s = now_ns.saturating_sub(scrub.begun_ns) / 1_000_000_000;
    if begun_s < DAY.as_secs() {
        return None;
    }
    let name = &status.summary.name;
    let status = format!("A scrub that began {} days ago is paused.", begun_s / DAY.as_secs());
    let action = format!("To go on with it, type `aquifer pool scrub {name}`.");
    Some(Problem::new(codes::SCRUB_OVERDUE, Severity::Warning, status, Some(action)))
}

/// A dataset with a quota.
struct Bounded {
    name: String,
    used_bytes: u64,
    quota_bytes: u64,
}

fn used_of_quotas(serving: &Serving) -> Vec<Bounded> {
    let datasets = &serving.service().datasets;
    let mut bounded: Vec<Bounded> = Vec::new();
    for dataset in datasets.all() {
        let quota_bytes = dataset.properties().quota_bytes;
        bounded.extend(quota_bytes.map(|quota_bytes| Bounded {
            name: datasets.full_name(&dataset),
            used_bytes: 0,
            quota_bytes,
        }));
    }
    // Most pools have none, and the sums cost a look at all datasets.
    if !bounded.is_empty() {
        for info in datasets.list() {
            let own = bounded.iter_mut().find(|own| own.name == info.name);
            let used = info.used.bytes.saturating_add(info.refreserved_bytes);
            own.into_iter().for_each(|own| own.used_bytes = used);
        }
    }
    bounded
}

/// Datasets that nearly have their quota. `limits`: as those of a pool.
fn quotas(all: &[Bounded], [warning, error]: [u8; 2]) -> Option<Problem> {
    let percent =
        |of: &Bounded| u128::from(of.used_bytes) * 100 / u128::from(of.quota_bytes.max(1));
    let reaches = |of: &&Bounded, limit: u8| limit > 0 && percent(of) >= u128::from(limit);
    let found: Vec<&Bounded> =
        all.iter().filter(|of| reaches(of, warning) || reaches(of, error)).collect();
    let first = found.first()?;
    let severity = match found.iter().any(|of| reaches(of, error)) {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let each = found.iter().map(|of| format!("{} at {} %", of.name, percent(of)));
    let status = format!(
        "Quotas are nearly used: {}. At 100 % clients hear that their quota is exceeded.",
        each.collect::<Vec<_>>().join(", ")
    );
    let action = format!(
        "See what takes the space: `aquifer list -r -t all {0}`. Destroy what is not needed, or \
         type `aquifer set quota=SIZE {0}`.",
        first.name
    );
    Some(Problem::new(codes::QUOTA_FULL, severity, status, Some(action)))
}

/// Snapshots that are due and cannot be taken.
fn not_taken(serving: &Serving) -> Option<Problem> {
    let failures = serving.service().datasets.schedule_failures();
    let status = (!failures.is_empty())
        .then(|| format!("Scheduled snapshots are not taken: {}.", failures.join("; ")))?;
    let action = format!(
        "They are tried again every minute. `aquifer list -r -t all {}` shows what takes space, \
         `aquifer get -r snapshots,filesnapshots,refreservation {0}` what asks for it.",
        serving.name()
    );
    let code = codes::SNAPSHOT_SCHEDULE_FAILED;
    Some(Problem::new(code, Severity::Warning, status, Some(action)))
}

/// Parts of streams that broke off, and that nobody goes on with.
fn parts(all: &[Partial], now_ns: u64) -> Option<Problem> {
    let is_old = |of: &&Partial| {
        of.is_parked && now_ns.saturating_sub(of.record.heard.since_1970_ns()) >= OLD_NS
    };
    let old: Vec<&str> = all.iter().filter(is_old).map(|of| of.name.as_str()).collect();
    let first = old.first()?;
    let status = format!(
        "Parts of streams keep space, and nothing of them came for a day: {}.",
        old.join(", ")
    );
    let action = format!(
        "`aquifer receives` lists them. Send the rest, or drop a part: `aquifer receive -A \
         {first}`."
    );
    Some(Problem::new(codes::RECEIVE_PARTS, Severity::Warning, status, Some(action)))
}

/// Lists the problems that only a look at all snapshots finds; they are looked for now and then.
fn kept_for_ever(serving: &Serving, now_ns: u64) -> Vec<Problem> {
    if let Some((at, known)) = &*serving.kept.lock()
        && at.elapsed() < LOOK_EVERY
    {
        return known.clone();
    }
    let found: Vec<Problem> =
        ended_holds(serving, now_ns).into_iter().chain(unfed(serving, now_ns)).collect();
    *serving.kept.lock() = Some((Instant::now(), found.clone()));
    found
}

/// Holds for copies that no replication makes any more.
fn ended_holds(serving: &Serving, now_ns: u64) -> Option<Problem> {
    let datasets = &serving.service().datasets;
    let standing: BTreeSet<(String, String)> = standing_copies(serving);
    let mut found = Vec::new();
    for dataset in datasets.all() {
        let name = datasets.full_name(&dataset);
        for of in dataset.snapshots(serving.service().pool.committed_txg()) {
            for hold in datasets.holds(&dataset, of.txg) {
                let is_old = now_ns.saturating_sub(hold.placed.since_1970_ns()) >= OLD_NS;
                let is_of_copy = hold.tag.starts_with(TAG_OF_COPY);
                if is_of_copy && is_old && !standing.contains(&(name.clone(), hold.tag.clone())) {
                    found.push((format!("{name}@{}", of.record.name), hold.tag));
                }
            }
        }
    }
    let (snapshot, tag) = found.first()?;
    let each: Vec<String> = found.iter().map(|(of, tag)| format!("{of} ({tag})")).collect();
    let status = format!(
        "Snapshots are held for copies that nothing makes any more, keep space, and cannot be \
         destroyed: {}.",
        each.join(", ")
    );
    let action = format!(
        "To go on with the copy, type `aquifer replicate`. Else `aquifer release '{tag}' \
         {snapshot}`: the next copy there is then a whole one."
    );
    Some(Problem::new(codes::HOLDS_LEFT, Severity::Warning, status, Some(action)))
}

/// Copies that get nothing any more.
fn unfed(serving: &Serving, now_ns: u64) -> Option<Problem> {
    let datasets = &serving.service().datasets;
    let mut found = Vec::new();
    for dataset in datasets.all().into_iter().filter(|dataset| dataset.is_standby()) {
        if let Some(at) = taken_of_copy_ns(serving, &dataset)
            && now_ns.saturating_sub(at) >= UNFED_NS
        {
            found.push(datasets.full_name(&dataset));
        }
    }
    let first = found.first()?;
    let status = format!("Copies on standby got nothing for a week: {}.", found.join(", "));
    let action = format!(
        "Look at the replication: `aquifer replicate` where they come from, or here if they are \
         fetched. A copy that is wanted as it is takes clients after `aquifer set standby=off \
         {first}`."
    );
    Some(Problem::new(codes::COPY_UNFED, Severity::Warning, status, Some(action)))
}

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time after which something that nobody touched was forgotten, mostly.
const OLD_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Copies are fed daily, or more often.
const UNFED_NS: u64 = 7 * OLD_NS;
/// Between two looks at all snapshots.
const LOOK_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
