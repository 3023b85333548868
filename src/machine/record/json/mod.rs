//! Just enough JSON for records and messages, without losing what a newer version wrote.
//!
//! The reader cuts an object into raw values. Fields that this version does not know are written back unchanged.

mod cutter;
mod reader;
mod writer;

use alloc::{string::String, vec::Vec};

pub(super) use reader::Fields;
pub(super) use writer::Object;

/// The fields that this version does not know: their raw names and raw values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Extra(Vec<(String, String)>);

impl Extra {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::{cutter::unquote, *};

    #[test]
    fn fields_that_nobody_took_are_written_back_as_they_stood() {
        let text = r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]},"b":"q\u00e9\n"}"#;
        let mut fields = Fields::read(text);
        assert_eq!(fields.number("a"), 1);
        assert_eq!(fields.text("b"), "qé\n");
        let again = Object::new().number("a", 1).end(&fields.rest());
        assert_eq!(again, r#"{"a":1,"later":{"x":[1.5e3,null,"}\""]}}"#);
        // Names keep their escapes, too.
        let extra = Fields::read(r#"{"\u0061\ud800":1,"":2}"#).rest();
        assert_eq!(Object::new().end(&extra), r#"{"\u0061\ud800":1,"":2}"#);
    }

    #[test]
    fn fields_may_stand_in_any_order() {
        let item = r#"{"x":[3],"n":2}"#;
        for text in [format!(r#"{{"l":[{item}],"a":1}}"#), format!(r#"{{"a":1,"l":[{item}]}}"#)] {
            let mut fields = Fields::read(&text);
            assert_eq!(fields.number("a"), 1, "{text}");
            let items = fields.list("l", |item| Some((item.number("n"), item.numbers("x"))));
            assert_eq!(items, [(2, [3].into())], "{text}");
            assert!(fields.is_sound(), "{text}");
        }
    }

    #[test]
    fn what_is_missing_or_malformed_is_noted() {
        let text = r#"{"n":1,"t":"x","l":[{}],"m":[1,"2"]}"#;
        let noted = |take: fn(&mut Fields<'_>)| {
            let mut fields = Fields::read(text);
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
        // A field that is read well afterwards does not mend it.
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
            assert_eq!(object, format!("{{\"i\":{value}}}"));
            assert_eq!(Fields::read(&object).integer("i"), value);
        }
        for text in ["2147483648", "-2147483649", "--1", "-", "1.5", "18446744073709551615"] {
            let object = format!("{{\"i\":{text}}}");
            let mut fields = Fields::read(&object);
            assert_eq!((fields.integer("i"), fields.is_sound()), (0, false), "{text}");
        }
    }

    #[test]
    fn broken_text_is_refused() {
        let deep = "[".repeat(100);
        for text in [
            "",
            "{",
            "[]",
            "{\"a\":}",
            "{\"a\":1}}",
            "{\"a\" 1}",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1,}",
            "{\"a\":\"\\",
            "{} x",
            &deep,
            "{\"a\":[1}",
            "{1:2}",
        ] {
            assert!(!Fields::read(text).is_sound(), "{text}");
        }
    }

    #[test]
    fn text_survives() {
        for text in ["", "\"\\/\u{0}\u{1f}", "\u{1f98a} fox", "\u{ffff}"] {
            let object = Object::new().text("t", text).end(&Extra::default());
            assert_eq!(Fields::read(&object).text("t"), text);
        }
    }
}
