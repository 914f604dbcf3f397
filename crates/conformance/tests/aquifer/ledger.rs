//! A client's knowledge of a file that it writes while servers are killed. For each unit of 512
//! bytes it knows the generation that the server reported as durable. It also knows the later ones
//! that were sent, any of which may be there.
//!
//! Invariants: generations of a unit only rise, and a unit in progress in one call is in no other.
//! So after a restart a unit holds the durable generation or a later one. From then on the
//! generation that was found counts as durable: a lost one must not come back.

use aquifer_conformance::pattern;

use crate::diary::{Clock, Diary};

/// Bytes of a unit: the smallest write of a guest's disk.
pub const UNIT_BYTES: usize = 512;

/// A file's units.
#[derive(Debug)]
pub struct Ledger {
    file: u32,
    units: Vec<Unit>,
    diary: Diary<Entry>,
}

/// An entry of a file's diary.
#[derive(Clone, Debug)]
enum Entry {
    Sent(Run),
    Durable(Run),
    /// Found after a restart: these generations.
    Found(Run),
}

/// Generation 0 means: never written.
#[derive(Clone, Debug, Default)]
struct Unit {
    durable: u32,
    newest: u32,
    /// Sent and not known to be durable, in the order of sending.
    since: Vec<u32>,
    busy: bool,
}

/// The content of a WRITE: these generations of the units from `first` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: usize,
    pub generations: Vec<u32>,
}

impl Run {
    fn units(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.generations.len()
    }

    /// The offset in the file.
    pub fn offset(&self) -> u64 {
        (self.first * UNIT_BYTES) as u64
    }
}

/// The results of reading a file after a restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Units with the generation that the server reported as durable.
    pub durable: u64,
    /// Units with a newer one, which the server had not promised.
    pub newer: u64,
}

impl Ledger {
    /// An empty file with number `file`.
    pub fn new(file: u32, units: usize) -> Self {
        Self { file, units: vec![Unit::default(); units], diary: Diary::default() }
    }

    /// Notes all events from now on.
    pub fn keep_diary(&mut self, clock: &Clock) {
        self.diary = Diary::new(clock);
    }

    /// The state at `moment`, with no call in progress.
    pub fn as_of(&self, moment: u64) -> Self {
        let mut then = Self::new(self.file, self.units.len());
        for entry in self.diary.until(moment) {
            match entry {
                Entry::Sent(run) => then.sent(run),
                Entry::Durable(run) => then.durable(run),
                Entry::Found(run) => then.settled(run),
            }
        }
        then
    }

    /// Forgets everything after `moment`, like the server.
    pub fn rewind(&mut self, moment: u64) {
        self.units = self.as_of(moment).units;
        self.diary.rewind(moment);
    }

    /// The moments at which the server reported something as durable.
    pub fn promises(&self) -> Vec<u64> {
        self.diary.moments(|entry| matches!(entry, Entry::Durable(_)))
    }

    /// Length of the file in units.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// A new generation of `count` units, to send; `None` if one of them is in progress.
    pub fn begin(&mut self, first: usize, count: usize) -> Option<Run> {
        let units = &mut self.units[first..first + count];
        if units.iter().any(|unit| unit.busy) {
            return None;
        }
        units.iter_mut().for_each(|unit| unit.newest += 1);
        self.again(first, count)
    }

    /// The newest generations of the units, to send once more; `None` if one of them is in
    /// progress.
    pub fn again(&mut self, first: usize, count: usize) -> Option<Run> {
        let units = &mut self.units[first..first + count];
        if units.iter().any(|unit| unit.busy) {
            return None;
        }
        units.iter_mut().for_each(|unit| unit.busy = true);
        let run = Run { first, generations: units.iter().map(|unit| unit.newest).collect() };
        self.sent(&run);
        self.diary.note(|| Entry::Sent(run.clone()));
        Some(run)
    }

    fn sent(&mut self, run: &Run) {
        for (unit, generation) in self.units[run.units()].iter_mut().zip(&run.generations) {
            unit.newest = *generation;
            if !unit.since.contains(generation) {
                unit.since.push(*generation);
            }
        }
    }

    /// The call that carried `run` was answered, or its server is gone.
    pub fn end(&mut self, run: &Run) {
        self.units[run.units()].iter_mut().for_each(|unit| unit.busy = false);
    }

    /// The server has reported `run` as durable.
    pub fn durable(&mut self, run: &Run) {
        self.diary.note(|| Entry::Durable(run.clone()));
        for (unit, generation) in self.units[run.units()].iter_mut().zip(&run.generations) {
            // A newer generation may be durable already.
            if *generation > unit.durable {
                unit.durable = *generation;
                unit.since.retain(|since| since > generation);
            }
        }
    }

    /// The bytes of a WRITE.
    pub fn content(&self, run: &Run, out: &mut Vec<u8>) {
        out.clear();
        for (number, generation) in run.units().zip(&run.generations) {
            out.extend_from_slice(&unit(self.file, number, *generation));
        }
    }

    /// After a restart: takes the file's content from unit `first` on, which is shorter at the
    /// file's end.
    ///
    /// # Errors
    /// The first unit with impossible content.
    pub fn found(&mut self, first: usize, count: usize, bytes: &[u8]) -> Result<Found, String> {
        let mut found = Found::default();
        let mut pieces = bytes.chunks(UNIT_BYTES);
        let mut run = Run { first, generations: Vec::with_capacity(count) };
        for number in first..first + count {
            let piece = pieces.next().unwrap_or_default();
            let holds = generation(self.file, number, piece);
            let known = &self.units[number];
            match holds {
                Some(holds) if holds == known.durable => found.durable += 1,
                Some(holds) if known.since.contains(&holds) => found.newer += 1,
                _ => return Err(self.describe(number, holds, piece)),
            }
            run.generations.push(holds.unwrap_or_default());
        }
        self.settled(&run);
        self.diary.note(|| Entry::Found(run));
        Ok(found)
    }

    /// These generations are on disk now; others that were sent are gone.
    fn settled(&mut self, run: &Run) {
        for (unit, generation) in self.units[run.units()].iter_mut().zip(&run.generations) {
            unit.durable = *generation;
            unit.since.clear();
        }
    }

    fn describe(&self, number: usize, holds: Option<u32>, piece: &[u8]) -> String {
        let (file, known) = (self.file, &self.units[number]);
        let holds = match holds {
            Some(generation) => format!("generation {generation}"),
            None => format!("no generation of it: {:02x?}...", &piece[..piece.len().min(24)]),
        };
        let Unit { durable, newest, since, .. } = known;
        format!(
            "LOST: unit {number} of file {file} (offset {}) holds {holds}; generation {durable} \
             was acknowledged as durable, {since:?} sent since (of {newest} in all)",
            number * UNIT_BYTES
        )
    }
}

/// `| file u32, unit u32, generation u64, content |`: so a unit identifies itself. Every fourth
/// generation compresses.
fn unit(file: u32, number: usize, generation: u32) -> [u8; UNIT_BYTES] {
    let mut bytes = [0; UNIT_BYTES];
    let place = u64::from(file) << 32 | number as u64;
    let (head, content) = bytes.split_at_mut(HEAD_BYTES);
    head[..8].copy_from_slice(&place.to_be_bytes());
    head[8..].copy_from_slice(&u64::from(generation).to_be_bytes());
    let mut seed = aquifer_rig::random::Random::new(place);
    let seed = seed.next_u64().wrapping_add(u64::from(generation) << 40);
    let random = if generation.is_multiple_of(4) { 8 } else { content.len() };
    pattern::fill(seed, 0, &mut content[..random]);
    for at in random..content.len() {
        content[at] = content[at - 8];
    }
    bytes
}

/// The generation of this content of the unit; a hole, or a place beyond the end, is generation 0.
fn generation(file: u32, number: usize, found: &[u8]) -> Option<u32> {
    if found.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let generation = found.get(8..HEAD_BYTES)?.try_into().ok().map(u64::from_be_bytes)?;
    let generation = u32::try_from(generation).ok().filter(|generation| *generation > 0)?;
    (unit(file, number, generation) == found).then_some(generation)
}

const HEAD_BYTES: usize = 16;

fn written(ledger: &mut Ledger, first: usize, count: usize) -> (Run, Vec<u8>) {
    let run = ledger.begin(first, count).unwrap();
    let mut bytes = Vec::new();
    ledger.content(&run, &mut bytes);
    ledger.end(&run);
    (run, bytes)
}

#[test]
fn ledger_finds_what_is_lost_torn_misplaced_or_comes_back() {
    let mut ledger = Ledger::new(7, 64);
    let (one, first) = written(&mut ledger, 8, 8);
    ledger.durable(&one);
    // Acknowledged: zeros, a short file, a flipped bit, or a neighbour's content are all losses.
    assert!(ledger.found(8, 8, &[0; 8 * UNIT_BYTES]).is_err());
    assert!(ledger.found(8, 8, &first[..7 * UNIT_BYTES]).is_err());
    let mut flipped = first.clone();
    flipped[3 * UNIT_BYTES + 400] ^= 4;
    assert!(ledger.found(8, 8, &flipped).unwrap_err().contains("no generation"));
    assert!(ledger.found(9, 1, &first[..UNIT_BYTES]).is_err());
    assert_eq!(ledger.found(8, 8, &first).unwrap().durable, 8);
    // Sent twice since: any of the three is right, and stays.
    let (two, second) = written(&mut ledger, 8, 8);
    let (_, third) = written(&mut ledger, 8, 8);
    assert_eq!(ledger.found(8, 8, &second).unwrap().newer, 8);
    assert!(ledger.found(8, 8, &first).unwrap_err().contains("generation 2 was acknowledged"));
    assert!(ledger.found(8, 8, &third).is_err(), "what was lost came back");
    // A verifier that does not change claims that everything is there, which is false.
    let lost = ledger.again(8, 8).unwrap();
    assert_eq!(lost.generations, [3; 8]);
    ledger.end(&lost);
    ledger.durable(&lost);
    ledger.durable(&two);
    assert!(ledger.found(8, 8, &second).is_err());
    assert_eq!(ledger.found(8, 8, &third).unwrap().durable, 8);
}

#[test]
fn ledger_keeps_a_unit_in_one_call_and_knows_compressible_generations() {
    let mut ledger = Ledger::new(1, 16);
    let run = ledger.begin(0, 4).unwrap();
    assert!(ledger.begin(3, 2).is_none() && ledger.again(0, 1).is_none());
    ledger.end(&run);
    let mut bytes = Vec::new();
    for generation in 2..6 {
        let (run, content) = written(&mut ledger, 3, 1);
        assert_eq!(run.generations, [generation]);
        ledger.durable(&run);
        bytes = content;
        assert_eq!(ledger.found(3, 1, &bytes).unwrap().durable, 1);
    }
    assert!(ledger.found(4, 1, &bytes).is_err());
}

#[test]
fn ledger_knows_how_it_stood_at_each_moment() {
    let (clock, mut ledger) = (Clock::default(), Ledger::new(3, 8));
    ledger.keep_diary(&clock);
    let (one, first) = written(&mut ledger, 0, 1);
    let sent = clock.now();
    ledger.durable(&one);
    let promised = clock.now();
    let (_, second) = written(&mut ledger, 0, 1);
    let finds = |moment, bytes: &[u8]| ledger.as_of(moment).found(0, 1, bytes).is_ok();
    assert_eq!(ledger.promises(), [promised]);
    let nothing = [0; UNIT_BYTES];
    for (moment, can) in [
        (0, [true, false, false]),
        (sent, [true, true, false]),
        (promised, [false, true, false]),
        (clock.now(), [false, true, true]),
    ] {
        let [none, one, two] = can;
        assert_eq!(finds(moment, &nothing), none, "{moment}");
        assert_eq!(finds(moment, &first), one, "{moment}");
        assert_eq!(finds(moment, &second), two, "{moment}");
    }
    // After a restart: the generation that was found.
    assert!(ledger.found(0, 1, &second).is_ok());
    assert!(ledger.as_of(clock.now()).found(0, 1, &first).is_err());
    // It continues from an earlier moment: later calls were never sent.
    ledger.rewind(promised);
    assert!(ledger.as_of(clock.now()).found(0, 1, &second).is_err());
    assert!(ledger.found(0, 1, &first).is_ok());
    assert_eq!(written(&mut ledger, 0, 1).0.generations, [2]);
    assert!(ledger.as_of(clock.now()).found(0, 1, &second).is_ok());
}
