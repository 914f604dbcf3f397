//! Errors of the datasets, as an administrator reads them.

use aquifer_api::ApiError;
use aquifer_dataset::{DatasetError, FullName};

/// An error of the datasets, with what to do.
pub(super) fn api_error(error: DatasetError) -> ApiError {
    let message = error.to_string();
    match error {
        DatasetError::BadName { .. } | DatasetError::BadProperty { .. } => {
            ApiError::invalid(message)
        }
        DatasetError::NotFound(name) if FullName::of(&name).snapshot().is_some() => {
            ApiError::not_found(format!(
                "{message}; `aquifer list -t snapshot` shows those that do"
            ))
        }
        DatasetError::NotFound(_) => {
            ApiError::not_found(format!("{message}; `aquifer list` shows those that do"))
        }
        DatasetError::Held { .. } => ApiError::conflict(format!(
            "{message}; `aquifer release TAG SNAPSHOT` ends a hold without a time"
        )),
        DatasetError::BadHold { .. } => ApiError::conflict(message),
        DatasetError::Exists(_) | DatasetError::HasChildren(_) | DatasetError::HasSnapshots(_) => {
            ApiError::conflict(message)
        }
        DatasetError::FileRemoved(_)
        | DatasetError::FileNotRemoved(_)
        | DatasetError::FileNotFreed(_)
        | DatasetError::OlderPool(_)
        | DatasetError::FileDamaged(_)
        | DatasetError::Unsettled(_)
        | DatasetError::UnsettledOrigin(_)
        | DatasetError::DamagedOrigin(_)
        | DatasetError::UncountedClone(_)
        | DatasetError::HasLines(_)
        | DatasetError::Copy { .. }
        | DatasetError::WaitsForCommit(_)
        | DatasetError::Locked { .. }
        | DatasetError::NoClone(_)
        | DatasetError::SameNames { .. }
        | DatasetError::OnAnotherLine(_)
        | DatasetError::FilesGone { .. }
        | DatasetError::SameHandles { .. }
        | DatasetError::ReceiveEnded(_)
        | DatasetError::Increment(_)
        | DatasetError::HasClones { .. }
        | DatasetError::NeededByFiles { .. }
        | DatasetError::NoRoomForSnapshot { .. }
        | DatasetError::GaveUp => ApiError::conflict(message),
        DatasetError::Labels(_) | DatasetError::DeadUnreadable(_) | DatasetError::Pool(_) => {
            ApiError::failed(message)
        }
    }
}
