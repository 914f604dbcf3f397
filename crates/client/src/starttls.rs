//! The question whether a server switches to TLS (RFC 9289), and its answer.
//!
//! Both are written here byte by byte, independent of the code of the server under test.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;

/// Asks over a blocking stream to switch to TLS.
///
/// # Errors
/// The server does not.
pub fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(&PROBE)?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    if answer == ANSWER { Ok(()) } else { Err(Error::other("the server does not say STARTTLS")) }
}

/// A NULL call of NFSv3 with an empty credential of flavor 7 (AUTH_TLS), marked as a record.
pub const PROBE: [u8; 44] = [
    0x80, 0, 0, 40, // the mark: the last fragment, 40 bytes
    0x70, 0x72, 0x62, 0x65, // xid
    0, 0, 0, 0, // a call
    0, 0, 0, 2, // of RPC version 2
    0, 1, 0x86, 0xa3, // to program 100003
    0, 0, 0, 3, // version 3
    0, 0, 0, 0, // procedure NULL
    0, 0, 0, 7, 0, 0, 0, 0, // AUTH_TLS, empty
    0, 0, 0, 0, 0, 0, 0, 0, // AUTH_NONE, empty
];

/// Accepted, with a verifier of STARTTLS.
pub const ANSWER: [u8; 36] = [
    0x80, 0, 0, 32, // the mark
    0x70, 0x72, 0x62, 0x65, // xid
    0, 0, 0, 1, // a reply
    0, 0, 0, 0, // accepted
    0, 0, 0, 0, 0, 0, 0, 8, b'S', b'T', b'A', b'R', b'T', b'T', b'L', b'S', // AUTH_NONE
    0, 0, 0, 0, // success
];
