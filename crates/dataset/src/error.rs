//! What can go wrong with datasets.

use aquifer_pool::PoolError;

/// An act on datasets failed, and nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// The name is not allowed.
    #[error("dataset name {name:?}: {why}")]
    BadName {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// There is no such dataset.
    #[error("dataset {0:?} does not exist")]
    NotFound(String),
    /// There is one already.
    #[error("dataset {0:?} exists already")]
    Exists(String),
    /// It has children.
    #[error("dataset {0:?} has others below it: destroy them first, or all at once with -r")]
    HasChildren(String),
    /// A property cannot have this value.
    #[error("property {property}: {why}")]
    BadProperty {
        /// The property as given.
        property: String,
        /// Why.
        why: String,
    },
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}
