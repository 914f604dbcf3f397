//! Untrusted text on a terminal or in a journal: names of files and clients, errors of programs.
//!
//! Invariant: the text stays in its place. It begins no line of its own, moves no cursor, changes
//! no colour and does not change the direction of writing.

/// A text for one line, with `?` for characters that would break out of it.
pub fn shown(text: &str) -> String {
    text.chars().map(|char| if stays(char) { char } else { '?' }).collect()
}

/// Several lines of our own, which may contain the colours [`RED`] and [`PLAIN`].
pub fn lines_shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let own = [RED, PLAIN].into_iter().find(|colour| rest.starts_with(colour));
        if let Some(colour) = own {
            shown.push_str(colour);
            rest = rest.get(colour.len()..).unwrap_or_default();
            continue;
        }
        shown.push(if stays(char) || char == '\n' || char == '\t' { char } else { '?' });
        rest = rest.get(char.len_utf8()..).unwrap_or_default();
    }
    shown
}

fn stays(char: char) -> bool {
    // Marks that change or isolate the direction of writing, and ends of lines and paragraphs.
    let turns = matches!(
        char,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !char.is_control() && !turns
}

/// The sequence that makes a terminal write in red.
pub const RED: &str = "\x1b[31m";
/// The sequence that ends it.
pub const PLAIN: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_leave_its_place_is_not_printed() {
        assert_eq!(shown("disk\u{e9} 1.raw"), "disk\u{e9} 1.raw");
        assert_eq!(
            shown("a\nroot: b\tc\r\x1b[2J\u{9b}x\u{202e}d\u{2028}"),
            "a?root: b?c??[2J?x?d?"
        );
        assert_eq!(lines_shown("a\tb\nc\x1b[2J\r"), "a\tb\nc?[2J?");
        let red = format!("{RED}a{PLAIN}\n");
        assert_eq!(lines_shown(&red), red);
    }
}
