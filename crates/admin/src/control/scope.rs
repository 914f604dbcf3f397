//! The datasets for which a caller counts, and what they may name.
//!
//! Invariants:
//! - A scope is judged by full names of datasets, component by component, and never by the
//!   beginning of a text: `tank/vms` covers neither `tank/vms2` nor `tank/vms@a,tank/b@c`.
//! - A text that may name more than one dataset is covered if each of these is.
//! - A name outside of a scope is answered as one that means nothing, whether it means something or
//!   not.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_api::{ApiError, DatasetName};
use aquifer_files::subject::{begins_with, datasets};

use super::Control;

/// The datasets for which a caller counts: all, or some with what lies below them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope(Option<Arc<[DatasetName]>>);

/// Object that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A dataset by its full name, which need not exist.
    Dataset(String),
    /// A dataset, a snapshot, a bookmark or a file in a dataset that exists. The text may be a
    /// pattern, a list or a range: these go no further than the dataset before them.
    Within(String),
    /// A clone of a snapshot: of one of a file, a file in a dataset that exists; else a dataset.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The clone.
        name: String,
    },
}

impl Named {
    fn text(&self) -> &str {
        match self {
            Named::Dataset(text) | Named::Within(text) | Named::Clone { name: text, .. } => text,
        }
    }
}

impl Scope {
    /// That of a token which is bound to these datasets; to none, it counts for all.
    pub fn of(datasets: &[DatasetName]) -> Scope {
        Scope((!datasets.is_empty()).then(|| datasets.into()))
    }

    /// Whether it is all that there is.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The datasets that it names; none: it is all.
    pub fn datasets(&self) -> &[DatasetName] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether it has a dataset of this full name.
    pub fn covers(&self, dataset: &str) -> bool {
        let Some(datasets) = &self.0 else { return true };
        datasets.iter().any(|of| of.covers(dataset))
    }

    /// Whether it is bounded by this very dataset: others say how much that may take.
    fn begins_at(&self, dataset: &str) -> bool {
        self.datasets().iter().any(|of| of.as_str() == dataset)
    }

    /// Whether some of it lies below this dataset.
    pub(super) fn lies_below(&self, dataset: &str) -> bool {
        let Some(datasets) = &self.0 else { return true };
        let above: Result<DatasetName, _> = dataset.parse();
        above.is_ok_and(|above| datasets.iter().any(|of| above.covers(of.as_str())))
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.datasets().iter().map(DatasetName::as_str).collect();
        names.join(", ")
    }

    /// Whether a text names a dataset of it, or a part of one, by its beginning.
    fn may_name(&self, text: &str) -> bool {
        self.datasets().iter().any(|of| begins_with(text, of.as_str()))
    }

    /// Makes the error for a caller that names something else.
    pub fn nothing(&self, named: &str) -> ApiError {
        let error = ApiError::not_found(format!(
            "there is no {named:?} within {}: this token counts for that and what lies below it \
             alone",
            self.text()
        ));
        ApiError { is_outside: !self.may_name(named), ..error }
    }

    /// Makes the error for a caller that asks for what concerns more than datasets.
    pub fn refused(&self) -> ApiError {
        ApiError::forbidden(format!(
            "this token counts for {} and what lies below alone; what was asked for concerns more \
             than that",
            self.text()
        ))
    }

    /// Fails if properties are set by which others bound what is in a scope.
    ///
    /// # Errors
    /// One is.
    pub fn check_set<'a>(
        &self,
        dataset: &str,
        properties: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), ApiError> {
        let mut properties = properties.into_iter();
        let bound = properties.find(|name| BOUNDS.contains(&name.as_str()));
        match bound.filter(|_| self.begins_at(dataset)) {
            None => Ok(()),
            Some(bound) => Err(ApiError::forbidden(format!(
                "{bound} of {dataset:?} bounds this token, which counts for that dataset: a token \
                 that counts for more sets it"
            ))),
        }
    }
}

impl Control {
    /// Fails unless a scope has all that is named.
    ///
    /// # Errors
    /// Something is outside of it, or may be: the answer does not tell whether it exists.
    pub fn check_named(&self, scope: &Scope, named: &[Named]) -> Result<(), ApiError> {
        if scope.is_all() {
            return Ok(());
        }
        // What is no name of a dataset is below none.
        let is_below = |name: &str| name.parse::<DatasetName>().is_ok() && scope.covers(name);
        let is_named = |named: &&Named| match named {
            Named::Dataset(name) => is_below(name),
            Named::Within(text) => self.is_within(scope, text),
            Named::Clone { snapshot, name } => match self.pool_of_files(snapshot) {
                Some(_) => self.is_within(scope, name),
                None => is_below(name),
            },
        };
        let other = named.iter().find(|named| !is_named(named));
        other.map_or(Ok(()), |other| Err(scope.nothing(other.text())))
    }

    /// Fails unless a question is about something in a scope, or about all in it. A recursive one
    /// may be about a dataset above: of its answer, what is in the scope is left.
    ///
    /// # Errors
    /// It is about something else.
    pub fn check_question(
        &self,
        scope: &Scope,
        name: Option<&str>,
        recursive: bool,
    ) -> Result<(), ApiError> {
        let Some(name) = name else { return Ok(()) };
        match recursive && scope.lies_below(name) {
            true => Ok(()),
            false => self.check_named(scope, &[Named::Within(name.into())]),
        }
    }

    /// Whether each dataset that a text may name is in a scope, and there is one.
    fn is_within(&self, scope: &Scope, text: &str) -> bool {
        let may_be: BTreeSet<&str> = datasets(text).into_iter().collect();
        let mut found = false;
        for serving in self.all_serving() {
            let datasets = &serving.service().datasets;
            let named = may_be.iter().filter(|name| datasets.by_name(name).is_some());
            for name in named {
                if !scope.covers(name) {
                    return false;
                }
                found = true;
            }
        }
        found
    }
}

/// Properties by which the owner of the pool says how much a dataset takes.
const BOUNDS: [&str; 3] = ["quota", "reservation", "refreservation"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_its_datasets_and_what_lies_below() {
        let names: Vec<DatasetName> = ["tank/vms", "b"].map(|of| of.parse().unwrap()).into();
        let scope = Scope::of(&names);
        for (name, is_covered) in [
            ("tank/vms", true),
            ("tank/vms/a", true),
            ("b", true),
            ("b/c", true),
            ("tank", false),
            ("tank/vms2", false),
            ("bb", false),
            ("", false),
        ] {
            assert_eq!(scope.covers(name), is_covered, "{name}");
            assert!(Scope::default().covers(name));
        }
        assert!(scope.lies_below("tank") && scope.lies_below("tank/vms"));
        assert!(!scope.lies_below("tank/vm") && !scope.lies_below("tank/vms/a"));
        let quota = ["quota".to_string()];
        assert!(scope.check_set("tank/vms", &quota).is_err());
        assert!(scope.check_set("tank/vms/a", &quota).is_ok());
        assert!(Scope::default().check_set("tank/vms", &quota).is_ok());
    }
}
