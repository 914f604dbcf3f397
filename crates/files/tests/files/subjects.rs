//! Kinds of subjects: each says what it is to an act that wants another one.

use aquifer_files::{FilePlace, FileSnapshotNames, Subject};

use crate::bed::Bed;

/// Empty: it is one.
fn why<T, E: ToString>(done: Result<T, E>) -> String {
    done.err().map_or(String::new(), |error| error.to_string())
}

#[test]
fn a_subject_of_another_kind_says_what_it_is() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let datasets = &service.datasets;
        let letters = "may hold letters";
        for (text, snapshot, choice, bookmark) in [
            ("tank/d", "a dataset, and no snapshot", "a dataset", "a dataset, and no bookmark"),
            ("tank/d@a b", "", "", "a snapshot of a dataset, and no bookmark: write dataset#name"),
            ("tank/d@a,b", letters, "", "a snapshot of a dataset"),
            ("tank/d@a%", letters, "", "a snapshot of a dataset"),
            ("tank/d@a@b", letters, "has an '@'", "a snapshot of a dataset"),
            ("tank/d@", "no name behind", "a name is empty", "a snapshot of a dataset"),
            ("tank/d#a", "a bookmark, and no snapshot of a", "a bookmark", ""),
            ("tank/d:x", "a file, and no snapshot of a dataset", "a file", "a file"),
            ("tank/d:x@a", "a snapshot of a file, and no", "a snapshot of a file", "of a file"),
            ("tank/d:x@a,b%", "a snapshot of a file, and no", "a snapshot of a file", "of a file"),
        ] {
            let subject = Subject::parse(datasets, text).unwrap();
            assert_eq!(datasets.full_name(subject.dataset()), "tank/d", "{text}");
            let named = subject.clone().snapshots(text);
            let of = named.and_then(|of| of.choice());
            for (said, expected) in [
                (why(subject.clone().one_snapshot(text)), snapshot),
                (why(of), choice),
                (why(subject.bookmark(text)), bookmark),
            ] {
                assert!(said.contains(expected), "{text}: {said}");
                assert_eq!(said.is_empty(), expected.is_empty(), "{text}: {said}");
            }
            let is_of_files = text.starts_with("tank/d:") && text.contains('@');
            assert_eq!(FileSnapshotNames::parse(datasets, text).is_ok(), is_of_files, "{text}");
            let is_place = text.starts_with("tank/d:");
            assert_eq!(FilePlace::parse(datasets, text).is_ok(), is_place, "{text}");
        }
        for text in ["tank/none", "tank/none@a", "tank/none#a"] {
            let said = why(Subject::parse(datasets, text));
            assert_eq!(said, "dataset \"tank/none\" does not exist", "{text}");
        }
        let one = Subject::parse(datasets, "tank/d@a").unwrap().one_snapshot("tank/d@a").unwrap();
        assert_eq!((&*one.full, &*one.name), ("tank/d@a", "a"));
    });
    bed.assert_clean();
}
