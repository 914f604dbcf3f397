//! The guest's side: runs the host's commands and reports their output as it happens.
//!
//! Invariants: jobs run at the same time, each in a process group of its own, without input. `Exit`
//! is the last frame of a job. The agent ends when the host does.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::frame::{self, Frame};
use crate::{Error, Result};

/// Serves the host at the virtio port `port` until the host is gone.
///
/// # Errors
/// [`Error::Io`] if the port cannot be opened or breaks.
pub fn serve(port: &Path) -> Result<()> {
    let mut input = open(port)?;
    let output = Arc::new(Mutex::new(input.try_clone().map_err(Error::at("open", port))?));
    let groups = Arc::new(Mutex::new(HashMap::new()));
    send(&output, 0, &Frame::Ready).map_err(Error::at("write", port))?;
    loop {
        match frame::read(&mut PortReader(&mut input)) {
            Ok((job, Frame::Run(command))) => {
                let (output, groups) = (Arc::clone(&output), Arc::clone(&groups));
                thread::spawn(move || run(job, &command, &output, &groups));
            }
            Ok((job, Frame::Signal(number))) => {
                let groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
                if let (Some(group), Some(signal)) =
                    (groups.get(&job), Signal::from_named_raw(number))
                {
                    // Fails only for a group that has just ended, which is as good.
                    let _ = kill_process_group(*group, signal);
                }
            }
            Ok((_, other)) => return Err(Error::Malformed(format!("frame from host: {other:?}"))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(Error::at("read", port)(error)),
        }
    }
}

/// The port appears a moment after its driver, once device and driver have negotiated.
fn open(port: &Path) -> Result<File> {
    let mut tries = 0..CONNECT_TRIES;
    loop {
        match File::options().read(true).write(true).open(port) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries.next().is_some() => {
                thread::sleep(CONNECT_PAUSE);
            }
            opened => return opened.map_err(Error::at("open", port)),
        }
    }
}

type Groups = Mutex<HashMap<u32, Pid>>;

fn run(job: u32, command: &[u8], output: &Mutex<File>, groups: &Groups) {
    let status = match run_shell(job, command, output, groups) {
        Ok(status) => status,
        Err(error) => {
            let text = format!("agent: {error}\n").into_bytes();
            // If the port is broken, the host notices that by itself.
            let _ = send(output, job, &Frame::Output(text));
            STATUS_NOT_STARTED
        }
    };
    let _ = send(output, job, &Frame::Exit(status));
}

fn run_shell(job: u32, command: &[u8], output: &Mutex<File>, groups: &Groups) -> io::Result<i32> {
    let (mut reader, writer) = io::pipe()?;
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(String::from_utf8_lossy(command).as_ref())
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        groups.lock().unwrap_or_else(PoisonError::into_inner).insert(job, group);
    }
    // Until no process holds the pipe any more: a job with a remaining child has not ended.
    let mut buffer = vec![0; OUTPUT_BYTES_MAX];
    loop {
        let count = reader.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        send(output, job, &Frame::Output(bytes.to_vec()))?;
    }
    let status = child.wait();
    groups.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
    status.map(shell_status)
}

/// The status that a shell would give: 128 + number for a signal.
fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(-1)
}

fn send(output: &Mutex<File>, job: u32, frame: &Frame) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    frame::write(&mut *output, job, frame)
}

/// A virtio port reads as ended until the host's side is connected, which may happen a little after
/// the guest is up. QEMU connects it once and for all, so a later end is a real one.
struct PortReader<'a>(&'a mut File);

impl Read for PortReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..CONNECT_TRIES {
            let count = self.0.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            thread::sleep(CONNECT_PAUSE);
        }
        Ok(0)
    }
}

/// Waits for the port and for the host, 10 s in all.
const CONNECT_TRIES: u32 = 500;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Longest piece of output in a frame.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// A shell's status for a command that it could not start.
const STATUS_NOT_STARTED: i32 = 127;
