//! Property `sharenfs`: a text that parses means one export. The export table accepts it, and
//! writing it gives a text with the same meaning.

use aquifer_admin::sharenfs::{parse, risks, snapcontrol, words};
use aquifer_nfs::Exports;
use arbitrary::{Result, Unstructured};

use crate::cost::{Limit, fair};

/// Tries one input: as the text, and as a choice of words.
pub fn run(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        read(text);
    }
    if let Ok(text) = nearly_right(&mut Unstructured::new(input)) {
        read(&text);
    }
}

fn read(text: &str) {
    // The same lists of clients, alone.
    match fair("parsing clients", text.len(), &LIMIT, || snapcontrol(text)) {
        Ok(clients) => assert!(!clients.is_empty() || text.trim() == "off", "{text:?}"),
        Err(why) => assert!(!why.is_empty() && why.len() <= WHY_BYTES + WHY_PER_BYTE * text.len()),
    }
    let parsed = fair("parsing", text.len(), &LIMIT, || parse("tank/vms", text));
    let export = match parsed {
        Ok(Some(export)) => export,
        Ok(None) => return assert_eq!(text.trim(), "off"),
        Err(why) => {
            return assert!(!why.is_empty() && why.len() <= WHY_BYTES + WHY_PER_BYTE * text.len());
        }
    };
    let written = fair("writing", text.len(), &LIMIT, || words(&export));
    let again = parse("tank/vms", &written).unwrap_or_else(|why| panic!("{written}: {why}"));
    assert_eq!(again.as_ref(), Some(&export), "{text:?} as {written:?}");
    assert_eq!(words(&again.unwrap()), written, "one form");
    assert!(risks(&export).len() <= 2);
    assert!(Exports::new(vec![export], |_| None).is_ok(), "{text:?}");
}

/// Known words, in any order and number, with clients of all kinds.
fn nearly_right(from: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    while !from.is_empty() && text.len() < TEXT_BYTES_MAX {
        text.push_str(from.choose(&WORDS)?);
        if from.ratio(1, 32)? {
            text.push(from.arbitrary()?);
        }
    }
    Ok(text)
}

const WORDS: [&str; 78] = [
    ",",
    ",",
    ",",
    " ",
    ":",
    ":",
    ":",
    "=",
    "-",
    "@",
    "/",
    "[",
    "]",
    ".",
    "rw",
    "ro",
    "rw=",
    "ro=",
    "none=",
    "root=",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "anonuid=",
    "anongid=",
    "anon=",
    "anon=-1",
    "secure",
    "insecure",
    "resvport",
    "noresvport",
    "nosuid",
    "sync",
    "no_subtree_check",
    "no_wdelay",
    "sec=sys",
    "-maproot=",
    "-mapall ",
    "-network ",
    "-network=",
    "-mask ",
    "-alldirs",
    "-ro",
    "-o",
    "-quiet",
    "-sec=",
    "root",
    "wheel",
    "nobody",
    "nogroup",
    "-2",
    "0",
    "1",
    "4294967295",
    "4294967296",
    "10.1.0.0",
    "10.1.2.3",
    "@10",
    "@10.1",
    "/16",
    "/0",
    "/32",
    "/129",
    "255.255.0.0",
    "0.0.0.0",
    "[fd00::]",
    "[::ffff:10.0.0.1]",
    "fd00::1",
    "::",
    "hv1",
    "HV1.Example.",
    "3com",
    "_x-y",
    "*.a",
    "off",
    "on",
    "async",
];
const TEXT_BYTES_MAX: usize = 8192;
/// The longest reason, without the text that it repeats.
const WHY_BYTES: usize = 1000;
/// The text is repeated twice at most, and an unprintable byte takes six.
const WHY_PER_BYTE: usize = 12;
const LIMIT: Limit = Limit { peak: 16_384, peak_per_byte: 64, steps: 5000, steps_per_byte: 100 };
