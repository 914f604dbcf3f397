//! Texts of names and cursors.

use super::Cursor;
use super::paths::{meant, shown};

#[test]
fn a_name_is_shown_as_one_line_and_read_back() {
    for (name, text) in [
        (&b"web 01/\xc3\xa4.vhd"[..], "web 01/\u{e4}.vhd"),
        (b"a\\b", "a\\0134b"),
        (b"a\nb\tc\x7f", "a\\0012b\\0011c\\0177"),
        (b"\xff\xfe.img", "\\0377\\0376.img"),
        (b"\xc2\x85", "\\0302\\0205"),
    ] {
        assert_eq!(shown(name), text);
        assert_eq!(meant(text), name);
    }
    for (text, name) in [("a\\", "a\\"), ("\\09", "\\09"), ("\\0400x", "\\0400x")] {
        assert_eq!(meant(text), name.as_bytes());
    }
}

#[test]
fn a_cursor_is_read_back_and_nothing_else_is() {
    let cursor = Cursor { versions: 0x1f, next: u64::MAX };
    assert_eq!(cursor.to_string(), "000000000000001f-ffffffffffffffff");
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for text in ["", "-", "1-", "-1", "1", "1-1-1", "10000000000000000-1", "x-1", "\u{e4}-1"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}
