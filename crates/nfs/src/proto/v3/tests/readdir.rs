//! READDIR and READDIRPLUS, entry by entry: the limits are kept to the byte.

use proptest::prelude::*;

use super::strategy::{attributes, entry, entry_plus};
use super::*;

/// The result as the encoder built it, and the number of entries that it took.
fn listed(
    count: u32,
    dir_attributes: &PostOpAttr,
    entries: &[Entry3<'_>],
) -> Result<(Vec<u8>, usize), TooSmall> {
    let mut to = EncodeBuf::new();
    let mut list = Readdir3Encoder::begin(&mut to, count, dir_attributes, [7; 8])?;
    let mut taken = 0;
    for entry in entries {
        let fits = list.fits(entry.name.len());
        let fit = list.entry(entry);
        assert_eq!(fits, fit == Fit::Taken);
        if fit == Fit::Full {
            break;
        }
        taken += 1;
    }
    let eof = taken == entries.len();
    assert_eq!(list.finish(eof)?, taken);
    Ok((to.to_vec(), taken))
}

/// Bytes of `READDIR3resok` with these entries, by plain encoding.
fn resok_bytes(dir_attributes: PostOpAttr, entries: &[Entry3<'_>]) -> u32 {
    let (cookieverf, entries) = ([7; 8], entries.to_vec());
    let resok = Readdir3ResOk { dir_attributes, cookieverf, entries, eof: false };
    u32::try_from(encoded(&resok).len()).unwrap()
}

/// RFC 1813 section 3.3.16: count is "the size of the READDIR3resok structure", XDR included:
/// attributes word 4, verifier 8, end of list 4, eof 4; an entry with a name of 1 to 4 bytes 28.
#[test]
fn count_is_kept_to_the_byte() {
    let entries =
        [&b"a"[..], b"bcd", b"efgh", b"ijklm"].map(|name| Entry3 { fileid: 1, name, cookie: 2 });
    assert_eq!(listed(19, &None, &entries), Err(TooSmall));
    assert_eq!(listed(20, &None, &entries), Err(TooSmall), "room for a list, not for an entry");
    assert_eq!(listed(47, &None, &entries), Err(TooSmall));
    for (count, taken) in [(48, 1), (75, 1), (76, 2), (103, 2), (104, 3), (135, 3), (136, 4)] {
        let (bytes, got) = listed(count, &None, &entries).unwrap();
        assert_eq!(got, taken, "count {count}");
        assert_eq!(bytes.len(), 4 + 20 + 28 * taken + if taken == 4 { 4 } else { 0 });
    }
    assert_eq!(listed(48 + 83, &Some(super::attributes()), &entries), Err(TooSmall));
    assert_eq!(listed(48 + 84, &Some(super::attributes()), &entries).unwrap().1, 1);
    assert_eq!(listed(u32::MAX, &None, &entries).unwrap().1, 4);
}

/// The end of a directory: an empty list with eof set is a valid answer.
#[test]
fn an_empty_list_says_eof() {
    let (bytes, taken) = listed(20, &None, &[]).unwrap();
    assert_eq!((bytes.len(), taken), (24, 0));
    assert_eq!(bytes, [&words(&[0, 0])[..], &[7; 8], &words(&[0, 1])].concat());
}

#[test]
fn what_is_not_finished_is_taken_back() {
    let mut to = EncodeBuf::new();
    to.u32(99);
    let entry = Entry3 { fileid: 1, name: b"a", cookie: 2 };
    let mut list = Readdir3Encoder::begin(&mut to, 1000, &None, [7; 8]).unwrap();
    assert_eq!(list.entry(&entry), Fit::Taken);
    drop(list);
    assert_eq!(to.to_vec(), words(&[99]));
    assert_eq!(Readdir3Encoder::begin(&mut to, 10, &None, [7; 8]).err(), Some(TooSmall));
    assert_eq!(to.to_vec(), words(&[99]));
    let list = Readdir3Encoder::begin(&mut to, 1000, &None, [7; 8]).unwrap();
    assert_eq!(list.finish(false), Err(TooSmall));
    assert_eq!(to.to_vec(), words(&[99]));
}

fn plus(name: &[u8]) -> EntryPlus3<'_> {
    let (name_attributes, name_handle) = (Some(super::attributes()), Some(handle()));
    EntryPlus3 { fileid: 1, name, cookie: 2, name_attributes, name_handle }
}

/// The number of entries, out of six with short names, that READDIRPLUS takes. Each has 28 bytes of
/// directory information and 104 more of attributes and handle.
fn plus_taken(dircount: u32, maxcount: u32) -> Result<usize, TooSmall> {
    let mut to = EncodeBuf::new();
    let mut list = Readdirplus3Encoder::begin(&mut to, dircount, maxcount, &None, [7; 8])?;
    for name in [b"a", b"b", b"c", b"d", b"e", b"f"] {
        let fits = list.fits(1, 5);
        let fit = list.entry(&plus(name));
        assert_eq!(fits, fit == Fit::Taken);
        if fit == Fit::Full {
            break;
        }
    }
    let taken = list.finish(false)?;
    assert_eq!(to.len(), 4 + 20 + 132 * taken);
    Ok(taken)
}

/// RFC 1813 section 3.3.17: both limits, and the entry that is taken whatever dircount says.
#[test]
fn dircount_and_maxcount() {
    assert_eq!(plus_taken(u32::MAX, 151), Err(TooSmall));
    assert_eq!(plus_taken(u32::MAX, 152), Ok(1));
    assert_eq!(plus_taken(u32::MAX, 283), Ok(1));
    assert_eq!(plus_taken(u32::MAX, 284), Ok(2));
    assert_eq!(plus_taken(83, 8192), Ok(2));
    assert_eq!(plus_taken(84, 8192), Ok(3));
    assert_eq!(plus_taken(28, 8192), Ok(1));
    assert_eq!(plus_taken(0, 8192), Ok(1), "a client that wants nothing still gets on");
}

/// Called before the attributes are fetched, `fits` assumes the largest form of the entry.
#[test]
fn fits_is_on_the_safe_side() {
    let mut to = EncodeBuf::new();
    let mut list = Readdirplus3Encoder::begin(&mut to, 8192, 100, &None, [7; 8]).unwrap();
    assert!(!list.fits(1, 64));
    let bare = EntryPlus3 { name_attributes: None, name_handle: None, ..plus(b"a") };
    assert_eq!(list.entry(&plus(b"a")), Fit::Full);
    assert_eq!(list.entry(&bare), Fit::Taken);
    assert_eq!(list.finish(true), Ok(1));
}

proptest! {
    /// The encoder takes the longest run of entries whose plain encoding keeps to `count`, and
    /// its bytes are those of plain encoding.
    #[test]
    fn readdir_takes_all_that_fits(
        dir_attributes in proptest::option::of(attributes()),
        entries in prop::collection::vec(entry(), 0..20),
        count in 0..2500_u32,
    ) {
        let fitting = (0..=entries.len())
            .rev()
            .find(|&n| resok_bytes(dir_attributes, &entries[..n]) <= count);
        match (fitting, listed(count, &dir_attributes, &entries)) {
            (Some(n), Ok((bytes, taken))) => {
                prop_assert_eq!(taken, n);
                prop_assert!(bytes.len() <= 4 + usize::try_from(count).unwrap());
                let eof = n == entries.len();
                let entries = entries[..n].to_vec();
                let resok = Readdir3ResOk { dir_attributes, cookieverf: [7; 8], entries, eof };
                prop_assert_eq!(bytes, encoded(&Readdir3Res::Ok(resok)));
            }
            (None, Err(TooSmall)) => {}
            (Some(0), Err(TooSmall)) => prop_assert!(!entries.is_empty()),
            (fitting, got) => prop_assert!(false, "{fitting:?} fit, got {got:?}"),
        }
    }

    /// As above for READDIRPLUS. All entries taken, except the first, keep to `dircount`.
    #[test]
    fn readdirplus_keeps_to_both_limits(
        entries in prop::collection::vec(entry_plus(), 1..20),
        dircount in 0..1500_u32,
        maxcount in 20..4000_u32,
    ) {
        let mut to = EncodeBuf::new();
        let mut list =
            Readdirplus3Encoder::begin(&mut to, dircount, maxcount, &None, [7; 8]).unwrap();
        let taken = entries.iter().take_while(|entry| list.entry(entry) == Fit::Taken).count();
        let eof = taken == entries.len();
        let resok = |n: usize, eof| Readdirplus3ResOk {
            dir_attributes: None,
            cookieverf: [7; 8],
            entries: entries[..n].to_vec(),
            eof,
        };
        let dir_bytes = |n: usize| -> usize {
            entries[..n].iter().map(|it| 24 + it.name.len().next_multiple_of(4)).sum()
        };
        let keeps = |n: usize| {
            encoded(&resok(n, false)).len() <= usize::try_from(maxcount).unwrap()
                && (n <= 1 || dir_bytes(n) <= usize::try_from(dircount).unwrap())
        };
        prop_assert!(keeps(taken));
        prop_assert!(eof || !keeps(taken + 1), "another entry would have fitted");
        match list.finish(eof) {
            Ok(n) => {
                prop_assert_eq!(n, taken);
                prop_assert_eq!(to.to_vec(), encoded(&Readdirplus3Res::Ok(resok(taken, eof))));
            }
            Err(TooSmall) => prop_assert!(taken == 0 && to.is_empty()),
        }
    }
}
