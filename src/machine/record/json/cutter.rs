//! Cuts a JSON text into raw pieces, and decodes quoted strings.

use alloc::{borrow::ToOwned, string::String};
use core::str::Chars;

/// Nothing that this library writes nests deeper.
const DEPTH_LIMIT: usize = 32;

/// Cuts one JSON text into raw pieces.
#[derive(Clone, Copy)]
pub(super) struct Cutter<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cutter<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    pub(super) fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Steps over one value and returns its text.
    pub(super) fn value(&mut self, depth: usize) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' => self.nested(b'}', depth)?,
            b'[' => self.nested(b']', depth)?,
            _ => self.bare()?,
        }
        self.text.get(start..self.at)
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
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

    /// An object or an array.
    fn nested(&mut self, close: u8, depth: usize) -> Option<()> {
        if depth == DEPTH_LIMIT {
            return None;
        }
        self.at += 1;
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            if close == b'}' {
                self.name()?;
            }
            self.value(depth + 1)?;
            if self.eat(b',').is_none() {
                return self.eat(close);
            }
        }
    }

    /// Steps over the name of a field and its colon. Returns the name with its quotes.
    pub(super) fn name(&mut self) -> Option<&'a str> {
        let name = (self.peek()? == b'"').then(|| self.value(0))??;
        self.eat(b':')?;
        Some(name)
    }

    /// Steps over an array. `item` steps over each of its items.
    pub(super) fn array(&mut self, item: &mut dyn FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        if self.eat(b']').is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.eat(b',').is_none() {
                return self.eat(b']');
            }
        }
    }
}

/// Decodes a string that is written in quotes.
pub(super) fn unquote(raw: &str) -> Option<String> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(inner.to_owned());
    }
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

/// Reads a character that is written as UTF-16 units in hexadecimal. The first `\u` has been read.
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
