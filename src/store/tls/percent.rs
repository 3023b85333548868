//! The values of a URL's parameters.

use std::{string::String, vec::Vec};

/// Decodes a text whose special characters are percent-encoded. `None` if it is not such a text.
pub(in crate::store) fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        // A number might have a sign.
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hexadecimal_digits_follow_each_percent_sign() {
        assert_eq!(decoded("/a%20b/%c3%9F+c").as_deref(), Some("/a b/ß+c"));
        for torn in ["%", "%a", "a%4", "%+a", "%-1", "% a", "%0x", "%ff"] {
            assert_eq!(decoded(torn), None, "{torn}");
        }
    }
}
