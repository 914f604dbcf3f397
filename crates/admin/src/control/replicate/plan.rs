//! Plan of what is to be sent, from the snapshots of both sides alone.
//!
//! Snapshots are known by their guids, which travel with them; names may have been changed.

/// A snapshot of a side, or what a bookmark has of one that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// Behind the `@`, or the `#`.
    pub name: String,
    /// Whether it is a bookmark: what changed since can be sent; it cannot be sent itself.
    pub is_bookmark: bool,
    pub guid: String,
    /// It was taken by a replication: to other copies it goes if nothing else does.
    pub is_passing: bool,
}

impl Known {
    /// Its name with the sign before it.
    pub fn signed(&self) -> String {
        format!("{}{}", if self.is_bookmark { '#' } else { '@' }, self.name)
    }
}

/// Steps that bring a copy up to date.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The snapshot of the copy to which it is rolled back first, with its name there: later ones
    /// are destroyed.
    pub back_to: Option<String>,
    /// Streams to send, one after the other, by names here. None: the copy has it already.
    pub steps: Vec<Step>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Snapshot or bookmark since which changes are sent, `@snapshot` or `#bookmark`; `None`: all
    /// is sent.
    pub from: Option<String>,
    pub to: String,
}

/// Nothing can be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlan {
    /// The copy is none of this dataset, or all that both had is gone on one side.
    #[error(
        "it has no snapshot in common with {dataset:?}: only a new copy can be sent. Rename it \
         there (`aquifer rename`), or destroy it, and replicate again: all is sent then"
    )]
    NothingInCommon { dataset: String },
    /// Somebody took or received a snapshot there.
    #[error(
        "it has {newest:?}, which is newer than {common:?}, the newest snapshot that both have: \
         it was written to, or has another source. `aquifer replicate -F` rolls it back to \
         {common:?} and destroys what is later there"
    )]
    Later { newest: String, common: String },
    /// Snapshot that is wanted, and is older than what the copy has.
    #[error("it has {common:?} already, which is newer than {wanted:?}")]
    Older { common: String, wanted: String },
    /// The snapshot that was asked for.
    #[error("{dataset:?} has no snapshot {wanted:?}")]
    NotThere { dataset: String, wanted: String },
}

/// Request for a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Full name of the dataset.
    pub dataset: &'a str,
    /// The snapshot that the copy is to have, by its name here.
    pub to: &'a str,
    /// Those between as well.
    pub all: bool,
    /// The copy may lose what is later there.
    pub force: bool,
}

/// The newest snapshot that both have: its places here and there. Both lists are in the order in
/// which snapshots were taken.
pub(super) fn common(here: &[Known], there: &[Known]) -> Option<(usize, usize)> {
    let place = |of: &Known| here.iter().position(|own| own.guid == of.guid);
    there.iter().enumerate().rev().find_map(|(at, of)| Some((place(of)?, at)))
}

/// Fails if nothing that is taken from now on could be sent to a copy.
pub(super) fn check(
    dataset: &str,
    here: &[Known],
    there: &[Known],
    force: bool,
) -> Result<(), NoPlan> {
    let dataset = dataset.to_string();
    let Some((_, at)) = common(here, there) else {
        return Err(NoPlan::NothingInCommon { dataset });
    };
    match (there.get(at), there.last()) {
        (Some(common), Some(newest)) if newest.guid != common.guid && !force => {
            Err(NoPlan::Later { newest: newest.name.clone(), common: common.name.clone() })
        }
        _ => Ok(()),
    }
}

/// Plans what is to be sent. `there`: the snapshots of the copy; `None`: there is none.
pub(super) fn plan(
    wanted: Wanted<'_>,
    here: &[Known],
    there: Option<&[Known]>,
) -> Result<Plan, NoPlan> {
    let Wanted { dataset, to, all, force } = wanted;
    let name_of = |at: usize| here.get(at).map(|of| of.name.clone()).unwrap_or_default();
    let Some(place) = here.iter().position(|own| own.name == to && !own.is_bookmark) else {
        let (dataset, wanted) = (dataset.into(), to.into());
        return Err(NoPlan::NotThere { dataset, wanted });
    };
    let Some(there) = there else {
        let is_first =
            |at: &usize| here.get(*at).is_some_and(|of| !of.is_passing && !of.is_bookmark);
        let first = (0..place).find(is_first).filter(|_| all).unwrap_or(place);
        let mut steps = vec![Step { from: None, to: name_of(first) }];
        steps.extend(between(here, first, place, all));
        return Ok(Plan { back_to: None, steps });
    };
    check(dataset, here, there, force)?;
    let Some((own, at)) = common(here, there) else { return Ok(Plan::default()) };
    if own > place {
        let (common, wanted) = (name_of(own), to.into());
        return Err(NoPlan::Older { common, wanted });
    }
    let is_newest = at + 1 == there.len();
    let back_to = there.get(at).filter(|_| !is_newest).map(|of| of.name.clone());
    Ok(Plan { back_to, steps: between(here, own, place, all) })
}

fn between(here: &[Known], from: usize, to: usize, all: bool) -> Vec<Step> {
    let name_of = |at: usize| here.get(at).map(|of| of.name.clone()).unwrap_or_default();
    let since = |at: usize| here.get(at).map(Known::signed).unwrap_or_default();
    if from == to {
        return Vec::new();
    }
    let stays =
        |at: &usize| here.get(*at).is_some_and(|of| all && !of.is_passing && !of.is_bookmark);
    let middle = (from + 1..to).filter(stays);
    let ends: Vec<usize> = std::iter::once(from).chain(middle).chain([to]).collect();
    let pairs = ends.iter().zip(ends.iter().skip(1));
    pairs.map(|(from, to)| Step { from: Some(since(*from)), to: name_of(*to) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a b=x r-c`: a snapshot `a` of the guid `a`, `b` of the guid `x`, and one that a replication
    /// took.
    fn known(text: &str) -> Vec<Known> {
        let one = |word: &str| {
            let (name, guid) = word.split_once('=').unwrap_or((word, word));
            let is_passing = name.starts_with("r-");
            let is_bookmark = name.starts_with('#');
            let name = name.trim_start_matches('#').to_string();
            Known { name, is_bookmark, guid: guid.into(), is_passing }
        };
        text.split_whitespace().map(one).collect()
    }

    fn planned(here: &str, there: Option<&str>, options: &str) -> Result<String, NoPlan> {
        let here = known(here);
        let there = there.map(known);
        let to = &here.last().unwrap().name;
        let (all, force) = (options.contains("all"), options.contains("force"));
        let wanted = Wanted { dataset: "tank/vms", to, all, force };
        let plan = plan(wanted, &here, there.as_deref())?;
        let step = |step: &Step| format!("{}>{}", step.from.as_deref().unwrap_or(""), step.to);
        let back = plan.back_to.iter().map(|to| format!("back {to}"));
        Ok(back.chain(plan.steps.iter().map(step)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_new_copy_gets_all_and_one_that_is_there_what_changed() {
        for (here, there, options, steps) in [
            ("a", None, "", ">a"),
            ("a b c", None, "", ">c"),
            ("a b c", None, "all", ">a @a>b @b>c"),
            ("r-a b r-c d r-e", None, "all", ">b @b>d @d>r-e"),
            ("r-a r-b", None, "all", ">r-b"),
            ("r-a b r-c d r-e", Some("r-a"), "all", "@r-a>b @b>d @d>r-e"),
            ("a b c", Some("a"), "", "@a>c"),
            ("a b c", Some("a"), "all", "@a>b @b>c"),
            ("a b c", Some("a b"), "", "@b>c"),
            ("b c", Some("a b"), "", "@b>c"),
            ("a c", Some("a c"), "", ""),
            // Renamed on one side: the guid counts, and each side has its own name.
            ("new=1 c", Some("old=1"), "", "@new>c"),
            ("a b c", Some("a x"), "force", "back a @a>c"),
            ("a b c", Some("a x y"), "force all", "back a @a>b @b>c"),
            ("a c", Some("a c x"), "force", "back c"),
            // What a bookmark has of a snapshot that is gone is enough.
            ("#a=1 b c", Some("x=1"), "", "#a>c"),
            ("#a=1 b c", Some("x=1"), "all", "#a>b @b>c"),
            ("#a=1 b #m=2 c", None, "all", ">b @b>c"),
        ] {
            assert_eq!(planned(here, there, options).as_deref(), Ok(steps), "{here} {there:?}");
        }
    }

    #[test]
    fn what_cannot_be_sent_says_why() {
        let why = |here, there, options| planned(here, Some(there), options).unwrap_err();
        let none = NoPlan::NothingInCommon { dataset: "tank/vms".into() };
        for there in ["", "x y", "a=2"] {
            assert_eq!(why("a b", there, "force"), none);
        }
        let later = NoPlan::Later { newest: "x".into(), common: "a".into() };
        assert_eq!(why("a b", "a x", ""), later);
        let (here, there) = (known("a b c"), known("a b"));
        let wanted = Wanted { dataset: "tank/vms", to: "a", all: false, force: false };
        let older = NoPlan::Older { common: "b".into(), wanted: "a".into() };
        assert_eq!(plan(wanted, &here, Some(&there)), Err(older));
        let not_there = NoPlan::NotThere { dataset: "tank/vms".into(), wanted: "d".into() };
        assert_eq!(plan(Wanted { to: "d", ..wanted }, &here, None), Err(not_there));
    }
}
