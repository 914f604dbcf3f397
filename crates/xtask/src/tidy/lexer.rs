//! Rust source without its comments and strings, so that searches for words see only code.

/// Blanks comments, strings and character literals of a text: every other byte stays in its place.
pub fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let after_word = code.last().is_some_and(|byte| is_word(*byte));
        let count = blank_length(rest, after_word);
        let (blank, count) = if count == 0 { (false, 1) } else { (true, count) };
        for byte in rest.iter().take(count) {
            code.push(if blank && *byte != b'\n' { b' ' } else { *byte });
        }
        at += count;
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether a byte is part of a name.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Length of the comment or literal that `rest` begins with, 0 if it is code.
fn blank_length(rest: &[u8], after_word: bool) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => 1 + quoted(rest.get(1..).unwrap_or_default(), b'"'),
        [b'\'', after @ ..] => character(after),
        [b'r' | b'b' | b'c', ..] if !after_word => prefixed(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Length up to the closing quote, including it.
fn quoted(after: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(byte) = after.get(at) {
        match *byte {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    after.len()
}

/// Length of a character literal with its opening quote, 0 for a lifetime.
fn character(after: &[u8]) -> usize {
    let closes = match after {
        [b'\\', ..] => true,
        [first, ..] => {
            let bytes = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            after.get(bytes) == Some(&b'\'')
        }
        [] => false,
    };
    if closes { 1 + quoted(after, b'\'') } else { 0 }
}

/// Length of a raw, byte or C string that `rest` begins with, 0 if it is a name.
fn prefixed(rest: &[u8]) -> usize {
    let letters = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    let prefix = rest.get(..letters.min(2)).unwrap_or_default();
    let after = rest.get(letters..).unwrap_or_default();
    let hashes = after.iter().take_while(|byte| **byte == b'#').count();
    match (prefix, after.get(hashes)) {
        _ if letters > 2 => 0,
        (b"r" | b"br" | b"cr", Some(b'"')) => {
            let mut end = vec![b'"'];
            end.resize(hashes + 1, b'#');
            let start = letters + hashes + 1;
            let content = rest.get(start..).unwrap_or_default();
            let found = content.windows(end.len()).position(|window| window == end);
            found.map_or(rest.len(), |found| start + found + end.len())
        }
        (b"b" | b"c", Some(b'"')) if hashes == 0 => {
            letters + 1 + quoted(after.get(1..).unwrap_or_default(), b'"')
        }
        (b"b", Some(b'\'')) if hashes == 0 => {
            letters + 1 + quoted(after.get(1..).unwrap_or_default(), b'\'')
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let code = code_of(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), text.lines().count());
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(words("a // b\nc"), "a c");
        assert_eq!(words("a /* b /* c */ d\n */ e"), "a e");
        assert_eq!(words("a /// unsafe\n//! todo!()\nb"), "a b");
        assert_eq!(words("a / b /* open"), "a / b");
    }

    #[test]
    fn texts_are_blanked() {
        assert_eq!(words(r#"f("a \" b // c") d"#), "f( ) d");
        assert_eq!(words("f(r#\"a \" unsafe\"#, br\"\\\") g"), "f( , ) g");
        assert_eq!(words(r#"f(b"a", c"b", b'\'', 'x', '\u{1}', '"') h"#), "f( , , , , , ) h");
        assert_eq!(words("\"a\nb\" c"), "c");
        assert_eq!(words("'\u{e9}' d"), "d");
    }

    #[test]
    fn names_and_lifetimes_stay() {
        assert_eq!(
            words("fn f<'a>(r: &'a str, b: u8) -> &'static str"),
            "fn f<'a>(r: &'a str, b: u8) -> &'static str"
        );
        assert_eq!(words("for r in bar { car; r#type }"), "for r in bar { car; r#type }");
        assert_eq!(words("'outer: loop { break 'outer }"), "'outer: loop { break 'outer }");
    }
}
