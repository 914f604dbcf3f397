//! The daemon as seen from outside: answers of its API, its memory, its log.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_rig::wire::call::Source;
use hdrhistogram::Histogram;
use rustls::ClientConfig;

use super::http::{Request, good};
use super::place::{ADMINISTRATOR, POOL, api};
use crate::system::status_bytes;
use crate::{Error, Result};

/// The answers of the API.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub times: Histogram<u64>,
    /// Requests without an answer, or with another status than 200.
    pub failed: u64,
    /// Most connections to NFS that it reported.
    pub connections_most: u64,
}

impl Default for Answers {
    fn default() -> Self {
        let times = Histogram::new(3).expect("three digits are a resolution that there is");
        Answers { times, failed: 0, connections_most: 0 }
    }
}

impl Answers {
    /// Adds the answers of another phase.
    pub fn add(&mut self, other: &Answers) {
        self.times += &other.times;
        self.failed += other.failed;
        self.connections_most = self.connections_most.max(other.connections_most);
    }

    /// Asks at a steady pace, each time on a new connection.
    pub fn ask(
        pause: Duration,
        over: &AtomicBool,
        mut ask: impl FnMut(&mut Answers, usize),
    ) -> Self {
        let mut answers = Answers::default();
        for number in 0.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let begun = Instant::now();
            ask(&mut answers, number);
            std::thread::sleep(pause.saturating_sub(begun.elapsed()));
        }
        answers
    }

    pub fn note(&mut self, begun: Instant, answered: io::Result<String>) -> String {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let recorded = self.times.record(took).is_ok();
        self.failed += u64::from(answered.is_err() || !recorded);
        answered.unwrap_or_default()
    }
}

/// Asks over the Unix socket, in turns: for the daemon's data, a pool, the locks, the connections.
pub(super) fn ask_locally(socket: &Path, over: &AtomicBool) -> Answers {
    let pool = format!("/v1/pools/{POOL}");
    let paths = ["/v1/daemon", pool.as_str(), "/v1/locks", "/v1/nfs"];
    Answers::ask(LOCAL_PAUSE, over, |answers, number| {
        let path = paths.get(number % paths.len()).copied().unwrap_or_default();
        let begun = Instant::now();
        let said = answers.note(begun, ask_once(socket, path));
        if path == "/v1/nfs" {
            let open = connections(&said).unwrap_or(0);
            answers.connections_most = answers.connections_most.max(open);
        }
    })
}

/// One answer of the API over the Unix socket.
pub(super) fn ask_once(socket: &Path, path: &str) -> io::Result<String> {
    Request::get(path).send_locally(socket)
}

/// Asks over TCP, with the administrator's token.
pub(super) fn ask_remotely(
    (config, token): &(Arc<ClientConfig>, String),
    over: &AtomicBool,
) -> Answers {
    let request = Request::get("/v1/daemon").by(token);
    Answers::ask(REMOTE_PAUSE, over, |answers, _| {
        let begun = Instant::now();
        let answered = request.send_from(Source::user(ADMINISTRATOR), config);
        answers.note(begun, answered.and_then(good));
    })
}

/// Connections to NFS, in the answer to `/nfs`.
fn connections(said: &str) -> Option<u64> {
    let said: serde_json::Value = serde_json::from_str(said).ok()?;
    said.get("load")?.get("connections")?.as_u64()
}

/// The number of locks that a client at an address holds, in the answer to `/locks`.
pub(super) fn locks_held(said: &str, address: &str, client: &str) -> usize {
    let said: serde_json::Value = serde_json::from_str(said).unwrap_or_default();
    let all = said.get("locks").and_then(|locks| locks.as_array());
    let is = |lock: &serde_json::Value, field: &str, value: &str| {
        lock.get(field).and_then(serde_json::Value::as_str) == Some(value)
    };
    let held = all.into_iter().flatten().filter(|lock| {
        is(lock, "address", address) && is(lock, "client", client) && is(lock, "state", "held")
    });
    held.count()
}

/// Memory and log of the daemon, over a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Most memory that was resident.
    pub resident_most: u64,
    /// The number of lines logged so far, at each look.
    pub lines: Vec<(Duration, u64)>,
}

impl Seen {
    /// Adds the observations of a later phase, as if it had followed at once.
    pub fn add(&mut self, later: &Seen) {
        self.resident_most = self.resident_most.max(later.resident_most);
        let (at, lines) = self.lines.last().copied().unwrap_or_default();
        self.lines.extend(later.lines.iter().map(|(since, more)| (at + *since, lines + more)));
    }

    /// Most lines within any minute.
    pub fn lines_worst_minute(&self) -> u64 {
        let within = |(first, (begun, before)): (usize, &(Duration, u64))| {
            let later = self.lines.iter().skip(first);
            let within = later.take_while(|(at, _)| *at <= *begun + MINUTE);
            within.last().map_or(0, |(_, lines)| lines - before)
        };
        self.lines.iter().enumerate().map(within).max().unwrap_or(0)
    }
}

/// Watches the daemon.
///
/// # Errors
/// It has ended.
pub(super) fn look(pid: u32, log: &Path, over: &AtomicBool) -> Result<Seen> {
    // Resets the peak of resident memory (proc(5)). Where that fails, the values seen by polling
    // count.
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
    let mut file = File::open(log).map_err(Error::at("open", log))?;
    file.seek(SeekFrom::End(0)).map_err(Error::at("read", log))?;
    let (begun, mut lines, mut seen) = (Instant::now(), 0, Seen::default());
    seen.lines.push((Duration::ZERO, 0));
    loop {
        let is_over = over.load(Ordering::Relaxed);
        let mut more = Vec::new();
        file.read_to_end(&mut more).map_err(Error::at("read", log))?;
        lines += u64::try_from(more.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(0);
        seen.lines.push((begun.elapsed(), lines));
        seen.resident_most = seen.resident_most.max(status_bytes(pid, "VmRSS")?);
        if is_over {
            seen.resident_most = seen.resident_most.max(status_bytes(pid, "VmHWM")?);
            return Ok(seen);
        }
        std::thread::sleep(LOOK);
    }
}

/// A TCP stream to the API, for clients that do not authenticate at once.
pub(super) fn knock(from: Source) -> io::Result<TcpStream> {
    from.connect_abrupt(api())
}

const LOCAL_PAUSE: Duration = Duration::from_millis(100);
const REMOTE_PAUSE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(200);
const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_minute_is_found() {
        let at = |s, lines| (Duration::from_secs(s), lines);
        let seen = |lines: &[_]| Seen { lines: lines.to_vec(), ..Seen::default() };
        assert_eq!(seen(&[]).lines_worst_minute(), 0);
        assert_eq!(seen(&[at(0, 0), at(20, 7)]).lines_worst_minute(), 7);
        let long = seen(&[at(0, 0), at(30, 10), at(70, 100), at(89, 105), at(100, 110)]);
        assert_eq!(long.lines_worst_minute(), 105 - 10);
    }

    #[test]
    fn answers_are_read() {
        assert_eq!(connections(r#"{"load":{"connections":7}}"#), Some(7));
        assert_eq!(connections("{}"), None);
        let lock = |client: &str, state: &str| {
            format!(r#"{{"address":"10.0.0.1","client":"{client}","state":"{state}"}}"#)
        };
        let all = [lock("hv1", "held"), lock("hv1", "waiting"), lock("hv2", "held")].join(",");
        let said = format!(r#"{{"grace":false,"locks":[{all}]}}"#);
        assert_eq!(locks_held(&said, "10.0.0.1", "hv1"), 1);
        assert_eq!(locks_held("", "10.0.0.1", "hv1"), 0);
    }
}
