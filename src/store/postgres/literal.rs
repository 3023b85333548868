//! Values in the text of a statement.
//!
//! A literal consists of hexadecimal digits between the same marks, or of a number, or it is a text without quotes and backslashes. So
//! nothing in it can end the literal, however the server reads backslashes, and statements of one kind differ by their constants only.

use core::fmt::Write;
use std::{
    string::{String, ToString},
    vec::Vec,
};

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A `bytea`. The backslash is doubled, and so means the same however the server reads backslashes.
pub(super) fn bytes(bytes: &[u8]) -> String {
    format!(r"E'\\x{}'::bytea", hex(bytes))
}

/// A `text`. One that means the same in every encoding is sent as it is, in half the bytes.
pub(super) fn text(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'));
    if is_plain { format!("'{text}'::text") } else { format!("convert_from({}, 'UTF8')", bytes(text.as_bytes())) }
}

/// A `text`, which may be NULL.
pub(super) fn optional_text(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL::text".into(), text)
}

/// A `bytea[]`. The server reads one constant, and so plans the statement faster than one with a list of expressions.
pub(super) fn bytes_list<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> String {
    let values = values.into_iter().map(|value| format!(r#""\\\\x{}""#, hex(value)));
    format!("E'{{{}}}'::bytea[]", values.collect::<Vec<_>>().join(","))
}

/// A `bigint[]`.
pub(super) fn numbers(numbers: &[i64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(i64::to_string).collect();
    format!("'{{{}}}'::bigint[]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_value_ends_its_literal() {
        assert_eq!(
            text("a'; DROP TABLE notes; --\\"),
            r"convert_from(E'\\x61273b2044524f50205441424c45206e6f7465733b202d2d5c'::bytea, 'UTF8')"
        );
        assert_eq!(text(r#"{"format":1}"#), r#"'{"format":1}'::text"#);
        for other in ["it's", "\\", "\0", "\n", "\u{7f}", "ä"] {
            assert_eq!(text(other), format!(r"convert_from(E'\\x{}'::bytea, 'UTF8')", hex(other.as_bytes())));
        }
        assert_eq!(bytes(&[0, 0xff]), r"E'\\x00ff'::bytea");
        assert_eq!(optional_text(None), "NULL::text");
    }

    #[test]
    fn a_list_is_one_constant() {
        assert_eq!(bytes_list([b"k".as_slice(), &[], &[0]]), r#"E'{"\\\\x6b","\\\\x","\\\\x00"}'::bytea[]"#);
        assert_eq!(bytes_list([]), "E'{}'::bytea[]");
        assert_eq!(numbers(&[i64::MIN, 7]), "'{-9223372036854775808,7}'::bigint[]");
    }
}
