//! Every text has one reading, and what a listing shows is read as what it showed.

use aquifer_ondisk::shown_name::shown;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const DATASETS: [&str; 6] = ["tank", "tank/a", "tank/a:b", "tank/a:b/c", "tank/a b", "tank/a.a"];
/// Letters that mean more than themselves somewhere, and some that do not.
const LETTERS: [char; 11] = ['a', '/', ':', '@', ',', '%', '#', '*', '?', '\\', '.'];

fn dataset(name: &str) -> Option<&'static str> {
    DATASETS.into_iter().find(|of| *of == name)
}

fn read(text: &str) -> String {
    match parts(text, dataset) {
        None => "nothing".into(),
        Some(Parts::Dataset(of)) => format!("dataset {of}"),
        Some(Parts::Snapshots(of, names)) => format!("{names} of {of}"),
        Some(Parts::Bookmark(of)) => format!("bookmark of {of}"),
        Some(Parts::File(of, parts)) => format!("file {} in {of}", parts.join("/")),
        Some(Parts::FileSnapshots(of, parts, names, place_bytes)) => {
            assert_eq!(&text[place_bytes..], format!("@{names}"));
            format!("{names} of {} in {of}", parts.join("/"))
        }
    }
}

#[test]
fn each_kind_and_each_letter_has_one_reading() {
    for (text, expected) in [
        ("tank/a", "dataset tank/a"),
        ("tank/a:b", "dataset tank/a:b"),
        ("tank/none", "nothing"),
        ("", "nothing"),
        // Snapshots of a dataset: the names are judged by what is asked of them.
        ("tank/a@x", "x of tank/a"),
        ("tank/a@x:y", "x:y of tank/a"),
        ("tank/a@x,y%,%z", "x,y%,%z of tank/a"),
        ("tank/a@x/y#*?\\", "x/y#*?\\ of tank/a"),
        ("tank/a@", " of tank/a"),
        ("tank/a@x@y", "x@y of tank/a"),
        ("tank/a@x,tank/a@y", "x,tank/a@y of tank/a"),
        ("tank/none@x", "nothing"),
        ("tank/a#m@x", "nothing"),
        ("@x", "nothing"),
        // Bookmarks.
        ("tank/a#m", "bookmark of tank/a"),
        ("tank/a#m#n:o", "bookmark of tank/a"),
        ("tank/none#m", "nothing"),
        // Files.
        ("tank/a:x", "file x in tank/a"),
        ("tank/a://x//y/", "file x/y in tank/a"),
        ("tank/a:x:y", "file x:y in tank/a"),
        ("tank/a:b:x", "file x in tank/a:b"),
        ("tank/a::b", "file b in tank/a"),
        ("tank/a:x#m,%*?\\", "file x#m,%*?\\ in tank/a"),
        ("tank/a:", "nothing"),
        ("tank/none:x", "nothing"),
        // Snapshots of files.
        ("tank/a:x@s", "s of x in tank/a"),
        ("tank/a:x/*@s,t*", "s,t* of x/* in tank/a"),
        ("tank/a:x@y@s", "s of x@y in tank/a"),
        ("tank/a:x#y@s:t", "s:t of x#y in tank/a"),
        ("tank/a:b@s", "s of tank/a:b"),
        ("tank/a::b@s", "s of b in tank/a"),
        ("tank/a:x@", " of x in tank/a"),
        ("tank/a:@s", "nothing"),
        ("tank/a@s:x", "s:x of tank/a"),
        ("tank/a@s:x@t", "s:x@t of tank/a"),
        ("tank/none:x@s", "nothing"),
    ] {
        assert_eq!(read(text), expected, "{text:?}");
    }
}

#[test]
fn a_place_is_a_file_whatever_its_path_has() {
    for (text, expected) in [
        ("tank/a:x@y,#%", Some(("tank/a", "x@y,#%"))),
        ("tank/a:b", Some(("tank/a", "b"))),
        ("tank/a:b:c", Some(("tank/a:b", "c"))),
        ("tank/a", None),
        ("tank/a:/", None),
    ] {
        let found = place(text, &dataset).map(|(of, parts)| (of, parts.join("/")));
        assert_eq!(found, expected.map(|(of, path)| (of, path.to_string())), "{text:?}");
    }
}

#[test]
fn the_names_of_pools_that_a_text_may_be_about_end_before_its_marks() {
    for (text, expected) in [
        ("tank", &["tank"][..]),
        ("tank/a:b@c", &["tank"]),
        ("a:b:c@d", &["a:b:c", "a:b", "a"]),
        ("a:b#c", &["a:b", "a"]),
        ("@", &[""]),
    ] {
        assert_eq!(pools(text).collect::<Vec<_>>(), expected, "{text:?}");
    }
    assert!(begins_with("tank/a:x", "tank/a") && begins_with("tank/a", "tank/a"));
    assert!(!begins_with("tank/ab", "tank/a") && !begins_with("tank", "tank/a"));
    assert!(!datasets(&":".repeat(ENDS_MAX - 1)).is_empty());
    assert!(datasets(&":".repeat(ENDS_MAX)).is_empty());
}

/// Returns the text that stands for its parts.
fn written(parts: &Parts<'_, &str>) -> String {
    match parts {
        Parts::Dataset(of) => of.to_string(),
        Parts::Snapshots(of, names) => format!("{of}@{names}"),
        Parts::Bookmark(of) => format!("{of}#"),
        Parts::File(of, parts) => format!("{of}::{}", parts.join("/")),
        Parts::FileSnapshots(of, parts, names, _) => format!("{of}::{}@{names}", parts.join("/")),
    }
}

/// Texts that begin as a dataset does, and go on anyhow.
fn texts() -> impl Strategy<Value = String> {
    let letters = || vec(select(&LETTERS[..]), 0..12).prop_map(String::from_iter);
    let begin = prop_oneof![select(&DATASETS[..]).prop_map(str::to_string), Just(String::new())];
    (begin, letters()).prop_map(|(begin, end)| begin + &end)
}

/// Names of files and directories.
fn names() -> impl Strategy<Value = Vec<u8>> {
    vec(select(b"a:@,%#*?\\. 0\n\xff".to_vec()), 1..6)
}

proptest! {
    /// All places that judge a text judge the same thing: who may be told of it, in which pool it
    /// is, whether it is one snapshot or several.
    #[test]
    fn any_text_has_one_reading_that_all_share(text in texts()) {
        let Some(parts) = parts(&text, dataset) else { return Ok(()) };
        let of = match &parts {
            Parts::Dataset(of) | Parts::Bookmark(of) => of,
            Parts::Snapshots(of, _) | Parts::File(of, _) | Parts::FileSnapshots(of, ..) => of,
        };
        prop_assert!(datasets(&text).contains(of), "{parts:?}");
        prop_assert!(begins_with(&text, of), "{parts:?}");
        let pool = of.split('/').next().unwrap();
        prop_assert!(pools(&text).any(|name| name == pool), "{parts:?}");
        let again = written(&parts);
        prop_assert_eq!(read(&text), read(&again), "{}", again);
        if let Parts::FileSnapshots(_, _, names, _) = &parts {
            prop_assert!(!names.contains('@'));
        }
        if let Parts::Snapshots(_, names) = &parts
            && check_snapshot(&text, names).is_ok()
        {
            let chosen = Choice::parse(&text, names).unwrap().of(&["before", names, "behind"]);
            prop_assert_eq!(chosen.unwrap().places, [1]);
        }
    }

    /// A place is judged as the text of a file is.
    #[test]
    fn a_place_is_in_a_dataset_that_a_text_may_be_about(text in texts()) {
        if let Some((of, parts)) = place(&text, &dataset) {
            prop_assert!(datasets(&text).contains(&of), "{of} {parts:?}");
            prop_assert!(parts.iter().all(|part| !part.is_empty() && !part.contains('/')));
        }
    }

    #[test]
    fn what_a_listing_shows_is_read_as_what_it_showed(
        of in select(&DATASETS[..]),
        path in vec(names(), 1..4),
        name in "[a-z0-9_.: -]{1,8}",
    ) {
        prop_assume!(check_snapshot(&name, &name).is_ok());
        prop_assert_eq!(parts(of, dataset), Some(Parts::Dataset(of)));
        let text = format!("{of}@{name}");
        prop_assert_eq!(parts(&text, dataset), Some(Parts::Snapshots(of, &name)));
        let text = format!("{of}#{name}");
        prop_assert_eq!(parts(&text, dataset), Some(Parts::Bookmark(of)));
        let shown: Vec<String> = path.iter().map(|part| shown(part)).collect();
        let mut file = format!("{of}:{}", shown.join("/"));
        if dataset(&file).is_some() {
            file = format!("{of}::{}", shown.join("/"));
        }
        let Some(Parts::File(in_it, found)) = parts(&file, dataset) else {
            return Err(TestCaseError::fail(file));
        };
        prop_assert_eq!(in_it, of);
        prop_assert_eq!(found, shown);
        let text = format!("{file}@{name}");
        let Some(Parts::FileSnapshots(in_it, found, names, place_bytes)) = parts(&text, dataset)
        else {
            return Err(TestCaseError::fail(text));
        };
        prop_assert_eq!((in_it, names, place_bytes), (of, &*name, file.len()));
        let pattern = PathPattern::new(&found.join("/"));
        prop_assert_eq!(pattern.plain(), Some(path.join(&b'/')));
        let mut each = names.split(',').map(Pattern::new);
        prop_assert_eq!(each.next().and_then(|of| of.plain()), Some(name.into_bytes()));
        prop_assert!(each.next().is_none());
    }
}
