//! Questions for the differences of snapshots.

use std::sync::Arc;

use aquifer_api::{
    ApiError, ChangedName, ChangedNames, ChangedRange, ChangedRanges, DiffQuery, FileType,
    NameChange,
};
use aquifer_files::FileKind;
use aquifer_files::diff::{self, Cursor, DiffError};

use super::serving::Serving;
use super::snapshots::files;
use super::{Control, Named, Scope, errors};

impl Control {
    /// A page of the names that two versions of a dataset do not have alike.
    ///
    /// # Errors
    /// Names that do not exist or cannot be compared, a page that does not go on, a snapshot that
    /// was destroyed meanwhile.
    pub async fn changed_names(
        &self,
        query: DiffQuery,
        scope: &Scope,
    ) -> Result<ChangedNames, ApiError> {
        let DiffQuery { from, to, after, limit } = query;
        self.check_named(scope, &[Named::Within(from.clone()), Named::Within(to.clone())])?;
        let cursor = cursor(after)?;
        let serving = self.pool_of_both(&from, &to)?;
        let files = serving.service().files.clone();
        let limit = limit.unwrap_or(diff::names::OBJECTS_MAX);
        let page = async move { files.changed_names((&from, &to), cursor, limit).await };
        let page = serving.run(page).await.map_err(|error| ApiError::failed(error.to_string()))?;
        let page = page.map_err(api_error)?;
        Ok(ChangedNames {
            names: page.names.into_iter().map(name).collect(),
            next: page.next.map(|next| next.to_string()),
        })
    }

    /// A page of the ranges at which two versions of a file differ.
    ///
    /// # Errors
    /// As [`Control::changed_names`]; and names that are none of regular files.
    pub async fn changed_ranges(
        &self,
        query: DiffQuery,
        scope: &Scope,
    ) -> Result<ChangedRanges, ApiError> {
        let DiffQuery { from, to, after, limit } = query;
        self.check_named(scope, &[Named::Within(from.clone()), Named::Within(to.clone())])?;
        let cursor = cursor(after)?;
        let serving = self.pool_of_both(&from, &to)?;
        let files = serving.service().files.clone();
        let limit = limit.unwrap_or(diff::ranges::RANGES_MAX);
        let page = async move { files.changed_ranges((&from, &to), cursor, limit).await };
        let page = serving.run(page).await.map_err(|error| ApiError::failed(error.to_string()))?;
        let page = page.map_err(api_error)?;
        let range = |range: diff::ranges::ChangedRange| ChangedRange {
            offset: range.offset,
            length: range.length,
            data: range.is_data,
        };
        Ok(ChangedRanges {
            old_bytes: page.old_bytes,
            new_bytes: page.new_bytes,
            same_file: page.is_same_file,
            ranges: page.ranges.into_iter().map(range).collect(),
            next: page.next.map(|next| next.to_string()),
        })
    }
}

impl Control {
    fn pool_of_both(&self, from: &str, to: &str) -> Result<Arc<Serving>, ApiError> {
        let serving = self.pool_of_one(from)?;
        match self.pool_of_one(to)?.name() == serving.name() {
            true => Ok(serving),
            false => Err(api_error(DiffError::Strangers(from.into(), to.into()))),
        }
    }
}

fn cursor(after: Option<String>) -> Result<Option<Cursor>, ApiError> {
    after.map(|after| after.parse()).transpose().map_err(api_error)
}

pub(super) fn api_error(error: DiffError) -> ApiError {
    let message = error.to_string();
    match error {
        DiffError::Dataset(error) => errors::api_error(error),
        DiffError::Name(error) => files::api_error(error),
        DiffError::NoFile(_) | DiffError::NotThere { .. } => ApiError::not_found(message),
        DiffError::Strangers(..) | DiffError::NotRegular { .. } | DiffError::BadCursor(_) => {
            ApiError::invalid(message)
        }
        DiffError::Others(..) | DiffError::Look(_) => ApiError::conflict(message),
        DiffError::Damaged { .. } | DiffError::Pool(_) => ApiError::failed(message),
    }
}

fn name(of: diff::names::ChangedName) -> ChangedName {
    ChangedName {
        change: match of.change {
            diff::names::NameChange::Created => NameChange::Created,
            diff::names::NameChange::Removed => NameChange::Removed,
            diff::names::NameChange::Renamed => NameChange::Renamed,
            diff::names::NameChange::Modified => NameChange::Modified,
        },
        kind: match of.kind {
            FileKind::Regular => FileType::File,
            FileKind::Directory => FileType::Directory,
            FileKind::Symlink => FileType::Symlink,
            FileKind::Block => FileType::Block,
            FileKind::Character => FileType::Character,
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
        },
        path: of.path,
        old_path: of.old_path,
        fileid: of.object.0,
        content: of.content,
        attributes: of.attributes,
        old_links: of.links.0,
        links: of.links.1,
    }
}
