//! A client that does every operation on the files of its own directory, and checks its reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_blockio::buf::pages_of;
use aquifer_files::{
    CallId, CreateHow, Credentials, FileHandle, Files, FsError, Piece, SetAttributes, Stability,
    TOGETHER_MAX, TOGETHER_PAGES_MAX, dataset_below,
};
use aquifer_sim::Rng;

use crate::calls::{Op, Outcome, Sent};
use crate::model::DirectoryModel;

/// One client's knowledge: the present state, and the one that the call under way leads to.
#[derive(Default, Debug)]
pub struct Knowledge {
    pub is: DirectoryModel,
    pub may_be: Option<DirectoryModel>,
    /// An unanswered call that must not run twice.
    pub open: Option<Sent>,
    /// The newest such calls that were answered, with their answers.
    pub answered: VecDeque<(Sent, Outcome)>,
    next_file: u64,
    next_xid: u32,
}

pub type Shared = Arc<Mutex<Knowledge>>;

pub struct Client {
    pub files: Arc<Files>,
    pub world: Arc<dyn World>,
    pub directory: FileHandle,
    pub knowledge: Shared,
    pub rng: Rng,
    pub cred: Credentials,
}

const NAMES: u64 = 12;

pub fn allowed(error: &FsError) -> bool {
    matches!(error, FsError::NoSpace | FsError::Quota)
}

impl Client {
    fn name(&mut self) -> String {
        format!("f{}", self.rng.below(NAMES))
    }

    fn existing(&mut self) -> Option<String> {
        let knowledge = self.knowledge.lock().unwrap();
        let names: Vec<String> = knowledge.is.names.keys().cloned().collect();
        drop(knowledge);
        self.rng.pick(&names).cloned()
    }

    /// Prints an operation, if the story of one seed is requested.
    pub fn say(&self, what: std::fmt::Arguments<'_>) {
        if std::env::var("AQUIFER_SEED").is_ok() {
            println!("{:>12?} {:?}: {what}", self.world.now(), self.directory.object);
        }
    }

    /// The next call, with its id.
    fn next_call(&self, op: Op) -> Sent {
        let mut knowledge = self.knowledge.lock().unwrap();
        knowledge.next_file += 1;
        knowledge.next_xid += 1;
        // The directory tells clients and datasets apart; the rest is in the transaction id.
        let said = self.directory.encode();
        let id = CallId::new([7; 16], knowledge.next_xid, (100_003, 1), &said);
        Sent { id, op, file: knowledge.next_file }
    }

    /// Notes the effect that a call would have on the directory.
    fn expect(&self, change: impl FnOnce(&mut DirectoryModel, u64)) {
        let mut knowledge = self.knowledge.lock().unwrap();
        knowledge.next_file += 1;
        let (mut after, file) = (knowledge.is.clone(), knowledge.next_file);
        change(&mut after, file);
        knowledge.may_be = Some(after);
    }

    fn done<T>(&self, result: Result<T, FsError>) -> Result<(), String> {
        self.say(format_args!("  done: {:?}", result.as_ref().err()));
        let mut knowledge = self.knowledge.lock().unwrap();
        let after = knowledge.may_be.take();
        match result {
            Ok(_) => knowledge.is = after.unwrap(),
            Err(error) if allowed(&error) => {}
            Err(error) => {
                // It may have been carried out all the same.
                knowledge.may_be = after;
                return Err(format!("unexpected: {error}"));
            }
        }
        Ok(())
    }

    async fn handle(&self, name: &str) -> Result<FileHandle, String> {
        let (found, _) = self.files.lookup(&self.cred, self.directory, name.as_bytes()).await;
        found.map(|attributes| attributes.handle).map_err(|e| format!("lookup {name}: {e}"))
    }

    pub async fn run(mut self, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            self.step().await?;
            // Txgs close after 15 s or when full: far too seldom for a short life.
            if self.rng.below(12) == 0 {
                self.files.datasets().pool().request_txg();
            }
            if self.rng.below(30) == 0 {
                let pause = Duration::from_millis(self.rng.below(50));
                self.world.sleep(pause).await;
            }
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..=17 => self.create().await,
            18..=44 => self.write().await,
            45..=52 => self.write_together().await,
            53..=62 => self.commit().await,
            63..=70 => self.truncate().await,
            71..=78 => self.remove().await,
            79..=86 => self.rename().await,
            87..=90 => self.link().await,
            91..=93 => self.overwrite().await,
            94 if self.rng.below(4) == 0 => self.stream().await,
            _ => self.read().await,
        }
    }

    async fn create(&mut self) -> Result<(), String> {
        let name = self.name();
        let how = if self.rng.coin() {
            CreateHow::Guarded(SetAttributes::default())
        } else {
            CreateHow::Exclusive(self.rng.next_u64())
        };
        self.call(Op::Create(name, how)).await
    }

    async fn write(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        let (offset, count) = match self.rng.below(10) {
            0..=4 => (self.rng.below(24) * 4096, 4096),
            5..=7 => (self.rng.below(90_000), 1 + self.rng.below(9_000)),
            8 => (self.rng.below(4) * 4096, (16 + self.rng.below(20)) * 4096),
            // Far from the rest, but not too far for the model, which reads whole files.
            _ => (self.rng.below(256 * 1024), 1 + self.rng.below(5_000)),
        };
        let stability = if self.rng.coin() { Stability::FileSync } else { Stability::Unstable };
        self.write_at(&name, offset, count, stability).await
    }

    async fn write_at(
        &mut self,
        name: &str,
        offset: u64,
        count: u64,
        stability: Stability,
    ) -> Result<(), String> {
        let mut data = vec![0; count as usize];
        match self.rng.below(4) {
            0 => {}
            1 => data.fill(self.rng.next_u64() as u8),
            _ => self.rng.fill(&mut data),
        }
        self.write_data(name, offset, &data, stability).await
    }

    async fn write_data(
        &mut self,
        name: &str,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<(), String> {
        let handle = self.handle(name).await?;
        let stable = stability == Stability::FileSync;
        self.expect(|model, _| {
            let file = model.names[name];
            model.files.get_mut(&file).unwrap().write(offset, data, stable);
        });
        let end = offset + data.len() as u64;
        self.say(format_args!("write {name} {offset}..{end} {stability:?}"));
        let (result, _) = self.files.write(&self.cred, handle, offset, data, stability).await;
        self.done(result)
    }

    /// Several small writes outstanding together, some of them to the same pages. The file system
    /// makes them one change.
    async fn write_together(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        for _ in 0..2 + self.rng.below(TOGETHER_MAX as u64 - 1) {
            let page = match self.rng.below(8) {
                0 => self.rng.below(64),
                _ => self.rng.below(24),
            };
            let pages = 1 + self.rng.below(TOGETHER_PAGES_MAX as u64);
            let mut data = vec![0; pages as usize * 4096];
            if self.rng.below(8) > 0 {
                self.rng.fill(&mut data);
            }
            writes.push((page * 4096, data));
        }
        let handle = self.handle(&name).await?;
        let stable = self.rng.below(8) > 0;
        self.expect(|model, _| {
            let file = model.files.get_mut(&model.names[&name]).unwrap();
            writes.iter().for_each(|(offset, data)| file.write(*offset, data, stable));
        });
        let stability = if stable { Stability::FileSync } else { Stability::Unstable };
        self.say(format_args!("{} writes to {name} together {stability:?}", writes.len()));
        let paged: Vec<_> = writes.iter().map(|(at, data)| (*at, pages_of(data))).collect();
        let pieces: Vec<Piece<'_>> =
            paged.iter().map(|(at, pages)| Piece::of_pages(*at, pages)).collect();
        match self.files.write_batch(&self.cred, handle, &pieces, stability).await {
            Ok(made) => self.done(made.promised.kept().await.map(|()| made.stability)),
            Err(_) => {
                // Nothing was changed: the client makes them one by one.
                self.knowledge.lock().unwrap().may_be = None;
                self.say(format_args!("  one by one"));
                for (offset, data) in writes {
                    self.write_data(&name, offset, &data, stability).await?;
                }
                Ok(())
            }
        }
    }

    /// A page is written UNSTABLE in one txg, stable in the next, and committed: the old content
    /// must not come back.
    async fn overwrite(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        let offset = self.rng.below(24) * 4096;
        self.write_at(&name, offset, 4096, Stability::Unstable).await?;
        self.files.datasets().pool().request_txg();
        self.world.sleep(Duration::from_micros(self.rng.below(300))).await;
        self.write_at(&name, offset, 4096, Stability::FileSync).await?;
        self.commit_file(&name).await
    }

    /// A run is written UNSTABLE in pieces, in any order. The last piece completes it, and it goes
    /// early. Then some of it changes, and perhaps a COMMIT follows.
    async fn stream(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        const PIECES: u64 = 8;
        const PIECE_BYTES: u64 = (1 << 20) / PIECES;
        let (first, step) = (self.rng.below(PIECES), 1 + 2 * self.rng.below(PIECES / 2));
        let mut data = vec![7; PIECE_BYTES as usize];
        let packs = self.rng.below(8) == 0;
        for at in 0..PIECES {
            let piece = (first + at * step) % PIECES;
            let offset = piece * PIECE_BYTES;
            if !packs {
                self.rng.fill(&mut data);
            }
            self.write_data(&name, offset, &data, Stability::Unstable).await?;
        }
        match self.rng.below(4) {
            0 => self.commit_file(&name).await,
            1 => self.overwrite().await,
            2 => {
                let offset = self.rng.below(200) * 4096;
                self.write_at(&name, offset, 9000, Stability::Unstable).await?;
                self.commit_file(&name).await
            }
            _ => Ok(()),
        }
    }

    async fn commit(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        self.commit_file(&name).await
    }

    async fn commit_file(&mut self, name: &str) -> Result<(), String> {
        let handle = self.handle(name).await?;
        self.expect(|model, _| {
            let file = model.names[name];
            model.files.get_mut(&file).unwrap().commit_all();
        });
        self.say(format_args!("commit {name}"));
        let (result, _) = self.files.commit(&self.cred, handle, 0, 0).await.kept().await;
        self.done(result)
    }

    async fn truncate(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        let handle = self.handle(&name).await?;
        let size = self.rng.below(120_000);
        self.call(Op::Truncate(name, handle, size)).await
    }

    async fn remove(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else { return Ok(()) };
        self.call(Op::Remove(name)).await
    }

    async fn rename(&mut self) -> Result<(), String> {
        let Some(from) = self.existing() else { return Ok(()) };
        let to = self.name();
        self.call(Op::Rename(from, to)).await
    }

    async fn link(&mut self) -> Result<(), String> {
        let Some(from) = self.existing() else { return Ok(()) };
        let to = self.name();
        if self.knowledge.lock().unwrap().is.names.contains_key(&to) {
            return Ok(());
        }
        let handle = self.handle(&from).await?;
        self.call(Op::Link(from, handle, to)).await
    }

    /// Sends a call that must not run twice, and handles the answer.
    async fn call(&mut self, op: Op) -> Result<(), String> {
        let sent = self.next_call(op);
        {
            let mut knowledge = self.knowledge.lock().unwrap();
            let mut after = knowledge.is.clone();
            sent.change(&mut after);
            knowledge.may_be = Some(after);
            knowledge.open = Some(sent.clone());
        }
        self.say(format_args!("{sent}"));
        let outcome = self.send(&sent).await?;
        self.take_answer(sent, outcome);
        // Now and then the client misses the answer.
        if self.rng.below(8) == 0 { self.ask_again().await } else { Ok(()) }
    }

    pub fn take_answer(&self, sent: Sent, outcome: Outcome) {
        self.say(format_args!("  {outcome:?}"));
        let mut knowledge = self.knowledge.lock().unwrap();
        let after = knowledge.may_be.take();
        if let (Outcome::Done(_), Some(after)) = (outcome, after) {
            knowledge.is = after;
        }
        knowledge.open = None;
        knowledge.answered.push_back((sent, outcome));
        if knowledge.answered.len() > 20 {
            knowledge.answered.pop_front();
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        let Some(name) = self.existing() else {
            return Ok(());
        };
        let handle = self.handle(&name).await?;
        let (offset, count) = (self.rng.below(120_000), 1 + self.rng.below(20_000));
        let read = self.files.read(&self.cred, handle, offset, count as u32).await;
        let read = read.map_err(|e| format!("read {name}: {e}"))?;
        let (eof, mut bytes) = (read.eof, Vec::new());
        for (page, range) in read.into_pieces() {
            bytes.extend_from_slice(&page[range]);
        }
        let knowledge = self.knowledge.lock().unwrap();
        let file = &knowledge.is.files[&knowledge.is.names[&name]];
        if bytes != file.newest(offset, count as usize) {
            return Err(format!("{name} at {offset}: read {} other bytes", bytes.len()));
        }
        if eof != (offset + count >= file.size()) {
            return Err(format!("{name} at {offset}: wrong eof"));
        }
        Ok(())
    }
}

/// The content of a directory.
pub async fn snapshot(
    files: &Files,
    directory: FileHandle,
) -> Result<BTreeMap<String, (u64, Vec<u8>)>, String> {
    let cred = Credentials::root();
    let mut found = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let listed = files.readdir(&cred, directory, cookie, 5, true).await;
        let (entries, eof, _) = listed.map_err(|e| format!("readdir: {e}"))?;
        for entry in entries {
            cookie = entry.cookie;
            let name = String::from_utf8(entry.name).unwrap();
            // Datasets below are no files of this one.
            if name == "." || name == ".." || dataset_below(entry.handle).is_some() {
                continue;
            }
            let size = entry.attributes.ok_or(format!("{name}: no attributes"))?.size;
            let read = files.read(&cred, entry.handle, 0, size as u32).await;
            let read = read.map_err(|e| format!("read {name}: {e}"))?;
            let mut bytes = Vec::new();
            for (page, range) in read.into_pieces() {
                bytes.extend_from_slice(&page[range]);
            }
            found.insert(name, (entry.handle.object.0, bytes));
        }
        if eof {
            return Ok(found);
        }
    }
}

/// Compares a directory after a crash with its client's knowledge. If a call was under way, returns
/// whether it must have been carried out or cannot have been; `None` if that is unknown.
pub async fn check(
    files: &Files,
    directory: FileHandle,
    knowledge: &Shared,
) -> Result<Option<bool>, String> {
    let found = snapshot(files, directory).await?;
    let mut knowledge = knowledge.lock().unwrap();
    let may_be = knowledge.may_be.take();
    let mut carried_out = None;
    match (knowledge.is.accepts(&found), may_be) {
        (Ok(()), after) => {
            if after.is_some_and(|after| after.accepts(&found).is_err()) {
                carried_out = Some(false);
            }
        }
        (Err(why), None) => return Err(why),
        (Err(why), Some(after)) => {
            after.accepts(&found).map_err(|other| format!("{why}; or, after the call: {other}"))?;
            knowledge.is = after;
            carried_out = Some(true);
        }
    }
    knowledge.is.settle(&found);
    Ok(carried_out)
}
