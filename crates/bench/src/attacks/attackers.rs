//! The attacks: their attackers, and the pace of each.
//!
//! Each attacker is a thread of this program with the lowest priority (nice 19), at a pace of its
//! own. So the measured host and the daemon get a processor when they need one. Any loss of service
//! for the host comes from the daemon. `elsewhere` is the control: as much work for the attackers,
//! and none of it reaches the daemon.

mod doors;
mod insiders;
mod lockers;
mod strangers;
mod tokens;

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::place::Place;

/// One attacker, until the attack is over.
type Attacker = fn(&Field<'_>);

/// An attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// A description for people.
    pub what: &'static str,
    /// The attackers that take part.
    crew: &'static [&'static [Attacker]],
}

impl Attack {
    /// Whether it is the control, which does not touch the daemon.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.name == ELSEWHERE
    }

    /// All attackers that take part.
    pub(super) fn crew(&self) -> impl Iterator<Item = Attacker> {
        self.crew.iter().flat_map(|crew| crew.iter()).copied()
    }
}

/// The control.
const ELSEWHERE: &str = "elsewhere";

/// All attacks, in the order in which they come.
pub const ATTACKS: [Attack; 16] = [
    Attack {
        name: ELSEWHERE,
        what: "the counterproof: connections, datagrams and arithmetic that the daemon never sees",
        crew: &[&doors::ELSEWHERE],
    },
    Attack {
        name: "idle",
        what: "strangers open connections and hold them",
        crew: &[&strangers::IDLE],
    },
    Attack {
        name: "garbage",
        what: "strangers, and users on the host, send broken, half and huge records",
        crew: &[&strangers::GARBAGE],
    },
    Attack {
        name: "calls",
        what: "strangers call NFS, MOUNT and the portmapper, with handles real and invented",
        crew: &[&strangers::CALLS],
    },
    Attack {
        name: "guest",
        what: "a user without privileges at the host's address ends its locks, over TCP and UDP",
        crew: &[&lockers::GUEST],
    },
    Attack {
        name: "names",
        what: "another host that is let in locks under ever new names, many locks of one file",
        crew: &[&lockers::NAMES],
    },
    Attack {
        name: "datagrams",
        what: "forged datagrams of the host's superuser",
        crew: &[&lockers::DATAGRAMS],
    },
    Attack {
        name: "api",
        what: "strangers hold the API's port: silent, half requests, wrong tokens",
        crew: &[&doors::API],
    },
    Attack {
        name: "tls",
        what: "strangers begin TLS on the port of NFS, and leave or go on",
        crew: &[&doors::TLS],
    },
    Attack {
        name: "addresses",
        what: "hosts that are let in hold connections from thousands of addresses and high ports",
        crew: &[&insiders::ADDRESSES],
    },
    Attack {
        name: "readers",
        what: "hosts that are let in list all files of all snapshots",
        crew: &[&insiders::READERS],
    },
    Attack {
        name: "snapshots",
        what: "a host takes and destroys snapshots on 16 connections, and a user of it tries to",
        crew: &[&insiders::SNAPSHOTS],
    },
    Attack {
        name: "tokens",
        what: "tokens of each role hold the API, ask for much, and try what they may not",
        crew: &[&tokens::TOKENS],
    },
    Attack {
        name: "senders",
        what: "a token that may receive sends rubbish, under ever new names, and halves of streams",
        crew: &[&tokens::SENDERS],
    },
    Attack {
        name: "inside",
        what: "all that are let in or have a token, at once",
        crew: &[
            &insiders::ADDRESSES,
            &insiders::READERS,
            &insiders::SNAPSHOTS,
            &tokens::TOKENS,
            &tokens::SENDERS,
        ],
    },
    Attack {
        name: "all",
        what: "all attacks of strangers and neighbours at once",
        crew: &[
            &strangers::IDLE,
            &strangers::GARBAGE,
            &strangers::CALLS,
            &lockers::GUEST,
            &lockers::NAMES,
            &lockers::DATAGRAMS,
            &doors::API,
            &doors::TLS,
        ],
    },
];

/// State shared by the attackers.
pub(super) struct Field<'a> {
    pub place: &'a Place,
    pub over: &'a AtomicBool,
    /// Number of connections, calls and datagrams that were sent.
    asked: AtomicU64,
    /// Number of those that were admitted or answered, whatever the answer.
    answered: AtomicU64,
}

impl<'a> Field<'a> {
    pub fn new(place: &'a Place, over: &'a AtomicBool) -> Self {
        Field { place, over, asked: AtomicU64::new(0), answered: AtomicU64::new(0) }
    }

    /// Returns how many were sent, and how many of them were admitted or answered.
    pub fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    /// Repeats `act` at this pace until the attack is over. `act` returns how many of its messages
    /// were admitted or answered; its failures are part of the attack.
    fn repeat(&self, pace: Pace, mut act: impl FnMut(u32) -> io::Result<u64>) {
        let (mut begun, mut done) = (Instant::now(), 0);
        let pause = Duration::from_secs(1) / pace.per_second;
        for number in 0.. {
            let due = begun + pause * done;
            let now = Instant::now();
            if now > due + BEHIND_MAX {
                // It does not make up for acts that it missed.
                (begun, done) = (now, 0);
            } else if due > now + NAP {
                std::thread::sleep(due - now);
            }
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            done += 1;
            self.asked.fetch_add(pace.each, Ordering::Relaxed);
            match act(number) {
                Ok(answered) => drop(self.answered.fetch_add(answered, Ordering::Relaxed)),
                // After a failure it pauses, instead of retrying in a tight loop.
                Err(_) => std::thread::sleep(NAP),
            }
        }
    }
}

/// The pace of an attacker.
#[derive(Clone, Copy, Debug)]
struct Pace {
    per_second: u32,
    /// Messages in each act.
    each: u64,
}

impl Pace {
    const fn of(per_second: u32) -> Self {
        Pace { per_second, each: 1 }
    }

    const fn with(self, each: u64) -> Self {
        Pace { each, ..self }
    }
}

/// Open connections. When there are too many, the oldest is closed.
struct Held {
    streams: VecDeque<TcpStream>,
    most: usize,
}

impl Held {
    fn new(most: usize) -> Self {
        Held { streams: VecDeque::new(), most }
    }

    fn add(&mut self, stream: TcpStream) {
        if self.streams.len() >= self.most {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
    }
}

/// An attacker that is later than this does not catch up.
const BEHIND_MAX: Duration = Duration::from_millis(100);
/// The shortest sleep.
const NAP: Duration = Duration::from_micros(500);
