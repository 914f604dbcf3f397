//! Messages between server and clients on the wire, captured by dumpcap and checked by tshark, an
//! independent implementation of every message.
//!
//! Invariants: a capture that missed a packet is an error, and so is one without an expected
//! answer. So a capture never counts as sound only because it saw nothing. A message is at fault if
//! tshark cannot dissect it whole: it ends early, has bytes left over, or answers no call. Bytes
//! from a client that are no call (the stray byte of XCP-ng) are no fault of the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Outcome, Process};
use aquifer_rig::work::Scratch;
use rustix::process::Signal;

use crate::{Error, Result};

/// A running capture of one interface of a namespace.
#[derive(Debug)]
pub struct Capture {
    dumpcap: Process,
    file: PathBuf,
}

impl Capture {
    /// Captures all traffic on `interface` (`lo`, `bridge`) into `scratch`, from when this returns.
    /// tshark does not understand connections that exist already: start the capture before them.
    ///
    /// # Errors
    /// [`Error::MissingTool`]; [`Error::Failed`] or [`Error::Timeout`] if it does not begin.
    pub fn start(netns: &NetNs, interface: &str, scratch: &Scratch) -> Result<Self> {
        let file = scratch.join("capture.pcapng");
        let dumpcap = Invocation::tool("dumpcap", "capture")?
            .args(["-q", "-i", interface, "-B", BUFFER_MIB, "-w"])
            .arg(&file)
            .inside(netns)
            .spawn(&scratch.join("dumpcap.log"))?;
        let start = Instant::now();
        // It prints the file's name when it has opened the interface.
        while !dumpcap.said().contains("File: ") {
            if !dumpcap.is_running() {
                return Err(Error::Failed { what: "dumpcap".into(), said: dumpcap.said() });
            }
            if start.elapsed() > SOON {
                let what = "dumpcap to begin".into();
                return Err(Error::Timeout { what, limit: SOON, said: dumpcap.said() });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { dumpcap, file })
    }

    /// Ends the capture and dissects it.
    ///
    /// # Errors
    /// [`Error::Failed`] if packets were lost or tshark fails; [`Error::Timeout`].
    pub fn finish(self) -> Result<Talk> {
        // The kernel delivers packets in blocks, a partly filled one after some 100 ms.
        thread::sleep(Duration::from_secs(1));
        self.dumpcap.signal(Signal::INT)?;
        self.dumpcap.wait(SOON)?;
        let said = self.dumpcap.said();
        if !is_complete(&said) {
            return Err(Error::Failed { what: "dumpcap missed packets".into(), said });
        }
        Talk::read(&self.file)
    }
}

/// "Packets received/dropped on interface 'lo': 5094/0 (pcap:0/...) (100.0%)"
fn is_complete(said: &str) -> bool {
    let counts = said.lines().find_map(|line| line.strip_prefix("Packets received/dropped on "));
    let counts = counts.and_then(|line| line.rsplit_once("': ")?.1.split_whitespace().next());
    counts.and_then(|counts| counts.split_once('/')).is_some_and(|(_, dropped)| dropped == "0")
}

/// The content of a capture.
#[derive(Debug, Default)]
pub struct Talk {
    /// Replies that were dissected, by program and procedure.
    replies: BTreeMap<(u32, u32), u64>,
    /// Frames at fault: their number, and tshark's message.
    faults: Vec<String>,
    /// Frames with a whole reply whose call tshark did not see.
    unmatched: Vec<String>,
}

impl Talk {
    /// Dissects a capture file.
    ///
    /// # Errors
    /// [`Error::MissingTool`]; [`Error::Failed`] if tshark fails; [`Error::Timeout`].
    pub fn read(file: &Path) -> Result<Self> {
        let mut tshark = Invocation::tool("tshark", "capture")?
            .args(["-n", "-r"])
            .arg(file)
            // Threads of one program that send on two processors overtake each other, most when the
            // host steals processor time. Without this option tshark does not match the replies to
            // the calls of such segments. Calls that follow their replies need the second pass.
            .args(["-2", "-o", "tcp.reassemble_out_of_order:TRUE"])
            // Clients call from low ports, which are registered for other protocols.
            .args(["-d", "tcp.port==2049,rpc", "-o", "tcp.try_heuristic_first:TRUE"])
            .args(["-o", "udp.try_heuristic_first:TRUE"])
            .args(["-Y", "rpc or _ws.malformed or _ws.short or _ws.expert.severity == 8388608"])
            .args(["-T", "fields", "-E", "occurrence=a"]);
        for (name, _) in FIELDS {
            tshark = tshark.args(["-e", name]);
        }
        // Ignore any user's own settings.
        let settings = file.parent().unwrap_or(file);
        let read = tshark.env("WIRESHARK_CONFIG_DIR", settings).check(DISSECTION_LIMIT)?;
        Self::parse(&read)
    }

    fn parse(read: &Outcome) -> Result<Self> {
        let mut talk = Self::default();
        for line in read.text().lines() {
            let values: Vec<&str> = line.split('\t').collect();
            let [frame, from, kinds, programs, procedures, signs @ ..] = values.as_slice() else {
                return Err(Error::Malformed(format!("tshark: {line}")));
            };
            let mut found: Vec<String> = FIELDS
                .iter()
                .skip(values.len() - signs.len())
                .zip(signs)
                .filter(|((_, judge), value)| judge.is_fault(value, from))
                .map(|((name, _), value)| format!("{name}={value}"))
                .collect();
            let (kinds, programs) = (numbers(kinds)?, numbers(programs)?);
            let procedures = numbers(procedures)?;
            if programs.len() != kinds.len() || procedures.len() != kinds.len() {
                found.push("a reply to no call".into());
            }
            for ((kind, program), procedure) in kinds.iter().zip(programs).zip(procedures) {
                if *kind == REPLY {
                    *talk.replies.entry((program, procedure)).or_default() += 1;
                }
            }
            if let [only] = &found[..]
                && only.strip_prefix("rpc.continuation_data=").is_some_and(is_whole_reply)
            {
                talk.unmatched.push(format!("frame {frame} from {from}: reply to no call, {only}"));
            } else if !found.is_empty() {
                let why = signs.last().unwrap_or(&"");
                talk.faults.push(format!("frame {frame} from {from}: {} {why}", found.join(" ")));
            }
        }
        Ok(talk)
    }

    /// The number of replies to a procedure.
    #[must_use]
    pub fn replies(&self, program: u32, procedure: u32) -> u64 {
        self.replies.get(&(program, procedure)).copied().unwrap_or(0)
    }

    /// Checks that all messages were well-formed, and that each of these procedures of these
    /// programs was answered.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the messages at fault, or the missing procedures.
    pub fn is_sound_with(&self, expected: &[(u32, &[u32])]) -> Result<()> {
        // With one segment in fifteen out of order tshark still misses the call of one reply in
        // 7,000. A server that invents replies has more.
        let seen = self.replies.values().sum::<u64>();
        let unmatched = u64::try_from(self.unmatched.len()).unwrap_or(u64::MAX);
        let unmatched = if unmatched > seen / UNMATCHED_SHARE { &self.unmatched[..] } else { &[] };
        let faults: Vec<&String> = self.faults.iter().chain(unmatched).collect();
        if !faults.is_empty() {
            let some = faults.get(..20).unwrap_or(&faults);
            return Err(Error::Mismatch(format!("{} frames at fault: {some:#?}", faults.len())));
        }
        let all = expected.iter().flat_map(|(program, procedures)| {
            procedures.iter().map(move |procedure| (*program, *procedure))
        });
        let missing: Vec<_> =
            all.filter(|(p, procedure)| self.replies(*p, *procedure) == 0).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let what = format!("no reply to {missing:?} was captured, of {:?}", self.replies);
        Err(Error::Mismatch(what))
    }
}

/// One line per program: how many times each procedure was answered.
impl std::fmt::Display for Talk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut last = None;
        write!(out, "captured replies by procedure,")?;
        for ((program, procedure), count) in &self.replies {
            if last.replace(program) != Some(program) {
                write!(out, " program {program}:")?;
            }
            write!(out, " {procedure}:{count}")?;
        }
        Ok(())
    }
}

/// How a field of a frame counts as a fault.
enum Judge {
    /// Never by itself.
    Never,
    /// Whenever the frame has it.
    Always,
    /// If its value is the severity of an error (warnings are TCP's own: a full window).
    Severity,
    /// If the frame comes from one of the server's ports.
    FromServer,
}

impl Judge {
    fn is_fault(&self, value: &str, from: &str) -> bool {
        match self {
            Self::Never => false,
            Self::Always => !value.is_empty(),
            Self::Severity => value.split(',').any(|severity| severity == ERROR),
            Self::FromServer => !value.is_empty() && SERVER_PORTS.contains(&from),
        }
    }
}

/// Whether these hexadecimal digits are one record with a reply (RFC 5531 section 11).
fn is_whole_reply(digits: &str) -> bool {
    let word = |number: usize| {
        let digits = digits.get(8 * number..8 * number + 8)?;
        u32::from_str_radix(digits, 16).ok()
    };
    let length = u32::try_from(digits.len() / 2).unwrap_or(0);
    word(0) == length.checked_sub(4).map(|length| length | 0x8000_0000) && word(2) == Some(REPLY)
}

fn numbers(values: &str) -> Result<Vec<u32>> {
    let values = values.split(',').filter(|value| !value.is_empty());
    let parsed = values.map(|value| value.parse().map_err(|_| value));
    parsed
        .collect::<std::result::Result<_, _>>()
        .map_err(|value| Error::Malformed(format!("tshark printed {value:?} for a number")))
}

/// NFS: every procedure of RFC 1813 section 3.
pub const NFS: (u32, &[u32]) =
    (100_003, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]);
/// The portmapper's program.
pub const PORTMAP: u32 = 100_000;
/// MOUNT's.
pub const MOUNT: u32 = 100_005;
/// The lock manager's.
pub const NLM: u32 = 100_021;
/// The status monitor's.
pub const NSM: u32 = 100_024;

/// The first five are read by position.
const FIELDS: &[(&str, Judge)] = &[
    ("frame.number", Judge::Never),
    ("tcp.srcport", Judge::Never),
    ("rpc.msgtyp", Judge::Never),
    ("rpc.program", Judge::Never),
    ("rpc.procedure", Judge::Never),
    ("_ws.malformed", Judge::Always),
    ("_ws.short", Judge::Always),
    ("_ws.expert.severity", Judge::Severity),
    ("rpc.fragment.error", Judge::Always),
    ("rpc.fragment.toolongfragment", Judge::Always),
    ("rpc.fragment.overlap.conflict", Judge::Always),
    ("rpc.unknown_body", Judge::Always),
    ("rpc.cannot_dissect", Judge::Always),
    // Bytes of a message beyond the arguments or results of its procedure.
    ("data.len", Judge::Always),
    ("rpc.continuation_data", Judge::FromServer),
    ("_ws.expert.message", Judge::Never),
];
/// RFC 5531 section 9, `msg_type`.
const REPLY: u32 = 1;
/// Wireshark's `PI_ERROR`.
const ERROR: &str = "8388608";
/// At most one in this many replies may match no call.
const UNMATCHED_SHARE: u64 = 1000;
const SERVER_PORTS: [&str; 2] = ["111", "2049"];
/// A reader that gets no processor for a second must not lose a gigabit's worth of packets.
const BUFFER_MIB: &str = "64";
const SOON: Duration = Duration::from_secs(60);
const DISSECTION_LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
