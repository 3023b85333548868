//! Reads one object, field by field.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use super::{
    Extra,
    cutter::{Cutter, unquote},
};

/// The fields of one object, which are taken one by one. A field that is missing or malformed reads as zero or as empty, and is noted in
/// `is_sound`. Fields may be taken in any order. If they are taken in the order in which they were written, each byte is read once.
pub(in super::super) struct Fields<'a> {
    /// Stands at the next field, until the object is over.
    cutter: Cutter<'a>,
    is_over: bool,
    /// The fields that were stepped over: raw names and raw values.
    passed: Vec<(&'a str, &'a str)>,
    is_sound: bool,
}

impl<'a> Fields<'a> {
    pub(in super::super) fn read(text: &'a str) -> Self {
        Self::open(Cutter::new(text))
    }

    /// The fields of the object at which the cutter stands.
    fn open(mut cutter: Cutter<'a>) -> Self {
        let is_sound = cutter.eat(b'{').is_some();
        let is_over = !is_sound || cutter.eat(b'}').is_some();
        Self { cutter, is_over, passed: Vec::new(), is_sound }
    }

    /// Whether the text is this object and nothing else, and each field that was taken was there and well formed.
    pub(in super::super) fn is_sound(&mut self) -> bool {
        self.close().is_some_and(|mut cutter| cutter.peek().is_none())
    }

    /// Steps over the fields that are left. Returns a cutter that stands right after the object.
    fn close(&mut self) -> Option<Cutter<'a>> {
        self.pass(None);
        self.is_sound.then_some(self.cutter)
    }

    /// Steps over all fields before the one with this name, and over the name itself. Returns whether there is such a field.
    fn pass(&mut self, name: Option<&str>) -> bool {
        while !self.is_over {
            let Some(found) = self.cutter.name() else { return self.fail() };
            if Some(inner(found)) == name {
                return true;
            }
            let Some(value) = self.cutter.value(0) else { return self.fail() };
            self.passed.push((found, value));
            self.end_field();
        }
        false
    }

    /// Steps over the comma or the brace after a value.
    fn end_field(&mut self) {
        if self.cutter.eat(b',').is_none() {
            self.is_over = true;
            self.is_sound &= self.cutter.eat(b'}').is_some();
        }
    }

    /// Stops reading, because the text is malformed.
    fn fail(&mut self) -> bool {
        self.is_over = true;
        self.is_sound = false;
        false
    }

    /// The raw value of a field that was stepped over.
    fn take_passed(&mut self, name: &str) -> Option<&'a str> {
        let at = self.passed.iter().position(|(passed, _)| inner(passed) == name)?;
        Some(self.passed.remove(at).1)
    }

    fn take(&mut self, name: &str) -> &'a str {
        if let Some(value) = self.take_passed(name) {
            return value;
        }
        match self.pass(Some(name)).then(|| self.cutter.value(0)).flatten() {
            Some(value) => {
                self.end_field();
                value
            }
            // No JSON value is an empty text, so this cannot be mistaken for one.
            None => {
                self.fail();
                ""
            }
        }
    }

    fn sound<T: Default>(&mut self, value: Option<T>) -> T {
        self.is_sound &= value.is_some();
        value.unwrap_or_default()
    }

    pub(in super::super) fn number(&mut self, name: &str) -> u64 {
        let number = self.take(name).parse().ok();
        self.sound(number)
    }

    pub(in super::super) fn integer(&mut self, name: &str) -> i32 {
        let text = self.take(name);
        let digits = text.strip_prefix('-');
        // Parsed as a `u64`, like `number`: one parser serves both.
        let amount = digits.unwrap_or(text).parse().ok().and_then(|amount: u64| i64::try_from(amount).ok());
        let signed = amount.map(|amount| if digits.is_some() { -amount } else { amount });
        self.sound(signed.and_then(|signed| i32::try_from(signed).ok()))
    }

    pub(in super::super) fn numbers(&mut self, name: &str) -> Vec<u64> {
        let mut numbers = Vec::new();
        self.array(name, &mut |cutter| {
            numbers.push(cutter.value(0)?.parse().ok()?);
            Some(())
        });
        numbers
    }

    /// 128 bits in hexadecimal.
    pub(in super::super) fn id(&mut self, name: &str) -> u128 {
        let digits = self.word(name);
        let mut id = (1..=32).contains(&digits.len()).then_some(0);
        for digit in digits.chars() {
            id = id.and_then(|id| Some(id << 4 | u128::from(digit.to_digit(16)?)));
        }
        self.sound(id)
    }

    /// A string as it is written between its quotes. Escapes are not decoded.
    pub(in super::super) fn word(&mut self, name: &str) -> &'a str {
        inner(self.take(name))
    }

    pub(in super::super) fn text(&mut self, name: &str) -> String {
        let text = unquote(self.take(name));
        self.sound(text)
    }

    /// An array of objects.
    pub(in super::super) fn list<T>(&mut self, name: &str, read: impl Fn(&mut Self) -> Option<T>) -> Vec<T> {
        let mut items = Vec::new();
        self.objects(name, &mut |fields| {
            items.push(read(fields)?);
            Some(())
        });
        items
    }

    fn objects(&mut self, name: &str, read: &mut dyn FnMut(&mut Self) -> Option<()>) {
        self.array(name, &mut |cutter| {
            let mut fields = Self::open(*cutter);
            read(&mut fields)?;
            *cutter = fields.close()?;
            Some(())
        });
    }

    fn array(&mut self, name: &str, item: &mut dyn FnMut(&mut Cutter<'a>) -> Option<()>) {
        if let Some(passed) = self.take_passed(name) {
            self.is_sound &= Cutter::new(passed).array(item).is_some();
        } else if self.pass(Some(name)) && self.cutter.array(item).is_some() {
            self.end_field();
        } else {
            self.fail();
        }
    }

    /// The fields that nobody took.
    pub(in super::super) fn rest(&mut self) -> Extra {
        self.pass(None);
        let mut extra = Extra::default();
        for (name, value) in &self.passed {
            extra.0.push(((*name).to_owned(), (*value).to_owned()));
        }
        extra
    }
}

/// A raw name or string without its quotes. Empty if it is not quoted.
fn inner(raw: &str) -> &str {
    raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or_default()
}
