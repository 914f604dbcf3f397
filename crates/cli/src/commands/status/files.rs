//! Files that lost something, and those that a scrub has repaired.

use aquifer_api::shown::shown;
use aquifer_api::{DamagedFile, RepairedFile, ScrubInfo, time};

use super::Output;

/// Permanent losses, a line for each file.
pub(super) fn damaged(files: &[DamagedFile]) -> String {
    let head = match files.len() {
        0 => return "No known data errors".into(),
        1 => "1 file is damaged".to_string(),
        many => format!("{many} files are damaged"),
    };
    let shown = files.iter().take(FILES_MAX).map(|damaged| {
        let DamagedFile { dataset, file, lost_bytes, error, .. } = damaged;
        let file = shown(file);
        let since = time::text(damaged.since_ns);
        let ranges = match damaged.ranges.is_empty() {
            true => "its entries or attributes".into(),
            false => ranges(&damaged.ranges, damaged.more),
        };
        match damaged.unreadable {
            true => format!("{dataset} {file}: {ranges} cannot be read, since {since} ({error})"),
            false => format!(
                "{dataset} {file}: {lost_bytes} bytes of changes lost, {ranges}, since {since} \
                 ({error})"
            ),
        }
    });
    let more = files.len().saturating_sub(FILES_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    std::iter::once(head).chain(shown).chain(more).collect::<Vec<_>>().join("\n")
}

/// Lists what a scrub has repaired, a line for each file.
pub(in crate::commands) fn repaired(scrub: &ScrubInfo, output: Output) -> Vec<String> {
    let files = &scrub.repaired_files;
    let line = |file: &RepairedFile| {
        let RepairedFile { dataset, file, bytes, ranges: of, more } = file;
        let (file, bytes) = (shown(file), output.size(*bytes));
        format!("{dataset} {file}: {bytes} repaired, {}", ranges(of, *more))
    };
    let beside = files.len().saturating_sub(FILES_MAX) as u64 + scrub.more_repaired_files;
    let beside = (beside > 0).then(|| format!("and {beside} more files"));
    files.iter().take(FILES_MAX).map(line).chain(beside).collect()
}

/// Ranges of bytes, as `FROM-TO` with the last one.
fn ranges(ranges: &[(u64, u64)], more: bool) -> String {
    let listed = ranges.iter().take(RANGES_MAX);
    let mut text: Vec<String> =
        listed.map(|(from, to)| format!("{from}-{}", to.saturating_sub(1))).collect();
    if more || ranges.len() > RANGES_MAX {
        text.push("and more".into());
    }
    format!("bytes {}", text.join(", "))
}

/// Files in the output, at most.
const FILES_MAX: usize = 20;
/// Ranges of each in the output, at most.
const RANGES_MAX: usize = 4;
