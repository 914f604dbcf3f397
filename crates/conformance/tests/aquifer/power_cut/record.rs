//! The record of a period by disks and clients, and the cuts that are drawn from it.

use aquifer_rig::random::Random;

use super::image::{Cut, Image, Mode};
use crate::kill_loop::KillLoop;
use crate::recorder::Tape;

/// The period in which the power may go.
pub struct Record {
    pub tapes: Vec<Tape>,
    /// Its start; everything before it is durable.
    pub ready: u64,
    pub end: u64,
    /// The moments of promises, in order.
    promises: Vec<u64>,
}

impl Record {
    /// A record that begins now.
    pub fn since(ready: u64) -> Self {
        Self { tapes: Vec::new(), ready, end: ready, promises: Vec::new() }
    }

    pub fn new(tapes: Vec<Tape>, run: &KillLoop, ready: u64, end: u64) -> Self {
        let mut promises = run.namer.promises();
        run.writers.iter().for_each(|writer| promises.extend(writer.promises()));
        promises.sort_unstable();
        Self { tapes, ready, end, promises }
    }

    /// Draws a moment, and the fate of unflushed changes. No flush after `trusted` counts.
    pub fn draw(&self, random: &mut Random, trusted: u64) -> Cut {
        let moment = self.moment(random);
        let mode = Mode::ALL[random.index(Mode::ALL.len())];
        Cut { moment, mode, loser: random.index(self.tapes.len()), trusted }
    }

    /// A quarter of all moments fall just after a promise, half fall between a write and the end of
    /// the next flush, the others anywhere.
    fn moment(&self, random: &mut Random) -> u64 {
        let anywhere = self.ready + random.below(self.end - self.ready + 1);
        match random.below(4) {
            0 => {
                let recent = &self.promises[self.promised(self.ready)..];
                recent.get(random.index(recent.len())).copied().unwrap_or(anywhere)
            }
            1 | 2 => {
                let tape = &self.tapes[random.index(self.tapes.len())];
                let from = tape.changes().iter().find(|change| change.began >= anywhere);
                let from = from.map_or(anywhere, |change| change.began);
                let flush = tape.flushes().iter().find(|flush| flush.ended > from);
                let until = flush.map_or(self.end, |flush| flush.ended);
                from + random.below(until - from + 1)
            }
            _ => anywhere,
        }
    }

    /// The number of promises by `moment`.
    pub fn promised(&self, moment: u64) -> usize {
        self.promises.partition_point(|at| *at <= moment)
    }

    /// The disks after the cut.
    pub fn images(&self, cut: &Cut, random: &mut Random) -> Vec<Image<'_>> {
        let tapes = self.tapes.iter().enumerate();
        tapes.map(|(disk, tape)| Image::after(cut, tape, disk, random)).collect()
    }
}
