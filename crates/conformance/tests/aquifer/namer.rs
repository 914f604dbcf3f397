//! A client that makes, moves and removes names as long as its server lives, and continues with the
//! next server. It keeps calls outstanding, each on names of its own.
//!
//! Invariants: the effect of an answered call stays. An unanswered call was carried out whole or
//! not at all: a moved file is never under both names, nor under none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use aquifer_conformance::{Error, Result};
use aquifer_nfs::proto::v3::{
    Args3, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Lookup3Res, NfsFh3, Nfsstat3,
    Remove3Res, Rename3Args, Rename3Res, Res3, Sattr3,
};
use aquifer_rig::random::Random;
use aquifer_rig::wire::{Connection, decode, granted, results};
use aquifer_rpc::xdr::Decoder;

use crate::diary::{Clock, Diary};
use crate::place::EXPORT;

/// The results of all lives so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Answered calls: files made, moved, removed.
    pub made: u64,
    pub moved: u64,
    pub removed: u64,
    /// Names that were looked up after a restart.
    pub verified: u64,
    /// Unanswered calls that were carried out, and those that were not.
    pub done: u64,
    pub undone: u64,
}

impl Tally {
    /// Adds another client's results.
    pub fn add(&mut self, other: Self) {
        self.made += other.made;
        self.moved += other.moved;
        self.removed += other.removed;
        self.verified += other.verified;
        self.done += other.done;
        self.undone += other.undone;
    }
}

/// A client.
pub struct Namer {
    random: Random,
    known: Known,
    calls: HashMap<u32, Act>,
    xid: u32,
    diary: Diary<Entry>,
    pub tally: Tally,
}

/// An entry of the names' diary.
#[derive(Clone, Debug)]
enum Entry {
    Sent(Act),
    /// With the file that the call made.
    Answered(Act, File),
    /// The state after a restart.
    Found(Vec<File>),
}

/// A change of names, which are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Makes a new file under a free name.
    Make(usize),
    /// Moves a file to another name, over a file that may be there.
    Move(usize, usize),
    Remove(usize),
}

impl Act {
    fn names(self) -> [usize; 2] {
        match self {
            Act::Make(at) | Act::Remove(at) => [at, at],
            Act::Move(from, to) => [from, to],
        }
    }
}

impl Namer {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            known: Known { files: vec![None; NAMES], unanswered: Vec::new() },
            calls: HashMap::new(),
            // Different from those of the other clients on this host: a server recognises a
            // repeated transaction id.
            xid: 1 << 30,
            diary: Diary::default(),
            tally: Tally::default(),
        }
    }

    /// A client that can reproduce its state at a moment of `clock`.
    pub fn with_diary(mut self, clock: &Clock) -> Self {
        self.diary = Diary::new(clock);
        self
    }

    /// The client as it was at `moment`, with its server gone.
    pub fn as_of(&self, moment: u64) -> Self {
        let mut then = Self::new(0);
        let Known { files, unanswered } = &mut then.known;
        for entry in self.diary.until(moment) {
            match entry {
                Entry::Sent(act) => unanswered.push(*act),
                Entry::Answered(act, made) => {
                    unanswered.retain(|other| other != act);
                    apply(files, *act, *made);
                }
                Entry::Found(found) => {
                    files.clone_from(found);
                    unanswered.clear();
                }
            }
        }
        then
    }

    /// Continues from its state at `moment`. Its calls have new numbers nevertheless.
    pub fn rewind(&mut self, moment: u64) {
        self.known = self.as_of(moment).known;
        self.diary.rewind(moment);
        self.calls.clear();
    }

    /// The moments at which calls were answered.
    pub fn promises(&self) -> Vec<u64> {
        self.diary.moments(|entry| matches!(entry, Entry::Answered(..)))
    }

    /// Looks up all names, adds one to `verified`, and changes names until the connection breaks.
    /// Without a depth (calls outstanding) it only looks.
    ///
    /// # Errors
    /// [`Error::Io`] when the connection breaks; [`Error::Mismatch`] if something is lost.
    pub fn live(
        &mut self,
        connection: &mut Connection,
        depth: Option<usize>,
        verified: &AtomicU32,
    ) -> Result<()> {
        self.known.unanswered.extend(self.calls.drain().map(|(_, act)| act));
        let root = connection.mount(EXPORT)?;
        let found = (0..NAMES).map(|at| look(connection, root, at));
        let found = found.collect::<Result<Vec<_>>>()?;
        self.tally.verified += found.len() as u64;
        let (done, undone) = self.known.found(found).map_err(Error::Mismatch)?;
        self.diary.note(|| Entry::Found(self.known.files.clone()));
        self.tally.done += done;
        self.tally.undone += undone;
        verified.fetch_add(1, Ordering::SeqCst);
        let Some(depth) = depth else { return Ok(()) };
        loop {
            while connection.unsent() == 0 && self.calls.len() < depth {
                let Some(act) = self.choose() else { break };
                self.put(connection, root, act);
                connection.send_some()?;
            }
            connection.exchange()?;
            while let Some(reply) = connection.next_reply()? {
                let (xid, from) = results(reply)?;
                self.answered(xid, from)?;
            }
        }
    }

    /// Chooses a change of names that are in no other call.
    fn choose(&mut self) -> Option<Act> {
        let busy: Vec<usize> = self.calls.values().flat_map(|act| act.names()).collect();
        let mut draw = || Some(self.random.index(NAMES)).filter(|at| !busy.contains(at));
        let (first, second) = (draw()?, draw()?);
        Some(match self.known.files[first] {
            None => Act::Make(first),
            Some(_) if first == second => Act::Remove(first),
            Some(_) if self.random.below(4) == 0 => Act::Remove(first),
            Some(_) => Act::Move(first, second),
        })
    }

    fn put(&mut self, connection: &mut Connection, dir: NfsFh3, act: Act) {
        self.xid += 1;
        let names = act.names().map(name);
        let [place, to] = names.each_ref().map(|name| DirOpArgs3 { dir, name: name.as_bytes() });
        let args = match act {
            Act::Make(_) => {
                let attributes = Sattr3 { mode: Some(0o600), ..Sattr3::NONE };
                Args3::Create(Create3Args { place, how: CreateHow3::Guarded(attributes) })
            }
            Act::Move(..) => Args3::Rename(Rename3Args { from: place, to }),
            Act::Remove(_) => Args3::Remove(place),
        };
        self.diary.note(|| Entry::Sent(act));
        connection.put_nfs(self.xid, &args);
        self.calls.insert(self.xid, act);
    }

    fn answered(&mut self, xid: u32, mut from: Decoder<'_>) -> Result<()> {
        let act = self.calls.remove(&xid);
        let act = act.ok_or_else(|| Error::Malformed(format!("a reply to no call: {xid:#x}")))?;
        let mut made = None;
        match act {
            Act::Make(_) => {
                made = granted("CREATE", decode::<Create3Res>(&mut from)?)?.obj;
                if made.is_none() {
                    return Err(Error::Malformed("CREATE gave no handle".into()));
                }
                self.tally.made += 1;
            }
            Act::Move(..) => {
                granted("RENAME", decode::<Rename3Res>(&mut from)?)?;
                self.tally.moved += 1;
            }
            Act::Remove(_) => {
                granted("REMOVE", decode::<Remove3Res>(&mut from)?)?;
                self.tally.removed += 1;
            }
        }
        self.diary.note(|| Entry::Answered(act, made));
        apply(&mut self.known.files, act, made);
        Ok(())
    }
}

/// The file under a name, by its handle.
type File = Option<NfsFh3>;

/// The client's knowledge.
#[derive(Debug)]
struct Known {
    /// As the server reported.
    files: Vec<File>,
    /// Calls that the last server left unanswered: no two of the same name.
    unanswered: Vec<Act>,
}

impl Known {
    /// After a restart: takes the state that was found. Returns how many of the unanswered calls
    /// were carried out, and how many were not.
    ///
    /// # Errors
    /// The first name with an impossible file.
    fn found(&mut self, found: Vec<File>) -> std::result::Result<(u64, u64), String> {
        let mut expected = self.files.clone();
        let (mut done, mut undone) = (0, 0);
        for act in &self.unanswered {
            let was_done = match *act {
                Act::Make(at) => found[at].is_some(),
                Act::Move(from, _) | Act::Remove(from) => found[from].is_none(),
            };
            if !was_done {
                undone += 1;
                continue;
            }
            done += 1;
            let made = found[act.names()[0]];
            apply(&mut expected, *act, made);
        }
        for (at, file) in found.iter().enumerate() {
            let twice = found.iter().skip(at + 1).any(|other| file.is_some() && other == file);
            if *file != expected[at] || twice {
                return Err(format!(
                    "LOST: {} is {file:?}, and must be {:?}{}; acknowledged was {:?}, and not \
                     answered: {:?}",
                    name(at),
                    expected[at],
                    if twice { " and no other name" } else { "" },
                    self.files[at],
                    self.unanswered,
                ));
            }
        }
        (self.files, self.unanswered) = (found, Vec::new());
        Ok((done, undone))
    }
}

/// Looks up a name, with nothing else outstanding.
fn look(connection: &mut Connection, dir: NfsFh3, at: usize) -> Result<File> {
    let name = name(at);
    let place = DirOpArgs3 { dir, name: name.as_bytes() };
    let looked =
        connection.call_nfs(&Args3::Lookup(place), |from| match decode::<Lookup3Res>(from)? {
            Res3::Fail { status: Nfsstat3::NoEnt, .. } => Ok(None),
            results => Ok(Some(granted("LOOKUP", results)?.object)),
        })?;
    Ok(looked)
}

fn apply(files: &mut [File], act: Act, made: File) {
    match act {
        Act::Make(at) => files[at] = made,
        Act::Move(from, to) => files[to] = files[from].take(),
        Act::Remove(at) => files[at] = None,
    }
}

fn name(at: usize) -> String {
    format!("name{at}")
}

/// Few, so that each is changed often.
const NAMES: usize = 40;

#[test]
fn known_names_are_lost_doubled_or_torn_in_no_other_way_than_is_said() {
    let file = |number: u8| NfsFh3::new(&[number; 16]);
    let after = |unanswered: &[Act], found: [File; 3]| {
        let files = vec![file(1), file(2), None];
        Known { files, unanswered: unanswered.to_vec() }.found(found.to_vec())
    };
    let (one, two, new) = (file(1), file(2), file(9));
    assert_eq!(after(&[], [one, two, None]), Ok((0, 0)));
    for lost in [[None, two, None], [two, one, None], [one, two, new], [one, new, None]] {
        assert!(after(&[], lost).unwrap_err().starts_with("LOST"), "{lost:?}");
    }
    // Over another file, or to a free name: whole or not at all.
    assert_eq!(after(&[Act::Move(0, 1)], [None, one, None]), Ok((1, 0)));
    assert_eq!(after(&[Act::Move(0, 1)], [one, two, None]), Ok((0, 1)));
    assert_eq!(after(&[Act::Move(0, 2)], [None, two, one]), Ok((1, 0)));
    for torn in [[None, two, None], [one, one, None], [one, None, None]] {
        assert!(after(&[Act::Move(0, 1)], torn).is_err(), "{torn:?}");
    }
    let both = [Act::Make(2), Act::Remove(1)];
    assert_eq!(after(&both, [one, None, new]), Ok((2, 0)));
    assert_eq!(after(&both, [one, two, new]), Ok((1, 1)));
    assert!(after(&both, [one, two, one]).is_err(), "a new file is no old one");
}
