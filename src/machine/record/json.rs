//! Just enough JSON for records and messages, without losing what a newer version wrote.
//!
//! The reader cuts an object into raw values; what nobody asked for is written back as it stood.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt::Write, str::Chars};

/// Nothing that we write nests deeper.
const DEPTH_LIMIT: usize = 32;

/// The fields that this version does not know, as they stood: name and raw value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Extra(Vec<(String, String)>);

impl Extra {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }
}

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
            b'{' => self.items(b'}', true, depth, &mut |_, _| Some(()))?,
            b'[' => self.items(b']', false, depth, &mut |_, _| Some(()))?,
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
        item: &mut dyn FnMut(&'a str, &'a str) -> Option<()>,
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

/// The fields of one object, to be taken one by one. What is missing or malformed is noted, and reads as nothing.
pub(super) struct Fields<'a> {
    left: Vec<(String, &'a str)>,
    is_sound: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let mut left = Vec::new();
        let mut cutter = Cutter::new(text);
        (cutter.peek()? == b'{').then_some(())?;
        cutter.items(b'}', true, 0, &mut |name, value| {
            left.push((unquote(name)?, value));
            Some(())
        })?;
        cutter.peek().is_none().then_some(Self { left, is_sound: true })
    }

    /// Whether all that was taken was there, and what it should be.
    pub(super) fn is_sound(&self) -> bool {
        self.is_sound
    }

    fn take(&mut self, name: &str) -> &'a str {
        let at = self.left.iter().position(|(known, _)| known == name);
        // No value is empty.
        at.map_or("", |at| self.left.remove(at).1)
    }

    fn sound<T: Default>(&mut self, value: Option<T>) -> T {
        self.is_sound &= value.is_some();
        value.unwrap_or_default()
    }

    pub(super) fn number(&mut self, name: &str) -> u64 {
        let number = self.take(name).parse().ok();
        self.sound(number)
    }

    pub(super) fn integer(&mut self, name: &str) -> i32 {
        let text = self.take(name);
        let digits = text.strip_prefix('-');
        // Read as the larger number: one reader serves both.
        let amount = digits.unwrap_or(text).parse().ok().and_then(|amount: u64| i64::try_from(amount).ok());
        let signed = amount.map(|amount| if digits.is_some() { -amount } else { amount });
        self.sound(signed.and_then(|signed| i32::try_from(signed).ok()))
    }

    pub(super) fn numbers(&mut self, name: &str) -> Vec<u64> {
        self.items(name, |value| value.parse().ok())
    }

    /// 128 bits in hexadecimal.
    pub(super) fn id(&mut self, name: &str) -> u128 {
        let id = u128::from_str_radix(&self.text(name), 16).ok();
        self.sound(id)
    }

    pub(super) fn text(&mut self, name: &str) -> String {
        let text = unquote(self.take(name));
        self.sound(text)
    }

    /// An array of objects.
    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(&mut Self) -> Option<T>) -> Vec<T> {
        self.items(name, |value| {
            let mut fields = Self::read(value)?;
            let item = read(&mut fields);
            item.filter(|_| fields.is_sound)
        })
    }

    fn items<T>(&mut self, name: &str, read: impl Fn(&'a str) -> Option<T>) -> Vec<T> {
        let mut items = Vec::new();
        let mut cutter = Cutter::new(self.take(name));
        let mut item = |_, value| {
            items.push(read(value)?);
            Some(())
        };
        self.is_sound &= cutter.peek() == Some(b'[') && cutter.items(b']', false, 0, &mut item).is_some();
        items
    }

    /// What was not taken.
    pub(super) fn rest(&self) -> Extra {
        let mut extra = Extra::default();
        for (name, value) in &self.left {
            extra.0.push((name.clone(), (*value).to_owned()));
        }
        extra
    }
}

fn unquote(raw: &str) -> Option<String> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let (mut text, mut rest) = (String::with_capacity(inner.len()), inner.chars());
    while let Some(character) = rest.next() {
        text.push(match character {
            '\\' => match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => escaped(&mut rest)?,
                other => other,
            },
            other => other,
        });
    }
    Some(text)
}

/// A character as its UTF-16 units are written, after the first `\u`.
fn escaped(rest: &mut Chars<'_>) -> Option<char> {
    let unit = hex(rest)?;
    if !(0xd800..0xdc00).contains(&unit) {
        return char::from_u32(unit);
    }
    // The other half of a pair must follow.
    (rest.next()? == '\\' && rest.next()? == 'u').then_some(())?;
    let low = hex(rest)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + low)
}

fn hex(rest: &mut Chars<'_>) -> Option<u32> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit << 4 | rest.next()?.to_digit(16)?;
    }
    Some(unit)
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

    pub(super) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.name(name).push_str(&value.to_string());
        self
    }

    pub(super) fn integer(&mut self, name: &str, value: i32) -> &mut Self {
        let text = self.name(name);
        if value < 0 {
            text.push('-');
        }
        text.push_str(&u64::from(value.unsigned_abs()).to_string());
        self
    }

    pub(super) fn id(&mut self, name: &str, value: u128) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.name(name), "\"{value:032x}\"");
        self
    }

    pub(super) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        quote(self.name(name), value);
        self
    }

    /// An array, each item of which is written by `write`.
    pub(super) fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&T) -> String) -> &mut Self {
        self.name(name).push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.text.push_str(&write(item));
        }
        self.text.push(']');
        self
    }

    pub(super) fn end(&mut self, extra: &Extra) -> String {
        for (name, value) in &extra.0 {
            self.name(name).push_str(value);
        }
        self.text.push('}');
        core::mem::take(&mut self.text)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_took_is_written_back_as_it_stood() {
        let text = r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]},"b":"q\u00e9\n"}"#;
        let mut fields = Fields::read(text).unwrap();
        assert_eq!(fields.number("a"), 1);
        assert_eq!(fields.text("b"), "qé\n");
        let again = Object::new().number("a", 1).end(&fields.rest());
        assert_eq!(again, r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]}}"#);
    }

    #[test]
    fn what_is_missing_or_malformed_is_noted() {
        let text = r#"{"n":1,"t":"x","l":[{}],"m":[1,"2"]}"#;
        let noted = |take: fn(&mut Fields<'_>)| {
            let mut fields = Fields::read(text).unwrap();
            take(&mut fields);
            !fields.is_sound()
        };
        assert!(!noted(|fields| drop((fields.number("n"), fields.text("t"), fields.rest()))));
        assert!(noted(|fields| _ = fields.number("t")));
        assert!(noted(|fields| _ = fields.integer("absent")));
        assert!(noted(|fields| _ = fields.text("n")));
        assert!(noted(|fields| _ = fields.id("t")));
        assert!(noted(|fields| _ = fields.numbers("m")));
        assert!(noted(|fields| _ = fields.list("l", |item| Some(item.number("absent")))));
        // Once is enough.
        assert!(noted(|fields| _ = (fields.number("absent"), fields.number("n"))));
    }

    #[test]
    fn escapes_are_read() {
        let read = |raw: &str| unquote(&["\"", raw, "\""].concat());
        assert_eq!(read(r"a\n\t\r\b\f\\\/\u00e9\ud83e\uDD8Ae").as_deref(), Some("a\n\t\r\u{8}\u{c}\\/é🦊e"));
        for broken in [r"\u12", r"\u12g4", r"\ud83e", r"\ud83ex", r"\ud83e\n", r"\ud83e\ud83e", r"\udd8a", "\\"] {
            assert_eq!(read(broken), None, "{broken}");
        }
    }

    #[test]
    fn integers_survive_as_far_as_they_go() {
        for value in [0, 1, -1, i32::MAX, i32::MIN] {
            let object = Object::new().integer("i", value).end(&Extra::default());
            assert_eq!(object, alloc::format!("{{\"i\":{value}}}"));
            assert_eq!(Fields::read(&object).unwrap().integer("i"), value);
        }
        for text in ["2147483648", "-2147483649", "--1", "-", "1.5", "18446744073709551615"] {
            let object = alloc::format!("{{\"i\":{text}}}");
            let mut fields = Fields::read(&object).unwrap();
            assert_eq!((fields.integer("i"), fields.is_sound()), (0, false), "{text}");
        }
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
            assert_eq!(Fields::read(&object).unwrap().text("t"), text);
        }
    }
}
