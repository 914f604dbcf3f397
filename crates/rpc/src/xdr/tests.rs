//! XDR, compared with RFC 4506: golden bytes, round trips, totality, and the pages inside a buffer.

use std::io::IoSlice;

use aquifer_blockio::{Filling, Page};
use proptest::prelude::*;

use super::*;
use crate::xdr_table;

xdr_table! {
    /// For the macro.
    enum Colour {
        /// One.
        Red = 1,
        /// Far.
        Blue = 70_000,
    }

    /// For the macro.
    struct Both<'a> {
        /// Borrowed.
        name: &'a [u8],
        /// Own.
        colour: Colour,
        /// Optional.
        more: Option<u64>,
    }
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = EncodeBuf::new();
    to.put(value);
    to.to_vec()
}

/// RFC 4506 section 7: the file of the example, byte by byte.
#[test]
fn golden_rfc_4506_section_7() {
    let mut to = EncodeBuf::new();
    to.opaque(b"sillyprog");
    to.u32(2);
    to.opaque(b"lisp");
    to.opaque(b"john");
    to.opaque(b"(quit)");
    let bytes = [
        0, 0, 0, 9, b's', b'i', b'l', b'l', b'y', b'p', b'r', b'o', b'g', 0, 0, 0, // name
        0, 0, 0, 2, // filekind EXEC
        0, 0, 0, 4, b'l', b'i', b's', b'p', // interpretor
        0, 0, 0, 4, b'j', b'o', b'h', b'n', // owner
        0, 0, 0, 6, b'(', b'q', b'u', b'i', b't', b')', 0, 0, // data
    ];
    assert_eq!(to.to_vec(), bytes);
    let mut from = Decoder::new(&bytes);
    assert_eq!(from.string(255), Ok(&b"sillyprog"[..]));
    assert_eq!(from.u32(), Ok(2));
    assert_eq!(from.string(32), Ok(&b"lisp"[..]));
    assert_eq!(from.string(32), Ok(&b"john"[..]));
    let data = from.span(65_535).unwrap();
    assert_eq!(data, Span { offset: 40, bytes: b"(quit)" });
    assert_eq!(&bytes[data.range()], b"(quit)");
    assert!(from.remaining().is_empty());
    assert_eq!(from.position(), bytes.len());
}

#[test]
fn golden_numbers() {
    assert_eq!(encoded(&0x0102_0304_u32), [1, 2, 3, 4]);
    assert_eq!(encoded(&-2_i32), [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(encoded(&0x0102_0304_0506_0708_u64), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(encoded(&-1_i64), [0xff; 8]);
    assert_eq!(encoded(&true), [0, 0, 0, 1]);
    assert_eq!(encoded(&[9_u8; 5]), [9, 9, 9, 9, 9, 0, 0, 0]);
    assert_eq!(encoded(&Some(7_u32)), [0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(encoded(&None::<u32>), [0, 0, 0, 0]);
    assert_eq!(encoded(&Colour::Blue), [0, 1, 0x11, 0x70]);
}

#[test]
fn errors_name_the_place() {
    let mut from = Decoder::new(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
    assert_eq!(from.bool(), Ok(true));
    let bad = XdrError::BadValue { offset: 4, what: "bool", value: 2 };
    assert_eq!(from.clone().bool(), Err(bad));
    let bad = XdrError::BadValue { offset: 4, what: "Colour", value: 2 };
    assert_eq!(Colour::decode(&mut from.clone()), Err(bad));
    let long = XdrError::TooLong { offset: 4, len: 2, limit: 1 };
    assert_eq!(from.clone().opaque(1), Err(long));
    assert_eq!(from.u64(), Err(XdrError::Truncated { offset: 4, missing: 2 }));
    let mut from = Decoder::new(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    let short = XdrError::Truncated { offset: 4, missing: 0xffff_fffc };
    assert_eq!(from.opaque(usize::MAX), Err(short));
}

/// Padding that is not zero, or that is missing at the very end, is accepted.
#[test]
fn padding_is_lenient() {
    let mut from = Decoder::new(&[0, 0, 0, 1, b'x', 9, 9, 9, 0, 0, 0, 5]);
    assert_eq!(from.opaque(8), Ok(&b"x"[..]));
    assert_eq!(from.u32(), Ok(5));
    let mut from = Decoder::new(&[0, 0, 0, 1, b'x', 9]);
    assert_eq!(from.opaque(8), Ok(&b"x"[..]));
    assert!(from.remaining().is_empty());
    assert!(from.u32().is_err());
    let mut from = Decoder::new(&[1, 2, 3, 4, 5]);
    assert_eq!(from.opaque_fixed::<5>(), Ok([1, 2, 3, 4, 5]));
}

#[test]
fn lists_end_with_false_and_are_bounded_by_the_input() {
    let mut to = EncodeBuf::new();
    to.list([3_u32, 4]);
    let bytes = to.to_vec();
    assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0]);
    assert_eq!(Decoder::new(&bytes).list::<u32>(), Ok(vec![3, 4]));
    assert!(Decoder::new(&bytes[..16]).list::<u32>().is_err());
}

#[test]
fn enum_table_is_complete_and_inverse() {
    assert_eq!(Colour::ALL, [Colour::Red, Colour::Blue]);
    for &colour in Colour::ALL {
        assert_eq!(Colour::from_wire(colour.wire()), Some(colour));
    }
    assert_eq!(Colour::from_wire(0), None);
}

#[test]
fn holes_and_marks() {
    let mut to = EncodeBuf::with_capacity(64);
    to.u32(1);
    let hole = to.hole();
    let mark = to.mark();
    to.piece(PagePiece::new(Page::with_prefix(b"abcd"), 0..4).unwrap());
    to.u32(2);
    assert_eq!(to.len_since(mark), 8);
    to.fill(hole, 8);
    assert_eq!(to.to_vec(), b"\0\0\0\x01\0\0\0\x08abcd\0\0\0\x02");
    to.truncate(mark);
    assert_eq!(to.len(), 8);
    assert_eq!(to.to_vec(), b"\0\0\0\x01\0\0\0\x08");
    assert_eq!(to.contiguous(), Some(&b"\0\0\0\x01\0\0\0\x08"[..]));
    to.clear();
    assert!(to.is_empty());
    assert!(to.held_bytes() >= 64);
}

#[test]
#[should_panic(expected = "a hole is filled in the buffer it was left in")]
fn a_foreign_hole_is_our_bug() {
    let mut to = EncodeBuf::new();
    to.u64(0);
    let hole = to.hole();
    EncodeBuf::new().fill(hole, 1);
}

#[test]
fn payload_shares_pages_and_pads() {
    let page = Page::with_prefix(b"0123456789");
    let pieces =
        || [0..4, 4..4, 3..8, 4094..4096].map(|range| PagePiece::new(page.clone(), range).unwrap());
    let mut to = EncodeBuf::new();
    assert_eq!(to.payload(pieces()), 11);
    assert_eq!(to.to_vec(), b"\0\0\0\x0b012334567\0\0\0");
    assert_eq!(to.len(), 16);
    assert!(to.contiguous().is_none());
    let shared = to.segments(0).nth(1).unwrap();
    assert_eq!(shared.as_ptr(), page.as_ptr(), "the page itself, not a copy");
    assert_eq!(to.payload([]), 0);
    assert_eq!(to.len(), 20);
}

/// Pages that are neighbours in memory are sent as one slice, wherever sending is resumed.
#[test]
fn neighbours_are_one_segment() {
    let content: Vec<u8> = (0..=250).cycle().take(16 * 4096).collect();
    let mut filling = Filling::new(16);
    filling.put(&content);
    let pages = filling.finish().unwrap();
    let mut pieces: Vec<PagePiece> = pages.into_iter().map(PagePiece::whole).collect();
    pieces[0] = PagePiece::new(pieces[0].page().clone(), 100..4096).unwrap();
    pieces[15] = PagePiece::new(pieces[15].page().clone(), 0..3000).unwrap();
    let mut to = EncodeBuf::new();
    to.u32(1);
    to.payload(pieces[..8].iter().cloned());
    to.payload(pieces[8..].iter().cloned());
    // Both payloads end on whole words: no padding.
    let (left, right) = (&content[100..8 * 4096], &content[8 * 4096..15 * 4096 + 3000]);
    let segments: Vec<&[u8]> = to.segments(0).collect();
    assert_eq!(segments.len(), 4, "the word of a length parts neighbours");
    assert!(segments[1] == left && segments[3] == right);
    let resumed: Vec<&[u8]> = to.segments(8 + 5000).collect();
    assert!(resumed[0] == &left[5000..] && resumed[2] == right);
    let mut slices = [IoSlice::new(&[]); 8];
    assert_eq!(to.io_slices(8, 10_000, &mut slices), 1);
    assert!(*slices[0] == left[..10_000]);
}

#[test]
fn pieces_outside_their_page_do_not_exist() {
    let page = Page::zeroed();
    assert_eq!(PagePiece::whole(page.clone()).len(), 4096);
    assert!(PagePiece::new(page.clone(), 0..4097).is_none());
    #[expect(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
    let reversed = 5..4;
    assert!(PagePiece::new(page.clone(), reversed).is_none());
    assert!(PagePiece::new(page.clone(), usize::MAX..usize::MAX).is_none());
    assert!(PagePiece::new(page, 4096..4096).unwrap().is_empty());
}

/// Items of an [`EncodeBuf`] in the property tests.
#[derive(Clone, Debug)]
enum Item {
    Word(u32),
    Opaque(Vec<u8>),
    Pages(Vec<(u8, usize, usize)>),
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let piece = (any::<u8>(), 0..4096_usize, 0..40_usize);
    let item = prop_oneof![
        any::<u32>().prop_map(Item::Word),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Item::Opaque),
        prop::collection::vec(piece, 0..4).prop_map(Item::Pages),
    ];
    prop::collection::vec(item, 0..12)
}

/// Encodes the items and, beside it, writes down the expected bytes.
fn build(items: &[Item]) -> (EncodeBuf, Vec<u8>) {
    let (mut to, mut plain) = (EncodeBuf::new(), Vec::new());
    for item in items {
        let opaque = match item {
            Item::Word(word) => {
                to.u32(*word);
                plain.extend(word.to_be_bytes());
                continue;
            }
            Item::Opaque(bytes) => {
                to.opaque(bytes);
                bytes.clone()
            }
            Item::Pages(pieces) => {
                let pieces = pieces.iter().map(|&(byte, start, len)| {
                    let page = Page::with_prefix(&[byte; 4096]);
                    PagePiece::new(page, start..(start + len).min(4096)).unwrap()
                });
                let pieces = pieces.collect::<Vec<_>>();
                to.payload(pieces.clone());
                pieces.iter().flat_map(|piece| piece.bytes().to_vec()).collect()
            }
        };
        plain.extend(u32::try_from(opaque.len()).unwrap().to_be_bytes());
        plain.extend(&opaque);
        plain.resize(plain.len().next_multiple_of(4), 0);
    }
    (to, plain)
}

proptest! {
    /// However the socket takes it in parts, the bytes sent are the bytes encoded.
    #[test]
    fn segments_from_anywhere(
        items in items(),
        slots in 1..5_usize,
        step in 1..50_usize,
        most in 1..10_000_usize,
    ) {
        let (to, plain) = build(&items);
        prop_assert_eq!(to.len(), plain.len());
        prop_assert_eq!(&to.to_vec(), &plain);
        for from in 0..plain.len() + 2 {
            let rest: Vec<u8> = to.segments(from).flatten().copied().collect();
            prop_assert_eq!(&rest, &plain[from.min(plain.len())..]);
            prop_assert!(to.segments(from).all(|segment| !segment.is_empty()));
        }
        let mut sent: Vec<u8> = Vec::new();
        while sent.len() < plain.len() {
            let mut slices = vec![IoSlice::new(&[]); slots];
            let filled = to.io_slices(sent.len(), most, &mut slices);
            prop_assert!(filled > 0);
            let offered: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
            prop_assert!((1..=most).contains(&offered.len()));
            sent.extend(offered.iter().take(step));
        }
        prop_assert_eq!(sent, plain);
    }

    /// Joining buffers joins bytes; truncating removes them.
    #[test]
    fn append_and_truncate(first in items(), second in items()) {
        let ((mut to, mut plain), (other, more)) = (build(&first), build(&second));
        let mark = to.mark();
        to.append(other);
        prop_assert_eq!(to.len_since(mark), more.len());
        plain.extend(&more);
        prop_assert_eq!(&to.to_vec(), &plain);
        for (from, byte) in plain.iter().enumerate() {
            prop_assert_eq!(to.segments(from).next().map(|s| s[0]), Some(*byte));
        }
        to.truncate(mark);
        prop_assert_eq!(to.len(), to.to_vec().len());
        prop_assert_eq!(to.to_vec(), build(&first).1);
    }

    #[test]
    fn round_trip(
        name in prop::collection::vec(any::<u8>(), 0..70),
        blue in any::<bool>(),
        more in any::<Option<u64>>(),
        signed in any::<(i32, i64)>(),
    ) {
        let colour = if blue { Colour::Blue } else { Colour::Red };
        let value = Both { name: &name, colour, more };
        let mut to = EncodeBuf::new();
        to.put(&value);
        to.put(&signed.0);
        to.put(&signed.1);
        let bytes = to.to_vec();
        let mut from = Decoder::new(&bytes);
        prop_assert_eq!(Both::decode(&mut from), Ok(value));
        prop_assert_eq!(i32::decode(&mut from), Ok(signed.0));
        prop_assert_eq!(i64::decode(&mut from), Ok(signed.1));
        prop_assert!(from.remaining().is_empty());
    }

    /// Any bytes, any order of calls: a value or an error, and never past the end.
    #[test]
    fn total(
        bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..64),
        asks in prop::collection::vec(0..9_u8, 0..16),
        limit in 0..80_usize,
    ) {
        let mut from = Decoder::new(&bytes);
        for ask in asks {
            let _ = match ask {
                0 => from.u32().map(drop),
                1 => from.u64().map(drop),
                2 => from.bool().map(drop),
                3 => from.opaque(limit).map(|bytes| assert!(bytes.len() <= limit)),
                4 => from.span(usize::MAX).map(|span| assert_eq!(&bytes[span.range()], &*span)),
                5 => from.opaque_fixed::<7>().map(drop),
                6 => from.list::<u32>().map(drop),
                7 => Both::decode(&mut from).map(drop),
                _ => Option::<[u8; 3]>::decode(&mut from).map(drop),
            };
            prop_assert!(from.position() <= bytes.len());
            prop_assert_eq!(from.position() + from.remaining().len(), bytes.len());
        }
    }
}
