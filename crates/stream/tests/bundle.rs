//! Heads of bundles that are whole, cut anywhere, changed anywhere, and hostile.

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::{Guid, Writer};
use aquifer_stream::{Bundle, BundleMember, StreamError};

fn member(below: &str, to: u64, from: u64) -> BundleMember {
    let from = Some(Guid(from)).filter(|from| from.0 != 0);
    BundleMember { below: below.into(), to: Guid(to), from }
}

fn sample() -> Bundle {
    let members = vec![member("", 1, 0), member("/a", 2, 7), member("/a/deep", 3, 0)];
    Bundle { dataset: "tank/vms".into(), snapshot: "b".into(), members }
}

/// With a right checksum, whatever it says: what a hostile sender can do.
fn sealed(bundle: &Bundle) -> Vec<u8> {
    let mut list = Writer::new();
    list.string(bundle.dataset.as_bytes());
    list.string(bundle.snapshot.as_bytes());
    list.count(bundle.members.len());
    for of in &bundle.members {
        list.string(of.below.as_bytes());
        list.u64(of.to.0);
        list.u64(of.from.map_or(0, |from| from.0));
    }
    let mut head = Writer::new();
    head.put(b"AQBUNDLE");
    head.u32(1);
    head.count(list.len());
    head.put(list.as_bytes());
    let sum = checksum128(head.as_bytes());
    head.u128(sum);
    head.into_bytes()
}

/// They are kept for years: `AQUIFER_BLESS=1` writes the file, for a new version of the format.
#[test]
fn the_head_is_that_of_the_golden_file() {
    let path = format!("{}/tests/golden/bundle.head", env!("CARGO_MANIFEST_DIR"));
    let bytes = sample().encode().unwrap();
    if std::env::var_os("AQUIFER_BLESS").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "{path} differs");
    assert_eq!(bytes, sealed(&sample()));
}

#[test]
fn what_was_put_in_comes_out_and_a_part_of_it_is_none() {
    let bytes = sample().encode().unwrap();
    for cut in 0..bytes.len() {
        assert_eq!(Bundle::decode(&bytes[..cut]), Ok(None), "{cut}");
    }
    let more = [&bytes[..], b"more"].concat();
    assert_eq!(Bundle::decode(&more), Ok(Some((sample(), bytes.len()))));
    assert_eq!(Bundle::is_one(b"AQBUND"), None);
    assert_eq!((Bundle::is_one(b"AQX"), Bundle::is_one(&[1])), (Some(false), Some(false)));
}

#[test]
fn a_flipped_bit_is_found() {
    let bytes = sample().encode().unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1 << bit;
            // A longer list has not come yet.
            assert!(!matches!(Bundle::decode(&wrong), Ok(Some(_))), "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn what_no_sender_says_is_refused() {
    let bad = |change: fn(&mut Bundle)| {
        let mut bundle = sample();
        change(&mut bundle);
        assert!(bundle.encode().is_err(), "{bundle:?}");
        Bundle::decode(&sealed(&bundle)).unwrap_err()
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
    newer[8] = 2;
    assert_eq!(Bundle::decode(&newer), Err(StreamError::Newer(2)));
    let mut long = sample().encode().unwrap();
    long[15] = 0xff;
    assert!(matches!(Bundle::decode(&long), Err(StreamError::Bundle(_))));
    let mut many = sample();
    many.members.extend((0..70_000).map(|at| member(&format!("/b{at:08}"), 1, 0)));
    assert_eq!(many.encode(), Err(StreamError::TooMany));
}
