//! Seeded randomness and seeded content: the seed alone is enough to check content that was read.
//!
//! Invariant: the byte at an offset depends only on seed and offset. So any part of a file can be
//! written or verified alone, and content at a wrong place is found.

use aquifer_rig::random::Random;

/// Fills `out` with the content of `seed` from byte `offset` on.
pub fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let mut word_number = offset / 8;
    let skip = usize::try_from(offset % 8).unwrap_or(0);
    let head_len = if skip == 0 { 0 } else { (8 - skip).min(out.len()) };
    let (head, body) = out.split_at_mut(head_len);
    if !head.is_empty() {
        let word = word(seed, word_number);
        for (to, from) in head.iter_mut().zip(word.into_iter().skip(skip)) {
            *to = from;
        }
        word_number = word_number.wrapping_add(1);
    }
    for chunk in body.chunks_mut(8) {
        for (to, from) in chunk.iter_mut().zip(word(seed, word_number)) {
            *to = from;
        }
        word_number = word_number.wrapping_add(1);
    }
}

/// The first offset at which `found`, read at `offset`, differs from the content of `seed`.
#[must_use]
pub fn first_difference(seed: u64, offset: u64, found: &[u8]) -> Option<u64> {
    let mut expected = vec![0; found.len()];
    fill(seed, offset, &mut expected);
    if expected == found {
        return None;
    }
    let place = expected.iter().zip(found).position(|(a, b)| a != b)?;
    Some(offset.saturating_add(u64::try_from(place).ok()?))
}

fn word(seed: u64, number: u64) -> [u8; 8] {
    Random::nth(seed, number).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_equals_the_same_part_of_the_whole() {
        let mut whole = vec![0; 4096];
        fill(7, 0, &mut whole);
        for (start, len) in [(0, 1), (1, 6), (3, 5), (5, 100), (8, 8), (4090, 6), (7, 0)] {
            let mut part = vec![0; len];
            fill(7, u64::try_from(start).unwrap(), &mut part);
            assert_eq!(part, whole[start..start + len], "{start}+{len}");
        }
    }

    #[test]
    fn wrong_seed_place_or_byte_is_found() {
        let mut found = vec![0; 100];
        fill(1, 50, &mut found);
        assert_eq!(first_difference(1, 50, &found), None);
        assert_eq!(first_difference(2, 50, &found), Some(50));
        assert!(first_difference(1, 58, &found).is_some());
        found[77] ^= 1;
        assert_eq!(first_difference(1, 50, &found), Some(127));
    }
}
