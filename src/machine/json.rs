//! Just enough JSON for records and messages, without losing what a newer version wrote.
//!
//! The reader cuts an object into raw values; what nobody asked for is written back as it stood.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::fmt::Write;

/// Nothing that we write nests deeper.
const DEPTH_LIMIT: usize = 32;

/// The fields that this version does not know, as they stood: name and raw value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Extra(Vec<(String, String)>);

/// Cuts one JSON text into raw pieces.
struct Cutter<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cutter<'a> {
    const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Steps over one value and gives its text.
    fn value(&mut self, depth: usize) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' => self.items(b'}', true, depth, |_, _| Some(()))?,
            b'[' => self.items(b']', false, depth, |_, _| Some(()))?,
            _ => self.bare()?,
        }
        self.text.get(start..self.at)
    }

    fn string(&mut self) -> Option<()> {
        self.eat(b'"')?;
        loop {
            match self.text.as_bytes().get(self.at)? {
                b'"' => break self.at += 1,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        Some(())
    }

    /// A number, `true`, `false` or `null`.
    fn bare(&mut self) -> Option<()> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Steps over an object or an array, and shows each item's raw name (empty in an array) and raw value.
    fn items(
        &mut self,
        close: u8,
        named: bool,
        depth: usize,
        mut item: impl FnMut(&'a str, &'a str) -> Option<()>,
    ) -> Option<()> {
        if depth == DEPTH_LIMIT {
            return None;
        }
        self.at += 1;
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            let mut name = "";
            if named {
                name = (self.peek()? == b'"').then(|| self.value(depth))??;
                self.eat(b':')?;
            }
            item(name, self.value(depth + 1)?)?;
            if self.eat(b',').is_none() {
                return self.eat(close);
            }
        }
    }
}

/// The fields of one object, to be taken one by one.
pub(super) struct Fields<'a>(Vec<(String, &'a str)>);

impl<'a> Fields<'a> {
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let mut fields = Vec::new();
        let mut cutter = Cutter::new(text);
        (cutter.peek()? == b'{').then_some(())?;
        cutter.items(b'}', true, 0, |name, value| {
            fields.push((unquote(name)?, value));
            Some(())
        })?;
        cutter.peek().is_none().then_some(Self(fields))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn number(&mut self, name: &str) -> Option<u64> {
        self.take(name)?.parse().ok()
    }

    pub(super) fn integer(&mut self, name: &str) -> Option<i32> {
        self.take(name)?.parse().ok()
    }

    pub(super) fn numbers(&mut self, name: &str) -> Option<Vec<u64>> {
        self.items(name, |value| value.parse().ok())
    }

    /// 128 bits in hexadecimal.
    pub(super) fn id(&mut self, name: &str) -> Option<u128> {
        u128::from_str_radix(&self.text(name)?, 16).ok()
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        unquote(self.take(name)?)
    }

    /// An array of objects.
    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        self.items(name, |value| read(Self::read(value)?))
    }

    /// An array of strings.
    pub(super) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        self.items(name, unquote)
    }

    fn items<T>(&mut self, name: &str, read: impl Fn(&'a str) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        let mut cutter = Cutter::new(self.take(name)?);
        (cutter.peek()? == b'[').then_some(())?;
        cutter.items(b']', false, 0, |_, value| {
            items.push(read(value)?);
            Some(())
        })?;
        Some(items)
    }

    /// What was not taken.
    pub(super) fn rest(self) -> Extra {
        Extra(self.0.into_iter().map(|(name, value)| (name, value.to_owned())).collect())
    }
}

fn unquote(raw: &str) -> Option<String> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        let plain = match character {
            '\\' => match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let hex = rest.as_str().get(..4)?;
                    units.push(u16::from_str_radix(hex, 16).ok()?);
                    rest = rest.as_str().get(4..)?.chars();
                    continue;
                }
                other => other,
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).ok()
}

/// Writes one object, field by field.
pub(super) struct Object {
    text: String,
}

impl Object {
    pub(super) fn new() -> Self {
        Self { text: String::from("{") }
    }

    fn name(&mut self, name: &str) -> &mut String {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        quote(&mut self.text, name);
        self.text.push(':');
        &mut self.text
    }

    pub(super) fn number(mut self, name: &str, value: u64) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.name(name), "{value}");
        self
    }

    pub(super) fn integer(mut self, name: &str, value: i32) -> Self {
        let _ = write!(self.name(name), "{value}");
        self
    }

    pub(super) fn numbers(self, name: &str, values: impl Iterator<Item = u64>) -> Self {
        self.list(name, values.map(|value| alloc::format!("{value}")))
    }

    pub(super) fn texts<'a>(self, name: &str, values: impl Iterator<Item = &'a str>) -> Self {
        let quoted = values.map(|value| {
            let mut text = String::new();
            quote(&mut text, value);
            text
        });
        self.list(name, quoted)
    }

    pub(super) fn id(mut self, name: &str, value: u128) -> Self {
        let _ = write!(self.name(name), "\"{value:032x}\"");
        self
    }

    pub(super) fn text(mut self, name: &str, value: &str) -> Self {
        quote(self.name(name), value);
        self
    }

    pub(super) fn list(mut self, name: &str, items: impl Iterator<Item = String>) -> Self {
        let text = self.name(name);
        text.push('[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&item);
        }
        text.push(']');
        self
    }

    pub(super) fn end(mut self, extra: &Extra) -> String {
        for (name, value) in &extra.0 {
            self.name(name).push_str(value);
        }
        self.text.push('}');
        self.text
    }
}

fn quote(out: &mut String, value: &str) {
    out.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_took_is_written_back_as_it_stood() {
        let text = r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]},"b":"q\u00e9\n"}"#;
        let mut fields = Fields::read(text).unwrap();
        assert_eq!(fields.number("a"), Some(1));
        assert_eq!(fields.text("b").as_deref(), Some("qé\n"));
        let again = Object::new().number("a", 1).end(&fields.rest());
        assert_eq!(again, r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]}}"#);
    }

    #[test]
    fn broken_text_is_refused() {
        let deep = "[".repeat(100);
        for text in ["", "{", "[]", "{\"a\":}", "{\"a\":1,}", "{\"a\":\"\\", "{} x", &deep, "{\"a\":[1}", "{1:2}"] {
            assert!(Fields::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn text_survives() {
        for text in ["", "\"\\/\u{0}\u{1f}", "\u{1f98a} fox", "\u{ffff}"] {
            let object = Object::new().text("t", text).end(&Extra::default());
            assert_eq!(Fields::read(&object).unwrap().text("t").as_deref(), Some(text));
        }
    }
}
