//! Texts of cursors.

use super::Cursor;

#[test]
fn a_cursor_is_read_back_and_nothing_else_is() {
    let cursor = Cursor { versions: 0x1f, next: u64::MAX };
    assert_eq!(cursor.to_string(), "000000000000001f-ffffffffffffffff");
    assert_eq!(cursor.to_string().parse(), Ok(cursor));
    for text in ["", "-", "1-", "-1", "1", "1-1-1", "10000000000000000-1", "x-1", "\u{e4}-1"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}
