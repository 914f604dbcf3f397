use aquifer_sim::Rng;

use super::*;

/// A small limit of sectors per segment: simulated pools go round the ring soon.
#[test]
fn a_segment_is_left_after_so_many_sectors() {
    let run = Run::new(Place::new(0, 4 * SEGMENT_SECTORS), 3 * SEGMENT_SECTORS);
    let mut ring = RecordRing::new(&[run], 1, run.place).unwrap();
    ring.take_sectors_of_each(10);
    let mut taken = |txg, sectors| ring.take(Txg(txg), sectors).unwrap()[0].sector();
    let first = run.place.sector();
    assert_eq!([taken(1, 4), taken(2, 6)], [first, first + 4]);
    assert_eq!(taken(3, 1), first + SEGMENT_SECTORS);
    // A single larger record has a segment of its own.
    assert_eq!(taken(4, 20), first + 2 * SEGMENT_SECTORS);
}

/// Whatever was written last, the next import overwrites none of it.
#[test]
fn a_ring_goes_on_after_an_import_behind_what_was_written() {
    let run = Run::new(Place::new(0, 4 * SEGMENT_SECTORS), 3 * SEGMENT_SECTORS);
    for sectors in [1, 2, 3, 7, SEGMENT_SECTORS] {
        let mut next = run.place;
        let mut before: Option<(u64, u64)> = None;
        for txg in 1..1100 {
            let mut ring = RecordRing::new(&[run], 1, next).unwrap();
            let [place, _] = ring.take(Txg(txg), sectors).unwrap();
            let now = (place.sector(), place.sector() + sectors);
            if let Some((first, end)) = before {
                assert!(now.1 <= first || end <= now.0, "{txg}: {now:?} over {first}..{end}");
            }
            before = Some(now);
            next = ring.next();
        }
    }
}

impl RecordRing {
    /// From which txg on records are needed, and the newest of those in each segment.
    pub fn needed(&self) -> (Txg, Vec<Option<Txg>>) {
        let keep_from = self.keep_from();
        let is_needed = |newest: &Txg| (*newest >= keep_from).then_some(*newest);
        (keep_from, self.newest.iter().map(is_needed).collect())
    }
}

/// A ring beside a plain list of what lies in it. Segments come from two vdevs.
struct Model {
    rng: Rng,
    ring: RecordRing,
    /// Free segments of each vdev: the next one.
    fresh: [u64; 2],
    /// Records, oldest first: what lies where.
    records: Vec<(Txg, [Place; 2], u64)>,
    /// Window starts of the newest roots.
    windows: VecDeque<Txg>,
    txg: u64,
}

const SECTORS_OF_EACH: u64 = 5;

fn fresh(next: &mut [u64; 2], vdev: u16) -> Place {
    let at = &mut next[usize::from(vdev)];
    *at += 1;
    Place::new(vdev, *at * SEGMENT_SECTORS)
}

fn segment_of(place: Place) -> Place {
    Place::new(place.vdev(), place.sector() / SEGMENT_SECTORS * SEGMENT_SECTORS)
}

impl Model {
    /// A ring on one vdev, of one copy or two.
    fn new(seed: u64) -> Model {
        let mut rng = Rng::stream(seed, "ring");
        let mut next = [0; 2];
        let copies = 1 + rng.below(2);
        let count = copies * (2 + rng.below(4));
        let segments: Vec<Place> = (0..count).map(|_| fresh(&mut next, 0)).collect();
        let copies = u8::try_from(copies).unwrap();
        let mut ring = RecordRing::new(&runs_of(&segments), copies, segments[0]).unwrap();
        ring.take_sectors_of_each(SECTORS_OF_EACH);
        Model { rng, ring, fresh: next, records: vec![], windows: VecDeque::new(), txg: 0 }
    }

    fn keep_from(&self) -> Txg {
        self.windows.iter().min().copied().unwrap_or(Txg(0))
    }

    /// Whether a record that a root on disk needs lies in a segment.
    fn is_needed(&self, segment: Place) -> bool {
        let keep_from = self.keep_from();
        let lies_there = |places: &[Place; 2]| places.iter().any(|at| segment_of(*at) == segment);
        self.records.iter().any(|(txg, places, _)| *txg >= keep_from && lies_there(places))
    }

    fn commit(&mut self) {
        self.txg += 1;
        let sectors = 1 + self.rng.below(3);
        let (ring, at) = (&self.ring, self.ring.segment);
        let next = (at + 1) % ring.segments.len();
        let pair = |at: usize| [Some(ring.segments[at]), ring.mirrors.get(at).copied()];
        let is_needed = pair(next).into_iter().flatten().any(|segment| self.is_needed(segment));
        let leaves = ring.offset > 0 && ring.offset + sectors > SECTORS_OF_EACH;
        let taken = self.ring.take(Txg(self.txg), sectors);
        assert_eq!(taken.is_err(), leaves && is_needed, "txg {}: {taken:?}", self.txg);
        if let Ok(places) = taken {
            assert_eq!(places[1].is_null(), self.ring.copies() == 1);
            self.records.push((Txg(self.txg), places, sectors));
        }
        // Once in a while, and whenever the ring is full, the window becomes short.
        let oldest = match taken.is_err() {
            true => self.txg,
            false => self.txg.saturating_sub(self.rng.below(12)).max(1),
        };
        let last = self.windows.back().copied().unwrap_or(Txg(1));
        let window = last.max(Txg(oldest));
        self.ring.note_root(window);
        self.windows.push_back(window);
        while self.windows.len() > 3 {
            self.windows.pop_front();
        }
        let start = Txg(window.0 + self.rng.below(3));
        let since = self.records.iter().filter(|(txg, ..)| *txg >= start);
        let bytes: u64 = since.map(|(.., sectors)| sectors * 4096).sum();
        assert_eq!(self.ring.bytes_since(start), bytes);
    }

    /// Some segments of a ring of two copies, or all of one, get a mirror on the other vdev.
    fn spread(&mut self) {
        let alone = self.ring.on_one_vdev();
        if self.ring.copies() == 1 {
            let elsewhere = |(at, _): &(Place, _)| fresh(&mut self.fresh, 1 - at.vdev());
            let mirrors = alone.iter().map(elsewhere).collect();
            self.ring.mirror_all(mirrors);
            return;
        }
        for (segment, _) in alone {
            let [mirror, of_before] =
                [0; 2].map(|_: u64| fresh(&mut self.fresh, 1 - segment.vdev()));
            if self.rng.below(2) == 0 {
                self.ring.mirror_elsewhere(segment, mirror, of_before);
                let known = self.ring.on_one_vdev();
                assert!(known.iter().all(|(at, _)| *at != segment), "{segment:?} in {known:?}");
            }
        }
    }

    fn grow(&mut self) {
        let vdev = u16::try_from(self.rng.below(2)).unwrap();
        let first = fresh(&mut self.fresh, vdev);
        let second = (self.ring.copies() == 2).then(|| fresh(&mut self.fresh, 1 - vdev));
        self.ring.grow(first, second);
    }

    /// As an import finds it.
    fn import(&mut self) {
        let before = &self.ring;
        let mut ring = RecordRing::new(&before.runs(), before.copies(), before.next()).unwrap();
        ring.take_sectors_of_each(SECTORS_OF_EACH);
        let keep_from = self.keep_from();
        for (txg, places, sectors) in self.records.iter().filter(|(txg, ..)| *txg >= keep_from) {
            let places = places.iter().copied().filter(|place| !place.is_null());
            ring.note(*txg, places, *sectors);
        }
        self.windows.iter().for_each(|window| ring.note_root(*window));
        assert_eq!((&ring.segments, &ring.mirrors), (&before.segments, &before.mirrors));
        assert_eq!((ring.segment, ring.offset), (before.segment, before.offset));
        self.ring = ring;
    }
}

/// However a ring grows and gets other mirrors, and wherever it is imported: it enters each segment
/// that is free, and none that a root on disk needs.
#[test]
fn a_ring_enters_what_nothing_needs() {
    for seed in 0..300 {
        let mut model = Model::new(seed);
        for _ in 0..300 {
            match model.rng.below(20) {
                0 => model.spread(),
                1 if model.ring.segments.len() < 8 => model.grow(),
                2 | 3 => model.import(),
                _ => model.commit(),
            }
        }
    }
}
