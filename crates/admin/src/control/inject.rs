//! Faults of disks, for tests. Only debug builds have them.

use std::path::Path;

use aquifer_api::{ApiError, InjectRequest, PoolDone};

use super::Control;
use crate::devices::{Faults, Identity};

impl Control {
    /// Changes the faults of a disk. Waits for no other act: that may wait for the disk.
    ///
    /// # Errors
    /// There is no such disk, or the request makes no sense.
    pub fn inject(&self, name: &str, request: InjectRequest) -> Result<PoolDone, ApiError> {
        // A pool without its disks is not in service, but its disks are on the list.
        let listed = self.listed(name)?;
        let known = listed.serving().and_then(|serving| self.member(serving, &request.disk).ok());
        let path = known.map_or_else(|| request.disk.clone(), |member| member.path);
        let shares = [
            request.read_errors,
            request.write_errors,
            request.flush_errors,
            request.discard_errors,
            request.rot,
        ];
        if shares.into_iter().flatten().any(|share| !share.is_valid()) {
            return Err(ApiError::invalid("a share is at most all, of something"));
        }
        let disk = Identity::of(Path::new(&path))
            .map_err(|error| ApiError::not_found(format!("{path}: {error}")))?;
        Faults::of(disk, Path::new(&path)).change(request);
        tracing::warn!(
            class = "disk.injected",
            pool = name,
            disk = path,
            "faults of a disk changed"
        );
        Ok(PoolDone::new(name, Vec::new()))
    }
}
