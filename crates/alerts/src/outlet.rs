//! An outlet: a queue, and a thread that sends.
//!
//! Invariants:
//! - Nobody waits for an outlet: a server that hangs delays its own messages, and nothing else.
//! - The queue is bounded. If too many wait, the oldest is given up, counted, and logged.
//! - A message that was not sent is tried again, at growing intervals.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{OutletInfo, OutletKind, Severity};
use parking_lot::{Condvar, Mutex};

use crate::message::Message;

/// Means of sending a message.
pub(crate) trait Sender: Debug + Send + Sync {
    /// Sends it. Takes a minute at most.
    ///
    /// # Errors
    /// Why it was not sent, in one line.
    fn send(&self, message: &Message) -> Result<(), String>;
}

/// An outlet.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub name: String,
    pub kind: OutletKind,
    pub least: Severity,
    sender: Box<dyn Sender>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Message>,
    /// The one that is being sent.
    sending: Option<Message>,
    ended: bool,
    sent: u64,
    failed: u64,
    dropped: u64,
    last_sent_ns: Option<u64>,
    last_error: Option<String>,
}

impl Outlet {
    /// Starts its thread.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(
        name: String,
        kind: OutletKind,
        least: Severity,
        sender: Box<dyn Sender>,
    ) -> std::io::Result<Arc<Outlet>> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let outlet = Arc::new(Outlet { name, kind, least, sender, state, changed });
        let sends = Arc::clone(&outlet);
        let thread = std::thread::Builder::new().name(format!("alerts-{}", kind.word()));
        thread.spawn(move || sends.run())?;
        Ok(outlet)
    }

    /// Hands over what is severe enough.
    pub fn put(&self, message: &Message) {
        let Some(message) = message.of(self.least) else { return };
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            state.waiting.pop_front();
            state.dropped += 1;
            tracing::warn!(
                outlet = %self.name, dropped = state.dropped,
                "an alert was not sent: too many wait for this outlet"
            );
        }
        state.waiting.push_back(message);
        self.changed.notify_all();
    }

    /// Returns the messages that were handed over, and are neither sent nor given up.
    pub fn waiting(&self) -> Vec<Message> {
        let state = self.state.lock();
        state.sending.iter().chain(&state.waiting).cloned().collect()
    }

    /// Sends a message now, past the queue.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn test(&self, message: &Message) -> Result<(), String> {
        let sent = self.sender.send(message);
        self.note(&mut self.state.lock(), message, &sent);
        sent
    }

    pub fn info(&self) -> OutletInfo {
        let state = self.state.lock();
        OutletInfo {
            name: self.name.clone(),
            kind: self.kind,
            sent: state.sent,
            failed: state.failed,
            waiting: state.waiting.len() as u64 + u64::from(state.sending.is_some()),
            dropped: state.dropped,
            last_sent_ns: state.last_sent_ns,
            last_error: state.last_error.clone(),
        }
    }

    /// Ends its thread, once what is being sent is sent.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        let mut rest = RETRY_MIN;
        loop {
            let message = {
                let mut state = self.state.lock();
                loop {
                    if state.ended {
                        return;
                    }
                    if let Some(message) = state.waiting.pop_front() {
                        state.sending = Some(message.clone());
                        break message;
                    }
                    self.changed.wait(&mut state);
                }
            };
            let sent = self.sender.send(&message);
            let mut state = self.state.lock();
            state.sending = None;
            self.note(&mut state, &message, &sent);
            if sent.is_ok() {
                rest = RETRY_MIN;
                continue;
            }
            // It goes first again, unless it is the one too many now.
            if state.waiting.len() < WAITING_MAX {
                state.waiting.push_front(message);
            } else {
                state.dropped += 1;
            }
            if !state.ended {
                let until = std::time::Instant::now() + rest;
                // A new message does not make an outlet that fails be asked more often.
                while !state.ended && !self.changed.wait_until(&mut state, until).timed_out() {}
            }
            rest = (rest * 2).min(RETRY_MAX);
        }
    }

    fn note(&self, state: &mut State, message: &Message, sent: &Result<(), String>) {
        match sent {
            Ok(()) => {
                state.sent += 1;
                state.last_sent_ns = Some(message.at_ns);
                state.last_error = None;
            }
            Err(why) => {
                if state.last_error.as_ref() != Some(why) {
                    tracing::warn!(outlet = %self.name, error = %why, "an alert was not sent");
                }
                state.failed += 1;
                state.last_error = Some(why.clone());
            }
        }
    }
}

/// Messages that wait at most: of a server that does not answer for days.
const WAITING_MAX: usize = 64;
/// The first and the longest rest before a message is tried again.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(600);
/// How long each outlet may take for one message.
pub(crate) const SEND_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Hangs(Arc<Mutex<bool>>);

    impl Sender for Hangs {
        fn send(&self, _: &Message) -> Result<(), String> {
            while *self.0.lock() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
    }

    #[test]
    fn an_outlet_that_hangs_holds_up_nobody_and_forgets_the_oldest() {
        let hangs = Arc::new(Mutex::new(true));
        let sender = Box::new(Hangs(Arc::clone(&hangs)));
        let kind = OutletKind::Command;
        let outlet = Outlet::start("x".into(), kind, Severity::Info, sender).unwrap();
        let many = WAITING_MAX as u64 + 6;
        (0..many).for_each(|at| outlet.put(&Message::test("store", at)));
        let waits = outlet.info();
        assert!(waits.waiting <= WAITING_MAX as u64 + 1, "{waits:?}");
        assert!((5..=6).contains(&waits.dropped), "{waits:?}");
        *hangs.lock() = false;
        while !outlet.waiting().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let done = outlet.info();
        assert_eq!(done.sent + done.dropped, many);
        assert_eq!(done.last_sent_ns, Some(many - 1));
        outlet.end();
    }
}
