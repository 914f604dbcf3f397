//! A bit per sector, 1 = taken. On disk: little-endian, bit i of byte j is sector 8 j + i.
#![expect(clippy::indexing_slicing, reason = "ranges are checked against `bits` at every entry")]

/// A bitmap of fixed size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    bits: usize,
    /// Bits set. Every sync asks for it for every metaslab, so it is kept, not counted.
    ones: usize,
}

impl Bitmap {
    /// All zero.
    pub fn new(bits: usize) -> Self {
        Bitmap { words: vec![0; bits.div_ceil(64)], bits, ones: 0 }
    }

    /// Longer, with zeros.
    pub fn grow(&mut self, bits: usize) {
        assert!(bits >= self.bits);
        self.words.resize(bits.div_ceil(64), 0);
        self.bits = bits;
    }

    /// From the bytes of a slot; surplus bytes are ignored, missing ones are zero.
    pub fn from_bytes(bytes: &[u8], bits: usize) -> Self {
        let mut bitmap = Bitmap::new(bits);
        for (word, chunk) in bitmap.words.iter_mut().zip(bytes.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(raw);
        }
        bitmap.clear_tail();
        bitmap.ones = bitmap.words.iter().map(|word| word.count_ones() as usize).sum();
        bitmap
    }

    /// The bytes of a slot, padded with zeros to `bytes`.
    pub fn to_bytes(&self, bytes: usize) -> Vec<u8> {
        let mut out: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        out.resize(bytes, 0);
        out
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.bits
    }

    /// Whether it has no bits at all.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// Whether bit `at` is set.
    pub fn get(&self, at: usize) -> bool {
        assert!(at < self.bits);
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Number of bits set.
    pub fn count(&self) -> usize {
        self.ones
    }

    /// Number of bits set in a range.
    pub fn count_range(&self, start: usize, count: usize) -> usize {
        self.pieces(start, count)
            .map(|(word, mask)| (self.words[word] & mask).count_ones() as usize)
            .sum()
    }

    /// Sets a range; returns how many bits were clear before.
    pub fn set_range(&mut self, start: usize, count: usize) -> usize {
        let mut changed = 0;
        for (word, mask) in self.pieces(start, count) {
            changed += (mask & !self.words[word]).count_ones() as usize;
            self.words[word] |= mask;
        }
        self.ones += changed;
        changed
    }

    /// Clears a range; returns how many bits were set before.
    pub fn clear_range(&mut self, start: usize, count: usize) -> usize {
        let mut changed = 0;
        for (word, mask) in self.pieces(start, count) {
            changed += (mask & self.words[word]).count_ones() as usize;
            self.words[word] &= !mask;
        }
        self.ones -= changed;
        changed
    }

    /// The first run of clear bits at or after `from` of at least `min`, cut to `max`: (start,
    /// length).
    pub fn find_clear(&self, from: usize, min: usize, max: usize) -> Option<(usize, usize)> {
        let mut at = from;
        while let Some(start) = self.next_bit(at, false) {
            let end = self.next_bit_until(start, true, start.saturating_add(max));
            if end - start >= min {
                return Some((start, end - start));
            }
            at = end;
        }
        None
    }

    /// Length of the longest run of clear bits.
    pub fn longest_clear(&self) -> usize {
        let (mut at, mut longest) = (0, 0);
        while let Some(start) = self.next_bit(at, false) {
            let end = self.next_bit(start, true).unwrap_or(self.bits);
            longest = longest.max(end - start);
            at = end;
        }
        longest
    }

    /// The first bit of value `set` at or after `from`.
    pub fn next_bit(&self, from: usize, set: bool) -> Option<usize> {
        if from >= self.bits {
            return None;
        }
        let flip = if set { 0 } else { u64::MAX };
        let mut index = from / 64;
        let mut word = (self.words[index] ^ flip) & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                let at = index * 64 + word.trailing_zeros() as usize;
                return (at < self.bits).then_some(at);
            }
            index += 1;
            word = *self.words.get(index)? ^ flip;
        }
    }

    fn next_bit_until(&self, from: usize, set: bool, limit: usize) -> usize {
        let limit = limit.min(self.bits);
        // Looks at a long free run only as far as wanted.
        let mut at = from;
        while at < limit {
            let word = self.words[at / 64] ^ if set { 0 } else { u64::MAX };
            let masked = word & (u64::MAX << (at % 64));
            if masked != 0 {
                return (at / 64 * 64 + masked.trailing_zeros() as usize).min(limit);
            }
            at = (at / 64 + 1) * 64;
        }
        limit
    }

    fn pieces(&self, start: usize, count: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let end = start + count;
        assert!(end <= self.bits, "range {start}+{count} of {} bits", self.bits);
        let last = end.div_ceil(64);
        (start / 64..last).filter(move |_| count > 0).map(move |word| {
            let low = start.saturating_sub(word * 64).min(63);
            let high = (end - word * 64).min(64);
            let upper = if high == 64 { u64::MAX } else { (1 << high) - 1 };
            (word, upper & (u64::MAX << low))
        })
    }

    fn clear_tail(&mut self) {
        let used = self.bits % 64;
        if used != 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << used) - 1;
        }
    }
}
