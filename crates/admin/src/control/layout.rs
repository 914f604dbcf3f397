//! Vdevs in requests, in answers, and for the engine.

use aquifer_api::{AddVdevs, ApiError, VdevKind, VdevLayout, VdevRequest};
use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::LEAVES_MAX;
use aquifer_pool::create::{NamedDisk, VdevSpec};

use crate::devices::Taker;

/// The kind of a vdev of this redundancy.
pub(super) fn kind(redundancy: Redundancy) -> VdevKind {
    match redundancy {
        Redundancy::Single => VdevKind::Single,
        Redundancy::Mirror => VdevKind::Mirror,
    }
}

/// Checks vdevs, spares and cache disks that are wanted for a pool with data vdevs `present` and so
/// many disks: that each vdev has its disks, that they are not too many, and that all are as
/// redundant.
pub(super) fn check(
    present: impl Iterator<Item = VdevKind>,
    disks: usize,
    wanted: &AddVdevs,
) -> Result<(), ApiError> {
    check_disks(wanted.vdevs.iter().chain(&wanted.logs))?;
    let of_vdevs = wanted.vdevs.iter().chain(&wanted.logs).map(|vdev| vdev.disks.len());
    let all = disks + of_vdevs.sum::<usize>() + wanted.spares.len() + wanted.caches.len();
    if all > LEAVES_MAX {
        return Err(ApiError::invalid(format!(
            "a pool has at most {LEAVES_MAX} disks, spares and those of log and cache too: that \
             would be {all}"
        )));
    }
    check_alike(present, &wanted.vdevs, wanted.force)
}

/// Checks that data vdevs are as redundant as each other, and as those that are there: the pool is
/// lost with any of them.
fn check_alike(
    present: impl Iterator<Item = VdevKind>,
    vdevs: &[VdevRequest],
    force: bool,
) -> Result<(), ApiError> {
    let kinds: Vec<VdevKind> = present.chain(vdevs.iter().map(|vdev| vdev.kind)).collect();
    let is_mixed = kinds.contains(&VdevKind::Mirror) && kinds.contains(&VdevKind::Single);
    if vdevs.is_empty() || !is_mixed || force {
        return Ok(());
    }
    Err(ApiError::refused(
        "mirrors and single disks would hold data beside each other, and the pool is lost with any \
         single disk; -f takes them nevertheless",
    ))
}

/// Checks that each vdev has the number of disks that its kind needs.
fn check_disks<'a>(vdevs: impl IntoIterator<Item = &'a VdevRequest>) -> Result<(), ApiError> {
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

/// The disks of all requested vdevs, in order, then those beside them.
pub(super) fn disks<'a>(
    vdevs: impl IntoIterator<Item = &'a VdevRequest>,
    beside: impl Iterator<Item = &'a String>,
) -> Vec<String> {
    vdevs.into_iter().flat_map(|vdev| &vdev.disks).chain(beside).cloned().collect()
}

/// The paths of spares or cache disks.
pub(super) fn paths_shown<'a>(takers: impl Iterator<Item = &'a Taker>) -> Vec<String> {
    takers.map(|taker| taker.path.display().to_string()).collect()
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
