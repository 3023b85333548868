//! Writes one object, field by field.

use alloc::string::String;
use core::fmt::Write;

use super::Extra;

/// Writes one object, field by field.
pub(in super::super) struct Object {
    text: String,
}

impl Object {
    pub(in super::super) fn new() -> Self {
        Self { text: String::from("{") }
    }

    fn comma(&mut self) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
    }

    /// Begins a field. Returns the text to which the caller appends the value.
    fn name(&mut self, name: &str) -> &mut String {
        self.comma();
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
        &mut self.text
    }

    pub(in super::super) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        push_number(self.name(name), value);
        self
    }

    pub(in super::super) fn integer(&mut self, name: &str, value: i32) -> &mut Self {
        let text = self.name(name);
        if value < 0 {
            text.push('-');
        }
        push_number(text, value.unsigned_abs().into());
        self
    }

    pub(in super::super) fn id(&mut self, name: &str, value: u128) -> &mut Self {
        let text = self.name(name);
        text.push('"');
        let _ = write!(text, "{value:032x}");
        text.push('"');
        self
    }

    pub(in super::super) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        quote(self.name(name), value);
        self
    }

    /// An array that holds one number, or nothing.
    pub(in super::super) fn optional(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        let text = self.name(name);
        text.push('[');
        if let Some(value) = value {
            push_number(text, value);
        }
        text.push(']');
        self
    }

    /// An array of objects. `write` writes the fields of each.
    pub(in super::super) fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) -> &mut Self {
        self.name(name).push('[');
        for item in items {
            self.comma();
            self.text.push('{');
            write(self, item);
        }
        self.text.push(']');
        self
    }

    /// Ends an object. More may follow, if it is an item of a list.
    pub(in super::super) fn close(&mut self, extra: &Extra) {
        for (name, value) in &extra.0 {
            self.comma();
            self.text.push_str(name);
            self.text.push(':');
            self.text.push_str(value);
        }
        self.text.push('}');
    }

    pub(in super::super) fn end(&mut self, extra: &Extra) -> String {
        self.close(extra);
        core::mem::take(&mut self.text)
    }
}

fn push_number(out: &mut String, value: u64) {
    let _ = write!(out, "{value}");
}

fn quote(out: &mut String, value: &str) {
    out.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}
