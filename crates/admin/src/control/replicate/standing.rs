//! Copies that are kept up to date by themselves: what the properties `replicate` and `pull` mean.
//!
//! `replicate=backup:pool/vms every=5m` stands at a dataset, and those below inherit it.
//! `pull=store1:tank/vms every=5m recursive` stands at a copy; those below go with it.

use std::sync::Arc;

use aquifer_dataset::{Dataset, Property};
use aquifer_meter::{size, time};

use super::super::serving::Serving;
use super::jobs::Wish;
use super::own::Member;
use super::target::Target;

/// One of the two properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// `replicate`: the dataset is here.
    Sent,
    /// `pull`: the copy is here.
    Fetched,
}

/// The meaning of a value of one of the properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Standing {
    /// The other side: the copy, or the dataset that is fetched.
    pub other: Target,
    /// From the beginning of one run to that of the next.
    pub every_s: u64,
    pub how: How,
    /// Datasets below are fetched, too.
    pub recursive: bool,
}

/// How a run is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct How {
    /// Bytes a second at most.
    pub rate_bytes: Option<u64>,
    /// So many snapshots of this replication stay at the copy.
    pub keep: usize,
    /// Snapshots between go as well.
    pub all: bool,
}

impl How {
    /// Checks what somebody asked for.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn new(rate_bytes: Option<u64>, keep: Option<u64>, all: bool) -> Result<How, String> {
        if rate_bytes.is_some_and(|rate| rate < RATE_BYTES_MIN) {
            let min = size::human(RATE_BYTES_MIN);
            return Err(format!("a rate is at least {min} a second"));
        }
        let keep = keep.unwrap_or(1);
        if !(1..=KEEP_MAX).contains(&keep) {
            return Err(format!("from 1 to {KEEP_MAX} snapshots stay at the copy"));
        }
        Ok(How { rate_bytes, keep: usize::try_from(keep).unwrap_or(usize::MAX), all })
    }
}

impl Standing {
    /// The wish for a run of it, of this dataset with its copy.
    fn wish(
        &self,
        source: Option<String>,
        (dataset, target): (String, Target),
        recursive: Option<bool>,
    ) -> Wish {
        Wish {
            source,
            dataset,
            target,
            recursive,
            snapshot: None,
            how: self.how.clone(),
            force: false,
            every_s: Some(self.every_s),
        }
    }
}

impl Way {
    /// The way that a property means.
    pub fn of(property: Property) -> Option<Way> {
        match property {
            Property::Replicate => Some(Way::Sent),
            Property::Pull => Some(Way::Fetched),
            _ => None,
        }
    }

    fn property(self) -> Property {
        match self {
            Way::Sent => Property::Replicate,
            Way::Fetched => Property::Pull,
        }
    }

    fn form(self) -> &'static str {
        match self {
            Way::Sent => "say PEER:POOL/NAME every=5m, and perhaps rate=20M keep=3 all; or off",
            Way::Fetched => {
                "say PEER:POOL/NAME every=5m, and perhaps recursive rate=20M keep=3 all; or off"
            }
        }
    }

    /// The meaning of a value; `None`: `off`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(self, value: &str) -> Result<Option<Standing>, String> {
        let form = self.form();
        let mut words = value.split_whitespace();
        let other = match (words.next(), value.trim()) {
            (None, _) => return Err(format!("{value:?} names no dataset; {form}")),
            (_, "off") => return Ok(None),
            (Some(other), _) => Target::parse(other)?,
        };
        if self == Way::Fetched && other.peer.is_none() {
            return Err(format!("{value:?} says from no peer; {form}"));
        }
        let (mut every_s, mut rate, mut keep) = (None, None, None);
        let (mut all, mut recursive) = (false, false);
        for word in words {
            let twice = || Err(format!("{word:?}: is given twice"));
            let bad = |what: &str| format!("{word:?}: no {what}; {form}");
            match word.split_once('=') {
                Some(("every", _)) if every_s.is_some() => return twice(),
                Some(("rate", _)) if rate.is_some() => return twice(),
                Some(("keep", _)) if keep.is_some() => return twice(),
                Some(("every", span)) => {
                    let span = time::parse_span(span).ok_or_else(|| bad("span"))?;
                    if !(EVERY_S_MIN..=EVERY_S_MAX).contains(&span) {
                        return Err(format!("{word:?}: from {EVERY_S_MIN}s to 365d"));
                    }
                    every_s = Some(span);
                }
                Some(("rate", rate_)) => {
                    rate = Some(size::parse(rate_).ok_or_else(|| bad("size"))?);
                }
                Some(("keep", count)) => {
                    keep = Some(count.parse::<u64>().map_err(|_| bad("number"))?);
                }
                None if word == "all" => all = true,
                None if word == "recursive" && self == Way::Fetched => recursive = true,
                _ => return Err(bad("option")),
            }
        }
        let (how, every_s) = (How::new(rate, keep, all)?, every_s.unwrap_or(EVERY_S));
        Ok(Some(Standing { other, every_s, how, recursive }))
    }
}

/// A copy that is kept up to date by itself.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub wish: Wish,
    /// The datasets with their copies, as far as that is known without asking a peer.
    pub members: Vec<Member>,
}

/// All of a pool: datasets that are sent, and copies that are fetched.
pub(super) fn all(serving: &Serving) -> Vec<Unit> {
    sent(serving).into_iter().chain(fetched(serving)).collect()
}

/// The datasets in service that have the property `replicate` themselves, with those below that
/// inherit it from there.
pub(super) fn sent(serving: &Serving) -> Vec<Unit> {
    let datasets = &serving.service().datasets;
    let mut values = values(serving, Way::Sent);
    values.retain(|(dataset, ..)| !dataset.is_standby());
    let values: Vec<(String, String, String)> = values
        .into_iter()
        .map(|(dataset, value, source)| (datasets.full_name(&dataset), value, source))
        .collect();
    let unit = |(name, value, source): &(String, String, String)| {
        let standing = Way::Sent.parse(value).ok()?.filter(|_| source == "local")?;
        let from = format!("inherited from {name}");
        let of = |(member, _, source): &(String, String, String)| {
            (member == name || *source == from).then(|| Member {
                dataset: member.clone(),
                target: standing.other.of(name, member),
            })
        };
        let members = values.iter().filter_map(of).collect();
        let wish = standing.wish(None, (name.clone(), standing.other.clone()), None);
        Some(Unit { wish, members })
    };
    values.iter().filter_map(unit).collect()
}

/// The copies that have the property `pull` and stand by. One in service is not fetched: it took
/// the place of its dataset.
fn fetched(serving: &Serving) -> Vec<Unit> {
    let datasets = &serving.service().datasets;
    let unit = |(dataset, value, _): (Arc<Dataset>, String, String)| {
        let standing = Way::Fetched.parse(&value).ok()??;
        let Standing { other, recursive, .. } = standing.clone();
        let Target { peer, dataset: source } = other;
        let copy = datasets.full_name(&dataset);
        let below = if recursive { datasets.below(&dataset) } else { vec![dataset] };
        let below = below.into_iter().filter(|of| of.is_standby());
        let mut copies: Vec<String> = below.map(|of| datasets.full_name(&of)).collect();
        copies.sort();
        let member = |target: String| {
            let below = target.strip_prefix(&copy).unwrap_or_default();
            let dataset = format!("{source}{below}");
            Member { dataset, target: Target { peer: None, dataset: target } }
        };
        let members = copies.into_iter().map(member).collect();
        let target = Target { peer: None, dataset: copy };
        let wish = standing.wish(peer, (source, target), Some(recursive));
        Some(Unit { wish, members })
    };
    let mut values = values(serving, Way::Fetched);
    values.retain(|(dataset, ..)| dataset.is_standby());
    values.into_iter().filter_map(unit).collect()
}

/// The datasets that have a value of a property, with the value and where it comes from, by name.
fn values(serving: &Serving, way: Way) -> Vec<(Arc<Dataset>, String, String)> {
    let datasets = &serving.service().datasets;
    let valued = |dataset: Arc<Dataset>| {
        let (value, source) = datasets.value(&dataset, way.property());
        // Most have none, and this is asked every few seconds: names are for those that do.
        (source != "default").then_some((dataset, value, source))
    };
    let mut values: Vec<_> = datasets.all().into_iter().filter_map(valued).collect();
    values.sort_by_cached_key(|(dataset, ..)| datasets.full_name(dataset));
    values
}

/// Without `every=`.
const EVERY_S: u64 = 15 * 60;
/// A run takes snapshots and holds, each a txg, and asks the other side.
const EVERY_S_MIN: u64 = 10;
const EVERY_S_MAX: u64 = 365 * 24 * 3600;
/// With less, a part would take longer than a silent client may.
const RATE_BYTES_MIN: u64 = 64 << 10;
/// As of schedules.
const KEEP_MAX: u64 = 9999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_replication_is_read_and_mistakes_are_named() {
        for way in [Way::Sent, Way::Fetched] {
            let parse = |text: &str| way.parse(text);
            assert_eq!(parse("off"), Ok(None));
            let standing = parse("b:pool/vms").unwrap().unwrap();
            let how = How { rate_bytes: None, keep: 1, all: false };
            assert_eq!((standing.every_s, standing.how), (900, how));
            let standing = parse("b:pool/vms all rate=20M every=5m keep=3").unwrap().unwrap();
            let how = How { rate_bytes: Some(20 << 20), keep: 3, all: true };
            assert_eq!((standing.every_s, standing.how), (300, how));
            for (bad, why) in [
                ("", "names no dataset"),
                ("on", "below a pool's"),
                ("off every=5m", "below a pool's"),
                ("b:pool/vms every=1s", "from 10s"),
                ("b:pool/vms every=x", "no span"),
                ("b:pool/vms every=5m every=5m", "twice"),
                ("b:pool/vms rate=1K", "at least 64K"),
                ("b:pool/vms keep=0", "from 1"),
                ("b:pool/vms keep=x", "no number"),
                ("b:pool/vms hourly", "no option"),
                ("b:pool/vms c:pool/vms", "no option"),
            ] {
                let error = parse(bad).unwrap_err();
                assert!(error.contains(why), "{bad}: {error}");
            }
        }
    }

    #[test]
    fn only_a_peer_is_fetched_from_and_only_there_it_is_said_whether_all_below_goes() {
        assert!(Way::Sent.parse("pool/vms").unwrap().is_some());
        assert!(Way::Fetched.parse("pool/vms").unwrap_err().contains("no peer"));
        let tree = "b:pool/vms recursive";
        assert!(Way::Sent.parse(tree).unwrap_err().contains("no option"));
        assert!(Way::Fetched.parse(tree).unwrap().unwrap().recursive);
        assert!(!Way::Fetched.parse("b:pool/vms").unwrap().unwrap().recursive);
    }
}
