//! Names of files as texts for people.
//!
//! Invariant: a name that is shown can be given back, and then means that name and nothing else. So
//! no byte of it stands for itself that a pattern, a path, a snapshot's name or a terminal takes
//! for more than a letter: it is written as `\0ooo` in octal, as `zfs diff` does. Files' records
//! hold paths in this form ([`crate::file_snapshot`]); those of older releases have some of these
//! bytes bare ([`path_as_shown`]).

/// A name as text.
pub fn shown(name: &[u8]) -> String {
    let last = name.len().saturating_sub(1);
    as_text(name, |character, at| {
        let is_edge = at == 0 || at == last;
        means_more(character) || turns(character) || character == ' ' && is_edge
    })
}

/// A line that came from outside, as text that stays on its line.
pub fn line_shown(line: &[u8]) -> String {
    as_text(line, |character, _| character == '\\' || turns(character))
}

/// Bytes as text. Those that are no UTF-8, and characters that the caller escapes, each with where
/// it begins, are written in octal.
fn as_text(bytes: &[u8], escapes: impl Fn(char, usize) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    let octal = |text: &mut String, byte: u8| text.push_str(&format!("\\0{byte:03o}"));
    let mut begin = 0;
    for chunk in bytes.utf8_chunks() {
        for (at, character) in chunk.valid().char_indices() {
            if escapes(character, begin + at) {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| octal(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut text, *byte));
        begin += chunk.valid().len() + chunk.invalid().len();
    }
    text
}

/// Whether a character means more than itself in a name: the escape, patterns, and what ends a
/// path or the name of a dataset.
fn means_more(character: char) -> bool {
    matches!(character, '\\' | '*' | '?' | '@' | '#' | ':')
}

/// Whether a terminal does more with a character than to show it: control characters, marks that
/// turn the direction of writing, and ends of lines.
fn turns(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// The bytes of a name or path that [`shown`] showed. What is no escape stands for itself.
pub fn meant(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..4).filter(|digits| *first == b'\\' && digits.starts_with(b"0"));
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(4..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// A path of names, each as [`shown`] shows it today.
pub fn path_as_shown(path: &str) -> String {
    let names: Vec<String> = path.split('/').map(|name| shown(&meant(name))).collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_as_one_line_and_read_back() {
        for (name, text) in [
            (&b"web 01/\xc3\xa4.vhd"[..], "web 01/\u{e4}.vhd"),
            (b"a\\b", "a\\0134b"),
            (b"a\nb\tc\x7f", "a\\0012b\\0011c\\0177"),
            (b"\xff\xfe.img", "\\0377\\0376.img"),
            (b"\xc2\x85", "\\0302\\0205"),
            (b"disk*.vhd", "disk\\0052.vhd"),
            (b"a?@b#c:d", "a\\0077\\0100b\\0043c\\0072d"),
            (b" a b ", "\\0040a b\\0040"),
            (b" ", "\\0040"),
            (b"\xff ", "\\0377\\0040"),
            ("a\u{202e}b".as_bytes(), "a\\0342\\0200\\0256b"),
        ] {
            assert_eq!(shown(name), text);
            assert_eq!(meant(text), name);
        }
        for (text, name) in [("a\\", "a\\"), ("\\09", "\\09"), ("\\0400x", "\\0400x")] {
            assert_eq!(meant(text), name.as_bytes());
        }
    }

    #[test]
    fn a_path_of_an_older_release_is_shown_as_today() {
        assert_eq!(path_as_shown("web/disk*.vhd"), "web/disk\\0052.vhd");
        assert_eq!(path_as_shown("web/disk\\0052.vhd"), "web/disk\\0052.vhd");
        assert_eq!(path_as_shown("a\\0134b"), "a\\0134b");
    }

    proptest::proptest! {
        #[test]
        fn every_name_is_read_back(name: Vec<u8>) {
            let text = shown(&name);
            assert_eq!(meant(&text), name);
            assert!(!text.contains(['*', '?', '@', '#', ':']) && !text.contains(char::is_control));
        }
    }
}
