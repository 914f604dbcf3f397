//! Vdevs in requests, in answers, and for the engine.

use aquifer_api::{ApiError, VdevKind, VdevLayout, VdevRequest};
use aquifer_ondisk::config::Redundancy;
use aquifer_pool::create::{NamedDisk, VdevSpec};

use crate::devices::Taker;

/// Checks that each vdev has the number of disks that its kind needs.
pub(super) fn check(vdevs: &[VdevRequest]) -> Result<(), ApiError> {
    for vdev in vdevs {
        match (vdev.kind, vdev.disks.len()) {
            (VdevKind::Mirror, 2..) | (VdevKind::Single, 1) => {}
            (VdevKind::Mirror, _) => {
                return Err(ApiError::invalid(
                    "a mirror needs at least two disks: mirror A B; further mirrors follow with \
                     the word again: mirror A B mirror C D",
                ));
            }
            (VdevKind::Single, count) => {
                return Err(ApiError::invalid(format!("a single vdev of {count} disks")));
            }
        }
    }
    Ok(())
}

/// The disks of all requested vdevs, in order.
pub(super) fn disks<'a>(vdevs: impl IntoIterator<Item = &'a VdevRequest>) -> Vec<String> {
    vdevs.into_iter().flat_map(|vdev| vdev.disks.clone()).collect()
}

/// The vdevs with the paths and sizes of the disks, which it takes from `takers`.
pub(super) fn shown<'a>(
    vdevs: &[VdevRequest],
    takers: &mut impl Iterator<Item = &'a Taker>,
) -> Vec<VdevLayout> {
    let mut of_vdev = |vdev: &VdevRequest| {
        let own: Vec<_> = takers.by_ref().take(vdev.disks.len()).collect();
        VdevLayout {
            kind: vdev.kind,
            disks: own.iter().map(|taker| taker.path.display().to_string()).collect(),
            disk_bytes: own.iter().map(|taker| taker.bytes).min().unwrap_or(0),
        }
    };
    vdevs.iter().map(&mut of_vdev).collect()
}

/// The vdevs for the engine. Takes their disks from `disks`.
pub(super) fn specs(
    vdevs: &[VdevRequest],
    disks: &mut impl Iterator<Item = NamedDisk>,
) -> Vec<VdevSpec> {
    let mut of_vdev = |vdev: &VdevRequest| VdevSpec {
        redundancy: match vdev.kind {
            VdevKind::Single => Redundancy::Single,
            VdevKind::Mirror => Redundancy::Mirror,
        },
        disks: disks.by_ref().take(vdev.disks.len()).collect(),
    };
    vdevs.iter().map(&mut of_vdev).collect()
}
