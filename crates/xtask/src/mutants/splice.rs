//! Finds the functions of a source, and weaves the mutants of its functions in.

use std::collections::BTreeMap;
use std::ops::Range;

use super::mutant::Mutant;
use crate::tidy::lexer::{code_of, is_word};

/// A source with mutants woven in.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spliced {
    /// The source.
    pub text: String,
    /// The lines of each mutant's own copy of the function, from 1.
    pub copies: Vec<(usize, Range<usize>)>,
    /// The lines of each function with all copies, and the mutants of these copies.
    pub functions: Vec<(Range<usize>, Vec<usize>)>,
}

/// The body, with its braces, of the outermost function around a place. `None` if there is none, or
/// if it runs at compile time.
pub fn body_around(code: &str, place: usize) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(at) = code.get(from..)?.find("fn ").map(|at| from + at) {
        from = at + 3;
        let before = code.as_bytes().get(at.checked_sub(1)?)?;
        if is_word(*before) {
            continue;
        }
        let Some(body) = body_after(code, from) else { continue };
        if body.contains(&place) {
            let line = code.get(..at)?.rsplit('\n').next()?;
            return (!line.trim_end().ends_with("const")).then_some(body);
        }
        if body.start < place {
            from = body.end;
        }
    }
    None
}

/// The first block after `from`, unless a semicolon outside of brackets comes first.
fn body_after(code: &str, from: usize) -> Option<Range<usize>> {
    let (mut brackets, mut braces, mut start) = (0_usize, 0_usize, None);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if brackets == 0 && start.is_none() => return None,
            b'{' if brackets == 0 || start.is_some() => {
                start = start.or(Some(at));
                braces += 1;
            }
            b'}' if start.is_some() => {
                braces -= 1;
                if braces == 0 {
                    return Some(start?..at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// `text` with mutants, each with its number, and each in a function.
pub fn splice(text: &str, mutants: &[(usize, &Mutant)]) -> Spliced {
    let code = code_of(text);
    let mut bodies: BTreeMap<(usize, usize), Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants {
        let Some(body) = body_around(&code, mutant.replaced.start) else { continue };
        bodies.entry((body.start, body.end)).or_default().push((*number, mutant));
    }
    let mut spliced = Spliced::default();
    let mut done = 0;
    for ((start, end), inside) in bodies {
        let body = start..end;
        spliced.text += text.get(done..body.start).unwrap_or_default();
        let first = line_of(&spliced.text);
        spliced.text += "{\n";
        for (number, mutant) in &inside {
            let start = line_of(&spliced.text);
            let copy = mutant.applied(text, body.clone());
            spliced.text += &format!("if crate::mutant_is({number}) {copy} else\n");
            spliced.copies.push((*number, start..line_of(&spliced.text)));
        }
        spliced.text += text.get(body.clone()).unwrap_or_default();
        spliced.text += "\n}";
        let numbers = inside.iter().map(|(number, _)| *number).collect();
        spliced.functions.push((first..line_of(&spliced.text) + 1, numbers));
        done = body.end;
    }
    spliced.text += text.get(done..).unwrap_or_default();
    spliced
}

/// The number of the line after `text`.
fn line_of(text: &str) -> usize {
    1 + text.matches('\n').count()
}

/// Code at the end of each crate with woven mutants: it tells which mutant the process runs.
pub const SWITCH: &str = r#"
pub(crate) fn mutant_is(number: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let chosen = || std::env::var("AQUIFER_MUTANT").ok()?.parse().ok();
    *CHOSEN.get_or_init(|| chosen().unwrap_or(0)) == number
}
"#;
