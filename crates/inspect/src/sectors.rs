//! A bit per sector of one vdev, by words.
//!
//! Invariants:
//! - Ranges are cut to the map: no range from a disk can reach outside it or panic.
//! - Bits past the last sector are never set.

/// A set of sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SectorMap {
    words: Vec<u64>,
    sectors: u64,
}

/// The words that a range touches, and which bits of the first and the last.
struct Span {
    words: std::ops::Range<usize>,
    head: u64,
    tail: u64,
}

impl SectorMap {
    /// The empty set of `sectors` sectors.
    pub fn new(sectors: u64) -> Self {
        let words = usize::try_from(sectors.div_ceil(64)).unwrap_or(0);
        SectorMap { words: vec![0; words], sectors }
    }

    /// The empty set over the same sectors.
    pub fn emptied(&self) -> Self {
        SectorMap::new(self.sectors)
    }

    /// Sectors in the set.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Sectors of a range that are in the set.
    pub fn count_in(&self, start: u64, count: u64) -> u64 {
        let mut found = 0;
        let span = self.span(start, count);
        let words = self.words.get(span.words.clone()).unwrap_or_default();
        for (word, mask) in words.iter().zip(span.masks()) {
            found += u64::from((word & mask).count_ones());
        }
        found
    }

    /// Adds a range; returns how many of its sectors were in the set before.
    pub fn set(&mut self, start: u64, count: u64) -> u64 {
        let mut before = 0;
        let span = self.span(start, count);
        let words = self.words.get_mut(span.words.clone()).unwrap_or_default();
        for (word, mask) in words.iter_mut().zip(span.masks()) {
            before += u64::from((*word & mask).count_ones());
            *word |= mask;
        }
        before
    }

    /// Removes a range; returns how many of its sectors were in the set before.
    pub fn clear(&mut self, start: u64, count: u64) -> u64 {
        let mut before = 0;
        let span = self.span(start, count);
        let words = self.words.get_mut(span.words.clone()).unwrap_or_default();
        for (word, mask) in words.iter_mut().zip(span.masks()) {
            before += u64::from((*word & mask).count_ones());
            *word &= !mask;
        }
        before
    }

    /// Sets the bits from `start` (a multiple of 64) on to those of `bytes`, little-endian; at most
    /// `count` (a multiple of 64) of them.
    pub fn load(&mut self, start: u64, count: u64, bytes: &[u8]) {
        let words = self.whole_words_mut(start, count);
        let (chunks, _) = bytes.as_chunks::<8>();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*chunk);
        }
    }

    /// Sets the bits of a range in whole words to those of `other`.
    pub fn copy_from(&mut self, other: &SectorMap, start: u64, count: u64) {
        let span = whole_words(start, count);
        let from = other.words.get(span).unwrap_or_default();
        let to = self.whole_words_mut(start, count);
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }

    /// For a range in whole words: sectors not in the set, and the longest run of them.
    pub fn free_in(&self, start: u64, count: u64) -> (u64, u64) {
        let words = self.words.get(whole_words(start, count)).unwrap_or_default();
        let (mut free, mut longest, mut run) = (0, 0, 0);
        for word in words {
            free += u64::from(word.count_zeros());
            if *word == 0 {
                run += 64;
                continue;
            }
            let mut at = 0;
            while at < 64 {
                let zeros = (word >> at).trailing_zeros().min(64 - at);
                run += u64::from(zeros);
                at += zeros;
                if at < 64 {
                    longest = longest.max(run);
                    run = 0;
                    at += (!(word >> at)).trailing_zeros();
                }
            }
        }
        (free, longest.max(run))
    }

    /// Calls `each` with the runs (first sector, sectors) that are in this set and not in `other`.
    pub fn runs_without(&self, other: &SectorMap, mut each: impl FnMut(u64, u64)) {
        let (mut first, mut end) = (0, 0);
        for ((start, ours), theirs) in (0..).step_by(64).zip(&self.words).zip(&other.words) {
            let mut rest = ours & !theirs;
            while rest != 0 {
                let skip = rest.trailing_zeros();
                let ones = (!(rest >> skip)).trailing_zeros();
                let at = start + u64::from(skip);
                if at != end {
                    if end > first {
                        each(first, end - first);
                    }
                    first = at;
                }
                end = at + u64::from(ones);
                let done = skip + ones;
                rest = if done == 64 { 0 } else { rest >> done << done };
            }
        }
        if end > first {
            each(first, end - first);
        }
    }

    fn whole_words_mut(&mut self, start: u64, count: u64) -> &mut [u64] {
        let span = whole_words(start, count);
        let end = span.end.min(self.words.len());
        self.words.get_mut(span.start.min(end)..end).unwrap_or_default()
    }

    fn span(&self, start: u64, count: u64) -> Span {
        let end = start.saturating_add(count).min(self.sectors);
        if start >= end {
            return Span { words: 0..0, head: 0, tail: 0 };
        }
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Span {
            words: index(start / 64)..index(end.div_ceil(64)),
            head: u64::MAX << (start % 64),
            tail: u64::MAX >> (63 - (end - 1) % 64),
        }
    }
}

impl Span {
    fn masks(&self) -> impl Iterator<Item = u64> + use<> {
        let (head, tail, count) = (self.head, self.tail, self.words.len());
        (0..count).map(move |at| {
            let first = if at == 0 { head } else { u64::MAX };
            let last = if at + 1 == count { tail } else { u64::MAX };
            first & last
        })
    }
}

fn whole_words(start: u64, count: u64) -> std::ops::Range<usize> {
    debug_assert!(start.is_multiple_of(64) && count.is_multiple_of(64), "whole words");
    let index = |at: u64| usize::try_from(at / 64).unwrap_or(usize::MAX);
    index(start)..index(start.saturating_add(count))
}

#[cfg(test)]
mod tests;
