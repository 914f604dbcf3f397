//! Compared with a plain vector of flags.
#![expect(clippy::cast_possible_truncation, reason = "numbers of a few hundred")]

use aquifer_sim::Rng;

use super::SectorMap;

fn runs(flags: impl Iterator<Item = bool>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (at, _) in (0u64..).zip(flags).filter(|(_, set)| *set) {
        match runs.last_mut() {
            Some((start, count)) if *start + *count == at => *count += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}

#[test]
fn agrees_with_flags() {
    const SECTORS: u64 = 640;
    let mut rng = Rng::stream(1, "runs");
    for _ in 0..300 {
        let mut maps = [SectorMap::new(SECTORS), SectorMap::new(SECTORS)];
        let mut flags = [vec![false; 640], vec![false; 640]];
        for _ in 0..rng.below(40) {
            let which = rng.below(2) as usize;
            let start = rng.below(SECTORS);
            let count = rng.below(SECTORS - start + 1).min(1 + rng.below(150));
            let range = start as usize..(start + count) as usize;
            let before = flags[which][range.clone()].iter().filter(|set| **set).count() as u64;
            assert_eq!(maps[which].count_in(start, count), before);
            let set = rng.below(3) > 0;
            let told =
                if set { maps[which].set(start, count) } else { maps[which].clear(start, count) };
            assert_eq!(told, before);
            flags[which][range].fill(set);
        }
        let [ours, theirs] = &maps;
        assert_eq!(ours.count(), flags[0].iter().filter(|set| **set).count() as u64);
        let mut found = Vec::new();
        ours.runs_without(theirs, |start, count| found.push((start, count)));
        let both = flags[0].iter().zip(&flags[1]);
        assert_eq!(found, runs(both.map(|(ours, theirs)| *ours && !*theirs)));
        let free = runs(flags[0][64..576].iter().map(|set| !*set));
        let longest = free.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let sum = free.iter().map(|(_, count)| count).sum();
        assert_eq!(ours.free_in(64, 512), (sum, longest));
    }
}

#[test]
fn ranges_are_cut_to_the_map() {
    let mut map = SectorMap::new(100);
    assert_eq!(map.set(90, u64::MAX), 0);
    assert_eq!(map.count(), 10);
    assert_eq!(map.set(u64::MAX, 5), 0);
    assert_eq!(map.clear(99, 1), 1);
    assert_eq!(map.count_in(0, u64::MAX), 9);
    map.load(64, 1 << 40, &[0xff; 800]);
    map.load(1 << 40, 64, &[0xff; 8]);
    assert_eq!(map.count_in(64, 36), 36);
}

#[test]
fn loads_and_copies_words() {
    let mut map = SectorMap::new(256);
    map.load(64, 128, &[[0xff; 8], [1, 0, 0, 0, 0, 0, 0, 0x80], [0xff; 8]].concat());
    let mut runs = Vec::new();
    map.runs_without(&SectorMap::new(256), |start, count| runs.push((start, count)));
    assert_eq!(runs, [(64, 65), (191, 1)]);
    let mut other = SectorMap::new(256);
    other.set(0, 256);
    other.copy_from(&map, 128, 128);
    assert_eq!(other.count(), 130);
}
