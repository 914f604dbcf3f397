//! The content of a page: a function of its number and generation, cheap both ways.
//!
//! A page is 512 words in arithmetic progression; a hash of page and generation is the first. So
//! the comparison notices a page of another place, an older generation, a page shifted by a word
//! and any changed bit. It costs an addition and a comparison per word. The step is odd and large:
//! no four bytes repeat nearby, and no compression saves an eighth.

use crate::random::mix;

/// Bytes of a page: the unit that generations are counted in.
pub const PAGE_BYTES: usize = 4096;

/// Fills `to`, whole pages from page `first` on, all of one generation.
pub fn fill(first: u64, generation: u32, to: &mut [u8]) {
    for (page, bytes) in (first..).zip(to.chunks_exact_mut(PAGE_BYTES)) {
        let mut value = begin(page, generation);
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&value.to_le_bytes());
            value = value.wrapping_add(STEP);
        }
    }
}

/// Whether `found`, one page, is `page` in `generation`.
#[must_use]
pub fn holds(page: u64, generation: u32, found: &[u8]) -> bool {
    let mut value = begin(page, generation);
    let mut differs = u64::from(found.len() != PAGE_BYTES);
    let (words, _) = found.as_chunks();
    for word in words {
        differs |= u64::from_le_bytes(*word) ^ value;
        value = value.wrapping_add(STEP);
    }
    differs == 0
}

/// Describes the wrong content of a page, for the message.
#[must_use]
pub fn describe(page: u64, generation: u32, found: &[u8]) -> String {
    let expected = format!("page {page}: generation {generation} expected");
    if found.iter().all(|byte| *byte == 0) {
        return format!("{expected}, zeros found");
    }
    let earlier = (generation.saturating_sub(8)..generation + 8).filter(|it| *it != generation);
    for other in earlier {
        if holds(page, other, found) {
            return format!("{expected}, generation {other} found");
        }
    }
    let mut whole = vec![0; PAGE_BYTES];
    fill(page, generation, &mut whole);
    let wrong = whole.iter().zip(found).filter(|(expected, found)| expected != found).count();
    let first = whole.iter().zip(found).position(|(expected, found)| expected != found);
    format!("{expected}, {wrong} bytes differ, the first at {first:?}")
}

/// The first word: every bit of page and generation matters.
fn begin(page: u64, generation: u32) -> u64 {
    mix(((page << 32) ^ u64::from(generation)).wrapping_add(SEED))
}

const SEED: u64 = 0x6163_6966_6572_2121;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_page_and_generation_holds() {
        let mut two = vec![0; 2 * PAGE_BYTES];
        fill(7, 3, &mut two);
        let (first, second) = two.split_at(PAGE_BYTES);
        assert!(holds(7, 3, first) && holds(8, 3, second));
        assert!(!holds(8, 3, first) && !holds(7, 2, first) && !holds(7, 3, &first[8..]));
        // A misplaced page, shifted by one word.
        let mut shifted = first[8..].to_vec();
        shifted.extend([0; 8]);
        assert!(!holds(7, 3, &shifted));
        for bit in [0, 1, 4095 * 8, 4095 * 8 + 7, 12_345] {
            let mut flipped = first.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!holds(7, 3, &flipped), "bit {bit}");
        }
        assert!(describe(7, 4, first).ends_with("generation 3 found"));
        assert!(describe(7, 3, &[0; PAGE_BYTES]).ends_with("zeros found"));
    }
}
