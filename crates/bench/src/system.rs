//! Data from `/proc`: processor time of a process, its threads and the machine; memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Error, Result};

/// Processor time so far.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// User and system time of the process, including threads that have ended.
    pub process: Duration,
    /// User and system time of each of its living threads, by thread id, with their names.
    pub threads: BTreeMap<u32, (String, Duration)>,
    /// Processor time of this program.
    pub own: Duration,
    /// Processor time of the whole machine: everything but idle and waiting.
    pub machine: Duration,
}

impl Usage {
    /// The present values; without `pid`, none for a process.
    ///
    /// # Errors
    /// [`Error::Io`] if the process has ended.
    pub fn now(pid: Option<u32>) -> Result<Self> {
        let mut usage = Usage { machine: machine()?, ..Usage::default() };
        (_, usage.own) = times(Path::new("/proc/self/stat"))?;
        let Some(pid) = pid else { return Ok(usage) };
        (_, usage.process) = times(&PathBuf::from(format!("/proc/{pid}/stat")))?;
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        for task in fs::read_dir(&tasks).map_err(Error::at("read", &tasks))?.flatten() {
            // A thread may end meanwhile; the process's time includes it.
            if let Ok(of_thread) = times(&task.path().join("stat")) {
                let id = task.file_name().to_string_lossy().parse().unwrap_or(0);
                usage.threads.insert(id, of_thread);
            }
        }
        Ok(usage)
    }

    /// Time of threads since `earlier`, by name, most first.
    #[must_use]
    pub fn threads_since(&self, earlier: &Usage) -> Vec<(String, Duration)> {
        let mut by_name: BTreeMap<&str, Duration> = BTreeMap::new();
        for (id, (name, time)) in &self.threads {
            let before = earlier.threads.get(id).map_or(Duration::ZERO, |(_, time)| *time);
            *by_name.entry(name).or_default() += time.saturating_sub(before);
        }
        let used = by_name.into_iter().filter(|(_, time)| !time.is_zero());
        let mut used: Vec<_> = used.map(|(name, time)| (name.to_owned(), time)).collect();
        used.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        used
    }
}

/// Name and user plus system time of a `stat` file (proc(5): fields 2, 14 and 15).
fn times(path: &Path) -> Result<(String, Duration)> {
    let text = fs::read_to_string(path).map_err(Error::at("read", path))?;
    let malformed = || Error::Malformed(format!("{}: {text}", path.display()));
    // The name is in parentheses and may hold anything.
    let (head, rest) = text.rsplit_once(')').ok_or_else(malformed)?;
    let (_, name) = head.split_once('(').ok_or_else(malformed)?;
    let mut fields = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((name.to_owned(), ticks(user + system))),
        _ => Err(malformed()),
    }
}

/// First line of `/proc/stat`: user nice system idle iowait irq softirq steal.
fn machine() -> Result<Duration> {
    let path = Path::new("/proc/stat");
    let text = fs::read_to_string(path).map_err(Error::at("read", path))?;
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    Ok(ticks(fields.iter().sum::<u64>() - idle))
}

/// Linux shows user space 100 ticks a second, whatever its own clock does.
fn ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

/// Threads that stay on one processor until this is dropped: the calling one, the threads that it
/// starts, and all of a process.
#[derive(Debug)]
pub struct Pinned {
    threads: Vec<Option<Pid>>,
    before: CpuSet,
}

impl Pinned {
    /// Keeps the calling thread and process `pid` on the last processor that this thread may use.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(pid: Option<u32>) -> Result<Self> {
        let refused = |errno: rustix::io::Errno| Error::io("look at processors")(errno.into());
        let before = sched_getaffinity(None).map_err(refused)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)).unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(last);
        let mut pinned = Pinned { threads: vec![None], before };
        if let Some(pid) = pid {
            let tasks = PathBuf::from(format!("/proc/{pid}/task"));
            for task in fs::read_dir(&tasks).map_err(Error::at("read", &tasks))?.flatten() {
                let id = task.file_name().to_string_lossy().parse().ok();
                pinned.threads.extend(id.and_then(Pid::from_raw).map(Some));
            }
        }
        let mut own = pinned.threads.first().into_iter();
        own.try_for_each(|own| sched_setaffinity(*own, &one)).map_err(refused)?;
        for thread in pinned.threads.iter().skip(1) {
            // A thread may have ended meanwhile; one that refuses may be the kernel's.
            let _ = sched_setaffinity(*thread, &one);
        }
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for thread in &self.threads {
            // Threads that have ended need no reset.
            let _ = sched_setaffinity(*thread, &self.before);
        }
    }
}

/// The process's own memory (RssAnon), in bytes.
///
/// # Errors
/// [`Error::Io`], [`Error::Malformed`].
pub fn memory_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "RssAnon")
}

/// A memory field of `/proc/PID/status` (proc(5)), in bytes.
///
/// # Errors
/// [`Error::Io`], [`Error::Malformed`].
pub fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = fs::read_to_string(&path).map_err(Error::at("read", &path))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| Error::Malformed(format!("{}: no {field}", path.display())))?;
    Ok(kib * 1024)
}

/// The 1-minute load average: it shows other load on the machine.
#[must_use]
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_threads_are_free_again() {
        let before = sched_getaffinity(None).unwrap();
        let pinned = Pinned::new(Some(std::process::id())).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        let started = std::thread::spawn(|| sched_getaffinity(None).unwrap().count());
        assert_eq!(started.join().unwrap(), 1);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn busy_threads_are_seen() {
        let me = std::process::id();
        let before = Usage::now(Some(me)).unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(memory_bytes(me).unwrap());
        }
        let after = Usage::now(Some(me)).unwrap();
        assert!(after.process > before.process && after.machine > before.machine);
        assert!(!after.threads_since(&before).is_empty());
    }
}
