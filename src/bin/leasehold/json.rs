//! JSON, as far as it is needed.

use super::table::commands;

/// A string, in quotes.
pub(crate) fn string(text: &str) -> String {
    let mut json = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            '\r' => json.push_str("\\r"),
            // People read it on a terminal, too. None of these letters is above U+FFFF.
            letter if commands(letter) => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

/// An object of fields whose values are JSON.
pub(crate) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// An array of values that are JSON.
pub(crate) fn array(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    format!("[{}]", values.join(","))
}
