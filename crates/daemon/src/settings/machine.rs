//! How much memory this process may have: the machine's, or less if a control group says so, as
//! that of a container does.

use std::path::Path;

/// Memory of this machine for this process, in bytes. `None`: the system does not say.
pub(super) fn memory_bytes() -> Option<u64> {
    memory_at(Path::new("/"))
}

/// Returns the memory for this process, as [`memory_bytes`] does, on a system whose root directory
/// is `root`.
fn memory_at(root: &Path) -> Option<u64> {
    let machine = std::fs::read_to_string(root.join("proc/meminfo")).ok();
    let machine = machine.and_then(|text| total_bytes(&text));
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits(root, line));
    machine.into_iter().chain(limits).min()
}

/// `MemTotal` of `/proc/meminfo`, which gives KiB.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The limits of a group and of all above it, from a line `number:controllers:path` (cgroups(7)).
/// Version 2 has no controllers there.
fn limits(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (top, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        all if all.split(',').any(|one| one == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let path = Path::new(path.trim_start_matches('/'));
    let limit = |group: &Path| {
        let text = std::fs::read_to_string(root.join(top).join(group).join(file)).ok()?;
        // "max", or a number; version 1 gives a very large one for no limit.
        text.trim().parse::<u64>().ok()
    };
    path.ancestors().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const GIB: u64 = 1 << 30;

    /// A system with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\nMemAvailable: 2 kB\n");

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let machine = 16_384_000 * KIB;
        assert_eq!(memory_at(system(&[]).path()), None);
        assert_eq!(memory_at(system(&[MEMINFO]).path()), Some(machine));
        let version_2 = [
            MEMINFO,
            ("proc/self/cgroup", "0::/system.slice/aquifer.service\n"),
            ("sys/fs/cgroup/system.slice/aquifer.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "8589934592\n"),
        ];
        assert_eq!(memory_at(system(&version_2).path()), Some(8 * GIB), "a group above it");
        let version_1 = [
            MEMINFO,
            ("proc/self/cgroup", "4:cpu,memory:/docker/1\n3:cpuset:/x\n0::/\nrubbish\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4294967296\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(memory_at(system(&version_1).path()), Some(4 * GIB));
        let container = [MEMINFO, ("proc/self/cgroup", "0::/\n")];
        let limit = ("sys/fs/cgroup/memory.max", "1073741824");
        assert_eq!(memory_at(system(&container).path()), Some(machine));
        assert_eq!(memory_at(system(&[container[0], container[1], limit]).path()), Some(GIB));
    }

    #[test]
    fn this_machine_says_how_much_it_has() {
        assert!(memory_bytes().unwrap() > 64 << 20);
    }
}
