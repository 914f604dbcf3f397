//! The wire between host and guest agent: frames on a byte stream.
//!
//! ```text
//! | kind u8 | job u32 LE | length u32 LE | payload: length bytes, at most FRAME_BYTES_MAX |
//! ```
//!
//! Invariants: the host chooses job numbers and never reuses one. The guest sends any number of
//! `Output` frames for a job, then one `Exit`, and nothing after. Decoding is total: bad bytes give
//! an error.

use std::io::{Error, ErrorKind, Read, Result, Write};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Host: run this shell command line.
    Run(Vec<u8>),
    /// Host: send this signal to the job's process group.
    Signal(i32),
    /// Guest: the agent is up.
    Ready,
    /// Guest: the job printed this, standard output and error in order.
    Output(Vec<u8>),
    /// Guest: the job ended with this status; a signal counts as 128 + its number, as in a shell.
    Exit(i32),
}

/// Writes a frame in one piece.
///
/// # Errors
/// Those of the stream; `InvalidInput` for a payload over [`FRAME_BYTES_MAX`].
pub fn write(stream: &mut impl Write, job: u32, frame: &Frame) -> Result<()> {
    let (kind, payload) = match frame {
        Frame::Run(command) => (RUN, command.clone()),
        Frame::Signal(number) => (SIGNAL, number.to_le_bytes().to_vec()),
        Frame::Ready => (READY, Vec::new()),
        Frame::Output(bytes) => (OUTPUT, bytes.clone()),
        Frame::Exit(status) => (EXIT, status.to_le_bytes().to_vec()),
    };
    let too_long = || Error::new(ErrorKind::InvalidInput, "frame too long");
    let length = u32::try_from(payload.len()).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(too_long)?;
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&job.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&payload);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Reads a frame and the number of its job.
///
/// # Errors
/// Those of the stream (`UnexpectedEof` at its end); `InvalidData` for bytes that are no frame.
pub fn read(stream: &mut impl Read) -> Result<(u32, Frame)> {
    let [kind] = read_array(stream)?;
    let job = u32::from_le_bytes(read_array(stream)?);
    let length = u32::from_le_bytes(read_array(stream)?);
    if length > FRAME_BYTES_MAX {
        return Err(bad(format!("frame of {length} bytes")));
    }
    let mut payload = vec![0; usize::try_from(length).map_err(|_| bad("length".into()))?];
    stream.read_exact(&mut payload)?;
    let word = || <[u8; 4]>::try_from(payload.as_slice()).map_err(|_| bad("payload".into()));
    let frame = match kind {
        SIGNAL => Frame::Signal(i32::from_le_bytes(word()?)),
        READY => Frame::Ready,
        EXIT => Frame::Exit(i32::from_le_bytes(word()?)),
        RUN => Frame::Run(payload),
        OUTPUT => Frame::Output(payload),
        other => return Err(bad(format!("frame kind {other}"))),
    };
    Ok((job, frame))
}

fn read_array<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Longest payload. Output is sent in far smaller pieces; this bounds a command line.
pub const FRAME_BYTES_MAX: u32 = 1 << 20;

const RUN: u8 = 1;
const SIGNAL: u8 = 2;
const READY: u8 = 3;
const OUTPUT: u8 = 4;
const EXIT: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_sent() {
        let frames = [
            Frame::Run(b"echo".to_vec()),
            Frame::Signal(9),
            Frame::Ready,
            Frame::Output(vec![0, 255, b'\n']),
            Frame::Exit(-1),
        ];
        let mut bytes = Vec::new();
        for (job, frame) in (0..).zip(&frames) {
            write(&mut bytes, job, frame).unwrap();
        }
        let mut stream = bytes.as_slice();
        for (job, frame) in (0..).zip(frames) {
            assert_eq!(read(&mut stream).unwrap(), (job, frame));
        }
        assert_eq!(read(&mut stream).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn bad_bytes_are_errors() {
        let mut unknown: &[u8] = &[99, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(&mut unknown).unwrap_err().kind(), ErrorKind::InvalidData);
        let mut endless: &[u8] = &[OUTPUT, 0, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(read(&mut endless).unwrap_err().kind(), ErrorKind::InvalidData);
        let mut short_word: &[u8] = &[EXIT, 0, 0, 0, 0, 1, 0, 0, 0, 7];
        assert_eq!(read(&mut short_word).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
