//! Heads of bundles that are whole, cut anywhere, changed anywhere, and hostile.

use std::collections::BTreeMap;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::{Guid, Writer};
use aquifer_stream::{Bundle, BundleHead, BundleMember, StreamError};

fn member(below: &str, to: u64, from: u64) -> BundleMember {
    let from = Some(Guid(from)).filter(|from| from.0 != 0);
    BundleMember { below: below.into(), to: Guid(to), from }
}

fn sample() -> Bundle {
    let members = vec![member("", 1, 0), member("/a", 2, 7), member("/a/deep", 3, 0)];
    Bundle { dataset: "tank/vms".into(), snapshot: "b".into(), members }
}

/// Two datasets in rows, one of which has all of its oldest first, and one alone.
fn rows() -> BundleHead {
    let members = vec![
        member("", 1, 9),
        member("", 2, 1),
        member("/a", 3, 0),
        member("/a/deep", 4, 0),
        member("/a/deep", 5, 4),
        member("/a/deep", 6, 5),
    ];
    let bundle = Bundle { dataset: "tank/vms".into(), snapshot: "c".into(), members };
    let between = [(0, "b"), (3, "a"), (4, "b")].map(|(at, name)| (at, name.to_string()));
    BundleHead { bundle, between: BTreeMap::from(between) }
}

/// With a right checksum, whatever it says: what a hostile sender can do. `names`: of each stream,
/// in a head of version 2.
fn sealed(bundle: &Bundle, names: Option<&[&str]>) -> Vec<u8> {
    let mut list = Writer::new();
    list.string(bundle.dataset.as_bytes());
    list.string(bundle.snapshot.as_bytes());
    list.count(bundle.members.len());
    for (at, of) in bundle.members.iter().enumerate() {
        list.string(of.below.as_bytes());
        names.iter().flat_map(|names| names.get(at)).for_each(|of| list.string(of.as_bytes()));
        list.u64(of.to.0);
        list.u64(of.from.map_or(0, |from| from.0));
    }
    let mut head = Writer::new();
    head.put(b"AQBUNDLE");
    head.u32(if names.is_some() { 2 } else { 1 });
    head.count(list.len());
    head.put(list.as_bytes());
    let sum = checksum128(head.as_bytes());
    head.u128(sum);
    head.into_bytes()
}

/// They are kept for years: `AQUIFER_BLESS=1` writes the file, for a new version of the format.
#[test]
fn heads_are_those_of_the_golden_files() {
    let names = ["b", "c", "c", "a", "b", "c"];
    for (file, head, again) in [
        ("bundle.head", head(sample()), sealed(&sample(), None)),
        ("bundle-rows.head", rows(), sealed(&rows().bundle, Some(&names))),
    ] {
        let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        let bytes = head.encode().unwrap();
        if std::env::var_os("AQUIFER_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{path} differs");
        assert_eq!(bytes, again);
        assert_eq!(BundleHead::decode(&bytes), Ok(Some((head, bytes.len()))));
    }
}

fn head(bundle: Bundle) -> BundleHead {
    BundleHead { bundle, ..BundleHead::default() }
}

#[test]
fn what_was_put_in_comes_out_and_a_part_of_it_is_none() {
    for head in [head(sample()), rows()] {
        let bytes = head.encode().unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(BundleHead::decode(&bytes[..cut]), Ok(None), "{cut}");
        }
        let more = [&bytes[..], b"more"].concat();
        assert_eq!(BundleHead::decode(&more), Ok(Some((head, bytes.len()))));
    }
    assert_eq!((0..6).map(|at| rows().snapshot(at).to_string()).collect::<String>(), "bccabc");
    let is_behind = (0..7).map(|at| rows().bundle.is_behind(at)).collect::<Vec<_>>();
    assert_eq!(is_behind, [false, true, false, false, true, true, false]);
    assert_eq!(Bundle::is_one(b"AQBUND"), None);
    assert_eq!((Bundle::is_one(b"AQX"), Bundle::is_one(&[1])), (Some(false), Some(false)));
}

#[test]
fn a_flipped_bit_is_found() {
    for bytes in [sample().encode().unwrap(), rows().encode().unwrap()] {
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                // A longer list has not come yet.
                assert!(!matches!(BundleHead::decode(&wrong), Ok(Some(_))), "byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn what_no_sender_says_is_refused() {
    let bad = |change: fn(&mut Bundle)| {
        let mut bundle = sample();
        change(&mut bundle);
        assert!(bundle.encode().is_err(), "{bundle:?}");
        BundleHead::decode(&sealed(&bundle, None)).unwrap_err()
    };
    let errors = [
        bad(|of| of.members.clear()),
        bad(|of| drop(of.members.remove(0))),
        bad(|of| of.members.swap(1, 2)),
        bad(|of| of.members[2].below = "/a".into()),
        bad(|of| of.members[1].below = "a".into()),
        bad(|of| of.members[1].to = Guid(0)),
        bad(|of| of.dataset.clear()),
        bad(|of| of.snapshot.clear()),
    ];
    assert!(errors.iter().all(|error| matches!(error, StreamError::Bundle(_))), "{errors:?}");
    let mut newer = sample().encode().unwrap();
    newer[8] = 3;
    assert_eq!(BundleHead::decode(&newer), Err(StreamError::Newer(3)));
    let mut long = sample().encode().unwrap();
    long[15] = 0xff;
    assert!(matches!(BundleHead::decode(&long), Err(StreamError::Bundle(_))));
    let mut many = sample();
    many.members.extend((0..70_000).map(|at| member(&format!("/b{at:08}"), 1, 0)));
    assert_eq!(many.encode(), Err(StreamError::TooMany));
}

#[test]
fn rows_that_no_sender_says_are_refused() {
    let of = |names: &[&str], change: fn(&mut Bundle)| {
        let mut bundle = rows().bundle;
        change(&mut bundle);
        BundleHead::decode(&sealed(&bundle, Some(names)))
    };
    let right = ["b", "c", "c", "a", "b", "c"];
    assert!(of(&right, |_| ()).is_ok());
    let errors = [
        of(&["b", "c", "x", "a", "b", "c"], |_| ()),
        of(&["b", "c", "c", "a", "b", "x"], |_| ()),
        of(&["", "c", "c", "a", "b", "c"], |_| ()),
        // No stream begins where the one before it ended; or it ends there as well.
        of(&right, |of| of.members[1].from = Some(Guid(9))),
        of(&right, |of| of.members[4].from = None),
        of(&right, |of| of.members[5].to = Guid(5)),
        of(&right, |of| of.members.swap(0, 1)),
        of(&right, |of| of.members.swap(2, 3)),
        of(&right, |of| of.members[2].below = "/b".into()),
        // It would do with version 1.
        of(&["c"], |of| of.members.truncate(1)),
    ];
    let is_known = |error: &Result<_, _>| matches!(error, Err(StreamError::Bundle(_)));
    assert!(errors.iter().all(is_known), "{errors:?}");
    // In version 1, a row is none.
    let error = BundleHead::decode(&sealed(&rows().bundle, None)).unwrap_err();
    assert!(matches!(error, StreamError::Bundle(_)), "{error}");

    let bad = |change: fn(&mut BundleHead)| {
        let mut head = rows();
        change(&mut head);
        head.encode().unwrap_err()
    };
    let errors = [
        bad(|of| of.between.clear()),
        bad(|of| drop(of.between.insert(1, "x".into()))),
        bad(|of| drop(of.between.insert(5, "x".into()))),
        bad(|of| drop(of.between.insert(4, String::new()))),
        bad(|of| drop(of.between.remove(&3))),
    ];
    let is_known = |error: &StreamError| matches!(error, StreamError::Bundle(_));
    assert!(errors.iter().all(is_known), "{errors:?}");
}
