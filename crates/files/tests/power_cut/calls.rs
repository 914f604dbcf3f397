//! Calls that must not run twice, sent as a client sends them. The client sends a call again when
//! no answer comes. It does so on a new connection while the first is under way, and after a
//! restart of the server.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use aquifer_files::{
    Answer, Begun, CallId, CreateHow, Credentials, FileHandle, FsError, SetAttributes,
};
use futures_util::future::{Either, join, select};

use crate::model::{DirectoryModel, FileModel};
use crate::workload::{Client, allowed};

/// The operation of a call.
#[derive(Clone, Debug)]
pub enum Op {
    Create(String, CreateHow),
    Truncate(String, FileHandle, u64),
    Remove(String),
    Rename(String, String),
    Link(String, FileHandle, String),
}

/// A call, and its id in the duplicate request cache.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: CallId,
    pub op: Op,
    /// The model's number of the file that the call makes.
    pub file: u64,
}

/// An answer: the handle, if the call returned one; or a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Done(Option<FileHandle>),
    Failed,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (xid {})", self.op, self.id.xid)
    }
}

impl Sent {
    /// The effect of the call on a directory.
    pub fn change(&self, model: &mut DirectoryModel) {
        match &self.op {
            Op::Create(name, _) => {
                if !model.names.contains_key(name) {
                    model.names.insert(name.clone(), self.file);
                    model.files.insert(self.file, FileModel::default());
                }
            }
            Op::Truncate(name, _, size) => {
                let file = model.names[name];
                model.files.get_mut(&file).unwrap().truncate(*size);
            }
            Op::Remove(name) => model.drop_name(name),
            Op::Rename(from, to) => {
                let file = model.names[from];
                // Both names are of one file: nothing happens.
                if model.names.get(to) != Some(&file) {
                    model.drop_name(to);
                    model.names.remove(from);
                    model.names.insert(to.clone(), file);
                }
            }
            Op::Link(from, _, to) => {
                let file = model.names[from];
                model.names.insert(to.clone(), file);
            }
        }
    }
}

impl Client {
    /// Sends a call over an unreliable network: sometimes twice at once, sometimes the connection
    /// breaks.
    pub async fn send(&mut self, sent: &Sent) -> Result<Outcome, String> {
        match self.rng.below(8) {
            0 => {
                let (first, second) = join(self.deliver(sent), self.deliver(sent)).await;
                let (first, second) = (first?, second?);
                if first != second {
                    return Err(format!("{sent}: {first:?} and, at the same time, {second:?}"));
                }
                Ok(first)
            }
            1..=3 => {
                let patience = Duration::from_micros(self.rng.below(400));
                let lost = self.world.sleep(patience);
                if let Either::Left((answer, _)) = select(pin!(self.deliver(sent)), lost).await {
                    return answer;
                }
                self.say(format_args!("  connection lost"));
                self.deliver(sent).await
            }
            _ => self.deliver(sent).await,
        }
    }

    /// Handles a call as the protocol does.
    async fn deliver(&self, sent: &Sent) -> Result<Outcome, String> {
        let begun = self.files.datasets().replies().begin(sent.id).await;
        match begun.map_err(|error| format!("{sent}: {error}"))? {
            Begun::Answered(answer) => {
                self.say(format_args!("  answered again"));
                Ok(self.outcome(sent, &answer))
            }
            Begun::New(running) => {
                let outcome = self.carry_out(sent).await?;
                running.answered(u32::from(outcome == Outcome::Failed), b"");
                Ok(outcome)
            }
        }
    }

    fn outcome(&self, sent: &Sent, answer: &Answer) -> Outcome {
        let (entry, fs_guid) = (&answer.entry, self.directory.fs_guid);
        let handle = FileHandle { fs_guid, object: entry.object, generation: entry.generation };
        match (entry.status, &sent.op) {
            (0, Op::Create(..)) => Outcome::Done(Some(handle)),
            (0, _) => Outcome::Done(None),
            _ => Outcome::Failed,
        }
    }

    async fn carry_out(&self, sent: &Sent) -> Result<Outcome, String> {
        let cred = Credentials { call: Some(sent.id), ..self.cred.clone() };
        let (files, directory) = (&self.files, self.directory);
        let is_there = |name: &str| self.knowledge.lock().unwrap().is.names.contains_key(name);
        let done = |result: Result<(), FsError>| result.map(|()| None);
        let result = match &sent.op {
            Op::Create(name, how) => {
                let exists = is_there(name);
                let made =
                    files.create(&cred, directory, name.as_bytes(), *how).await.kept().await.0;
                match (exists, made) {
                    (true, Err(FsError::Exists)) => return Ok(Outcome::Failed),
                    (true, Ok(_)) => return Err(format!("{name} made twice")),
                    (_, made) => made.map(|attributes| Some(attributes.handle)),
                }
            }
            Op::Truncate(_, handle, size) => {
                let set = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                done(files.setattr(&cred, *handle, &set, None).await.kept().await.0)
            }
            Op::Remove(name) => {
                done(files.remove(&cred, directory, name.as_bytes()).await.kept().await.0)
            }
            Op::Rename(from, to) => {
                let (from, to) = ((directory, from.as_bytes()), (directory, to.as_bytes()));
                done(files.rename(&cred, from, to).await.kept().await.0)
            }
            Op::Link(_, handle, to) => {
                done(files.link(&cred, *handle, directory, to.as_bytes()).await.kept().await.0)
            }
        };
        match result {
            Ok(handle) => Ok(Outcome::Done(handle)),
            // A call that takes no more room than before works on a full pool too.
            Err(error) if allowed(&error) && matches!(sent.op, Op::Create(..) | Op::Link(..)) => {
                Ok(Outcome::Failed)
            }
            Err(error) => Err(format!("{sent}: unexpected: {error}")),
        }
    }

    /// The server was restarted. The client sends again every unanswered call, and some answered
    /// ones. `carried_out` is what the directory shows of the call that was under way.
    pub async fn after_restart(&mut self, carried_out: Option<bool>) -> Result<(), String> {
        let open = self.knowledge.lock().unwrap().open.clone();
        if let Some(sent) = open {
            let begun = self.files.datasets().replies().begin(sent.id).await;
            let is_known = matches!(begun, Ok(Begun::Answered(_)));
            drop(begun);
            match carried_out {
                Some(true) if !is_known => return Err(format!("{sent}: done, and not known")),
                Some(false) if is_known => return Err(format!("{sent}: known, and not done")),
                _ => {}
            }
            if !is_known {
                let mut knowledge = self.knowledge.lock().unwrap();
                let mut after = knowledge.is.clone();
                sent.change(&mut after);
                knowledge.may_be = Some(after);
            }
            self.say(format_args!("{sent}, again"));
            let outcome = self.send(&sent).await?;
            self.take_answer(sent, outcome);
        }
        for _ in 0..3 {
            self.ask_again().await?;
        }
        Ok(())
    }

    /// Sends an answered call again: it gets the same answer, and nothing happens. A restart may
    /// have made the server forget a failed call.
    pub async fn ask_again(&mut self) -> Result<(), String> {
        let answered = self.knowledge.lock().unwrap().answered.clone();
        let at = self.rng.index(answered.len().max(1));
        let Some((sent, outcome)) = answered.get(at) else { return Ok(()) };
        let begun = self.files.datasets().replies().begin(sent.id).await;
        match begun.map_err(|error| format!("{sent}: {error}"))? {
            Begun::Answered(answer) if self.outcome(sent, &answer) == *outcome => Ok(()),
            Begun::Answered(answer) => Err(format!("{sent}: was {outcome:?}, is {answer:?}")),
            Begun::New(_) if *outcome == Outcome::Failed => Ok(()),
            Begun::New(_) => Err(format!("{sent}: was {outcome:?}, is not known")),
        }
    }
}
