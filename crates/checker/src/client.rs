//! A client: arbitrary calls on shared names and files, in turns of one or several at once.

use aquifer_files::{FileKind, FsError, Stability};
use aquifer_sim::Rng;
use futures_util::future::join_all;

use crate::content::CELL_BYTES;
use crate::op::{Cells, Door, Node, Op, Place, Position};
use crate::witness::Shared;

/// The calls of a world's clients, and its size.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Names in each directory.
    pub names: u64,
    /// Directories that are used at a time.
    pub directories: usize,
    /// Files that are used at a time.
    pub files: usize,
    /// Cells of a file, about.
    pub cells: u64,
    /// Calls of a turn, at most. If there are several, each piece of a write is a call of its own.
    pub turn: usize,
}

/// The first cells of a file are written as often as all others.
const HOT_CELLS: u64 = 48;

/// See the module's head.
pub struct Client<D> {
    /// The door to the server.
    pub door: D,
    /// The witness of all clients.
    pub shared: Shared,
    /// Its habits.
    pub habits: Habits,
    /// Its own random numbers.
    pub rng: Rng,
    /// Whether it prints its calls.
    pub tells: bool,
}

impl<D: Door> Client<D> {
    /// Makes that many calls.
    ///
    /// # Errors
    /// An answer that cannot be.
    pub async fn run(mut self, calls: u64) -> Result<(), String> {
        let mut made = 0;
        while made < calls {
            let turn = self.turn();
            made += 1.max(turn.len() as u64);
            let ended = join_all(turn.into_iter().map(|op| self.call(op))).await;
            ended.into_iter().collect::<Result<Vec<()>, String>>()?;
            match self.rng.below(40) {
                0..=4 => self.door.nudge(),
                5 => self.door.pause(self.rng.below(20_000)).await,
                6 => self.begin_listing().await,
                _ => {}
            }
            self.shared.lock().unwrap().verdict()?;
        }
        Ok(())
    }

    /// The calls of one turn.
    fn turn(&mut self) -> Vec<Op> {
        let most = self.habits.turn;
        let more = if most > 1 && self.rng.coin() { self.rng.index(most) } else { 0 };
        let mut turn = Vec::new();
        for _ in 0..=more {
            match self.think() {
                Some(Op::Write { file, cells, stability }) if most > 1 => {
                    let one = |cells| Op::Write { file, cells: vec![cells], stability };
                    turn.extend(cells.into_iter().map(one));
                }
                other => turn.extend(other),
            }
        }
        turn
    }

    async fn call(&self, op: Op) -> Result<(), String> {
        let number = self.shared.lock().unwrap().begin(op.clone());
        if self.tells {
            println!("{number:>5} {op:?}");
        }
        let outcome = self.door.call(&op, Some(number)).await;
        if self.tells {
            println!("{number:>5}   {outcome:?}");
        }
        let allowed = match &outcome {
            Ok(_) => true,
            Err(error) => is_allowed(&op, error),
        };
        let what = format!("{op:?}: {outcome:?}");
        self.shared.lock().unwrap().end(number, outcome);
        if allowed { Ok(()) } else { Err(what) }
    }

    /// Reads some entries of a directory; the others follow after the next restart.
    async fn begin_listing(&mut self) {
        let Some(directory) = self.directory() else { return };
        let begun = self.shared.lock().unwrap().now();
        let limit = 1 + self.rng.index(6);
        let listed = self.door.list_from(&directory, Position::default(), limit).await;
        if let Ok(listed) = listed
            && !listed.eof
        {
            self.shared.lock().unwrap().leave_half(begun, directory, listed);
        }
    }

    fn node(&mut self, kind: FileKind, newest: usize) -> Option<Node> {
        let nodes: Vec<Node> = {
            let witness = self.shared.lock().unwrap();
            let of_kind = witness.nodes.values().rev().filter(|(_, of)| *of == kind);
            of_kind.map(|(node, _)| *node).take(newest).collect()
        };
        self.rng.pick(&nodes).copied()
    }

    fn directory(&mut self) -> Option<Node> {
        // The root lasts; others come and go.
        if self.rng.below(3) == 0 {
            return self.node(FileKind::Directory, self.habits.directories);
        }
        let witness = self.shared.lock().unwrap();
        witness.nodes.get(&crate::op::ROOT).map(|(node, _)| *node)
    }

    fn place(&mut self) -> Option<Place> {
        let directory = self.directory()?;
        Some(Place { directory, name: format!("n{}", self.rng.below(self.habits.names)) })
    }

    fn file(&mut self) -> Option<Node> {
        self.node(FileKind::Regular, self.habits.files)
    }

    fn think(&mut self) -> Option<Op> {
        let tag = self.shared.lock().unwrap().new_tag();
        Some(match self.rng.below(100) {
            0..=11 => Op::Create(self.place()?, tag),
            12..=13 => Op::Mkdir(self.place()?, tag),
            14 => Op::Symlink(self.place()?, tag),
            15..=19 => Op::Remove(self.place()?),
            20..=21 => Op::Rmdir(self.place()?),
            22..=27 => Op::Rename(self.place()?, self.place()?),
            28..=29 => Op::Link(self.file()?, self.place()?),
            30..=34 => self.truncate()?,
            35..=36 => {
                let (file, mode) = (self.file()?, 0o400 | self.rng.below(0o200) as u32);
                Op::Set { file, size: None, mode: Some(mode) }
            }
            37..=62 => self.write()?,
            63..=69 => self.commit()?,
            70..=84 => {
                let (file, cells) = (self.file()?, self.habits.cells);
                Op::Read { file, first: self.rng.below(cells), count: 1 + self.rng.below(cells) }
            }
            85..=88 => Op::Getattr(self.file()?),
            89..=95 => Op::Lookup(self.place()?),
            96..=97 => Op::List(self.directory()?, 1 + self.rng.index(6)),
            98 => Op::Readlink(self.node(FileKind::Symlink, 2)?),
            _ => Op::Getattr(self.directory()?),
        })
    }

    fn truncate(&mut self) -> Option<Op> {
        let cells = match self.rng.below(3) {
            0 => 0,
            1 => self.rng.below(self.habits.cells) / 16 * 16,
            _ => self.rng.below(self.habits.cells),
        };
        Some(Op::Set { file: self.file()?, size: Some(cells * CELL_BYTES), mode: None })
    }

    fn write(&mut self) -> Option<Op> {
        let file = self.file()?;
        let stability = match self.rng.below(5) {
            0..=1 => Stability::Unstable,
            2 => Stability::DataSync,
            _ => Stability::FileSync,
        };
        let pieces = match self.rng.below(6) {
            // Many sizes are halved.
            0 if self.habits.turn > 1 && self.rng.below(6) == 0 => 20 + self.rng.below(30),
            0 => 2 + self.rng.below(5),
            _ => 1,
        };
        let cells = (0..pieces).map(|_| self.cells(pieces > 1)).collect();
        Some(Op::Write { file, cells, stability })
    }

    /// Whole pages if several go together; else any cells.
    fn cells(&mut self, pages: bool) -> Cells {
        // In the range that the others write, too.
        let limit =
            if self.rng.coin() { self.habits.cells.min(HOT_CELLS) } else { self.habits.cells };
        let (first, count) = match self.rng.below(if pages { 2 } else { 6 }) {
            0 => (self.rng.below(limit / 16) * 16, 16),
            1 => (self.rng.below(limit / 16) * 16, 16 * (1 + self.rng.below(4))),
            2 => (self.rng.below(limit), 1),
            3 => (self.rng.below(limit), 1 + self.rng.below(40)),
            4 => (self.rng.below(limit / 16) * 16, 16 * (1 + self.rng.below(limit / 32 + 1))),
            _ => (self.rng.below(4 * limit), 1 + self.rng.below(20)),
        };
        let cell = match self.rng.below(10) {
            0 => 0,
            _ => self.shared.lock().unwrap().new_cell(),
        };
        Cells { first, count, cell }
    }

    fn commit(&mut self) -> Option<Op> {
        let file = self.file()?;
        if self.rng.coin() {
            return Some(Op::Commit { file, offset: 0, count: 0 });
        }
        let (offset, count) =
            (self.rng.below(self.habits.cells), self.rng.below(self.habits.cells));
        Some(Op::Commit { file, offset: offset * CELL_BYTES, count: (count * CELL_BYTES) as u32 })
    }
}

/// Whether a call may fail with this error.
fn is_allowed(op: &Op, error: &FsError) -> bool {
    match error {
        FsError::Stale => true,
        FsError::NotFound => {
            matches!(op, Op::Lookup(_) | Op::Remove(_) | Op::Rmdir(_) | Op::Rename(..))
        }
        FsError::Exists => {
            matches!(
                op,
                Op::Create(..) | Op::Mkdir(..) | Op::Symlink(..) | Op::Link(..) | Op::Rename(..)
            )
        }
        FsError::IsDirectory | FsError::NotDirectory | FsError::NotEmpty | FsError::Invalid => {
            matches!(op, Op::Remove(_) | Op::Rmdir(_) | Op::Rename(..))
        }
        FsError::TryLater => matches!(op, Op::Rename(..)),
        // The coalesced writes cannot go together.
        FsError::NotSupported => matches!(op, Op::Write { .. }),
        _ => false,
    }
}
