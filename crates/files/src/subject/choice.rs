//! Which snapshots of a dataset are meant, as zfs writes it: `tank/vms@a,c%e,%b`.

use super::SubjectError;

/// Names and ranges of snapshots. No name of a snapshot has a `,` or a `%`.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Name(String),
    /// From one to another, both included; `None`: from the oldest, to the newest.
    Range(Option<String>, Option<String>),
}

/// Meaning of a choice in one dataset.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Places in the list, in order.
    pub places: Vec<usize>,
    /// Numbers of the parts that mean something here.
    pub met: Vec<usize>,
}

impl Choice {
    /// The names and ranges behind the `@` of a text.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn parse(text: &str, names: &str) -> Result<Choice, SubjectError> {
        let bad = |why: &str| SubjectError::Choice { text: text.into(), why: why.into() };
        let part = |text: &str| {
            let mut ends = text.split('%').map(|end| (!end.is_empty()).then(|| end.to_string()));
            match (ends.next().flatten(), ends.next(), ends.next()) {
                (Some(name), None, _) => Ok(Part::Name(name)),
                (first, Some(last), None) => Ok(Part::Range(first, last)),
                (None, None, _) => Err(bad("a name is empty")),
                (_, Some(_), Some(_)) => Err(bad("a range has one '%': A%B, A%, %B or %")),
            }
        };
        let parts: Result<Vec<Part>, SubjectError> = names.split(',').map(part).collect();
        let parts = parts?;
        let wrong = parts.iter().flat_map(Part::ends).find(|end| end.contains('@'));
        if let Some(wrong) = wrong {
            return Err(bad(&format!("{wrong:?} has an '@': all are of one dataset")));
        }
        Ok(Choice { parts })
    }

    /// Those of a list of names, in the order in which they were taken. A name that is not there,
    /// and a range with such an end, mean nothing.
    ///
    /// # Errors
    /// The end of a range is older than its beginning.
    pub fn of(&self, names: &[&str]) -> Result<Chosen, SubjectError> {
        let mut is_chosen = vec![false; names.len()];
        let mut met = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let Some((from, to)) = part.places(names) else { continue };
            if from > to {
                return Err(SubjectError::Backwards(part.text()));
            }
            let range = is_chosen.iter_mut().take(to + 1).skip(from);
            range.for_each(|chosen| *chosen = true);
            met.push(number);
        }
        let places = is_chosen.into_iter().enumerate();
        let places = places.filter_map(|(at, chosen)| chosen.then_some(at)).collect();
        Ok(Chosen { places, met })
    }

    /// The first part that meant nothing anywhere.
    pub fn unmet(&self, met: &[usize]) -> Option<String> {
        let unmet = (0..self.parts.len()).find(|number| !met.contains(number))?;
        self.parts.get(unmet).map(Part::text)
    }
}

impl Part {
    /// First and last place, if there are such snapshots.
    fn places(&self, names: &[&str]) -> Option<(usize, usize)> {
        let at = |name: &String| names.iter().position(|other| other == name);
        let newest = names.len().checked_sub(1)?;
        match self {
            Part::Name(name) => at(name).map(|at| (at, at)),
            Part::Range(from, to) => {
                let from = from.as_ref().map_or(Some(0), at)?;
                Some((from, to.as_ref().map_or(Some(newest), at)?))
            }
        }
    }

    fn ends(&self) -> impl Iterator<Item = &String> {
        let (from, to) = match self {
            Part::Name(name) => (Some(name), None),
            Part::Range(from, to) => (from.as_ref(), to.as_ref()),
        };
        from.into_iter().chain(to)
    }

    fn text(&self) -> String {
        match self {
            Part::Name(name) => name.clone(),
            Part::Range(from, to) => {
                let end = |end: &Option<String>| end.clone().unwrap_or_default();
                format!("{}%{}", end(from), end(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: [&str; 5] = ["mon", "tue", "wed", "thu", "a b"];

    fn chosen(text: &str) -> Result<String, String> {
        let names = text.strip_prefix("tank/vms@").unwrap();
        let choice = Choice::parse(text, names).map_err(|error| error.to_string())?;
        let chosen = choice.of(&TAKEN).map_err(|error| error.to_string())?;
        let names: Vec<&str> = chosen.places.iter().map(|at| TAKEN[*at]).collect();
        let unmet = choice.unmet(&chosen.met).map_or(String::new(), |part| format!(" not {part}"));
        Ok(names.join(",") + &unmet)
    }

    #[test]
    fn names_and_ranges_are_met_in_the_order_of_the_list() {
        for (text, expected) in [
            ("tank/vms@tue", "tue"),
            ("tank/vms@a b", "a b"),
            ("tank/vms@thu,mon", "mon,thu"),
            ("tank/vms@tue%thu", "tue,wed,thu"),
            ("tank/vms@tue%tue", "tue"),
            ("tank/vms@%tue", "mon,tue"),
            ("tank/vms@thu%", "thu,a b"),
            ("tank/vms@%", "mon,tue,wed,thu,a b"),
            ("tank/vms@%tue,tue,wed%thu", "mon,tue,wed,thu"),
            ("tank/vms@fri", " not fri"),
            ("tank/vms@mon,fri", "mon not fri"),
            ("tank/vms@fri%,mon", "mon not fri%"),
            ("tank/vms@mon%fri", " not mon%fri"),
        ] {
            assert_eq!(chosen(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_says_why() {
        for (text, why) in [
            ("tank/vms@thu%tue", "range thu%tue: its first snapshot is newer"),
            ("tank/vms@mon,a b%mon", "range a b%mon: its first"),
            ("tank/vms@", "a name is empty"),
            ("tank/vms@mon,", "a name is empty"),
            ("tank/vms@mon%tue%wed", "one '%'"),
            ("tank/vms@%%", "one '%'"),
            ("tank/vms@mon,tank/vms@tue", "all are of one dataset"),
            ("tank/vms@mon%tank/vms@tue", "all are of one dataset"),
        ] {
            let error = chosen(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_range_of_a_dataset_without_snapshots_means_nothing() {
        let choice = Choice::parse("tank@%", "%").unwrap();
        assert_eq!(choice.of(&[]), Ok(Chosen::default()));
    }
}
