use super::draw::shuffle;
use super::mutant::{Mutant, byte_at};
use super::planted::planted;
use super::splice::{body_around, splice};
use crate::tidy::lexer::code_of;

const SOURCE: &str = "//! A crate { of code.
const SIZE: u64 = 4 << 10;

impl Thing {
    pub async fn f(&self, of: [u8; 4]) -> Result<(), String> {
        let open = \"{\";
        fn inner(a: u64) -> bool {
            a < 7
        }
        if inner(3) { self.g() } else { Err(open.into()) }
    }

    const fn g(&self) -> u64 {
        SIZE + 1
    }
}

fn last(a: u64) -> u64 {
    a + 2
}
";

fn mutant(old: &str, new: &str) -> Mutant {
    planted(SOURCE, "crates/a/src/lib.rs".to_string(), "a mistake", [old, new]).unwrap()
}

fn body(of: &str) -> Option<&'static str> {
    let place = SOURCE.find(of).unwrap();
    body_around(&code_of(SOURCE), place).map(|body| &SOURCE[body])
}

#[test]
fn the_outermost_function_around_a_place_is_found() {
    assert!(body("a < 7").unwrap().starts_with("{\n        let open"));
    assert!(body("a < 7").unwrap().ends_with("Err(open.into()) }\n    }"));
    assert_eq!(body("a + 2"), Some("{\n    a + 2\n}"));
    assert_eq!(body("4 << 10"), None, "in no function");
    assert_eq!(body("SIZE + 1"), None, "in one that is carried out at compile time");
}

#[test]
fn a_function_is_there_once_for_each_mutant_and_once_as_it_is() {
    let (one, other, third) = (mutant("a < 7", "a > 7"), mutant("(3)", "(4)"), mutant("2", "3"));
    let spliced = splice(SOURCE, &[(5, &one), (6, &other), (7, &third)]);
    for (text, times) in [
        ("if crate::mutant_is(5) {", 1),
        ("if crate::mutant_is(6) {", 1),
        ("let open", 3),
        ("a > 7", 1),
        ("a < 7", 2),
        ("inner(4)", 1),
        ("a + 2", 1),
        ("a + 3", 1),
        ("const SIZE: u64 = 4 << 10;\n", 1),
    ] {
        assert_eq!(spliced.text.matches(text).count(), times, "{text}\n{}", spliced.text);
    }
    let lines: Vec<&str> = spliced.text.lines().collect();
    for (number, changed) in [(5, "a > 7"), (6, "inner(4)"), (7, "a + 3")] {
        let (_, copy) = spliced.copies.iter().find(|(of, _)| *of == number).unwrap();
        let copy = lines[copy.start - 1..copy.end - 1].join("\n");
        assert!(copy.starts_with("if crate::mutant_is") && copy.contains(changed), "{copy}");
    }
    let functions: Vec<_> = spliced.functions.iter().map(|(_, of)| of.clone()).collect();
    assert_eq!(functions, [vec![5, 6], vec![7]]);
    assert_eq!(splice(SOURCE, &[]).text, SOURCE);
}

#[test]
fn a_planted_mistake_has_one_place() {
    let mistake = mutant("a + 2", "a");
    assert_eq!(mistake.name, "crates/a/src/lib.rs:19: a mistake");
    assert_eq!((mistake.directory(), mistake.room()), ("crates/a", "a"));
    assert!(mistake.applied(SOURCE, 0..SOURCE.len()).ends_with("u64 {\n    a \n}\n"));
    for old in ["nowhere", "fn"] {
        assert!(planted(SOURCE, String::new(), "", [old, ""]).is_err());
    }
}

#[test]
fn lines_and_columns_are_from_one() {
    assert_eq!(byte_at("ab\ncd\n", 1, 1), Some(0));
    assert_eq!(byte_at("ab\ncd\n", 2, 2), Some(4));
    assert_eq!(byte_at("\u{e9}b", 1, 2), Some(2));
    assert_eq!(byte_at("ab", 1, 3), Some(2));
    assert_eq!(byte_at("ab", 1, 4), None);
    assert_eq!(byte_at("ab", 0, 1), None);
}

#[test]
fn a_seed_draws_the_same_again_and_another_draws_others() {
    let drawn = |seed| {
        let mut things: Vec<u32> = (0..100).collect();
        shuffle(&mut things, seed);
        things
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let mut all = drawn(3);
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
