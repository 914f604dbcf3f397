//! Hostile input: targets for fuzzing, each a function that takes any bytes and panics if a promise
//! is broken.
//!
//! `make fuzz` builds them with coverage and lets libFuzzer search for such bytes. Inputs worth
//! keeping are in `corpus/TARGET`, and a plain test gives them to the targets again. A new target
//! is a function, a row in [`TARGETS`] and a directory with a first input or two.
//!
//! Invariant: a target depends on its input alone, except for the servers' pool, which lives for
//! several inputs (see [`server`]).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a target says what is wrong"
)]

pub mod callouts;
pub mod config;
pub mod cost;
pub mod disk;
pub mod dns;
pub mod http;
pub mod pool;
pub mod portmapper;
pub mod record;
pub mod server;
pub mod sharenfs;
pub mod stream;
pub mod wire;

#[path = "../../ondisk/tests/format/structures.rs"]
mod structures;

/// A parser or server that takes bytes from strangers.
#[derive(Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// A description of the target.
    pub about: &'static str,
    /// Tries these bytes.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 14] = [
    Target {
        name: "record",
        about: "record marking: any stream, cut anywhere, with and without detaching",
        run: record::run,
    },
    Target {
        name: "wire",
        about: "every XDR type of RPC, portmapper, MOUNT, NFSv3, NLM and NSM",
        run: wire::run,
    },
    Target {
        name: "portmapper",
        about: "messages to our portmapper, and answers of another one",
        run: portmapper::run,
    },
    Target {
        name: "calls",
        about: "calls of all programs to a server over a pool, made to be nearly right",
        run: server::calls,
    },
    Target { name: "crowd", about: "the same, to a server that thousands use", run: server::crowd },
    Target { name: "bytes", about: "any record to the same server", run: server::bytes },
    Target {
        name: "disk",
        about: "every structure of the format, with right checksums",
        run: disk::run,
    },
    Target { name: "dns", about: "answers to questions for addresses", run: dns::run },
    Target {
        name: "callouts",
        about: "answers of portmappers, status monitors and lock managers that are called",
        run: callouts::run,
    },
    Target {
        name: "pool",
        about: "a small pool, changed here and there, imported, read and inspected",
        run: pool::run,
    },
    Target {
        name: "config",
        about: "the same pool with another config in its labels",
        run: config::run,
    },
    Target { name: "http", about: "bytes on a connection to the API", run: http::run },
    Target { name: "sharenfs", about: "text of the property", run: sharenfs::run },
    Target {
        name: "stream",
        about: "streams of send: any bytes, and any records with right checksums",
        run: stream::run,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
