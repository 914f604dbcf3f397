//! Acts of a client on a file of its own, by names and lines in `.aquifer/FILE`, and what must come
//! of them.

use std::collections::BTreeMap;

use aquifer_files::{
    CreateHow, Credentials, FileHandle, FsError, Service, SetAttributes, Stability,
};
use aquifer_sim::Rng;

use super::DATASET;

/// Names of versions, and of clones, of each client.
const NAMES: u64 = 3;

#[derive(Clone, Debug, PartialEq)]
pub enum FileOp {
    Take(String),
    Destroy(String),
    Rollback(String),
    Clone(String, String),
    /// Removes a clone.
    Remove(String),
    /// Writes this into the file.
    Write(u64),
}

/// A file, its versions and its clones, by what is written in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    mark: u64,
    versions: BTreeMap<String, u64>,
    clones: BTreeMap<String, u64>,
}

/// Knowledge that a client has of its file.
#[derive(Clone, Debug, Default)]
pub struct KnownFile {
    state: State,
    handles: BTreeMap<String, FileHandle>,
    last_mark: u64,
    last_taken: Option<String>,
}

impl State {
    /// The status that an operation must have. A rollback may be refused all the same.
    pub fn expected(&self, op: &FileOp) -> u32 {
        match op {
            FileOp::Take(name) if self.versions.contains_key(name) => 1,
            FileOp::Clone(name, to) if self.versions.contains_key(name) => {
                u32::from(self.clones.contains_key(to))
            }
            FileOp::Destroy(name) | FileOp::Rollback(name) | FileOp::Clone(name, _)
                if !self.versions.contains_key(name) =>
            {
                2
            }
            FileOp::Remove(name) if !self.clones.contains_key(name) => 2,
            _ => 0,
        }
    }

    fn apply(&mut self, op: &FileOp) {
        let of = |state: &State, name: &String| state.versions.get(name).copied().unwrap_or(0);
        match op {
            FileOp::Take(name) => drop(self.versions.insert(name.clone(), self.mark)),
            FileOp::Destroy(name) => drop(self.versions.remove(name)),
            FileOp::Rollback(name) => self.mark = of(self, name),
            FileOp::Clone(name, to) => drop(self.clones.insert(to.clone(), of(self, name))),
            FileOp::Remove(name) => drop(self.clones.remove(name)),
            FileOp::Write(mark) => self.mark = *mark,
        }
    }
}

impl KnownFile {
    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn any_op(&mut self, at: usize, rng: &mut Rng) -> FileOp {
        let version = |rng: &mut Rng| format!("v{}", rng.below(NAMES));
        let clone = |rng: &mut Rng| format!("k{at}-{}", rng.below(NAMES));
        match (rng.below(10), self.last_taken.take()) {
            // It is the newest one most likely now, and may not be for long.
            (0..=6, Some(taken)) => FileOp::Rollback(taken),
            (0..=1, _) => FileOp::Take(version(rng)),
            (2..=3, _) => FileOp::Destroy(version(rng)),
            (4..=5, _) => FileOp::Clone(version(rng), clone(rng)),
            (6, _) => FileOp::Remove(clone(rng)),
            (7, _) => FileOp::Rollback(version(rng)),
            _ => {
                self.last_mark += 1;
                FileOp::Write(self.last_mark)
            }
        }
    }

    /// An operation was answered.
    pub fn done(&mut self, op: &FileOp, given: Option<FileHandle>) -> Result<(), String> {
        self.state.apply(op);
        match (op, given) {
            (FileOp::Take(name), Some(handle)) => {
                self.handles.insert(name.clone(), handle);
                self.last_taken = Some(name.clone());
            }
            (FileOp::Take(_), None) | (_, Some(_)) => {
                return Err(format!("{op:?}: another kind of answer"));
            }
            (FileOp::Destroy(name), None) => drop(self.handles.remove(name)),
            _ => {}
        }
        Ok(())
    }

    /// Checks that what is there is what the client knows, or what its open operation makes of
    /// that.
    pub async fn check(
        &self,
        service: &Service,
        at: usize,
        open: Option<&FileOp>,
    ) -> Result<(), String> {
        let found = find(service, at).await.map_err(|error| format!("client {at}: {error}"))?;
        let mut after = self.state.clone();
        if let Some(op) = open.filter(|op| self.state.expected(op) == 0) {
            after.apply(op);
        }
        let Some((seen, handles)) = found else {
            let is_new = self.state == State::default();
            return if is_new { Ok(()) } else { Err(format!("the file of client {at} is gone")) };
        };
        if seen != self.state && seen != after {
            return Err(format!("{seen:?} is there, may be {:?} or {after:?}", self.state));
        }
        let is_another = |name: &String, of: &FileHandle| {
            self.handles.get(name).is_some_and(|known| known != of)
        };
        match handles.iter().find(|(name, of)| is_another(name, of)) {
            Some((name, of)) => Err(format!("{name} is another one: {of:?}")),
            None => Ok(()),
        }
    }
}

fn name_of(at: usize) -> String {
    format!("f{at}")
}

async fn look(service: &Service, path: &[&str]) -> Result<FileHandle, FsError> {
    let mut at = service.files.root(DATASET).ok_or(FsError::Stale)?;
    for name in path {
        at = service.files.lookup(&Credentials::root(), at, name.as_bytes()).await.0?.handle;
    }
    Ok(at)
}

async fn read(service: &Service, file: FileHandle) -> Result<u64, FsError> {
    let data = service.files.read(&Credentials::root(), file, 0, 8).await?;
    let pieces = data.into_pieces();
    let bytes: Vec<u8> = pieces.flat_map(|(page, range)| page.as_slice()[range].to_vec()).collect();
    Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
}

type Found = (State, BTreeMap<String, FileHandle>);

/// Finds what is there of a client's file, and the handles of its versions.
async fn find(service: &Service, at: usize) -> Result<Option<Found>, FsError> {
    let name = name_of(at);
    let file = match look(service, &[&name]).await {
        Err(FsError::NotFound) => return Ok(None),
        file => file?,
    };
    let mut state = State { mark: read(service, file).await?, ..State::default() };
    let mut handles = BTreeMap::new();
    let versions = look(service, &[".aquifer", &name]).await?;
    for name in (0..NAMES).map(|number| format!("v{number}")) {
        let found = service.files.lookup(&Credentials::root(), versions, name.as_bytes()).await.0;
        match found {
            Err(FsError::NotFound) => {}
            found => {
                let handle = found?.handle;
                state.versions.insert(name.clone(), read(service, handle).await?);
                handles.insert(name, handle);
            }
        }
    }
    for name in (0..NAMES).map(|number| format!("k{at}-{number}")) {
        match look(service, &[&name]).await {
            Err(FsError::NotFound) => {}
            clone => drop(state.clones.insert(name, read(service, clone?).await?)),
        }
    }
    Ok(Some((state, handles)))
}

/// Has a client's file there.
pub async fn make(service: &Service, at: usize) -> Result<(), FsError> {
    let top = service.files.root(DATASET).ok_or(FsError::Stale)?;
    let how = CreateHow::Unchecked(SetAttributes::default());
    let name = name_of(at);
    let made = service.files.create(&Credentials::root(), top, name.as_bytes(), how).await;
    made.kept().await.0.map(drop)
}

pub async fn carry_out(
    service: &Service,
    (at, cred): (usize, &Credentials),
    op: &FileOp,
) -> Result<Option<FileHandle>, FsError> {
    let (files, file) = (&service.files, name_of(at));
    let versions = look(service, &[".aquifer", &file]).await?;
    let line = match op {
        FileOp::Take(name) => {
            let how = CreateHow::Unchecked(SetAttributes::default());
            let made = files.create(cred, versions, name.as_bytes(), how).await.kept().await.0;
            return made.map(|made| Some(made.handle));
        }
        FileOp::Destroy(name) => {
            return files
                .remove(cred, versions, name.as_bytes())
                .await
                .kept()
                .await
                .0
                .map(|()| None);
        }
        FileOp::Remove(name) => {
            let top = look(service, &[]).await?;
            return files.remove(cred, top, name.as_bytes()).await.kept().await.0.map(|()| None);
        }
        FileOp::Write(mark) => {
            let (file, data) = (look(service, &[&file]).await?, mark.to_le_bytes());
            let (wrote, _) = files.write(cred, file, 0, &data, Stability::FileSync).await;
            return wrote.map(|_| None);
        }
        FileOp::Rollback(name) => format!("rollback {name}\n"),
        FileOp::Clone(name, to) => format!("clone {name} {to}\n"),
    };
    let control = look(service, &[".aquifer", &file, "control"]).await?;
    files.write_control(cred, control, line.as_bytes(), 0).await.kept().await.0.map(|()| None)
}
