//! Commands in progress in a guest: their output, and how they ended.
//!
//! Invariant: once the guest is gone, all waiting ends.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Guest, frame::Frame};
use crate::{Error, Result};

/// How a command in the guest ended.
#[derive(Clone, Debug)]
pub struct Step {
    /// The command line.
    pub command: String,
    /// Exit status; 128 + number for a signal.
    pub status: i32,
    /// Standard output and error, as printed.
    pub output: String,
    /// Time since the command was sent.
    pub took: Duration,
}

impl Step {
    /// The step itself if its exit status is 0.
    ///
    /// # Errors
    /// [`Error::Failed`] with its output.
    pub fn success(self) -> Result<Self> {
        if self.status == 0 {
            return Ok(self);
        }
        let what = format!("guest: {} (status {})", self.command, self.status);
        Err(Error::Failed { what, said: self.output })
    }
}

/// A command in progress.
#[derive(Debug)]
pub struct Job<'a> {
    guest: &'a Guest,
    number: u32,
    command: String,
    started: Instant,
}

impl<'a> Job<'a> {
    pub(super) fn new(guest: &'a Guest, number: u32, command: &str) -> Self {
        Self { guest, number, command: command.to_owned(), started: Instant::now() }
    }

    /// Its output so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.guest.jobs.lock().output(self.number)
    }

    /// Waits until `enough` holds for the output so far, and returns the output.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Failed`] if the command or the guest ends before that.
    pub fn wait_output(&self, enough: impl Fn(&str) -> bool, limit: Duration) -> Result<String> {
        let what = format!("output of {}", self.command);
        self.guest.jobs.wait(&what, limit, |state| {
            let output = state.output(self.number);
            if enough(&output) {
                return Some(Ok(output));
            }
            let status = state.jobs.get(&self.number).and_then(|job| job.status)?;
            let what = format!("guest: {} (status {status}) before it printed", self.command);
            Some(Err(Error::Failed { what, said: output }))
        })
    }

    /// Waits for the end; kills the command (SIGKILL) at `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the output, [`Error::Failed`] if the guest ends meanwhile.
    pub fn wait(self, limit: Duration) -> Result<Step> {
        let ended = self.guest.jobs.wait(&self.command, limit, |state| {
            let status = state.jobs.get(&self.number).and_then(|job| job.status)?;
            Some(Ok((status, state.output(self.number))))
        });
        match ended {
            Ok((status, output)) => {
                Ok(Step { command: self.command, status, output, took: self.started.elapsed() })
            }
            Err(Error::Timeout { what, limit, .. }) => {
                self.signal(SIGKILL)?;
                let said = format!("{}\nconsole: {}", self.output(), self.guest.machine.said());
                Err(Error::Timeout { what, limit, said })
            }
            Err(other) => Err(other),
        }
    }

    /// Sends a signal, by its number, to the command and its children.
    ///
    /// # Errors
    /// [`Error::Io`] if the guest is gone.
    pub fn signal(&self, number: i32) -> Result<()> {
        self.guest.send(self.number, &Frame::Signal(number))
    }
}

/// All commands of a guest; shared with the receiving thread.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    gone: Option<String>,
    jobs: HashMap<u32, JobState>,
}

#[derive(Debug, Default)]
struct JobState {
    output: Vec<u8>,
    status: Option<i32>,
}

impl State {
    fn output(&self, number: u32) -> String {
        let output = self.jobs.get(&number).map(|job| String::from_utf8_lossy(&job.output));
        output.unwrap_or_default().into_owned()
    }
}

impl Jobs {
    pub(super) fn open(&self, number: u32) {
        self.lock().jobs.insert(number, JobState::default());
    }

    pub(super) fn received(&self, number: u32, frame: Frame) {
        let mut state = self.lock();
        match (frame, state.jobs.get_mut(&number)) {
            (Frame::Ready, _) => state.ready = true,
            (Frame::Output(bytes), Some(job)) => job.output.extend_from_slice(&bytes),
            (Frame::Exit(status), Some(job)) => job.status = Some(status),
            (other, _) => {
                // All waiting ends: later frames could not be trusted.
                state.gone = Some(format!("unexpected frame for job {number}: {other:?}"));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn gone(&self, why: &str) {
        self.lock().gone.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
    }

    pub(super) fn wait_ready(&self, limit: Duration) -> Result<()> {
        self.wait("boot of the guest", limit, |state| state.ready.then_some(Ok(())))
    }

    /// Waits until `done` returns a value; calls it once more after the guest is gone.
    fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        done: impl Fn(&State) -> Option<Result<T>>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(result) = done(&state) {
                return result;
            }
            if let Some(why) = &state.gone {
                let said = format!("the guest is gone: {why}");
                return Err(Error::Failed { what: what.to_owned(), said });
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Err(Error::Timeout { what: what.to_owned(), limit, said: String::new() });
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SIGKILL: i32 = 9;
