//! Slow disks: loop devices over image files, throttled by the kernel (blkio cgroup, version 1).
//!
//! # Invariants
//! - The limits are set in the root cgroup: those of a child miss writeback, and a process in a
//!   child escapes those of the root. So this program, and with it each server that it starts, must
//!   be in the root cgroup of blkio. If it is not, or if the limits have no effect, there is no
//!   disk.
//! - However this program ends, the limits are lifted, the loop device is detached and the images
//!   are removed. A shell does that when its input ends, and no signal to this program's group
//!   reaches the shell. The loop device goes when its last user has closed it.
//!
//! A limit counts requests in slices of 100 ms and knows no seeks. Small sequential I/O is as slow
//! as random I/O, and a flush costs as much as a write. Only large I/O is faster, as on a disk.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;

use crate::raw::{Io, Raw};
use crate::{Error, Result};

/// The limits of a disk, in each direction.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    /// I/Os per second.
    pub iops: u32,
    /// Bytes per second.
    pub bytes_per_s: u64,
}

/// The limits of a hard disk.
impl Default for Limits {
    fn default() -> Self {
        Limits { iops: 180, bytes_per_s: 120_000_000 }
    }
}

/// A throttled loop device.
#[derive(Debug)]
pub struct SlowDisk {
    device: PathBuf,
    /// `MAJOR:MINOR`.
    number: String,
    limits: Limits,
    keeper: Child,
}

/// The measured performance of a throttled disk alone.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// Its loop device.
    pub device: PathBuf,
    /// Its limits.
    pub limits: Limits,
    /// Random 8 KiB writes per second: the best rate of the disk for these.
    pub writes_per_s: f64,
    /// Random 8 KiB reads per second.
    pub reads_per_s: f64,
    /// 10^6 bytes per second in writes of 512 KiB, the largest that the kernel does not split.
    pub write_mb_per_s: f64,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: held to {} I/Os/s and {} MB/s each way; by itself {:.0} random 8 KiB writes/s, \
             {:.0} reads/s, {:.0} MB/s in writes of 512 KiB",
            self.device.display(),
            self.limits.iops,
            self.limits.bytes_per_s / 1_000_000,
            self.writes_per_s,
            self.reads_per_s,
            self.write_mb_per_s
        )
    }
}

impl SlowDisk {
    /// Makes `image` of this many bytes and a loop device over it; it is not throttled yet. A
    /// `sparse` image is not allocated: it may be larger than the free space.
    ///
    /// # Errors
    /// [`Error::Failed`] where the kernel cannot throttle; [`Error::Io`].
    pub fn new(image: &Path, bytes: u64, sparse: bool, limits: Limits) -> Result<Self> {
        let own = Path::new("/proc/self/cgroup");
        let groups = fs::read_to_string(own).map_err(Error::at("read", own))?;
        throttles(&groups, Path::new(CGROUP).join(FILES[0]).exists())?;
        let file = File::create_new(image).map_err(Error::at("create", image))?;
        if sparse {
            file.set_len(bytes).map_err(Error::at("resize", image))?;
        } else {
            let allocated = fallocate(&file, FallocateFlags::empty(), 0, bytes);
            allocated.map_err(|errno| Error::at("allocate", image)(errno.into()))?;
        }
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "aquifer-bench-disk", CGROUP])
            .arg(image)
            .args(FILES)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("start sh"))?;
        let mut said = String::new();
        let read = keeper.stdout.take().map(|out| BufReader::new(out).read_line(&mut said));
        read.transpose().map_err(Error::io("read what losetup said"))?;
        let mut words = said.split_whitespace().map(str::to_owned);
        let (device, number) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // From here on, dropping it detaches the device.
        let disk = SlowDisk { device: device.into(), number, limits, keeper };
        match disk.number.is_empty() {
            false => Ok(disk),
            true => Err(Error::Failed { what: "losetup --direct-io=on".into(), said }),
        }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Sets the limits, or lifts them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn throttle(&self, on: bool) -> Result<()> {
        for (file, line) in settings(&self.number, on.then_some(self.limits)) {
            let path = Path::new(CGROUP).join(file);
            fs::write(&path, line).map_err(Error::at("write", &path))?;
        }
        Ok(())
    }

    /// Writes over the disk and reads it, throttled, to check that the limits have an effect. The
    /// disk stays throttled.
    ///
    /// # Errors
    /// [`Error::Failed`] if they have none.
    pub fn probe(&self, bytes: u64) -> Result<Probe> {
        self.throttle(true)?;
        let mut raw = Raw::open(&self.device, bytes)?;
        let mut rate = |io, io_bytes| -> Result<f64> {
            Ok(raw.run(io, io_bytes, PROBE)?.count as f64 / PROBE.as_secs_f64())
        };
        let probe = Probe {
            device: self.device.clone(),
            limits: self.limits,
            writes_per_s: rate(Io::Write, 8 << 10)?,
            reads_per_s: rate(Io::Read, 8 << 10)?,
            write_mb_per_s: rate(Io::Write, BIG_BYTES)? * BIG_BYTES as f64 / 1e6,
        };
        let iops = f64::from(self.limits.iops);
        let limit_mb = self.limits.bytes_per_s as f64 / 1e6;
        let of = self.device.display().to_string();
        bites(&of, "8 KiB writes/s", probe.writes_per_s, iops)?;
        bites(&of, "8 KiB reads/s", probe.reads_per_s, iops)?;
        bites(&of, "MB/s written", probe.write_mb_per_s, limit_mb)?;
        Ok(probe)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        match self.keeper.wait() {
            Ok(status) if status.success() => {}
            other => eprintln!("{} may be left: {other:?}", self.device.display()),
        }
    }
}

/// Checks that the kernel throttles this process and its children, from `/proc/self/cgroup`.
fn throttles(groups: &str, has_files: bool) -> Result<()> {
    let said = if !has_files {
        format!("there is no {CGROUP}/{} (blkio cgroup, version 1)", FILES[0])
    } else {
        // cgroups(7): hierarchy-ID:controller-list:cgroup-path
        let of_blkio = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            controllers.split(',').any(|it| it == "blkio").then(|| fields.next())?
        });
        match of_blkio {
            Some("/") => return Ok(()),
            Some(path) => format!(
                "this process is in the blkio cgroup {path}, which the limits of the root miss; \
                 first: echo $$ > {CGROUP}/cgroup.procs"
            ),
            None => "this process is in no blkio cgroup".to_owned(),
        }
    };
    Err(Error::Failed { what: "slow disks are not to be had here: throttling".into(), said })
}

/// Refuses a disk that is faster than its limit. Half as much again is accepted: the first slice of
/// 100 ms passes at once.
fn bites(device: &str, what: &str, seen: f64, limit: f64) -> Result<()> {
    if seen <= limit * 1.5 {
        return Ok(());
    }
    let said = format!("{device} does {seen:.0} {what} where {limit:.0} are allowed");
    Err(Error::Failed { what: "slow disks are not to be had here: the throttle".into(), said })
}

/// The line for each file; without limits it lifts them.
fn settings(number: &str, limits: Option<Limits>) -> [(&'static str, String); 4] {
    let iops = limits.map_or(0, |limits| u64::from(limits.iops));
    let bytes = limits.map_or(0, |limits| limits.bytes_per_s);
    let [read_iops, write_iops, read_bytes, write_bytes] = FILES;
    [(read_iops, iops), (write_iops, iops), (read_bytes, bytes), (write_bytes, bytes)]
        .map(|(file, limit)| (file, format!("{number} {limit}")))
}

const CGROUP: &str = "/sys/fs/cgroup/blkio";
const FILES: [&str; 4] = [
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
];

/// Makes the device, prints its name and number, and undoes everything when its input ends. The
/// reader of what it prints may be gone by then: it must not die of that. It also removes the other
/// images beside it, which belong to the same target.
const KEEPER: &str = r#"
trap '' HUP INT TERM PIPE
cgroup=$1 image=$2
shift 2
undo() { rm -f "${image%/*}"/*.img; }
device=$(losetup --find --show --direct-io=on "$image") || { undo; exit 1; }
number=$(cat "/sys/class/block/${device##*/}/dev")
echo "$device $number"
cat >/dev/null
status=0
for file; do echo "$number 0" > "$cgroup/$file" || status=1; done
losetup --detach "$device" || status=1
undo
exit $status
"#;

const PROBE: Duration = Duration::from_millis(700);
const BIG_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_is_throttled_it_says_why() {
        let root = "9:name=systemd:/\n7:cpu,blkio:/\n4:memory:/some/where\n0::/\n";
        throttles(root, true).unwrap();
        let no_files = throttles(root, false).unwrap_err().to_string();
        assert!(no_files.contains("blkio.throttle.read_iops_device (blkio cgroup"), "{no_files}");
        let child = throttles("7:blkio:/a:b\n0::/\n", true).unwrap_err().to_string();
        assert!(child.contains("cgroup /a:b,") && child.contains("echo $$"), "{child}");
        let none = throttles("7:xblkio:/\n0::/\n", true).unwrap_err().to_string();
        assert!(none.contains("in no blkio cgroup"), "{none}");
    }

    #[test]
    fn a_throttle_that_does_not_bite_is_refused() {
        bites("/dev/loop7", "8 KiB writes/s", 205.0, 180.0).unwrap();
        let free = bites("/dev/loop7", "8 KiB writes/s", 5000.0, 180.0).unwrap_err();
        let wanted = "/dev/loop7 does 5000 8 KiB writes/s where 180 are allowed";
        assert!(free.to_string().ends_with(wanted), "{free}");
    }

    #[test]
    fn limits_are_set_and_lifted() {
        let set = settings("7:3", Some(Limits::default()));
        let lines = set.each_ref().map(|(_, line)| line.as_str());
        assert_eq!(lines, ["7:3 180", "7:3 180", "7:3 120000000", "7:3 120000000"]);
        assert!(set.iter().take(2).all(|(file, _)| file.contains("iops")));
        assert!(settings("7:3", None).iter().all(|(_, line)| line == "7:3 0"));
    }
}
